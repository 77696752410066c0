"""Changes of a row that leave alone what it is about: one for vectors, one for images, one for
sequences.

Each maps rows ``(B, D)`` to rows of the same shape from a generator; any function ``(x, generator)
-> x`` can take its place.

Letters: B rows, D columns, C channels, L length.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

from partita.core import rng
from partita.core.arguments import Check, Checked, NonNegativeFloat, Share, check_counts, within
from partita.errors import invalid


def sizes(names: str) -> Check:
    """As many whole numbers as there are names."""

    def check(owner: str, parameter: str, shape: object) -> None:
        if not isinstance(shape, tuple | list) or len(shape) != len(names.split()):
            raise invalid(owner, parameter, f"be ({names})", shape)
        check_counts(owner, parameter, shape)

    return check


@dataclass(frozen=True)
class VectorMoves(Checked):
    """Columns are replaced by another row's with probability ``swap``, and noise of ``noise``
    deviations is added.

    Bahri et al. (2022), SCARF: self-supervised contrastive learning using random feature
    corruption.
    """

    swap: Share = 0.2
    noise: NonNegativeFloat = 0.1

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        other = x[rng.permutation(len(x), generator).to(x.device)]
        swapped = torch.where(rng.uniform(x.shape, x, generator) < self.swap, other, x)
        return swapped + self.noise * x.std(0, correction=0) * rng.normal(x.shape, x, generator)


@dataclass(frozen=True)
class ImageMoves(Checked):
    """Turned by up to ``turn`` degrees, scaled by up to ``zoom``, sheared, moved by up to ``move``
    of its size, and a patch blotted out.

    Arguments:
        shape: (height, width); channels follow one another in a row.
        erase: Side of the patch, as a share of the image's.
    """

    shape: Annotated[tuple[int, int], sizes("height, width")]
    turn: Annotated[float, within(0.0, 180.0)] = 15.0
    zoom: NonNegativeFloat = 0.15
    shear: NonNegativeFloat = 0.2
    move: Share = 0.1
    erase: Share = 0.25

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        images = x.reshape(len(x), -1, *self.shape)
        a, s, k, dx, dy = ((2 * u - 1) for u in rng.uniform((5, len(x)), x, generator))
        angle, scale = a * math.radians(self.turn), torch.exp(s * math.log1p(self.zoom))
        cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
        maps = torch.stack(
            [cos, -sin + self.shear * k, 2 * self.move * dx, sin, cos, 2 * self.move * dy], -1
        ).view(-1, 2, 3)
        grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
        moved = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
        return self._erased(moved, generator).reshape(x.shape)

    def _erased(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A patch at a random place takes the mean of its image."""
        if not self.erase:
            return images
        outside = torch.zeros(len(images), 1, *self.shape, dtype=torch.bool, device=images.device)
        for axis, size in zip((2, 3), self.shape, strict=True):
            width = max(1, round(self.erase * size))
            first = torch.floor(rng.uniform((len(images),), images, generator) * (size - width + 1))
            place = torch.arange(size, device=images.device) - first[:, None]
            inside = (place >= 0) & (place < width)
            outside |= ~(inside[:, None, :, None] if axis == 2 else inside[:, None, None, :])
        return torch.where(outside, images, images.mean((2, 3), keepdim=True))


@dataclass(frozen=True)
class SequenceMoves(Checked):
    """A stretch of at least ``keep`` of the length is drawn out to the whole, scaled, and noise is
    added.

    Arguments:
        shape: (L,); channels follow one another in a row.
    """

    shape: Annotated[tuple[int], sizes("length,")]
    keep: Annotated[float, within(0.0, 1.0, open_low=True)] = 0.7
    gain: NonNegativeFloat = 0.2
    noise: NonNegativeFloat = 0.05

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        (L,) = self.shape
        series = x.reshape(len(x), -1, L)
        share, place, gain = rng.uniform((3, len(x), 1, 1), x, generator)
        share = self.keep + (1 - self.keep) * share
        even = torch.linspace(0, 1, L, device=x.device, dtype=x.dtype)
        at = (place * (1 - share) + share * even) * (L - 1)
        below = at.floor().clamp_max(max(L - 2, 0)).long().expand_as(series)
        above = (below + 1).clamp_max(L - 1)
        part = (at - below).clamp(0, 1).expand_as(series)
        drawn = torch.lerp(series.gather(2, below), series.gather(2, above), part)
        loud = drawn * torch.exp(self.gain * (2 * gain - 1))
        scale = self.noise * series.std((0, 2), keepdim=True, correction=0)
        return (loud + scale * rng.normal(loud.shape, x, generator)).reshape(x.shape)
