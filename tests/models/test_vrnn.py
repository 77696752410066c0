"""The variational recurrent network with linear-Gaussian parts against the Kalman filter; masks,
filters, continuation, complaints.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import partita
from partita.core.protocols import Batch
from partita.datasets import Sequences
from partita.errors import InputError, Unsupported
from partita.evaluators import IWAE, ParticleFilter, simulated_bounds
from partita.models import VAE, VRNN
from partita.models.directed.vrnn.missing import conditional_sweep
from partita.objectives import ELBO, FIVO, IWAEBound

A = torch.tensor([[0.8, 0.3], [-0.2, 0.6]], dtype=torch.float64)
C = torch.tensor([[1.0, 0.5], [0.2, -1.0]], dtype=torch.float64)
S, R, T = 0.7, 0.5, 5  # deviations of the latent walk and of what is seen; steps


class Remembers(nn.Module):
    """A recurrence whose memory is the last latent value."""

    memory = 2

    def forward(self, u: Tensor, state: Tensor) -> Tensor:
        return u[..., 2:]


def affine(weight: Tensor, bias: list[float]) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.tensor(bias))
    return layer


@pytest.fixture
def walk() -> VRNN:
    return walk_of(T)


def walk_of(length: int) -> VRNN:
    """z_t = A z_(t-1) + S noise, x_t = C z_t + R noise, with an encoder that is only roughly
    right.
    """
    g = torch.Generator().manual_seed(0)
    model = VRNN(
        length, "real", size=2, latent=2, hidden=2, features=2, variance="shared", generator=g
    ).double()
    parts = model.parts
    zero = torch.zeros(2, 2, dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    parts.phi_x, parts.phi_z, parts.recurrence = nn.Identity(), nn.Identity(), Remembers()  # type: ignore[assignment]
    parts.prior = affine(torch.cat([A, zero]), [0, 0, math.log(S), math.log(S)])  # type: ignore[assignment]
    parts.decoder = affine(torch.cat([C, zero], 1), [0, 0])  # type: ignore[assignment]
    guess = torch.cat([0.5 * torch.linalg.inv(C), 0.4 * eye], 1)
    parts.encoder = affine(
        torch.cat([guess, torch.zeros(2, 4, dtype=torch.float64)]),
        [0, 0, math.log(0.6), math.log(0.6)],
    )  # type: ignore[assignment]
    with torch.no_grad():
        model.output.log_scale.fill_(math.log(R))  # type: ignore[union-attr]
    return model


def kalman(x: Tensor) -> Tensor:
    """log p of rows (B, 2 t) of the walk, one step after the other."""
    steps = x.unflatten(-1, (-1, 2))
    mean = steps.new_zeros(len(x), 2)
    cover = torch.zeros(2, 2, dtype=torch.float64)
    total = steps.new_zeros(len(x))
    for t in range(steps.shape[1]):
        mean, cover = mean @ A.T, A @ cover @ A.T + S**2 * torch.eye(2, dtype=torch.float64)
        seen = C @ cover @ C.T + R**2 * torch.eye(2, dtype=torch.float64)
        off = steps[:, t] - mean @ C.T
        total += torch.distributions.MultivariateNormal(steps.new_zeros(2), seen).log_prob(off)
        gain = cover @ C.T @ torch.linalg.inv(seen)
        mean, cover = mean + off @ gain.T, cover - gain @ C @ cover
    return total


def joint_covariance(T: int = T) -> np.ndarray:
    """Of x_1 ... x_T of the walk, (2 T, 2 T)."""
    G = torch.zeros(2 * T, 2 * T, dtype=torch.float64)  # z = G noise
    for t in range(T):
        for s in range(t + 1):
            G[2 * t : 2 * t + 2, 2 * s : 2 * s + 2] = torch.linalg.matrix_power(A, t - s) * S
    see = torch.block_diag(*[C] * T) @ G
    return (see @ see.T + R**2 * torch.eye(2 * T, dtype=torch.float64)).numpy()


def test_the_kalman_filter_is_the_joint_normal() -> None:
    x = torch.randn(4, 2 * T, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    truth = stats.multivariate_normal(np.zeros(2 * T), joint_covariance()).logpdf(x.numpy())  # type: ignore[arg-type]
    torch.testing.assert_close(kalman(x), torch.from_numpy(truth))


@pytest.mark.parametrize(("threshold", "every"), [(0.0, 1), (0.5, 1), (1.0, 1), (1.0, 2)])
def test_the_estimate_of_p_is_unbiased(
    walk: VRNN, threshold: float, every: int, generator: torch.Generator
) -> None:
    """E[p_hat / p] = 1 within 4.5 standard errors over 8,000 runs with k = 16, for each of 2 rows
    (false alarm 2e-5).
    """
    rows = walk.draw(2, generator=generator)
    with torch.no_grad():
        log_p = walk.filtered(
            rows.repeat(8000, 1), 16, threshold=threshold, every=every, generator=generator
        ).view(8000, 2)
    ratio = (log_p - kalman(rows)).exp()
    assert ((ratio.mean(0) - 1).abs() < 4.5 * ratio.std(0) / math.sqrt(8000)).all()
    assert (ratio.std(0) / math.sqrt(8000) < 0.03).all()


def test_bounds_approach_the_kalman_filter_from_below(
    walk: VRNN, generator: torch.Generator
) -> None:
    """Means over 50 rows x 60 repeats, whose errors are below 0.03."""
    rows = walk.draw(50, generator=generator)
    truth, many = kalman(rows).mean().item(), rows.repeat(60, 1)
    with torch.no_grad():
        fit, kl = walk.elbo_terms(many, generator=generator)
        draws = {k: walk.log_weights(many, k, generator=generator) for k in (1, 4, 16, 64)}
        weighted = [
            (torch.logsumexp(log_w, 0) - math.log(k)).mean().item() for k, log_w in draws.items()
        ]
        by_filter = [walk.filtered(many, k, generator=generator).mean().item() for k in (4, 16, 64)]
    log_w = draws[1][0]
    gap = (fit - kl.sum(-1)).mean() - log_w.mean()
    error = torch.hypot(log_w.std(), (fit - kl.sum(-1)).std()) / math.sqrt(len(many))
    assert (gap / error).abs() < 4.5  # the two forms of the ELBO
    for bounds in (weighted, by_filter):
        assert bounds == sorted(bounds) and bounds[-1] < truth + 0.03
    assert truth - weighted[-1] < 0.25 * (truth - weighted[0]) and by_filter[0] > weighted[0]


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_filter_that_never_resamples_is_importance_sampling(
    cell: str, generator: torch.Generator
) -> None:
    model = VRNN(7, size=3, latent=2, hidden=6, features=5, cell=cell, generator=generator).double()
    x = model.draw(4, generator=generator)
    seeds = [torch.Generator().manual_seed(9) for _ in range(2)]
    plain = torch.logsumexp(model.log_weights(x, 5, generator=seeds[0]), 0) - math.log(5)
    torch.testing.assert_close(
        model.filtered(x, 5, threshold=0.0, generator=seeds[1]), plain, atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("what", ["log_weights", "filtered", "elbo_terms"])
def test_padding_changes_nothing(what: str, generator: torch.Generator) -> None:
    model = VRNN(9, "real", size=2, latent=2, hidden=6, features=5, generator=generator).double()
    x = torch.randn(3, 10, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([5, 2, 3])
    draws = () if what == "elbo_terms" else (4,)

    def value(rows: Tensor, *ends: Tensor) -> Tensor:
        found = getattr(model, what)(
            rows, *draws, *ends, generator=torch.Generator().manual_seed(3)
        )
        return found[0] - found[1].sum(-1) if isinstance(found, tuple) else found

    nan = (
        x.unflatten(1, (5, 2))
        .where((torch.arange(5) < lengths[:, None])[..., None], torch.nan)
        .flatten(1)
    )
    garbage = torch.cat([nan.nan_to_num(1e6), torch.full((3, 8), -7e5, dtype=torch.float64)], 1)
    for other in (
        value(garbage, lengths),
        value(torch.cat([nan, torch.full((3, 8), torch.nan)], 1)),
        value(x, lengths),
    ):
        torch.testing.assert_close(other, value(nan), atol=1e-12, rtol=0)


def test_a_short_row_scores_the_same_alone(generator: torch.Generator) -> None:
    model = VRNN(6, size=2, latent=3, hidden=6, features=5, generator=generator).double()
    x, z = model.draw_joint(2, generator=generator)
    lengths = torch.tensor([6, 4])
    together = model.log_weight(x, z, lengths)
    alone = model.log_weight(x[1:, :8], z[1:, :12])
    torch.testing.assert_close(together[1:], alone, atol=1e-12, rtol=0)
    torch.testing.assert_close(
        model.log_joint(x, z) - model.posterior(x).log_prob(z),
        model.log_weight(x, z),
        atol=1e-12,
        rtol=0,
    )


def test_features_of_a_short_row_are_those_it_has_alone(generator: torch.Generator) -> None:
    model = VRNN(6, size=2, latent=3, hidden=6, features=5, generator=generator).double()
    x = model.draw(2, generator=generator)
    x[1, 8:] = torch.nan
    torch.testing.assert_close(model.encode(x)[1:], model.encode(x[1:, :8]), atol=1e-12, rtol=0)
    assert not torch.allclose(model.encode(x)[1], model.encode(x[1:].nan_to_num())[0])


def test_every_bit_row_has_a_probability_and_they_sum_to_one(generator: torch.Generator) -> None:
    """By a grid over the two latent values; IWAE stays below it on average and its nats are counted
    by steps.
    """
    model = VRNN(
        2, size=2, latent=1, hidden=3, features=3, activation="tanh", generator=generator
    ).double()
    states = model.support.states(0, 16, torch.zeros((), dtype=torch.float64))
    line = torch.linspace(-8, 8, 101, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    with torch.no_grad():
        each = model.log_joint(states.repeat_interleave(len(grid), 0), grid.repeat(16, 1)).view(
            16, -1
        )
    log_p = torch.logsumexp(each, 1) + 2 * math.log(0.16)
    assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-6)
    q = partita.evaluate(model, states, evaluator=IWAE(1000), generator=generator)
    assert q.kind == "lower" and log_p.mean().item() - 0.2 < q.value < log_p.mean().item() + 0.02
    assert q.details["steps"] == 32 and q.details["per_step"] == pytest.approx(q.value / 2)


def test_draws_follow_the_model(walk: VRNN, generator: torch.Generator) -> None:
    """The covariance of 20,000 draws against the joint normal's: 55 entries within 4.5 standard
    errors (false alarm 4e-4).
    """
    x = walk.draw(20_000, generator=generator)
    truth = torch.from_numpy(joint_covariance())
    error = torch.sqrt((truth**2 + truth.diagonal()[:, None] * truth.diagonal()) / len(x))
    assert ((x.T @ x / len(x) - truth).abs() < 4.5 * error).all()


def test_a_continuation_follows_from_its_prefix(walk: VRNN, generator: torch.Generator) -> None:
    """The mean of x_4 given x_1, x_2, x_3 by the joint normal. 1,500 continuations: 4.5 standard
    errors, and 2 % for 128 particles.
    """
    prefix = torch.tensor([[1.5, -1.0, 2.0, 0.5, 1.0, -2.0]], dtype=torch.float64)
    more = walk.extend(prefix.expand(1500, -1), 2, generator=generator)
    assert more.shape == (1500, 10) and torch.equal(more[:, :6], prefix.expand(1500, -1))
    cover = torch.from_numpy(joint_covariance())
    gain = cover[6:8, :6] @ torch.linalg.inv(cover[:6, :6])
    spread = (cover[6:8, 6:8] - gain @ cover[:6, 6:8]).diagonal().sqrt()
    off = more[:, 6:8].mean(0) - (prefix @ gain.T)[0]
    assert (off.abs() < 4.5 * spread / math.sqrt(1500) + 0.02 * spread).all()
    assert ((more[:, 6:8].std(0) / spread - 1).abs() < 0.1).all()
    assert walk.extend(prefix[:, :0].expand(3, -1), 2, generator=generator).shape == (3, 4)


def given_the_rest(x: Tensor, lost: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where x is known, and mean and deviation of what is lost of it, by the joint normal."""
    cover = torch.from_numpy(joint_covariance(len(x) // 2))
    known = torch.tensor([i for i in range(len(x)) if i not in lost.tolist()])
    gain = cover[lost][:, known] @ torch.linalg.inv(cover[known][:, known])
    return (
        known,
        gain @ x[known],
        (cover[lost][:, lost] - gain @ cover[known][:, lost]).diagonal().sqrt(),
    )


def test_particle_gibbs_keeps_the_posterior_of_what_is_missing(
    walk: VRNN, generator: torch.Generator
) -> None:
    """x_2 and half of x_4 missing: mean and deviation given the rest, by the joint normal. 1,500
    chains from the prior, 12 sweeps of 8.
    """
    x = torch.tensor([1.0, -0.5, 0.3, 0.2, 2.0, 1.0, -1.0, 0.5, 0.4, 0.1], dtype=torch.float64)
    lost = torch.tensor([2, 3, 7])
    rows = x.clone()
    rows[lost] = torch.nan
    kept, steps = None, rows.expand(1500, -1).unflatten(-1, (-1, 2))
    with torch.no_grad():
        for _ in range(12):
            kept, _ = conditional_sweep(walk, steps, kept, generator, 8)
    assert kept is not None
    known, mean, spread = given_the_rest(x, lost)
    found = kept.x.flatten(1)[:, lost]
    assert ((found.mean(0) - mean).abs() < 4.5 * spread / math.sqrt(1500)).all()
    assert ((found.std(0) / spread - 1).abs() < 4.5 / math.sqrt(3000)).all()
    filled = walk.fill(rows[None].repeat(2, 1), "mean", generator=generator)
    assert torch.equal(filled[:, known], x[known].expand(2, -1)) and torch.isfinite(filled).all()


def test_a_hole_early_in_a_long_row_is_filled_by_its_mean_and_not_by_one_draw(
    generator: torch.Generator,
) -> None:
    """x_2 of 40 steps. A single draw errs by one deviation, its mean by none: means of 16 rows err
    by 0.35 of it, give or take 0.05.
    """
    model, lost = walk_of(40), torch.tensor([2, 3])
    x = model.draw(1, generator=generator)[0]
    _, mean, spread = given_the_rest(x, lost)
    filled = model.fill(
        x.index_fill(0, lost, torch.nan).repeat(16, 1), "mean", generator=generator
    )[:, lost]
    assert ((filled - mean) / spread).square().mean().sqrt() < 0.6


def test_a_filter_scores_from_below_with_an_interval(walk: VRNN) -> None:
    """Of 30 intervals at 95 % at least 23 hold the mean of all (fewer has probability 1e-3, normal
    quantiles with 40 rows of 2 repeats).
    """
    rows = walk.draw(40, generator=torch.Generator().manual_seed(6))
    scores = [
        partita.evaluate(
            walk, rows, evaluator=ParticleFilter(16), generator=torch.Generator().manual_seed(i)
        )
        for i in range(30)
    ]
    center, truth = sum(q.value for q in scores) / 30, kalman(rows).mean().item()
    assert (
        sum(q.low < center < q.high for q in scores) >= 23 and truth - 0.5 < center < truth + 0.02
    )
    assert scores[0].kind == "lower" and scores[0].details["per_step"] == pytest.approx(
        scores[0].value / T
    )


def test_a_few_rows_that_the_filter_loses_are_not_called_tight(walk: VRNN) -> None:
    """Twelve of forty rows far from all particles: the bound is more than a hundred nats below the
    truth, and the typical row is fine.

    The interval of a mixture that restarts found holds the truth, and is at most 0.3 nat wide.
    """
    rows = walk.draw(40, generator=torch.Generator().manual_seed(6))
    plain = partita.evaluate(
        walk, rows, evaluator=ParticleFilter(256), generator=torch.Generator().manual_seed(0)
    )
    rows[:12] *= 20
    lost = partita.evaluate(
        walk, rows, evaluator=ParticleFilter(64), generator=torch.Generator().manual_seed(0)
    )
    weighed, sought = (
        partita.evaluate(
            walk, rows, evaluator=IWAE(64, n), generator=torch.Generator().manual_seed(0)
        )
        for n in (0, None)
    )
    truth = kalman(rows).mean().item()
    assert (
        lost.value < weighed.value + 20 < truth - 50
        and sought.low < truth < sought.high < sought.low + 0.3
    )
    assert (plain.verdict, lost.verdict, sought.verdict) == ("tight", "do not publish", "tight")
    assert plain.details["active_units"] == 2 and plain.details["kl_per_dimension"].shape == (2,)


def test_both_sides_of_simulated_rows(walk: VRNN) -> None:
    """Errors of the means are about 0.06; the gap closes with k."""
    truth = (
        kalman(walk.draw_joint(1000, generator=torch.Generator().manual_seed(4))[0]).mean().item()
    )
    low, high = simulated_bounds(walk, 1000, 64, generator=torch.Generator().manual_seed(4))
    assert low.value < truth + 0.03 and high.value > truth - 0.03 and high.value - low.value < 1.0


# a recurrence alone knows bits that repeat
@pytest.mark.filterwarnings("ignore:fit. the posterior has collapsed")
@pytest.mark.parametrize("objective", [ELBO(), IWAEBound(3), FIVO(3)])
def test_every_bound_learns_rows_of_different_lengths(
    objective: Any, generator: torch.Generator
) -> None:
    """Bits that repeat the one before nine times in ten: 0.33 nats a step where 0.69 is chance."""
    rng = np.random.default_rng(0)
    rows = Sequences.of([np.cumsum(rng.random(n) < 0.1) % 2 for n in rng.integers(4, 12, 120)])
    model = VRNN(rows.longest, latent=2, hidden=16, features=16, generator=generator)
    run = partita.fit(
        model, rows, objective, steps=80, batch_size=16, learning_rate=0.02, generator=generator
    )
    first, last = (
        sum(v for _, v in part) / 10
        for part in (run.series("model")[:10], run.series("model")[-10:])
    )
    q = partita.evaluate(model, rows, evaluator=IWAE(32), generator=generator)
    assert (
        last < first
        and q.details["per_step"] > -0.55
        and {"active_units", "kl_per_dimension"} <= q.details.keys()
    )


def test_settings_rebuild_the_model_and_steps_have_divergences(generator: torch.Generator) -> None:
    model = VRNN(4, size=2, latent=2, hidden=5, features=4, cell="lstm", generator=generator)
    again = VRNN.from_settings(model.settings(), generator=generator)
    again.load_state_dict(model.state_dict())
    x = model.draw(3, generator=generator)
    kl = model.step_kl(x, torch.tensor([4, 2, 1]), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        again.step_kl(x, torch.tensor([4, 2, 1]), generator=torch.Generator().manual_seed(1)), kl
    )
    assert (
        kl.shape == (3, 4)
        and (kl[1, 2:] == 0).all()
        and (kl[0] > 0).all()
        and model.encode(x).shape == (3, 5)
    )


def test_wrong_lengths_and_values_are_named(generator: torch.Generator) -> None:
    model = VRNN(4, size=2, latent=2, hidden=5, features=4, generator=generator)
    x = model.draw(2, generator=generator)
    with pytest.raises(
        InputError, match="VRNN: lengths must be from 1 to the 4 steps of x; got 0 in row 1"
    ):
        model.log_weights(x, 2, torch.tensor([3, 0]), generator=generator)
    with pytest.raises(
        InputError, match="VRNN: lengths must be from 1 to the 4 steps of x; got 5 in row 0"
    ):
        model.log_weights(x, 2, torch.tensor([5, 1]), generator=generator)
    with pytest.raises(InputError, match="VRNN: x must be rows of 1 to 4 steps of 2"):
        model.log_weights(torch.zeros(2, 10), 2, generator=generator)
    with pytest.raises(
        InputError, match="VRNN: x must be finite up to the end of each row; got nan before it"
    ):
        model.log_weights(x.index_fill(1, torch.tensor([1]), torch.nan), 2, generator=generator)
    with pytest.raises(InputError, match=r"evaluate: x must hold only 0 and 1; got 0.5"):
        partita.evaluate(model, torch.full((2, 8), 0.5), generator=generator)
    with pytest.raises(
        InputError, match="extend: prefix must be whole, for all rows go on from one step; got nan"
    ):
        model.extend(
            torch.tensor([[1.0, 0.0, 1.0, 1.0], [1.0, 0.0, torch.nan, torch.nan]]),
            2,
            generator=generator,
        )
    with pytest.raises(InputError, match="cell must be one of 'gru', 'lstm'"):
        VRNN(4, cell="rnn", generator=generator)
    with pytest.raises(
        Unsupported,
        match=r"IWAEBound\(gradient='doubly'\) cannot run on VRNN.*it is no VAE.*Use "
        r"gradient='plain'",
    ):
        partita.fit(model, x, IWAEBound(2, "doubly"), generator=generator)
    with pytest.raises(Unsupported, match=r"FIVO cannot run on VAE.*Use IWAEBound instead"):
        partita.fit(VAE(4, 2, generator=generator), torch.zeros(3, 4), FIVO(), generator=generator)


def test_weights_of_rows_weigh_the_bound(generator: torch.Generator) -> None:
    model = VRNN(3, latent=1, hidden=4, features=4, generator=generator)
    x, weight = model.draw(4, generator=generator), torch.tensor([2.0, 0.0, 1.0, 1.0])
    seed = torch.Generator().manual_seed(1)
    losses, *_ = IWAEBound(2).losses(model, Batch(x, weight), None, generator=seed)  # type: ignore[arg-type]
    rows = torch.logsumexp(
        model.log_weights(x, 2, generator=torch.Generator().manual_seed(1)), 0
    ) - math.log(2)
    torch.testing.assert_close(losses["model"], -(weight * rows).mean())
