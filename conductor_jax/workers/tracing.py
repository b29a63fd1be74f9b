"""OpenTelemetry spans of workflows, steps and requests, where its API is installed.

Names and attributes are those of the semantic conventions for generative AI (v1.41): a workflow is
an `invoke_workflow` span, each of its steps an `invoke_agent` span below it, and each request of
that step a `chat` span below that. Spans hold no text: no question, no prompt, no answer, and of an
exception its type only. Where no tracer provider is set up, or the API is not installed, nothing is
recorded.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

try:
  from opentelemetry import trace
except ImportError:  # it is optional
  trace = None

_NOTHING = contextlib.nullcontext()
# What the conventions call a provider, where it is not what its dialect is called.
_PROVIDERS = {"gemini": "gcp.gemini", "openai-reasoning": "openai"}


class _Span:
  """A span that is told how it ended; what it measures runs within it."""

  def __init__(self, span: Any):
    self._span = span

  def end(self, attributes: Mapping[str, Any], error: str | None) -> None:
    """Notes the outcome.

    Args:
      attributes: None values are left out.
      error: the kind of fault, None if there was none.
    """
    self._span.set_attributes({name: v for name, v in attributes.items() if v is not None})
    if error is not None:
      self._span.set_attribute("error.type", error)
      self._span.set_status(trace.StatusCode.ERROR)


@contextlib.contextmanager
def _started(name: str, kind: Any, attributes: Mapping[str, Any]):
  with trace.get_tracer("conductor_jax").start_as_current_span(
      name, kind=kind, attributes={k: v for k, v in attributes.items() if v is not None},
      record_exception=False, set_status_on_exception=False) as span:
    told = _Span(span)
    try:
      yield told
    except BaseException as fault:
      told.end({}, type(fault).__name__)
      raise


class Spans:
  """The spans of one client; whether somebody wants them is decided when it is made."""

  def __init__(self):
    self._wanted = trace is not None and not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider)

  def workflow(self, steps: int):
    """Of one workflow; a context manager that gives a span, or None."""
    if not self._wanted:
      return _NOTHING
    return _started("invoke_workflow", trace.SpanKind.INTERNAL, {
        "gen_ai.operation.name": "invoke_workflow", "conductor.workflow.steps": steps})

  def step(self, worker: str, index: int):
    """Of one step, likewise."""
    if not self._wanted:
      return _NOTHING
    return _started(f"invoke_agent {worker}", trace.SpanKind.INTERNAL, {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": worker,
        "conductor.step.index": index})

  def request(self, request: Mapping[str, Any], *, dialect: str, host: str, port: int):
    """Of one request, likewise.

    Args:
      request: its JSON body.
      dialect: the worker's.
      host, port: where it goes.
    """
    if not self._wanted:
      return _NOTHING
    limit = request.get("max_tokens", request.get("max_completion_tokens"))
    return _started(f"chat {request['model']}", trace.SpanKind.CLIENT, {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": _PROVIDERS.get(dialect, dialect),
        "gen_ai.request.model": request["model"], "gen_ai.request.max_tokens": limit,
        "gen_ai.request.temperature": request.get("temperature"),
        "gen_ai.request.seed": request.get("seed"),
        "server.address": host, "server.port": port})
