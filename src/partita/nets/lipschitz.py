r"""How steep a network can be at most: a bound from above, layer by layer.

.. math:: \sigma(A) \le \|G_k\|_F^{2^{1-k}}, \qquad G_1 = A, \; G_{k+1} = G_k^* G_k
          (theory/divergences.md, eq. 16.14)

Gram iteration (Delattre et al. 2023) bounds sigma from above at every k, and quickly meets it. A
convolution with zero padding is part of the circular one on an image larger by the kernel, which
the Fourier transform cuts into one small matrix for each frequency (eq. 16.15); strides only leave
outputs out. A chain of layers has at most the product of their bounds.

Letters: A a linear map, G its iterated Gram matrices, k iterations.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from partita.core.arguments import check_count
from partita.errors import Unsupported
from partita.nets.mlp import MLP
from partita.nets.spectral import CONVOLUTIONS, Convolution, Shape, input_shapes, still

SILU_SLOPE = 1.0998395  # the largest derivatives, rounded up
GELU_SLOPE = 1.1289043
ITERATIONS = 12
ROUNDING = 1e-10  # more than float64 loses on the way


@torch.no_grad()
def gram_bound(A: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """An upper bound on the largest singular value, ``(*, n, m) -> (*)``, in float64; within m^(1 /
    2^k) of it.

    >>> round(gram_bound(torch.diag(torch.tensor([3.0, 1.0]))).item(), 6)
    3.0
    """
    check_count("gram_bound", "iterations", iterations, 0)
    A = A.to(torch.complex128 if A.is_complex() else torch.float64)
    # squares of very large or small entries leave float64
    unit = A.abs().amax((-2, -1)).clamp_min(torch.finfo(torch.float64).tiny)
    A = A / unit[..., None, None]
    G = A if A.shape[-1] <= A.shape[-2] else A.mH
    log_scale = A.new_zeros(A.shape[:-2], dtype=torch.float64)
    power = 1.0
    for _ in range(iterations):
        size = torch.linalg.matrix_norm(G).clamp_min(1e-300)
        G, log_scale = G / size[..., None, None], log_scale + power * size.log()
        G, power = G.mH @ G, power / 2
    log_norm = log_scale + power * torch.linalg.matrix_norm(G).clamp_min(1e-300).log()
    return unit * log_norm.exp() * (1 + ROUNDING)


def convolution_bound(layer: Convolution, shape: Shape) -> float:
    """An upper bound on the norm of a convolution of inputs of ``shape``, ``(channels, *size)``."""
    if layer.padding_mode not in ("zeros", "circular"):
        raise Unsupported(
            f"lipschitz_bound cannot run on padding_mode={layer.padding_mode!r}: it repeats edge "
            "values. Use 'zeros' or 'circular' instead."
        )
    kernel = zip(layer.dilation, layer.kernel_size, strict=True)
    reach = [step * (size - 1) for step, size in kernel]
    circular = layer.padding_mode == "circular"
    torus = [size + (0 if circular else more) for size, more in zip(shape[1:], reach, strict=True)]
    repeats = math.prod(map(_repeats, _around(layer), reach, shape[1:])) if circular else 1
    largest = max(float(gram_bound(block).max()) for block in _frequencies(layer, torus))
    return math.sqrt(repeats) * largest


def _around(layer: Convolution) -> list[int]:
    """How many values a circular convolution adds along each axis; torch keeps them last axis
    first, two for each.
    """
    both = layer._reversed_padding_repeated_twice
    return [before + after for before, after in zip(both[::2], both[1::2], strict=True)][::-1]


def _repeats(added: int, reach: int, size: int) -> int:
    """How often at most an output of the torus comes again along an axis, where more is wrapped
    around than the kernel takes up.
    """
    return math.ceil((size + added - reach) / size)


def _frequencies(layer: Convolution, torus: list[int]) -> list[Tensor]:
    """The transform of a kernel at every frequency of a torus, ``(F, out, in)``, one for each
    group.
    """
    weight = layer.weight.detach().double()  # (out, in / groups, *kernel)
    # the dilated kernel is laid around the torus, wrapped where it is longer
    for axis, (step, size) in enumerate(zip(layer.dilation, torus, strict=True), start=2):
        place = torch.arange(weight.shape[axis], device=weight.device) * step % size
        shape = (*weight.shape[:axis], size, *weight.shape[axis + 1 :])
        weight = weight.new_zeros(shape).index_add_(axis, place, weight)
    transformed = torch.fft.fftn(weight, dim=tuple(range(2, weight.dim())))
    return list(transformed.flatten(2).permute(2, 0, 1).chunk(layer.groups, 1))


SLOPES: dict[type[nn.Module], float | Callable[..., float]] = {
    nn.Identity: 1.0,
    nn.Flatten: 1.0,
    nn.Unflatten: 1.0,
    nn.ReLU: 1.0,
    nn.LeakyReLU: lambda layer: max(1.0, abs(layer.negative_slope)),
    nn.ELU: lambda layer: max(1.0, abs(layer.alpha)),
    # a lower threshold makes a visible step
    nn.Softplus: lambda layer: 1.0 if layer.threshold >= 20 else math.inf,
    nn.Tanh: 1.0,
    nn.Sigmoid: 0.25,
    nn.SiLU: SILU_SLOPE,
    nn.GELU: lambda layer: GELU_SLOPE if layer.approximate == "none" else math.inf,
}


def lipschitz_bound(net: nn.Module, shape: Shape | None = None) -> float:
    """An upper bound on |f(x) - f(y)| / |x - y| over all x and y, for a chain of linear layers,
    convolutions and activations.

    It looks and moves nothing: singular vectors that bounded layers keep stay as they are.

    Arguments:
        net: ``nn.Sequential``, :class:`partita.nets.MLP`, or one layer; what it cannot bound it
            refuses by name.
        shape: Of one input, needed where there are convolutions.

    >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
    >>> _ = net[0].weight.data.copy_(torch.eye(2) * 2)
    >>> round(lipschitz_bound(net), 3)
    2.0
    """
    chain = _chain(net)
    shapes = input_shapes(net, shape)
    with still(net):
        return math.prod(_layer_bound(layer, shapes) for layer in chain)


def _chain(net: nn.Module) -> list[nn.Module]:
    """The layers in the order in which they act."""
    if isinstance(net, MLP) and _acts_as(net, MLP):
        return _chain(net.layers)
    if not _acts_as(net, nn.Sequential):
        return [net]
    return [inner for layer in net.children() for inner in _chain(layer)]


def _acts_as(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a layer is of a kind and computes what that kind does; a subclass with a forward of
    its own may do anything.
    """
    return isinstance(layer, kind) and type(layer).forward is kind.forward


def _layer_bound(layer: nn.Module, shapes: dict[nn.Module, Shape]) -> float:
    if isinstance(layer, nn.Linear) and _acts_as(layer, nn.Linear):
        return float(gram_bound(layer.weight.detach()))
    if isinstance(layer, CONVOLUTIONS) and any(_acts_as(layer, kind) for kind in CONVOLUTIONS):
        return convolution_bound(layer, shapes[layer])
    for kind, slope in SLOPES.items():
        if _acts_as(layer, kind):
            found = slope(layer) if callable(slope) else slope
            if math.isfinite(found):
                return found
    known = ", ".join(sorted({"Linear", "Conv1d", "Conv2d", *(kind.__name__ for kind in SLOPES)}))
    raise Unsupported(
        f"lipschitz_bound cannot run on {type(layer).__name__}: no bound on its slope is known. "
        f"Use {known} instead."
    )
