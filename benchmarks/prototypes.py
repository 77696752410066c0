"""Prototypical contrastive learning beside InfoNCE alone and k-means on pixels: AMI at k = 10,
neighbors, a linear probe, three seeds.

``PROTOTYPES=digits`` runs the small set alone, ``PROTOTYPE_EPOCHS`` and ``PROTOTYPE_SEEDS`` make a
run shorter or longer.
"""

import os
import time
from statistics import mean
from typing import Any

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
    """8 x 8 gray levels: 1,200 rows to learn from, the others to test on."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    return X[:1200], y[:1200], X[1200:], y[1200:]


def mnist() -> Split:
    """28 x 28 gray levels, as shipped."""
    with np.load(f"{os.environ['PARTITA_DATA']}/mnist/mnist.npz") as file:
        X, y, X_test, y_test = (file[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    return _flat(X), y, _flat(X_test), y_test


def _flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1).astype(np.float32) / 255.0


def ami_at_10(v: np.ndarray, y: np.ndarray, seed: int) -> float:
    """Of k-means with ten clusters on the training rows."""
    return float(
        adjusted_mutual_info_score(y, KMeans(10, n_init=5, random_state=seed).fit_predict(v))
    )


def accuracies(
    v: np.ndarray, y: np.ndarray, v_test: np.ndarray, y_test: np.ndarray
) -> tuple[float, float]:
    """Of five neighbors and of a linear probe on the first 10,000 rows, both on the test rows."""
    some = slice(None, 10_000)
    knn = KNeighborsClassifier(5).fit(v, y).score(v_test, y_test)
    return float(knn), float(
        LogisticRegression(C=100.0, max_iter=1000).fit(v[some], y[some]).score(v_test, y_test)
    )


def fitted(
    split: Split, prototypes: tuple[int, ...] | None, seed: int, **options: Any
) -> tuple[float, float, float, float]:
    """AMI, accuracies and the seconds of one fit."""
    X, y, X_test, y_test = split
    started = time.perf_counter()
    model = PrototypeEncoder(32, prototypes, random_state=seed, **options).fit(X)
    spent, v = time.perf_counter() - started, model.transform(X)
    return (ami_at_10(v, y, seed), *accuracies(v, y, model.transform(X_test), y_test), spent)


def compare(
    name: str, split: Split, shape: tuple[int, int], epochs: int, batch_size: int, seeds: int
) -> None:
    """Raw pixels, InfoNCE and ProtoNCE at equal epochs."""
    X, y, X_test, y_test = split
    scale, started = X.std(), time.perf_counter()
    of_pixels = accuracies(X / scale, y, X_test / scale, y_test)
    report(
        f"{name}, pixels",
        [(ami_at_10(X / scale, y, seed), *of_pixels, 0.0) for seed in range(seeds)],
        0,
    )
    options = {"shape": shape, "epochs": epochs, "batch_size": batch_size}
    best: dict[str, list[float]] = {}
    for label, prototypes in (("InfoNCE", None), ("ProtoNCE", (10, 20, 40))):
        runs = [fitted(split, prototypes, seed, **options) for seed in range(seeds)]
        report(f"{name}, {label}", runs, epochs)
        best[label] = [run[0] for run in runs]
    gain = [proto - info for proto, info in zip(best["ProtoNCE"], best["InfoNCE"], strict=True)]
    show(
        f"{name}, ProtoNCE less InfoNCE",
        ami_at_10=mean(gain),
        each=" ".join(f"{g:+.3f}" for g in gain),
        target="above 0",
        seconds_in_all=time.perf_counter() - started,
    )


def report(name: str, runs: list[tuple[float, float, float, float]], epochs: int) -> None:
    """Means over seeds, and the AMI of each."""
    ami, knn, probe, seconds = zip(*runs, strict=True)
    show(
        name,
        ami_at_10=mean(ami),
        each=" ".join(f"{a:.3f}" for a in ami),
        knn=mean(knn),
        linear_probe=mean(probe),
        seconds_of_a_fit=mean(seconds),
        epochs=epochs,
    )


def run() -> None:
    """Print AMI and accuracies, and the seconds of each fit."""
    seeds, epochs = int(os.environ.get("PROTOTYPE_SEEDS", "3")), os.environ.get("PROTOTYPE_EPOCHS")
    compare("digits", digits(), (8, 8), int(epochs or 50), 128, seeds)
    if os.environ.get("PROTOTYPES") != "digits":
        compare("mnist", mnist(), (28, 28), int(epochs or 6), 256, seeds)


if __name__ == "__main__":
    run()
