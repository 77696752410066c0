"""Digits through 20 principal components, the number of clusters not given: agreement of the point estimate with the digits."""

import time

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from harness import show
from partita.estimators import DirichletProcessMixture


def run() -> None:
    """Print the adjusted Rand index by defaults for three seeds, beside scikit-learn's."""
    digits, truth = load_digits(return_X_y=True)
    X = PCA(20, random_state=0).fit_transform(digits)
    for seed in range(3):
        started = time.perf_counter()
        model = DirichletProcessMixture(random_state=seed).fit(X)
        score = adjusted_rand_score(truth, model.labels_)
        show(f"partita, defaults, seed {seed}", ARI=score, clusters=int(model.labels_.max()) + 1, expected=model.expected_clusters_,
             rhat=model.mixing_.rhat, seconds=time.perf_counter() - started, target="at least 0.70, aim 0.759")  # fmt: skip
    process = BayesianGaussianMixture(n_components=30, max_iter=500, random_state=0).fit_predict(X)
    show("scikit-learn, DP mixture", ARI=adjusted_rand_score(truth, process), clusters=len(set(process)))
    told = GaussianMixture(10, n_init=3, random_state=0).fit_predict(X)
    show("scikit-learn, told K = 10", ARI=adjusted_rand_score(truth, told), clusters=10)


if __name__ == "__main__":
    run()
