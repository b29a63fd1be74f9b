"""A stand-in for the Hugging Face hub: data sets in a folder, over its own protocol."""

import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40


@contextlib.contextmanager
def hub_server(folder: Path) -> Iterator[tuple[str, list[str]]]:
  """Serves the data set OWNER/NAME from the folder of that name.

  Yields:
    The server's URL, and the requests that it has had.
  """
  requests: list[str] = []

  class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
      url = unquote(urlsplit(self.path).path)
      requests.append(f"{self.command} {url}")
      parts = url.strip("/").split("/")
      if len(parts) > 5 and parts[0] == "datasets" and parts[3] == "resolve":
        file = folder / parts[1] / parts[2] / "/".join(parts[5:])
        if file.is_file():
          data = file.read_bytes()
          self.answer(data, ETag=f'"{hashlib.sha1(data).hexdigest()}"', **{"X-Repo-Commit": COMMIT})
          return
        self.answer(b"", 404, **{"X-Error-Code": "EntryNotFound"})
      elif parts[:2] == ["api", "datasets"] and (folder / parts[2] / parts[3]).is_dir():
        self.answer_api(folder / parts[2] / parts[3], parts[4:])
      else:
        self.answer(b"", 404, **{"X-Error-Code": "RepoNotFound"})

    def do_HEAD(self):
      self.do_GET()

    def answer_api(self, root: Path, rest: list[str]) -> None:
      files = sorted(root.rglob("*"))
      if rest[:1] == ["tree"]:
        under = root / "/".join(rest[2:])
        self.answer_json([entry(root, path) for path in files if under in path.parents])
      else:
        self.answer_json({
            "id": "/".join(root.parts[-2:]), "sha": COMMIT, "tags": [], "downloads": 0, "likes": 0,
            "private": False, "siblings": [
                {"rfilename": str(path.relative_to(root))} for path in files if path.is_file()]})

    def answer_json(self, value) -> None:
      self.answer(json.dumps(value).encode(), **{"Content-Type": "application/json"})

    def answer(self, data: bytes, status: int = 200, **headers: str) -> None:
      self.send_response(status)
      for name, value in {"Content-Length": str(len(data)), **headers}.items():
        self.send_header(name, value)
      self.end_headers()
      if self.command != "HEAD":
        self.wfile.write(data)

    def log_message(self, *_) -> None:
      pass

  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
      yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
      server.shutdown()
      thread.join()


def entry(root: Path, path: Path) -> dict:
  kind = "directory" if path.is_dir() else "file"
  data = b"" if path.is_dir() else path.read_bytes()
  return {"type": kind, "path": str(path.relative_to(root)), "size": len(data),
          "oid": hashlib.sha1(data).hexdigest()}
