r"""log Z of a model of at most three real coordinates by quadrature: exact to the tolerance that it checks itself.

.. math:: \log Z \approx \log \textstyle\sum_B \sum_j w_j\, e^{-F(x_j)}          (theory/scoring.md, eq. 5.12)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core import rng
from partita.core.annealed import in_double
from partita.core.capability import require
from partita.core.checks import check_parameters, check_real
from partita.core.protocols import EnergyModel
from partita.core.quadrature import integrate
from partita.core.quantity import Quantity, Verdict, worst

WITNESSES = 256  # draws of the reference that say where to look, beside the training rows that the model remembers
KEY = 907
ERROR_TIGHT, ERROR_LOOSE = 1e-3, 0.05  # nats by which the parts disagree, where the tolerance was not reached
SAFETY = 4.0  # the interval reaches this many times as far


@dataclass(frozen=True)
class Quadrature:
    """log Z in float64 on boxes that are halved until each agrees with its parts.

    The box of all comes from the reference's draws, the training rows and the valleys of the energy downhill from them and from far away,
    grows until the density has fallen off at its faces, and shrinks to what is left. Where parts still disagree when points run out, the
    result is an estimate and says by how much. A peak that none of these comes near can be missed: where no training rows are known, the
    method says that only the reference showed where to look, and the verdict is at best ``loose``.

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
        shown: Verdict = "loose" if model.anchor_rows(1) is None else "tight"
        method = f"quadrature on {found.points} points{'' if shown == 'tight' else ' around the reference'}"
        details = {"error": found.error, "points": found.points, "box": found.box}
        if found.error <= self.tolerance:
            return Quantity(found.value, method=method, verdict=shown, details=details)
        low, high = found.value - SAFETY * found.error, found.value + SAFETY * found.error
        verdict = worst(shown, _verdict(found.error))
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
