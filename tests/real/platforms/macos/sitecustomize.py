"""macOS with Python 3.11, as far as fmnes can see it: what Linux has beyond that is taken away.

On the PYTHONPATH of a process and of all its children. What it says of macOS is the documentation of os,
signal, select and resource; that its kqueue tells of reading and of writing one by one is `selectors`' own
source.
"""

import builtins
import ctypes
import os
import resource
import select
import signal
import sys
import urllib.request  # noqa: F401 (a module of its own is missing on a Linux that says it is macOS)

for module, names in (
    (
        os,
        ["waitid", "waitid_result", "P_PID", "P_PGID", "P_ALL", "P_PIDFD", "WEXITED", "WNOWAIT", "WSTOPPED"],
    ),
    (os, ["pidfd_open", "O_PATH", "sched_getaffinity"]),
    (signal, ["SIGRTMIN", "SIGRTMAX", "pidfd_send_signal"]),
    (select, ["epoll"]),
    (resource, ["prlimit"]),
):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

import selectors  # noqa: E402 (chooses by what is left)


class Kqueue(selectors.PollSelector):
    def select(self, timeout=None):
        both = (selectors.EVENT_READ, selectors.EVENT_WRITE)
        return [(key, one) for key, events in super().select(timeout) for one in both if events & one]


selectors.DefaultSelector = Kqueue


def without_proc(function):
    def wrapper(path, *arguments, **options):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(path, *arguments, **options)

    return wrapper


builtins.open, os.open, os.listdir = map(without_proc, (builtins.open, os.open, os.listdir))
os.path.isdir, find = (lambda path: not str(path).startswith("/proc") and find(path)), os.path.isdir
of_library = ctypes.CDLL.__getattr__


def without_prctl(library, name):
    if name == "prctl":
        raise AttributeError(name)
    return of_library(library, name)


ctypes.CDLL.__getattr__ = without_prctl
sys.platform = "darwin"
