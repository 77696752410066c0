"""Bounds of functions over boxes: never above what is there, from below and by curvature alone as
boxes shrink.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from partita.integration.enclosure import lower_bound
from partita.nets import MLP

W = torch.tensor([[0.7, -1.1], [0.4, 0.9], [-0.3, 0.2]], dtype=torch.float64)
NETS = {
    name: MLP(
        2, 1, widths=(8, 8), activation=name, generator=torch.Generator().manual_seed(1)
    ).double()
    for name in ("silu", "tanh", "softplus", "gelu", "relu")
}


def smooth(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function of three numbers that are not the coordinates, so that forms are mixed before and
    after.
    """
    return lambda x: (
        f(functional.linear(x, W)) * torch.tensor([1.0, -2.0, 0.5], dtype=x.dtype)
    ).sum(-1)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{f"{name} network": lambda x, net=net: net(x)[..., 0] for name, net in NETS.items()},
    **{
        name: smooth(getattr(torch, name))
        for name in (
            "exp",
            "tanh",
            "sigmoid",
            "sin",
            "cos",
            "erf",
            "atan",
            "abs",
            "relu",
            "square",
            "cosh",
            "expm1",
            "neg",
        )
    },
    "ndtr": smooth(torch.special.ndtr),
    **{
        name: smooth(getattr(functional, name))
        for name in ("softplus", "logsigmoid", "silu", "gelu", "hardtanh", "leaky_relu", "elu")
    },
    "powers": smooth(lambda y: y**2 + y**3 - y**4 + y**5),
    "roots": smooth(
        lambda y: (1 + y**2).sqrt() + (2 + y**2).log() + torch.log1p(y**2) + (1 + y**2) ** 1.5
    ),
    "quotients": smooth(lambda y: 1 / (1 + y**2) + (1 + y**2).rsqrt() - 1 / (-2 - y**2) + 2**y),
    "norm": lambda x: x.norm(dim=-1) + torch.linalg.vector_norm(x, ord=1, dim=-1),
    "products": lambda x: (
        x[..., 0] * x[..., 1]
        - (x * x).sum(-1)
        + x[..., 0] / (2 + x[..., 1].square())
        + torch.linalg.vecdot(x, x)
    ),
    "mixture": lambda x: (
        -torch.logsumexp(
            -(x[..., None, :] - 3 * W).square().sum(-1)
            / torch.tensor([0.1, 1.0, 2.0], dtype=x.dtype),
            -1,
        )
    ),
    "sum of two": lambda x: torch.logaddexp(x[..., 0], -2 * x[..., 1]),
    "two": lambda x: (
        torch.maximum(x[..., 0], x[..., 1]) - torch.minimum(x[..., 0], x[..., 1].sin())
    ),
    "softmax": lambda x: (
        torch.softmax(functional.linear(x, W), -1)[..., 0]
        + torch.log_softmax(functional.linear(x, W), -1)[..., 1]
    ),
    "cliff": lambda x: torch.where(
        (x.square().sum(-1) < 2) & ~(x[..., 0] > 1), x[..., 0], 5 - x[..., 1]
    ),
    "clamped": lambda x: (
        x.clamp(-1, 0.5).sum(-1) + x.clamp_min(0.2)[..., 0] - x.clamp_max(-0.3)[..., 1]
    ),
    "shapes": lambda x: (
        torch.cat([x, x[:, :1] + 1], -1).reshape(-1, 3).flip(0).flip(0).mean(-1)
        + torch.stack(x.unbind(-1)).amax(0)
    ),
}
KINKED = {
    "cliff",
    "abs",
    "relu",
    "relu network",
    "hardtanh",
    "leaky_relu",
    "elu",
    "clamped",
    "two",
    "norm",
    "shapes",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_point_lies_below_the_bound_and_small_boxes_have_close_bounds(name: str) -> None:
    """200 boxes of four sizes, 500 points and all corners of each. The slack of smooth functions
    falls with the square of the size.
    """
    f, g = FUNCTIONS[name], torch.Generator().manual_seed(0)
    slack = {}
    for h in (4.0, 0.4, 0.04, 0.004):
        middle = 2 * torch.randn(200, 2, generator=g, dtype=torch.float64)
        bound = lower_bound(f, middle - h / 2, middle + h / 2)
        assert bound is not None
        corners = torch.tensor([[[a, b]] for a in (0, 1) for b in (0, 1)])
        e = torch.cat([torch.rand(500, 1, 2, generator=g, dtype=torch.float64), corners])
        with torch.no_grad():
            least = f((middle + (e - 0.5) * h).reshape(-1, 2)).view(-1, 200).amin(0)
        assert (bound <= least + 1e-9 * (1 + least.abs())).all()
        slack[h] = float((least - bound).quantile(0.5))
    assert slack[0.004] < (0.1 if name in KINKED else 1e-3)
    if name not in KINKED:
        assert slack[0.004] < 0.03 * slack[0.04] + 1e-12


def test_no_rule_is_no_bound() -> None:
    low = torch.zeros(3, 2, dtype=torch.float64)
    assert lower_bound(lambda x: torch.special.bessel_j0(x).sum(-1), low, low + 1) is None
    assert lower_bound(lambda x: torch.sort(x, -1).values[..., 0], low, low + 1) is None
    singular = lower_bound(lambda x: x[..., 0].log(), low, low + 1)  # minus infinity at zero
    assert singular is not None and (singular == -math.inf).all()
