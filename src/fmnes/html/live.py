"""The live page of a run and its server: text is refreshed about every second, plots less often.

Watching must not slow down the run: work is done only when a browser asks, and expensive work rarely.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from fmnes.errors import FmnesError
from fmnes.html import document, markup
from fmnes.html.document import ORDER
from fmnes.reading.run import Run, read_run
from fmnes.storage.directory import CONFIG, request_stop

#: Minimum seconds between two refreshes of the text, and of the plots, of an active run.
TEXT_SECONDS, PICTURE_SECONDS = 0.5, 0.5
#: CPU share of either: of one idle core, and of all cores if the run needs them. A low priority is not
#: enough: some systems ignore it.
SHARE, SHARE_IF_BUSY = 0.1, 0.004
#: Work that gets a smaller share of a core than this competes with other processes.
UNDISTURBED = 0.9
COURSE = "course"


class Pace:
    """Rate limit: when a piece of work may be repeated."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = -1.0

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._due

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the CPU time of the block and set when it is due again."""
        began, used = time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            now = time.monotonic()
            used = time.thread_time() - used
            share = SHARE if used >= UNDISTURBED * (now - began) else SHARE_IF_BUSY * (os.cpu_count() or 1)
            self._due = now + max(self._seconds, used / share)


class News(NamedTuple):
    """The changes since a revision."""

    revision: int
    parts: dict[str, str]
    running: bool


class Live:
    """The page of the run at `path`, which may not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._parts: dict[str, tuple[int, str]] = dict.fromkeys(ORDER, (0, ""))
        """Each part with the revision of its last change."""
        self._revision = 0
        self._running = False
        self._drawn: dict[str, object] = dict.fromkeys(document.DRAWN)
        """The data that each plot shows, the next one to draw first; unchanged plots are not redrawn."""
        self._drawing = False
        self._text_pace, self._picture_pace = Pace(TEXT_SECONDS), Pace(PICTURE_SECONDS)

    def now(self) -> dict[str, str]:
        """The whole page."""
        self.news(0)
        with self._lock:
            return {name: part for name, (_, part) in self._parts.items()}

    def news(self, revision: int) -> News:
        """The changes since `revision`; plots are drawn in the background and appear when they are done."""
        with self._lock:
            if self._text_pace.due:
                with self._text_pace.measured():
                    self._refresh()
            changed = {name: part for name, (at, part) in self._parts.items() if at > revision}
            return News(self._revision, changed, self._running)

    def _refresh(self) -> None:
        try:
            run = None if not os.path.lexists(self.path / CONFIG) else read_run(self.path)
            parts = _waiting(self.path) if run is None else document.parts(run, self.path)
        except FmnesError as error:  # deleted, or incomplete
            run, parts = (
                None,
                {"head": f"<h1>{markup.text(self.path.name)}</h1>\n<p>{markup.text(error)}</p>"},
            )
        self._running = run is not None and run.running
        self._publish(parts)
        if run is not None and not self._drawing and (names := self._worth_drawing(run)):
            self._drawing = True
            threading.Thread(target=self._draw, args=(run, names), daemon=True).start()

    def _worth_drawing(self, run: Run) -> list[str]:
        """The outdated plots; of an active run one at a time, as it needs the cores."""
        older = [name for name, shown in self._drawn.items() if shown != _shown(run)]
        if not run.running:
            return older
        return older[:1] if self._picture_pace.due else []

    def _draw(self, run: Run, names: list[str]) -> None:
        try:
            for name in names:
                with self._picture_pace.measured():
                    part = _part(name, run)
                with self._lock:
                    self._publish({name: part})
                    self._drawn = _then(name, self._drawn, _shown(run))
        finally:
            self._drawing = False

    def _publish(self, parts: dict[str, str]) -> None:
        for name, part in parts.items():
            if self._parts[name][1] != part:
                self._revision += 1
                self._parts[name] = (self._revision, part)


def _then(name: str, drawn: dict[str, object], shown: object) -> dict[str, object]:
    """The order after drawing `name`: it goes last, and the convergence plot comes after each other plot."""
    others = {other: what for other, what in drawn.items() if other != name}
    if name != COURSE:
        others = {COURSE: others.pop(COURSE), **others}
    return {**others, name: shown}


def _shown(run: Run) -> object:
    return run.summary.statuses, run.state, len(run.history["evaluations"]) if run.history else 0


def _part(name: str, run: Run) -> str:
    try:
        return document.drawn(name, run)
    except FmnesError as error:  # a row that is damaged, a run that was moved
        return f"<p>{markup.text(error)}</p>"


def _waiting(path: Path) -> dict[str, str]:
    where = markup.code(path)
    return {
        "head": f"<h1>{markup.text(path.name)}</h1>\n<p>There is no run yet in {where}; waiting for it.</p>"
    }


# -- The HTTP server of the live page (loopback only, token in the URL)
#
#     GET  /TOKEN/            the page
#     GET  /TOKEN/news?N      what has changed since revision N, as JSON
#     POST /TOKEN/stop        ask the run to stop
#
# Everything else is refused. A foreign page that finds the port does not know the token, and the check of the
# Host header stops DNS rebinding.

HOST = "127.0.0.1"
#: Number of ports to try.
PORTS = 100
#: Timeout of a silent connection, in seconds.
TIMEOUT = 10.0

_LIVE = """<p class='live'><span id='said' class='faint' role='status'></span>
<button id='stop' hidden>Stop the run</button></p>
<script nonce='%s'>
"use strict";
let revision = 0;  // the pictures may have changed while the page was on its way
const button = document.getElementById("stop"), said = document.getElementById("said");
button.addEventListener("click", async () => {
  button.disabled = true;
  const answer = await fetch("stop", {method: "POST"});
  said.textContent = await answer.text();
});
function show(id, part) {
  const section = document.getElementById(id);
  const unfolded = new Map([...section.querySelectorAll("details")].map((d) => [d.dataset.key, d.open]));
  section.innerHTML = part;
  for (const d of section.querySelectorAll("details")) d.open = unfolded.get(d.dataset.key) ?? d.open;
}
async function look() {
  if (document.hidden) return;
  let news;
  try {
    news = await (await fetch("news?" + revision)).json();
  } catch {
    said.textContent = "The server has ended; this page shows the last state it read.";
    button.hidden = true;
    return;
  }
  for (const [id, part] of Object.entries(news.parts)) show(id, part);
  revision = news.revision;
  if (button.hidden && news.running) { button.disabled = false; said.textContent = ""; }
  button.hidden = !news.running;
}
document.addEventListener("visibilitychange", look);
document.addEventListener("DOMContentLoaded", look);
setInterval(look, 1000);
</script>
"""


class Server(ThreadingHTTPServer):
    """Serves the page of one run until it is closed. `address` is where."""

    daemon_threads = True

    def __init__(self, run: Path, port: int) -> None:
        self.live = Live(run)
        self.token = secrets.token_urlsafe(24)
        self.asked = time.monotonic()
        """Time of the last request."""
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without asking a name server for our own name
        self.server_name, self.server_port = HOST, self.server_address[1]

    @property
    def hosts(self) -> tuple[str, ...]:
        return f"{HOST}:{self.server_port}", f"localhost:{self.server_port}"

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/{self.token}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a browser that disconnects."""


def serve_at(run: Path, port: int) -> Server:
    """At this port, or the next one that is free. Raises OSError where none is."""
    for candidate in range(port, min(port + PORTS, 2**16)):
        try:
            return Server(run, candidate)
        except OSError as error:
            last = error
    raise last


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = TIMEOUT
    server_version, sys_version = "fmnes", ""

    def do_GET(self) -> None:
        answers: dict[str, Callable[[str], None]] = {"": self._page, "news": self._news}
        self._answer(answers)

    def do_POST(self) -> None:
        self._answer({"stop": self._stop})

    def _answer(self, answers: dict[str, Callable[[str], None]]) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            return self._send(HTTPStatus.MISDIRECTED_REQUEST, "another host was asked for\n")
        if self.headers.get("Origin", self._origin()) != self._origin():
            return self._send(HTTPStatus.FORBIDDEN, "another page has asked\n")
        path, _, query = self.path.partition("?")
        token, _, what = path.removeprefix("/").partition("/")
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
        if not known or what not in answers:
            return self._send(HTTPStatus.NOT_FOUND, "nothing is here\n")
        self.server.asked = time.monotonic()
        answers[what](query)

    def _origin(self) -> str:
        return f"http://{self.headers.get('Host')}"

    def _page(self, query: str) -> None:
        nonce = secrets.token_urlsafe(16)
        policy = f"{markup.POLICY}; connect-src 'self'; script-src 'nonce-{nonce}'"
        live = self.server.live
        page = markup.document(live.path.name, live.now(), policy=policy, live=_LIVE % nonce)
        self._send(HTTPStatus.OK, page, "text/html")

    def _news(self, query: str) -> None:
        revision = int(query) if query.isdecimal() and len(query) < 10 else 0
        news = self.server.live.news(revision)
        self._send(HTTPStatus.OK, json.dumps(news._asdict()), "application/json")

    def _stop(self, query: str) -> None:
        try:
            answer = request_stop(self.server.live.path, 0.0)
        except FmnesError as error:
            return self._send(HTTPStatus.CONFLICT, str(error))
        self._send(
            HTTPStatus.OK, f"The run is {answer.value}{' to stop' if answer.value == 'asked' else ''}."
        )

    def _send(self, status: HTTPStatus, words: str, kind: str = "text/plain") -> None:
        body = words.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request, or an unsupported method."""
        if not hasattr(self, "headers"):
            self.headers = self.MessageClass()
        self.close_connection = True
        self._send(HTTPStatus(code), f"{HTTPStatus(code).phrase}\n")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
