"""Prototypical contrastive learning beside InfoNCE alone and k-means on pixels: AMI at k = 10, neighbours, a linear probe, three seeds.

``PROTOTYPES=digits`` runs the small set alone, ``PROTOTYPE_EPOCHS`` and ``PROTOTYPE_SEEDS`` make a run shorter or longer.
"""

import os
import time
from statistics import mean

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.neighbors import KNeighborsClassifier

from harness import show
from partita.estimators import PrototypeEncoder

DATA = "mnist"
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def digits() -> Split:
    """8 x 8 grey levels: 1,200 rows to learn from, the others to test on."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    return X[:1200], y[:1200], X[1200:], y[1200:]


def mnist() -> Split:
    """28 x 28 grey levels, as shipped."""
    with np.load(f"{os.environ['PARTITA_DATA']}/mnist/mnist.npz") as file:
        X, y, X_test, y_test = (file[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    return X.reshape(len(X), -1) / 255.0, y, X_test.reshape(len(X_test), -1) / 255.0, y_test


def scores(v: np.ndarray, y: np.ndarray, v_test: np.ndarray, y_test: np.ndarray, seed: int) -> tuple[float, float, float]:
    """AMI of k-means with ten clusters on the training rows; accuracies of neighbours and of a linear probe on the test rows."""
    ami = adjusted_mutual_info_score(y, KMeans(10, n_init=5, random_state=seed).fit_predict(v))
    some = slice(None, 10_000)
    knn = KNeighborsClassifier(5).fit(v, y).score(v_test, y_test)
    probe = LogisticRegression(C=100.0, max_iter=500).fit(v[some], y[some]).score(v_test, y_test)
    return float(ami), float(knn), float(probe)


def compare(name: str, split: Split, shape: tuple[int, int], epochs: int, batch_size: int, seeds: int) -> None:
    """Raw pixels, InfoNCE and ProtoNCE at equal epochs."""
    X, y, X_test, y_test = split
    scale = X.std()
    found = {"pixels": [(*scores(X / scale, y, X_test / scale, y_test, seed), 0.0) for seed in range(seeds)]}
    for label, prototypes in (("InfoNCE", None), ("ProtoNCE", (10, 20, 40))):
        found[label] = []
        for seed in range(seeds):
            started = time.perf_counter()
            model = PrototypeEncoder(32, prototypes, shape=shape, epochs=epochs, batch_size=batch_size, random_state=seed).fit(X)
            spent = time.perf_counter() - started
            found[label].append((*scores(model.transform(X), y, model.transform(X_test), y_test, seed), spent))
    for label, runs in found.items():
        ami, knn, probe, seconds = zip(*runs, strict=True)
        show(f"{name}, {label}", ami_at_10=mean(ami), each=" ".join(f"{a:.3f}" for a in ami), knn=mean(knn), linear_probe=mean(probe),
             seconds=mean(seconds), epochs=epochs if label != "pixels" else 0)  # fmt: skip


def run() -> None:
    """Print AMI and accuracies, and the seconds of each fit."""
    seeds, epochs = int(os.environ.get("PROTOTYPE_SEEDS", "3")), os.environ.get("PROTOTYPE_EPOCHS")
    compare("digits", digits(), (8, 8), int(epochs or 50), 128, seeds)
    if os.environ.get("PROTOTYPES") != "digits":
        compare("mnist", mnist(), (28, 28), int(epochs or 8), 256, seeds)


if __name__ == "__main__":
    run()
