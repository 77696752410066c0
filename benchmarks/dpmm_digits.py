"""Digits through 20 principal components, the number of clusters not given: agreement of the point
estimate with the digits.

The labels are looked at only here, at the end; the rows below ``nu`` show how the agreement and the
density of rows held out depend on how many rows the prior's shape is worth, which is the part of
the default prior that no data can be asked about.
"""

import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import partita
from harness import show
from partita.diagnostics.partitions import point_estimate
from partita.estimators import DirichletProcessMixture
from partita.models import DPMixture
from partita.objectives import CollapsedGibbs
from partita.tables import as_rows

SEEDS, SWEEPS, HELD_OUT = 3, 100, 180


def run() -> None:
    """Print the adjusted Rand index by defaults for three seeds, beside scikit-learn's, and for
    other strengths of the prior.
    """
    digits, truth = load_digits(return_X_y=True)
    X = PCA(20, random_state=0).fit_transform(digits)
    for seed in range(SEEDS):
        started = time.perf_counter()
        model = DirichletProcessMixture(random_state=seed).fit(X)
        score = adjusted_rand_score(truth, model.labels_)
        show(
            f"partita, defaults, seed {seed}",
            ARI=score,
            clusters=int(model.labels_.max()) + 1,
            expected=model.expected_clusters_,
            rhat=model.mixing_.rhat,
            seconds=time.perf_counter() - started,
            target="at least 0.70, aim 0.759",
        )
    process = BayesianGaussianMixture(n_components=30, max_iter=500, random_state=0).fit_predict(X)
    show(
        "scikit-learn, DP mixture",
        ARI=adjusted_rand_score(truth, process),
        clusters=len(set(process)),
    )
    told = GaussianMixture(10, n_init=3, random_state=0).fit_predict(X)
    show("scikit-learn, told K = 10", ARI=adjusted_rand_score(truth, told), clusters=10)
    D = X.shape[1]
    strengths = {
        "D + 2 (Fraley and Raftery)": D + 2,
        "D + 4": D + 4,
        "3D/2": 1.5 * D,
        "2D + 1 (default)": 2 * D + 1,
        "4D": 4 * D,
    }
    for words, nu in strengths.items():
        show(f"nu = {words}", **strength(X, truth, float(nu)))


def strength(X: np.ndarray, truth: np.ndarray, nu: float) -> dict[str, float]:
    """One fit on most rows with the default prior worth nu - D - 1 rows: agreement, clusters,
    density of the others.
    """
    g, order = torch.Generator().manual_seed(0), np.random.default_rng(0).permutation(len(X))
    rest, rows = order[:HELD_OUT], order[HELD_OUT:]
    x, model = torch.from_numpy(X / X.std(0)), DPMixture(X.shape[1], generator=g)
    model.initialize(as_rows(x[rows]), generator=g)
    D = model.visible
    model.prior[2 + D :] *= (nu - D - 1) / (model.prior[1] - D - 1)  # the same expected covariance
    model.prior[1] = nu
    partita.fit(model, x[rows], CollapsedGibbs(), epochs=SWEEPS, initialize=False, generator=g)
    labels = point_estimate(model.partitions.numpy())
    held_out = partita.evaluate(model, x[rest], generator=g).value
    return {
        "ARI": adjusted_rand_score(truth[rows], labels),
        "clusters": int(labels.max()) + 1,
        "held-out nats": held_out,
    }


if __name__ == "__main__":
    run()
