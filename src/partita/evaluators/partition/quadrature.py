r"""log Z of a model of at most three real coordinates by quadrature: an estimate whose error is
deterministic.

.. math:: \log Z \approx \log \textstyle\sum_B \sum_j w_j\, e^{-F(x_j)}
          (theory/scoring.md, eq. 5.12)

Letters: e error as a share of Z, by which rules disagree; u the most that could hide unseen, as a
share.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import check_parameters, check_real
from partita.core.capability import require
from partita.core.protocols import EnergyModel, in_double
from partita.core.quantity import DETERMINISTIC, Quantity, Verdict, worst
from partita.integration.quadrature import Integral, integrate

# draws of the reference that say where to look, beside the training rows that the model remembers
WITNESSES = 256
KEY = 907
DRAWS = 1000  # of the density, from the boxes
# that are bounded to see what could hide; fewer at coarse tolerances
MOST_BOXES, QUICK_BOXES, QUICK = 1 << 17, 1 << 11, 1e-4
UNSEEN_TIGHT = 1e-3  # of Z
HALF_TIGHT, HALF_LOOSE = 0.01, 0.25  # nats
SAFETY = 4.0  # the interval reaches this many times as far as rules disagree
ROUNDING = 1e-12


@dataclass(frozen=True)
class Quadrature:
    """log Z in float64 on boxes that are halved until three rules agree on each, with the interval
    that their disagreement gives.

    The box of all comes from the reference's draws, the training rows and the valleys of the energy
    downhill from them and from far away, grows until the density has fallen off at its faces, and
    shrinks to what is left. Bounds of the energy over boxes then show whether a peak could hide
    between the points or outside; where it could, it is sought. A second partition with other edges
    is a witness. Where all is searched, the verdict can be ``tight``. Where bounds cannot tell,
    training rows that are known make it at best ``loose``; without them the interval reaches over
    all that could hide.

    Arguments:
        tolerance: In nats.
    """

    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_real("Quadrature", "tolerance", self.tolerance, 0, open_low=True)

    @torch.no_grad()
    def __call__(self, model: EnergyModel, *, generator: torch.Generator | None = None) -> Quantity:
        require("Quadrature", model)
        check_parameters(
            "Quadrature",
            model.title(),
            model.named_parameters(),
            "Fit it again with a lower learning_rate.",
        )
        model = in_double(model)
        found = integrate(
            model.free_energy,
            witnesses(model),
            self.tolerance,
            QUICK_BOXES if self.tolerance > QUICK else MOST_BOXES,
        )
        q = quantity(found, model.anchor_rows(1) is not None)
        draws = found.draws(model.free_energy, DRAWS, _generator(model.like))
        return replace(q, details={**q.details, "draws": draws})


def quantity(found: Integral, fitted: bool) -> Quantity:
    """[log Z - log(1 + 4 e), log Z + log(1 + 4 e + u)], without u where training rows are known;
    judged by its longer half.
    """
    reach = SAFETY * found.error + ROUNDING * (1 + abs(found.value))
    searched = found.unseen <= UNSEEN_TIGHT
    low = math.log1p(reach)
    high = math.log1p(reach + (found.unseen if searched or not fitted else 0.0))
    half = (
        "tight"
        if max(low, high) <= HALF_TIGHT
        else "loose"
        if max(low, high) <= HALF_LOOSE
        else "do not publish"
    )
    verdict: Verdict = worst("tight" if searched else "loose", half)
    method = (
        f"quadrature on {found.points} points{'' if searched else ', not all of space searched'}"
    )
    details = {"error": found.error, "unseen": found.unseen, "points": found.points}
    return Quantity(
        found.value,
        found.value - low,
        found.value + high,
        level=DETERMINISTIC,
        kind="estimate",
        method=method,
        verdict=verdict,
        details=details,
    )


def witnesses(model: EnergyModel) -> Tensor:
    """Points that say where the mass is, ``(n, D)``: always the same draws of the reference, the
    training rows remembered, and what the model points to.
    """
    draws = model.reference().draw(WITNESSES, generator=_generator(model.like))
    known = (model.anchor_rows(WITNESSES), model.landmarks(WITNESSES))
    return torch.cat([draws, *(rows.to(draws) for rows in known if rows is not None)])


def _generator(like: Tensor) -> torch.Generator:
    generator = rng.keyed(KEY)
    return (
        generator
        if like.device.type == "cpu"
        else torch.Generator(like.device).manual_seed(generator.initial_seed())
    )
