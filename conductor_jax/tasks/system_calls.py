"""The system calls that programs in a sandbox may not make, as a filter for the kernel (seccomp).

Refused are those that honest programs have no need of and that kernels have had faults in, and
those that take memory which no process is seen to hold. Calls that are newer than this list do not
exist there. The filter holds for process 1, too.
"""

import platform
import struct

from conductor_jax.errors import UserError

# Machine -> its number in the kernel's audit.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# The last one that is known here; numbers of this height are those of all architectures.
_LAST = 462  # mseal
# Name -> its numbers on x86_64 and aarch64, None where there is none.
_REFUSED = {
    # Namespaces, mounts and files behind the back of permissions.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    # Other processes: their memory, their files, their turn on the processor.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "ioprio_set": (251, 30),
    # Interfaces in which faults were found again and again.
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "io_setup": (206, 0), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "modify_ldt": (154, None), "seccomp": (317, 277), "vhangup": (153, 58),
    # Memory and semaphores that stay when their process ends.
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    # The machine itself.
    "acct": (163, 89), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "clock_settime": (227, 112), "settimeofday": (164, 170), "delete_module": (176, 106),
    "finit_module": (313, 273), "init_module": (175, 105), "ioperm": (173, None),
    "iopl": (172, None), "kexec_file_load": (320, 294), "kexec_load": (246, 104),
    "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "reboot": (169, 142), "setdomainname": (171, 162),
    "sethostname": (170, 161), "swapoff": (168, 225), "swapon": (167, 224), "sysfs": (139, None),
    "syslog": (103, 116), "_sysctl": (156, None)}
# Those that may be made of a process's own account only, and not for another one.
_OF_ONESELF = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119)}
_SETPRIORITY, _CLONE, _CLONE3 = (141, 140), (56, 220), (435, 435)
_MMAP, _SOCKET, _SETSOCKOPT = (9, 222), (41, 198), (54, 208)

_NAMESPACES = 0x7E020000  # clone's flags for new ones of any kind
_SHARED_ANONYMOUS, _HUGE = 0x21, 0x40000  # mmap's flags
# What is connected by sockets of other families need not be in the sandbox's network: AF_VSOCK
# leads to the host of a virtual machine.
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_SOL_SOCKET, _BUFFER_SIZES = 1, (7, 8)  # SO_SNDBUF, SO_RCVBUF
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97

# A filter's operations and what it returns (linux/filter.h, linux/seccomp.h).
_LOAD, _AND, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4

# (operation, instructions to pass over if true, if false, value)
_Instruction = tuple[int, int, int, int]


def system_call_filter() -> bytes:
  """The filter for this machine, a program of the kernel's (`man 2 seccomp`).

  Raises:
    UserError: the machine's system calls are not known here.
  """
  machine = platform.machine()
  if machine not in _ARCHITECTURES:
    raise UserError(
        f"code is graded in a sandbox only, and there is no filter of system calls for {machine}: "
        f"use one of {', '.join(_ARCHITECTURES)}, or --config.sandbox.unsafe=True inside a "
        "container of your own")
  column = list(_ARCHITECTURES).index(machine)
  program = [
      (_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUAL, 1, 0, _ARCHITECTURES[machine]), _give(_KILL),
      (_LOAD, 0, 0, _NUMBER_AT),
      # Also ends the second set of numbers that x86-64 has.
      (_ABOVE, 0, 1, _LAST + 1), _give(_ERROR | _ENOSYS)]
  for numbers in _REFUSED.values():
    program += _call(numbers[column], [_give(_ERROR | _EPERM)])
  for numbers in _OF_ONESELF.values():
    program += _call(numbers[column], _unless_zero(0))
  program += _call(_SETPRIORITY[column], [
      _argument(0), (_EQUAL, 1, 0, 0), _give(_ERROR | _EPERM), *_unless_zero(1)])
  program += _call(_CLONE[column], [
      _argument(0), (_ANY_BIT, 0, 1, _NAMESPACES), _give(_ERROR | _EPERM), _give(_ALLOW)])
  # Its flags are behind a pointer; callers fall back on clone.
  program += _call(_CLONE3[column], [_give(_ERROR | _ENOSYS)])
  # Shared memory without a file outlives its mapping, and huge pages count for no process.
  program += _call(_MMAP[column], [
      _argument(3), (_ANY_BIT, 3, 0, _HUGE), (_AND, 0, 0, _SHARED_ANONYMOUS),
      (_EQUAL, 1, 0, _SHARED_ANONYMOUS), _give(_ALLOW), _give(_ERROR | _EPERM)])
  program += _call(_SOCKET[column], [
      _argument(0), *((_EQUAL, len(_FAMILIES) - index, 0, family)
                      for index, family in enumerate(_FAMILIES)),
      _give(_ERROR | _EAFNOSUPPORT), _give(_ALLOW)])
  # Buffers keep their size: nothing is done, and no error returned.
  program += _call(_SETSOCKOPT[column], [
      _argument(1), (_EQUAL, 1, 0, _SOL_SOCKET), _give(_ALLOW), _argument(2),
      *((_EQUAL, len(_BUFFER_SIZES) - index, 0, size) for index, size in enumerate(_BUFFER_SIZES)),
      _give(_ALLOW), _give(_ERROR)])
  program.append(_give(_ALLOW))
  return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _give(value: int) -> _Instruction:
  return _RETURN, 0, 0, value


def _argument(index: int) -> _Instruction:
  """Loads the lower half of a call's argument."""
  return _LOAD, 0, 0, 16 + 8 * index


def _call(number: int | None, block: list[_Instruction]) -> list[_Instruction]:
  """What applies to one call; the block must return, for it may change what is loaded."""
  return [] if number is None else [(_EQUAL, 0, len(block), number), *block]


def _unless_zero(index: int) -> list[_Instruction]:
  return [_argument(index), (_EQUAL, 0, 1, 0), _give(_ALLOW), _give(_ERROR | _EPERM)]
