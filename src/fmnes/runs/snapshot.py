"""Snapshots: named arrays and plain data in one uncompressed `.npz` file, without pickle.

Written to a temporary file, synced and renamed, so that a file either is the old one or the new one, whole.
Read with suspicion: sizes are checked before anything is allocated, every member's checksum is verified, and
whatever is wrong with the file is a SnapshotError.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import SnapshotError

FORMAT = "fmnes-snapshot"
VERSION = 1
_METADATA = "metadata.json"
_MAX_METADATA_BYTES = 16 * 2**20

Arrays = dict[str, NDArray[Any]]


def write_snapshot(path: str | os.PathLike[str], metadata: dict[str, Any], arrays: Arrays) -> None:
    """`metadata` must be JSON data without NaN or infinity; `arrays` of numbers or booleans."""
    path = Path(path)
    header = {"format": FORMAT, "version": VERSION, "numpy": np.__version__, **metadata}
    text = json.dumps(header, allow_nan=False).encode()
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr(_METADATA, text)
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(
                            member, np.asarray(array), version=(1, 0), allow_pickle=False
                        )
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read_snapshot(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive)
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise SnapshotError(f"{path}: there is no such file") from None
    # A damaged zip file makes the standard library raise nearly anything.
    except Exception as error:
        raise SnapshotError(
            f"{path}: found a damaged or foreign file ({type(error).__name__}: {error}), wanted a {FORMAT}"
        ) from None


def _read(archive: zipfile.ZipFile) -> tuple[dict[str, Any], Arrays]:
    members = archive.infolist()
    for member in members:
        # Stored, not compressed: then what is read is never larger than the file, and no bomb can hide in it.
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise SnapshotError(f"found a compressed member {member.filename!r}, wanted none")
    names = [member.filename for member in members]
    if len(set(names)) != len(names) or _METADATA not in names:
        raise SnapshotError(f"found members {names[:5]}, wanted a {FORMAT}")
    if archive.getinfo(_METADATA).file_size > _MAX_METADATA_BYTES:
        raise SnapshotError("found metadata of unreasonable size")
    metadata = json.loads(archive.read(_METADATA).decode())
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise SnapshotError(f"found another format, wanted a {FORMAT}")
    version = metadata.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise SnapshotError(
            f"found version {version!r}, wanted at most {VERSION}: a newer fmnes wrote it; upgrade"
        )
    arrays = {
        name.removesuffix(".npy"): _read_array(archive.read(name), name)
        for name in names
        if name != _METADATA
    }
    return metadata, arrays


def _read_array(raw: bytes, name: str) -> NDArray[Any]:
    stream = io.BytesIO(raw)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise SnapshotError(f"found an unknown array format in {name!r}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "fiub" or dtype.hasobject:
        raise SnapshotError(f"found dtype {dtype} in {name!r}, wanted numbers")
    data = raw[stream.tell() :]
    if any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize != len(data):
        raise SnapshotError(f"found shape {shape} in {name!r}, which does not fit its {len(data)} bytes")
    array = np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")
    return np.array(array)  # a copy that owns its memory and can be written to


def _sync_directory(directory: Path) -> None:
    """The rename itself must reach the disk too."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
