"""The tree of options, every one present with its default.

The defaults are the paper's where it gives a value (RL Conductor, arXiv 2512.04388).
"""

from ml_collections import ConfigDict


def default_config() -> ConfigDict:
  """The whole tree."""
  return ConfigDict({
      # Every random choice of a run follows from it.
      "seed": 0,
      "model": {
          # A folder with a Hugging Face checkpoint, or a GGUF file: shape, weights and tokenizer.
          "weights": "",
          # A shape by its name, such as "qwen2.5-7b", with weights that are drawn from the seed.
          "name": "",
          # The shape where neither of the two is given.
          "hidden_size": 3584,
          "intermediate_size": 18944,
          "num_layers": 28,
          "num_heads": 28,
          "num_kv_heads": 4,
          "head_dim": 128,
          "max_positions": 32768,
          "rope_theta": 1e6,
          "norm_eps": 1e-6,
          "tied": False,
          "compute_dtype": "bfloat16",
          # Of the parameters as they are stored. Trained ones stand still in bfloat16 at a small
          # learning rate: it is meant for what lies frozen beside adapters.
          "param_dtype": "float32",
          # What the backward pass keeps: "none" recomputes nothing, "dots" keeps the results of
          # attention, gate and up, "full" recomputes every layer.
          "remat": "full",
          # Of training: XLA's "blockwise", TPUs' "splash", NVIDIA GPUs' "cudnn"; "auto" takes what
          # suits the platform.
          "attention": "auto",
          # Rank of adapters that are trained in place of the weights (LoRA); 0 for none. Their
          # product is scaled by alpha / rank.
          "lora_rank": 0,
          "lora_alpha": 32.0,
          "lora_targets": ("query", "key", "value", "output", "gate", "up", "down"),
          # Tokens whose logits exist at once.
          "logprob_chunk": 2048,
      },
      "tokenizer": {
          # Where there are no model.weights a BPE is trained at the start; its size.
          "vocab_size": 1024,
      },
      "tasks": {
          # "arena" generates tasks; "files" reads benchmark rows in the hub's columns, in the
          # folder `path`; "hub" gets them from the Hugging Face hub.
          "source": "arena",
          "path": "",
          # All that there are stand in tasks/question_benchmarks.py and tasks/code_benchmarks.py.
          "benchmarks": ("gsm8k", "mmlu", "math500"),
          # Of benchmarks that have several; training and held-out tasks are disjoint parts of it.
          "split": "test",
          # Training tasks at most.
          "train": 2400,
          # Whether training and held-out tasks are as many of each benchmark, and those trained on
          # come from each in turn.
          "balanced": False,
          # Benchmarks whose questions are not trained on, beside the held-out ones.
          "evaluated": (),
          # (benchmark, file under `path`) where it is not BENCHMARK/SPLIT with one of the suffixes,
          # such as ("bigcodebench", "bigcodebench/BigCodeBench-v0.1.0_hf.jsonl.gz").
          "files": (),
          # (benchmark, commit or tag) of its data set on the hub; the newest where there is none.
          "revisions": (),
          # "release_v1" to "release_v6", or what versions added, such as "v6" or "v5_v6".
          "livecodebench_release": "release_v1",
          # "instruct" describes the program in words, "complete" gives its beginning.
          "bigcodebench_prompt": "instruct",
          # Of the order of the options of GPQA, whose files have the right one first.
          "gpqa_seed": 0,
          # One's own benchmarks: a mapping of the fields of each, such as {"name": "riddles",
          # "grader": "text"}; all that there are stand in tasks/own.py.
          "own": (),
      },
      # Where the programs in answers run that coding tasks are graded by.
      "sandbox": {
          # Their interpreter, such as that of an environment with BigCodeBench's libraries; "" is
          # the run's own.
          "python": "",
          # Sandboxes at the same time; 0 is one per core.
          "sessions": 0,
          # Multiplies the time that programs may take, on machines that are slow or busy.
          "time_factor": 1.0,
          # Runs programs without a sandbox, with no more than limits on their processes: for those
          # who are inside a container of their own.
          "unsafe": False,
      },
      "pool": {
          # "arena": the specialists; "frontier": simulated frontier models that know the answers;
          # "vllm": a language model behind a server that the run starts, as `vllm` says; "paper":
          # the paper's seven workers, at their vendors; "open": open models behind vLLM servers
          # that are running, as `open` says; "listed": the `workers`.
          "source": "arena",
          # Of the local server; 0 takes any free one.
          "port": 0,
          # Seconds that a simulated worker takes to answer.
          "latency": 0.0,
          # (worker, share) of the arena's workers that lose so many of their calls, and say so.
          "noise": (),
          # Which workers a training question's plans may use: "all"; "fixed:3", three that are
          # drawn for it; "uniform:2-5", two to five; "groups:open,closed", one of these groups.
          # That of held-out questions is evaluation.offer.
          "offer": "all",
          # (group, workers) such as ("open", ("gemma-3-27b", "qwen3-32b")).
          "groups": (),
          # Whether the workers on offer are numbered from 0 on. They keep the numbers that they
          # have among all otherwise, and only these tell a conductor who is who.
          "renumber": False,
          # Seconds that one request may take in all, for its connection, and without a byte; 0 of
          # the last is no bound of its own.
          "request_timeout": 600.0,
          "connect_timeout": 10.0,
          "read_timeout": 0.0,
          # Requests of a call, and seconds that bound the wait for another one, whatever the
          # endpoint asks for.
          "max_attempts": 4,
          "longest_wait": 60.0,
          # Requests to all workers at once; each worker has a limit of its own beside it.
          "max_in_flight": 1024,
          # Requests in a row after which an endpoint is taken to be down, and seconds until it is
          # probed.
          "breaker_failures": 10,
          "breaker_cooldown": 1.0,
          # What a run may spend in its life, 0 for no limit; when it is spent, the run stops at a
          # checkpoint, and goes on with a higher one.
          "budget": {
              "dollars": 0.0,
              "tokens": 0,
              "calls": 0,
              # The same for single workers, such as ("gpt-5", "dollars", 50.0).
              "workers": (),
          },
          # Where requests and answers are written. "record" pays for every call, but not again for
          # what the run had before it was interrupted; "replay" pays for nothing and takes all
          # answers from the journal; "replay-or-record" pays for those that are not in it.
          "journal": {
              "mode": "record",
              # "" is journal.sqlite in the work directory. In another one, what others have spent
              # stands beside this run's, so it cannot be had with a budget.
              "path": "",
          },
          # Workers that are one model, each with a temperature of its own.
          "vllm": {
              # A folder that vLLM reads, or a GGUF file, as in model.weights.
              "weights": "",
              "dtype": "bfloat16",
              # The longest conversation in tokens, and the longest answer.
              "max_model_len": 2048,
              "max_tokens": 512,
              # Further arguments of the server.
              "arguments": (),
              # (name, temperature) of each.
              "workers": (),
          },
          "open": {
              # (model, endpoint) of each server, such as ("google/gemma-3-27b-it",
              # "http://127.0.0.1:8000/v1").
              "urls": (),
          },
          # A mapping of the fields of each, such as {"name": "solver", "model": "llama-3.3-70b",
          # "base_url": "http://127.0.0.1:8000/v1", "limits": {"concurrent": 8}}; all that there are
          # stand in workers/pool.py.
          "workers": (),
      },
      "workflow": {
          "max_steps": 5,
          # Access lists open all earlier steps or none, "binary"; those they name, "positions"; or
          # there are none, and no step sees another, "none".
          "access": "binary",
          # Without subtasks every worker is asked to answer the question.
          "subtasks": True,
          # Examples in the prompt, 5 at most: of other domains than any that is trained on,
          # "outside"; training questions with plans that know nothing, "training"; or those in
          # few_shot_file, "file", as workflows/few_shot.py describes it.
          "few_shot": 4,
          "few_shot_source": "outside",
          "few_shot_file": "",
          # How the conductor's turn begins; neither sampled nor trained.
          "prefill": "Let me plan this step by step.\n",
          # Rounds of a held-out question: after each the conductor sees the answer, and keeps it or
          # writes another plan.
          "max_rounds": 1,
          # Dollars of a held-out question after which no further round begins; 0 for any.
          "max_dollars": 0.0,
          # How a worker is shown earlier answers.
          "context": "messages",
          # Seconds that a workflow may take; 0 for any.
          "deadline": 0.0,
          # Whether plans of a group that begin with the same call share its answer.
          "share_identical_calls": False,
      },
      "reward": {
          "unparsed": 0.0,
          "wrong": 0.5,
          "right": 1.0,
          # Taken for each dollar, each thousand tokens and each second of a plan's workers.
          "per_dollar": 0.0,
          "per_thousand_tokens": 0.0,
          "per_second": 0.0,
      },
      "rollout": {
          # "jax" decodes with the trainer's own model, "vllm" asks servers beside it.
          "sampler": "jax",
          "temperature": 1.0,
          "max_prompt_tokens": 8192,
          "max_completion_tokens": 1024,
          # Updates that a rollout may lag behind the weights that it trains. 0 is strictly on
          # policy; above, rollouts are collected while a step trains.
          "max_staleness": 0,
          # Groups of rollouts that may be begun in place of late ones.
          "extra_groups": 0,
          "vllm": {
              # The Python of vLLM's environment, whose server the run starts and ends ...
              "python": "",
              # ... or servers that are running, such as ("http://127.0.0.1:8000",).
              "urls": (),
              # Of the run's own server; 0 takes any free one.
              "port": 0,
              "dtype": "bfloat16",
              # More of the server's own options, such as ("--enforce-eager",).
              "arguments": (),
              # New weights are handed over here: in memory, or on a disk that all servers see.
              "weights_folder": "/dev/shm",
              # Seconds for the server to start, for a completion, and for taking new weights.
              "start_timeout": 600.0,
              "request_timeout": 600.0,
              "sync_timeout": 120.0,
              # The server sleeps while the trainer uses the GPU that they share.
              "share_device": False,
          },
      },
      "grpo": {
          "iterations": 200,
          # Questions an iteration, and rollouts a question.
          "prompts": 4,
          "group_size": 64,
          # Rollouts of a question that share a row, and so its prompt; 0 for all of them. Rows are
          # what is spread over devices and micro-batches.
          "samples_per_row": 0,
          # Parts that a batch's rows are worked off in, one after the other.
          "micro_batches": 1,
          # "std" divides by the group's standard deviation, "mean" does not (Dr. GRPO);
          # "leave-one-out" leaves a rollout out of the mean that it is compared with (RLOO).
          "advantage": "std",
          # Masks out groups whose rewards are all equal, from counts and the KL term too.
          "drop_zero_variance": False,
          # The mean over all "token"s (DAPO), over each "sequence" and then over sequences, or
          # with the "constant" rollout.max_completion_tokens as every length (Dr. GRPO).
          "aggregation": "token",
          # Likelihood ratios of each "token", or of the whole "sequence" (GSPO).
          "ratio": "token",
          # How far a ratio may fall and rise.
          "clip_low": 0.2,
          "clip_high": 0.2,
          # Bounds the cost of an unwanted token whose ratio is above it; 0 is off.
          "dual_clip": 0.0,
          # Of the weights of the trainer's policy against the sampler's; 0 is off, and takes the
          # ratio against the sampler instead.
          "importance_cap": 0.0,
          # Weight of the KL term to the policy that RL started from; 0 loads no reference.
          "kl_coefficient": 0.0,
          # The part of it that is left, after a linear decay, at the last iteration.
          "kl_final_fraction": 1.0,
          # "k1", "k2" or "k3" of the sampled tokens, or the "exact" sum over the vocabulary. As a
          # loss, k1 has an expected gradient of zero.
          "kl_estimator": "k3",
          # Weight of the entropy bonus; where it starts if it is steered.
          "entropy_coefficient": 0.0,
          # Entropy in nats per token that the weight is steered to; 0 keeps the weight.
          "entropy_target": 0.0,
          # How far it moves in an iteration, and the most that it may be.
          "entropy_rate": 0.005,
          "entropy_maximum": 0.1,
          "recursion": {
              # Of an iteration's questions, whose plans a second round follows. The paper has 0.5.
              "share": 0.0,
              # A first round's reward is (1 - discount) of its "own" and discount of the second's,
              # "discounted"; its "own" alone; or that of the second alone, "final".
              "first_reward": "discounted",
              "discount": 0.25,
              # Advantages are over the rollouts of a question in each "round", or in both of them,
              # "question".
              "group": "round",
              # Parts that the rows of the second round are worked off in. Each is one rollout, for
              # they share no prompt.
              "micro_batches": 1,
          },
      },
      "optimizer": {
          "learning_rate": 1e-6,
          "warmup_fraction": 0.03,
          "decay": "cosine",
          "b1": 0.9,
          "b2": 0.999,
          "weight_decay": 0.0,
          "clip_norm": 1.0,
          # Of AdamW's first moment.
          "mu_dtype": "float32",
      },
      # Devices along each axis; their product is the number of devices.
      "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
      "sft": {
          # 0 starts GRPO from the model as it is.
          "steps": 300,
          # Tasks a step, and example plans a task.
          "prompts": 16,
          "plans": 4,
          # Parts that a batch's rows are worked off in, one after the other.
          "micro_batches": 1,
          "learning_rate": 2e-3,
          "warmup_fraction": 0.05,
          "decay": "cosine",
          # As pool.offer, for the prompts and plans of the warm start; "" is what that one says.
          "offer": "",
          # Steps from one checkpoint to the next.
          "checkpoint_every": 100,
      },
      "evaluation": {
          # Held-out tasks, and training tasks that choose the best single worker.
          "tasks": 300,
          # As pool.offer.
          "offer": "all",
          # Of the conductor's plans; 0 is greedy.
          "temperature": 1.0,
          # Tasks that are answered at the same time.
          "concurrent": 256,
      },
      # GRPO iterations from one checkpoint to the next, and how many are kept.
      "checkpoint": {"every": 20, "keep": 3},
      "report": {
          # Iterations from one rollout file to the next.
          "rollouts_every": 10,
          # A run warns of a collapse when, on average over so many iterations, a metric is beyond
          # its bound; 0 iterations never do.
          "collapse": {
              "iterations": 5,
              # At least this share of plans that parse, bits of worker entropy, steps a plan, and
              # share of open access lists. The last two are 0, off: some questions need no more.
              "parse_rate": 0.5,
              "worker_entropy_bits": 0.3,
              "steps_per_plan": 0.0,
              "access_density": 0.0,
              # At most this share of a group's plans that equal an earlier one and are wrong, and
              # of groups in which all are wrong alike; 1 is off. Plans that are equal and right
              # are what a policy ends with that has learned its task.
              "wrong_duplicates": 0.6,
              "failed_groups": 0.9,
          },
      },
  })
