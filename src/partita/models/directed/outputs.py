r"""What a decoder's numbers mean: Bernoulli, Gaussian or categorical columns, or a kind of its own
for each, independent given the latent variables.

.. math:: \log p(x \mid z) = \sum_{i=1}^{D} \log p(x_i \mid f(z)_i)
          (theory/latent_variables.md, eq. 41.3)

Numbers come in blocks of D: one block of log-odds, of means (and one of log deviations), or K of
logits. What the base rates of training data already say is added to them, so that a network starts
from there, whatever its layers are. Where columns are of different kinds, missing ones drop out:

.. math:: \log p(x_o \mid z) = \sum_{i \in o} \log p_i(x_i \mid f(z)_i)
          (theory/mixed_tables.md, eq. 45.5)

An encoder sees zeros in their place beside a mark that they are missing: whatever it makes of that,
the bound is one on the log-likelihood of what was observed.

Letters: D columns, K states, P blocks of numbers, o observed.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    NegativeBinomial,
    Normal,
    Poisson,
)
from torch.types import _size

from partita.core import support as supports
from partita.core.arguments import check_choice, check_count
from partita.errors import invalid
from partita.models.directed.autoregressive.emissions import (
    LEAST_LOG_SCALE,
    LEAST_MEAN,
    MOST_LOG_RATE,
    MOST_LOG_SIZE,
    bernoulli_log_prob,
    categorical_log_prob,
    log_size_of,
    negative_binomial_log_prob,
)
from partita.tables.schema import Law, places, support_of

LIKELIHOODS = ("bernoulli", "gaussian", "categorical")
VARIANCES = ("column", "shared", "row")
# of standardized columns: deviations that start at one leave nothing to the latent variables
FIRST_LOG_SCALE = -1.0
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Output(nn.Module, ABC):
    """p(x | numbers): ``blocks`` numbers for each of D columns go in, ``inputs`` numbers say to an
    encoder what x is.
    """

    support: supports.Support
    blocks: int = 1

    @property
    def inputs(self) -> int:
        """Numbers that an encoder takes in."""
        return self.support.width

    @property
    def outputs(self) -> int:
        """Numbers that a decoder gives."""
        return self.blocks * self.support.width

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """What an encoder sees of x, ``(*, D) -> (*, inputs)``, about zero."""

    @abstractmethod
    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        """log p of every column, ``(*, outputs), (*, D) -> (*, D)``; leading dimensions
        broadcast.
        """

    @abstractmethod
    def distribution(self, numbers: Tensor) -> Distribution:
        """The columns as a distribution with draws ``(*, D)``."""

    @abstractmethod
    def initialize(self, mean: Tensor, variance: Tensor, n: int) -> None:
        """Set what the base rates of ``n`` rows say."""

    def expected(self, given: Distribution) -> Tensor:
        """Means, ``(*, D)``, or the probabilities of categories, ``(*, D, K)``, of what
        :meth:`distribution` gives.
        """
        return given.probs if isinstance(given, Categorical) else given.mean

    def decided(self, expected: Tensor, how: str) -> Tensor:
        """What fills in a column of these expectations, ``(*, D)``: their ``"mean"``, or the
        ``"mode"`` of what is discrete.
        """
        if how == "mean":
            return expected
        categories = isinstance(self.support, supports.Categorical)
        return expected.argmax(-1).to(expected) if categories else (expected > 0.5).to(expected)


class BernoulliOutput(Output):
    """Zeros and ones from log-odds."""

    base: Tensor

    def __init__(self, width: int, *, device: torch.device) -> None:
        super().__init__()
        self.support = supports.Binary(width)
        self.register_buffer("base", torch.zeros(width, device=device))

    def encode(self, x: Tensor) -> Tensor:
        return x - torch.sigmoid(self.base)

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        return bernoulli_log_prob(*torch.broadcast_tensors(numbers + self.base, x))

    def distribution(self, numbers: Tensor) -> Distribution:
        return Bernoulli(logits=numbers + self.base, validate_args=False)

    def initialize(self, mean: Tensor, variance: Tensor, n: int) -> None:
        self.base.copy_(((mean.double() * n + 0.5) / (n + 1)).logit())


class GaussianOutput(Output):
    """Real columns about means, with deviations that are learned: one for each column, one for all,
    or by the decoder for each row.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, width: int, variance: str, *, device: torch.device) -> None:
        super().__init__()
        check_choice("GaussianOutput", "variance", variance, VARIANCES)
        self.support, self.blocks = supports.Real(width), 2 if variance == "row" else 1
        own = {"column": width, "shared": 1, "row": 0}[variance]
        self.log_scale = (
            nn.Parameter(torch.full((own,), FIRST_LOG_SCALE, device=device)) if own else None
        )
        self.register_buffer("shift", torch.zeros(width, device=device))
        self.register_buffer("scale", torch.ones(width, device=device))

    def encode(self, x: Tensor) -> Tensor:
        return (x - self.shift) / self.scale

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        mean, log_scale = self._parts(numbers)
        z = (self.encode(x) - mean) * torch.exp(-log_scale)
        return -0.5 * z.square() - log_scale - HALF_LOG_2PI - self.scale.log()

    def distribution(self, numbers: Tensor) -> Distribution:
        mean, log_scale = self._parts(numbers)
        return Normal(
            self.shift + self.scale * mean,
            (self.scale * log_scale.exp()).expand(mean.shape),
            validate_args=False,
        )

    def initialize(self, mean: Tensor, variance: Tensor, n: int) -> None:
        flat = (variance <= 0).nonzero()
        if len(flat):
            raise invalid(
                "fit",
                "x",
                "vary in every column to have a density",
                f"one value throughout column {int(flat[0])}",
            )
        self.shift.copy_(mean)
        # one deviation for all stays one in the units of the data
        alike = self.log_scale is not None and len(self.log_scale) == 1
        self.scale.copy_(variance.mean().sqrt() if alike else variance.sqrt())

    def _parts(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log deviations of standardized columns."""
        if self.log_scale is not None:
            return numbers, self.log_scale.clamp_min(LEAST_LOG_SCALE)
        mean, log_scale = numbers.chunk(2, -1)
        return mean, (log_scale + FIRST_LOG_SCALE).clamp_min(LEAST_LOG_SCALE)


class CategoricalOutput(Output):
    """Whole numbers 0 to K - 1 from K blocks of logits; an encoder sees one block of zeros and ones
    for each state.
    """

    base: Tensor

    def __init__(self, width: int, states: int, *, device: torch.device) -> None:
        super().__init__()
        self.support = supports.Categorical(width, states)
        self.blocks = states
        self.register_buffer("base", torch.zeros(states, width, device=device))

    @property
    def inputs(self) -> int:
        return self.outputs

    def encode(self, x: Tensor) -> Tensor:
        states = torch.arange(self.blocks, device=x.device, dtype=x.dtype)
        return (x[..., None, :] == states[:, None]).to(x.dtype).flatten(-2)

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        logits = self._logits(numbers)
        shape = torch.broadcast_shapes(logits.shape[:-1], x.shape)
        return categorical_log_prob(logits.expand(*shape, -1), x.expand(shape))

    def distribution(self, numbers: Tensor) -> Distribution:
        return Categorical(logits=self._logits(numbers), validate_args=False)

    def initialize(self, mean: Tensor, variance: Tensor, n: int) -> None:
        """Means of codes say nothing about states: logits start even."""

    def _logits(self, numbers: Tensor) -> Tensor:
        return (numbers.unflatten(-1, (self.blocks, -1)) + self.base).movedim(-2, -1)


def make_output(
    owner: str, likelihood: str, width: int, states: int | None, variance: str, device: torch.device
) -> Output:
    """The output of a name; ``states`` go with categorical columns and only with them."""
    check_choice(owner, "likelihood", likelihood, LIKELIHOODS)
    check_choice(owner, "variance", variance, VARIANCES)
    check_count(owner, "visible", width)
    if (likelihood == "categorical") != (states is not None):
        raise invalid(
            owner, "states", "be given for a categorical likelihood, and only for it", states
        )
    if states is not None:
        return CategoricalOutput(width, states, device=device)
    if likelihood == "bernoulli":
        return BernoulliOutput(width, device=device)
    return GaussianOutput(width, variance, device=device)


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


class NegativeBinomialOutput(Output):
    """Overdispersed counts from log means, with a size for each column that is learned; an encoder
    sees their logarithms.
    """

    base: Tensor

    def __init__(self, width: int, *, device: torch.device) -> None:
        super().__init__()
        self.support = supports.Count(width)
        self.log_size = nn.Parameter(torch.zeros(width, device=device))
        self.register_buffer("base", torch.zeros(width, device=device))

    def encode(self, x: Tensor) -> Tensor:
        return torch.log1p(x) - torch.log1p(self.base.exp())

    def log_prob(self, numbers: Tensor, x: Tensor) -> Tensor:
        return negative_binomial_log_prob(*self._parts(numbers), x)

    def distribution(self, numbers: Tensor) -> Distribution:
        log_mean, log_size = self._parts(numbers)
        size = log_size.exp().expand(log_mean.shape)
        return NegativeBinomial(size, logits=log_mean - log_size, validate_args=False)

    def initialize(self, mean: Tensor, variance: Tensor, n: int) -> None:
        self.base.copy_(mean.double().clamp_min(LEAST_MEAN).log())
        with torch.no_grad():
            self.log_size.copy_(log_size_of(mean.double(), variance.double()))

    def _parts(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        log_mean = (numbers + self.base).clamp_max(MOST_LOG_RATE)
        return log_mean, self.log_size.clamp(-MOST_LOG_SIZE, MOST_LOG_SIZE)


class MixedOutput(Output):
    """One output for each kind of column.

    Arguments:
        laws: What each column holds (:mod:`partita.tables.schema`).
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
    made = NegativeBinomialOutput if law == "overdispersed" else PoissonOutput
    return made(width, device=device)
