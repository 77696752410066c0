"""Hyena: long convolutions with implicit filters and gates, and recurrences distilled from them."""

from partita.nets.hyena.distil import Distilled, distil
from partita.nets.hyena.filters import ImplicitFilter
from partita.nets.hyena.operator import Hyena

__all__ = ["Distilled", "Hyena", "ImplicitFilter", "distil"]
