"""EM for Gaussian mixtures against scikit-learn, iteration by iteration; filling digits with a
fifth of their values missing.

One thread and float64 on both sides. ``points`` are points times iterations a second.
"""

import time
import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.impute import KNNImputer
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from harness import leave_out, machine, show, side_by_side
from partita.estimators import MixtureDensity, MixturePPCADensity, PPCADensity
from partita.models import Mixture
from partita.objectives import EM
from partita.tables import Rows

SIZES = ((100_000, 2, 6, 3.0), (50_000, 10, 10, 3.0), (100_000, 32, 16, 2.5))


def clouds(n: int, d: int, K: int) -> np.ndarray:
    """K Gaussian clouds."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) + 3 * rng.normal(size=(K, d))[rng.integers(K, size=n)]


def gaussian_mixture(n: int, d: int, K: int, wanted: float, rounds: int = 9) -> None:
    """One EM iteration of each, in turn."""
    x, g = clouds(n, d, K), torch.Generator().manual_seed(0)
    rows, model, em = Rows(x), Mixture(K, d, generator=g), EM()
    model.initialize(rows, generator=g)
    state = em.init(model, rows, generator=g)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = GaussianMixture(K, max_iter=1, init_params="random_from_data", random_state=0).fit(
            x
        )

    def iteration() -> None:
        theirs._m_step(x, theirs._e_step(x)[1])

    own, other, ratio = side_by_side(
        lambda: em.update(model, rows, state, generator=g), iteration, rounds=rounds, warm_up=2
    )
    show(
        f"EM full n={n} d={d} K={K}",
        points=n / own,
        scikit_learn=n / other,
        times_as_fast=1 / ratio,
        wanted=wanted,
    )


def digits_with_gaps(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gray levels 0 to 16, whole and with 20 % missing completely at random."""
    x = load_digits().data
    return x, np.where(np.random.default_rng(seed).random(x.shape) < 0.2, np.nan, x)


def imputation() -> None:
    """Root mean squared error over the missing values."""
    x, gappy = digits_with_gaps()
    gaps = np.isnan(gappy)
    for name, wanted, fill in (
        ("PPCA and ARD", 2.75, lambda: PPCADensity(random_state=0).fit(gappy).impute(gappy)),
        (
            "mixture of PPCA and ARD, 10 x 12",
            2.35,
            lambda: MixturePPCADensity(10, random_state=0).fit(gappy).impute(gappy),
        ),
        (
            "mixture of PPCA, 10 x 12",
            2.35,
            lambda: MixturePPCADensity(10, 12, random_state=0).fit(gappy).impute(gappy),
        ),
        ("KNNImputer", float("nan"), lambda: KNNImputer().fit_transform(gappy)),
    ):
        started, cpu = time.perf_counter(), time.process_time()
        filled = fill()
        error = float(np.sqrt(((filled - x)[gaps] ** 2).mean()))
        spent = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
        show(f"digits, 20 % missing: {name}", rmse=error, wanted=wanted, **spent)


def old_faithful() -> None:
    """Known maxima of the log-likelihood, where the data are at hand."""
    from partita.datasets import load

    try:
        x = load("mixtures/mixtures:faithful").train.array
    except Exception as error:  # the data are optional here
        leave_out(
            "Old Faithful",
            f"set PARTITA_DATA to the folder that holds mixtures ({type(error).__name__})",
        )
        return
    for K, covariance, known in ((3, "tied", -1126.32), (2, "full", -1130.26)):
        model = MixtureDensity(
            K, covariance_type=covariance, n_init=8, tol=1e-9, random_state=0
        ).fit(x)
        found = float(model.score_samples(x).sum())
        show(f"Old Faithful, {K} {covariance}", log_likelihood=f"{found:.3f}", known=f"{known:.2f}")


def run() -> None:
    """All of it on one thread."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        print(machine())
        for size in SIZES:
            gaussian_mixture(*size)
        imputation()
        old_faithful()


if __name__ == "__main__":
    run()
