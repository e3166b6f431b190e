"""Reference rays for the lenses, traced by optiland, which is not ours: tests/data/lens-rays.npz.

    pip install "fmnes[real]"
    python -m benchmarks.lens_rays [--out tests/data/lens-rays.npz]

Of optiland's own Cooke triplet and double Gauss, as it ships them: the prescription, rays on and off the axis
at three wavelengths on every surface and in the image plane, and its size of the spots.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

#: Points of the pupil: the chief ray, both ends of the meridian, and two that are skew.
PUPIL = np.array([(0.0, 0.0), (0.0, 1.0), (0.0, -1.0), (0.8, 0.6), (0.3, -0.5)])


def reference(optic: Any) -> dict[str, np.ndarray]:
    """{name: array} of one lens; rays are (fields, wavelengths, pupil, surfaces, 6): x, y, z, L, M, N."""
    from optiland.analysis import SpotDiagram

    wavelengths = [wavelength.value for wavelength in optic.wavelengths.wavelengths]
    fields = [field.y for field in optic.fields.fields]
    positions = np.asarray(optic.surfaces.positions).ravel()[1:]
    rays = [
        [_traced(optic, y / max(fields), wavelength, positions) for wavelength in wavelengths] for y in fields
    ]
    spots = SpotDiagram(optic, num_rings=6, distribution="hexapolar", reference="centroid")
    return {
        "curvatures": 1 / np.asarray(optic.surfaces.radii)[1:-1],
        "thicknesses": np.diff(positions),  # the last is the distance of the image
        "indices": np.array([np.asarray(optic.surfaces.n(wavelength))[:-1] for wavelength in wavelengths]).T,
        "stop": np.asarray(optic.surfaces.stop_index),
        "wavelengths": np.array(wavelengths),
        "fields": np.array(fields),
        "diameter": np.asarray(float(optic.paraxial.EPD())),
        "focal_length": np.asarray(float(optic.paraxial.f2())),
        "entrance_pupil": np.asarray(float(optic.paraxial.EPL())),
        "pupil": PUPIL,
        "rays": np.array(rays),
        "spots": np.array(spots.rms_spot_radius()),  # (fields, wavelengths), mm
    }


def _traced(optic: Any, field: float, wavelength: float, positions: np.ndarray) -> np.ndarray:
    """(pupil, surfaces, 6), each point from the vertex of its surface."""
    optic.trace_generic(0.0, field, PUPIL[:, 0], PUPIL[:, 1], wavelength)
    columns = [np.asarray(getattr(optic.surfaces, name))[1:] for name in ("x", "y", "z", "L", "M", "N")]
    columns[2] = columns[2] - positions[:, None]
    return np.stack(columns, axis=-1).swapaxes(0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("tests/data/lens-rays.npz"))
    out = parser.parse_args().out
    try:
        from optiland.samples.objectives import CookeTriplet, DoubleGauss
    except ModuleNotFoundError as error:
        if error.name != "optiland":
            raise
        raise SystemExit('reference rays need optiland: pip install "fmnes[real]"') from None
    warnings.simplefilter("ignore")  # of the compiler that optiland uses
    lenses = {"triplet": CookeTriplet(), "double_gauss": DoubleGauss()}
    arrays = {
        f"{lens}_{name}": array for lens, optic in lenses.items() for name, array in reference(optic).items()
    }
    np.savez_compressed(out, **arrays)


if __name__ == "__main__":
    main()
