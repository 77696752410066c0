r"""The variational recurrent network (Chung et al. 2015): a normal latent variable at every step of
a recurrent network.

.. math:: p(x, z) = \prod_{t=1}^{T} p(x_t \mid z_{\le t}, x_{<t})\, p(z_t \mid x_{<t}, z_{<t}),
          \qquad
          q(z \mid x) = \prod_{t=1}^{T} q(z_t \mid x_{\le t}, z_{<t})
          (theory/latent_variables.md, eq. 41.12)

A row that ends early has NaN from there on, or says its length: its likelihood is that of what is
there.

Letters: B rows, L longest row, T steps of a batch, E numbers in a step, M latent dimensions, H
hidden units, k draws for each row.
"""

from typing import Annotated, NamedTuple

import torch
from torch import Generator, Tensor
from torch.distributions import Distribution

from partita.core import rng
from partita.core.arguments import PositiveInt, check_count, one_of
from partita.core.protocols import Capability, Data
from partita.core.registry import MODELS
from partita.core.support import Sequence
from partita.errors import invalid
from partita.models.directed.latent import GaussianLatents, LogTerms, kl_between, normal_log_prob
from partita.models.directed.outputs import make_output
from partita.models.directed.vrnn.filtering import chosen_state, filtered, go_on
from partita.models.directed.vrnn.missing import fill_steps, smoothed_latents
from partita.models.directed.vrnn.parts import CELLS, Parts
from partita.models.directed.vrnn.paths import PathPosterior, Trajectory, as_steps
from partita.nets.base import Activation

LIKELIHOODS = {"binary": "bernoulli", "real": "gaussian"}
FIRST_ROWS = 512  # of the data, from which base rates start
PARTICLES = 128  # that stand for what a prefix leaves open


class Terms(NamedTuple):
    """What every step of every draw says, zero beyond the end of a row."""

    fit: Tensor  # (T, k, B): log p(x_t | z_t, h)
    prior: Tensor  # (T, k, B): log p(z_t | h)
    proposal: Tensor  # (T, k, B): log q(z_t | x_t, h)
    kl: Tensor  # (T, k, B, M): KL(q || p) given the draws before

    def log_weights(self) -> Tensor:
        """log p(x, z) - log q(z | x) over these steps, ``(k, B)``."""
        return (self.fit + self.prior - self.proposal).sum(0)


@MODELS.register
class VRNN(GaussianLatents):
    """Sequences of bits or numbers; ``log_weights``, ``elbo_terms`` and ``filtered`` carry
    gradients to all parts.

    Arguments:
        length: L.
        element: Of one step: ``"binary"`` or ``"real"`` (normal), ``size`` of them.
        latent, hidden, features: M, H, and the units of every network between.
        cell: ``"gru"`` or ``"lstm"``.
        variance: Of real steps, learned: by the decoder for each ``"row"``, one for each
            ``"column"``, or one ``"shared"``.
        activation: Of the networks.
        generator: Source of the first weights.

    >>> g = torch.Generator().manual_seed(0)
    >>> model = VRNN(5, size=3, latent=2, hidden=8, features=8, generator=g)
    >>> x = model.draw(4, generator=g)
    >>> model.log_weights(x, 6, generator=g).shape, model.extend(x[:, :6], 4, generator=g).shape
    (torch.Size([6, 4]), torch.Size([4, 18]))
    """

    examples = {
        "VRNN": {"length": 6, "size": 2, "latent": 2, "hidden": 8, "features": 8},
    }
    capabilities = GaussianLatents.capabilities | {Capability.ENDS, Capability.FILTERS}
    forward_methods = ("filtered",)

    def __init__(
        self,
        length: PositiveInt,
        element: Annotated[str, one_of(*LIKELIHOODS)] = "binary",
        *,
        size: PositiveInt = 1,
        latent: PositiveInt = 16,
        hidden: PositiveInt = 128,
        features: PositiveInt = 128,
        cell: Annotated[str, one_of(*CELLS)] = "gru",
        variance: str = "row",
        activation: Activation = "relu",
        generator: Generator,
    ) -> None:
        super().__init__()
        self.watch_latents(latent, generator.device)
        self.output = make_output(
            "VRNN", LIKELIHOODS[element], size, None, variance, generator.device
        )
        self.parts = Parts(
            self.output, latent, hidden, features, cell, activation, generator=generator
        )
        self.support, self.length = Sequence(self.output.support, length), length

    def forward(
        self, x: Tensor, k: int = 1, lengths: Tensor | None = None, *, generator: Generator
    ) -> Tensor:
        return self.log_weights(x, k, lengths, generator=generator)

    def log_weights(
        self, x: Tensor, k: int, lengths: Tensor | None = None, *, generator: Generator
    ) -> Tensor:
        return self.terms(x, k, lengths, generator=generator).log_weights()

    def elbo_terms(
        self, x: Tensor, lengths: Tensor | None = None, *, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """log p(x | z) at one draw of z, ``(B,)``, and the divergences of each dimension summed
        over steps, ``(B, M)``.
        """
        terms = self.terms(x, 1, lengths, generator=generator)
        return terms.fit.sum((0, 1)), terms.kl.sum((0, 1))

    def filtered(
        self,
        x: Tensor,
        k: int,
        lengths: Tensor | None = None,
        *,
        threshold: float = 0.5,
        every: int = 1,
        kept: Tensor | None = None,
        generator: Generator,
    ) -> Tensor:
        """log of the particle filter's estimate of p(x), ``(B, l E) -> (B,)``: exp of it is
        unbiased (theory, eq. 41.14).

        With ``kept`` latent values (B, l M) of a posterior draw as one of the particles, exp of
        minus it is unbiased of 1 / p(x).
        """
        held = None if kept is None else kept.unflatten(-1, (-1, self.latent))
        return filtered(
            self, *as_steps(self, x, lengths), k, threshold, every, held, generator=generator
        ).log_p

    def terms(
        self,
        x: Tensor,
        k: int,
        lengths: Tensor | None = None,
        z: Tensor | None = None,
        *,
        generator: Generator | None,
    ) -> Terms:
        """All terms of k draws from q, or of latent values that are given, ``(B, T, M)``."""
        steps, there = as_steps(self, x, lengths)
        return self.terms_along(self.follow(steps, k, z, generator=generator), steps, there)

    def terms_along(self, path: Trajectory, steps: Tensor, there: Tensor) -> Terms:
        """The terms of a path, for all its steps at once."""
        terms = self._along(path, steps, there)
        self.watch(terms.kl.sum((0, 1, 2)) / (terms.kl.shape[1] * there.sum()))
        return terms

    def _along(self, path: Trajectory, steps: Tensor, there: Tensor) -> Terms:
        mask, prior = there.mT[:, None], self.parts.prior_of(path.h)  # (T, 1, B)
        numbers = self.parts.numbers_of(path.felt, path.h)
        fit = self.output.log_prob(numbers, steps.transpose(0, 1)[:, None]).sum(-1)
        log_p = normal_log_prob(path.z, *prior)
        log_q = normal_log_prob(path.z, path.mean, path.log_scale)
        kl = kl_between(path.mean, path.log_scale, *prior).where(mask[..., None], 0.0)
        return Terms(fit.where(mask, 0.0), log_p.where(mask, 0.0), log_q.where(mask, 0.0), kl)

    def follow(
        self,
        steps: Tensor,
        k: int,
        given: Tensor | None = None,
        state: Tensor | None = None,
        blind: bool = False,
        first: Tensor | None = None,
        *,
        generator: Generator | None,
    ) -> Trajectory:
        """The recurrence, from its start or from ``state``, along k draws from q, or ``blind`` to
        the step itself from the prior, along ``given`` z ``(B, T, M)``, or, without a generator,
        along the means of q; the first of k along values ``first`` (B, T, M).
        """
        parts, (B, T, _) = self.parts, steps.shape
        # (k B, T, F)
        seen = parts.phi_x(self.output.encode(steps)).expand(k, -1, -1, -1).flatten(0, 1)
        state, found = parts.start(k * B, self.like) if state is None else state, []
        for t in range(T):
            h = parts.h(state)
            mean, log_scale = parts.posterior_of(seen[:, t], h)
            if given is not None:
                now = given[:, t].expand(k, -1, -1).flatten(0, 1)
            else:
                now, log_spread = parts.prior_of(h) if blind else (mean, log_scale)
                if generator is not None:
                    now = now + log_spread.exp() * rng.normal(now.shape, now, generator)
            now = now if first is None else torch.cat([first[:, t], now[B:]])
            felt = parts.phi_z(now)
            found.append((now, felt, h, mean, log_scale))
            state = parts.advance(seen[:, t], felt, state)
        z, felt, h, mean, log_scale = (
            torch.stack(each).unflatten(1, (k, B)) for each in zip(*found, strict=True)
        )
        return Trajectory(z, felt, h, mean, log_scale, state)

    def log_joint(self, x: Tensor, z: Tensor, lengths: Tensor | None = None) -> Tensor:
        """log p(x, z), ``(B, l E), (B, l M) -> (B,)``; latent values beyond the end of a row do not
        count.
        """
        terms = self._terms_at(x, z, lengths)
        return (terms.fit + terms.prior).sum((0, 1))

    def log_weight(self, x: Tensor, z: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self._terms_at(x, z, lengths).log_weights()[0]

    def log_terms(self, x: Tensor, z: Tensor) -> LogTerms:
        steps, there = as_steps(self, x.repeat(len(z), 1), None)
        path = self.follow(
            steps, 1, z.flatten(0, 1).unflatten(-1, (-1, self.latent)), generator=None
        )
        terms = self._along(path, steps, there)
        return LogTerms(*(part.sum((0, 1)).view(z.shape[:2]) for part in terms[:3]))

    @torch.no_grad()
    def draw_prior(self, x: Tensor, k: int, *, generator: Generator) -> Tensor:
        """Of the latent values of each step given the steps before it, ``(k, B, T M)``."""
        path = self.follow(as_steps(self, x, None)[0], k, blind=True, generator=generator)
        return path.z.movedim(0, 2).flatten(2)

    @torch.no_grad()
    def draw_posterior(self, x: Tensor, k: int, *, generator: Generator) -> Tensor:
        """``k`` draws of p(z | x) for each row, ``(k, B, T M)``, as nearly as some sweeps of
        particle Gibbs come to it.
        """
        steps, there = as_steps(self, x.repeat(k, 1), None)
        z = smoothed_latents(self, steps.masked_fill(~there[..., None], torch.nan), generator)
        return z.flatten(1).unflatten(0, (k, -1))

    def live(self, x: Tensor) -> Tensor:
        return as_steps(self, x, None)[1].repeat_interleave(self.latent, 1)

    def posterior(self, x: Tensor, lengths: Tensor | None = None) -> Distribution:
        return PathPosterior(self, *as_steps(self, x, lengths))

    @torch.no_grad()
    def step_kl(self, x: Tensor, lengths: Tensor | None = None, *, generator: Generator) -> Tensor:
        """KL(q || p) of every step at one draw of those before, ``(B, l E) -> (B, T)``; zero beyond
        the end of a row.
        """
        return self.terms(x, 1, lengths, generator=generator).kl.sum(-1)[:, 0].mT

    @torch.no_grad()
    def kl_per_dimension(self, x: Tensor) -> Tensor:
        """KL(q || p) of each dimension along the means of q, the mean over the steps of each row,
        ``(B, l E) -> (B, M)``.
        """
        steps, there = as_steps(self, x, None)
        path = self.follow(steps, 1, generator=None)
        kl = kl_between(path.mean, path.log_scale, *self.parts.prior_of(path.h))[:, 0]
        return (kl * there.mT[..., None]).sum(0) / there.sum(1, keepdim=True)

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        """The hidden units after each row's last step along the means of q, ``(B, L E) -> (B,
        H)``.
        """
        steps, there = as_steps(self, x, None)
        path = self.follow(steps, 1, generator=None)
        # (T + 1, B, H): before every step, and after the last
        h = torch.cat([path.h[:, 0], self.parts.h(path.state)[None]])
        return h[there.sum(1), torch.arange(len(steps), device=h.device)]

    @torch.no_grad()
    def draw_joint(self, n: int, *, generator: Generator) -> tuple[Tensor, Tensor]:
        """``n`` exact draws of full length and the latent values behind them, ``(n, L E), (n, L
        M)``.
        """
        state = self.parts.start(check_count("draw", "n", n), self.like)
        x, z = go_on(self, state, self.length, generator=generator)
        return x.flatten(1), z.flatten(1)

    @torch.no_grad()
    def extend(self, prefix: Tensor, steps: int, *, generator: Generator) -> Tensor:
        """The prefix and ``steps`` more, ``(n, l E) -> (n, (l + steps) E)``.

        What the prefix leaves open is drawn by a particle filter, so that continuations are draws
        as its particles grow in number; without a prefix they are exact.
        """
        check_count("extend", "steps", steps, 0)
        if prefix.shape[-1] == 0:
            start = self.parts.start(len(prefix), self.like)
            return go_on(self, start, steps, generator=generator)[0].flatten(1)
        if prefix.isnan().any():
            remedy = "Continue rows of each length by themselves."
            raise invalid(
                "extend", "prefix", "be whole, for all rows go on from one step", "nan", remedy
            )
        known, there = as_steps(self, prefix, None)
        state = chosen_state(
            filtered(self, known, there, PARTICLES, 0.5, generator=generator), generator
        )
        return torch.cat(
            [prefix.to(known), go_on(self, state, steps, generator=generator)[0].flatten(1)], 1
        )

    @torch.no_grad()
    def fill(self, x: Tensor, how: str = "mean", *, generator: Generator) -> Tensor:
        """Rows with NaN replaced by the posterior ``"mean"``, the ``"mode"`` (bits) or one
        ``"draw"``, ``(B, L E)``.
        """
        return fill_steps(self, x, how, generator=generator)

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        """Base rates, or means and scales, of the numbers in a step, from some training rows."""
        batch = data.batch(
            rng.permutation(len(data), generator)[:FIRST_ROWS].cpu(), generator=generator
        )
        steps, there = as_steps(self, batch.x, batch.lengths)
        some = steps[there].double()
        self.output.initialize(some.mean(0), some.var(0, correction=0), len(some))

    def title(self) -> str:
        made = self.arguments
        return (
            f"VRNN({made['cell']}, {made['hidden']} hidden, {made['latent']} latent, "
            f"{self.length} steps of {self.output.support})"
        )

    def _terms_at(self, x: Tensor, z: Tensor, lengths: Tensor | None) -> Terms:
        """The terms at given latent values ``(B, l M)``, of which those beyond the longest row are
        left out.
        """
        return self.terms(x, 1, lengths, z.unflatten(-1, (-1, self.latent)), generator=None)
