"""HTTP server for the live page (loopback only, token in the URL).

    GET  /TOKEN/            the page
    GET  /TOKEN/news?N      what has changed since revision N, as JSON
    POST /TOKEN/stop        ask the run to stop

Everything else is refused. A foreign page that finds the port does not know the token, and the check of the
Host header stops DNS rebinding.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socketserver
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fmnes.errors import FmnesError
from fmnes.html import markup
from fmnes.html.live import Live
from fmnes.storage.directory import request_stop

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
