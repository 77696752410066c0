"""Hyena against torch's attention and against a plain long convolution, width 64, batch 1: forward, and forward with backward.

``python benchmarks/hyena_speed.py cpu`` measures CPU time on one thread, which leaves out the waiting on a machine that is shared.
"""

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

from harness import show
from partita.nets import Attention, Hyena

WIDTH = 64
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
LONG = (32768, 65536, 131072)


def plain(op: Hyena, u: Tensor) -> Tensor:
    """The same arithmetic with torch.fft alone: transforms of length 2 L, torch's own gradients, torch's depthwise convolution."""
    L = u.shape[1]
    z = torch.nn.functional.pad(op.into(u).transpose(1, 2), (op.kernel - 1, 0))
    v, *gates = torch.nn.functional.conv1d(z, op.short.unsqueeze(1), groups=len(op.short)).chunk(op.order + 1, 1)
    for x, h in zip(gates, op.filters(L), strict=True):
        v = x * torch.fft.irfft(torch.fft.rfft(v, n=2 * L) * torch.fft.rfft(h, n=2 * L), n=2 * L)[..., :L]
    return op.out(v.transpose(1, 2))


Pass = Callable[[Callable[[Tensor], Tensor], Tensor], None]


def forward(f: Callable[[Tensor], Tensor], u: Tensor) -> None:
    """One pass without gradients."""
    with torch.no_grad():
        f(u)


def both(f: Callable[[Tensor], Tensor], u: Tensor) -> None:
    """One pass there and back."""
    f(u).square().sum().backward()


def in_turn(how: Pass, parts: list[Any], u: Tensor, rounds: int, clock: Callable[[], float]) -> list[list[float]]:
    """Seconds of each part, called in turn after one warm-up."""
    table = []
    for _ in range(rounds + 1):
        row = []
        for part in parts:
            started = clock()
            how(part, u)
            row.append(clock() - started)
        table.append(row)
    return table[1:]


def run(clock: Callable[[], float] = time.perf_counter) -> None:
    """Ratios by length, medians over neighbouring calls, and how time grows where attention is left out."""
    g = torch.Generator().manual_seed(0)
    hyena, attention = Hyena(WIDTH, 2, generator=g), Attention(WIDTH, 4, generator=g)
    for L in LENGTHS:
        u = torch.randn(1, L, WIDTH, generator=g)
        for name, how in (("forward", forward), ("forward + backward", both)):
            table = in_turn(how, [hyena, attention, lambda u: plain(hyena, u)], u, 9 if L <= 4096 else 5, clock)
            own, faster, ratio = (median(values) for values in zip(*((a, b / a, a / c) for a, b, c in table), strict=True))
            show(f"L {L}, {name}", hyena_ms=1e3 * own, times_faster_than_attention=faster, ratio_to_plain_fft=ratio)
    before = None
    for L in LONG:
        own = median(row[0] for row in in_turn(both, [hyena], torch.randn(1, L, WIDTH, generator=g), 3, clock))
        show(f"L {L}, forward + backward", hyena_ms=1e3 * own, growth="" if before is None else f"{own / before:.2f} per doubling")
        before = own
    show("targets", faster_than_attention="from L 2048 on, at least 10 x at 16384", ratio_to_plain_fft="at most 1")


if __name__ == "__main__":
    if "cpu" in sys.argv:
        torch.set_num_threads(1)
    run(time.process_time if "cpu" in sys.argv else time.perf_counter)
