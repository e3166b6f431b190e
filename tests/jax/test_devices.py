"""Several devices: what one device can see of them, and the tests that want eight."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import fmnes  # noqa: E402
from fmnes.integrations import jax as fj  # noqa: E402

HERE = Path(__file__).parent


def test_the_tests_on_eight_devices_pass() -> None:
    flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", HERE / "eight_devices.py"]
    done = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:]
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|skipped|failed)", done.stdout)}
    assert set(counts) == {"passed"} and counts["passed"] >= 20, done.stdout


@pytest.mark.parametrize(
    ("devices", "options", "found"),
    [
        (0, {}, "found 0, wanted a whole number above 0"),
        (1.5, {}, "found 1.5, wanted a whole number above 0"),
        (10_000, {"batch": 2}, r"found 10000, wanted at most \d+, which this process has"),
        ("all", {}, r"found 'all', wanted how many, or a list such as jax.devices\(\)\[:2\]"),
        ([], {}, r"found \[\], wanted how many"),
        ([0, 1], {"batch": 2}, r"found \[0, 1\], wanted how many"),
        ("twice", {"batch": 2}, "wanted different devices of one kind"),
        ("twice", {}, "wanted different devices of one kind"),
        (True, {}, "found True, wanted how many"),
    ],
)
def test_devices_that_are_none(devices: Any, options: dict[str, Any], found: str) -> None:
    if devices == "twice":
        devices = [jax.devices()[0]] * 2
    with pytest.raises(fmnes.ArgumentError, match=f"devices: .*{found}"):
        fj.run(
            jnp.sum, jnp.ones(2), 1.0, key=jax.random.key(0), max_evaluations=9, devices=devices, **options
        )


def test_one_device_named_is_that_device() -> None:
    options: dict[str, Any] = {"key": jax.random.key(0), "method": "xnes", "max_evaluations": 30}
    first = jax.devices()[0]
    for devices in (1, first, [first]):
        result = fj.run(jnp.linalg.norm, jnp.ones(2), 1.0, devices=devices, **options)
        assert result.x.devices() == {first}
