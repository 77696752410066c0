"""K-FAC and the natural step where they could go wrong in silence: outputs that are no logits,
singular factors, shared weights.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Cauchy, Distribution, Independent, Normal, StudentT

from partita.errors import InputError, Unsupported
from partita.optim.natural_gradient import (
    KFAC,
    KroneckerMetric,
    MatrixMetric,
    NaturalGradient,
    PredictiveMetric,
)


def rows(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs).double()
    for p in layer.parameters():
        p.data.copy_(0.5 * rows(*p.shape, generator=generator))
    return layer


class Idle(nn.Sequential):
    """Uses its first layer only."""

    def forward(self, x: Tensor) -> Tensor:
        return self[0](x)


def unit_normal(out: Tensor) -> Distribution:
    return Independent(Normal(out, 1.0), 1)


def mean_and_scale(out: Tensor) -> Distribution:
    return Independent(Normal(out[:, :2], out[:, 2:].exp()), 1)


def probabilities(out: Tensor) -> Distribution:
    return Independent(Bernoulli(probs=torch.sigmoid(3 * out)), 1)


@pytest.mark.parametrize(
    "predict", [mean_and_scale, probabilities, lambda out: unit_normal(2 * out)]
)
def test_the_output_factor_is_in_what_the_network_puts_out(
    predict: Callable[[Tensor], Distribution], generator: torch.Generator
) -> None:
    """One row: K-FAC of one layer is then exact whatever the output is a parameter of: a mean, a
    scale, a probability, half a mean.
    """
    net, x = linear(3, 4, generator), rows(1, 3, generator=generator)
    exact = PredictiveMetric(lambda: predict(net(x)), list(net.parameters()))
    truth = torch.stack([exact.product(row) for row in torch.eye(16, dtype=torch.float64)], 1)
    torch.testing.assert_close(KroneckerMetric(net, x, predict).matrix(), truth)


def test_without_a_divergence_there_is_no_factor(generator: torch.Generator) -> None:
    with pytest.raises(Unsupported, match="torch must know the divergence"):
        KroneckerMetric(
            linear(3, 2, generator),
            rows(4, 3, generator=generator),
            lambda out: StudentT(torch.tensor(3.0), out),
        )
    assert KroneckerMetric(
        linear(3, 2, generator), rows(4, 3, generator=generator), lambda out: Cauchy(out, 1.0)
    ).matrix().shape == (8, 8)


def test_no_damping_on_a_singular_factor_is_named_and_some_is_a_solution(
    generator: torch.Generator,
) -> None:
    """Two rows of six inputs: the input factor has rank two, and rounding alone would make it
    invertible.
    """
    net = linear(6, 3, generator)
    x = rows(2, 6, generator=generator)
    g = rows(21, generator=generator)
    metric = KroneckerMetric(net, x, unit_normal)
    with pytest.raises(
        InputError, match="damping must be above zero, and larger, where a factor is singular"
    ):
        metric.solve(g, 0.0)
    (factors,) = metric.factors
    found = metric.solve(g, 1e-2)
    share = float(
        (
            factors.A.diagonal(dim1=1, dim2=2).mean() / factors.G.diagonal(dim1=1, dim2=2).mean()
        ).sqrt()
    )
    A, G = factors.A[0] + 0.1 * share * torch.eye(7), factors.G[0] + 0.1 / share * torch.eye(3)
    W = torch.cat([found[:18].view(3, 6), found[18:, None]], 1)
    torch.testing.assert_close(torch.cat([(G @ W @ A)[:, :-1].flatten(), (G @ W @ A)[:, -1]]), g)


def test_shared_frozen_and_idle_weights(generator: torch.Generator) -> None:
    x = rows(5, 3, generator=generator)
    tied = nn.Sequential(linear(3, 3, generator), nn.Tanh(), linear(3, 3, generator))
    tied[2].weight = tied[0].weight
    half = linear(3, 3, generator)
    half.weight.requires_grad_(False)
    for net in (tied, half):
        with pytest.raises(Unsupported, match="weights of its own"):
            KroneckerMetric(net, x, unit_normal)
    with pytest.raises(Unsupported, match="every layer must be used"):
        KroneckerMetric(Idle(linear(3, 3, generator), nn.Linear(2, 2)), x, unit_normal)
    frozen = nn.Sequential(
        linear(3, 4, generator).requires_grad_(False), nn.Tanh(), linear(4, 2, generator)
    )
    before = frozen[0].weight.clone()
    optimizer = KFAC(frozen, unit_normal)
    frozen(x).square().sum().backward()
    optimizer.see(x)
    optimizer.step()
    assert torch.equal(frozen[0].weight, before) and len(optimizer.param_groups[0]["params"]) == 2


def test_a_step_that_raises_the_loss_is_undone_whatever_it_promised() -> None:
    """A rate of five overshoots: its quadratic model promises a rise, and the loss does not
    rise.
    """
    x = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = NaturalGradient(
        [x],
        lambda: MatrixMetric(torch.eye(1, dtype=torch.float64)),
        lr=5.0,
        damping=1e-3,
        adapt=True,
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = x.square().sum() / 2
        loss.backward()
        return loss

    for _ in range(3):
        before = float(x.detach().abs())
        optimizer.step(closure)
        assert float(x.detach().abs()) <= before
