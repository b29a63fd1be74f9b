"""Checks of what the conductor is asked, whom it may ask, and of its second round."""

import numpy as np
import pytest

from conductor_jax.config_checks import check_config
from conductor_jax.errors import UserError
from conductor_jax.models.gguf import read_gguf
from conductor_jax.models.tokenizer import gguf_tokenizer
from conductor_jax.workers.offer import Offer
from experiments.chat import Chat
from experiments.components import load_splits, make_offers, worker_names
from tests.config_values import with_values


def test_noise_is_the_arenas_alone():
  noise = {"pool__noise": (("archivist-medium", 0.4),)}
  check_config(with_values(**noise))
  check_config(with_values(pool__noise=[["archivist-medium", 0]]))  # as in a run's config.json
  with pytest.raises(UserError, match="^--config.pool.noise=.* a worker of pool.source=arena"):
    check_config(with_values(**noise, pool__source="paper"))


def test_a_file_of_examples_is_named_where_they_come_from_one_and_nowhere_else():
  file = {"workflow__few_shot": 4, "workflow__few_shot_source": "file"}
  check_config(with_values(**file, workflow__few_shot_file="own.jsonl"))
  check_config(with_values(workflow__few_shot=0, workflow__few_shot_source="file"))
  for values in (file, {"workflow__few_shot": 4, "workflow__few_shot_file": "own.jsonl"}):
    name = values.get("workflow__few_shot_file", "")
    with pytest.raises(UserError, match=(
        f"^--config.workflow.few_shot_file={name}: names the file of "
        "--config.workflow.few_shot_source=file, and is empty otherwise$")):
      check_config(with_values(**values))


@pytest.mark.parametrize("name", ["model_id", "subtasks", "access_list"])
def test_a_prefill_that_begins_the_plan_is_refused_in_one_line(name):
  with pytest.raises(UserError) as fault:
    check_config(with_values(workflow__prefill=f"Plan:\n{name} = ["))
  assert str(fault.value) == (
      f"--config.workflow.prefill='Plan:\\n{name} = [': must not begin the plan, and holds {name}")


class TestRecursion:
  # The quickstart has 16 prompts an iteration and groups of 16.

  @pytest.mark.parametrize("values", [
      {"share": 0.5}, {"share": 1.0}, {"share": 1 / 16}, {"share": 0.25, "micro_batches": 16}])
  def test_a_part_of_the_questions_has_a_second_round(self, values):
    check_config(self.config(**values))

  @pytest.mark.parametrize(("values", "message"), [
      ({"share": 0.3}, "grpo.recursion.share=0.3: must be a whole number of grpo.prompts=16"),
      ({"share": 0.5, "micro_batches": 3},
       "grpo.group_size=16: rows of the second round cannot be spread evenly: must be a multiple "
       "of mesh.data × mesh.fsdp × grpo.recursion.micro_batches = 3"),
      ({"share": 0.5, "micro_batches": 32}, "grpo.group_size=16: ")])
  def test_one_that_cannot_be_had_is_refused_in_one_line(self, values, message):
    with pytest.raises(UserError) as fault:
      check_config(self.config(**values))
    assert str(fault.value).startswith(f"--config.{message}") and "\n" not in str(fault.value)

  def test_devices_count_for_the_rows_of_the_second_round(self):
    def spread(data):
      return self.config(share=0.5, micro_batches=8, mesh__data=data)

    check_config(spread(2))
    with pytest.raises(UserError, match="grpo.group_size=16: .* = 32$"):
      check_config(spread(4))

  def test_without_a_share_nothing_else_of_it_matters(self):
    check_config(self.config(share=0.0, micro_batches=3))
    check_config(with_values(workflow__max_rounds=4))

  def config(self, mesh__data=1, **values):
    return with_values(workflow__max_rounds=2, mesh__data=mesh__data, **{
        f"grpo__recursion__{key}": value for key, value in values.items()})


class TestOffers:
  # The arena has 7 workers.

  @pytest.mark.parametrize("key", ["pool.offer", "evaluation.offer"])
  @pytest.mark.parametrize(("law", "message"), [
      ("fixed:8", "'fixed:8' asks for 8 workers, and the pool has 7"),
      ("uniform:3-9", "'uniform:3-9' asks for 9 workers, and the pool has 7"),
      ("fixed:0", "'fixed:0' leaves no worker: offer 1 at least, and the fewer first"),
      ("groups:none", "group 'none' leaves no worker: name one at least"),
      ("groups:all", "group 'all': there is no worker 'gpt-5', of "),
      ("groups:some", "'groups:some': there is no group 'some', of none, all: describe it in "
                      "pool.groups"),
      ("random", "'random' must be one of all, fixed:K, uniform:K-L or groups:NAME,...")])
  def test_a_law_that_the_pool_cannot_keep_is_refused_in_one_line_that_names_the_key(
      self, key, law, message):
    config = with_values(pool__groups=(("none", ()), ("all", ("gpt-5",))))
    config.update_from_flattened_dict({key: law})
    check_config(config)
    with pytest.raises(UserError) as fault:
      make_offers(config)
    assert str(fault.value).startswith(f"--config.{key}: {message}")
    assert "\n" not in str(fault.value)

  def test_warm_start_training_and_held_out_questions_have_laws_of_their_own(self):
    config = with_values(
        sft__offer="fixed:1", pool__offer="fixed:7", evaluation__offer="groups:two",
        pool__renumber=True, pool__groups=(("two", ("clerk-medium", "scribe-small")),))
    warm_start, training, heldout = make_offers(config)
    generator = np.random.default_rng(0)
    assert {len(warm_start.draw(generator).workers) for _ in range(20)} == {1}
    assert training.whole == training.draw(generator) == Offer(tuple(range(7)), True)
    names = worker_names(config)
    assert {names[worker] for worker in heldout.whole.workers} == {"clerk-medium", "scribe-small"}
    assert heldout.whole.renumbered


  def test_the_warm_start_is_offered_what_training_is_unless_it_has_a_law(self):
    offers = make_offers(with_values(pool__offer="fixed:2"))
    assert offers.warm_start is offers.training
    with pytest.raises(UserError, match=r"^--config\.sft\.offer: 'fixed:9' asks for 9 workers"):
      make_offers(with_values(sft__offer="fixed:9"))


class TestExamples:
  """What only shows once the tasks are there, and before anything is trained."""

  def chat(self, **values):
    config = with_values(tasks__train=60, evaluation__tasks=12, tokenizer__vocab_size=400, **values)
    check_config(config)
    return Chat(config, load_splits(config), make_offers(config).warm_start, None)

  def refusal(self, **values):
    with pytest.raises(UserError) as fault:
      self.chat(**values)
    assert "\n" not in str(fault.value)
    return str(fault.value)

  def test_a_missing_file_of_examples_is_named(self, tmp_path):
    path = tmp_path / "none.jsonl"
    assert self.refusal(
        workflow__few_shot=1, workflow__few_shot_source="file", workflow__few_shot_file=str(path)
    ).startswith(f"{path} with the examples of the prompt cannot be read: ")

  def test_there_are_not_more_examples_than_fit_the_step_limit(self):
    assert len(self.chat(workflow__few_shot=1, workflow__max_steps=1).template.shots) == 1
    assert self.refusal(workflow__few_shot=2, workflow__max_steps=1) == (
        "--config.workflow.few_shot=2: of the examples of few_shot_source=outside only 1 have 1 "
        "steps at most")

  @pytest.mark.parametrize("prefill", ["Let me plan ", "Plan.\n\n"])
  def test_a_prefill_that_the_tokenizer_joins_with_the_plan_is_refused(
      self, smollm2_file, prefill):
    config = with_values(
        tasks__train=60, evaluation__tasks=12, workflow__prefill=prefill)
    tokenizer = gguf_tokenizer(read_gguf(smollm2_file))
    with pytest.raises(UserError, match="^--config.workflow.prefill='.*the plan after it"):
      Chat(config, load_splits(config), make_offers(config).warm_start, tokenizer)
