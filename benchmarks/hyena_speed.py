"""Hyena against torch's attention and against a plain long convolution, width 64, batch 1: forward,
and forward with backward.

Attention has 4 heads, torch's causal kernel, and its own projections of the same width; Hyena of
order 2 two long convolutions, two gates and three projections. Without gradients Hyena keeps its
filters, which do not depend on the input, while its parameters stay; the plain convolution is then
given the same kept filters, and a line of its own shows a pass that makes them anew. With gradients
nothing is kept.

``python benchmarks/hyena_speed.py cpu`` measures CPU time on one thread, which leaves out the
waiting on a machine that is shared.
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

QUICK = True
WIDTH = 64
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
LONG = (32768, 65536, 131072)


def plain(op: Hyena, u: Tensor) -> Tensor:
    """The same arithmetic with torch.fft alone: transforms of length 2 L, torch's own gradients,
    torch's depthwise convolution.
    """
    L = u.shape[1]
    z = torch.nn.functional.pad(op.into(u).transpose(1, 2), (op.kernel - 1, 0))
    v, *gates = torch.nn.functional.conv1d(z, op.short.unsqueeze(1), groups=len(op.short)).chunk(
        op.order + 1, 1
    )
    filters = op.filters(L) if torch.is_grad_enabled() else op.filters_and_spectra(L)[0]
    for x, h in zip(gates, filters, strict=True):
        v = (
            x
            * torch.fft.irfft(torch.fft.rfft(v, n=2 * L) * torch.fft.rfft(h, n=2 * L), n=2 * L)[
                ..., :L
            ]
        )
    return op.out(v.transpose(1, 2))


def anew(op: Hyena, u: Tensor) -> Tensor:
    """A pass that makes its filters and their transforms."""
    op._kept = None
    return op(u)


Pass = Callable[[Callable[[Tensor], Tensor], Tensor], None]


def forward(f: Callable[[Tensor], Tensor], u: Tensor) -> None:
    """One pass without gradients."""
    with torch.no_grad():
        f(u)


def both(f: Callable[[Tensor], Tensor], u: Tensor) -> None:
    """One pass there and back."""
    f(u).square().sum().backward()


def in_turn(
    how: Pass, parts: list[Any], u: Tensor, rounds: int, clock: Callable[[], float]
) -> list[list[float]]:
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
    """Ratios by length, medians over neighboring calls, and how time grows where attention is left
    out.
    """
    g = torch.Generator().manual_seed(0)
    hyena, attention = Hyena(WIDTH, 2, generator=g), Attention(WIDTH, 4, generator=g)
    for L in LENGTHS:
        u = torch.randn(1, L, WIDTH, generator=g)
        rounds = 9 if L <= 4096 else 5
        for name, how, own in (
            ("forward", forward, hyena),
            ("forward, filters anew", forward, lambda u: anew(hyena, u)),
            ("forward + backward", both, hyena),
        ):
            table = in_turn(how, [own, attention, lambda u: plain(hyena, u)], u, rounds, clock)
            ours, faster, ratio = (
                median(values)
                for values in zip(*((a, b / a, a / c) for a, b, c in table), strict=True)
            )
            show(
                f"L {L}, {name}",
                hyena_ms=1e3 * ours,
                times_faster_than_attention=faster,
                ratio_to_plain_fft=ratio,
            )
    before = None
    for L in LONG:
        own = median(
            row[0]
            for row in in_turn(both, [hyena], torch.randn(1, L, WIDTH, generator=g), 3, clock)
        )
        show(
            f"L {L}, forward + backward",
            hyena_ms=1e3 * own,
            growth="" if before is None else f"{own / before:.2f} per doubling",
        )
        before = own
    show(
        "targets",
        faster_than_attention="from L 2048 on, at least 10 x at 16384",
        ratio_to_plain_fft="at most 1",
    )


if __name__ == "__main__":
    if "cpu" in sys.argv:
        torch.set_num_threads(1)
    run(time.process_time if "cpu" in sys.argv else time.perf_counter)
