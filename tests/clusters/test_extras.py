"""What the other tests of this folder start is installed."""

from importlib.util import find_spec

import pytest


@pytest.mark.parametrize("name", ["distributed", "ray", "mpi4py", "joblib"])
def test_is_installed(name: str) -> None:
    assert find_spec(name), f'{name} is missing: pip install "fmnes[clusters]"'
