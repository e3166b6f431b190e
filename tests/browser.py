"""Pages as a real browser sees them: headless Chromium, driven over its debugging pipe.

    apt-get install chromium

    with open_browser() as browser, browser.page("file:///.../report.html", width=400, dark=True) as page:
        assert not page.complaints and not page.sideways() and not page.faint()

A page is shown at an exact width and in a colour scheme without being changed for the test. Where
FMNES_BROWSER=required is set, as in .ci/run, a browser that is missing is a failure and not a skip.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # which a container's root has not
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 120.0
"""Seconds for an answer; the machine may be busy with other tests."""

CONTRAST = 4.5
"""What WCAG 2.1 wants of text, level AA."""


def need_browser() -> str:
    """The browser's path; without one the test is skipped, or fails where a browser is required."""
    for program in PROGRAMS:
        if path := shutil.which(program):
            return path
    line = "chromium is not installed: apt-get install chromium"
    if os.environ.get("FMNES_BROWSER") == "required":
        pytest.fail(line)
    pytest.skip(line)


class Faint(NamedTuple):
    """Text that is hard to read."""

    text: str
    colour: str
    background: str
    contrast: float


class Page:
    """One page of the browser, loaded. `complaints` and `requests` are as of what was last asked of it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.complaints: list[str] = []
        """Errors and warnings of the console, exceptions of scripts, what could not be loaded."""
        self.requests: list[str] = []
        """Every address asked for, the page's own first."""
        self.loaded = False

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **params)

    def evaluate(self, script: str) -> Any:
        """The value of an expression on the page, after waiting for it where it is a promise."""
        said = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise RuntimeError(_described(said["exceptionDetails"]))
        return said["result"].get("value")

    def wait_for(self, script: str, seconds: float = 240.0) -> Any:
        """The value of an expression once it is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.evaluate(script)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not true within {seconds:g} s: {script}")
            time.sleep(0.05)
        return value

    def show(self, width: int, dark: bool) -> None:
        """From now on in this width and colour scheme."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def sideways(self) -> int:
        """The pixels by which the page is wider than its window: 0 where nobody has to scroll sideways."""
        wider: int = self.evaluate(
            "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - innerWidth"
        )
        return max(wider, 0)

    def faint(self) -> list[Faint]:
        """All text that has less contrast to what is behind it."""
        return [Faint(*row) for row in self.evaluate(CONTRASTS) if row[-1] < CONTRAST]

    def foreign_requests(self) -> list[str]:
        """Requests for anything but the page itself and, of a live page, what is below its address."""
        own = ("data:", "about:", *self.requests[:1])
        return [url for url in self.requests if not url.startswith(own)]

    def screenshot(self, path: Path) -> None:
        said = self.ask("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(said["data"]))

    def told(self, method: str, params: dict[str, Any]) -> None:
        """An event of the browser."""
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Network.loadingFailed" and not params.get("canceled"):
            self.complaints.append(f"not loaded: {params['errorText']}")
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(_described(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            words = (str(each.get("value", each.get("description", ""))) for each in params["args"])
            self.complaints.append(f"{params['type']}: {' '.join(words)}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['level']}: {params['entry']['text']}")


class Browser:
    """A running Chromium. It reads commands and writes answers and events as JSON, each with a zero byte."""

    def __init__(self, profile: Path) -> None:
        commands, to_browser = os.pipe()
        from_browser, answers = os.pipe()
        # The browser has them as 3 and 4; from high numbers neither can be in the other's way.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (commands, answers)]
        shell = f'exec "$@" 3<&{high[0]} 4>&{high[1]}'
        program = [need_browser(), *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *program],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (commands, answers, *high):
            os.close(fd)
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._number = 0
        self._pages: dict[str, Page] = {}

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Give a command and wait for its answer; events that come before it reach their pages."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            command["sessionId"] = session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                answer: dict[str, Any] = message["result"]
                return answer

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"the browser has said nothing for {PATIENCE:g} s")
            piece = os.read(self._from, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._buffer += piece
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(raw)
        if "method" in message and (page := self._pages.get(message.get("sessionId", ""))):
            page.told(message["method"], message["params"])
        return message

    @contextmanager
    def page(self, address: str, width: int = 1200, dark: bool = False) -> Iterator[Page]:
        """The page at this address, loaded at this width and in this colour scheme."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.ask(f"{domain}.enable")
            page.show(width, dark)
            page.loaded = False  # that was the empty one
            said = page.ask("Page.navigate", url=address)
            if "errorText" in said:
                raise RuntimeError(f"{address}: {said['errorText']}")
            while not page.loaded:
                self._next()
            yield page
        finally:
            del self._pages[session]
            self.ask("Target.closeTarget", targetId=target)

    def close(self) -> None:
        try:
            self.ask("Browser.close")
            self._process.wait(PATIENCE)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)


@contextmanager
def open_browser() -> Iterator[Browser]:
    need_browser()
    # A part of the browser may still write there when the rest has ended.
    with tempfile.TemporaryDirectory(prefix="browser", ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        try:
            yield browser
        finally:
            browser.close()


def _described(details: dict[str, Any]) -> str:
    return str(details.get("exception", {}).get("description", details["text"]))


CONTRASTS = r"""
(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", {willReadFrequently: true});
  // Any colour that CSS can write, as red, green, blue and alpha.
  const seen = new Map();
  const rgba = (colour) => {
    if (!seen.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      seen.set(colour, [r, g, b, a / 255]);
    }
    return seen.get(colour);
  };
  const over = (front, back, alpha) => front.slice(0, 3).map((v, i) => v * alpha + back[i] * (1 - alpha));
  const luminance = (colour) => {
    const [r, g, b] = colour.map((v) => {
      v /= 255;
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  // What the browser paints behind everything: dark only where the page says that it knows dark.
  const probe = document.createElement("i");
  probe.style.backgroundColor = "Canvas";
  document.body.append(probe);
  const paper = rgba(getComputedStyle(probe).backgroundColor).slice(0, 3);
  probe.remove();
  const rows = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    const element = walker.currentNode.parentElement;
    if (!text || element.closest("script, style, title, desc, metadata, defs")) continue;
    if (!element.checkVisibility({visibilityProperty: true}) || !element.getClientRects().length) continue;
    const chain = [];
    for (let each = element; each; each = each.parentElement) chain.unshift(getComputedStyle(each));
    let back = paper, opacity = 1;
    for (const style of chain) {
      opacity *= Number(style.opacity);
      const colour = rgba(style.backgroundColor);
      back = over(colour, back, colour[3] * opacity);
    }
    const style = chain[chain.length - 1];
    const colour = rgba(element instanceof SVGElement ? style.fill : style.color);
    let front = over(colour, back, colour[3] * opacity);
    for (const style of chain) {  // a picture shown in the dark as its negative; turned hues are as light
      const [, share] = style.filter.match(/invert\(([\d.]+)\)/) || [];
      if (share) [front, back] = [front, back].map((c) => c.map((v) => share * (255 - v) + (1 - share) * v));
    }
    const [low, high] = [luminance(front), luminance(back)].sort((a, b) => a - b);
    const named = (c) => "rgb(" + c.map(Math.round).join(" ") + ")";
    rows.push([text.slice(0, 60), named(front), named(back), (high + 0.05) / (low + 0.05)]);
  }
  return rows;
})()
"""
"""Text, its colour, the colour behind it and their contrast, for each piece of text that can be seen."""
