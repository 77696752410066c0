"""Fisher matrices against enumeration and explicit Jacobians; steps that do not depend on the
coordinates; what K-FAC gets right.
"""

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    Laplace,
    MultivariateNormal,
    Normal,
)

import partita
from partita.core import Binary
from partita.errors import Diverged, InputError, Unsupported
from partita.models import RBM, VAE, Boltzmann, Flow, MaxEnt
from partita.objectives import NCE, PCD, ExactLikelihood
from partita.optim.natural_gradient import (
    KFAC,
    KroneckerMetric,
    MatrixMetric,
    NaturalGradient,
    PredictiveMetric,
    ScoreMetric,
    bernoulli_fisher,
    fisher_matrix,
    fisher_of,
    gaussian_fisher,
    score_metric,
    scores_of,
)
from partita.tables import as_rows
from partita.training.optimizers import metric_of
from partita.training.session import start_session
from partita.training.settings import resolve_settings


def states(n: int) -> Tensor:
    return torch.tensor(list(product((0.0, 1.0), repeat=n)), dtype=torch.float64)


def rows_of_gradients(model: Any, x: Tensor) -> Tensor:
    """One backward pass for each row."""
    parameters = list(model.parameters())
    return torch.stack(
        [
            torch.cat([g.flatten() for g in torch.autograd.grad(-model(row), parameters)])
            for row in x
        ]
    )


def energy_models(generator: torch.Generator) -> dict[str, Any]:
    def paired(x: Tensor, h: Tensor) -> Tensor:
        return torch.cat([x, x * h, h], -1)

    models = {
        "rbm": RBM(4, 3, scale=0.7, generator=generator),
        "maxent": MaxEnt("pairwise", Binary(4), generator=generator),
        "hidden maxent": MaxEnt(paired, Binary(4), hidden=Binary(1), generator=generator),
        "boltzmann": Boltzmann(4, generator=generator),
    }
    for model in models.values():
        model.double()
        for p in model.parameters():
            p.data.add_(0.5 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return models


@pytest.mark.parametrize("name", ["rbm", "maxent", "hidden maxent", "boltzmann"])
def test_fisher_is_the_expected_outer_product_of_scores(
    name: str, generator: torch.Generator
) -> None:
    model, x = energy_models(generator)[name], states(4)
    p = torch.softmax(-model(x), 0).detach()
    s = rows_of_gradients(model, x)
    scores = s - p @ s  # of log p: the gradient of log Z is the mean
    torch.testing.assert_close(
        fisher_matrix(model), scores.mT @ (p[:, None] * scores), atol=1e-12, rtol=1e-10
    )
    found = scores_of(model, x)
    v = torch.randn(s.shape[1], generator=generator, dtype=torch.float64)
    torch.testing.assert_close(found.dot(v), s @ v)
    torch.testing.assert_close(found.weighted(p), p @ s)
    torch.testing.assert_close(ScoreMetric(found, p).product(v), fisher_matrix(model) @ v)


def test_fisher_of_maxent_is_the_covariance_of_its_features_and_the_hessian_of_log_z(
    generator: torch.Generator,
) -> None:
    model, x = energy_models(generator)["maxent"], states(4)
    phi = model.expected_features(x)

    def log_z(theta: Tensor) -> Tensor:
        return torch.logsumexp(phi @ theta, 0)

    torch.testing.assert_close(
        fisher_matrix(model), torch.autograd.functional.hessian(log_z, model.theta.detach())
    )  # type: ignore[arg-type]


def test_hidden_units_enter_by_their_expectation(generator: torch.Generator) -> None:
    """Cov(s(x, h)) over both exceeds Cov_x(E[s | x]) by E[Cov(s | x)], which is positive
    semi-definite and not zero.
    """
    model = energy_models(generator)["rbm"]
    x, h = (
        part.squeeze(-2)
        for part in torch.cat([states(4).repeat_interleave(8, 0), states(3).repeat(16, 1)], 1)[
            :, None
        ].split([4, 3], -1)
    )
    p = torch.softmax(-model.energy(x, h), 0).detach()
    s = torch.cat([(x[:, :, None] * h[:, None]).flatten(1), x, h], 1)
    joint = s.mT @ (p[:, None] * s) - torch.outer(p @ s, p @ s)
    gap = torch.linalg.eigvalsh(joint - fisher_matrix(model))
    assert gap.min() > -1e-12 and gap.max() > 0.05


def test_closed_forms_are_covariances_of_scores(generator: torch.Generator) -> None:
    logits = torch.randn(3, generator=generator, dtype=torch.float64)
    p = torch.softmax(logits, 0)
    scores = torch.eye(3, dtype=torch.float64) - p
    torch.testing.assert_close(
        fisher_of(Categorical(logits=logits)), scores.mT @ (p[:, None] * scores)
    )
    q = torch.sigmoid(logits)
    torch.testing.assert_close(bernoulli_fisher(logits), torch.diag(q * (1 - q)))
    scale = torch.tensor([0.5, 2.0], dtype=torch.float64)
    at = torch.stack([torch.zeros(2, dtype=torch.float64), scale.log()])

    def divergence(at: Tensor) -> Tensor:
        return torch.distributions.kl_divergence(
            Normal(torch.zeros(2).double(), scale), Normal(at[0], at[1].exp())
        ).sum()

    torch.testing.assert_close(
        gaussian_fisher(scale), torch.autograd.functional.hessian(divergence, at).reshape(4, 4)
    )  # type: ignore[union-attr]
    with pytest.raises(Unsupported, match="Laplace has no closed form"):
        fisher_of(Laplace(torch.zeros(2), torch.ones(2)))


def test_one_step_to_the_mean_of_a_gaussian(generator: torch.Generator) -> None:
    root = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    covariance = root @ root.mT + torch.eye(3)
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    mean = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = NaturalGradient(
        [mean], lambda: MatrixMetric(fisher_of(MultivariateNormal(mean, covariance))), damping=0.0
    )
    (-MultivariateNormal(mean, covariance).log_prob(x).mean()).backward()
    optimizer.step()
    torch.testing.assert_close(mean.detach(), x.mean(0))


def path(
    start: float,
    coordinate: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor], Tensor],
    steps: int,
) -> float:
    """p after a time of one along the natural gradient of a coin's likelihood (mean 0.8), in a
    coordinate of p, by small steps.
    """
    theta = nn.Parameter(torch.tensor([start], dtype=torch.float64))

    def metric() -> MatrixMetric:
        p = coordinate(theta.detach())
        return MatrixMetric((slope(theta.detach()) ** 2 / (p * (1 - p)))[:, None])

    optimizer = NaturalGradient([theta], metric, lr=1 / steps, damping=0.0)
    for _ in range(steps):
        optimizer.zero_grad()
        p = coordinate(theta)
        (-(0.8 * p.log() + 0.2 * (1 - p).log()).sum()).backward()
        optimizer.step()
    return float(coordinate(theta.detach()))


def test_the_path_does_not_depend_on_the_coordinate() -> None:
    """Up to integration error, which halves with the step: logit, probability, and the angle whose
    sine squared is p.
    """
    ends = {}
    for steps in (100, 200):
        logit = path(
            -1.0, torch.sigmoid, lambda t: torch.sigmoid(t) * (1 - torch.sigmoid(t)), steps
        )
        p0 = float(torch.sigmoid(torch.tensor(-1.0, dtype=torch.float64)))
        plain = path(p0, lambda t: t, torch.ones_like, steps)
        angle = path(
            float(torch.asin(torch.tensor(p0**0.5, dtype=torch.float64))),
            lambda t: t.sin() ** 2,
            lambda t: (2 * t).sin(),
            steps,
        )
        ends[steps] = (logit, plain, angle)
    # dp/dt = 0.8 - p
    exact = 0.8 + (p0 - 0.8) * torch.exp(torch.tensor(-1.0, dtype=torch.float64)).item()
    for i in range(3):
        error, finer = abs(ends[100][i] - exact), abs(ends[200][i] - exact)
        assert error < 0.01 and 0.4 < finer / error < 0.6


@pytest.mark.parametrize(
    "predict",
    [
        lambda out: Categorical(logits=out),
        lambda out: Independent(Bernoulli(logits=out), 1),
        lambda out: Normal(out, 0.5),
    ],
)
def test_products_are_those_of_the_jacobian(
    predict: Callable[[Tensor], Distribution], generator: torch.Generator
) -> None:
    net = drawn(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)), generator)
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    parameters = list(net.parameters())
    J = torch.stack(
        [
            torch.cat(
                [g.flatten() for g in torch.autograd.grad(out, parameters, retain_graph=True)]
            )
            for out in net(x).flatten()
        ]
    )
    J = J.view(5, 3, -1)
    F = torch.einsum("bip,bij,bjq->pq", J, fisher_of(predict(net(x).detach())), J) / 5
    metric = PredictiveMetric(lambda: predict(net(x)), parameters)
    v = torch.randn(F.shape[0], generator=generator, dtype=torch.float64)
    torch.testing.assert_close(metric.product(v), F @ v)
    torch.testing.assert_close(
        metric.solve(v, 0.1),
        torch.linalg.solve(F + 0.1 * torch.eye(len(F)).double(), v),
        atol=1e-3,
        rtol=1e-3,
    )


def drawn(net: nn.Module, generator: torch.Generator) -> nn.Module:
    """The network with weights of unit variance over the fan-in, from a generator."""
    for p in net.double().parameters():
        p.data.copy_(
            torch.randn(p.shape, generator=generator, dtype=torch.float64)
            / max(1, p[0].numel()) ** 0.5
        )
    return net


def exact_fisher(net: nn.Module, x: Tensor, predict: Callable[[Tensor], Distribution]) -> Tensor:
    parameters = list(net.parameters())
    metric = PredictiveMetric(lambda: predict(net(x)), parameters)
    return torch.stack(
        [
            metric.product(row)
            for row in torch.eye(sum(p.numel() for p in parameters), dtype=torch.float64)
        ],
        1,
    )


def gap(net: nn.Module, x: Tensor, predict: Callable[[Tensor], Distribution]) -> float:
    """Relative distance of the Kronecker-factored matrix from the true one."""
    truth = exact_fisher(net, x, predict)
    return float((KroneckerMetric(net, x, predict).matrix() - truth).norm() / truth.norm())


def gaussian(out: Tensor) -> Distribution:
    return Independent(Normal(out.flatten(1), 0.5), 1)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (6, 4)),
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), (6, 4)),
    "conv2d": (lambda: nn.Conv2d(2, 3, (3, 2)), (6, 2, 3, 2)),
    "depthwise conv2d": (lambda: nn.Conv2d(4, 4, 3, groups=4), (6, 4, 3, 3)),
    "depthwise conv2d, shared over positions": (
        lambda: nn.Conv2d(2, 2, 3, padding=1, groups=2),
        (6, 2, 4, 4),
    ),
    "grouped conv1d": (lambda: nn.Conv1d(4, 6, 3, groups=2), (6, 4, 3)),
}


@pytest.mark.parametrize("name", NETS)
def test_kfac_is_exact_for_one_layer_with_gaussian_output(
    name: str, generator: torch.Generator
) -> None:
    make, shape = NETS[name]
    net, x = drawn(make(), generator), torch.randn(*shape, generator=generator, dtype=torch.float64)
    assert gap(net, x, gaussian) < 1e-10


def test_kfac_is_an_approximation_elsewhere(generator: torch.Generator) -> None:
    """Softmax, two layers, shared weights: off by something, and not by everything."""
    x = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    softmax = gap(drawn(nn.Linear(4, 3), generator), x, lambda out: Categorical(logits=out))
    deep = gap(
        drawn(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), generator), x, gaussian
    )
    image = torch.randn(20, 2, 5, 5, generator=generator, dtype=torch.float64)
    shared = gap(
        drawn(nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, groups=2), nn.Tanh()), generator),
        image,
        gaussian,
    )
    assert 1e-4 < softmax < 0.5 and 1e-4 < deep < 0.9 and 1e-4 < shared < 0.9


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": (1, 2)}, {"padding": "same"}],
)
def test_patches_give_the_gradient_of_a_convolution(
    options: dict[str, Any], generator: torch.Generator
) -> None:
    from partita.optim.natural_gradient.kfac import _patches

    layer: Any = nn.Conv2d(4, 6, 3, groups=2, **options).double()
    x = torch.randn(2, 4, 6, 7, generator=generator, dtype=torch.float64)
    out = layer(x)
    delta = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    weight, bias = torch.autograd.grad(out, [layer.weight, layer.bias], delta)
    seen = _patches(layer, x)  # (c, B, T, a)
    found = torch.einsum("bcot,cbta->coa", delta.flatten(2).unflatten(1, (2, 3)), seen)
    torch.testing.assert_close(found[..., :-1].reshape(weight.shape), weight)
    torch.testing.assert_close(found[..., -1].flatten(), bias)


def test_kfac_learns_faster_than_plain_descent(generator: torch.Generator) -> None:
    x = (
        torch.randn(200, 6, generator=generator, dtype=torch.float64)
        * torch.tensor([10.0, 3, 1, 1, 0.3, 0.1]).double()
    )
    y = x @ torch.tensor([0.1, -0.3, 1, 1, 3, 10.0]).double() + 0.1 * torch.randn(
        200, generator=generator, dtype=torch.float64
    )
    losses = {}
    for name in ("kfac", "sgd"):
        net = drawn(nn.Linear(6, 1), generator)
        optimizer: Any = (
            KFAC(net, gaussian, damping=1e-8)
            if name == "kfac"
            else torch.optim.SGD(net.parameters(), lr=1e-3)
        )
        for _ in range(3):
            optimizer.zero_grad()
            loss = (net(x)[:, 0] - y).square().mean() / (2 * 0.5**2)
            loss.backward()
            if name == "kfac":
                optimizer.see(x)
            optimizer.step()
        losses[name] = float((net(x)[:, 0] - y).square().mean().detach())
    assert losses["kfac"] < 0.02 < losses["sgd"]


def test_what_cannot_be_is_named(generator: torch.Generator) -> None:
    singular = MatrixMetric(torch.tensor([[1.0, 1.0], [1.0, 1.0]], dtype=torch.float64))
    with pytest.raises(InputError, match="damping must be large enough"):
        singular.solve(torch.tensor([1.0, 0.0], dtype=torch.float64), 0.0)
    draws = score_metric(RBM(50, 40, generator=generator), torch.ones(3, 50))
    assert isinstance(draws, ScoreMetric)
    with pytest.raises(Diverged, match="Raise damping"):
        draws.solve(torch.ones(50 * 40 + 90), 0.0)
    with pytest.raises(InputError, match=r"at most 2\^16 states"):
        fisher_matrix(RBM(20, 2, generator=generator))
    with pytest.raises(Unsupported, match="linear or convolutional"):
        KroneckerMetric(nn.LSTM(2, 2), torch.zeros(1, 1, 2), gaussian)
    with pytest.raises(InputError, match="metric must be given"):
        NaturalGradient([nn.Parameter(torch.zeros(1))]).step()


def correlated(generator: torch.Generator) -> Tensor:
    common = torch.randn(500, 1, generator=generator)
    return (
        torch.rand(500, 6, generator=generator)
        < torch.sigmoid(1.5 * common + torch.linspace(-1, 1, 6))
    ).float()


def test_a_fit_by_natural_gradient_reaches_the_optimum_in_a_few_steps(
    generator: torch.Generator,
) -> None:
    x, scores = correlated(generator), {}
    for optimizer in ("natural", "lbfgs"):
        model = MaxEnt("pairwise", Binary(6), generator=generator)
        run = partita.fit(model, x, ExactLikelihood(), optimizer=optimizer, generator=generator)
        scores[optimizer] = partita.evaluate(model, x, generator=generator).value
        assert optimizer == "lbfgs" or run.steps <= 10
    assert scores["natural"] == pytest.approx(scores["lbfgs"], abs=1e-6)


def test_a_vae_by_the_fisher_matrices_of_both_its_distributions(generator: torch.Generator) -> None:
    x = correlated(generator)
    model = VAE(6, 1, widths=(8,), generator=generator)
    before = partita.evaluate(model, x, generator=generator).value
    partita.fit(model, x, optimizer="natural", steps=40, batch_size=250, generator=generator)
    assert partita.evaluate(model, x, generator=generator).value > before + 0.1
    metric = metric_of(model, None, x[:50], generator=generator)
    v = torch.randn(sum(p.numel() for p in model.parameters()), generator=generator)
    u = torch.randn(len(v), generator=generator)
    assert float(v @ metric.product(v)) > 0
    assert float(u @ metric.product(v)) == pytest.approx(float(v @ metric.product(u)), rel=1e-3)


@pytest.mark.parametrize("kind", ["rbm by PCD", "rbm exact", "flow"])
def test_every_kind_of_fit_rises(kind: str, generator: torch.Generator) -> None:
    x = (
        correlated(generator)
        if kind != "flow"
        else torch.randn(300, 2, generator=generator) @ torch.tensor([[1.0, 0.9], [0.0, 0.3]])
    )
    made: dict[str, Callable[[], Any]] = {"flow": lambda: Flow(2, generator=generator)}
    model: Any = made.get(kind, lambda: RBM(6, 3, generator=generator))()
    objective = PCD(chains=100) if kind == "rbm by PCD" else ExactLikelihood()
    partita.fit(
        model,
        x,
        objective,
        optimizer="natural",
        steps=1,
        learning_rate=1e-9,
        batch_size=100,
        generator=generator,
    )
    before = partita.evaluate(model, x, generator=generator).value
    partita.fit(
        model,
        x,
        objective,
        optimizer="natural",
        steps=25 if kind != "flow" else 4,
        initialize=False,
        generator=generator,
    )
    assert partita.evaluate(model, x, generator=generator).value > before + 0.05


def test_a_resumed_fit_is_the_same_bit_for_bit() -> None:
    x = correlated(torch.Generator().manual_seed(1))

    def session() -> Any:
        g = torch.Generator().manual_seed(3)
        model, objective = RBM(6, 3, generator=g), PCD(chains=50)
        settings = resolve_settings(model, objective, len(x), {"optimizer": "natural", "steps": 10})
        return start_session(model, as_rows(x, None, "fit"), objective, settings, generator=g)

    whole, resumed = session(), session()
    for _ in range(5):
        whole.advance()
    resumed.restore(copy.deepcopy(whole.tree()))
    for _ in range(5):
        whole.advance()
        resumed.advance()
    assert torch.equal(whole.bare.W, resumed.bare.W) and whole.step == 10


def test_trainable_extras_are_refused(generator: torch.Generator) -> None:
    with pytest.raises(Unsupported, match="NCE trains others beside them"):
        partita.fit(
            RBM(6, 3, generator=generator),
            correlated(generator),
            NCE(),
            optimizer="natural",
            steps=2,
            generator=generator,
        )
