"""Workers behind a vLLM server of the run's own, with the stand-in server as a real process."""

import shutil
import sys
from pathlib import Path

import aiohttp
import pytest

from conductor_jax.errors import UserError
from conductor_jax.workers.client import PoolClient
from configs import dryrun
from experiments.vllm_workers import vllm_workers
from tests.sampling.conftest import FAKE_VLLM, TINY_MODEL

MESSAGES = [{"role": "user", "content": "How many?"}]


@pytest.fixture
def python(tmp_path) -> Path:
  """An interpreter whose `vllm` is the stand-in."""
  path = tmp_path / "python"
  path.write_text(f'#!/bin/sh\nPYTHONPATH={FAKE_VLLM} exec {sys.executable} "$@"\n')
  path.chmod(0o755)
  return path


def config_for(python, weights=TINY_MODEL, **options):
  config = dryrun.get_config()
  config.pool.source = "vllm"
  config.pool.vllm.update(dict(
      weights=str(weights), dtype="float32", max_model_len=64, max_tokens=12,
      workers=(("calm", 0.0), ("wild", 1.0)), **options))
  config.rollout.vllm.update(dict(python=str(python), start_timeout=60.0))
  return config


async def test_workers_are_one_model_under_temperatures_of_their_own(python, tmp_path):
  said = []
  async with vllm_workers(config_for(python), log=tmp_path / "log", say=said.append) as pool:
    assert [worker.name for worker in pool.workers] == ["calm", "wild"]
    assert len({(worker.base_url, worker.model) for worker in pool.workers}) == 1
    assert {(worker.price_in, worker.price_out) for worker in pool.workers} == {(0.0, 0.0)}
    async with PoolClient(pool, request_timeout=20.0, max_attempts=1) as client:
      records = [[await client.call(worker, MESSAGES, seed=seed) for seed in range(4)]
                 for worker in (0, 1)]
  assert all(record.outcome in ("answered", "truncated") for worker in records for record in worker)
  calm, wild = ({record.response for record in worker} for worker in records)
  assert (len(calm), len(wild)) == (1, 4)
  assert max(r.usage.completion_tokens for worker in records for r in worker) == 12


async def test_the_server_ends_with_the_context_even_after_a_fault(python, tmp_path):
  with pytest.raises(ZeroDivisionError):
    async with vllm_workers(config_for(python), log=tmp_path / "log", say=print) as pool:
      url = pool.workers[0].base_url
      async with aiohttp.ClientSession() as session, session.get(f"{url}/models") as response:
        assert response.status == 200
      raise ZeroDivisionError
  async with aiohttp.ClientSession() as session:
    with pytest.raises(aiohttp.ClientConnectionError):
      await session.get(f"{url}/models")


async def test_a_gguf_file_is_exported_and_the_export_is_gone_afterwards(
    python, tmp_path, smollm2_file, monkeypatch):
  monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
  async with vllm_workers(
      config_for(python, smollm2_file), log=tmp_path / "log", say=print) as pool:
    folder, = tmp_path.glob("conductor_jax-workers-*/weights")
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    async with PoolClient(pool, request_timeout=20.0, max_attempts=1) as client:
      record = await client.call(0, MESSAGES, seed=0)
  assert record.usage.completion_tokens == 12
  assert not list(tmp_path.glob("conductor_jax-workers-*"))


async def test_a_start_that_fails_leaves_no_export(python, tmp_path, monkeypatch):
  exported = []

  def export(config, folder):
    shutil.copytree(TINY_MODEL, folder)
    exported.append(folder)

  monkeypatch.setattr("experiments.vllm_workers._export", export)
  python.write_text("#!/bin/sh\nexit 3\n")
  with pytest.raises(UserError, match="status 3"):
    async with vllm_workers(config_for(python, "x.gguf"), log=tmp_path / "log", say=print):
      pass
  assert len(exported) == 1 and not exported[0].parent.exists()
