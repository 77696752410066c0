"""The pieces of the estimators: Gumbel's trick, conditional noise, control variates, the
reparameterization table, wrong input.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch import distributed
from torch.distributions import Bernoulli, Independent, OneHotCategorical
from torch.nn.parallel import DistributedDataParallel

from partita.errors import InputError, Unsupported
from partita.gradients import (
    NVIL,
    DisARM,
    GumbelSoftmax,
    LeaveOneOut,
    MovingAverage,
    MuProp,
    OptimalConstant,
    Rebar,
    Reinforce,
    Relax,
    Reparameterization,
    estimator_named,
)
from partita.gradients.base import Estimator, State
from partita.gradients.control_variates import best_coefficients, controlled
from partita.gradients.latents import Bits, Continuous, OneHot
from partita.gradients.multisample import log_mean_exp, log_mean_exp_without
from partita.gradients.relaxation import exponential_race, gumbel_max
from partita.gradients.reparameterization import (
    exponential,
    gamma_of_shape_one,
    multivariate_normal,
    univariate_normal,
)

N = 100_000
ALARM = 1e-4  # of each test below that has a p-value


def double(*values: Any) -> torch.Tensor:
    return torch.tensor(*values, dtype=torch.float64)


@pytest.mark.parametrize(
    "draw", [lambda pi, g: gumbel_max(pi.log(), g), exponential_race], ids=["gumbel", "race"]
)
def test_gumbel_max_draws_from_pi(draw: Any, generator: torch.Generator) -> None:
    pi = double([0.1, 0.25, 0.05, 0.6])
    count = torch.bincount(draw(pi.expand(N, 4), generator), minlength=4)
    assert stats.chisquare(count.numpy(), (pi * N).numpy()).pvalue > ALARM


@pytest.mark.parametrize(
    "layer", [Bits(double([[0.7]])), OneHot(double([[[0.3, -1.0, 0.8]]]))], ids=["bits", "one-hot"]
)
def test_conditional_scores_have_the_distribution_of_the_scores(
    layer: Any, generator: torch.Generator
) -> None:
    """z from s, then s given z: the same marginal, and the same z again."""
    wide = type(layer)(layer.logits.expand(N, *layer.logits.shape[1:]))
    s = wide.scores(wide.noise(generator))
    z = wide.harden(s)
    again = wide.conditional_scores(z, wide.noise(generator))
    torch.testing.assert_close(wide.harden(again), z)
    for column in range(s.shape[-1]):
        assert (
            stats.ks_2samp(
                s[..., column].flatten().numpy(), again[..., column].flatten().numpy()
            ).pvalue
            > ALARM
        )


def test_conditional_scores_of_hopeless_categories_have_finite_slopes(
    generator: torch.Generator,
) -> None:
    """A category of probability e^-200, far below what float32 holds, neither wins nor spoils the
    gradient.
    """
    logits = torch.tensor([[[0.0, -200.0, 1.0]]], requires_grad=True)
    layer = OneHot(logits)
    s = layer.conditional_scores(torch.tensor([[[1.0, 0.0, 0.0]]]), layer.noise(generator))
    (slope,) = torch.autograd.grad(s.sum(), logits)
    assert torch.isfinite(s).all() and torch.isfinite(slope).all() and s.argmax() == 0


def test_log_probabilities_agree_with_torch(generator: torch.Generator) -> None:
    logits = torch.randn(5, 3, generator=generator).double()
    bits, z = Bits(logits), Bits(logits).draw(generator, (2,))
    torch.testing.assert_close(
        bits.log_prob(z), Independent(Bernoulli(logits=logits), 1).log_prob(z)
    )
    categories = OneHot(torch.randn(5, 2, 4, generator=generator).double())
    z = categories.draw(generator)
    torch.testing.assert_close(
        categories.log_prob(z),
        Independent(OneHotCategorical(logits=categories.logits), 1).log_prob(z),
    )


def test_the_table_of_reparameterizations(generator: torch.Generator) -> None:
    epsilon = torch.randn(N, generator=generator).double()
    u = torch.rand(N, generator=generator).double()
    drawn = {
        "norm": (univariate_normal(double(0.5), double(2.0), epsilon), stats.norm(0.5, 2.0)),
        "gamma": (
            gamma_of_shape_one(double(3.0), exponential(double(1.0), u)),
            stats.gamma(1, scale=3.0),
        ),
        "expon": (exponential(double(4.0), u), stats.expon(scale=0.25)),
    }
    for sample, target in drawn.values():
        assert stats.kstest(sample.numpy(), target.cdf).pvalue > ALARM
    A = double([[1.0, 0.0], [0.5, 2.0]])
    y = multivariate_normal(double([1.0, -1.0]), A, torch.randn(N, 2, generator=generator).double())
    # five standard errors of the largest entry
    torch.testing.assert_close(y.T.cov(), A @ A.T, atol=0.1, rtol=0)


def test_the_best_control_variate_divides_by_the_variance_of_w(generator: torch.Generator) -> None:
    """Var(V) - Cov^2 / Var(W): with Var(W) = 4 its square would give another number."""
    w = 2 * torch.randn(N, 1, generator=generator).double()
    v = 1.5 * w[:, 0] + torch.randn(N, generator=generator).double()
    alpha = best_coefficients(v, w)
    joint = torch.stack([v, w[:, 0]]).cov()
    torch.testing.assert_close(alpha, joint[0, 1:] / joint[1, 1])
    least = controlled(v, w, w.mean(0), alpha).var()
    torch.testing.assert_close(least, joint[0, 0] - joint[0, 1] ** 2 / joint[1, 1])
    assert abs(float(least) - float(joint[0, 0] - joint[0, 1] ** 2 / joint[1, 1] ** 2)) > 5


def test_several_control_variates_at_once(generator: torch.Generator) -> None:
    w = torch.randn(N, 3, generator=generator).double()
    alpha = double([1.0, -2.0, 0.5])
    v = w @ alpha + 0.1 * torch.randn(N, generator=generator).double()
    # six standard errors
    torch.testing.assert_close(best_coefficients(v, w), alpha, atol=2e-3, rtol=0)


def test_the_bound_without_a_draw(generator: torch.Generator) -> None:
    f = torch.randn(3, 2, generator=generator).double()
    for k in range(3):
        others = [f[j] for j in range(3) if j != k]
        torch.testing.assert_close(
            log_mean_exp_without(f)[k],
            log_mean_exp(torch.stack([*others, torch.stack(others).mean(0)])),
        )


def test_constant_f_has_no_gradient_and_no_noise(generator: torch.Generator) -> None:
    logits = torch.zeros(6, 2, dtype=torch.float64, requires_grad=True)
    for estimator in (LeaveOneOut(3), MuProp(), DisARM(), Rebar(learn=False)):
        state = estimator.init((2,), like=logits, generator=generator)
        made = estimator.estimate(
            [lambda _: Bits(logits)], lambda z: 0 * z[0].sum(-1) + 5.0, state, generator=generator
        )
        (slope,) = torch.autograd.grad(made.surrogate.sum(), logits)
        assert slope.abs().max() < 1e-12
        torch.testing.assert_close(made.value, torch.full((6,), 5.0).double())


def test_a_baseline_learns_what_depends_on_the_context(generator: torch.Generator) -> None:
    """f moves by twenty with the context: one average for all rows must leave that as noise, a
    baseline that sees the context need not.
    """
    context = (torch.rand(400, 1, generator=generator) < 0.5).double()

    def spread(estimator: Estimator) -> float:
        state, noise = estimator.init((3,), 1, like=context, generator=generator), []
        optimizer = (
            torch.optim.Adam(state.module.parameters(), lr=0.03)
            if list(state.module.parameters())
            else None
        )
        for step in range(150):
            logits = torch.zeros(400, 3, dtype=torch.float64, requires_grad=True)
            f = lambda z: 20 * context[:, 0] + torch.tanh(z[0]).sum(-1)  # noqa: E731
            made = estimator.estimate(
                [lambda _, at=logits: Bits(at)], f, state, context, generator=generator
            )
            state = made.state
            noise += (
                [
                    torch.autograd.grad(made.surrogate.sum(), logits, retain_graph=True)[0]
                    .var(0)
                    .sum()
                ]
                if step >= 100
                else []
            )
            if optimizer is not None:
                optimizer.zero_grad()
                made.extra.backward()
                optimizer.step()
        return float(torch.stack(noise).mean())

    assert spread(NVIL(hidden=8, normalize=False)) < 0.05 * spread(MovingAverage())


def test_what_is_learned_moves_nothing_else(generator: torch.Generator) -> None:
    """The loss of scale, temperature and network reaches neither the logits nor the parameters of
    f.
    """
    logits, w = (torch.randn(4, 3, generator=generator).double().requires_grad_() for _ in range(2))
    for estimator in (Rebar(), Relax(hidden=4)):
        state = estimator.init((3,), like=logits, generator=generator)
        made = estimator.estimate(
            [lambda _: Bits(logits)],
            lambda z: torch.tanh(z[0] * w).sum(-1),
            state,
            generator=generator,
        )
        made.extra.backward()
        assert logits.grad is None and w.grad is None
        assert all(
            p.grad is not None and p.grad.abs().sum() > 0
            for p in state.module.parameters()
            if p.numel() != 1 or p.dim()
        )


@pytest.mark.parametrize("layer", [Bits, OneHot])
def test_the_slope_of_the_variance_is_that_of_finite_differences(
    layer: Any, generator: torch.Generator
) -> None:
    """E[g^2] at one noise, moved along each scale, temperature and weight of the network."""
    shape = (5, 3) if layer is Bits else (5, 1, 3)
    logits, w = (torch.randn(shape, generator=generator).double() for _ in range(2))
    estimator = Relax(hidden=2)
    state = estimator.init((3,), like=logits, generator=generator)

    def size() -> torch.Tensor:
        def f(z: Any) -> torch.Tensor:
            return torch.tanh(z[0] * w).flatten(-len(shape) + 1).sum(-1)

        leaf = logits.clone().requires_grad_()
        return estimator.estimate(
            [lambda _: layer(leaf)], f, state, generator=torch.Generator().manual_seed(1)
        ).extra

    size().backward()
    for p in state.module.parameters():
        flat, slopes = p.data.view(-1), p.grad.view(-1)
        for i in range(len(flat)):
            flat[i] += 1e-5
            above = float(size().detach())
            flat[i] -= 2e-5
            below = float(size().detach())
            flat[i] += 1e-5
            assert (above - below) / 2e-5 == pytest.approx(float(slopes[i]), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize(
    "estimator", [NVIL(hidden=4), Rebar(), Relax(hidden=4)], ids=["nvil", "rebar", "relax"]
)
def test_what_is_learned_is_exchanged_between_processes(
    estimator: Estimator, tmp_path: Path, generator: torch.Generator
) -> None:
    """One process stands for many: every parameter of the wrapped module passes through the
    exchange, with the gradient it has alone.
    """
    logits = torch.randn(4, 3, generator=generator)
    state = estimator.init((3,), like=logits, generator=generator)

    def slopes(state: State) -> list[torch.Tensor]:
        seed = torch.Generator().manual_seed(1)
        q = [lambda _: Bits(logits.clone().requires_grad_())]
        estimator.estimate(
            q, lambda z: torch.tanh(2 * z[0]).sum(-1), state, generator=seed
        ).extra.backward()
        return [p.grad for p in state.module.parameters()]

    alone, sent = [g.clone() for g in slopes(state)], []

    def hook(_: Any, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        sent.append(bucket.buffer().numel())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    state.module.zero_grad()
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    try:
        wrapped = DistributedDataParallel(state.module)
        wrapped.register_comm_hook(None, hook)
        together = slopes(state._replace(module=wrapped))
    finally:
        distributed.destroy_process_group()
    assert sum(sent) == sum(g.numel() for g in alone)
    torch.testing.assert_close(together, alone)


def run(estimator: Estimator, layer: Any, f: Any, generator: torch.Generator) -> None:
    state = estimator.init((2,), like=torch.zeros(()), generator=generator)
    estimator.estimate([lambda _: layer], f, state, generator=generator)


def test_wrong_input_is_named(generator: torch.Generator) -> None:
    bits, f = Bits(torch.zeros(5, 2)), lambda z: z[0].sum(-1)
    coins = Continuous(Bernoulli(torch.full((5,), 0.5)))
    with pytest.raises(
        InputError, match=r"f must return one number for each row, shape \(5,\); got shape \(\)"
    ):
        run(Reinforce(), bits, lambda z: z[0].sum(), generator)
    with pytest.raises(
        Unsupported, match=r"Reparameterization cannot run on Bits latents.*Use GumbelSoftmax"
    ):
        run(Reparameterization(), bits, f, generator)
    with pytest.raises(Unsupported, match=r"cannot run on Bernoulli latents"):
        run(Reparameterization(), coins, lambda z: z[0], generator)
    with pytest.raises(
        Unsupported,
        match=r"DisARM cannot run on OneHot latents: it is made for Bits. Use LeaveOneOut or Rebar",
    ):
        run(DisARM(), OneHot(torch.zeros(5, 1, 2)), f, generator)
    with pytest.raises(Unsupported, match=r"MuProp cannot run on Continuous latents"):
        run(MuProp(), coins, f, generator)
    with pytest.raises(Unsupported, match=r"Rebar cannot run on Continuous latents"):
        run(Rebar(), coins, f, generator)
    with pytest.raises(Unsupported, match=r"a relaxation cannot run on Continuous latents"):
        run(GumbelSoftmax(), coins, f, generator)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GumbelSoftmax(0.0), "GumbelSoftmax: temperature must be a finite number above 0"),
        (lambda: LeaveOneOut(1), "LeaveOneOut: samples must be a whole number of at least 2"),
        (lambda: OptimalConstant(float("nan")), "OptimalConstant: c must be a finite number"),
        (lambda: Rebar(-1.0), "Rebar: temperature"),
        (lambda: Relax(hidden=0), "Relax: hidden"),
        (lambda: estimator_named("rebarr"), "estimator must be one of 'reinforce'"),
    ],
)
def test_wrong_settings_are_named(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
