"""Measure two things side by side in one run and print their ratio: absolute times are noise on
shared machines.
"""

import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import partita

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn")


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
    """Median seconds of each, called in turn, and the median of the ratios of neighboring calls."""
    for _ in range(warm_up):
        candidate()
        reference()
    pairs = [(seconds(candidate, clock), seconds(reference, clock)) for _ in range(rounds)]
    own, other = (median(times) for times in zip(*pairs, strict=True))
    return own, other, median(a / b for a, b in pairs)


LINES: list[dict[str, Any]] = []  # what was shown so far, for the file of results
CURVES: list[dict[str, Any]] = []  # costs against sizes, for its figures
NOTES: list[str] = []  # what was left out, and why


def show(name: str, **columns: Any) -> None:
    """One line of a benchmark's output."""
    line = {key: plain(value) for key, value in columns.items()}
    LINES.append({"what": name, **line})
    shown = {
        key.replace("_", " "): f"{value:.5g}" if isinstance(value, float) else value
        for key, value in line.items()
    }
    print(f"{name}: " + "  ".join(f"{key} {value}" for key, value in shown.items()), flush=True)


def keep_curve(what: str, axis: str, **points: Sequence[float]) -> None:
    """Costs against one sort of size, drawn on the page of results."""
    CURVES.append(
        {
            "what": what,
            "axis": axis,
            **{name: [plain(value) for value in values] for name, values in points.items()},
        }
    )


def leave_out(what: str, reason: str) -> None:
    """Say on the screen and on the page that something was not measured, and why."""
    NOTES.append(f"{what}: {reason}")
    print(f"{what}: {reason}", flush=True)


def plain(value: Any) -> Any:
    """A value as JSON has it; what is not a finite number is a word.

    >>> plain(np.float32(0.5)), plain(float("nan")), plain(True), plain(torch.tensor(2))
    (0.5, 'nan', True, 2)
    """
    value = value.item() if isinstance(value, np.generic | torch.Tensor) else value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float) else str(value)


def mnist_like(rows: int, generator: torch.Generator) -> torch.Tensor:
    """Binary rows of 784 columns with a fifth of ones, for timing where the real data are not at
    hand.
    """
    return (torch.rand(rows, 784, generator=generator) < 0.2).float()


def about() -> dict[str, str]:
    """Processor, threads and versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    where = {
        "processor": _processor(),
        "cores": str(cores),
        "threads": str(torch.get_num_threads()),
        "system": platform.system(),
    }
    return {
        **where,
        "python": platform.python_version(),
        "partita": partita.__version__,
        **{name: version(name) for name in PACKAGES},
    }


def machine() -> str:
    """The same, as a line."""
    return ", ".join(f"{key} {value}" for key, value in about().items())


def _processor() -> str:
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
