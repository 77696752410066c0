"""How cost grows with rows, dimensions, chains, temperatures, length and processes: measured
exponents beside theory's.

Sizes double. Every operation is called in turn with the others of its sizes, on one thread; its
cost is the least processor time of several looks, so that other work on the machine shows little.
``python benchmarks/scaling.py quick`` takes about a minute.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, log
from typing import Any

import torch

from growing import (
    ais,
    attention_alone,
    em,
    em_products,
    pairs_of_products,
    pcd,
    sequence,
    sinkhorn_steps,
    six_products,
    sums,
    transforms,
)
from harness import keep_curve, leave_out, seconds, show
from powers import departure, fit_power, tail
from processes import _timed

QUICK = True
LEAST_LOOKS = 4
BUDGET = {True: 2.5, False: 12.0}  # processor seconds of a case, quick and full

Make = Callable[[int], Callable[[], Any]]


@dataclass(frozen=True)
class Growth:
    """What grows with which sort of size, and how it should: ``theory`` is the cost up to a factor,
    ``formula`` the same in letters.
    """

    what: str
    axis: str
    formula: str
    theory: Callable[[float], float]


@dataclass(frozen=True)
class Case(Growth):
    """A growth that is measured at sizes that double.

    Arguments:
        first, quick, full: The smallest size, and how many sizes.
        make, bare: The operation at a size, and the arithmetic that it cannot do without.
    """

    first: int
    quick: int
    full: int
    make: Make
    bare: Make


def power(b: float) -> Callable[[float], float]:
    """n^b."""
    return lambda n: n**b


def with_log(n: float) -> float:
    """L log L for transforms of twice the length."""
    return n * log(2 * n)


CASES = (
    Case(
        "EM, 10 Gaussians",
        "rows",
        "n",
        power(1),
        4000,
        5,
        9,
        lambda n: em(n, 10, 10),
        lambda n: em_products(n, 10, 10),
    ),
    Case("Sinkhorn, 5 iterations", "rows", "n²", power(2), 125, 5, 6, sinkhorn_steps, sums),
    Case(
        "EM, 4 Gaussians",
        "dimensions",
        "d²",
        power(2),
        16,
        5,
        6,
        lambda d: em(4000, d, 4),
        lambda d: em_products(4000, d, 4),
    ),
    Case(
        "PCD, D units of a sort",
        "dimensions",
        "D²",
        power(2),
        128,
        5,
        6,
        lambda D: pcd(256, D, D),
        lambda D: six_products(256, D, D),
    ),
    Case(
        "PCD, 784 x 500",
        "chains",
        "C",
        power(1),
        64,
        6,
        7,
        lambda C: pcd(C, 784, 500),
        lambda C: six_products(C, 784, 500),
    ),
    Case(
        "AIS, 784 x 500",
        "chains",
        "C",
        power(1),
        32,
        6,
        8,
        lambda C: ais(10, C, 784, 500),
        lambda C: pairs_of_products(10, C, 784, 500),
    ),
    Case(
        "AIS, 196 x 100",
        "temperatures",
        "T",
        power(1),
        64,
        5,
        7,
        lambda T: ais(T, 64, 196, 100),
        lambda T: pairs_of_products(T, 64, 196, 100),
    ),
    Case("Hyena", "length", "L log L", with_log, 512, 5, 7, partial(sequence, "hyena"), transforms),
    Case("SSM", "length", "L log L", with_log, 512, 5, 7, partial(sequence, "ssm"), transforms),
    Case(
        "attention",
        "length",
        "L²",
        power(2),
        512,
        5,
        6,
        partial(sequence, "attention"),
        attention_alone,
    ),
)
NAMES = {"rbm": "PCD, 784 x 500", "vae": "VAE, 784 to 50", "ais": "AIS, 784 x 500"}
PROCESSES = {True: (("rbm",), 2), False: (("rbm", "vae", "ais"), 3)}  # what is timed, and how often


def least(operations: Sequence[Callable[[], Any]], budget: float) -> list[float]:
    """Least processor seconds of each, after a call to warm up, all in turn until the budget is
    spent.
    """
    for operation in operations:
        operation()
    best, until, looks = [inf] * len(operations), time.process_time() + budget, 0
    while looks < LEAST_LOOKS or time.process_time() < until:
        best = [
            min(known, seconds(operation, time.process_time))
            for known, operation in zip(best, operations, strict=True)
        ]
        looks += 1
    return best


def measure(case: Case, quick: bool) -> None:
    """One case: the operation and its bare arithmetic at every size."""
    n = [case.first * 2**i for i in range(case.quick if quick else case.full)]
    found = least([make(size) for make in (case.make, case.bare) for size in n], BUDGET[quick])
    report(case, n, found[: len(n)], found[len(n) :])


def report(growth: Growth, n: Sequence[int], t: Sequence[float], bare: Sequence[float]) -> None:
    """Exponents over the largest sizes, the operation's with its interval, and its curve beside
    theory's.
    """
    i = tail(n)
    sizes, unit = [n[k] for k in i], [growth.theory(n[k]) for k in i]
    of_sizes = partial(fit_power, sizes)
    found = of_sizes([t[k] for k in i])
    show(
        f"{growth.what} against {growth.axis}",
        exponent=found.exponent,
        low=found.low,
        high=found.high,
        theory=of_sizes(unit).exponent,
        formula=growth.formula,
        bare=of_sizes([bare[k] for k in i]).exponent if bare else "",
        sizes=f"{sizes[0]:,} to {sizes[-1]:,}",
        seconds=t[i[-1]],
        departs=departure(n, t, growth.theory, found),
    )
    keep_curve(
        growth.what,
        growth.axis,
        sizes=n,
        cost=t,
        fitted=sizes,
        theory=[t[i[-1]] * value / unit[-1] for value in unit],
    )


def processes(quick: bool) -> None:
    """Seconds by the wall of the same work shared by one and by two processes, each on a core of
    its own.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if cores < 2:
        leave_out("processes", "two of them need two cores, and this one may use one")
        return
    kinds, looks = PROCESSES[quick]
    for kind in kinds:
        n = [1, 2] * looks
        report(
            Growth(f"{NAMES[kind]}, by the wall", "processes", "1/P", power(-1)),
            n,
            [_timed(kind, count) for count in n],
            [],
        )


def run(quick: bool = False) -> None:
    """Print exponents with their intervals."""
    torch.set_num_threads(1)
    for case in CASES:
        measure(case, quick)
    processes(quick)


if __name__ == "__main__":
    run("quick" in sys.argv)
