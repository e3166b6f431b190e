"""Literal, slow transcriptions of the algorithms, against which the library is judged.

Every class takes the standard normal draws z as an argument and contains no random numbers.
"""

from .cma_es import CMAES
from .cr_fm_nes import CRFMNES
from .fm_nes import FMNES
from .xnes import XNES

__all__ = ["CMAES", "CRFMNES", "FMNES", "XNES"]
