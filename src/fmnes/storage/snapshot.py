"""Snapshots: named arrays and plain data in one uncompressed `.npz` file, without pickle.

Files are replaced atomically. Nothing read is trusted: sizes are checked before memory is allocated, every
checksum is verified, and any damage is a SnapshotError.
Objects have their own `dump` and `restore`, which share the checks at the end.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes._files import atomic_write, open_regular
from fmnes.arguments import BIT_GENERATORS
from fmnes.errors import SnapshotError
from fmnes.result import Best

FORMAT = "fmnes-snapshot"
VERSION = 1
_METADATA = "metadata.json"
_MAX_METADATA_BYTES = 16 * 2**20

Arrays = dict[str, NDArray[Any]]


def write_snapshot(
    path: str | os.PathLike[str], metadata: dict[str, Any], arrays: Arrays, *, keep: Path | None = None
) -> None:
    """Write JSON data without NaN or infinity, and arrays of numbers or booleans.

    keep: the name under which the previous snapshot at `path` is kept.
    """
    # The zip directory has no checksum, so the names in it are repeated in the metadata, which has one.
    header = {"format": FORMAT, "version": VERSION, "numpy": np.__version__, "arrays": list(arrays)}
    text = json.dumps({**metadata, **header}, allow_nan=False, ensure_ascii=False)
    encoded = text.encode(errors="backslashreplace")  # a lone surrogate becomes a JSON escape
    if len(encoded) > _MAX_METADATA_BYTES:
        raise SnapshotError(f"found {len(encoded)} bytes of metadata, wanted at most {_MAX_METADATA_BYTES}")
    with atomic_write(Path(path), keep=keep) as file:
        archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        try:
            archive.writestr(_METADATA, encoded)
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array), version=(1, 0), allow_pickle=False)
            archive.close()
        except BaseException:
            # Otherwise its clean-up raises because of the unfinished member and hides a Ctrl-C.
            archive.fp = None
            raise


def read_snapshot(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    path = Path(path)
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            return _read(archive, os.fstat(file.fileno()).st_size)
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise SnapshotError(f"{path}: there is no such file") from None
    # On a damaged zip file the standard library may raise nearly anything.
    except Exception as error:
        raise SnapshotError(
            f"{path}: found a damaged or foreign file ({type(error).__name__}: {error}), wanted a {FORMAT}"
        ) from None


def other_version(found: Any, ours: int) -> str:
    """Advice for a file of another format version."""
    if type(found) is int and found > ours:
        return "a newer fmnes wrote it; upgrade"
    return "an fmnes that was never released wrote it, or it was edited; begin the run again"


def _read(archive: zipfile.ZipFile, size: int) -> tuple[dict[str, Any], Arrays]:
    members = archive.infolist()
    for member in members:
        # Uncompressed data is never larger than the file: a zip bomb is impossible.
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise SnapshotError(f"found a compressed member {member.filename!r}, wanted none")
    if sum(member.file_size for member in members) > size:
        raise SnapshotError("found members that overlap")
    names = [member.filename for member in members]
    if len(set(names)) != len(names) or _METADATA not in names:
        raise SnapshotError(f"found members {names[:5]}, wanted a {FORMAT}")
    if archive.getinfo(_METADATA).file_size > _MAX_METADATA_BYTES:
        raise SnapshotError("found metadata of unreasonable size")
    metadata = json.loads(archive.read(_METADATA).decode())
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise SnapshotError(f"found another format, wanted a {FORMAT}")
    version = metadata.get("version")
    if type(version) is not int or version != VERSION:
        raise SnapshotError(f"found version {version!r}, wanted {VERSION}: {other_version(version, VERSION)}")
    if metadata.get("arrays") != [n.removesuffix(".npy") for n in names if n != _METADATA]:
        raise SnapshotError("found other arrays than it was written with")
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


# -- Checks of saved data, and saving of the random generator and the best point

#: JSON data, and named arrays.
Saved = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays, also in dictionaries, to JSON data."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def count(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise SnapshotError(f"count {found!r}, wanted a whole number >= 0")
    return found


def shaped(array: NDArray[Any], shape: tuple[int, ...], kinds: str = "f") -> NDArray[Any]:
    if array.shape != shape or array.dtype.kind not in kinds:
        raise SnapshotError(f"array of shape {array.shape} and type {array.dtype}, wanted shape {shape}")
    return array


def finite(array: NDArray[Any], shape: tuple[int, ...], kinds: str = "f") -> NDArray[Any]:
    if not np.isfinite(shaped(array, shape, kinds=kinds)).all():
        raise SnapshotError("NaN or infinity in the state")
    return array


def dump_best(best: Best) -> Saved:
    arrays = {} if best.x is None else {"best.x": best.x, "best.fun": np.asarray(best.fun)}
    return {"best_evaluation": best.evaluation}, arrays


def restore_best(metadata: dict[str, Any], arrays: dict[str, NDArray[Any]], d: int) -> Best:
    if "best.x" not in arrays:
        return Best(None, np.inf, 0)
    x, fun = finite(arrays["best.x"], (d,)).copy(), finite(arrays["best.fun"], ())
    x.setflags(write=False)  # users receive it
    return Best(x, float(fun), count(metadata["best_evaluation"]))


def restore_rng(state: dict[str, Any]) -> np.random.Generator:
    """Return the generator with the state that `plain(rng.bit_generator.state)` gave."""
    name = state["bit_generator"]
    if name not in BIT_GENERATORS:
        raise SnapshotError(f"random generator {name!r}, wanted one of {', '.join(BIT_GENERATORS)}")
    # NumPy trusts the position in its buffer and would read beyond it.
    position, length = (state["state"]["pos"], 624) if name == "MT19937" else (state.get("buffer_pos", 0), 4)
    if not 0 <= count(position) <= length:
        raise SnapshotError(f"position {position} in the random generator's buffer, wanted at most {length}")
    bit_generator = getattr(np.random, name)(0)
    bit_generator.state = state
    return np.random.Generator(bit_generator)
