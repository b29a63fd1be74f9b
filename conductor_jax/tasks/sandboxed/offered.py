"""What programs find without importing it, as in the harnesses of LiveCodeBench and LeetCode."""

import sys

# Module -> its names that are there.
_NAMES = {
    "typing": "Any Callable Deque DefaultDict Dict FrozenSet Generator Iterable Iterator List "
              "Mapping NamedTuple Optional Sequence Set Tuple Type TypeVar Union",
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "itertools": "accumulate chain combinations combinations_with_replacement compress count cycle "
                 "dropwhile groupby islice pairwise permutations product repeat starmap takewhile "
                 "zip_longest",
    "functools": "cache cmp_to_key lru_cache partial reduce",
    "heapq": "heapify heappop heappush heappushpop heapreplace nlargest nsmallest",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "math": "acos asin atan atan2 ceil comb cos degrees dist exp fabs factorial floor fmod fsum "
            "gcd hypot inf isclose isqrt lcm log log10 log2 nan perm pi prod radians sin sqrt tan",
    "operator": "add attrgetter itemgetter mul sub xor",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits punctuation",
    "datetime": "date timedelta",
    "copy": "deepcopy",
    "random": "randint randrange shuffle",
    "statistics": "mean median",
    "io": "BytesIO StringIO",
}
_MODULES = ("bisect", "collections", "copy", "datetime", "functools", "heapq", "io", "itertools",
            "json", "math", "operator", "os", "random", "re", "statistics", "string", "sys", "time",
            "typing")
_WORDS = bytes(number if chr(number).isalnum() or number == ord("_") else ord(" ")
               for number in range(128)) + bytes(128)
_DEEP = 50_000  # calls within calls, as LiveCodeBench has it
_STACK_BYTES = 64 << 20


def offered(source):
  """Name -> what is under it, of the names that occur in a program's source, in bytes."""
  words = {word.decode("latin-1") for word in source.translate(_WORDS).split()}
  found = {name: getattr(__import__(module), name) for module, names in _NAMES.items()
           for name in words.intersection(names.split())}
  return found | {name: __import__(name) for name in words.intersection(_MODULES)}


def allow_deep_calls():
  """Lets a program call itself as deep as LiveCodeBench does."""
  import resource
  hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
  most = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(hard, _STACK_BYTES)
  resource.setrlimit(resource.RLIMIT_STACK, (most, hard))
  sys.setrecursionlimit(_DEEP)
