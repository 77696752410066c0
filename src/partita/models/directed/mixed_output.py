r"""What a decoder's numbers mean where columns are of different kinds: a likelihood for each,
independent given the latent variables.

.. math:: \log p(x_o \mid z) = \sum_{i \in o} \log p_i(x_i \mid f(z)_i)
          (theory/mixed_tables.md, eq. 45.5)

Missing columns drop out of the sum over the observed ones o, and an encoder sees zeros in their
place beside a mark that they are missing: whatever it makes of that, the bound is one on the
log-likelihood of what was observed.

Letters: D columns, K states, o observed.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Poisson
from torch.types import _size

from partita.core import support as supports
from partita.models.directed.autoregressive.emissions import LEAST_MEAN, MOST_LOG_RATE
from partita.models.directed.outputs import (
    BernoulliOutput,
    CategoricalOutput,
    GaussianOutput,
    Output,
)
from partita.tables.column_kinds import Law, places, support_of


class PoissonOutput(Output):
    """Counts from log rates; an encoder sees their logarithms."""

    base: Tensor

    def __init__(self, width: int, *, device: torch.device) -> None:
        super().__init__()
        self.support = supports.Count(width)
        self.register_buffer("base", torch.zeros(width, device=device))

    def encode(self, x: Tensor) -> Tensor:
        return torch.log1p(x) - torch.log1p(self.base.exp())

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        log_rate = self._log_rate(numbers)
        return x * log_rate - log_rate.exp() - torch.lgamma(x + 1)

    def distribution(self, numbers: Tensor) -> Distribution:
        return Poisson(self._log_rate(numbers).exp(), validate_args=False)

    def initialize(self, mean: Tensor, variance: Tensor, n: int) -> None:
        self.base.copy_(mean.double().clamp_min(LEAST_MEAN).log())

    def _log_rate(self, numbers: Tensor) -> Tensor:
        return (numbers + self.base).clamp_max(MOST_LOG_RATE)


class MixedOutput(Output):
    """One output for each kind of column.

    Arguments:
        laws: What each column holds (:mod:`partita.tables.column_kinds`).
        variance: Of real columns, as in :class:`partita.models.directed.outputs.GaussianOutput`.
    """

    def __init__(self, laws: Sequence[Law], variance: str, *, device: torch.device) -> None:
        super().__init__()
        self.support, found = support_of(laws), places(laws)
        self.parts = nn.ModuleList(
            _one(law, len(at), variance, device) for law, at in found.items()
        )
        self.places = list(found.values())
        self.blocks = -(-self.outputs // self.support.width)

    @property
    def inputs(self) -> int:
        return self.support.width + sum(part.inputs for part, _ in self._each())

    @property
    def outputs(self) -> int:
        return sum(part.outputs for part, _ in self._each())

    def encode(self, x: Tensor) -> Tensor:
        missing = x.isnan()
        seen = [torch.nan_to_num(part.encode(x[..., at])) for part, at in self._each()]
        return torch.cat([*seen, missing.to(x.dtype)], -1)

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        missing, x = x.isnan(), torch.nan_to_num(x)
        found = [
            part.log_prob(own, x[..., at])
            for (part, at), own in zip(self._each(), self._split(numbers), strict=True)
        ]
        return self._joined(found).masked_fill(missing, 0.0)

    def distribution(self, numbers: Tensor) -> "MixedColumns":
        own = zip(self._each(), self._split(numbers), strict=True)
        return MixedColumns([part.distribution(mine) for (part, _), mine in own], self.places)

    def initialize(self, mean: Tensor, variance: Tensor, n: int) -> None:
        for part, at in self._each():
            part.initialize(mean[at], variance[at], n)

    def expected(self, given: Distribution) -> Tensor:
        """Means, and the probabilities of categories, of all columns side by side, ``(*, F)``."""
        parts, leading = cast(MixedColumns, given).parts, len(given.batch_shape) - 1
        return torch.cat([Output.expected(self, part).flatten(leading) for part in parts], -1)

    def decided(self, expected: Tensor, how: str) -> Tensor:
        """Means of real columns, rounded ones of counts, the most probable value of others, ``(*,
        F) -> (*, D)``.
        """
        sizes = [
            len(at) * (part.blocks if isinstance(part, CategoricalOutput) else 1)
            for part, at in self._each()
        ]
        found = []
        for (part, at), own in zip(self._each(), expected.split(sizes, -1), strict=True):
            if isinstance(part, CategoricalOutput):
                own = own.unflatten(-1, (len(at), -1)).argmax(-1).to(own)
            found.append(own if isinstance(part, GaussianOutput) else own.round())
        return self._joined(found)

    def _each(self) -> list[tuple[Output, list[int]]]:
        return list(zip(cast(list[Output], list(self.parts)), self.places, strict=True))

    def _split(self, numbers: Tensor) -> tuple[Tensor, ...]:
        return numbers.split([part.outputs for part, _ in self._each()], -1)

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return in_table_order(parts, self.places)


class MixedColumns(Distribution):
    """Columns of several distributions, ``(*, D_g)`` each, in the order of the table."""

    def __init__(self, parts: list[Distribution], at: list[list[int]]) -> None:
        self.parts, self.places = parts, at
        shape = (*parts[0].batch_shape[:-1], sum(map(len, at)))
        super().__init__(torch.Size(shape), validate_args=False)

    def sample(self, sample_shape: _size = ()) -> Tensor:
        drawn = [part.sample(torch.Size(sample_shape)) for part in self.parts]
        floats = [x for x in drawn if x.is_floating_point()]  # all but categories
        like = floats[0] if floats else drawn[0].float()
        return in_table_order([x.to(like) for x in drawn], self.places)


def in_table_order(parts: list[Tensor], at: list[list[int]]) -> Tensor:
    """Blocks of columns, ``(*, D_g)``, in the order of the table."""
    places = torch.tensor([place for columns in at for place in columns], device=parts[0].device)
    return torch.cat(parts, -1)[..., places.argsort()]


def _one(law: Law, width: int, variance: str, device: torch.device) -> Output:
    if isinstance(law, int):
        return CategoricalOutput(width, law, device=device)
    if law == "real":
        return GaussianOutput(width, variance, device=device)
    if law == "binary":
        return BernoulliOutput(width, device=device)
    return PoissonOutput(width, device=device)
