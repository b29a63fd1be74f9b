from conductor_jax.workflows.prompts import conductor_messages


def test_messages_are_one_system_and_one_user_turn():
  messages = conductor_messages("Why?", workers=2, max_steps=5)
  assert [message["role"] for message in messages] == ["system", "user"]


def test_workers_appear_as_numbers_only():
  user = conductor_messages("Why?", workers=3, max_steps=5)[1]["content"]
  assert user == "Question: Why?\n\nAvailable models: Model 0, Model 1, Model 2"


def test_a_question_with_braces_stays_as_it_is():
  user = conductor_messages("What is {x} in {0}?", workers=1, max_steps=5)[1]["content"]
  assert user.startswith("Question: What is {x} in {0}?\n")


def test_system_text_names_the_three_lists_in_order_and_the_step_limit():
  system = conductor_messages("Why?", workers=3, max_steps=4)[0]["content"]
  places = [system.index(f"\n{name} = [") for name in ("model_id", "subtasks", "access_list")]
  assert places == sorted(places)
  assert "4 at most" in system


def test_system_text_has_at_most_170_words():
  for access in ("binary", "positions"):
    system = conductor_messages("Why?", workers=3, max_steps=5, access=access)[0]["content"]
    assert len(system.split()) <= 170


def test_system_text_explains_only_the_access_lists_that_parse():
  binary = conductor_messages("Why?", workers=3, max_steps=5)[0]["content"]
  positions = conductor_messages("Why?", workers=3, max_steps=5, access="positions")[0]["content"]
  assert 'access_list = [[] or ["all"], ...]' in binary and "counted from 0" not in binary
  assert "access_list = [[earlier steps], ...]" in positions and '"all"' not in positions
