r"""Tails of a density, from few evaluations: what :mod:`partita.evaluators.partition.tails` does
without following ridges.

A Student distribution of one degree of freedom, which every proposal holds, falls like
:math:`r^{-(D+1)}`. Tails that fall faster are covered by it; of others the mass beyond the draws is
added, and those whose integral has no end are refused (theory/scoring.md, eq. 5.25).

Letters: n draws, D coordinates.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from partita.core import rng
from partita.core.quantity import Quantity, worst
from partita.diagnostics.weights import verdict_on_unseen
from partita.evaluators.partition.importance.counted_density import CountedDensity
from partita.evaluators.partition.tails import (
    KEY,
    RAYS,
    Cone,
    check_fall,
    exponents,
    log_share_beyond,
)

FARTHEST = 8  # draws whose directions are followed
DRAWN = 256  # draws, by weight, that say how far the mass was seen


def reach_far_out(
    owner: str, q: Quantity, density: CountedDensity, x: Tensor, log_w: Tensor
) -> Quantity:
    """The quantity with an upper end that holds tails too heavy for the proposal; an infinite Z is
    refused.
    """
    D = x.shape[1]
    places = x[rng.systematic(log_w, rng.keyed(KEY, D), DRAWN)]
    center = places.median(0).values
    scale = places.std(0).clamp_min(1e-300)
    t = (places - center) / scale

    def energy(at: Tensor) -> Tensor:
        rows = center + scale * at.reshape(-1, D)
        return -density(rows).view(at.shape[:-1])

    shares = [-math.inf]
    for cone in _cones(t):
        check_fall(owner, density.model, energy, cone)
        if float(exponents(energy, cone.rays)[:, -1].min()) < D + 1:
            shares.append(log_share_beyond(energy, cone, t))
    high = float(np.logaddexp.reduce([q.high, q.value + max(shares)]))
    verdict = worst(q.verdict, verdict_on_unseen(high - q.high))
    details = {**q.details, "tails": high - q.high}
    return replace(q, high=high, verdict=verdict, details=details)


def _cones(t: Tensor) -> list[Cone]:
    """Lines along coordinates, along the axes of the draws and toward the farthest of them, and
    all of space.
    """
    D = t.shape[1]
    lines = [torch.eye(D).to(t)]
    if D > 1:
        lines.append(torch.linalg.svd(t, full_matrices=False).Vh)
        far = t[t.norm(dim=-1).topk(FARTHEST).indices]
        lines.append(far / far.norm(dim=-1, keepdim=True).clamp_min(1e-300))
    cones = [Cone(torch.stack([u, -u]), u[None]) for u in torch.cat(lines)]
    if D > 1:
        noise = rng.normal((RAYS, D), torch.zeros((), dtype=torch.float64), rng.keyed(KEY, D))
        u = noise.to(t)
        cones.append(Cone(u / u.norm(dim=-1, keepdim=True), torch.eye(D).to(t)))
    return cones
