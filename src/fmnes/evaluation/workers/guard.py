"""The guard of a worker: a process that kills the evaluator and all its descendants at the end.

    driver ── control ── guard          runs this file only, so no objective can hang or crash it
         └─── channel ── evaluator      its child runs the objective, in a session of its own

The guard keeps the tail of the objective's output, and kills the evaluator when the driver requests it or is
gone. Then it kills everything that the evaluator started, even outside of its process group. Its last line on
the control socket is a JSON report: how the evaluator ended, and whether the guard killed it.

The driver runs this file as a script. It imports the standard library only, because the guard must fork
before NumPy starts threads. Fd 0 is the channel; fd 2 is the control socket, which also receives the guard's
own errors.
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

#: Request to print the Python stack before the evaluator is killed. A closed socket requests the kill.
SHOW_STACK = b"s"
#: A rarely used signal. Its handler is in C, so it works while the interpreter is blocked. macOS has only the
#: second; Windows, where this file is imported but never run, has neither.
_STACK_SIGNAL = signal.SIGRTMAX - 1 if hasattr(signal, "SIGRTMAX") else getattr(signal, "SIGUSR2", 0)
#: Longest wait for the printed stack, and for its next piece.
_STACK_SECONDS, _STACK_PAUSE = 0.3, 0.05
#: Seconds to kill descendants: since the last one that died, and in total.
_KILL_PATIENCE, _KILL_SECONDS = 0.5, 10.0

#: The first argument if this file runs as the evaluator; otherwise that is the driver's pid.
_EVALUATE = "evaluate"
#: Bytes of output to keep.
_TAIL = 2000
_CONTROL = 2
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    if sys.argv[1] == _EVALUATE:
        return _evaluate(int(sys.argv[2]), int(sys.argv[3]))
    driver, guard = int(sys.argv[1]), os.getpid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # adopt the evaluator's orphans, to find them
    output, printing = os.pipe()
    evaluator = os.fork()
    if evaluator == 0:
        os.close(output)
        if sys.platform == "darwin":  # its libraries may fail between fork and exec
            os.set_inheritable(printing, True)
            again = [sys.executable, "-P", os.path.abspath(__file__), _EVALUATE, str(guard), str(printing)]
            os.execv(sys.executable, again)
        _evaluate(guard, printing)
    else:
        os.close(printing)
        _move(os.open(os.devnull, os.O_RDONLY), 0)  # only the evaluator keeps the channel
        _watch(evaluator, driver, output)


def _evaluate(guard: int, printing: int) -> None:
    channel = _set_up(guard, printing)
    stream = channel.makefile("rb")
    sys.path[:] = json.loads(stream.readline() or "[]")
    from fmnes.evaluation.workers.messages import serve

    serve(channel, stream)


def _set_up(guard: int, printing: int) -> socket.socket:
    """Set up the evaluator: a session of its own, output to the guard. Returns the channel."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(1)
    channel = socket.socket(fileno=os.dup(0))
    _move(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(printing, 1)
    _move(printing, 2)
    # Line-buffered, so that a crash loses no complete line.
    sys.stdout = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    faulthandler.enable()
    faulthandler.register(_STACK_SIGNAL)
    # Only the driver handles Ctrl-C. A handler, as programs of the objective would inherit SIG_IGN.
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.argv = [""]
    return channel


def _watch(evaluator: int, driver: int, output: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("fmnes-guard")  # so that `killall python3` spares the guard
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
    # Check for its end first: a request of the driver may have come too late.
    while (status := _ended(evaluator)) is None:
        for fd, _ in events:
            if fd == child_ended:
                os.read(child_ended, 512)
            elif fd == output:
                if not _keep_tail(output, tail):
                    poller.unregister(output)
            else:
                killed = True
                if _read_request() == SHOW_STACK:
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


def _read_request() -> bytes:
    try:
        return os.read(_CONTROL, 1)
    except OSError:  # the driver died before it read the messages of the Python start-up
        return b""


def _ended(evaluator: int) -> int | None:
    """Return the evaluator's exit code (negative for a signal), None while it lives. Reaps orphans, too."""
    if not hasattr(os, "waitid"):
        return _ended_and_reaped(evaluator)
    while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if dead.si_pid == evaluator:
            with suppress(OSError):  # before it is reaped, while its pid is not reused
                os.killpg(evaluator, signal.SIGKILL)
        status = os.waitpid(dead.si_pid, 0)[1]
        if dead.si_pid == evaluator:
            return os.waitstatus_to_exitcode(status)
    return None


def _ended_and_reaped(evaluator: int) -> int | None:
    """The same on macOS before Python 3.13, which has no waitid and no subreaper.

    The group is killed at once: the system does not reuse its number while a member lives.
    """
    dead, status = os.waitpid(evaluator, os.WNOHANG)
    if not dead:
        return None
    with suppress(OSError):
        os.killpg(evaluator, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _kill_descendants() -> None:
    """Kill all children, and then the orphans of each, until none is left or time is over."""
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
    """Read available output with its time, which shows the driver which evaluation printed it."""
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
    """Call prctl on Linux; elsewhere only the process group can be killed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
