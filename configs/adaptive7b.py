"""A conductor that does without some of its workers: fine-tuned on a random subset per question.

    python -m experiments.export --workdir=runs/conductor7b --output=runs/conductor7b/policy
    python -m experiments.train --config=configs/adaptive7b.py --workdir=runs/adaptive7b \\
        --config.model.weights=runs/conductor7b/policy --config.tasks.path=DIR

Goes on from a conductor that was trained with all workers, configs/conductor7b.py, on the same
devices. Every training question is offered 2 to 7 workers, which keep their numbers; how the paper
(arXiv 2512.04388) draws them, and for how many iterations, is not published. What is left of it
without the closed models, say, is measured with

    python -m experiments.evaluate --config=configs/adaptive7b.py --run=runs/adaptive7b \\
        --workdir=runs/adaptive7b-open --strategies=conductor,best_single_worker \\
        --config.evaluation.offer=groups:open --config.tasks.path=DIR

Expected, from the paper: it adapts to any subset, open or closed, and beats the best worker of it;
in the built-in world experiments/ablations/adaptive.py measures by how much.
"""

from configs.conductor7b import get_config as conductor7b


def get_config(devices="h100-2"):
  config = conductor7b(devices)
  config.pool.update(dict(
      offer="uniform:2-7",
      groups=(("closed", ("gemini-2.5-pro", "claude-sonnet-4", "gpt-5")),
              ("open", ("qwen3-32b", "gemma-3-27b", "qwen3-32b-reasoning",
                        "deepseek-r1-distill-qwen-32b")))))
  config.grpo.iterations = 50
  return config
