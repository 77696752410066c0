r"""What a step of a sequence is: how the network takes it in, and how it is predicted from a
context.

.. math:: p(x_t \mid c_t) = \prod_{i=1}^{E} p(x_{ti} \mid x_{t,<i},\, c_t)
          (theory/sequences.md, eq. 24.3)

Letters: B batch, L length, E numbers in a step, K states, W width of the network, c context.
"""

from abc import ABC, abstractmethod

import torch
from torch import Generator, Tensor, nn

from partita.core import rng
from partita.core.protocols import Batch
from partita.core.support import Binary, Categorical, Real, Support
from partita.errors import invalid
from partita.models.directed.autoregressive.emissions import (
    BinaryEmission,
    Emission,
    NormalMixtureEmission,
    Sharpness,
    categorical_log_prob,
    draw_categorical,
)
from partita.nets.base import linear
from partita.nets.masked import MaskedMLP


class Step(nn.Module, ABC):
    """One kind of step: ``element`` is its support."""

    element: Support

    def check(self, x: Tensor, owner: str = "Autoregressive", parameter: str = "x") -> Tensor:
        """Return steps, ``(*, l, E)``, if all lie in the support; the first that does not is
        named.
        """
        outside = self.element.outside(x)
        if outside.any():
            at = outside.nonzero()[0].tolist()
            got = f"{x[tuple(at)].item():g} in step {at[-2]}"
            raise invalid(owner, parameter, f"hold {self.element.in_words()}", got, self.remedy())
        return x

    def remedy(self) -> str:
        """What to do with steps that lie outside."""
        return self.element.remedy()

    @abstractmethod
    def embed(self, x: Tensor) -> Tensor:
        """``(*, E) -> (*, W)``."""

    @abstractmethod
    def log_prob(self, context: Tensor, x: Tensor) -> Tensor:
        """``(*, W), (*, E) -> (*)``."""

    @abstractmethod
    def draw(self, context: Tensor, sharpness: Sharpness, *, generator: Generator) -> Tensor:
        """``(*, W) -> (*, E)``."""

    def initialize(self, batch: Batch, x: Tensor) -> None:
        """Set biases from steps of training data, ``(n, E)``; nothing by default."""


class Token(Step):
    """One of K states, embedded by a table and predicted by a softmax."""

    def __init__(self, width: int, states: int, *, generator: Generator) -> None:
        super().__init__()
        self.element = Categorical(1, states)
        self.table = nn.Parameter(
            rng.normal((states, width), torch.empty(0, device=generator.device), generator) * 0.5
        )
        self.out = linear(width, states, generator=generator)

    def remedy(self) -> str:
        return "Build the vocabulary from all of the data."

    def embed(self, x: Tensor) -> Tensor:
        return nn.functional.embedding(x.squeeze(-1).long(), self.table)

    def log_prob(self, context: Tensor, x: Tensor) -> Tensor:
        return categorical_log_prob(self.out(context), x.squeeze(-1))

    def draw(self, context: Tensor, sharpness: Sharpness, *, generator: Generator) -> Tensor:
        return draw_categorical(self.out(context), sharpness, generator).unsqueeze(-1)

    @torch.no_grad()
    def initialize(self, batch: Batch, x: Tensor) -> None:
        counts = torch.bincount(x.long().flatten(), minlength=len(self.table)).to(self.out.bias)
        self.out.bias.copy_((counts + 0.5).log() - (counts + 0.5).sum().log())


class Columns(Step):
    """E numbers, each given those before it in the step by a masked network, so that notes of a
    chord need not be independent.
    """

    def __init__(
        self, element: Support, emission: Emission, width: int, hidden: int, generator: Generator
    ) -> None:
        super().__init__()
        self.element, self.emission = element, emission
        self.into = linear(element.width, width, generator=generator)
        self.net = MaskedMLP(
            element.width, emission.numbers, widths=(hidden,), context=width, generator=generator
        )

    def embed(self, x: Tensor) -> Tensor:
        return self.into(x)

    def log_prob(self, context: Tensor, x: Tensor) -> Tensor:
        return self.terms(context, x).sum(-1)

    def terms(self, context: Tensor, x: Tensor) -> Tensor:
        """log p of each number, ``(*, W), (*, E) -> (*, E)``."""
        return self.emission.log_prob(self.net(x, context), x)

    def draw(self, context: Tensor, sharpness: Sharpness, *, generator: Generator) -> Tensor:
        x = context.new_zeros(*context.shape[:-1], self.element.width)
        for i in range(self.element.width):
            x[..., i] = self.emission.draw(self.net(x, context)[..., i, :], sharpness, generator)
        return x


class BitColumns(Columns):
    """E zeros and ones."""

    def __init__(self, width: int, size: int, hidden: int, *, generator: Generator) -> None:
        super().__init__(Binary(size), BinaryEmission(), width, hidden, generator)

    @torch.no_grad()
    def initialize(self, batch: Batch, x: Tensor) -> None:
        p = (x.double().sum(0) + 0.5) / (len(x) + 1)
        self.net.last.layer.bias.copy_(p.logit())


class RealColumns(Columns):
    """E real numbers, each a mixture of normals; standardized by training data inside the
    model.
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self, width: int, size: int, hidden: int, components: int, *, generator: Generator
    ) -> None:
        emission = NormalMixtureEmission(components)
        super().__init__(Real(size), emission, width, hidden, generator)
        self.register_buffer("shift", torch.zeros(size, device=generator.device))
        self.register_buffer("scale", torch.ones(size, device=generator.device))
        with torch.no_grad():
            bias = self.net.last.layer.bias.view(size, 3, components)
            bias[:, 1] = emission.spread()
            bias[:, 2] = -0.7

    def check(self, x: Tensor, owner: str = "Autoregressive", parameter: str = "x") -> Tensor:
        """Finite numbers, and none so far out that squares of what the network makes of it
        overflow.
        """
        most = torch.finfo(self.scale.dtype).max ** 0.25
        far = self._standardized(super().check(x, owner, parameter)).abs() > most
        if far.any():
            at = far.nonzero()[0].tolist()
            raise invalid(
                owner,
                parameter,
                f"lie within {most:.0e} deviations of the data that the model was fitted to",
                f"{x[tuple(at)].item():g} in step {at[-2]}",
                "Scale the data, or use float64.",
            )
        return x

    def embed(self, x: Tensor) -> Tensor:
        return super().embed(self._standardized(x))

    def terms(self, context: Tensor, x: Tensor) -> Tensor:
        return super().terms(context, self._standardized(x)) - self.scale.log()

    def draw(self, context: Tensor, sharpness: Sharpness, *, generator: Generator) -> Tensor:
        return super().draw(context, sharpness, generator=generator) * self.scale + self.shift

    @torch.no_grad()
    def initialize(self, batch: Batch, x: Tensor) -> None:
        deviation = x.double().std(0, correction=0)
        if not (deviation > 0).all():
            column = int((deviation <= 0).nonzero()[0])
            raise invalid(
                "Autoregressive",
                "x",
                "vary in every column to have a density",
                f"one value throughout column {column}",
            )
        self.shift.copy_(x.double().mean(0))
        self.scale.copy_(deviation)

    def _standardized(self, x: Tensor) -> Tensor:
        return (x - self.shift) / self.scale
