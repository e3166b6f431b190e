"""Pictures of lenses, before and after: the glasses with rays through them, and the spots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fmnes.arguments import shown
from fmnes.errors import ArgumentError
from fmnes_bench.lens.optics import AIR, Floats, Rays, half_pupil, launch, sag, solve, trace
from fmnes_bench.lens.problem import Lens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Of the marks of three wavelengths, and of more in turn.
_MARKS = ("o", "+", "x")


def draw(before: Lens, after: Lens) -> Figure:
    """Draw two lenses side by side at the same scale, with rays of all fields, and their spots below.

    Parameters
    ----------
    before : Lens
        The left one, such as `problem.lens(problem.start)`.
    after : Lens
        The right one, such as `problem.lens(result.x)`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    ArgumentError
        An argument is not a lens.
    MissingExtra
        matplotlib is not installed.

    Examples
    --------
    >>> from fmnes_bench import lens
    >>> problem = lens.triplet()
    >>> figure = lens.draw(problem.lens(problem.start), problem.lens(problem.known))
    """
    from fmnes.plots import drawing

    for name, lens in (("before", before), ("after", after)):
        if not isinstance(lens, Lens):
            raise ArgumentError(f"{name}: found {shown(lens)}, wanted a lens, such as problem.lens(result.x)")
    width = 11.0
    figure = drawing.blank(width, width)
    lenses = {"before": before, "after": after}
    columns = [len(lens.wanted.fields) for lens in lenses.values()]
    rows = figure.add_gridspec(2, 2, width_ratios=columns)
    sections = []
    for column, (name, lens) in enumerate(lenses.items()):
        sections.append(_section(figure.add_subplot(rows[0, column]), name, lens))
        _draw_spots(figure, rows[1, column].subgridspec(1, columns[column]), lens)
    lengths = []
    for which in ("x", "y"):
        ends = np.array([getattr(axes, f"get_{which}lim")() for axes in sections])
        lengths.append(np.ptp(ends))
        for axes in sections:
            axes.set(**{f"{which}lim": (ends.min(), ends.max())})
    # Millimetres are as long in one direction as in the other, and spots are square: the height follows.
    heights = width / 2 * lengths[1] / lengths[0] + 0.8, width / sum(columns) + 0.4
    rows.set_height_ratios(heights)
    figure.set_figheight(sum(heights) + 0.3)
    drawing.legend(figure, figure.axes[1])
    return figure


def paths(lens: Lens, x: Floats, y: Floats) -> list[Rays]:
    """Rays through these points of the pupil, of all fields: on each surface, then in the image plane.

    Each is (1, w, f p), z from the vertex of the first surface.
    """
    lenses, wanted = lens.quality.lenses, lens.wanted
    indices = lenses.indices[..., wanted.primary]
    pupil = solve(
        lenses.curvatures[:, :-1], lenses.thicknesses, indices, lens.stop - 1, wanted.focal_length
    ).pupil
    start = launch(pupil, x, y, wanted)
    found = [passage.rays for passage in trace(lenses, start)]
    last = found[-1]
    along = (lens.thicknesses[-1] - last.z) / last.m
    image = last._replace(x=last.x + along * last.k, y=last.y + along * last.l, z=last.z + along * last.m)
    vertices = np.cumsum([0.0, *lens.thicknesses])
    # The image was found from the last vertex, as the last surface is.
    places = [*vertices[:-1], vertices[-2]]
    return [rays._replace(z=rays.z + place) for rays, place in zip([*found, image], places, strict=True)]


def _section(axes: Any, name: str, lens: Lens) -> Any:
    """A cut along the axis."""
    from fmnes.plots import drawing

    colours = (drawing.BLUE, drawing.GREEN, drawing.RED, drawing.PINK, drawing.ORANGE)
    pupil, fields = np.linspace(-1, 1, 5), lens.wanted.fields
    rays = paths(lens, np.zeros(len(pupil)), pupil)
    z = np.array([passed.z[0, lens.wanted.primary] for passed in rays])
    y = np.array([passed.y[0, lens.wanted.primary] for passed in rays])
    front = min(float(z.min()), 0.0) - 0.12 * lens.wanted.focal_length
    slope = np.repeat(np.tan(np.radians(fields)), len(pupil))
    z, y = np.vstack([np.full(y.shape[1], front), z]), np.vstack([y[0] + (front - z[0]) * slope, y])
    for i, colour in zip(range(len(fields)), colours * len(fields), strict=False):
        own = slice(i * len(pupil), (i + 1) * len(pupil))
        axes.plot(z[:, own], y[:, own], color=colour, linewidth=0.8)
    heights = np.abs(y[1:-1]).max(1)
    _draw_glasses(axes, lens, heights)
    place = float(np.cumsum([0.0, *lens.thicknesses])[lens.stop - 1])
    opening = np.abs(y[lens.stop, : len(pupil)]).max()  # of the first field
    place += float(sag(lens.curvatures[lens.stop - 1], opening))
    for side in (1, -1):
        bar = side * np.array([opening, opening + 0.1 * lens.wanted.focal_length])
        axes.plot([place, place], bar, color=drawing.BLACK, linewidth=2.5, solid_capstyle="butt")
    image = 1.1 * np.abs(y[-1]).max()
    axes.plot([z[-1, 0]] * 2, [-0.3 * image, image], color=drawing.GREY, linewidth=1)
    axes.set_aspect("equal")
    axes.set_xlabel("mm")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_yticks([])
    drawing.title(axes, f"{name}: RMS spot {drawing.number(lens.spot)} µm")
    return axes


def _draw_glasses(axes: Any, lens: Lens, heights: Floats) -> None:
    """heights: (s,), of the outermost ray drawn at each surface."""
    from fmnes.plots import drawing

    vertices = np.cumsum([0.0, *lens.thicknesses])
    for i, medium in enumerate(lens.media):
        if medium == AIR:
            continue
        edge = max(heights[i], heights[i + 1])
        y = np.linspace(-edge, edge, 60)
        front = vertices[i] + sag(lens.curvatures[i], y)
        back = vertices[i + 1] + sag(lens.curvatures[i + 1], y)
        axes.fill(
            [*front, *back[::-1]],
            [*y, *y[::-1]],
            facecolor=drawing.SKY,
            alpha=0.3,
            edgecolor="none",
            zorder=2,
        )
        axes.plot([*front, *back[::-1], front[0]], [*y, *y[::-1], y[0]], color=drawing.GREY, linewidth=1)


def _draw_spots(figure: Figure, row: Any, lens: Lens) -> None:
    """A panel a field, all at one scale."""
    from fmnes.plots import drawing

    half = half_pupil(5, 6)
    used = half.weights > 0
    x = np.concatenate([half.x[used], -half.x[used]])
    y = np.concatenate([half.y[used], half.y[used]])
    fields, wavelengths = lens.wanted.fields, lens.wanted.wavelengths
    image = paths(lens, x, y)[-1]
    shape = (len(wavelengths), len(fields), len(x))
    across, up = 1000 * image.x.reshape(shape), 1000 * image.y.reshape(shape)
    weights = np.broadcast_to(np.tile(half.weights[used], 2), shape)
    up = up - np.average(up, axis=(0, 2), weights=weights, keepdims=True)
    limit = 1.15 * max(np.abs(across).max(), np.abs(up).max())
    colours = (drawing.BLUE, drawing.BLACK, drawing.RED, drawing.ORANGE, drawing.PINK)
    for i, degrees in enumerate(fields):
        axes = figure.add_subplot(row[0, i])
        for j, wavelength in enumerate(wavelengths):
            axes.plot(
                across[j, i],
                up[j, i],
                _MARKS[j % len(_MARKS)],
                color=colours[j % len(colours)],
                markersize=3,
                markeredgewidth=0.7,
                fillstyle="none",
                label=f"{1000 * wavelength:.0f} nm",
            )
        axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
        axes.set_title(f"{degrees:g}°: {drawing.number(lens.spots[i])} µm", fontsize=9)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.tick_params(labelsize=8, labelleft=i == 0)
        axes.set_xlabel("µm", fontsize=8)
