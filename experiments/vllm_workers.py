"""Workers that are one language model behind a vLLM server of the run's own.

They differ in how they sample. A folder of weights is served as it is; a GGUF file, which vLLM does
not read, is exported to a temporary folder first.
"""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import jax
from ml_collections import ConfigDict

from conductor_jax.models.hf import export_safetensors
from conductor_jax.sampling.cpu_share import cpu_share
from conductor_jax.sampling.vllm_server import VllmServer
from conductor_jax.workers.pool import Pool, WorkerSpec
from experiments.policy import is_gguf, load_policy, model_tokenizer, open_mesh

_SERVED_NAME = "workers"


@contextlib.asynccontextmanager
async def vllm_workers(
    config: ConfigDict, *, log: Path, say: Callable[[str], None]) -> AsyncIterator[Pool]:
  """Starts the server of `pool.vllm`, which ends with the context.

  Args:
    config: the options.
    log: a file that the server's output is appended to.
    say: told how the start goes.

  Raises:
    UserError: the weights cannot be read, or the server does not start.
  """
  options, sidecar = config.pool.vllm, config.rollout.vllm
  with contextlib.ExitStack() as stack:
    folder, remove = Path(options.weights), []
    if is_gguf(options.weights):
      remove = [Path(stack.enter_context(tempfile.TemporaryDirectory(
          prefix="conductor_jax-workers-", ignore_cleanup_errors=True)))]
      folder = remove[0] / "weights"
      _export(config, folder)
    server = VllmServer(
        Path(sidecar.python), served_name=_SERVED_NAME, max_model_len=options.max_model_len,
        dtype=options.dtype, arguments=options.arguments,
        environment=cpu_share(0, 2) if config.rollout.sampler == "vllm" else {},
        port=config.pool.port, log=log, start_timeout=sidecar.start_timeout, remove=remove,
        say=lambda line: say(f"workers: {line}"))
    async with server:
      await server.start(folder)
      yield Pool(tuple(
          WorkerSpec(
              name=name, base_url=f"{server.url}/v1", model=_SERVED_NAME,
              sampling={"temperature": temperature, "max_tokens": options.max_tokens})
          for name, temperature in options.workers))


def _export(config: ConfigDict, folder: Path) -> None:
  """Writes the workers' GGUF file as a folder that vLLM reads."""
  workers = config.copy_and_resolve_references()
  workers.model.update(dict(weights=config.pool.vllm.weights, lora_rank=0, param_dtype="float32"))
  workers.mesh.update(dict(data=1, fsdp=1, tensor=1))
  policy = load_policy(workers, open_mesh(workers, jax.devices()[:1]))
  export_safetensors(
      folder, policy.trained, policy.shape, config.pool.vllm.dtype,
      tokenizer=model_tokenizer(workers))
