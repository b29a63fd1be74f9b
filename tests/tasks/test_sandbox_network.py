"""A program in a sandbox has a network of its own, with nobody in it."""

import socket
import threading

import pytest

from tests.tasks.attack import report

REACH = """
import json, socket
port, path, reached = PORT, PATH, []

def attempt(name, action, *arguments):
  try:
    action(*arguments)
    reached.append(name)
  except OSError:
    pass

def connect(family, address):
  with socket.socket(family) as one:
    one.settimeout(0.3)
    one.connect(address)

for address in ("127.0.0.1", "0.0.0.0", "HOST", "169.254.169.254", "1.1.1.1"):
  attempt(address, connect, socket.AF_INET, (address, port))
attempt("::1", connect, socket.AF_INET6, ("::1", port))
attempt("file", connect, socket.AF_UNIX, path)
attempt("abstract", connect, socket.AF_UNIX, "\\0" + path)
attempt("docker", connect, socket.AF_UNIX, "/var/run/docker.sock")
attempt("name", socket.getaddrinfo, "example.com", 80)
print(json.dumps(reached))
"""


@pytest.fixture
def servers(tmp_path):
  """A port, a path and an abstract name that are listened at, and a list of who has come."""
  path = str(tmp_path / "socket")
  listening, came = [socket.create_server(("127.0.0.1", 0))], []
  for address in (path, "\0" + path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    listening.append(server)

  def accept(server):
    while True:
      try:
        came.append(server.accept())
      except OSError:
        return  # closed at the end of the test

  threads = [threading.Thread(target=accept, args=(server,)) for server in listening]
  for thread in threads:
    thread.start()
  yield listening[0].getsockname()[1], path, came
  for server in listening:
    server.shutdown(socket.SHUT_RDWR)
    server.close()
  for thread in threads:
    thread.join()


async def test_servers_of_the_machine_are_not_reached(sandbox, servers):
  port, path, came = servers
  for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_UNIX, path),
                          (socket.AF_UNIX, "\0" + path)):
    with socket.socket(family) as one:
      one.connect(address)
      one.recv(0)
  program = REACH.replace("PORT", str(port)).replace("PATH", repr(path)).replace(
      "HOST", socket.gethostbyname(socket.gethostname()))
  assert await report(sandbox, program) == []
  assert len(came) == 3  # those from here


FAMILIES = """
import json, socket
made = []
for family in range(64):
  for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
    try:
      socket.socket(family, kind).close()
      made.append(family)
    except OSError:
      pass
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
server.accept()[0].send(b"own")
one, other = socket.socketpair()
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
print(json.dumps([sorted(set(made)), client.recv(3).decode(),
                  one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 1 << 20]))
"""


async def test_only_sockets_of_its_own_network_can_be_made_and_buffers_keep_their_size(sandbox):
  # Unix, IPv4, IPv6, netlink: neither the host of a virtual machine (40) nor kernel ciphers (38).
  assert await report(sandbox, FAMILIES) == [[1, 2, 10, 16], "own", True]
