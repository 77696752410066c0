"""Logistic regression at its mode against the average over its posterior: log loss on held-out
rows, as training sets grow.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

from harness import show
from partita.estimators import BayesianLogisticRegression

TASKS = 20


def run() -> None:
    """Print the mean log loss of both over random splits, and the standard error of their paired
    difference.
    """
    X, y = load_breast_cancer(return_X_y=True)
    for rows in (15, 30, 60, 120):
        losses = np.array([_losses(X, y, rows, seed) for seed in range(TASKS)])
        gain = losses[:, 0] - losses[:, 1]
        show(
            f"breast cancer, {rows} rows",
            map=float(losses[:, 0].mean()),
            average=float(losses[:, 1].mean()),
            gain=float(gain.mean()),
            error=float(gain.std(ddof=1) / TASKS**0.5),
        )


def _losses(X: np.ndarray, y: np.ndarray, rows: int, seed: int) -> list[float]:
    """Log loss at the mode and of the average, one fit for both."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    while len(set(y[order[:rows]])) < 2:
        order = rng.permutation(len(X))
    train, test = order[:rows], order[rows:]
    model = BayesianLogisticRegression(random_state=seed).fit(X[train], y[train])
    p = [
        model.set_params(prediction=how).predict_proba(X[test])[np.arange(len(test)), y[test]]
        for how in ("map", "average")
    ]
    return [float(-np.log(np.maximum(q, 1e-12)).mean()) for q in p]


if __name__ == "__main__":
    run()
