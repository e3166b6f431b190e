"""Every method and setting, named once: the tables of all tests are made from this one.

A new method gets its rows here and inherits the tests of the contract, the fuzzing, saving, ask and tell and
the transcription. What cannot hold for it is said in its row, with the reason.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from fmnes import AFMNES, CMAES, CRFMNES, DXNESIC, FMNES, XNES, Resampling

#: Far points count more and axes expand while the search moves. Under random values ‖p_σ‖ often is long
#: enough for that (in a fifth to a third of all generations up to d = 10), and then σ grows: ln σ by about
#: 0.05 a generation at d = 2, 0.02 at d = 10 and 0.002 at d = 40 with the default λ. While it does not move,
#: E ln σ stays what it is.
EMPHASIS = "far points count more while the search moves"


@dataclass(frozen=True)
class Variant:
    method: Any
    """Settings, or `Resampling` of some."""
    not_rotated: str = ""
    """Why a rotated problem is another problem for it; empty: a rotation changes nothing."""
    explodes: str = ""
    """Why its shape may become too elongated for floating point within a few hundred generations."""
    grows: str = ""
    """Why σ grows under random values; empty: E ln σ stays what it is."""

    @property
    def strategy(self) -> Any:
        return self.method.strategy if self.resamples else self.method

    @property
    def resamples(self) -> bool:
        return isinstance(self.method, Resampling)

    @property
    def shaped(self) -> bool:
        """Does it take an initial shape?"""
        return "B0" in {field.name for field in dataclasses.fields(self.strategy)}

    def with_shape(self, B0: Any) -> Any:
        strategy = dataclasses.replace(self.strategy, B0=B0)
        return dataclasses.replace(self.method, strategy=strategy) if self.resamples else strategy


def _fm_nes(method: FMNES) -> Variant:
    return Variant(method, grows=EMPHASIS)


def _cr_fm_nes(method: CRFMNES) -> Variant:
    return Variant(
        method,
        not_rotated="its covariance is a diagonal and one direction",
        explodes="" if method.max_change else "no limit on the changes of v and D, on ridges across the axes",
        grows=EMPHASIS,
    )


VARIANTS: dict[str, Variant] = {
    "afm-nes": _fm_nes(AFMNES()),
    "fm-nes": _fm_nes(FMNES()),
    "refresh 1": _fm_nes(FMNES(refresh=1)),
    "rank-one always (A)": _fm_nes(FMNES(rank_one="always")),
    "rank-one never": _fm_nes(FMNES(rank_one="never")),
    "no reset (B)": _fm_nes(FMNES(reset=False)),
    "always, no reset (C)": _fm_nes(FMNES(rank_one="always", reset=False)),
    "printed path rate": _fm_nes(FMNES(path_rate="printed")),
    "public alpha": _fm_nes(FMNES(alpha="public")),
    "low threshold": _fm_nes(FMNES(ridge_threshold=1.02)),
    "dx-nes-ic": _fm_nes(DXNESIC()),
    "xnes": Variant(XNES()),
    "cma-es 2016": Variant(CMAES()),
    "cma-es 2006": Variant(CMAES(parameters="2006")),
    "cma-es 2006 refresh 7": Variant(CMAES(parameters="2006", refresh=7)),
    "cr-fm-nes": _cr_fm_nes(CRFMNES()),
    "cr-fm-nes as published": _cr_fm_nes(CRFMNES(max_change=None)),
    "xnes /R": Variant(Resampling(XNES())),
    "cma-es 2016 /R": Variant(Resampling(CMAES())),
    "cma-es 2006 /R": Variant(Resampling(CMAES(parameters="2006"))),
}

#: Strategies, which can be driven by hand; resampling lives in the optimizer.
STRATEGIES: dict[str, Any] = {name: v.method for name, v in VARIANTS.items() if not v.resamples}
RESAMPLED: dict[str, Any] = {name: v.method for name, v in VARIANTS.items() if v.resamples}
#: All of them: what an optimizer takes.
METHODS = STRATEGIES | RESAMPLED
#: FM-NES and those that are settings of it.
FM_NES: dict[str, FMNES] = {name: s for name, s in STRATEGIES.items() if isinstance(s, FMNES)}
WITHOUT_PAIRS: dict[str, Any] = {name: s for name, s in STRATEGIES.items() if not s.mirrored}
#: One of each, where settings do not matter.
ONE_OF_EACH: dict[str, Any] = {
    name: METHODS[name]
    for name in (
        "afm-nes",
        "fm-nes",
        "dx-nes-ic",
        "xnes",
        "cma-es 2016",
        "cma-es 2006",
        "cr-fm-nes",
        "xnes /R",
        "cma-es 2016 /R",
    )
}
