"""What every test starts from, however and wherever the suite was started."""

import os
import signal
import subprocess

import pytest

# A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What would change the output of the command line, or have each of its processes compile all modules again.
for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS"):
    os.environ.pop(name, None)
os.environ["OPENMDAO_REPORTS"] = "0"  # it would write them for each problem


@pytest.fixture
def own_directory(tmp_path, monkeypatch):
    """The test is in `user` of its folder, and its temporary files are in `temporary`."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "user").mkdir()
    monkeypatch.chdir(tmp_path / "user")


@pytest.fixture
def with_small_disk(tmp_path):
    """Words before a command, which sees a real disk of 400 kB at `tmp_path`, alone."""
    mount = f'mount -t tmpfs -o size=400k none "{tmp_path}" && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    try:
        subprocess.run([*words, "true"], check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("may not mount a file system here")
    return words
