"""Takes new weights to a running vLLM server, and makes sure that it has them."""

from conductor_jax.sampling.probe import Answers, Probe
from conductor_jax.sampling.vllm_client import ServerFault, VllmClient
from conductor_jax.sampling.weight_folder import Weights


async def sync(
    client: VllmClient, weights: Weights, *, timeout: float, asleep: bool = False) -> None:
  """Brings a running server from one version of the weights to another.

  Requests that run are frozen and go on with the new weights: the reset of the cache takes their
  keys and values from them too, so that these are computed anew. Where it raises, the server may
  be paused, or have weights of both versions.

  Args:
    client: of the server.
    weights: to load.
    timeout: seconds that each of the server's answers may take.
    asleep: whether the server has given its memory back, with the old weights.

  Raises:
    ServerFault: some step went wrong.
    UserError: the server refuses a step.
  """
  async def post(route, body=None, **query):
    return await client.ask("POST", route, body, query=query, timeout=timeout)

  if asleep:
    await post("/wake_up", tags="weights")
  else:
    await post("/pause", mode="keep")
  await post("/collective_rpc", {
      "method": "reload_weights", "kwargs": {"weights_path": str(weights.folder)}})
  if asleep:
    await post("/wake_up", tags="kv_cache")
  answer = await post("/reset_prefix_cache", reset_running_requests="true")
  if not (isinstance(answer, dict) and answer.get("success") is True):
    raise ServerFault(f"{client.url}/reset_prefix_cache answered {answer}, and keys and values of "
                      "the old weights may be left")
  await label(client, weights, timeout=timeout)
  await post("/resume")


async def label(client: VllmClient, weights: Weights, *, timeout: float) -> None:
  """Tells a server the name of the weights that it has."""
  await client.ask(
      "POST", "/update_weight_version", {"new_version": weights.name}, timeout=timeout)


async def confirm(
    client: VllmClient, weights: Weights, probe: Probe, answers: Answers, *, timeout: float,
    reloaded: bool
) -> None:
  """Makes sure that a server runs, with these weights.

  Args:
    client: of the server.
    weights: that it must have.
    probe: the tokens to ask it about.
    answers: its answers about earlier weights; this one is added.
    timeout: seconds that each of the server's answers may take.
    reloaded: whether it had others before.

  Raises:
    ServerFault: it does not answer, or has others.
    UserError: it refuses to answer.
  """
  info = await client.ask("GET", "/weight_info", timeout=timeout)
  if not isinstance(info, dict) or info.get("weight_version") != weights.name:
    raise ServerFault(f"{client.url}/weight_info answered {info}, not {weights.name}")
  answer = await client.prompt_logprobs(probe.tokens, timeout)
  objection = answers.objection(answer, weights.logprobs, reloaded=reloaded)
  if objection:
    raise ServerFault(f"{client.url} does not have the weights {weights.name}: {objection}")
  answers.keep(answer, weights.logprobs)
