"""Windows, as far as fmnes can see it: what it does not have is taken away, and its locks are added.

On the PYTHONPATH of a process and of all its children. Other people's modules are loaded before, as on a
real Linux: only ours are to find Windows. What it says is the documentation of os, signal and msvcrt.
"""

import concurrent.futures.process  # noqa: F401
import ctypes  # noqa: F401
import errno
import fcntl
import logging  # noqa: F401
import multiprocessing.pool  # noqa: F401
import os
import random  # noqa: F401
import select
import selectors  # noqa: F401
import shutil  # noqa: F401
import signal
import socket
import sqlite3  # noqa: F401
import stat
import subprocess  # noqa: F401
import sys
import sysconfig
import tempfile  # noqa: F401
import types
import webbrowser  # noqa: F401

import cloudpickle  # noqa: F401
import numpy  # noqa: F401
import rich.console
import rich.live
import rich.progress
import rich.table  # noqa: F401
import typer.main
import typer.rich_utils  # noqa: F401

if "report" in sys.orig_argv:
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401

sysconfig.get_config_vars()  # of the file that is named by the platform
flock = fcntl.flock


def locking(descriptor, mode, size):
    """Busy is EACCES there; a descriptor that may only read is good enough, as for flock."""
    assert (mode, size) == (msvcrt.LK_NBLCK, 1)
    try:
        flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


msvcrt = types.ModuleType("msvcrt")
msvcrt.LK_NBLCK, msvcrt.locking = 2, locking
sys.modules["msvcrt"] = msvcrt
for name in ("fcntl", "resource", "termios", "tty", "pwd", "grp", "posix"):
    sys.modules[name] = None

for module, names in (
    (
        os,
        ["fork", "forkpty", "setsid", "getsid", "killpg", "getpgid", "setpgid", "waitid", "register_at_fork"],
    ),
    (os, ["WNOHANG", "WEXITED", "WNOWAIT", "P_PID", "P_ALL", "pidfd_open", "sched_getaffinity", "nice"]),
    (os, ["O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_PATH", "pread", "fchmod", "set_blocking", "sysconf"]),
    (os, ["getuid", "geteuid", "getgid", "mkfifo"]),
    (signal, ["SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGSTOP", "SIGCHLD", "SIGRTMIN"]),
    (signal, ["SIGRTMAX", "SIGALRM", "pthread_kill", "setitimer"]),
    (select, ["poll", "epoll"]),
    (socket, ["AF_UNIX"]),
):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

os.O_BINARY = 0
os.supports_dir_fd.clear()
open_file, replace_file, replaced = os.open, os.replace, set()


def open_no_directory(path, *arguments, **options):
    descriptor = open_file(path, *arguments, **options)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return descriptor


def replace_unless_read(source, target):
    """The first time somebody has it open."""
    if os.path.exists(target) and str(target) not in replaced:
        replaced.add(str(target))
        raise PermissionError(errno.EACCES, "The process cannot access the file", str(target))
    replace_file(source, target)


os.open, os.replace = open_no_directory, replace_unless_read
sys.platform = "win32"
