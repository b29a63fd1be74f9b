"""What process 1 of a sandbox and its parent say to each other, over its standard pipes."""

import marshal
import posix as os
import select
from _blake2 import blake2b

_PIPE = 1 << 16


class Gone(Exception):
  """There is nobody left to speak to."""


class Parent:
  """Requests come from it, each a marshalled mapping behind its length; frames go to it.

  A frame is a list of fields: a line with its signature, its number and its fields' lengths, and
  behind it the fields.
  """

  def __init__(self):
    self._unread, self._length = bytearray(), None
    self._unsent, self._key, self._told = bytearray(), b"", 0
    os.set_blocking(1, False)

  def sign_with(self, key):
    """Sets the key of all frames from here on."""
    self._key = key

  @property
  def waits(self):
    """Whether there are frames that it has not taken yet."""
    return bool(self._unsent)

  def next_request(self):
    """Waits for a request."""
    while (request := self.request()) is None:
      self.read()
    return request

  def read(self):
    """Reads what is there, or waits for something.

    Raises:
      Gone: there will be nothing more.
    """
    data = os.read(0, _PIPE)
    if not data:
      raise Gone
    self._unread += data

  def request(self):
    """A request that has been read as a whole, None if there is none."""
    if self._length is None:
      end = self._unread.find(b"\n")
      if end < 0:
        return None
      self._length = int(self._unread[:end])
      del self._unread[:end + 1]
    if len(self._unread) < self._length:
      return None
    data = bytes(self._unread[:self._length])
    del self._unread[:self._length]
    self._length = None
    return marshal.loads(data)

  def tell(self, *fields):
    """Sends a frame, or keeps what the parent does not take yet."""
    self._told += 1
    lengths = b" ".join(b"%d" % number for number in (self._told, *map(len, fields)))
    body = b"".join(fields)
    signature = blake2b(lengths + b"\n" + body, key=self._key, digest_size=16).hexdigest().encode()
    self._unsent += signature + b" " + lengths + b"\n" + body
    self.send()

  def send(self):
    """Sends of the kept frames what the parent takes.

    Raises:
      Gone: it takes nothing any more.
    """
    try:
      while self._unsent:
        del self._unsent[:os.write(1, self._unsent[:_PIPE])]
    except BlockingIOError:
      pass
    except BrokenPipeError:
      raise Gone from None

  def send_all(self):
    """Waits until the parent has taken all frames."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(1, select.POLLOUT)
    while self._unsent:
      # It may itself wait for its words to be read.
      if 0 in (descriptor for descriptor, _ in poll.poll()):
        self.read()
      self.send()
