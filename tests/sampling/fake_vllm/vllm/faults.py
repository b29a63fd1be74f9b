"""Faults that a test arms, and what was asked of the server."""

import asyncio
import json
import os

from aiohttp import web

# They need no help of the route; the others are the route's own, and asked for by `Faults.has`.
GENERAL = ("hang", "slow", "status", "garbage", "truncate", "drop", "die", "die_after")
OF_A_ROUTE = ("keep_old_weights", "reset_fails", "reset_lies", "wrong_version")


class Faults:
  """A middleware. Arms and lists through `POST /faults`, `DELETE /faults` and `GET /requests`.

  A fault is {"route": "/pause", "kind": "status"} and, where they apply, "status" (503), "seconds"
  (of "slow"), "times" (how often it strikes; 1, null for always) and "after" (requests of that
  route that it lets through first; 0). Its kinds:

      hang, slow      never answers, or does after some seconds
      status          answers with an error, nothing is done
      garbage         200 and a body that is not JSON, nothing is done
      truncate        does what was asked, and sends half of the answer
      drop            closes the connection, nothing is done
      die, die_after  the process ends at once, before or after doing what was asked
      keep_old_weights   /collective_rpc says that it has loaded, and has not
      reset_fails, reset_lies   /reset_prefix_cache says false, or says true and keeps all
      wrong_version   /weight_info names another version
  """

  def __init__(self):
    self._armed: list[dict] = []
    self._requests: list[dict] = []

  def routes(self) -> list[web.RouteDef]:
    return [web.post("/faults", self._arm), web.delete("/faults", self._clear),
            web.get("/requests", self._list)]

  async def _arm(self, request):
    fault = {"status": 503, "seconds": 1.0, "times": 1, "after": 0, **await request.json()}
    if fault["kind"] not in GENERAL + OF_A_ROUTE:
      return web.json_response({"error": f"no such kind: {fault['kind']}"}, status=400)
    self._armed.append(fault)
    return web.json_response(fault)

  async def _clear(self, request):
    self._armed.clear()
    return web.json_response({})

  async def _list(self, request):
    return web.json_response(self._requests)

  def _strike(self, route):
    """The kinds that strike this request, with their fault; counts it."""
    struck = {}
    for fault in self._armed:
      if fault["route"] != route:
        continue
      if fault["after"] > 0:
        fault["after"] -= 1
      elif fault["times"] is None or fault["times"] > 0:
        struck[fault["kind"]] = fault
        if fault["times"] is not None:
          fault["times"] -= 1
    return struck

  @web.middleware
  async def middleware(self, request: web.Request, handler):
    if request.path in ("/faults", "/requests"):
      return await handler(request)
    body = await request.text()
    try:
      content = json.loads(body) if body else None
    except json.JSONDecodeError:
      content = body
    self._requests.append(
        {"route": request.path, "query": dict(request.query), "body": content})
    struck = request["faults"] = self._strike(request.path)
    if "hang" in struck:
      await asyncio.Event().wait()
    if "slow" in struck:
      await asyncio.sleep(struck["slow"]["seconds"])
    if "status" in struck:
      status = struck["status"]["status"]
      return web.json_response(
          {"error": {"message": f"armed fault {status}", "type": "ArmedFault", "param": None,
                     "code": status}}, status=status)
    if "garbage" in struck:
      return web.Response(text="<html>not json", content_type="text/html")
    if "die" in struck:
      os._exit(1)
    if "drop" in struck:
      request.transport.abort()
    response = await handler(request)
    if "die_after" in struck:
      os._exit(1)
    if "truncate" in struck:
      whole = web.StreamResponse(headers={"Content-Length": str(len(response.body))})
      whole.content_type = "application/json"
      await whole.prepare(request)
      await whole.write(response.body[:len(response.body) // 2])
      request.transport.close()
      return whole
    return response
