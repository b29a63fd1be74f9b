"""The benchmarks whose answer is a number, a letter, an expression or a few words."""

import random
import re
from collections.abc import Mapping
from types import MappingProxyType

from conductor_jax.tasks.benchmark import (
    ANYTHING,
    CHAT,
    MAPPING,
    NUMBER,
    TEXT,
    TEXTS,
    WHOLE,
    Benchmark,
    Hub,
    Row,
    RowError,
    letter,
    lettered,
    plain_number,
)

# RLPR has no answers that can be graded by rule beyond some length; the paper's mix has these.
_LONGEST_ANSWER = 30


def _number_after_hashes(row: Row) -> str:
  _, hashes, number = row["answer"].rpartition("####")
  if not (hashes and number.strip()):
    raise RowError("column 'answer' must end with '#### ' and a number")
  return plain_number("answer", number)


def _competition_integer(row: Row) -> str:
  text = str(row["answer"]).strip()
  if not re.fullmatch("[0-9]{1,3}", text):
    raise RowError(f"column 'answer' must be a whole number from 0 to 999, got {text!r:.60}")
  return str(int(text))


def _options(row: Row) -> list[str]:
  """AQuA's options without their letters, "A)", "B)" and so on."""
  options = []
  for expected, option in zip("ABCDE", row["options"], strict=False):
    found = re.match(rf"\s*{expected}\s*\)", option)
    if not found:
      raise RowError(f"column 'options' must hold options such as {expected + ')12'!r}, "
                     f"got {option!r:.60}")
    options.append(option[found.end():].strip())
  if not 2 <= len(row["options"]) <= 5:
    raise RowError(f"column 'options' must hold 2 to 5 options, got {len(row['options'])}")
  return options


def _correct(row: Row) -> str:
  correct = row["correct"].strip()
  if correct not in list("ABCDE"[:len(row["options"])]):
    raise RowError(f"column 'correct' must be the letter of one of the {len(row['options'])} "
                   f"options, got {row['correct']!r:.60}")
  return correct


def _shuffled(row: Row, seed: int) -> tuple[list[str], str]:
  """GPQA's options in a random order, and the letter of the right one.

  The file has the right one first. The order depends on the seed and the question alone.
  """
  right = row["Correct Answer"].strip()
  options = [right, *(row[f"Incorrect Answer {i}"].strip() for i in (1, 2, 3))]
  order = list(range(4))
  random.Random(f"{seed}\n{row['Question']}").shuffle(order)
  return [options[i] for i in order], "ABCD"[order.index(0)]


def _ask(row: Row) -> str:
  """What the user says in RLPR's chat; its system message only asks for tags."""
  asked = [message["content"] for message in row["prompt"] if message["role"] == "user"]
  if not asked:
    raise RowError("column 'prompt' must hold a message of the role 'user'")
  return "\n\n".join(asked)


def _ground_truth(row: Row) -> str:
  truth = row["reward_model"].get("ground_truth")
  if not (isinstance(truth, str) and truth.strip()):
    raise RowError(f"column 'reward_model' must hold the text ground_truth, got {truth!r:.60}")
  return truth.strip()


def question_benchmarks(gpqa_seed: int) -> Mapping[str, Benchmark]:
  """The table.

  Args:
    gpqa_seed: of the order of GPQA's options.
  """
  return MappingProxyType({
      "gsm8k": Benchmark(
          Hub("openai/gsm8k", "main"),
          columns={"question": TEXT, "answer": TEXT},
          question=lambda row: row["question"],
          reference=_number_after_hashes,
          metadata=lambda row: {"solution": row["answer"]}),
      "mmlu": Benchmark(
          Hub("cais/mmlu", "all"),
          columns={"question": TEXT, "subject": TEXT, "choices": TEXTS, "answer": WHOLE},
          question=lambda row: lettered(row["question"], row["choices"]),
          reference=lambda row: letter("answer", row["answer"], row["choices"]),
          metadata=lambda row: {"subject": row["subject"], "choices": row["choices"]}),
      "math500": Benchmark(
          Hub("HuggingFaceH4/MATH-500"),
          split="test",
          columns={"problem": TEXT, "solution": TEXT, "answer": TEXT, "subject": TEXT,
                   "level": WHOLE, "unique_id": TEXT},
          question=lambda row: row["problem"],
          reference=lambda row: row["answer"],
          identity=lambda row: row["unique_id"],
          metadata=lambda row: {key: row[key] for key in ("subject", "level", "solution")}),
      "multiarith": Benchmark(
          Hub("ChilleD/MultiArith"),
          names=("multiarith",),
          columns={"question": TEXT, "final_ans": NUMBER},
          # Of Qwen2.5-Math's evaluation.
          renamed={"input": "question", "target": "final_ans"},
          question=lambda row: row["question"],
          reference=lambda row: plain_number("final_ans", row["final_ans"])),
      "svamp": Benchmark(
          Hub("ChilleD/SVAMP"),
          names=("SVAMP",),
          columns={"Body": TEXT, "Question": TEXT, "Answer": NUMBER},
          question=lambda row: f"{row['Body'].strip()} {row['Question'].strip()}",
          reference=lambda row: plain_number("Answer", row["Answer"]),
          identity=lambda row: row.get("ID")),
      "aqua": Benchmark(
          Hub("deepmind/aqua_rat", "raw"),
          columns={"question": TEXT, "options": TEXTS, "rationale": TEXT, "correct": TEXT},
          question=lambda row: lettered(row["question"], _options(row)),
          reference=_correct,
          metadata=lambda row: {"choices": _options(row), "solution": row["rationale"]}),
      "aime25": Benchmark(
          Hub("math-ai/aime25"),
          split="test",
          columns={"problem": TEXT, "answer": NUMBER, "id": NUMBER},
          question=lambda row: row["problem"],
          reference=_competition_integer,
          identity=lambda row: str(row["id"])),
      "gpqa": Benchmark(
          Hub("Idavidrein/gpqa", "gpqa_diamond"),
          split="train",
          names=("gpqa_diamond",),
          columns={"Question": TEXT, "Correct Answer": TEXT, "Incorrect Answer 1": TEXT,
                   "Incorrect Answer 2": TEXT, "Incorrect Answer 3": TEXT},
          question=lambda row: lettered(row["Question"].strip(), _shuffled(row, gpqa_seed)[0]),
          reference=lambda row: _shuffled(row, gpqa_seed)[1],
          metadata=lambda row: {"choices": _shuffled(row, gpqa_seed)[0]}),
      "rlpr": Benchmark(
          Hub("openbmb/RLPR-Train-Dataset"),
          split="train",
          names=("rlpr_train",),
          columns={"prompt": CHAT, "reward_model": MAPPING, "ability": ANYTHING,
                   "data_source": ANYTHING, "extra_info": ANYTHING},
          question=_ask,
          reference=_ground_truth,
          metadata=lambda row: {"ability": row["ability"], "data_source": row["data_source"]},
          keep=lambda row: len(_ground_truth(row)) <= _LONGEST_ANSWER,
          kept=f"answers of {_LONGEST_ANSWER} characters at most"),
  })
