"""Density models that multiply exact conditionals: along sequences, and along the columns of
a row.
"""

from partita.models.directed.autoregressive.emissions import MixedAutoregressive
from partita.models.directed.autoregressive.masked import MaskedAutoregressive
from partita.models.directed.autoregressive.model import Autoregressive

__all__ = ["Autoregressive", "MaskedAutoregressive", "MixedAutoregressive"]
