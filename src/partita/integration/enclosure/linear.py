"""Operations that keep forms linear: shapes, sums, products with what does not vary; and choices
between forms.
"""

from typing import Any

import torch
from torch import Tensor

from partita.integration.enclosure.form import Form, Fuzzy, NoRule, Parts, aten


def parts_(x: Any, like: Form) -> Parts:
    """Of a form, of a truth as a number, or of what does not vary over the box."""
    if isinstance(x, Fuzzy):
        x = number_(x)
    if isinstance(x, Form):
        return x.parts
    c = torch.as_tensor(x, dtype=like.dtype, device=like.device)
    return [c] + [torch.zeros_like(c)] * (len(like.parts) - 1)


def first_(args: Any) -> Form:
    """The first form among them, or one like the first truth."""
    return next(number_(a) for a in args if isinstance(a, Form | Fuzzy))


def number_(x: Any) -> Any:
    """A truth as one or zero, or anything between where it may differ; all else as it is."""
    if not isinstance(x, Fuzzy):
        return x
    return between_(x.sure.to(x.like.dtype), x.maybe.to(x.like.dtype), x.like)


def each_(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Shapes, sums: the same for every part."""
    x = number_(x) if func.overloadpacket in (aten.sum, aten.mean, aten.cumsum) else x
    if isinstance(x, Fuzzy):
        return Fuzzy(func(x.sure, *args, **kwargs), func(x.maybe, *args, **kwargs), x.like)
    if not isinstance(x, Form):  # a form among the indices
        raise NoRule(str(func))
    made = [func(part, *args, **kwargs) for part in x.parts]
    if isinstance(made[0], (tuple, list)):
        return [Form(list(piece)) for piece in zip(*made, strict=True)]
    return Form(made)


def joined_(func: Any, xs: Any, *args: Any, **kwargs: Any) -> Form:
    """Several tensors in one."""
    like = first_(xs)
    rows = [parts_(x, like) for x in xs]
    return Form([func([row[i] for row in rows], *args, **kwargs) for i in range(len(like.parts))])


def add_(func: Any, a: Any, b: Any, *, alpha: Any = 1) -> Form:
    sign = -alpha if func.overloadpacket in (aten.sub, aten.sub_) else alpha
    like = first_((a, b))
    p, q = parts_(a, like), parts_(b, like)
    made = [u + sign * v for u, v in zip(p[:-1], q[:-1], strict=True)] + [p[-1] + abs(sign) * q[-1]]
    return Form(made)


def rsub_(func: Any, a: Any, b: Any, alpha: Any = 1) -> Form:
    return add_(aten.sub.Tensor, b, a, alpha=alpha)


def neg_(func: Any, x: Form) -> Form:
    return scaled_(x, torch.tensor(-1.0, dtype=x.dtype, device=x.device))


def scaled_(x: Form, w: Tensor) -> Form:
    return Form([part * w for part in x.parts[:-1]] + [x.parts[-1] * w.abs()])


def product_(func: Any, a: Any, b: Any) -> Form:
    """A matrix product with weights that do not vary."""
    if isinstance(a, Form) and isinstance(b, Form):
        raise NoRule(str(func))
    if isinstance(a, Form):
        return Form([func(part, b) for part in a.parts[:-1]] + [func(a.parts[-1], b.abs())])
    return Form([func(a, part) for part in b.parts[:-1]] + [func(a.abs(), b.parts[-1])])


def addmm_(func: Any, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Form:
    """alpha a b + beta bias."""
    base = {aten.addmm: aten.mm, aten.addmv: aten.mv, aten.baddbmm: aten.bmm}[
        func.overloadpacket
    ].default
    return add_(aten.add.Tensor, product_(base, a, b) * alpha, bias if beta == 1 else bias * beta)


def between_(low: Tensor, high: Tensor, like: Form) -> Form:
    """Anything from low to high."""
    return Form(
        [0.5 * (low + high), *(torch.zeros_like(low) for _ in like.parts[1:-1]), 0.5 * (high - low)]
    )


def compare_(func: Any, a: Any, b: Any) -> Fuzzy:
    gap = add_(aten.sub.Tensor, a, b)
    low, high = gap.ends()
    if func.overloadpacket in (aten.lt, aten.le):
        low, high = -high, -low
    return Fuzzy(low > 0, high >= 0, gap)


def both_(func: Any, a: Any, b: Any) -> Fuzzy:
    """Of two truths: and, or."""
    (s, m), (t, n) = ((x.sure, x.maybe) if isinstance(x, Fuzzy) else (x, x) for x in (a, b))
    return Fuzzy(func(s, t), func(m, n), next(x.like for x in (a, b) if isinstance(x, Fuzzy)))


def where_(func: Any, mask: Any, a: Any, b: Any) -> Form:
    like = mask.like if isinstance(mask, Fuzzy) else first_((a, b))
    sure, maybe = (mask.sure, mask.maybe) if isinstance(mask, Fuzzy) else (mask, mask)
    shape = torch.broadcast_shapes(*(t.shape for t in (mask, a, b) if isinstance(t, Tensor)))
    p, q = ([part.expand(shape).to(like.dtype) for part in parts_(t, like)] for t in (a, b))
    (alow, ahigh), (blow, bhigh) = Form(p).ends(), Form(q).ends()
    hull = between_(torch.minimum(alow, blow), torch.maximum(ahigh, bhigh), like).parts
    return Form(
        [torch.where(sure, u, torch.where(maybe, h, v)) for u, v, h in zip(p, q, hull, strict=True)]
    )


def copied_(func: Any, x: Any, **kwargs: Any) -> Any:
    """In another type; a truth becomes a number unless it stays one."""
    return each_(func, number_(x) if kwargs.get("dtype") != torch.bool else x, **kwargs)
