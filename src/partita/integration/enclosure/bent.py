r"""Operations that bend: the slope at the middle is kept, and what the function bends away from it
is added to the remainder.

.. math:: f(c + \delta) = f(c) + f'(c)\, \delta + [0, \max_{\pm} f(c \pm R) - f(c) \mp f'(c) R]
          \quad \text{for convex } f
          (theory/scoring.md, eq. 5.14)
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from partita.integration.enclosure.form import Form, NoRule, aten
from partita.integration.enclosure.linear import (
    add_,
    between_,
    each_,
    first_,
    neg_,
    number_,
    parts_,
    scaled_,
)

Function = Callable[[Tensor], Tensor]
Rule = Callable[..., Form]


def mul_(func: Any, a: Any, b: Any) -> Form:
    """Of two forms, or of one and what does not vary."""
    a, b = number_(a), number_(b)
    if a is b:
        return square_(a)
    if not isinstance(a, Form):
        a, b = b, a
    if not isinstance(b, Form):
        return scaled_(a, torch.as_tensor(b, dtype=a.dtype, device=a.device))
    slopes = [a.c * v + b.c * u for u, v in zip(a.parts[1:-1], b.parts[1:-1], strict=True)]
    return Form(
        [a.c * b.c, *slopes, a.c.abs() * b.parts[-1] + b.c.abs() * a.parts[-1] + a.reach * b.reach]
    )


def div_(func: Any, a: Any, b: Any, rounding_mode: Any = None) -> Form:
    if rounding_mode is not None:
        raise NoRule(str(func))
    a, b = number_(a), number_(b)
    return mul_(
        func,
        a,
        reciprocal_(func, b)
        if isinstance(b, Form)
        else 1.0 / torch.as_tensor(b, dtype=a.dtype, device=a.device),
    )


def bent_(x: Form, value: Tensor, slope: Tensor, least: Tensor, most: Tensor) -> Form:
    """value + slope (x - c) + something between ``least`` and ``most``; flat where that reaches
    less far.
    """
    half = 0.5 * (most - least)
    return Form(
        [
            value + 0.5 * (most + least),
            *(slope * g for g in x.parts[1:-1]),
            slope.abs() * x.parts[-1] + half,
        ]
    )


def convex_(f: Function, slope: Function, sign: float = 1.0, domain: float = -math.inf) -> Rule:
    """The rule of a function that bends one way (``sign`` -1: downwards), defined above
    ``domain``.
    """

    def rule(func: Any, x: Form, *_: Any, **__: Any) -> Form:
        low, high = x.ends()
        low = low.clamp_min(domain) if domain > -math.inf else low
        c = 0.5 * (low + high) if domain > -math.inf else x.c
        value, k = f(c), slope(c)
        off = torch.maximum(
            sign * (f(low) - value - k * (low - c)), sign * (f(high) - value - k * (high - c))
        ).clamp_min(0)
        value = value + k * (x.c - c)
        zero = torch.zeros_like(off)
        return bent_(x, value, k, zero, off) if sign > 0 else bent_(x, value, k, -off, zero)

    return rule


def curved_(f: Function, slope: Function, bend: float, least: float, most: float) -> Rule:
    """The rule of a function whose second derivative is at most ``bend``, with values between
    ``least`` and ``most``.
    """

    def rule(func: Any, x: Form, *_: Any, **__: Any) -> Form:
        off, value, k = 0.5 * bend * x.reach.square(), f(x.c), slope(x.c)
        wide = off + k.abs() * x.reach > most - least
        made = bent_(x, value, k, -off, off).parts
        flat = between_(torch.full_like(value, least), torch.full_like(value, most), x).parts
        return Form([torch.where(wide, u, v) for u, v in zip(flat, made, strict=True)])

    return rule


def bumped_(
    base: Rule, f: Function, slope: Function, bend: float, least: float, most: float
) -> Rule:
    """The rule of a function that differs from one with a rule by ``least`` to ``most`` (SiLU and
    GELU from ReLU).
    """

    def rule(func: Any, x: Form, *_: Any, **__: Any) -> Form:
        off, value, k = 0.5 * bend * x.reach.square(), f(x.c), slope(x.c)
        near, far = bent_(x, value, k, -off, off), base(func, x)
        rough = far.parts
        far = Form(
            [rough[0] + 0.5 * (least + most), *rough[1:-1], rough[-1] + 0.5 * (most - least)]
        )
        return Form(
            [
                torch.where(far.parts[-1] < near.parts[-1], u, v)
                for u, v in zip(far.parts, near.parts, strict=True)
            ]
        )

    return rule


def square_(x: Form) -> Form:
    reach = x.reach
    bent = bent_(x, x.c.square(), 2 * x.c, torch.zeros_like(reach), reach.square()).parts
    # is never negative
    flat = between_(
        (x.c.abs() - reach).clamp_min(0).square(), (x.c.abs() + reach).square(), x
    ).parts
    return Form([torch.where(x.c.abs() < 2 * reach, u, v) for u, v in zip(flat, bent, strict=True)])


def pow_(func: Any, x: Any, p: Any) -> Form:
    """x^p for a number p, or p^x for a number x."""
    if isinstance(p, Form) and not isinstance(x, Tensor):
        return exp_(func, mul_(func, p, math.log(x)))
    if isinstance(p, Tensor) or not isinstance(x, Form):
        raise NoRule(str(func))
    whole = p == int(p) and p > 0
    if p in (1, 2):
        return x if p == 1 else square_(x)
    if whole and p % 2:
        return mul_(func, pow_(func, x, p - 1), x)
    low = x.ends()[0]
    if not whole and bool((low < 0).any() or (p < 0 and (low == 0).any())):
        raise NoRule(str(func))
    bends = 1.0 if p > 1 or p < 0 else -1.0
    return convex_(lambda t: t**p, lambda t: p * t ** (p - 1), bends, -math.inf if whole else 0.0)(
        func, x
    )


def reciprocal_(func: Any, x: Form) -> Form:
    low, high = x.ends()
    if bool((low > 0).all()):
        return convex_(torch.reciprocal, lambda t: -(t**-2))(func, x)
    if bool((high < 0).all()):
        return neg_(func, convex_(torch.reciprocal, lambda t: -(t**-2))(func, neg_(func, x)))
    raise NoRule(str(func))


def logsumexp_(func: Any, x: Form, dim: Any, keepdim: bool = False) -> Form:
    """log sum exp of x_i = x_j + log sum exp of (x_i - x_j), j the greatest in the middle: what is
    far below it adds nothing.
    """
    dims = [dim] if isinstance(dim, int) else list(dim)
    if len(dims) > 1:
        raise NoRule(str(func))
    j = x.c.argmax(dims[0], keepdim=True)
    lead = [part.gather(dims[0], j) for part in x.parts]
    others = [part - first for part, first in zip(x.parts[:-1], lead[:-1], strict=True)]
    rest = (x.parts[-1] + lead[-1]).scatter(dims[0], j, 0.0)
    reach = sum((g.abs() for g in others[1:]), rest)
    value = torch.logsumexp(others[0], dims, keepdim=True)
    w = (others[0] - value).exp()
    most = torch.logsumexp(others[0] - value + reach, dims, keepdim=True) + dot_(w, reach, dims)
    half = 0.5 * torch.minimum(most, 0.5 * reach.amax(dims, keepdim=True).square())
    slopes = [g + dot_(w, o, dims) for g, o in zip(lead[1:-1], others[1:], strict=True)]
    parts = [lead[0] + value + half, *slopes, lead[-1] + dot_(w, rest, dims) + half]
    return Form(parts if keepdim else [part.squeeze(dims[0]) for part in parts])


def dot_(w: Tensor, x: Tensor, dims: list[int]) -> Tensor:
    return (w * x).sum(dims, keepdim=True)


def log_softmax_(func: Any, x: Form, dim: int, half: bool = False) -> Form:
    return add_(aten.sub.Tensor, x, logsumexp_(func, x, dim, True))


def softmax_(func: Any, x: Form, dim: int, half: bool = False) -> Form:
    return exp_(func, log_softmax_(func, x, dim))


def logaddexp_(func: Any, a: Any, b: Any) -> Form:
    like = first_((a, b))
    shape = torch.broadcast_shapes(
        *(torch.as_tensor(t).shape if not isinstance(t, Tensor) else t.shape for t in (a, b))
    )
    rows = [[part.expand(shape) for part in parts_(t, like)] for t in (a, b)]
    return logsumexp_(func, Form([torch.stack(pair, -1) for pair in zip(*rows, strict=True)]), -1)


def rising_(func: Any, x: Form, *args: Any, **kwargs: Any) -> Form:
    """A function that never falls, by its values at the ends."""
    low, high = (func(end, *args, **kwargs) for end in x.ends())
    return between_(low, high, x)


def clamp_(func: Any, x: Form, min: Any = None, max: Any = None) -> Form:
    if max is None:
        return convex_(lambda t: t.clamp_min(min), lambda t: (t > min).to(t))(func, x)
    if min is None:
        return convex_(lambda t: t.clamp_max(max), lambda t: (t < max).to(t), -1.0)(func, x)
    return clamp_(func, clamp_(func, x, min), None, max)


def larger_(func: Any, a: Any, b: Any) -> Form:
    """max(a, b) = a + relu(b - a), and min alike."""
    if not isinstance(a, Form):
        a, b = b, a
    gap = add_(aten.sub.Tensor, b, a)
    if func.overloadpacket is aten.maximum:
        return add_(aten.add.Tensor, a, relu_(func, gap))
    return add_(aten.sub.Tensor, a, relu_(func, neg_(func, gap)))


def norm_(
    func: Any, x: Form, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Form:
    dims = list(range(x.dim())) if dim is None else dim
    if ord == 1:
        return each_(aten.sum.dim_IntList, abs_(func, x), dims, keepdim)
    if ord != 2:
        raise NoRule(str(func))
    return sqrt_(func, each_(aten.sum.dim_IntList, square_(x), dims, keepdim))


def gelu_slope_(t: Tensor) -> Tensor:
    """The derivative of GELU."""
    return 0.5 * (1 + torch.erf(t / math.sqrt(2))) + t * torch.exp(-0.5 * t * t) / math.sqrt(
        2 * math.pi
    )


exp_ = convex_(torch.exp, torch.exp)
sqrt_ = convex_(torch.sqrt, lambda t: 0.5 * t.clamp_min(1e-300).rsqrt(), -1.0, 0.0)
abs_ = convex_(torch.abs, torch.sign)
relu_ = convex_(torch.relu, lambda t: (t > 0).to(t))
log_ = convex_(torch.log, torch.reciprocal, -1.0, 0.0)
