r"""Rows as steps, and what one pass of the recurrence leaves behind.

Letters: B rows, T steps, E numbers in a step, k draws for each row, M latent dimensions, H hidden
units, F features.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.types import _size

from partita.errors import invalid
from partita.models.directed.autoregressive.model import row_ends
from partita.models.directed.latent import Plain, normal_log_prob

if TYPE_CHECKING:
    from partita.models.directed.vrnn.model import VRNN


class Trajectory(NamedTuple):
    """What a pass of k draws for each row found, step by step."""

    z: Tensor  # (T, k, B, M)
    felt: Tensor  # (T, k, B, F): features of z
    h: Tensor  # (T, k, B, H): hidden units before the step
    mean: Tensor  # (T, k, B, M), of q
    log_scale: Tensor  # (T, k, B, M)
    state: Tensor  # (k B, ...): memories after the last step


class PathPosterior(Plain):
    """q(z | x), each step given the draws before it; draws are ``(B, T M)``."""

    has_rsample = True

    def __init__(self, model: "VRNN", steps: Tensor, there: Tensor) -> None:
        self.model, self.steps, self.there = model, steps, there
        super().__init__(
            steps.shape[:1], torch.Size([steps.shape[1] * model.latent]), validate_args=False
        )

    def rsample(self, sample_shape: _size = ()) -> Tensor:
        k = math.prod(sample_shape)
        path = self.model.follow(self.steps, k, generator=torch.default_generator)
        return path.z.movedim(0, 2).flatten(2).view(*sample_shape, *self.batch_shape, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        rows = value.expand(
            *torch.broadcast_shapes(value.shape[:-1], self.batch_shape), -1
        ).reshape(-1, len(self.steps), value.shape[-1])
        return torch.stack([self._one(row) for row in rows]).view(*value.shape[:-2], -1)

    def _one(self, z: Tensor) -> Tensor:
        path = self.model.follow(
            self.steps, 1, z.unflatten(-1, (-1, self.model.latent)), generator=None
        )
        return (normal_log_prob(path.z, path.mean, path.log_scale)[:, 0] * self.there.mT).sum(0)


def as_steps(model: "VRNN", x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rows ``(B, l E)`` as steps ``(B, T, E)``, zero beyond their ends, and where there are any,
    ``(B, T)``; T is the longest's length.
    """
    size, L = model.output.support.width, model.length
    if x.dim() != 2 or x.shape[-1] == 0 or x.shape[-1] % size or x.shape[-1] > L * size:
        remedy = "Cut it into windows, or build the model with a larger length."
        raise invalid(
            "VRNN", "x", f"be rows of 1 to {L} steps of {size}", f"shape {tuple(x.shape)}", remedy
        )
    steps = x.to(model.like).unflatten(-1, (-1, size))
    if lengths is None:
        ends = row_ends(steps, "VRNN")
    else:
        ends = _check_lengths(lengths.to(steps.device), steps)
    T = int(ends.max())
    there = torch.arange(T, device=steps.device) < ends[:, None]
    return steps[:, :T].where(there[..., None], 0.0), there


def _check_lengths(lengths: Tensor, steps: Tensor) -> Tensor:
    if lengths.shape != steps.shape[:1]:
        raise invalid(
            "VRNN",
            "lengths",
            f"be one number for each of {len(steps)} rows",
            f"shape {tuple(lengths.shape)}",
        )
    wrong = ((lengths < 1) | (lengths > steps.shape[1])).nonzero()
    if len(wrong):
        row = int(wrong[0])
        remedy = "Leave empty sequences out, and give as many steps as the longest has."
        raise invalid(
            "VRNN",
            "lengths",
            f"be from 1 to the {steps.shape[1]} steps of x",
            f"{int(lengths[row])} in row {row}",
            remedy,
        )
    lost = steps.isnan().any(-1) & (
        torch.arange(steps.shape[1], device=steps.device) < lengths[:, None]
    )
    if lost.any():
        raise invalid(
            "VRNN",
            "x",
            "be finite up to the end of each row",
            f"nan in row {int(lost.nonzero()[0, 0])}",
            "Impute it first.",
        )
    return lengths
