r"""What a decoder's numbers mean: Bernoulli, Gaussian or categorical columns, independent given the
latent variables.

.. math:: \log p(x \mid z) = \sum_{i=1}^{D} \log p(x_i \mid f(z)_i)
          (theory/latent_variables.md, eq. 41.3)

Numbers come in blocks of D: one block of log-odds, of means (and one of log deviations), or K of
logits. What the base rates of training data already say is added to them, so that a network starts
from there, whatever its layers are.

Letters: D columns, K states, P blocks of numbers.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Distribution, Normal

from partita.core import support as supports
from partita.core.checks import check_choice, check_count
from partita.errors import invalid
from partita.models.directed.autoregressive.emissions import (
    LEAST_LOG_SCALE,
    bernoulli_log_prob,
    categorical_log_prob,
)

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
