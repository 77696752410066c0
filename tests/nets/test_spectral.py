"""Spectral norms against singular values and dense operators; bounds against measured slopes."""

import math

import pytest
import torch
from torch import Tensor, nn

from partita.errors import InputError, Unsupported
from partita.nets.lipschitz import convolution_bound, gram_bound, lipschitz_bound
from partita.nets.mlp import MLP
from partita.nets.spectral import (
    bound_spectral_norms,
    clip_weights,
    gradient_penalty,
    power_iteration,
    spectral_norm,
)

SHAPE = (2, 6, 7)


def seeded(layer: nn.Module, generator: torch.Generator) -> nn.Module:
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=generator))
    return layer.double()


def dense(layer: nn.Module) -> Tensor:
    """The matrix of a convolution between flattened images."""
    jacobian = torch.autograd.functional.jacobian(
        lambda v: layer(v[None]).flatten(), torch.zeros(SHAPE, dtype=torch.float64)
    )
    return jacobian.flatten(1)  # type: ignore[union-attr]


CONVOLUTIONS = [
    {"out_channels": 3, "kernel_size": 3, "padding": 1},
    {"out_channels": 4, "kernel_size": 3, "padding": 1, "stride": 2},
    {"out_channels": 4, "kernel_size": 3, "dilation": 2, "groups": 2},
    {"out_channels": 3, "kernel_size": 3, "padding": 1, "padding_mode": "circular"},
    {"out_channels": 2, "kernel_size": (3, 5), "padding": "same"},
    # wraps more than the kernel takes up
    {"out_channels": 3, "kernel_size": 3, "padding": 3, "padding_mode": "circular"},
    {
        "out_channels": 3,
        "kernel_size": 3,
        "padding": 2,
        "padding_mode": "circular",
        "stride": 2,
        "dilation": 2,
    },
    {
        "out_channels": 4,
        "kernel_size": (1, 2),
        "padding": (0, 5),
        "padding_mode": "circular",
        "groups": 2,
    },
]


def test_power_iteration_is_the_largest_singular_value(generator: torch.Generator) -> None:
    for n, m in ((30, 40), (40, 30), (1, 7)):
        layer = seeded(nn.Linear(m, n), generator)
        truth = torch.linalg.matrix_norm(layer.weight, 2).item()  # type: ignore[arg-type]
        found = spectral_norm(layer, tolerance=1e-7, generator=generator)
        assert found.sigma.item() == pytest.approx(truth, rel=1e-6) and found.residual <= 1e-7
        assert truth <= gram_bound(layer.weight).item() <= truth * 1.001  # type: ignore[arg-type]


def test_singular_values_close_together_are_told_apart(generator: torch.Generator) -> None:
    """Sixty of them within a tenth: the residual falls slowly, and the iteration goes on until it
    is within the tolerance.
    """
    layer = seeded(nn.Linear(60, 60), generator)
    (u, _, v), close = (
        torch.linalg.svd(layer.weight.detach()),
        torch.linspace(1.0, 0.9, 60, dtype=torch.float64),
    )  # type: ignore[operator]
    layer.weight = nn.Parameter(u @ torch.diag(close) @ v)
    found = spectral_norm(layer, generator=generator)
    assert (
        found.sigma.item() == pytest.approx(1.0, rel=1e-6)
        and found.residual <= 1e-6
        and found.iterations > 1000
    )


def test_power_iteration_of_nothing(generator: torch.Generator) -> None:
    assert power_iteration(torch.zeros_like, torch.zeros_like, torch.ones(3)).sigma == 0


@pytest.mark.parametrize("settings", CONVOLUTIONS)
def test_the_norm_of_a_convolution_is_that_of_its_operator(
    settings: dict, generator: torch.Generator
) -> None:
    layer = seeded(nn.Conv2d(2, **settings, bias=False), generator)
    truth = torch.linalg.matrix_norm(dense(layer), 2).item()
    assert spectral_norm(
        layer, SHAPE, tolerance=1e-7, generator=generator
    ).sigma.item() == pytest.approx(truth, rel=1e-6)
    bound = convolution_bound(layer, SHAPE)
    assert bound >= truth
    if layer.padding_mode == "circular" and layer.padding == (1, 1):
        assert bound == pytest.approx(truth, rel=1e-3)


def test_the_reshaped_kernel_has_another_norm(generator: torch.Generator) -> None:
    layer = seeded(nn.Conv2d(2, 3, 3, padding=1, bias=False), generator)
    reshaped = torch.linalg.matrix_norm(layer.weight.flatten(1), 2)  # type: ignore[union-attr]
    assert spectral_norm(layer, SHAPE, generator=generator).sigma > 1.2 * reshaped


NETS = {
    "perceptron": lambda g: (MLP(5, 3, widths=(16, 16), activation="silu", generator=g), (5,)),
    "convolutions": lambda g: (
        nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.LeakyReLU(),
            nn.Conv2d(4, 2, 3, stride=2),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(12, 2),
        ),
        SHAPE,
    ),
    "linear": lambda g: (nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.Linear(4, 1)), (4,)),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("bounded", [False, True])
def test_no_measured_slope_is_above_the_bound(
    name: str, bounded: bool, generator: torch.Generator
) -> None:
    net, shape = NETS[name](generator)
    net = seeded(net, generator)
    if bounded:
        bound_spectral_norms(net, shape=shape, generator=generator).eval()
    bound = lipschitz_bound(net, shape)
    x = torch.randn(10_000, *shape, generator=generator, dtype=torch.float64)
    apart = (
        torch.rand(10_000, *[1] * len(shape), generator=generator, dtype=torch.float64) ** 4 * 3
        + 1e-3
    )
    y = x + apart * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        slopes = (net(x) - net(y)).flatten(1).norm(dim=1) / (x - y).flatten(1).norm(dim=1)
    assert 0 < slopes.max().item() <= bound
    if bounded:
        activations = sum(isinstance(layer, nn.SiLU | nn.GELU) for layer in net.modules())
        assert (
            bound
            <= 1.1289043**activations
            * 1.35 ** sum(isinstance(layer, nn.Conv2d) for layer in net.modules())
            * 1.01
        )


def test_bounded_layers_learn_and_stay_bounded(generator: torch.Generator) -> None:
    net = bound_spectral_norms(seeded(nn.Linear(6, 6), generator), generator=generator)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        (-net(torch.ones(1, 6, dtype=torch.float64)).sum()).backward()
        optimizer.step()
        assert torch.linalg.matrix_norm(net.weight, 2).item() <= 1.001  # type: ignore[arg-type]


def test_a_look_at_the_bound_moves_no_singular_vector(generator: torch.Generator) -> None:
    """So that an audit changes no fit."""
    layer = bound_spectral_norms(seeded(nn.Linear(6, 6), generator), generator=generator)
    with torch.no_grad():
        layer.parametrizations.weight.original.add_(torch.randn(6, 6, generator=generator))  # type: ignore[union-attr]
    kept = layer.parametrizations.weight[0].v  # type: ignore[index,union-attr]
    before = kept.clone()
    lipschitz_bound(layer)
    assert torch.equal(kept, before) and layer.training
    _ = layer.weight
    assert not torch.equal(kept, before)


def test_the_gradient_of_a_bounded_weight(generator: torch.Generator) -> None:
    layer = bound_spectral_norms(
        seeded(nn.Linear(3, 3), generator), tolerance=1e-12, generator=generator
    )
    raw = layer.parametrizations.weight.original  # type: ignore[union-attr]
    x = torch.randn(3, generator=generator, dtype=torch.float64)

    def through(weight: Tensor) -> Tensor:
        return (weight / torch.linalg.matrix_norm(weight, 2) @ x).square().sum()

    expected = torch.autograd.grad(through(raw), raw)[0]
    got = torch.autograd.grad((layer.weight @ x).square().sum(), raw)[0]  # type: ignore[operator]
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)


def test_gradient_penalty(generator: torch.Generator) -> None:
    x, y = torch.randn(2, 50, 3, generator=generator, dtype=torch.float64)
    direction = torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64)
    assert gradient_penalty(
        lambda z: z @ direction, x, y, generator=generator
    ).item() == pytest.approx(1.0, abs=1e-12)
    assert gradient_penalty(
        lambda z: z @ direction, x, y, target=2.0, generator=generator
    ).item() == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError, match=r"y must have the shape of x"):
        gradient_penalty(lambda z: z @ direction, x, y[:3], generator=generator)


def test_clipping(generator: torch.Generator) -> None:
    net = seeded(nn.Linear(3, 3), generator)
    clip_weights(net, 0.01)
    assert max(p.abs().max().item() for p in net.parameters()) == pytest.approx(0.01)


def test_slopes_of_activations_are_upper_bounds() -> None:
    x = torch.linspace(-6, 6, 200_001, dtype=torch.float64, requires_grad=True)
    for layer in (nn.SiLU(), nn.GELU(), nn.Tanh(), nn.Sigmoid(), nn.Softplus(), nn.ELU()):
        steepest = torch.autograd.grad(layer(x).sum(), x)[0].max().item()
        assert (
            steepest
            <= lipschitz_bound(layer)
            <= steepest * 1.01 + (0.01 if math.isclose(steepest, 1, abs_tol=0.01) else 0)
        )


def test_what_has_no_known_bound_is_refused(generator: torch.Generator) -> None:
    with pytest.raises(
        Unsupported,
        match=r"lipschitz_bound cannot run on LayerNorm: no bound on its slope is known\. Use "
        r"Conv1d, ",
    ):
        lipschitz_bound(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    with pytest.raises(InputError, match=r"shape must be that of one input"):
        lipschitz_bound(nn.Sequential(nn.Conv2d(1, 1, 3)))
    with pytest.raises(Unsupported, match=r"padding_mode='reflect'"):
        convolution_bound(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), (1, 4, 4))
    with pytest.raises(Unsupported, match=r"spectral_norm cannot run on ReLU"):
        spectral_norm(_with_weight(), generator=generator)


def test_a_forward_of_its_own_is_not_certified() -> None:
    """A skip around a chain, or a steeper activation under a known name, would make the product of
    the layers' bounds a lie.
    """

    class Skip(nn.Sequential):
        def forward(self, input: Tensor) -> Tensor:
            return input + super().forward(input)

    class Steep(nn.ReLU):
        def forward(self, input: Tensor) -> Tensor:
            return 10 * input

    for net in (
        Skip(nn.Linear(2, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(2, 2), Steep()),
        nn.Softplus(threshold=1),
    ):
        with pytest.raises(
            Unsupported, match=r"lipschitz_bound cannot run on (Skip|Steep|Softplus)"
        ):
            lipschitz_bound(net)
    shared = nn.Conv2d(1, 1, 3)
    with pytest.raises(
        Unsupported, match=r"a Conv2d that acts at two shapes, \(1, 9, 9\) and \(1, 7, 7\)"
    ):
        lipschitz_bound(nn.Sequential(shared, nn.ReLU(), shared), (1, 9, 9))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_bounds_of_very_small_and_large_matrices(scale: float) -> None:
    assert gram_bound(scale * torch.eye(3, dtype=torch.float64)).item() == pytest.approx(
        scale, rel=1e-3
    )


def _with_weight() -> nn.Module:
    layer = nn.ReLU()
    layer.weight = torch.ones(1)  # type: ignore[assignment]
    return layer
