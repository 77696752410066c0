r"""Where a model's modes are, and a mixture whose components begin in them.

States come from rows, from what the parameters point to, and from random states that are cooled;
then all settle at the model's own temperature, so that what is no mode there flows away. On finite
supports the mixture grows greedily: its next component is the product p_s of the state s that it
explains worst,

.. math:: s = \arg\max_s \; \log p_s(s) - \log \textstyle\sum_z \pi_z\, p_z(s), \qquad
          p_s(x) = \prod_i p(x_i \mid s_{\setminus i}),          (theory/scoring.md, eq. 5.22)

and a few rounds of EM follow. On real supports it is a mixture of normals fitted to the states, its
size chosen by BIC.

Letters: N states, D visible, K components, V values of a coordinate.
"""

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Normal

from partita.core import rng
from partita.core.protocols import Capability, EnergyModel, Sampler
from partita.evaluators.partition.annealing import anneal_here
from partita.evaluators.partition.tails import reference_draws
from partita.integration.differences import central_bend, central_slope
from partita.models.energy.guided import Components, NormalMixture, ProductMixture
from partita.models.energy.units import whitening_of

# scales at which modes beside known ones are looked for: of a minimum's own deviations, and the
# power with which they go over into the reference's
BESIDE = ((0.25, 0.0), (0.5, 0.0), *((1.0, k / 6) for k in range(7)))
SETTLING_STEPS = 50  # of the kernel at beta = 1
MOST_SETTLING = 10  # times as many, while energies fall
COLD = (4.0, 2.0)  # inverse temperatures of chains that are cooled
COOLING_STEPS = 15  # at each of them
# points at each distance, their coordinates, and points at once
MOST_LOOKS, CELLS, AT_ONCE = 1 << 17, 1 << 20, 4096
STEEPEST = 64  # of them descend from where the energy is steepest
DESCENTS, DESCENT_STEPS = 192, 100  # others that descend; on real supports
FIRST_STEP = 0.01  # of all points' deviation, which steps of a descent begin with and grow from
# the same without a gradient, where a slope takes two evaluations for each coordinate
FEW_LOOKS, FEW_STEEPEST, FEW_DESCENTS = 512, 8, 24
MOST_BENT = 64  # coordinates up to which second derivatives are taken
SAME = 0.05  # of the reference's deviation, within which two minima are one
PIT = 10.0  # nats by which a minimum may hold less than draws of the reference show
FEWER = 16  # times as few where a mode is less likely to be: farther out, or by a known one
REACHES = (1.0, 2.0, 4.0, 8.0)  # of the reference's deviations, from which points descend
SOUGHT = 64  # chains of each kind of start
EXPLAINED = 3.0  # nats by which a product at a state may explain it better than the mixture does
SHARED = 0.05  # of every component is the average of all, so that none forbids what another allows
LOCAL_SHARE = 0.02  # of the product at a state is even over all values
COPIES = 4  # chains from one state, over which 1 / w is averaged
CHANCE = 1.0  # nats by which that average may be too large
ROUNDS = 4  # of EM
EVEN = 0.3  # share of the weights that is dealt out evenly
MOST_FULL = 20  # coordinates up to which normals have full covariances
SIZES = (1, 2, 4, 8, 16)  # mixtures of normals that are tried


class Bent(NamedTuple):
    """Minima with the deviations and axes that the bends there give."""

    x: Tensor  # (M, D)
    scales: Tensor  # (M, D)
    axes: Tensor  # (M, D, D)

    def draw(self, which: Tensor, scales: Tensor, generator: torch.Generator) -> Tensor:
        """A normal draw about each of these minima, with these deviations ``(n, D)``."""
        u = rng.normal(tuple(scales.shape), self.x, generator)
        return self.x[which] + torch.einsum("nij,nj->ni", self.axes[which], scales * u)


@torch.no_grad()
def settle(
    model: EnergyModel,
    kernel: Sampler,
    x: Tensor,
    generator: torch.Generator,
    steps: int | None = None,
) -> Tensor:
    """Chains moved at beta = 1."""
    state = kernel.init(model, x, generator=generator)
    for _ in range(SETTLING_STEPS if steps is None else steps):
        state, _ = kernel.step(model, state, generator=generator)
    return state.x


@torch.no_grad()
def sought(model: EnergyModel, kernel: Sampler, generator: torch.Generator) -> Tensor:
    """States of modes that no row need have shown, settled."""
    drawn = model.reference().draw(SOUGHT, generator=generator)
    if model.support.countable_sites:
        values = model.support.values().to(drawn)
        anywhere = values[rng.categories(drawn.new_zeros(*drawn.shape, len(values)), generator)]
        anywhere = anywhere[model.free_energy(anywhere) < math.inf]
        starts = [_cooled(model, kernel, torch.cat([drawn, anywhere]), generator)]
    else:
        minima = minima_of(model, generator)
        around = _around(model, minima, 2 * SOUGHT, generator)
        inside = torch.isfinite(model.free_energy(around))
        starts = [around] if bool(inside.all()) and len(around) else [around[inside], drawn]
    pointed = model.landmarks(SOUGHT)
    if pointed is not None:
        starts.append(pointed[torch.isfinite(model.free_energy(pointed))])
    x = torch.cat(starts)
    return come_to_rest(model, kernel.suited_to(model, x), x, generator)


@torch.no_grad()
def minima_of(model: EnergyModel, generator: torch.Generator, *, fewer: int = FEWER // 2) -> Tensor:
    """Minima of the energy on real coordinates downhill from far and wide, and from beside those
    that were found, ``(M, D)``; there so many times fewer points are looked at.
    """
    apart = SAME * float(reference_draws(model).std())
    minima = distinct(descended(model, _far_and_wide(model, generator)), apart)
    beside = _beside(model, minima, fewer, generator)
    return distinct(torch.cat([minima, descended(model, beside)]), apart) if len(beside) else minima


def come_to_rest(
    model: EnergyModel, kernel: Sampler, x: Tensor, generator: torch.Generator
) -> Tensor:
    """Chains moved at beta = 1 for as long as their energies fall: a state on a far slope is no
    mode.
    """
    for _ in range(MOST_SETTLING):
        before, x = model.free_energy(x), settle(model, kernel, x, generator)
        fallen = before - model.free_energy(x)
        if float(fallen.mean()) < 2 * float(fallen.std()) / math.sqrt(len(x)):
            break
    return x


def _cooled(model: EnergyModel, kernel: Sampler, x: Tensor, generator: torch.Generator) -> Tensor:
    for beta in COLD:
        x = settle(model.annealed(beta), kernel, x, generator, COOLING_STEPS)
    return x


def _far_and_wide(model: EnergyModel, generator: torch.Generator) -> Tensor:
    """Points from which to descend, draws of the reference at some distances: any, and those of
    many where the energy is steepest.
    """
    most, steepest, descents = (
        (MOST_LOOKS, STEEPEST, DESCENTS)
        if model.differentiable
        else (min(FEW_LOOKS, MOST_LOOKS), FEW_STEEPEST, min(FEW_DESCENTS, DESCENTS))
    )
    looks, found = min(most, CELLS // model.support.width), []
    for reach in REACHES:
        n = looks if reach == 1 or not model.differentiable else looks // FEWER
        drawn = model.reference().draw(max(descents, n), generator=generator)
        x = drawn.mean(0) + reach * (drawn - drawn.mean(0))
        steep = torch.nan_to_num(_slope(model, x)).norm(dim=-1)
        found += [x[:descents], x[steep.topk(min(steepest, len(x))).indices]]
    return torch.cat(found)


def _slope(model: EnergyModel, x: Tensor) -> Tensor:
    """The gradient of F, some points at a time; by differences where autograd finds none."""
    if not model.differentiable:
        return central_slope(model.free_energy, x, _steps(model, x, 1 / 3))
    slopes = []
    for part in x.detach().split(AT_ONCE):
        part.requires_grad_()
        with torch.enable_grad():
            slopes.append(torch.autograd.grad(model.free_energy(part).sum(), part)[0])
    return torch.cat(slopes)


def _steps(model: EnergyModel, like: Tensor, power: float) -> Tensor:
    """Steps of differences, ``(D,)``: a power of the rounding, in deviations of the reference."""
    return reference_draws(model).std(0).to(like) * torch.finfo(like.dtype).eps ** power


def _bend(model: EnergyModel, at: Tensor) -> Any:
    """The second derivatives of F at a point ``(D,)``."""
    if not model.differentiable:
        return central_bend(lambda x: model.free_energy(x).double(), at, _steps(model, at, 1 / 4))
    return torch.autograd.functional.hessian(lambda x: model.free_energy(x[None])[0].double(), at)


def distinct(x: Tensor, apart: float) -> Tensor:
    """At most SOUGHT of the states ``(N, D)``, each as far as can be from those before it, and no
    nearer than ``apart``.
    """
    chosen, away = [0], (x - x[0]).norm(dim=-1)
    while len(chosen) < SOUGHT and float(away.max()) > apart:
        chosen.append(int(away.argmax()))
        away = torch.minimum(away, (x - x[chosen[-1]]).norm(dim=-1))
    return x[chosen]


def _around(model: EnergyModel, minima: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """``n`` states about minima ``(M, D)`` in turn, as far from each as the energy's bend allows,
    up to the curvature of the reference; none where all are pits that hold no mass.
    """
    if minima.shape[1] > MOST_BENT:
        return minima[torch.arange(n, device=minima.device) % len(minima)]
    bent = _bent(model, minima, generator)
    which = torch.arange(n, device=minima.device) % max(1, len(bent.x))
    return bent.draw(which, bent.scales[which], generator) if len(bent.x) else bent.x


def _bent(model: EnergyModel, minima: Tensor, generator: torch.Generator) -> Bent:
    """Those of the minima that are no pits, with deviations no larger than the reference's."""
    drawn = model.reference().draw(SOUGHT, generator=generator)
    flat = float(minima.new_tensor(1.0) / drawn.var().clamp_min(1e-12))
    bends: list[Any] = [_bend(model, at) for at in minima]
    curvature, axes = torch.linalg.eigh(torch.nan_to_num(torch.stack(bends).double()))
    curvature = curvature.clamp_min(flat)
    scales, axes = curvature.rsqrt().to(minima), axes.to(minima)
    held = 0.5 * (math.log(2 * math.pi) - curvature.log()).sum(-1) - model.free_energy(minima)
    kept = (held > _shown_by(model, drawn) - PIT).nonzero()[:, 0]
    return Bent(minima[kept], scales[kept], axes[kept])


def _beside(model: EnergyModel, minima: Tensor, fewer: int, generator: torch.Generator) -> Tensor:
    """Points from which to descend to modes that the known ones outshine: of many, drawn about
    known minima at all scales from inside of them up to the reference's deviations, those of each
    scale where the energy is steepest in a minimum's own deviations.
    """
    if not model.differentiable or minima.shape[1] > MOST_BENT:
        return minima[:0]
    bent = _bent(model, minima, generator)
    if not len(bent.x):
        return minima[:0]
    far = float(model.reference().draw(SOUGHT, generator=generator).std())
    looks, found = min(MOST_LOOKS, CELLS // minima.shape[1]) // fewer, []
    for inside, outside in BESIDE:
        which = torch.arange(looks, device=minima.device) % len(bent.x)
        scales = inside * bent.scales[which] ** (1 - outside) * far**outside
        x = bent.draw(which, scales, generator)
        slope = torch.nan_to_num(_slope(model, x))
        own = torch.einsum("nij,ni->nj", bent.axes[which], slope) * bent.scales[which]
        found.append(x[own.norm(dim=-1).topk(min(STEEPEST, looks)).indices])
    x = torch.cat(found)
    return x[torch.isfinite(model.free_energy(x))]


def _shown_by(model: EnergyModel, drawn: Tensor) -> float:
    """log of the mass that draws of the reference show by themselves: no more than Z but for
    chance.
    """
    reference = model.reference()
    log_w = (reference.free_energy(drawn) - model.free_energy(drawn)).double()
    return float(reference.log_z + torch.logsumexp(log_w, 0) - math.log(len(drawn)))


def descended(model: EnergyModel, x: Tensor, steps: int = DESCENT_STEPS) -> Tensor:
    """Minima of the energy near ``x``, by steps whose length every coordinate finds for itself;
    those that are not finite stay.
    """
    lowest = x.clone().requires_grad_()
    optimizer = torch.optim.Rprop([lowest], lr=FIRST_STEP * (float(x.std(correction=0)) or 1.0))
    for _ in range(steps):
        lowest.grad = _slope(model, lowest)
        optimizer.step()
    found = lowest.detach()
    return torch.where(
        torch.isfinite(found).all(-1, keepdim=True)
        & torch.isfinite(model.free_energy(found))[:, None],
        found,
        x,
    )


def mixture_at(
    model: EnergyModel, x: Tensor, most: int, *, generator: torch.Generator
) -> Components:
    """A mixture of at most ``most`` components in which every state of ``x`` is likely."""
    return (
        _products_at(model, x, most)
        if model.support.countable_sites
        else _normals_at(model, x, most, generator)
    )


@torch.no_grad()
def _products_at(model: EnergyModel, x: Tensor, most: int) -> ProductMixture:
    values, tables = model.support.values().to(x), site_products(model, x)
    average = tables.exp().mean(0)

    def mixed(probabilities: Tensor, counts: Tensor) -> ProductMixture:
        broad = torch.lerp(probabilities, average, SHARED)
        return ProductMixture(
            torch.log_softmax((counts + 1).log(), 0),
            values,
            (broad / broad.sum(-1, keepdim=True)).log(),
        )

    own = torch.where(x[..., None] == values, tables, 0.0).sum((-2, -1))  # log p_s(s)
    chosen, mixture = average[None], mixed(average[None], x.new_ones(1))
    while mixture.size < most:
        lack = own + mixture.free_energy(x)
        if float(lack.max()) < EXPLAINED:
            break
        chosen = torch.cat([chosen, tables[lack.argmax()].exp()[None]])
        mixture = mixed(chosen, x.new_ones(len(chosen)))
    for _ in range(ROUNDS):
        member = torch.softmax(mixture.log_parts(x), -1)  # (N, K)
        counts = member.sum(0)
        mixture = mixed(
            torch.einsum("nk,ndv->kdv", member, tables.exp())
            / counts.clamp_min(1e-6)[:, None, None],
            counts,
        )
    return mixture


def weighed(mixture: Components, x: Tensor, log_w: Tensor) -> Components:
    """The mixture with weights that follow the mass of each component at weighted draws, none of
    them far below an even one.
    """
    member = torch.softmax(mixture.log_parts(x), -1)
    share = torch.softmax(log_w, 0).to(member) @ member
    return mixture.weighing(torch.lerp(share, torch.full_like(share, 1 / mixture.size), EVEN).log())


@torch.no_grad()
def local_mass(
    model: EnergyModel, kernel: Sampler, x: Tensor, temperatures: int, *, generator: torch.Generator
) -> Tensor:
    """Upper limits on log Z of the regions that chains at ``x`` have settled in, ``(N,)``: copies
    go down to a product at each state.

    (5.23) with a share f_A of at most one; the limit is close, for the path is short. Infinite on
    real supports.
    """
    if not model.support.countable_sites:
        return x.new_full((len(x),), torch.inf, dtype=torch.float64)
    own = site_products(model, x).exp()
    table = (
        torch.lerp(own, torch.full_like(own, 1 / own.shape[-1]), LOCAL_SHARE)
        .log()
        .repeat_interleave(COPIES, 0)
    )
    view, betas = model.begun_at(table), torch.linspace(1, 0, temperatures, dtype=torch.float64)
    log_w = anneal_here(
        view, kernel, betas, x.repeat_interleave(COPIES, 0), generator=generator
    ).log_w
    inverse = (log_w - view.reference().log_z.double()).view(len(x), COPIES)
    return CHANCE - torch.logsumexp(inverse, -1) + math.log(COPIES)


@torch.no_grad()
def site_products(model: Any, x: Tensor) -> Tensor:
    """The product that the model makes of each state, log-probabilities ``(N, D) -> (N, D, V)``."""
    if Capability.CONDITIONALS not in model.capabilities:
        return torch.log_softmax(model.conditional_logits(x), -1)
    p = model.visible_given_hidden(model.hidden_given_visible(x).probs).probs
    p = torch.stack([1 - p, p], -1) if p.dim() == x.dim() else p
    return p.clamp_min(1e-6).log()


@torch.no_grad()
def _normals_at(model: Any, x: Tensor, most: int, generator: torch.Generator) -> NormalMixture:
    """Normals fitted to the states; where x given h is a normal, its variance is part of every
    component's, and no coordinates covary.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    blocks = Capability.CONDITIONALS in model.capabilities
    diagonal, seed = blocks or x.shape[-1] > MOST_FULL, rng.seed(generator)
    table, floor = x.double().cpu().numpy(), 1e-4 * float(x.double().var(0).min())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [
            GaussianMixture(
                k,
                covariance_type="diag" if diagonal else "full",
                reg_covar=floor,
                random_state=seed,
            ).fit(table)
            for k in SIZES
            if k <= min(most, len(x) // 4)
        ]
    best = min(fits, key=lambda fit: fit.bic(table))
    covariance = torch.as_tensor(best.covariances_)
    covariance = torch.diag_embed(covariance) if diagonal else covariance
    if blocks:
        given: Normal = model.visible_given_hidden(model.hidden_given_visible(x[:1]).probs)
        covariance = covariance + torch.diag_embed(given.variance[0].double().cpu())
    whitening = torch.stack([whitening_of(c) for c in covariance])
    weights, means = (torch.as_tensor(part) for part in (best.weights_, best.means_))
    return NormalMixture(weights.log().to(x), means.to(x), whitening.to(x))
