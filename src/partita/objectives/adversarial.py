r"""Adversarial learning: a critic measures how far draws are from data, the generator makes the
measure small.

.. math:: \min_\theta \max_\varphi\; E_{\mathrm{data}}[T_\varphi(x)] -
          E_z\big[f^*(T_\varphi(G_\theta(z)))\big]
          \qquad\text{or}\qquad \min_\theta \max_{\mathrm{Lip}(c_\varphi) \le 1}\;
          E_{\mathrm{data}}[c_\varphi(x)] - E_z[c_\varphi(G_\theta(z))]
          (theory/divergences.md, eq. 16.18 and 16.20)

The critic is trained beside the model (``state.module``), in turns: some updates of the critic
alone, then one of both. The model's loss is computed with the critic's weights held, the critic's
with the draws held, so that each loss moves its own weights only. An audit sets what the critic
claims beside what is true of the same batch:

.. math:: \frac{1}{\mathrm{Lip}(c)} \big( E_x[c(x)] - E_y[c(y)] \big) \;\le\; W_1(x, y)
          (theory/divergences.md, eq. 16.21)

Letters: B batch, D visible, L latent, c critic.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from partita.core import capability
from partita.core.arguments import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check_counts,
)
from partita.core.protocols import Batch, Data, Losses, Objective, unwrapped
from partita.divergences.f_divergence import Elementwise, f_named
from partita.divergences.samples import coverage, mmd2
from partita.divergences.transport import wasserstein
from partita.errors import Unsupported, invalid
from partita.models.directed.gan import GAN
from partita.nets.lipschitz import lipschitz_bound
from partita.nets.mlp import MLP
from partita.nets.spectral import bound_spectral_norms, clip_weights, gradient_penalty

AUDITED = ("dual", "wasserstein", "lipschitz", "dual_over_lipschitz", "coverage", "mmd2")
AUDITED_ROWS = 256  # of a batch, at most: the exact distance is computed for them


class Game(NamedTuple):
    """What is made of a critic's values v: the critic makes E[real] - E[fake] large, the generator
    E[own] small.
    """

    real: Elementwise
    fake: Elementwise
    own: Elementwise


def surprise(v: Tensor) -> Tensor:
    """-log of the probability with which the critic knows a draw for one."""
    return -functional.logsigmoid(-v)


GAMES = {
    "wasserstein": Game(lambda v: v, lambda v: v, torch.neg),
    "minimax": Game(functional.logsigmoid, surprise, lambda v: -surprise(v)),
    # the chance of passing for data instead
    "non-saturating": Game(functional.logsigmoid, surprise, lambda v: functional.softplus(-v)),
}


def game_named(name: str) -> Game:
    """One of ``GAMES``, or the variational bound on an f-divergence."""
    if isinstance(name, str) and name in GAMES:
        return GAMES[name]
    f = f_named(name, "Adversarial")
    return Game(f.critic, f.conjugate_critic, lambda v: -f.conjugate_critic(v))


class CriticState(NamedTuple):
    """The critic, whose turn it is, and what the last audit found."""

    module: nn.Module  # the critic
    turn: Tensor  # updates made
    audited: Tensor  # numbers in the order of AUDITED


@dataclass(frozen=True)
class Adversarial(Objective[CriticState]):
    """A generator against a critic.

    Arguments:
        loss: ``"wasserstein"``; ``"minimax"`` and ``"non-saturating"`` (Goodfellow et al. 2014); or
            an f-divergence: ``"kl"``, ``"reverse-kl"``, ``"total-variation"``,
            ``"jensen-shannon"``, ``"hellinger"``, ``"pearson"``, ``"alpha-A"``.
        lipschitz: How the critic's slope is bounded: ``"spectral"``, ``"clip"``, ``"penalty"`` or
            ``"none"``; None takes ``"penalty"``.
        critic: Widths of a perceptron from rows to one number, or any such module (which a saved
            run cannot rebuild by itself).
        activation: Of that perceptron.
        critic_steps: n, updates of the critic for each of the generator.
        strength: Of the penalty on slopes other than one.
        clip: Largest weight, with ``"clip"``.
        audit_every: Updates between audits; 0 for none. Each compares the critic's value with the
            exact Wasserstein distance of the batch.

    >>> import partita
    >>> from partita.models import GAN
    >>> g = torch.Generator().manual_seed(0)
    >>> x, objective = torch.randn(64, 2, generator=g), Adversarial(critic=(8,))
    >>> run = partita.fit(GAN(2, generator=g), x, objective, steps=6, batch_size=32, generator=g)
    >>> sorted(set(run.history[-1]) & {"model", "critic", "wasserstein", "lipschitz"})
    ['critic', 'lipschitz', 'model', 'wasserstein']
    """

    in_nats = False

    loss: str = "non-saturating"
    lipschitz: Literal["none", "spectral", "clip", "penalty"] | None = None
    critic: Sequence[int] | nn.Module = (128, 128)
    activation: str = "relu"
    critic_steps: PositiveInt = 1
    strength: NonNegativeFloat = 0.1
    clip: PositiveFloat = 0.05
    audit_every: NonNegativeInt = 200

    def __post_init__(self) -> None:
        game_named(self.loss)
        super().__post_init__()
        if self.loss == "wasserstein" and self.lipschitz == "none":
            allowed = "bound the critic's slope for loss='wasserstein'"
            remedy = "Without a bound its value has no largest."
            raise invalid("Adversarial", "lipschitz", allowed, "'none'", remedy)

    @property
    def bounded_by(self) -> str:
        """How the slope is bounded."""
        return "penalty" if self.lipschitz is None else self.lipschitz

    def init(self, model: GAN, data: Data, *, generator: torch.Generator) -> CriticState:
        capability.require("Adversarial", model)
        critic = self._critic(model.support.width, generator)
        if self.bounded_by == "spectral":
            bound_spectral_norms(critic, shape=(model.support.width,), generator=generator)
        like = model.like
        return CriticState(
            critic.to(like),
            torch.zeros((), dtype=torch.int64, device=like.device),
            like.new_full((len(AUDITED),), torch.nan),
        )

    def losses(
        self, model: GAN, batch: Batch, state: CriticState, *, generator: torch.Generator
    ) -> Losses[CriticState]:
        critic, bare, x = state.module, unwrapped(model), batch.x
        if self.bounded_by == "clip":
            clip_weights(unwrapped(critic), self.clip)
        with torch.no_grad():
            y = bare(bare.noise(len(x), generator=generator))
        # in one pass: a bounded critic renews its weights at each
        v_x, v_y = _scores(critic, torch.cat([x, y])).split(len(x))
        game = game_named(self.loss)
        # a lower bound on the divergence, or the dual of the Wasserstein distance
        value = batch.mean(game.real(v_x)) - game.fake(v_y).mean()
        losses = {"critic": -value}
        if self.bounded_by == "penalty" and self.strength:
            penalty = gradient_penalty(critic, x, y, generator=generator)
            losses = {"critic": self.strength * penalty - value}
        if int(state.turn) % self.critic_steps == self.critic_steps - 1:
            with held(unwrapped(critic)):
                fresh = model(bare.noise(len(x), generator=generator))
                own = game.own(_scores(unwrapped(critic), fresh)).mean()
            losses = {"model": own, **losses}
        if self.audit_every and int(state.turn) % self.audit_every == 0:
            found = audit(unwrapped(critic), x, y, v_x, v_y)
            state = state._replace(audited=found.to(state.audited))
        info = {"critic_value": value.detach()}
        if self.audit_every:
            info |= dict(zip(AUDITED, state.audited, strict=True))
        return losses, state._replace(turn=state.turn + 1), info

    def _critic(self, width: int, generator: torch.Generator) -> nn.Module:
        if isinstance(self.critic, nn.Module):
            return self.critic
        widths = check_counts("Adversarial", "critic", self.critic)
        return MLP(width, 1, widths=widths, activation=self.activation, generator=generator)


def _scores(critic: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """One number for each row, ``(B,)``."""
    v = critic(x)
    if v.numel() != len(x):
        got = f"shape {tuple(v.shape)}"
        raise invalid("Adversarial", "critic", "give one number for each row", got)
    return v.reshape(len(x))


@torch.no_grad()
def audit(critic: nn.Module, x: Tensor, y: Tensor, v_x: Tensor, v_y: Tensor) -> Tensor:
    """The numbers of ``AUDITED``: the critic's dual value, the exact W_1, the critic's certified
    slope, the dual value that a critic of slope one may claim, coverage, and MMD^2.
    """
    rows = slice(min(len(x), AUDITED_ROWS))
    dual = float(v_x[rows].mean() - v_y[rows].mean())
    steepest = certified_slope(critic, x.shape[1])
    claim = dual / steepest if steepest > 0 else math.nan
    x, y = x[rows].double(), y[rows].double()
    covered = distance = math.nan
    if len(x) > 2:
        covered, distance = float(coverage(x, y, min(5, len(x) - 1))), float(mmd2(x, y))
    return torch.tensor(
        [dual, float(wasserstein(x, y)), steepest, claim, covered, distance], dtype=torch.float64
    )


def certified_slope(critic: nn.Module, width: int) -> float:
    """An upper bound on the critic's Lipschitz constant; nan for a module without a known bound."""
    try:
        return lipschitz_bound(critic, (width,))
    except Unsupported:
        return math.nan


@contextmanager
def held(module: nn.Module) -> Iterator[None]:
    """Weights that gradients flow past, not into."""
    own = [p for p in module.parameters() if p.requires_grad]
    for p in own:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in own:
            p.requires_grad_(True)
