r"""log Z of a model of at most three real coordinates by quadrature: exact to the tolerance that it checks itself.

.. math:: \log Z \approx \log \Delta \textstyle\sum_j e^{-F(x_j)}          (theory/scoring.md, eq. 5.10)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core import rng
from partita.core.capability import require
from partita.core.checks import check_parameters, check_real
from partita.core.protocols import EnergyModel, in_double
from partita.core.quadrature import integrate
from partita.core.quantity import Quantity, Verdict

WITNESSES = 256  # draws of the reference that say where to look, beside the training rows that the model remembers
KEY = 907
ERROR_TIGHT, ERROR_LOOSE = 1e-3, 0.05  # nats between the last two grids, where the tolerance was not reached
SAFETY = 4.0  # the interval reaches this many times the last difference


@dataclass(frozen=True)
class Quadrature:
    """log Z on finer and finer grids, in float64, until two of them agree.

    The box comes from the reference's draws and the training rows, grows until the density has fallen off at its faces, and shrinks to
    what is left. Where the finest grid does not agree with the one before, the result is an estimate and says how far they were apart.

    Arguments:
        tolerance: In nats.
    """

    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_real("Quadrature", "tolerance", self.tolerance, 0, open_low=True)

    @torch.no_grad()
    def __call__(self, model: EnergyModel, *, generator: torch.Generator | None = None) -> Quantity:
        require("Quadrature", model)
        check_parameters("Quadrature", model.title(), model.named_parameters(), "Fit it again with a lower learning_rate.")
        model = in_double(model)
        found = integrate(model.free_energy, witnesses(model), self.tolerance)
        method, details = f"quadrature on {found.points} points", {"error": found.error, "points": found.points, "box": found.box}
        if found.error <= self.tolerance:
            return Quantity(found.value, method=method, details=details)
        low, high = found.value - SAFETY * found.error, found.value + SAFETY * found.error
        verdict = _verdict(found.error)
        return Quantity(found.value, low, high, level=0.95, kind="estimate", method=method, verdict=verdict, details=details)


def witnesses(model: EnergyModel) -> Tensor:
    """Points that say where the mass is, ``(n, D)``: always the same draws of the reference, and the training rows remembered."""
    draws = model.reference().draw(WITNESSES, generator=_generator(model.device_like))
    rows = model.anchor_rows(WITNESSES)
    return draws if rows is None else torch.cat([draws, rows])


def _generator(like: Tensor) -> torch.Generator:
    generator = rng.keyed(KEY)
    return generator if like.device.type == "cpu" else torch.Generator(like.device).manual_seed(generator.initial_seed())


def _verdict(error: float) -> Verdict:
    return "tight" if error <= ERROR_TIGHT else "loose" if error <= ERROR_LOOSE else "do not publish"
