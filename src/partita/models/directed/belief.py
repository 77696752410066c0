r"""Sigmoid belief networks: layers of binary latent variables above the columns, and a proposal
that climbs them.

.. math:: p(x, z) = p(x \mid z_1) \prod_{i=1}^{L-1} p(z_i \mid z_{i+1})\; p(z_L), \qquad
          q(z \mid x) = q(z_1 \mid x) \prod_{i=2}^{L} q(z_i \mid z_{i-1})
          (theory/gradients.md, eq. 40.22)

Every conditional is a product of Bernoullis (or the columns' own likelihood) whose logits are
linear, or a perceptron, in the layer it is given. Gradients do not flow through bits: the model is
trained by one of the estimators of :mod:`partita.gradients`.

Letters: B rows, D columns, L layers, H units of a layer, M bits of all layers, k draws for each
row.
"""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call
from torch.types import _size

from partita.core import rng
from partita.core.arguments import Sizes, check_count, check_width
from partita.core.protocols import Capability
from partita.core.registry import MODELS
from partita.core.support import Binary
from partita.gradients.base import Estimate, Estimator, State
from partita.gradients.latents import Bits, Chain, Draws, ancestral, log_prob
from partita.models.directed.latent import Decoded, LogTerms, Plain
from partita.models.directed.outputs import make_output
from partita.nets import MLP
from partita.nets.base import Activation

MOST_BITS = 10  # few enough to sum over all states of the layers, in fits too
CELLS = 1 << 22  # states x rows x columns at once
WATCHED = 32  # rows of a batch whose use of the bits is watched


class Climbing(Plain):
    """q(z | x) of all layers side by side: draws ``(*, M)``, each layer given the one below it."""

    def __init__(self, q: Chain, widths: Sequence[int], rows: torch.Size) -> None:
        self.q, self.widths = q, list(widths)
        super().__init__(rows, torch.Size([sum(widths)]), validate_args=False)

    @torch.no_grad()
    def sample(self, sample_shape: _size = ()) -> Tensor:
        return torch.cat(ancestral(self.q, torch.default_generator, sample_shape).draws, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        return log_prob(self.q, value.split(self.widths, -1))


@MODELS.register
class SigmoidBelief(Decoded):
    """A belief net with one or more layers of bits; :meth:`estimate` gives its evidence bound with
    gradients.

    Arguments:
        visible: D.
        hidden: Units of each layer, from the columns upwards.
        widths: Hidden units of the perceptron of each conditional; none makes it linear.
        activation: Of those perceptrons.
        likelihood: Of the columns: ``"bernoulli"``, ``"gaussian"`` or ``"categorical"`` (with
            ``states``).
        generator: Source of the first weights.

    >>> g = torch.Generator().manual_seed(0)
    >>> model = SigmoidBelief(12, (6, 4), generator=g)
    >>> x = model.draw(5, generator=g)
    >>> model.log_weights(x, 3, generator=g).shape, model.log_prob(x).shape
    (torch.Size([3, 5]), torch.Size([5]))
    """

    examples = {
        "Belief net, many bits": {"visible": 20, "hidden": (12, 6)},
        "Belief net, few bits, real": {"visible": 6, "hidden": (4,), "likelihood": "gaussian"},
    }
    forward_methods = ("estimate", "log_prob")
    units = "units"
    against_collapse = "fit longer, lower learning_rate, or use fewer units"

    def __init__(
        self,
        visible: int,
        hidden: Sizes = (200,),
        *,
        widths: Sizes = (),
        activation: Activation = "tanh",
        likelihood: str = "bernoulli",
        states: int | None = None,
        generator: Generator,
    ) -> None:
        super().__init__()
        check_count("SigmoidBelief", "the number of hidden layers", len(hidden))
        self.hidden = tuple(hidden)
        self.output = make_output(
            "SigmoidBelief", likelihood, visible, states, "column", generator.device
        )
        self.support = self.output.support
        how = {"widths": widths, "activation": activation, "generator": generator}
        up, down = (self.output.inputs, *self.hidden), (self.output.outputs, *self.hidden)
        self.encoders = nn.ModuleList(
            [MLP(below, units, **how) for below, units in zip(up, self.hidden, strict=False)]
        )
        self.decoders = nn.ModuleList(
            [MLP(units, below, **how) for below, units in zip(down, self.hidden, strict=False)]
        )
        self.prior = nn.Parameter(torch.zeros(self.hidden[-1], device=generator.device))
        self.watch_latents(sum(hidden), generator.device)
        exact = {Capability.LOG_PROB} if self.latent <= MOST_BITS else set()
        self.capabilities = Decoded.capabilities | {Capability.DISCRETE_LATENTS} | exact

    def proposal(self, x: Tensor) -> Chain:
        """q(z | x), layer by layer."""
        check_width("SigmoidBelief", "x", x, self.support.width, self.title())
        first = Bits(self.encoders[0](self.output.encode(x)))
        return (lambda _: first, *(_conditional(net) for net in list(self.encoders)[1:]))

    def held(self, q: Chain) -> Chain:
        """The same proposal with its parameters held: only what is drawn still moves it."""
        still = Bits(cast(Bits, q[0](())).logits.detach())
        return (lambda _: still, *(_conditional(net, held=True) for net in list(self.encoders)[1:]))

    def posterior(self, x: Tensor) -> Climbing:
        return Climbing(self.proposal(x), self.hidden, x.shape[:-1])

    def decode(self, z: Tensor) -> Tensor:
        """The columns' numbers given all layers side by side, of which the first counts, ``(*, M)
        -> (*, outputs)``.
        """
        return self.decoders[0](_signs(z[..., : self.hidden[0]]))

    def log_joint_of(self, x: Tensor, draws: Draws) -> Tensor:
        """log p(x, z) with z layer by layer, relaxed or not, ``(*)``."""
        return self._fit(x, draws) + self._log_prior(draws)

    def _fit(self, x: Tensor, draws: Draws) -> Tensor:
        return self.output.log_prob(self.decoders[0](_signs(draws[0])), x).sum(-1)

    def _log_prior(self, draws: Draws) -> Tensor:
        total = Bits(self.prior).log_prob(draws[-1])
        for i, net in enumerate(list(self.decoders)[1:]):
            total = total + Bits(net(_signs(draws[i + 1]))).log_prob(draws[i])
        return total

    def log_joint(self, x: Tensor, z: Tensor) -> Tensor:
        return self.log_joint_of(x, z.split(self.hidden, -1))

    def log_terms(self, x: Tensor, z: Tensor) -> LogTerms:
        draws = z.split(self.hidden, -1)
        return LogTerms(
            self._fit(x, draws), self._log_prior(draws), log_prob(self.proposal(x), draws)
        )

    def log_weights(self, x: Tensor, k: int, *, generator: Generator) -> Tensor:
        q = self.proposal(x)
        draws = ancestral(q, generator, (k,)).draws
        return self.log_joint_of(x, draws) - log_prob(q, draws)

    def estimate(
        self, x: Tensor, estimator: Estimator, state: State, *, generator: Generator
    ) -> Estimate:
        """The evidence bound of each row, E_q[log p(x, z) - log q(z | x)], with the gradients of an
        estimator.
        """
        q = self.proposal(x)
        exact = estimator.bound == 1 and not estimator.surrogate_is_relaxed
        # the gradient of -log q itself has mean zero at draws from q: noise that is left out
        known = self.held(q) if exact else q

        def f(draws: Draws) -> Tensor:
            return self.log_joint_of(x, draws) - log_prob(known, draws)

        if self.training:
            self.watch(self.kl_per_dimension(x[:WATCHED], generator=generator).mean(0))
        return estimator.estimate(q, f, state, self.output.encode(x), generator=generator)

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x) exactly, by a sum over all states of the layers, ``(*, D) -> (*)``."""
        size = max(1, CELLS // max(1, x.numel() * self.output.blocks))
        states = Binary(self.latent).chunks(x, size)
        rows = [self.log_joint(x, z.view(-1, *[1] * (x.dim() - 1), self.latent)) for z in states]
        return torch.logsumexp(torch.cat(rows), 0)

    def forward(self, x: Tensor, k: int = 1, *, generator: Generator | None = None) -> Tensor:
        """log weights of k draws; without a generator the exact log p(x)."""
        if generator is None:
            return self.log_prob(x)
        return self.log_weights(x, k, generator=generator)

    @torch.no_grad()
    def draw_joint(self, n: int, *, generator: Generator) -> tuple[Tensor, Tensor]:
        z = self._downwards((check_count("draw", "n", n),), generator)
        return rng.draw(self.output.distribution(self.decode(z)), generator), z

    @torch.no_grad()
    def draw_prior(self, x: Tensor, k: int, *, generator: Generator) -> Tensor:
        return self._downwards((k, len(x)), generator)

    def _downwards(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Exact draws of all layers, from the uppermost down."""
        layers = [Bits(self.prior).draw(generator, shape)]
        for net in reversed(list(self.decoders)[1:]):
            layers.insert(0, Bits(net(_signs(layers[0]))).draw(generator))
        return torch.cat(layers, -1)

    @torch.no_grad()
    def kl_per_dimension(self, x: Tensor, *, generator: Generator | None = None) -> Tensor:
        """log q - log p of each unit given its neighbors at one draw (of a fixed seed by default),
        ``(*, D) -> (*, M)``.
        """
        generator = Generator(x.device).manual_seed(0) if generator is None else generator
        drawn = ancestral(self.proposal(x), generator)
        nets = zip(list(self.decoders)[1:], drawn.draws[1:], strict=True)
        above = [*(Bits(net(_signs(z))) for net, z in nets), Bits(self.prior)]
        parts = [
            _each(cast(Bits, q).logits, z) - _each(p.logits, z)
            for q, p, z in zip(drawn.layers, above, drawn.draws, strict=True)
        ]
        return torch.cat(parts, -1)

    def title(self) -> str:
        return f"SigmoidBelief({self.support.width}, {' + '.join(map(str, self.hidden))} bits)"


def _signs(z: Tensor) -> Tensor:
    """Bits as -1 and +1, so that neither value is silent in the layer that they are given to."""
    return 2 * z - 1


def _conditional(net: nn.Module, held: bool = False) -> Callable[[Draws], Bits]:
    """From the layers before to the next layer."""
    if not held:
        return lambda draws: Bits(net(_signs(draws[-1])))
    weights = {name: p.detach() for name, p in net.named_parameters()}
    return lambda draws: Bits(functional_call(net, weights, (_signs(draws[-1]),)))


def _each(logits: Tensor, z: Tensor) -> Tensor:
    """log p of every bit by itself, ``(*, H)``."""
    return z * logits - nn.functional.softplus(logits)
