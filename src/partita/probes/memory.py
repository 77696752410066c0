r"""How far back a sequence model remembers.

.. math:: J_n = \max \Big| \frac{\partial y(t)}{\partial u(t - n)} \Big|, \qquad n = 0, \ldots, t;
          \qquad
    \text{for a state-space model } J_n = |C A^n B + D\, \delta_n|
          (theory/sequences.md, eq. 25.1)

What rounding alone can make is not counted as memory: the tolerance is a multiple of the dtype's
precision and of the largest J.

Letters: B draws, L length, D channels, t step, n distance, q and k queries and keys.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from scipy import stats
from torch import Tensor, nn

from partita.core import rng
from partita.core.arguments import Level, PositiveInt, at_least, check_finite, validated
from partita.errors import invalid
from partita.models import Autoregressive
from partita.nets.attention import Attention
from partita.nets.ssm import check_stable, filter_of

ROUNDINGS = 16.0  # of a transform of length L, per doubling of L


@dataclass(frozen=True)
class Memory:
    """What was found.

    Arguments:
        size: J_n by distance n, (L,).
        tolerance: Below which J_n is rounding.
        causal: Whether no step depends on a later one; None where that was not looked at.
    """

    size: Tensor
    tolerance: float
    causal: bool | None = None

    @property
    def length(self) -> int:
        """The largest distance at which the input still matters; -1 where it never does."""
        found = (self.size > self.tolerance).nonzero()
        return int(found[-1]) if len(found) else -1

    @property
    def count(self) -> int:
        """Distances at which the input matters."""
        return int((self.size > self.tolerance).sum())


def memory(module: nn.Module, u: Tensor) -> Memory:
    """J_n of any module that maps ``(B, L, D)`` to ``(B, L, *)``, at its last step, the largest
    over draws and channels.

    >>> average = nn.Conv1d(1, 1, 3, bias=False)
    >>> class Last3(nn.Module):
    ...     def forward(self, u: Tensor) -> Tensor:
    ...         return average(nn.functional.pad(u.mT, (2, 0))).mT
    >>> found = memory(Last3(), torch.randn(2, 20, 1, generator=torch.Generator().manual_seed(0)))
    >>> found.length, found.causal
    (2, True)
    """
    if u.dim() != 3 or u.shape[1] < 2:
        raise invalid("memory", "u", "have shape (B, L, D) with L of at least 2", tuple(u.shape))
    L = u.shape[1]
    last, early = _slopes(module, u, L - 1), {t: _slopes(module, u, t) for t in (0, L // 4, L // 2)}
    rounding = _rounding(u, L)
    largest = max(float(size.max()) for size in (last, *early.values()))
    causal = all((size[t + 1 :] <= rounding * largest).all() for t, size in early.items())
    return Memory(last.flip(0), rounding * float(last.max()), causal)


@validated
def state_space_memory(A: Tensor, B: Tensor, C: Tensor, D: Tensor, length: PositiveInt) -> Memory:
    """J_n of a discrete state-space model in closed form."""
    check_stable("state_space_memory", A, discrete=True)
    size = filter_of(A, B, C, D, length).detach().abs()
    return Memory(size, _rounding(size, length) * float(size.max()), True)


def _rounding(like: Tensor, length: int) -> float:
    return ROUNDINGS * torch.finfo(like.dtype).eps * math.log2(2 * length)


@dataclass(frozen=True)
class LogitsByDistance:
    """q . k before the softmax, averaged over heads and over all pairs at one distance, with
    intervals over draws, each (layers, L).
    """

    mean: Tensor
    low: Tensor
    high: Tensor
    level: float


@validated
@torch.no_grad()
def attention_by_distance(
    model: Autoregressive,
    *,
    draws: Annotated[int, at_least(2)] = 32,
    level: Level = 0.95,
    generator: torch.Generator,
) -> LogitsByDistance:
    """Logits of every attention layer on random tokens after the start, (25.2); intervals are
    Student's over independent sequences.
    """
    states = model.settings()["states"]
    if model.settings()["element"] != "categorical" or model.net.mixer != "attention":
        allowed = "be a model of tokens with backbone 'attention'"
        raise invalid("attention_by_distance", "model", allowed, model.title())
    L = model.length
    tokens = torch.floor(states * rng.uniform((draws, L, 1), model.first, generator))
    # (layers, draws, L)
    seen = torch.stack([_by_distance(logits) for logits in _layer_logits(model, tokens)])
    half = float(stats.t.ppf(0.5 + level / 2, draws - 1)) * seen.std(1) / draws**0.5
    mean = seen.mean(1)
    return LogitsByDistance(mean, mean - half, mean + half, level)


def _slopes(module: nn.Module, u: Tensor, t: int) -> Tensor:
    """The largest |dy(t) / du(s)| for every s, (L,)."""
    u = u.detach().clone().requires_grad_()
    out = module(u)
    y: Tensor = (out[0] if isinstance(out, tuple) else out)[:, t]
    size = u.new_zeros(u.shape[1])
    if not y.requires_grad:  # it does not look at u at all
        return size
    # rows of a batch do not meet, so their sum gives each its own slope
    for channel in range(y.shape[-1]):
        (slope,) = torch.autograd.grad(
            y[:, channel].sum(), u, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        remedy = "Give it inputs at which it can be differentiated."
        check_finite("memory", "the slopes of module", slope, remedy)
        size = torch.maximum(size, slope.abs().amax((0, 2)))
    return size


def _layer_logits(model: Autoregressive, tokens: Tensor) -> list[Tensor]:
    """q . k of each layer, averaged over heads, (B, L, L)."""
    found: list[Tensor] = []

    def look(mixer: Attention, inputs: tuple[Tensor, ...]) -> None:
        q, k = mixer.project(inputs[0])[1]
        found.append((q @ k.mT).mean(1))

    mixers = [part for part in model.net.modules() if isinstance(part, Attention)]
    hooks = [mixer.register_forward_pre_hook(look) for mixer in mixers]
    try:
        model.contexts(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _by_distance(logits: Tensor) -> Tensor:
    """Means along the diagonals at and below the main one, ``(B, L, L) -> (B, L)``."""
    return torch.stack([logits.diagonal(-n, 1, 2).mean(1) for n in range(logits.shape[-1])], 1)
