"""The guard of a worker: the process that sees to it that everything ends.

    driver ── control ── guard          runs this file only, so no objective can hang or crash it
         └─── channel ── evaluator      its child runs the objective, in a session of its own

The guard keeps the tail of what the objective prints, and ends the evaluator when the driver asks or is gone.
Then it ends all that the evaluator has started, also what has left its process group. The last line that it
writes to the control socket tells how the evaluator ended, and whether the guard had to kill it.

The driver runs this file as a script. It imports the standard library only: the guard must fork before NumPy
and its threads are there. Fd 0 is the channel; fd 2 is the control socket, so that whatever stops the guard
itself is told there too.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress

#: To the guard: print the Python stack, for the evaluator is about to be killed. A closed socket means: kill.
SHOW_STACK = b"s"
#: A signal that hardly any library uses. Its handler is in C, so it works while the interpreter is blocked.
#: macOS has the second only, and Windows, where this file is imported but never run, neither.
_STACK_SIGNAL = signal.SIGRTMAX - 1 if hasattr(signal, "SIGRTMAX") else getattr(signal, "SIGUSR2", 0)
#: It is printed at once, unless the machine is busy or the process is stopped.
_STACK_SECONDS, _STACK_PAUSE = 0.3, 0.05
#: What was started and will not die is killed for so long; since the last that did, and in all.
_KILL_PATIENCE, _KILL_SECONDS = 0.5, 10.0

#: The first argument where this file is run as the evaluator; else it is the number of the driver.
_EVALUATE = "evaluate"
#: Bytes of output that are kept.
_TAIL = 2000
_CONTROL = 2
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    if sys.argv[1] == _EVALUATE:
        return _evaluate(int(sys.argv[2]), int(sys.argv[3]))
    driver, guard = int(sys.argv[1]), os.getpid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the evaluator become ours, so that we can find them
    output, printing = os.pipe()
    evaluator = os.fork()
    if evaluator == 0:
        os.close(output)
        if sys.platform == "darwin":  # its libraries may be of no use in a fork until it is another program
            os.set_inheritable(printing, True)
            again = [sys.executable, "-P", os.path.abspath(__file__), _EVALUATE, str(guard), str(printing)]
            os.execv(sys.executable, again)
        _evaluate(guard, printing)
    else:
        os.close(printing)
        _move(os.open(os.devnull, os.O_RDONLY), 0)  # the channel is the evaluator's alone
        _watch(evaluator, driver, output)


def _evaluate(guard: int, printing: int) -> None:
    channel = _set_up(guard, printing)
    stream = channel.makefile("rb")
    sys.path[:] = json.loads(stream.readline() or "[]")
    from fmnes.evaluation.workers.serve import serve

    serve(channel, stream)


def _set_up(guard: int, printing: int) -> socket.socket:
    """In the evaluator: a session of our own, all output to the guard. Returns the channel."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(1)
    channel = socket.socket(fileno=os.dup(0))
    _move(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(printing, 1)
    _move(printing, 2)
    # By lines, so that a crash loses nothing.
    sys.stdout = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    faulthandler.enable()
    faulthandler.register(_STACK_SIGNAL)
    # Ctrl-C is the driver's. A handler, not SIG_IGN, which the objective's own programs would inherit.
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.argv = [""]
    return channel


def _watch(evaluator: int, driver: int, output: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("fmnes-guard")  # so that `killall python3` passes us by, and we can do our work
    child_ended, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(output, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poller = select.poll()
    for fd in (_CONTROL, output, child_ended):
        poller.register(fd, select.POLLIN)

    tail: deque[tuple[float, bytes]] = deque()
    killed = False
    events: list[tuple[int, int]] = []
    # Has it ended? That is asked before anything else: what the driver wants may have come late.
    while (status := _ended(evaluator)) is None:
        for fd, _ in events:
            if fd == child_ended:
                os.read(child_ended, 512)
            elif fd == output:
                if not _keep_tail(output, tail):
                    poller.unregister(output)
            else:
                killed = True
                if _hear_driver() == SHOW_STACK:
                    os.kill(evaluator, _STACK_SIGNAL)
                    _await_stack(output, tail)
                else:
                    os.kill(evaluator, signal.SIGKILL)
                    poller.unregister(_CONTROL)
        if os.getppid() != driver:  # a fork of the driver may hold the control socket open after it
            os.kill(evaluator, signal.SIGKILL)
        events = poller.poll(1000)

    moment = time.monotonic()
    _kill_descendants()
    while _keep_tail(output, tail):
        pass
    texts = [(when, chunk.decode(errors="replace")) for when, chunk in tail]
    with suppress(OSError):  # the driver may be gone
        report = json.dumps({"status": status, "killed": killed, "time": moment, "output": texts})
        os.write(_CONTROL, b"\n" + report.encode())
    os._exit(0)


def _hear_driver() -> bytes:
    try:
        return os.read(_CONTROL, 1)
    except OSError:  # it died without reading all that Python has to say when it starts
        return b""


def _ended(evaluator: int) -> int | None:
    """The exit code of the evaluator (minus the signal's number), None while it lives. Reaps orphans too."""
    if not hasattr(os, "waitid"):
        return _ended_and_reaped(evaluator)
    while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if dead.si_pid == evaluator:
            with suppress(OSError):  # before it is reaped, while nobody else can have this number
                os.killpg(evaluator, signal.SIGKILL)
        status = os.waitpid(dead.si_pid, 0)[1]
        if dead.si_pid == evaluator:
            return os.waitstatus_to_exitcode(status)
    return None


def _ended_and_reaped(evaluator: int) -> int | None:
    """The same on macOS before Python 3.13, which has no waitid and hands us no orphans.

    The group is killed in the same breath: the system gives its number to nobody while one of it lives.
    """
    dead, status = os.waitpid(evaluator, os.WNOHANG)
    if not dead:
        return None
    with suppress(OSError):
        os.killpg(evaluator, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _kill_descendants() -> None:
    """Each kill hands us the orphans of the killed, until there are none, or some that cannot be killed."""
    last = start = time.monotonic()
    while (now := time.monotonic()) < min(last + _KILL_PATIENCE, start + _KILL_SECONDS):
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                last = now
                continue
        except ChildProcessError:
            return
        for pid in _children():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _children() -> list[int]:
    found = []
    me = os.getpid()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        # "pid (command) state ppid ...", where the command may contain anything
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{int(name)}/stat", "rb") as stat:
            if int(stat.read().rpartition(b")")[2].split()[1]) == me:
                found.append(int(name))
    return found


def _keep_tail(output: int, tail: deque[tuple[float, bytes]]) -> bool:
    """Read what there is. The time tells the driver which evaluation has printed it."""
    try:
        chunk = os.read(output, 1 << 16)
    except BlockingIOError:
        return False
    if chunk:
        tail.append((time.monotonic(), chunk[-_TAIL:]))
        while sum(len(kept) for _, kept in tail) >= _TAIL + len(tail[0][1]):
            tail.popleft()
    return bool(chunk)


def _await_stack(output: int, tail: deque[tuple[float, bytes]]) -> None:
    end = time.monotonic() + _STACK_SECONDS
    pause = _STACK_SECONDS
    while select.select([output], [], [], pause)[0] and _keep_tail(output, tail):
        pause = min(_STACK_PAUSE, max(end - time.monotonic(), 0.0))
        if not pause:
            return


def _move(fd: int, target: int) -> None:
    os.dup2(fd, target)
    os.close(fd)


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the process group is what can be killed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
