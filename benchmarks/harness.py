"""Measure two things side by side in one run and print their ratio: absolute times are noise on shared machines."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch


def seconds(function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Time of one call, by the wall unless another clock is given."""
    started = clock()
    function()
    return clock() - started


def side_by_side(
    candidate: Callable[[], Any],
    reference: Callable[[], Any],
    rounds: int = 60,
    warm_up: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float, float]:
    """Median seconds of each, called in turn, and the median of the ratios of neighbouring calls."""
    for _ in range(warm_up):
        candidate()
        reference()
    pairs = [(seconds(candidate, clock), seconds(reference, clock)) for _ in range(rounds)]
    own, other = (median(times) for times in zip(*pairs, strict=True))
    return own, other, median(a / b for a, b in pairs)


LINES: list[dict[str, Any]] = []  # what was shown so far, for the file of results


def show(name: str, **columns: Any) -> None:
    """One line of a benchmark's output."""
    LINES.append({"what": name, **{key: value if isinstance(value, str | int | float) else str(value) for key, value in columns.items()}})
    shown = {key.replace("_", " "): f"{value:.5g}" if isinstance(value, float) else value for key, value in columns.items()}
    print(f"{name}: " + "  ".join(f"{key} {value}" for key, value in shown.items()), flush=True)


def mnist_like(rows: int, generator: torch.Generator) -> torch.Tensor:
    """Binary rows of 784 columns with a fifth of ones, for timing where the real data are not at hand."""
    return (torch.rand(rows, 784, generator=generator) < 0.2).float()


def machine() -> str:
    """Threads and versions, as a line."""
    return f"torch {torch.__version__}, numpy {np.__version__}, {torch.get_num_threads()} threads"
