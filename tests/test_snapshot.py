"""Snapshots come back bit for bit, or not at all: whatever is wrong with the file is a SnapshotError."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fmnes import SnapshotError
from fmnes.storage.snapshot import read_snapshot, write_snapshot

METADATA = {"kind": "test", "generation": 3, "nested": {"list": [1, 2.5, None, "σ"]}}
ARRAYS = {
    "scalar": np.array(-0.0),
    "vector": np.array([np.nan, -np.inf, 5e-324, 1 / 3]),
    "matrix": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "feasible_share": np.array([True, False]),
    "counts": np.arange(5, dtype=np.int64),
    "empty": np.empty((0, 7)),
}


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "a.npz"
    write_snapshot(path, METADATA, ARRAYS)
    return path


@pytest.fixture
def in_memory(written):
    """The same where there is no disk to wait for."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        yield Path(shutil.copy(written, directory))


def test_round_trip_bit_for_bit(written):
    metadata, arrays = read_snapshot(written)
    assert METADATA.items() <= metadata.items()
    assert list(arrays) == list(ARRAYS)
    assert all(same(arrays[name], ARRAYS[name]) for name in ARRAYS)
    arrays["vector"][0] = 1.0  # ours to change
    assert [p.name for p in written.parent.iterdir()] == ["a.npz"]


def test_keeps_the_one_before(written, tmp_path):
    kept = tmp_path / "b.npz"
    write_snapshot(written, {"generation": 4}, {}, keep=kept)
    assert read_snapshot(written)[0]["generation"] == 4
    assert read_snapshot(kept)[0]["generation"] == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "b.npz"]


@pytest.mark.parametrize(
    ("metadata", "arrays"),
    [({"x": np.nan}, {}), ({"x": object()}, {}), ({}, {"a": np.array([object()])})],
    ids=["nan", "object", "object array"],
)
def test_a_write_that_fails_leaves_the_old_one_alone(written, metadata, arrays):
    before = written.read_bytes()
    with pytest.raises((TypeError, ValueError)):
        write_snapshot(written, metadata, arrays)
    assert written.read_bytes() == before
    assert [p.name for p in written.parent.iterdir()] == ["a.npz"]


def test_a_full_disk_leaves_the_old_one_alone(written):
    script = """
import resource, sys
import numpy as np
from fmnes.storage.snapshot import write_snapshot
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    write_snapshot(sys.argv[1], {}, {"a": np.zeros(100_000), "b": np.zeros(3)})
except OSError as error:
    print("refused:", error.strerror)
"""
    before = written.read_bytes()
    # What measures coverage would not find room for its own file either, and say so.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-c", script, written], capture_output=True, text=True, timeout=300, env=environment
    )
    assert (done.stdout, done.stderr) == ("refused: File too large\n", "")
    assert written.read_bytes() == before
    assert [p.name for p in written.parent.iterdir()] == ["a.npz"]


def mutate(raw: bytes, rng: random.Random) -> bytes:
    data, n = bytearray(raw), len(raw)
    kind = rng.choice(["truncate", "flip", "flip", "flips", "overwrite", "append", "cut", "random"])
    at = rng.randrange(n)
    if kind == "truncate":
        del data[at:]
    elif kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else rng.randrange(2, 30)):
            data[rng.randrange(n)] ^= 1 << rng.randrange(8)
    elif kind == "overwrite":
        piece = rng.randbytes(min(n - at, rng.choice([1, 4, 100])))
        data[at : at + len(piece)] = piece
    elif kind == "append":
        data += rng.randbytes(rng.randrange(1, 200))
    elif kind == "cut":
        del data[at : at + rng.randrange(1, 200)]
    else:
        data[:] = rng.randbytes(rng.randrange(300))
    return bytes(data)


def test_a_thousand_mutations(in_memory):
    written = in_memory
    good = written.read_bytes()
    metadata, arrays = read_snapshot(written)
    refused = 0
    for seed in range(1000):
        written.write_bytes(mutate(good, random.Random(seed)))
        try:
            found, read = read_snapshot(written)
        except SnapshotError:
            refused += 1
            continue
        # What was hit carries nothing: a date in the zip directory, bytes behind its end.
        assert found == metadata, seed
        assert list(read) == list(arrays), seed
        assert all(same(read[name], arrays[name]) for name in arrays), seed
    assert refused > 700


def test_every_byte_of_the_zip_directory(in_memory):
    """It has no checksum of its own, and could drop a member without a word."""
    written = in_memory
    good = written.read_bytes()
    start = good.index(b"PK\x01\x02")
    for at in range(start, len(good)):
        for bit in (0, 6):
            data = bytearray(good)
            data[at] ^= 1 << bit
            written.write_bytes(data)
            with contextlib.suppress(SnapshotError):
                assert list(read_snapshot(written)[1]) == list(ARRAYS), (at, bit)


def archive(members, *, compression=zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        for name, content in members:
            file.writestr(name, content)
    return stream.getvalue()


def header(**changes):
    return json.dumps({"format": "fmnes-snapshot", "version": 1, "arrays": [], **changes})


def npy(dtype="<f8", shape="(2,)", data=bytes(16)):
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "damaged or foreign"),
        (b"hello", "damaged or foreign"),
        (archive([("a.txt", "hello")]), "wanted a fmnes-snapshot"),
        (archive([("metadata.json", "[" * 100_000)]), "damaged or foreign"),
        (archive([("metadata.json", "[]")]), "another format"),
        (archive([("metadata.json", header(format="other"))]), "another format"),
        (archive([("metadata.json", header(version=3))]), "newer fmnes"),
        (archive([("metadata.json", header(version=True))]), "version True"),
        (archive([("metadata.json", header() + " " * 1000)], compression=zipfile.ZIP_DEFLATED), "compressed"),
        (archive([("metadata.json", header(arrays=["a"]))]), "other arrays"),
        (archive([("metadata.json", header()), ("a.npy", npy("'<f8'"))]), "other arrays"),
        (archive([("metadata.json", header(arrays=["a"])), ("a.npy", npy("'|O'"))]), "dtype object"),
        (archive([("metadata.json", header(arrays=["a"])), ("a.npy", npy("'<U4'"))]), "dtype <U4"),
        (archive([("metadata.json", header(arrays=["a"])), ("a.npy", npy("'<f8'", "(3,)"))]), "does not fit"),
        (
            archive([("metadata.json", header(arrays=["a"])), ("a.npy", npy("'<f8'", "(-2,)"))]),
            "does not fit",
        ),
        (
            archive([("metadata.json", header(arrays=["a"])), ("a.npy", npy("'<f8'", f"({2**62}, 0)", b""))]),
            "damaged or foreign",
        ),
        (archive([("metadata.json", header(arrays=["a"])), ("a.npy", npy("open('x', 'w')"))]), "damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_foreign_and_crafted_files(tmp_path, content, words):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match=words) as caught:
        read_snapshot(path)
    assert str(path) in str(caught.value)


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(SnapshotError, match="no such file"):
        read_snapshot(tmp_path / "a.npz")
    with pytest.raises(SnapshotError):
        read_snapshot(tmp_path)


class Payload:
    """Unpickling this would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_never_unpickles(tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.array([Payload(tmp_path / "ran")], dtype=object), allow_pickle=True)
    path = tmp_path / "a.npz"
    path.write_bytes(archive([("metadata.json", header(arrays=["a"])), ("a.npy", stream.getvalue())]))
    with pytest.raises(SnapshotError, match="dtype object"):
        read_snapshot(path)
    assert not (tmp_path / "ran").exists()
    # The payload is alive: NumPy itself, told to trust the file, runs it.
    np.load(io.BytesIO(stream.getvalue()), allow_pickle=True)
    assert (tmp_path / "ran").exists()


def test_members_that_overlap_cannot_fill_the_memory(tmp_path):
    """Many directory entries for the same bytes: a bomb without compression."""
    size = 100_000
    inner = archive([("metadata.json", header(arrays=[])), ("a.npy", bytes(size))])
    start = inner.index(b"PK\x01\x02")
    entries = inner[start : inner.index(b"PK\x05\x06")]
    second = entries[entries.index(b"PK\x01\x02", 1) :]
    copies = [second.replace(b"a.npy", b"%c.npy" % letter) for letter in b"bcdefg"]
    directory = entries + b"".join(copies)
    count = (2 + len(copies)).to_bytes(2, "little")
    end = b"PK\x05\x06" + bytes(4) + count * 2 + len(directory).to_bytes(4, "little")
    end += start.to_bytes(4, "little") + bytes(2)
    path = tmp_path / "a.npz"
    path.write_bytes(inner[:start] + directory + end)
    # The check here comes before that of the standard library, which not every version has.
    with pytest.raises(SnapshotError, match="found members that overlap"):
        read_snapshot(path)
