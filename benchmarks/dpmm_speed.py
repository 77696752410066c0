"""Sweeps of the Dirichlet process mixture's two samplers: points x sweeps a second on one thread,
beside one scikit-learn EM step.

The processor's own seconds of this thread are counted, so that other work on the machine does not
show.
"""

import time
import warnings

import numpy as np
import torch
from sklearn.mixture import GaussianMixture

from harness import show
from partita.models import DPMixture
from partita.objectives import CollapsedGibbs, InstantiatedGibbs
from partita.objectives.partition_chain import PartitionChain
from partita.tables import as_rows

QUICK = True
K = 6


def clouds(n: int, seed: int = 0) -> np.ndarray:
    """Six clouds in the plane."""
    rng = np.random.default_rng(seed)
    return rng.normal(scale=6, size=(K, 2))[rng.integers(0, K, n)] + rng.normal(size=(n, 2))


def rate(objective: PartitionChain, n: int, burn_in: int, sweeps: int) -> tuple[float, float]:
    """Points x sweeps a second after a burn-in, and the clusters then."""
    g, x = torch.Generator().manual_seed(0), as_rows(clouds(n))
    model = DPMixture(2, generator=g)
    model.initialize(x, generator=g)
    state, info = objective.init(model, x, generator=g), {}
    for _ in range(burn_in):
        state, info = objective.update(model, x, state, generator=g)
    started = time.process_time()
    for _ in range(sweeps):
        state, info = objective.update(model, x, state, generator=g)
    return n * sweeps / (time.process_time() - started), float(info["clusters"])


def peer(n: int, steps: int = 10) -> float:
    """Points x iterations a second of scikit-learn's EM with the same K, for scale."""
    x = clouds(n)
    start = GaussianMixture(
        K,
        max_iter=1,
        tol=0.0,
        reg_covar=1e-6,
        init_params="random_from_data",
        random_state=0,
        warm_start=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start.fit(x)
        started = time.process_time()
        start.set_params(max_iter=steps).fit(x)
    return n * steps / (time.process_time() - started)


def run() -> None:
    """Print the rates and how a sweep's time grows with n."""
    torch.set_num_threads(1)
    em = peer(1_000_000)
    speed, clusters = rate(InstantiatedGibbs(chains=1), 1_000_000, 40, 20)
    show(
        "instantiated, n 1e6, d 2",
        points_x_sweeps_a_second=speed,
        clusters=clusters,
        to_sklearn_em=speed / em,
        target="at least 5e6",
    )
    speed, clusters = rate(CollapsedGibbs(chains=1), 10_000, 40, 40)
    show(
        "collapsed, n 1e4, d 2",
        points_x_sweeps_a_second=speed,
        clusters=clusters,
        target="at least 4e5",
    )
    sizes_of = {
        InstantiatedGibbs: (100_000, 400_000, 1_600_000),
        CollapsedGibbs: (4_000, 16_000, 64_000),
    }
    for sampler, sizes in sizes_of.items():
        objective = sampler(chains=1)
        speeds = {f"n_{n}": rate(objective, n, 20, 10)[0] for n in sizes}
        show(f"{type(objective).__name__}: the same rate at every n is linear time", **speeds)


if __name__ == "__main__":
    run()
