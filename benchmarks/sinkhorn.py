"""Log-domain Sinkhorn beside POT's: milliseconds an iteration at n 1000, and the memory of n
10,000. Exact transport beside POT's ``emd``.

Run it where POT is installed.
"""

import subprocess
import sys
from importlib.util import find_spec

import torch
from torch import Tensor

from harness import leave_out, seconds, show, side_by_side
from partita.divergences.transport import cost_matrix, exact_transport, sinkhorn

QUICK = True
EPSILON, ITERATIONS = 0.05, 20
LARGE = """
import torch, resource, time
from partita.divergences.transport import cost_matrix, sinkhorn
g = torch.Generator().manual_seed(0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
c = cost_matrix(torch.randn(10_000, 2, generator=g), torch.randn(10_000, 2, generator=g) + 1)
started = time.perf_counter()
found = sinkhorn(c, epsilon=0.5, iterations=10)
spent = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak / 2**20, spent / found.iterations, before / 2**20)
"""


def problem(n: int) -> Tensor:
    """Squared distances between two clouds, float32."""
    g = torch.Generator().manual_seed(0)
    return cost_matrix(torch.randn(n, 2, generator=g), torch.randn(n, 2, generator=g) + 1)


def iterations_of_both(c: Tensor) -> None:
    """A fixed number of iterations of each, in turn."""
    import ot  # pyright: ignore[reportMissingImports]

    even = torch.full((len(c),), 1 / len(c))
    for name, args in {
        "NumPy": (even.numpy(), even.numpy(), c.numpy()),
        "torch": (even, even, c),
    }.items():
        made = []

        def own(made: list[int] = made) -> None:
            made.append(
                sinkhorn(c, epsilon=EPSILON, tolerance=1e-3, iterations=ITERATIONS).iterations
            )

        def theirs(args: tuple = args) -> None:
            ot.sinkhorn(
                *args, EPSILON, method="sinkhorn_log", numItermax=ITERATIONS, stopThr=0, warn=False
            )

        a, b, ratio = side_by_side(own, theirs, rounds=5, warm_up=1)
        scale = made[-1] / ITERATIONS
        show(
            f"Sinkhorn n 1000 against POT, {name}",
            milliseconds=1e3 * a / made[-1],
            theirs=1e3 * b / ITERATIONS,
            times_as_fast=scale / ratio,
            target="at most 4 ms",
        )


def run() -> None:
    """Print times, ratios and peak memory."""
    c = problem(1000)
    if find_spec("ot") is None:
        leave_out("POT", "not installed here")
        made = sinkhorn(c, epsilon=EPSILON, tolerance=1e-3, iterations=ITERATIONS).iterations
        spent = min(
            seconds(lambda: sinkhorn(c, epsilon=EPSILON, tolerance=1e-3, iterations=ITERATIONS))
            for _ in range(5)
        )
        show("Sinkhorn n 1000", milliseconds=1e3 * spent / made, target="at most 4 ms")
    else:
        iterations_of_both(c)
    for n in (500, 1000):
        solvers = ("assignment", *(("pot",) if find_spec("ot") else ()))
        times = {
            name: min(
                seconds(lambda s=name, n=n: exact_transport(problem(n), solver=s)) for _ in range(3)
            )
            for name in solvers
        }
        show(f"exact n {n}", **times)
    found = subprocess.run(
        [sys.executable, "-c", LARGE], capture_output=True, text=True, check=True
    ).stdout.split()
    show(
        "Sinkhorn n 10,000",
        gigabytes=float(found[0]),
        of_which_imports=float(found[2]),
        seconds_an_iteration=float(found[1]),
        target="under 2 GB",
    )


if __name__ == "__main__":
    run()
