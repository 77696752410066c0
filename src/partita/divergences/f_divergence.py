r"""f-divergences and their variational bounds, all written in the log ratio v = log p(x) - log
q(x).

.. math:: D_f(p \,\|\, q) = E_q\big[f(p/q)\big] \ge E_p[T] - E_q[f^*(T)], \qquad f^*(u) = \sup_t\,
          (u t - f(t))
          (theory/divergences.md, eq. 15.4 to 15.6)

The bound is tight at T = f'(p/q). A critic that outputs v, whatever the divergence, gives T =
f'(e^v), which always lies where f* is finite; then f*(T) = e^v f'(e^v) - f(e^v), and the best
critic is the true log ratio. (Total variation, whose f' is a step, takes a smooth one.) Nowozin,
Cseke and Tomioka (2016).

Letters: t ratio p/q, v its log, u values of the critic's T.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from partita.core.arguments import check_choice, check_real
from partita.core.quantity import Quantity
from partita.diagnostics.means import mean_quantity, pooled_terms
from partita.errors import invalid

LOG2 = math.log(2)
FAR = 600.0  # a log ratio past which e^v is near the end of float64
IN_NATS = ("kl", "reverse-kl", "jensen-shannon")
Elementwise = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FDivergence:
    """One f, through the functions of it that are needed.

    Arguments:
        name: For messages and settings.
        f: f(e^v), as a function of v.
        critic: T = f'(e^v), as a function of v.
        conjugate: f*(u), infinite past the steepest slope of f.
        conjugate_critic: f*(T(v)), as a function of v, without the rounding of the detour through
            u.
        at_zero: f(0), what mass of q outside p's support counts.
        slope_at_infinity: lim f(t)/t, what mass of p outside q's support counts.
    """

    name: str
    f: Elementwise
    critic: Elementwise
    conjugate: Elementwise
    conjugate_critic: Elementwise
    at_zero: float
    slope_at_infinity: float

    @property
    def largest(self) -> float:
        """The value at disjoint supports, f(0) + lim f(t)/t; infinite for some."""
        return self.at_zero + self.slope_at_infinity

    @property
    def unit(self) -> str:
        """Nats where f is made of logarithms; the others are numbers of their own kind."""
        own = self.name.replace("total-variation", "total variation")
        return "nats" if self.name in IN_NATS else own


def ending_at(steepest: float, conjugate: Elementwise) -> Elementwise:
    """A conjugate that is infinite past the steepest slope of f: there u t outgrows f(t), and a
    critic bounds nothing.
    """
    return lambda u: torch.where(u <= steepest, conjugate(u.clamp_max(steepest)), math.inf)


KL = FDivergence(
    "kl", lambda v: v.exp() * v, lambda v: 1 + v, lambda u: (u - 1).exp(), torch.exp, 0.0, math.inf
)
REVERSE_KL = FDivergence(
    "reverse-kl",
    lambda v: -v,
    lambda v: -(-v).exp(),
    ending_at(0.0, lambda u: -1 - (-u).log()),
    lambda v: v - 1,
    math.inf,
    0.0,
)
TOTAL_VARIATION = FDivergence(
    "total-variation",
    lambda v: 0.5 * torch.expm1(v).abs(),
    lambda v: 0.5 * torch.tanh(v),
    ending_at(0.5, lambda u: u.clamp_min(-0.5)),
    lambda v: 0.5 * torch.tanh(v),
    0.5,
    0.5,
)
JENSEN_SHANNON = FDivergence(
    "jensen-shannon",
    lambda v: 0.5 * (LOG2 - functional.softplus(v) + v.exp() * (LOG2 - functional.softplus(-v))),
    lambda v: 0.5 * (LOG2 - functional.softplus(-v)),
    ending_at(0.5 * LOG2, lambda u: -0.5 * (2 - (2 * u).exp()).clamp_min(0).log()),
    lambda v: 0.5 * (functional.softplus(v) - LOG2),
    0.5 * LOG2,
    0.5 * LOG2,
)
HELLINGER = FDivergence(
    "hellinger",
    lambda v: 0.5 * torch.expm1(v / 2).square(),
    lambda v: -0.5 * torch.expm1(-v / 2),
    ending_at(0.5, lambda u: u / (1 - 2 * u)),
    lambda v: 0.5 * torch.expm1(v / 2),
    0.5,
    0.5,
)
PEARSON = FDivergence(
    "pearson",
    lambda v: torch.expm1(v).square(),
    lambda v: 2 * torch.expm1(v),
    lambda u: u + u.clamp_min(-2).square() / 4 - (u + 2).clamp_max(0),
    lambda v: torch.expm1(2 * v),
    1.0,
    math.inf,
)


def alpha_divergence(alpha: float) -> FDivergence:
    r"""The alpha family, :math:`f(t) = (t^\alpha - \alpha t - 1 + \alpha) / (\alpha (\alpha - 1))`.

    KL and reverse KL are its limits at 1 and 0; alpha = 2 is half of Pearson's, alpha = 1/2 four
    times the squared Hellinger.
    """
    a = check_real("alpha_divergence", "alpha", alpha)
    if a in (0.0, 1.0):
        remedy = "Use 'reverse-kl' for 0 and 'kl' for 1."
        raise invalid("alpha_divergence", "alpha", "be neither 0 nor 1", f"{a:g}", remedy)
    return FDivergence(
        f"alpha-{a:g}",
        lambda v: (torch.expm1(a * v) - a * torch.expm1(v)) / (a * (a - 1)),
        lambda v: torch.expm1((a - 1) * v) / (a - 1),
        ending_at(
            1 / (1 - a) if a < 1 else math.inf,
            lambda u: ((1 + (a - 1) * u).clamp_min(0) ** (a / (a - 1)) - 1) / a,
        ),
        lambda v: torch.expm1(a * v) / a,
        1 / a if a > 0 else math.inf,
        1 / (1 - a) if a < 1 else math.inf,
    )


F_DIVERGENCES = {
    f.name: f for f in (KL, REVERSE_KL, TOTAL_VARIATION, JENSEN_SHANNON, HELLINGER, PEARSON)
}


def f_named(name: str | FDivergence, owner: str = "f_named") -> FDivergence:
    """The divergence of a name: ``"kl"``, ..., or ``"alpha-0.3"`` for a member of the alpha family.

    >>> f_named("alpha-2").name, f_named("kl").largest
    ('alpha-2', inf)
    """
    if isinstance(name, FDivergence):
        return name
    if isinstance(name, str) and name.startswith("alpha-"):
        try:
            return alpha_divergence(float(name.removeprefix("alpha-")))
        except ValueError:
            allowed = "be alpha- and a number other than 0 and 1"
            raise invalid(owner, "divergence", allowed, repr(name)) from None
    check_choice(owner, "divergence", name, (*F_DIVERGENCES, "alpha-A"))
    return F_DIVERGENCES[name]


def variational_objective(f: FDivergence, v_p: Tensor, v_q: Tensor) -> Tensor:
    """E_p[T] - E_q[f*(T)] from a critic's log ratios at draws of p and of q: differentiable, and to
    be made large.
    """
    return f.critic(v_p).mean() - f.conjugate_critic(v_q).mean()


def variational_bound(
    f: str | FDivergence, v_p: Tensor, v_q: Tensor, *, level: float = 0.95
) -> Quantity:
    """A lower bound on D_f(p || q) with its interval, from log ratios ``(n,)``, ``(m,)`` of a
    critic that did not see these draws.

    >>> zero = torch.zeros(10)
    >>> variational_bound("jensen-shannon", zero, zero).value
    0.0
    """
    for name, v in (("v_p", v_p), ("v_q", v_q)):
        if v.dim() != 1 or len(v) < 2 or not torch.isfinite(v).all():
            got = f"shape {tuple(v.shape)}"
            raise invalid("variational_bound", name, "be at least two finite numbers", got)
    chosen = f_named(f, "variational_bound")
    terms = pooled_terms(
        (1.0, chosen.critic(v_p.double())), (-1.0, chosen.conjugate_critic(v_q.double()))
    )
    method = f"variational bound on {chosen.name}"
    if not torch.isfinite(terms).all():  # the conjugate of a critic that is far too sure
        return Quantity(
            -math.inf, kind="lower", unit=chosen.unit, method=method, verdict="do not publish"
        )
    return mean_quantity("variational_bound", terms, level, method, kind="lower", unit=chosen.unit)


def finite_divergence(f: FDivergence, log_p: Tensor, log_q: Tensor) -> Tensor:
    """D_f of two distributions on the same K states from their log masses, ``(*, K), (*, K) ->
    (*)``; zeros are allowed.
    """
    p, q = log_p.exp(), log_q.exp()
    only_p, only_q = log_q == -math.inf, log_p == -math.inf
    both = ~(only_p | only_q)
    inside = torch.where(both, _weighted(f, p, q, torch.where(both, log_p - log_q, 0.0)), 0.0)
    mass_p, mass_q = (torch.where(only_p, p, 0.0).sum(-1), torch.where(only_q, q, 0.0).sum(-1))
    outside = _counted(mass_q, f.at_zero) + _counted(mass_p, f.slope_at_infinity)
    return inside.sum(-1) + outside


def _weighted(f: FDivergence, p: Tensor, q: Tensor, v: Tensor) -> Tensor:
    """q f(e^v) without overflow: past e^600, p f(t)/t with f(t)/t continued as a line in v, which
    for KL and all bounded f it is.

    Where f itself overflows there (Pearson, and alpha outside [0, 1]), the sum is beyond float64:
    infinite, unless nothing is left of q.
    """
    far = v > FAR
    if not far.any():
        return _priced(q, f.f(v))
    ends = v.new_tensor([FAR - 1, FAR])
    before, at = f.f(ends) * (-ends).exp()
    beyond = torch.where(p > 0, math.inf, 0.0).to(p)
    if torch.isfinite(at):
        beyond = p * (at + (v - FAR) * (at - before))
    return torch.where(far, beyond, _priced(q, f.f(v.clamp_max(FAR))))


def _priced(q: Tensor, value: Tensor) -> Tensor:
    """q times f, where nothing times infinity is nothing."""
    return torch.where(q > 0, q * value, 0.0)


def _counted(mass: Tensor, price: float) -> Tensor:
    """mass times price, where nothing times infinity is nothing."""
    counted = mass * price if math.isfinite(price) else torch.full_like(mass, math.inf)
    return torch.where(mass > 0, counted, 0.0)
