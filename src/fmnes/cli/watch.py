"""`fmnes watch`: the live page of a run in a browser."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fmnes.cli import messages, reading
from fmnes.errors import FmnesError
from fmnes.storage.directory import CONFIG, LOCK
from fmnes.storage.lock import holder

if TYPE_CHECKING:
    from fmnes.html.server import Server

#: Seconds without a request after which the server of `--open` ends, once the run is over.
LEFT_SECONDS = 60


def watch(
    run: Annotated[Path, typer.Argument(help="The run directory; it may not be there yet.")],
    port: Annotated[
        int, typer.Option(help="The port, or the next one that is free.", min=1, max=65535)
    ] = 8790,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    until_left: Annotated[
        float | None,
        typer.Option(hidden=True, help="End this many seconds after the run and the last request."),
    ] = None,
) -> None:
    """Show a run as a live page, with a button to stop it; Ctrl-C ends the page, not the run."""
    if os.path.lexists(run) and not _begins(run):
        reading.check_run(run)
    from fmnes.plots.drawing import need_matplotlib

    need_matplotlib()
    from fmnes.html.server import serve_at

    if hasattr(os, "nice"):
        os.nice(19)  # the run goes first
    try:
        server = serve_at(run, port)
    except OSError as error:
        raise FmnesError(f"port: found none from {port} that is free ({error}); wanted one: --port") from None
    console = Console()
    messages.say(console, f"{run} is shown at {server.address}")
    if not os.path.lexists(run / CONFIG):
        messages.say(console, f"found no run in {run} yet; waiting for it to begin{reading.similar_run(run)}")
    messages.say(console, "Ctrl-C ends the page, not the run")
    with server, contextlib.ExitStack() as around:
        if open_it and not webbrowser.open(around.enter_context(_hidden(server.address))):
            messages.say(Console(stderr=True), "found no browser to open it")
        if until_left is not None:
            threading.Thread(target=_end_when_left, args=(server, run, until_left), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.2)


def _begins(run: Path) -> bool:
    """Whether a run has made its directory, but not yet its files: both may be started together."""
    if not run.is_dir():
        return False
    return set(os.listdir(run)) <= {LOCK} or holder(run / LOCK) is not None


@contextlib.contextmanager
def _hidden(address: str) -> Iterator[str]:
    """The address of a private file that redirects to the page: other users can see a browser's arguments,
    so the token must not be among them."""
    with tempfile.TemporaryDirectory(prefix="fmnes-watch-") as folder:
        path = Path(folder) / "open.html"
        path.write_text(f"<!doctype html><meta http-equiv='refresh' content='0; url={address}'>")
        yield path.as_uri()


def _end_when_left(server: Server, run: Path, seconds: float) -> None:
    while holder(run / LOCK) is not None or time.monotonic() - server.asked < seconds:
        time.sleep(0.5)
    server.shutdown()


def open_watch(run: Path) -> subprocess.Popen[bytes]:
    """Open the live page from a separate process, which costs the run little and outlives it."""
    options = ["--open", "--until-left", str(LEFT_SECONDS)]
    return subprocess.Popen(
        [sys.executable, "-m", "fmnes", "watch", *options, "--", os.path.abspath(run)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
