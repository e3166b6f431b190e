"""`fmnes watch`: the page of a real run in a real browser, and who may ask for it."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fmnes
from fmnes import StopReason
from fmnes.html import document, live
from fmnes.html.live import HOST, Server, serve_at
from fmnes.storage.directory import LOCK, LOG
from fmnes.storage.lock import RunLock
from tests.browser import open_browser
from tests.real.test_report import HOSTILE, check, command_line, marks

#: A run that goes on for long; the seconds of an evaluation come from outside.
GOING = f"""
import sys, time, fmnes
def slow(point):
    time.sleep(float(sys.argv[2]))
    if point["a"] < 0.3:
        raise fmnes.Infeasible({f"too small {HOSTILE}"!r})
    return sum(value**2 for value in point.values())
if __name__ == "__main__":
    names = ("a", {HOSTILE!r})
    parameters = {{name: fmnes.Real(-2, 2, start=1.0) for name in names}}
    fmnes.minimize(slow, parameters, rng=1, run_dir=sys.argv[1], restarts=1000, max_evaluations=100_000)
"""


@contextmanager
def going(run: Path, seconds: float = 0.03) -> Iterator[subprocess.Popen[bytes]]:
    driver = subprocess.Popen([sys.executable, "-c", GOING, str(run), str(seconds)])
    try:
        yield driver
    finally:
        driver.kill()
        driver.wait()


@contextmanager
def watching(*words: str | Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The real command, and the address it says."""
    watcher = subprocess.Popen(
        [sys.executable, "-m", "fmnes", "watch", *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert watcher.stdout is not None
        found = re.search(r"http://\S+", watcher.stdout.readline())
        assert found
        yield watcher, found[0]
    finally:
        watcher.kill()
        watcher.communicate()


@contextmanager
def served(run: Path, port: int = 8790) -> Iterator[Server]:
    server = serve_at(run, port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def ask(server: Server, method: str, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=120)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_page_waits_for_the_run_goes_on_with_it_and_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SHARE_IF_BUSY", 0.2)  # other tests keep the machine busy
    run = tmp_path / "live.run"
    with (
        served(run, 8900) as server,
        open_browser() as browser,
        browser.page(server.address, width=400, dark=True) as page,
    ):
        assert "There is no run yet" in page.evaluate("document.body.innerText")
        assert page.evaluate("document.getElementById('stop').hidden")
        with going(run) as driver:
            counted = "parseInt(document.querySelectorAll('dl.facts dd')[1]?.innerText.replace(',', ''))"
            state = "document.getElementById('next').innerText"
            first = page.wait_for(f"{counted} > 0 && {counted}")
            page.wait_for(f"{counted} > {first + 5}")
            drawn = page.wait_for("document.querySelectorAll('#course svg .evaluations use').length")
            page.wait_for(f"document.querySelectorAll('#course svg .evaluations use').length > {drawn}")
            page.wait_for("!!document.querySelector('#steps svg')")
            check(page)
            assert re.search(r"\d of 100,000 evaluations, about \d+ \w+ left", page.evaluate(state))
            # What a reader has unfolded stays so.
            page.wait_for("!!document.querySelector('#failures details')")
            page.evaluate("document.querySelector('#failures details').open = false")
            seen = page.evaluate(counted)
            page.wait_for(f"{counted} > {seen + 5}")
            assert page.evaluate("document.querySelector('#failures details').open") is False
            page.show(1200, dark=False)
            check(page)
            assert driver.poll() is None
            page.evaluate("document.getElementById('stop').click()")
            driver.wait(120)
            page.wait_for("document.getElementById('next').innerText.includes('INTERRUPTED')")
            page.wait_for("document.getElementById('stop').hidden")
            found = fmnes.read_run(run)
            assert found.result is not None and found.result.stop_reason is StopReason.INTERRUPTED
            total = (
                "document.querySelectorAll('#course svg .evaluations use, #course svg .failed use').length"
            )
            if found.answered < 3000:
                page.wait_for(f"{total} === {found.answered}")
            check(page)
        assert page.evaluate("window.caught") is None


def test_a_page_that_nobody_serves_any_more_says_so(tmp_path: Path) -> None:
    fmnes.minimize(lambda x: float(x @ x), [1.0], 0.5, rng=1, max_evaluations=20, run_dir=tmp_path / "a.run")
    with (
        watching(tmp_path / "a.run", "--port", "8920") as (watcher, address),
        open_browser() as browser,
        browser.page(address) as page,
    ):
        page.wait_for("!!document.querySelector('#steps svg')")
        assert marks(page, "evaluations") == 20
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(120) == 0
        page.wait_for("document.getElementById('said').innerText.includes('The server has ended')")
        assert marks(page, "evaluations") == 20


def test_nothing_is_served_without_the_token_and_the_right_host(tmp_path: Path) -> None:
    run = tmp_path / "a.run"
    with going(run, 0.05) as driver, served(run, 8940) as server:
        while not (run / "config.json").exists():
            time.sleep(0.02)
        token = f"/{server.token}"
        assert ask(server, "GET", f"{token}/")[0] == 200
        assert ask(server, "GET", f"{token}/news?0")[0] == 200
        assert ask(server, "GET", f"{token}/", Host=f"localhost:{server.server_port}")[0] == 200
        refused = [
            ("GET", "/", {}),
            ("GET", "/wrong/", {}),
            ("GET", f"{token[:-1]}/", {}),
            ("GET", f"{token}x/", {}),
            ("GET", f"{token}/stop", {}),
            ("GET", f"{token}/../", {}),
            ("GET", f"{token}/config.json", {}),
            ("POST", f"{token}/", {}),
            ("POST", f"{token}/news", {}),
            ("POST", "/stop", {}),
            ("PUT", f"{token}/stop", {}),
            ("DELETE", f"{token}/", {}),
            ("OPTIONS", f"{token}/stop", {}),
            ("GET", f"{token}/", {"Host": "evil.example"}),
            ("GET", f"{token}/", {"Host": f"evil.example:{server.server_port}"}),
            ("GET", f"{token}/", {"Host": HOST}),
            ("POST", f"{token}/stop", {"Host": "evil.example"}),
            ("POST", f"{token}/stop", {"Origin": "http://evil.example"}),
            ("POST", f"{token}/stop", {"Origin": "null"}),
        ]
        for method, path, headers in refused:
            status, words = ask(server, method, path, **headers)
            assert status in (403, 404, 421, 501), (method, path, headers, status)
            assert server.token not in words and "evaluations" not in words
        assert driver.poll() is None and not (run / "stop").exists()
        assert server.server_address[0] == "127.0.0.1"
        # Garbage, and a connection that says nothing, are in nobody's way.
        with socket.create_connection((HOST, server.server_port)) as silent:
            for garbage in (b"\0\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"x" * 70_000):
                with socket.create_connection((HOST, server.server_port)) as connection:
                    connection.sendall(garbage)
            assert ask(server, "GET", f"{token}/news?-1")[0] == 200
            assert ask(server, "GET", f"{token}/news?{'9' * 5000}")[0] == 200
            silent.close()
        assert ask(server, "POST", f"{token}/stop") == (200, "The run is asked to stop.")
        driver.wait(120)
        assert ask(server, "POST", f"{token}/stop") == (200, "The run is not running.")


def test_only_what_has_changed_is_sent(tmp_path: Path) -> None:
    fmnes.minimize(lambda x: float(x @ x), [1.0], 0.5, rng=1, max_evaluations=20, run_dir=tmp_path / "a.run")
    with served(tmp_path / "a.run", 8960) as server:
        pages = server.live
        end = time.monotonic() + 240
        while "" in pages.now().values():
            assert time.monotonic() < end
            time.sleep(0.1)
        all_of_it = pages.news(0)
        assert set(all_of_it.parts) == set(pages.now()) and not all_of_it.running
        assert pages.news(all_of_it.revision).parts == {}
        time.sleep(2.5)  # a second look, and nothing is drawn again
        assert pages.news(all_of_it.revision) == all_of_it._replace(parts={})
        fmnes.resume(tmp_path / "a.run", lambda x: float(x @ x), max_evaluations=30)
        end = time.monotonic() + 240
        while "course" not in (news := pages.news(all_of_it.revision)).parts:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert "<dd>30</dd>" in news.parts["head"] and news.revision > all_of_it.revision


def test_a_busy_machine_is_left_to_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of this thread, which says how much of a processor it got."""
    seconds = {"wall": 0.0, "mine": 0.0}
    monkeypatch.setattr(live.time, "monotonic", lambda: seconds["wall"])
    monkeypatch.setattr(live.time, "thread_time", lambda: seconds["mine"])
    cores = os.cpu_count() or 1
    for got, wait in [(1.0, 1.0 / live.SHARE), (0.5, 0.5 / (cores * live.SHARE_IF_BUSY)), (0.0, 0.5)]:
        pace = live.Pace(0.5)
        assert pace.due
        with pace.measured():
            seconds["wall"] += 1.0
            seconds["mine"] += got
        seconds["wall"] += wait - 0.01
        assert not pace.due
        seconds["wall"] += 0.02
        assert pace.due
    drawn = dict.fromkeys(document.PICTURES)
    order = []
    for _ in range(8):
        order.append(next(iter(drawn)))
        drawn = live._then(order[-1], drawn, None)
    others = [name for name in document.PICTURES if name != live.COURSE]
    assert order == [name for other in others for name in (live.COURSE, other)]


def test_a_port_in_use_is_passed_by(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        if port > 65_000:
            pytest.skip("no port after it")
        with served(tmp_path / "a.run", port) as server:
            assert port < server.server_port < port + 100
            assert "There is no run yet" in ask(server, "GET", f"/{server.token}/")[1]


def test_the_terminal_names_the_run_that_it_waits_for(tmp_path: Path) -> None:
    fmnes.minimize(lambda x: float(x @ x), [1.0], 0.5, rng=1, max_evaluations=5, run_dir=tmp_path / "one.run")
    run = tmp_path / "on.run"
    with watching(run, "--port", "8940") as (watcher, _):
        assert watcher.stdout is not None
        line = watcher.stdout.readline()
        assert line == f"found no run in {run} yet; waiting for it to begin; did you mean 'one.run'?\n"
    with served(run, 8960) as server:
        assert str(run) in ask(server, "GET", f"/{server.token}/")[1]


def test_a_refresh_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "a.run"
    fmnes.minimize(lambda x: float(x @ x), [1.0], 0.5, rng=1, max_evaluations=20, run_dir=run)
    opened: list[str] = []
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(str(run)):
            opened.append(Path(arguments[0]).name)

    monkeypatch.setattr(sqlite3, "connect", traced)
    sys.addaudithook(audit)
    assert document.parts(live.read_run(run), run)["head"]
    assert opened.count("config.json") == 1
    assert len([statement for statement in statements if "integrity_check" in statement]) == 1


def test_a_run_that_is_damaged_meanwhile_is_told_in_words(tmp_path: Path) -> None:
    run = tmp_path / "a.run"
    fmnes.minimize(lambda x: float(x @ x), [1.0], 0.5, rng=1, max_evaluations=20, run_dir=run)
    with served(run, 8980) as server:
        assert ask(server, "GET", f"/{server.token}/")[0] == 200
        (run / "config.json").write_text("<i>not JSON</i>")
        end = time.monotonic() + 240
        while "config.json" not in (page := ask(server, "GET", f"/{server.token}/")[1]):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert "<i>" not in page.replace("<i style", "")


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = command_line("watch", tmp_path)
    assert done.returncode == 2 and "found no config.json in it, wanted a run directory" in done.stderr


#: A "browser" that writes down what it was told to open, and where that leads.
BROWSER = """#!/bin/sh
echo "$1" > "$SEEN"
cat "${1#file://}" >> "$SEEN"
"""


def test_minimize_open_opens_the_page_of_its_own_run(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o700)
    (tmp_path / "p.toml").write_text(
        'command = ["sh", "-c", "sleep 0.05; echo {a}"]\n[parameters.a]\nlower = 0\nupper = 1\n'
        "[run]\nmax_evaluations = 60\n"
    )
    seen = tmp_path / "seen"
    driver = subprocess.Popen(
        [sys.executable, "-m", "fmnes", "minimize", "--open", "p.toml"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "BROWSER": f"{browser} %s", "SEEN": str(seen)},
    )
    address = None
    end = time.monotonic() + 240
    while address is None and time.monotonic() < end:
        time.sleep(0.1)
        address = re.search(
            r"url=(http://127\.0\.0\.1:(\d+)(/\S+/))'", seen.read_text() if seen.exists() else ""
        )
    assert address
    # The token is not among the arguments that everybody can see.
    assert address[3] not in seen.read_text().splitlines()[0]
    connection = http.client.HTTPConnection(HOST, int(address[2]), timeout=120)
    connection.request("GET", address[3])
    assert "p.run" in connection.getresponse().read().decode()
    assert driver.wait(240) == 0
    found = subprocess.run(["pgrep", "-f", f"fmnes watch .*{tmp_path}"], capture_output=True, text=True)
    for pid in found.stdout.split():  # it would wait a minute for somebody to look
        os.kill(int(pid), signal.SIGKILL)
    assert found.stdout
    # A run that is refused opens nothing.
    seen.unlink()
    done = command_line("minimize", "--open", "p.toml", cwd=str(tmp_path))
    assert done.returncode == 2 and not seen.exists()


def test_a_page_that_nobody_looks_at_ends_after_its_run(tmp_path: Path) -> None:
    run = tmp_path / "a.run"
    with going(run) as driver, watching(run, "--port", "8990", "--until-left", "1") as (watcher, _):
        time.sleep(3)
        assert watcher.poll() is None
        driver.kill()
        assert watcher.wait(120) == 0


def test_a_run_that_has_made_its_folder_only_is_waited_for(tmp_path: Path) -> None:
    run = tmp_path / "a.run"
    run.mkdir()
    with watching(run, "--port", "8890"):
        pass
    lock = RunLock(run / LOCK)
    (run / LOG).touch()
    with watching(run, "--port", "8890"):
        pass
    lock.release()
    done = command_line("watch", str(run))  # nobody is there, and it is no run
    assert done.returncode == 2 and "found no config.json in it" in done.stderr
