import json
import os

import pytest

from conductor_jax.errors import UserError
from conductor_jax.evaluation.item import record
from conductor_jax.evaluation.item_file import ItemFile, read_items
from tests.evaluation.attempts import RIGHT, WRONG, attempt


def made(task_number, grade=RIGHT):
  each = attempt("a", (0,), grade)
  written = record(each, strategy="s", variant="", repeat=0, seed=0, seconds=1.0)
  return written | {"task": f"t{task_number}"}


def opened(path, said=None):
  return ItemFile(path, say=[].append if said is None else said.append)


def tasks(items):
  return [key.task for key in items]


def test_items_are_there_again_when_the_file_is_opened_again(tmp_path):
  path = tmp_path / "items.jsonl"
  with opened(path) as file:
    assert file.items == {}
    first = file.append([made(0), made(1)])
    assert [item.key.task for item in first] == ["t0", "t1"]
    file.append([made(2)])
    kept = dict(file.items)
  with opened(path) as file:
    assert file.items == kept and tasks(kept) == ["t0", "t1", "t2"]
  assert len(path.read_text().splitlines()) == 3


def test_what_was_appended_is_on_disk_before_the_file_is_closed(tmp_path, monkeypatch):
  synced = []
  monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
  with opened(tmp_path / "items.jsonl") as file:
    file.append([made(0), made(1)])
    assert synced == [(tmp_path / "items.jsonl").stat().st_size]
    assert tasks(read_items(tmp_path / "items.jsonl")[0]) == ["t0", "t1"]


def test_the_last_line_of_an_item_counts(tmp_path):
  with opened(tmp_path / "items.jsonl") as file:
    file.append([made(0, None), made(1, WRONG)])
    file.append([made(0, RIGHT)])
  items, _ = read_items(tmp_path / "items.jsonl")
  assert [item.right for item in items.values()] == [True, False]


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_a_torn_last_line_is_dropped_and_told_and_what_follows_is_whole(tmp_path, cut):
  path, said = tmp_path / "items.jsonl", []
  with opened(path) as file:
    file.append([made(0), made(1)])
  whole = path.read_bytes()
  path.write_bytes(whole[:-cut])
  with opened(path, said) as file:
    assert tasks(file.items) == ["t0"]
    file.append([made(2)])
  torn = len(whole) - cut - len(whole.split(b"\n")[0]) - 1
  assert said == [f"{path}: dropped the last {torn} bytes, a line whose process was killed; its "
                  "item is asked again"]
  assert tasks(read_items(path)[0]) == ["t0", "t2"]


def test_a_last_line_of_zeros_as_a_power_cut_may_leave_is_torn_too(tmp_path):
  path, said = tmp_path / "items.jsonl", []
  with opened(path) as file:
    file.append([made(0)])
  with path.open("ab") as file:
    file.write(b"\0" * 40 + b"\n")
  with opened(path, said) as file:
    assert tasks(file.items) == ["t0"]
  assert "dropped the last 41 bytes" in said[0]


@pytest.mark.parametrize("line", ["{", "[]", "{}", json.dumps({"strategy": "s"}), "7"])
def test_a_faulty_line_before_the_last_is_named_and_nothing_is_cut_off(tmp_path, line):
  path = tmp_path / "items.jsonl"
  path.write_text("\n".join([json.dumps(made(0)), line, json.dumps(made(1)), ""]))
  before = path.read_bytes()
  with pytest.raises(UserError, match=rf"^{path}, line 2 is no item .*: restore or delete"):
    opened(path)
  assert path.read_bytes() == before


def test_a_last_line_that_is_whole_and_no_item_is_not_taken_for_a_torn_one(tmp_path):
  path = tmp_path / "items.jsonl"
  path.write_text('{"strategy": "s"}\n')
  with pytest.raises(UserError, match=r"line 1 is no item \(KeyError: 'grade'\)"):
    opened(path)
  assert path.read_text() == '{"strategy": "s"}\n'


def test_a_second_process_is_refused_while_the_first_has_it_open(tmp_path):
  path = tmp_path / "items.jsonl"
  with opened(path):
    with pytest.raises(UserError, match="another process writes to .*: wait for its end"):
      opened(path)
  opened(path).close()


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
  def full(file, data):
    raise OSError(28, "No space left on device")

  with opened(tmp_path / "items.jsonl") as file:
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UserError, match=r"written \(No space left on device\): make room"):
      file.append([made(0)])
    assert file.items == {}


def test_no_file_holds_no_items_and_a_folder_in_its_place_is_refused(tmp_path):
  assert read_items(tmp_path / "items.jsonl") == ({}, 0)
  with pytest.raises(UserError, match="cannot be read"):
    read_items(tmp_path)
