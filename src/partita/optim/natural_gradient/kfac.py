r"""Kronecker-factored Fisher matrices of linear and convolutional layers, grouped and depthwise
ones too.

.. math:: F_\ell \approx G \otimes A, \qquad A = E[\bar a \bar a^\top], \quad G = E[\delta
          \delta^\top], \qquad
          \text{conv.: } A = E\big[\textstyle\sum_t \bar a_t \bar a_t^\top\big], \;
          G = E\big[\tfrac1T \sum_t \delta_t \delta_t^\top\big]
          (theory/optimization.md, eq. 50.13)

a are the inputs of the layer with a one for its bias, delta the gradients at its output when the
target is drawn from the prediction; that expectation is taken exactly, column by column of the root
of the output's Fisher matrix, which is (50.10), whatever the network's output is a parameter of, as
the curvature (50.11) of the divergence. Every group of a convolution has its own factors. Exact for
one layer with Gaussian output of fixed variance. Martens and Grosse (2015); Grosse and Martens
(2016).

Letters: B rows, T positions, c groups, A input factor, G output factor, K outputs of the network,
lambda damping.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, Unpack

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, kl_divergence
from torch.nn import functional

from partita.errors import Unsupported, invalid
from partita.optim.natural_gradient.optimizer import NaturalGradient, Options

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
Layer: TypeAlias = nn.Linear | nn.Conv1d | nn.Conv2d
Predict: TypeAlias = Callable[[Tensor], Distribution]


@dataclass(frozen=True)
class _Factors:
    """A (c, a, a) and G (c, o, o) of one layer with c groups; the weight is (c o, a) with its bias
    as the last column.
    """

    A: Tensor
    G: Tensor
    bias: bool


class KroneckerMetric:
    """Block-diagonal over layers, each block a Kronecker product.

    Arguments:
        network: Its parameters all belong to linear and convolutional layers.
        x: Inputs (B, ...).
        predict: The distributions, row by row, that an output stands for, for example ``lambda out:
            Categorical(logits=out)``; their divergence must be known to torch.
    """

    def __init__(self, network: nn.Module, x: Tensor, predict: Predict) -> None:
        self.layers = _layers(network)
        self.factors = _factors(network, self.layers, x, predict)

    def product(self, v: Tensor) -> Tensor:
        return self._by_layer(v, lambda f, W: f.G @ W @ f.A)

    def solve(self, g: Tensor, damping: float) -> Tensor:
        """Each factor gets its share of the damping: A + pi sqrt(lambda) I and G + sqrt(lambda) /
        pi I.
        """
        return self._by_layer(g, lambda f, W: _solve(f, W, damping))

    def matrix(self) -> Tensor:
        """F written out, (P, P), in the order of the parameters: for small networks."""
        size = sum(p.numel() for layer in self.layers for p in layer.parameters())
        like = self.factors[0].A
        return torch.stack([self.product(row) for row in torch.eye(size).to(like)], 1)

    def _by_layer(self, v: Tensor, change: Callable[[_Factors, Tensor], Tensor]) -> Tensor:
        sizes = [sum(p.numel() for p in layer.parameters()) for layer in self.layers]
        parts = zip(v.split(sizes), self.layers, self.factors, strict=True)
        return torch.cat([_flat(change(f, _matrix(part, layer, f)), f) for part, layer, f in parts])


class KFAC(NaturalGradient):
    """The natural gradient of a network with Kronecker factors of the batch at hand.

    Arguments:
        network: As for :class:`KroneckerMetric`.
        predict: From the network's output to its distribution.
        options: Those of :class:`NaturalGradient`.

    Before each step hand over the inputs: ``optimizer.see(x)``.
    """

    def __init__(self, network: nn.Module, predict: Predict, **options: Unpack[Options]) -> None:
        super().__init__([p for layer in _layers(network) for p in layer.parameters()], **options)
        self._network, self._predict = network, predict

    def see(self, x: Tensor) -> None:
        """The inputs from which the coming step takes its factors."""
        self.observe(lambda: KroneckerMetric(self._network, x, self._predict))


def _layers(network: nn.Module) -> list[Layer]:
    """The layers that learn, in the order of their parameters."""
    layers = [
        m
        for m in network.modules()
        if isinstance(m, LAYERS) and any(p.requires_grad for p in m.parameters())
    ]
    own = [p for layer in layers for p in layer.parameters()]
    held = {id(p) for p in own}
    other = [
        name for name, p in network.named_parameters() if p.requires_grad and id(p) not in held
    ]
    if len(held) < len(own) or not all(p.requires_grad for p in own):
        raise Unsupported(
            "K-FAC: a layer must have weights of its own, which learn with its bias or not at all. "
            "Use PredictiveMetric."
        )
    if other or not layers:
        raise Unsupported(
            "K-FAC: every parameter must belong to a linear or convolutional layer; got "
            f"{other[:3] or 'none'}. Use PredictiveMetric."
        )
    convolutions = [layer for layer in layers if not isinstance(layer, nn.Linear)]
    if any(layer.padding_mode != "zeros" for layer in convolutions):
        raise Unsupported("K-FAC: convolutions must pad with zeros. Use PredictiveMetric.")
    return layers


def _factors(
    network: nn.Module, layers: list[Layer], x: Tensor, predict: Predict
) -> list[_Factors]:
    """One forward pass, and K backward passes for the columns of the output's root."""
    inputs: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}

    def keep(layer: nn.Module, arguments: tuple[Tensor, ...], out: Tensor) -> None:
        if id(layer) in outputs:
            raise Unsupported(
                "K-FAC: a layer must be used once in a forward pass. Use PredictiveMetric."
            )
        inputs[id(layer)], outputs[id(layer)] = arguments[0].detach(), out

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    try:
        with torch.enable_grad():
            out = network(x)
    finally:
        for hook in hooks:
            hook.remove()
    if len(outputs) < len(layers):
        raise Unsupported(
            "K-FAC: every layer must be used in a forward pass. Use PredictiveMetric."
        )
    values, vectors = torch.linalg.eigh(_output_fisher(out, predict))
    root = vectors * values.clamp_min(0).sqrt()[..., None, :]  # R with R R' = F
    kept = [outputs[id(layer)] for layer in layers]
    G = [out.new_zeros(()) for _ in layers]
    for column in root.unbind(-1):
        slopes = torch.autograd.grad(out, kept, column.view_as(out), retain_graph=True)
        found = [_output_factor(layer, s, len(x)) for layer, s in zip(layers, slopes, strict=True)]
        G = [total + part for total, part in zip(G, found, strict=True)]
    return [
        _Factors(_input_factor(layer, inputs[id(layer)]), total, layer.bias is not None)
        for layer, total in zip(layers, G, strict=True)
    ]


def _output_fisher(out: Tensor, predict: Predict) -> Tensor:
    """The Fisher matrix of every row's prediction in the K numbers that the network put out, (B, K,
    K): eq. 50.11 with those for theta.
    """
    at = out.detach().requires_grad_()
    with torch.enable_grad():
        try:
            divergence = kl_divergence(predict(at.detach()), predict(at))
        except NotImplementedError as error:
            raise Unsupported(
                f"K-FAC: torch must know the divergence of the prediction; got {error}."
            ) from None
        (slope,) = torch.autograd.grad(divergence.sum(), at, create_graph=True)
        columns = [
            torch.autograd.grad(s.sum(), at, retain_graph=True)[0].flatten(1)
            for s in slope.flatten(1).unbind(1)
        ]
    return torch.stack(columns, -1)


def _patches(layer: Layer, a: Tensor) -> Tensor:
    """Inputs as (c, B, T, a): what each group of the layer sees at each position, with a one for
    the bias.
    """
    if isinstance(layer, nn.Linear):
        seen = a.reshape(len(a), 1, -1, layer.in_features)
    else:
        flat = isinstance(layer, nn.Conv1d)  # a sequence is an image of height one
        a = a[:, :, None] if flat else a
        kernel, stride, dilation = (
            ((1, *s) if flat else s) for s in (layer.kernel_size, layer.stride, layer.dilation)
        )
        left = layer._reversed_padding_repeated_twice
        # (B, T, channels x kernel)
        seen = functional.unfold(functional.pad(a, left), kernel, dilation, stride=stride).mT
        seen = seen.unflatten(-1, (layer.groups, -1)).movedim(2, 1)
    seen = seen.movedim(1, 0)
    return functional.pad(seen, (0, 1), value=1.0) if layer.bias is not None else seen


def _input_factor(layer: Layer, a: Tensor) -> Tensor:
    seen = _patches(layer, a)
    return torch.einsum("cbti,cbtj->cij", seen, seen) / seen.shape[1]


def _output_factor(layer: Layer, slope: Tensor, rows: int) -> Tensor:
    if isinstance(layer, nn.Linear):
        delta = slope.reshape(rows, 1, -1, layer.out_features)
    else:
        delta = slope.flatten(2).mT.unflatten(-1, (layer.groups, -1)).movedim(2, 1)
    return torch.einsum("bcti,bctj->cij", delta, delta) / (rows * delta.shape[2])


def _matrix(part: Tensor, layer: Layer, f: _Factors) -> Tensor:
    """A layer's parameters as (c, o, a): weight rows with their bias at the end."""
    size = layer.weight.numel()
    weight = part[:size].view(f.A.shape[0], f.G.shape[1], -1)
    if not f.bias:
        return weight
    return torch.cat([weight, part[size:].view(*weight.shape[:2], 1)], -1)


def _flat(W: Tensor, f: _Factors) -> Tensor:
    return torch.cat([W[..., :-1].flatten(), W[..., -1].flatten()]) if f.bias else W.flatten()


def _solve(f: _Factors, W: Tensor, damping: float) -> Tensor:
    mean_a, mean_g = (M.diagonal(dim1=1, dim2=2).mean(1).clamp_min(1e-30) for M in (f.A, f.G))
    # pi: so that both factors are damped in proportion to their size
    share = (mean_a / mean_g).sqrt()[:, None, None]
    eye_a, eye_g = (torch.eye(M.shape[-1]).to(W) for M in (f.A, f.G))
    A, G = (
        _cholesky(M, damping)
        for M in (f.A + share * damping**0.5 * eye_a, f.G + damping**0.5 / share * eye_g)
    )
    return torch.cholesky_solve(torch.cholesky_solve(W, G).mT, A).mT


def _cholesky(M: Tensor, damping: float) -> Tensor:
    """The lower factors of (c, d, d); a factor that is singular to rounding is refused."""
    factor, failed = torch.linalg.cholesky_ex(M)
    least, most = factor.diagonal(dim1=1, dim2=2).amin(1) ** 2, M.diagonal(dim1=1, dim2=2).amax(1)
    if failed.any() or not (least > M.shape[-1] * torch.finfo(M.dtype).eps * most).all():
        allowed = "be above zero, and larger, where a factor is singular"
        raise invalid("K-FAC", "damping", allowed, f"{damping:g}", "Use 1e-3.")
    return factor
