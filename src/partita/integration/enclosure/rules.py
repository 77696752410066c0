"""Which rule bounds which operation of torch."""

import math

import torch
from torch.nn import functional

from partita.integration.enclosure import bent, linear
from partita.integration.enclosure.form import RULES, Fuzzy, aten

RULES |= {
    **dict.fromkeys(
        [
            aten.view,
            aten._unsafe_view,
            aten.reshape,
            aten.unsqueeze,
            aten.squeeze,
            aten.expand,
            aten.slice,
            aten.select,
            aten.t,
            aten.transpose,
            aten.permute,
            aten.clone,
            aten.detach,
            aten.alias,
            aten.index,
            aten.index_select,
            aten.unbind,
            aten.split,
            aten.split_with_sizes,
            aten.repeat,
            aten.flip,
            aten.diagonal,
            aten.lift_fresh,
            aten.sum,
            aten.mean,
            aten.cumsum,
        ],
        linear.each_,
    ),
    **dict.fromkeys([aten.cat, aten.stack], linear.joined_),
    **dict.fromkeys([aten.add, aten.sub], linear.add_),
    **dict.fromkeys([aten.mm, aten.mv, aten.bmm, aten.dot], linear.product_),
    **dict.fromkeys([aten.addmm, aten.addmv, aten.baddbmm], linear.addmm_),
    **dict.fromkeys([aten.lt, aten.le, aten.gt, aten.ge], linear.compare_),
    **dict.fromkeys([aten.maximum, aten.minimum], bent.larger_),
    **dict.fromkeys(
        [
            aten.amax,
            aten.amin,
            aten.cummax,
            aten.floor,
            aten.ceil,
            aten.round,
            aten.sign,
            aten.hardtanh,
            aten.hardsigmoid,
            aten.leaky_relu,
            aten.elu,
        ],
        bent.rising_,
    ),
    aten._to_copy: linear.copied_,
    aten.rsub: linear.rsub_,
    aten.neg: linear.neg_,
    aten.mul: bent.mul_,
    aten.div: bent.div_,
    aten.pow: bent.pow_,
    aten.reciprocal: bent.reciprocal_,
    aten.rsqrt: lambda func, x: bent.reciprocal_(func, bent.sqrt_(func, x)),
    aten.logsumexp: bent.logsumexp_,
    aten._log_softmax: bent.log_softmax_,
    aten._softmax: bent.softmax_,
    aten.logaddexp: bent.logaddexp_,
    aten.clamp: bent.clamp_,
    aten.clamp_min: lambda func, x, m: bent.clamp_(func, x, m),
    aten.clamp_max: lambda func, x, m: bent.clamp_(func, x, None, m),
    aten.linalg_vector_norm: bent.norm_,
    aten.where: linear.where_,
    **dict.fromkeys(
        [aten.bitwise_and, aten.bitwise_or, aten.logical_and, aten.logical_or], linear.both_
    ),
    **dict.fromkeys(
        [aten.bitwise_not, aten.logical_not], lambda func, a: Fuzzy(~a.maybe, ~a.sure, a.like)
    ),
    aten.exp: bent.exp_,
    aten.expm1: bent.convex_(torch.expm1, torch.exp),
    aten.log: bent.log_,
    aten.log1p: bent.convex_(torch.log1p, lambda t: 1 / (1 + t), -1.0, -1.0),
    aten.sqrt: bent.sqrt_,
    aten.abs: bent.abs_,
    aten.relu: bent.relu_,
    aten.softplus: lambda func, x, beta=1, threshold=20: bent.convex_(
        lambda t: functional.softplus(t, beta, threshold), lambda t: torch.sigmoid(beta * t)
    )(func, x),
    aten.log_sigmoid_forward: lambda func, x: (
        bent.convex_(functional.logsigmoid, lambda t: torch.sigmoid(-t), -1.0)(func, x),
        x.c[:0],
    ),
    aten.cosh: bent.convex_(torch.cosh, torch.sinh),
    aten.tanh: bent.curved_(torch.tanh, lambda t: 1 - torch.tanh(t) ** 2, 0.77, -1.0, 1.0),
    aten.sigmoid: bent.curved_(
        torch.sigmoid, lambda t: torch.sigmoid(t) * torch.sigmoid(-t), 0.0963, 0.0, 1.0
    ),
    aten.sin: bent.curved_(torch.sin, torch.cos, 1.0, -1.0, 1.0),
    aten.cos: bent.curved_(torch.cos, lambda t: -torch.sin(t), 1.0, -1.0, 1.0),
    aten.erf: bent.curved_(
        torch.erf, lambda t: 2 / math.sqrt(math.pi) * torch.exp(-t * t), 0.968, -1.0, 1.0
    ),
    aten.special_ndtr: bent.curved_(
        torch.special.ndtr,
        lambda t: torch.exp(-0.5 * t * t) / math.sqrt(2 * math.pi),
        0.242,
        0.0,
        1.0,
    ),
    aten.atan: bent.curved_(torch.atan, lambda t: 1 / (1 + t * t), 0.65, -math.pi / 2, math.pi / 2),
    aten.silu: bent.bumped_(
        bent.relu_,
        functional.silu,
        lambda t: torch.sigmoid(t) * (1 + t * torch.sigmoid(-t)),
        0.5,
        -0.2785,
        0.0,
    ),
    aten.gelu: bent.bumped_(bent.relu_, functional.gelu, bent.gelu_slope_, 1.13, -0.1701, 0.0),
}
