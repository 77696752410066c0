r"""Coupling layers: some columns stay and say how the others are moved (Dinh et al. 2017; Durkan et
al. 2019).

.. math:: z_A = x_A, \quad z_B = x_B \odot e^{s(x_A)} + t(x_A), \qquad \log|\det| = \textstyle\sum_j
          s_j(x_A)
          (theory/flows.md, eq. 14.2 to 14.4)

Letters: A columns that are kept, B columns that are moved, D width, C context, n batch, P numbers
for each moved column.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from partita.models.directed.flow.layers import Layer, Mapped, Ordered
from partita.models.directed.flow.splines import (
    Knots,
    inverse_spline,
    knots,
    parameters_per_coordinate,
    spline,
)
from partita.nets.base import ACTIVATIONS
from partita.nets.conv import convolution
from partita.nets.mlp import MLP

# log scales are kept below this in absolute value; e^3 in one layer is steep, and steeper ones make
# single rows explode
STEEPEST = 3.0

# as far out as the network sees a kept column: what that makes of outliers would grow with
# them, layer upon layer
FARTHEST = 5.0


class Constant(nn.Module):
    """What a conditioner is where there is nothing to condition on: numbers to learn."""

    def __init__(self, outputs: int, *, generator: Generator) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(outputs, device=generator.device))

    def forward(self, given: Tensor) -> Tensor:
        return self.value[:, None].expand(-1, given.shape[-1])


class ColumnMLP(MLP):
    """A perceptron with the batch last, ``(D, n) -> (K, n)``: no copy transposes."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                x = torch.addmm(layer.bias[:, None], layer.weight, x)
            else:
                x = layer(x)
        return x


class ImageConditioner(nn.Module):
    """Convolutions over the kept pixels, the others blank, ``(|A| + C, n) -> (|B| P, n)``; context
    is spread over all pixels.
    """

    kept: Tensor
    moved: Tensor

    def __init__(
        self,
        shape: Sequence[int],
        mask: Tensor,
        context: int,
        per: int,
        widths: Sequence[int],
        name: str,
        *,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.shape, self.per, self.context = tuple(shape), per, context
        self.register_buffer("kept", mask.nonzero().flatten(), persistent=False)
        self.register_buffer("moved", (~mask).nonzero().flatten(), persistent=False)
        sizes, layers = [shape[0] + 1 + context, *widths, shape[0] * per], []
        for before, after in pairwise(sizes):
            layers += [
                convolution(before, after, 3, 2, generator=generator),
                ACTIVATIONS[name](),
            ]
        self.layers = start_at_identity(nn.Sequential(*layers[:-1]))

    def forward(self, given: Tensor) -> Tensor:
        x, context = given.mT.split([len(self.kept), self.context], -1)
        blank = x.new_zeros(len(x), self.kept.numel() + self.moved.numel())
        picture = blank.index_copy(1, self.kept, x).view(-1, *self.shape)
        known = (
            blank[:1]
            .index_fill(1, self.kept, 1.0)
            .view(1, *self.shape)[:, :1]
            .expand(len(x), -1, -1, -1)
        )
        spread = context[..., None, None].expand(-1, -1, *self.shape[1:])
        out = self.layers(torch.cat([picture, known, spread], 1))
        # pixel by pixel
        out = (
            out.view(len(x), self.shape[0], self.per, -1)
            .movedim(2, -1)
            .reshape(len(x), -1, self.per)
        )
        return out.index_select(1, self.moved).flatten(1).mT


class Coupling(Ordered, ABC):
    """What couplings share: the split into A and B, in this order, and a network from A to the
    parameters of B's map.

    Arguments:
        mask: True for the columns A that are kept, ``(D,)``.
        conditioner: From x_A and the context to ``per`` numbers for each column of B.
        per: P.
    """

    conditioner: nn.Module

    def __init__(self, mask: Tensor, conditioner: nn.Module, per: int) -> None:
        kept, moved = mask.nonzero().flatten(), (~mask).nonzero().flatten()
        super().__init__(torch.cat([kept, moved]))
        self.sizes, self.per, self.conditioner = (len(kept), len(moved)), per, conditioner
        _work_in_place(conditioner)

    @property
    def sides(self) -> tuple[Tensor, Tensor]:
        """The columns A and the columns B."""
        kept, moved = self.order.split(self.sizes)
        return kept, moved

    @abstractmethod
    def move(self, x: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        """B toward the latent by its numbers, ``(|B|, n), (|B|, P, n)``: values and log slopes,
        elementwise.
        """

    @abstractmethod
    def move_back(self, z: Tensor, raw: Tensor) -> Tensor:
        """B toward the data."""

    def to_latent(self, x: Tensor, context: Tensor | None = None) -> Mapped:
        kept, moved, raw = self._read(x, context)
        z, slope = self.move(moved, raw)
        return torch.cat([kept, z]).index_select(0, self.back), slope.sum(0)

    def to_data(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        kept, moved, raw = self._read(z, context)
        return torch.cat([kept, self.move_back(moved, raw)]).index_select(0, self.back)

    def _read(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """A, B, and the numbers for B's map, ``(|B|, P, n)``."""
        kept, moved = x.index_select(0, self.order).split(self.sizes)
        near = kept.clamp(-FARTHEST, FARTHEST)
        given = near if context is None else torch.cat([near, context])
        return kept, moved, self.conditioner(given).unflatten(0, (self.sizes[1], self.per))


class AffineCoupling(Coupling):
    """The map of (14.2), with log scales that are kept from running away."""

    one: Tensor

    def __init__(self, mask: Tensor, conditioner: nn.Module, per: int) -> None:
        super().__init__(mask, conditioner, per)
        self.register_buffer("one", torch.ones((), device=mask.device), persistent=False)

    def move(self, x: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        s, t = self._scale_and_shift(raw)
        return torch.addcmul(t, x, s.exp()), s

    def move_back(self, z: Tensor, raw: Tensor) -> Tensor:
        s, t = self._scale_and_shift(raw)
        return (z - t) * (-s).exp()

    def _scale_and_shift(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        s, t = raw.unbind(1)
        return s / torch.add(self.one, s.abs(), alpha=1 / STEEPEST), t


class SplineCoupling(Coupling):
    """A rational-quadratic spline for each moved column, the identity outside [-b, b]."""

    def __init__(self, mask: Tensor, conditioner: nn.Module, bins: int, bound: float) -> None:
        super().__init__(mask, start_at_identity(conditioner), parameters_per_coordinate(bins))
        self.bins, self.bound = bins, bound

    def move(self, x: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        return spline(x, knots(raw, self.bins, self.bound))

    def move_back(self, z: Tensor, raw: Tensor) -> Tensor:
        return inverse_spline(z, knots(raw, self.bins, self.bound))


def make_conditioner(
    mask: Tensor,
    context: int,
    per: int,
    widths: Sequence[int],
    name: str,
    image: Sequence[int] | None,
    *,
    generator: Generator,
) -> nn.Module:
    """Convolutions for images, a perceptron otherwise, numbers alone where nothing is given."""
    kept, moved = int(mask.sum()), int((~mask).sum())
    if image is not None:
        return ImageConditioner(image, mask, context, per, widths, name, generator=generator)
    if kept + context == 0:
        return Constant(moved * per, generator=generator)
    return ColumnMLP(
        kept + context, moved * per, widths=widths, activation=name, generator=generator
    )


def _work_in_place(conditioner: nn.Module) -> None:
    """Let activations overwrite what a layer just made."""
    for layer in conditioner.modules():
        if isinstance(layer, nn.ReLU | nn.SiLU):
            layer.inplace = True


@torch.no_grad()
def start_at_identity(conditioner: nn.Module) -> nn.Module:
    """Zero the last layer, so that a coupling starts as the identity; affine ones of columns learn
    faster from random weights.
    """
    layers = [layer for layer in conditioner.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    for parameter in layers[-1].parameters() if layers else ():
        parameter.zero_()
    return conditioner


class Marginals(Layer):
    """A spline for each column by itself: the columns that a coupling keeps are bent too, at no
    cost of a network.
    """

    def __init__(self, width: int, bins: int, bound: float, *, generator: Generator) -> None:
        super().__init__()
        self.bins, self.bound = bins, bound
        self.raw = nn.Parameter(
            torch.zeros(width, parameters_per_coordinate(bins), device=generator.device)
        )

    def to_latent(self, x: Tensor, context: Tensor | None = None) -> Mapped:
        z, slope = spline(x, self._knots())
        return z, slope.sum(0)

    def to_data(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        return inverse_spline(z, self._knots())

    def _knots(self) -> Knots:
        """One spline for all values of a column."""
        return knots(self.raw[..., None], self.bins, self.bound)
