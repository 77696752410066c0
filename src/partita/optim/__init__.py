"""Linear systems and minima by conjugate gradients, and steps along the natural gradient."""

from partita.optim.conjugate_gradient import Solution, solve
from partita.optim.minimize import Minimum, minimize

__all__ = ["Minimum", "Solution", "minimize", "solve"]
