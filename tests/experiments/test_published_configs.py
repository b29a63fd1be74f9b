"""The configs of the paper's conductors, rehearsed with a tiny model and simulated workers."""

import gzip
import json
import os

import pytest

from tests.experiments.test_dryrun import write_rows

TINY = (
    "--config.model.hidden_size=96", "--config.model.intermediate_size=192",
    "--config.model.num_heads=4", "--config.model.num_kv_heads=2", "--config.model.head_dim=24",
    "--config.model.name=", "--config.model.num_layers=2", "--config.mesh.fsdp=1",
    "--config.model.compute_dtype=float32", "--config.model.remat=none",
    "--config.model.max_positions=768", "--config.tokenizer.vocab_size=1024",
    "--config.rollout.max_prompt_tokens=448", "--config.rollout.max_completion_tokens=64",
    "--config.sft.steps=80", "--config.sft.prompts=4", "--config.sft.plans=4",
    "--config.sft.learning_rate=0.005", "--config.tasks.train=60", "--config.evaluation.tasks=12",
    "--config.grpo.iterations=2", "--config.grpo.group_size=4", "--config.grpo.samples_per_row=4",
    "--config.grpo.micro_batches=1", "--config.grpo.recursion.micro_batches=2",
    "--config.report.rollouts_every=1",
)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["conductor7b", "conductor3b", "adaptive7b", "recursive7b"])
def test_a_published_config_walks_the_road(program, tmp_path, name):
  path = os.environ.get("CONDUCTOR_BENCHMARKS") or write_rows(tmp_path / "rows")
  workdir = tmp_path / "run"
  done = program.run(
      workdir, *TINY, f"--config.tasks.path={path}", config=f"configs/{name}.py")
  assert done.returncode == 0, done.stderr
  assert "with 4 examples" in done.stdout
  summary = json.loads((workdir / "summary.json").read_text())
  assert summary["iterations"] == 2
  rollouts = []
  for iteration in range(2):
    with gzip.open(workdir / "rollouts" / f"{iteration:06}.jsonl.gz") as file:
      rollouts.append([json.loads(line) for line in file])
  offered = {tuple(rollout["offered"]) for each in rollouts for rollout in each}
  later = [rollout for each in rollouts for rollout in each
           if rollout["previous_answer"] is not None]
  if name == "adaptive7b":
    assert len(offered) > 1 and all(2 <= len(each) <= 7 for each in offered)
  else:
    assert offered == {tuple(range(7))}
  # A plan has to parse before there is a second round.
  parsed = sum(isinstance(rollout["plan"], list) for each in rollouts for rollout in each)
  assert parsed > 0
  assert bool(later) == (name == "recursive7b")
