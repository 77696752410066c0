r"""Lipschitz networks: spectral norms by power iteration, and upper bounds that certify.

.. math:: \sigma(A) = \max_x |A x| / |x|, \qquad v \leftarrow A^\top A v / |A^\top A v|, \quad
          \sigma \leftarrow |A v|
          (theory/divergences.md, eq. 16.13)

Power iteration approaches sigma from below and certifies nothing; it makes networks nearly
1-Lipschitz. What they truly are at most, ``lipschitz_bound`` says from above, by Gram iteration
(:mod:`partita.nets.lipschitz`). The norm of a convolution is that of the map between images,
padding and stride included, not that of its kernel written as a matrix.

Letters: A a linear map, v its first right singular vector, c the bound.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parametrize

from partita.core import rng
from partita.core.arguments import check_count, check_real
from partita.errors import Unsupported, invalid

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)
Convolution: TypeAlias = nn.Conv1d | nn.Conv2d
Linear: TypeAlias = nn.Linear | Convolution
Map: TypeAlias = Callable[[Tensor], Tensor]
Shape: TypeAlias = tuple[int, ...]


class Norm(NamedTuple):
    """What power iteration found.

    Arguments:
        sigma: The largest singular value, from below.
        v: Its right singular vector.
        residual: |A'A v - sigma^2 v| / sigma^2: some singular value is this near to sigma,
            relatively.
        iterations: How many products with A and A' it took.
    """

    sigma: Tensor
    v: Tensor
    residual: float
    iterations: int


@torch.no_grad()
def power_iteration(
    apply: Map, adjoint: Map, v: Tensor, *, tolerance: float = 1e-6, iterations: int = 1000
) -> Norm:
    """The largest singular value of a linear map, from a start ``v``, until the residual is within
    the tolerance.

    >>> A = torch.diag(torch.tensor([3.0, 1.0]))
    >>> round(power_iteration(lambda v: A @ v, lambda u: A.mT @ u, torch.ones(2)).sigma.item(), 4)
    3.0
    """
    check_count("power_iteration", "iterations", iterations)
    v, residual = v / v.norm().clamp_min(1e-30), math.inf
    sigma, count = v.new_zeros(()), 0
    for count in range(1, iterations + 1):
        w = adjoint(apply(v))
        square = (v * w).sum()  # the Rayleigh quotient, sigma^2
        sigma, size = square.clamp_min(0).sqrt(), w.norm()
        if not bool(size > 0):
            return Norm(sigma, v, 0.0, count)
        residual = float((w - square * v).norm() / square)
        v = w / size
        if residual <= tolerance:
            break
    return Norm(sigma, v, residual, count)


def spectral_norm(
    layer: Linear,
    shape: Shape | None = None,
    *,
    tolerance: float = 1e-6,
    iterations: int = 20_000,
    generator: Generator,
) -> Norm:
    """Power iteration on a linear or convolutional layer; ``shape`` is that of one input,
    ``(channels, *size)``, of a convolution.

    Singular values that are nearly equal take many iterations; ``residual`` says whether these
    sufficed.
    """
    apply, adjoint, start = linear_map(layer, layer.weight, shape)
    v = rng.normal(start, layer.weight, generator)
    return power_iteration(apply, adjoint, v, tolerance=tolerance, iterations=iterations)


def linear_map(layer: Linear, weight: Tensor, shape: Shape | None) -> tuple[Map, Map, Shape]:
    """A layer without its bias as a map and its adjoint, and the shape of its input."""
    if isinstance(layer, nn.Linear):
        return (lambda v: weight @ v), (lambda u: weight.mT @ u), (weight.shape[1],)
    if not isinstance(layer, CONVOLUTIONS):
        raise Unsupported(
            f"spectral_norm cannot run on {type(layer).__name__}: it is no linear map that it "
            "knows. Use Linear, Conv1d or Conv2d instead."
        )
    if shape is None:
        allowed = "be that of one input, (channels, *size), for a convolution"
        raise invalid("spectral_norm", "shape", allowed, None)

    def apply(v: Tensor) -> Tensor:
        # the layer's own padding, stride, dilation and groups
        return layer._conv_forward(v[None], weight, None)[0]

    def adjoint(u: Tensor) -> Tensor:
        with torch.enable_grad():
            at = torch.zeros(shape, dtype=u.dtype, device=u.device, requires_grad=True)
            out = layer._conv_forward(at[None], weight.detach(), None)[0]
            return torch.autograd.grad(out, at, u)[0]

    return apply, adjoint, tuple(shape)


class SpectralBound(nn.Module):
    """A parametrization that divides a layer's weight by its spectral norm over c, where that is
    above one.

    The singular vector is kept between calls, so that a few products suffice after each update of
    the weight.
    """

    v: Tensor
    layer: Linear

    def __init__(
        self,
        layer: Linear,
        bound: float,
        shape: Shape | None,
        tolerance: float,
        generator: Generator,
    ) -> None:
        super().__init__()
        object.__setattr__(self, "layer", layer)  # not a submodule: it owns this one
        self.bound, self.shape, self.tolerance = bound, shape, tolerance
        found = spectral_norm(layer, shape, tolerance=tolerance, generator=generator)
        self.register_buffer("v", found.v)

    def forward(self, weight: Tensor) -> Tensor:
        apply, adjoint, _ = linear_map(self.layer, weight.detach(), self.shape)
        found = power_iteration(apply, adjoint, self.v, tolerance=self.tolerance, iterations=100)
        if self.training:
            self.v.copy_(found.v)
        # |A v| at the fixed singular vector, whose gradient in A is u v', that of sigma
        sigma = linear_map(self.layer, weight, self.shape)[0](found.v).norm()
        return weight / (sigma / self.bound).clamp_min(1.0)


def bound_spectral_norms(
    net: nn.Module,
    bound: float = 1.0,
    *,
    shape: Shape | None = None,
    tolerance: float = 1e-3,
    generator: Generator,
) -> nn.Module:
    """Parametrize every linear and convolutional layer of a network so that its spectral norm is
    about ``bound`` at most.

    Arguments:
        shape: Of one input of the network, needed where it has convolutions.
        tolerance: At which power iteration stops.
    """
    check_real("bound_spectral_norms", "bound", bound, 0.0, open_low=True)
    shapes = input_shapes(net, shape)
    for layer in list(net.modules()):
        if isinstance(layer, (nn.Linear, *CONVOLUTIONS)):
            made = SpectralBound(layer, bound, shapes.get(layer), tolerance, generator)
            parametrize.register_parametrization(layer, "weight", made)
    return net


@contextmanager
def still(net: nn.Module) -> Iterator[None]:
    """A look at a network in evaluation mode: what its layers keep from call to call, singular
    vectors among it, stays as it is.
    """
    learning = [module for module in net.modules() if module.training]
    net.eval()
    try:
        yield
    finally:
        for module in learning:
            module.training = True


@torch.no_grad()
def input_shapes(net: nn.Module, shape: Shape | None) -> dict[nn.Module, Shape]:
    """The shape of each convolution's input, seen by sending zeros of ``shape`` through the
    network; a convolution that acts at two shapes is refused.
    """
    seen: dict[nn.Module, Shape] = {}
    layers = [layer for layer in net.modules() if isinstance(layer, CONVOLUTIONS)]
    if not layers:
        return seen
    if shape is None:
        allowed = "be that of one input of a network with convolutions"
        raise invalid("input_shapes", "shape", allowed, None)

    def see(layer: nn.Module, x: tuple[Tensor, ...]) -> None:
        found = tuple(x[0].shape[1:])
        if seen.setdefault(layer, found) != found:
            raise Unsupported(
                f"lipschitz_bound cannot run on a {type(layer).__name__} that acts at two shapes, "
                f"{seen[layer]} and {found}. Use two layers instead."
            )

    hooks = [layer.register_forward_pre_hook(see) for layer in layers]
    like = next(net.parameters())
    try:
        with still(net):
            net(torch.zeros(1, *shape, dtype=like.dtype, device=like.device))
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def gradient_penalty(
    critic: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    *,
    target: float = 1.0,
    generator: Generator,
) -> Tensor:
    r"""E[(|grad f(z)| - target)^2] at random points z between rows of x and of y (Gulrajani et al.
    2017), eq. 16.16.
    """
    if x.shape != y.shape:
        allowed = f"have the shape of x, {tuple(x.shape)}"
        raise invalid("gradient_penalty", "y", allowed, tuple(y.shape))
    share = rng.uniform((len(x), *[1] * (x.dim() - 1)), x, generator)
    z = torch.lerp(y.detach(), x.detach(), share).requires_grad_(True)
    slope = torch.autograd.grad(critic(z).sum(), z, create_graph=True)[0]
    return (slope.flatten(1).norm(dim=1) - target).square().mean()


@torch.no_grad()
def clip_weights(net: nn.Module, limit: float) -> None:
    """Cut every weight to [-limit, limit], the first and crudest way to bound a slope (Arjovsky et
    al. 2017).
    """
    check_real("clip_weights", "limit", limit, 0.0, open_low=True)
    for p in net.parameters():
        p.clamp_(-limit, limit)
