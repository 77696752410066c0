r"""Two-sample tests: are these rows and the model's draws from one distribution? What a model
without a likelihood is judged by.

.. math:: \widehat{\mathrm{MMD}}{}^2 \pm t_{\min(n, m) - 1}\, \hat\sigma, \qquad \text{accuracy of a
          classifier on held-out rows} - \tfrac12
          (theory/divergences.md, eq. 15.9 and 15.10)

Both come with an interval and a permutation or binomial p-value. Their kind is ``none`` where they
stand in for a likelihood.

Letters: n rows of x, m rows of y, D width, h bandwidth.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import check_choice, check_count, check_level, check_real, check_role
from partita.core.quantity import Quantity, Verdict
from partita.divergences.samples import check_two, coverage, gaussian_kernel, median_bandwidth
from partita.errors import invalid

ENOUGH_ROWS = 30  # of each sample, from which the error of the distance is known
CLASSIFIERS = ("forest", "logistic", "mlp")


@dataclass(frozen=True)
class MMD:
    """The unbiased squared kernel distance of two samples, with an interval and a permutation
    p-value.

    Arguments:
        bandwidth: h; None takes the median distance.
        permutations: How often labels are shuffled for the p-value ``details["p_value"]``; 0 for
            none.
        rows: At most this many rows of each sample are used, chosen at random.
        level: Probability with which the interval covers.
    """

    bandwidth: float | None = None
    permutations: int = 200
    rows: int = 2000
    level: float = 0.95

    def __post_init__(self) -> None:
        check_count("MMD", "permutations", self.permutations, 0)
        check_count("MMD", "rows", self.rows, 4)
        if self.bandwidth is not None:
            check_real("MMD", "bandwidth", self.bandwidth, 0, open_low=True)
        check_level("MMD", self.level)

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor, *, generator: torch.Generator) -> Quantity:
        check_two("MMD", x, y, 4)
        x, y = (some_rows(part.to(x.device).double(), self.rows, generator) for part in (x, y))
        h = median_bandwidth(x, y) if self.bandwidth is None else self.bandwidth
        both = torch.cat([x, y])
        kernel = gaussian_kernel(both, both, h).fill_diagonal_(0.0)
        value, se = _mmd2_with_error(kernel, len(x))
        details = {"bandwidth": h, "se": se, "rows_used": [len(x), len(y)]}
        if self.permutations:
            details["p_value"] = _permutation_p(kernel, len(x), value, self.permutations, generator)
        fewer = min(len(x), len(y))
        # Student's, for the error comes from as few rows
        half = float(stdtrit(fewer - 1, 0.5 + self.level / 2)) * se
        verdict: Verdict = "tight" if fewer >= ENOUGH_ROWS else "loose"
        return Quantity(
            value,
            value - half,
            value + half,
            self.level,
            "estimate",
            "MMD^2",
            "unbiased MMD",
            verdict=verdict,
            details=details,
        )


@dataclass(frozen=True)
class ClassifierTest:
    """Accuracy of a classifier that tells x from y, on held-out rows: one half where it cannot
    (Lopez-Paz and Oquab 2017).

    Arguments:
        classifier: ``"forest"``, ``"logistic"``, ``"mlp"``, or any scikit-learn classifier.
        level: Probability with which the interval (Clopper and Pearson's) covers.
    """

    classifier: Any = "forest"
    level: float = 0.95

    def __post_init__(self) -> None:
        if isinstance(self.classifier, str):
            check_choice("ClassifierTest", "classifier", self.classifier, CLASSIFIERS)
        else:
            check_role(
                "ClassifierTest",
                "classifier",
                self.classifier,
                ("fit",),
                "'forest' or a scikit-learn classifier",
            )
        check_level("ClassifierTest", self.level)

    def __call__(self, x: Tensor, y: Tensor, *, generator: torch.Generator) -> Quantity:
        from scipy.stats import binomtest

        check_two("ClassifierTest", x, y, 8)
        n = min(len(x), len(y))
        tables = [
            part[rng.permutation(len(part), generator).cpu()[:n]].double().cpu().numpy()
            for part in (x, y)
        ]
        train, test = (
            [part[half] for part in tables] for half in (slice(n // 2), slice(n // 2, None))
        )
        fitted = _classifier(self.classifier, rng.seed(generator)).fit(*_labeled(train))
        rows, labels = _labeled(test)
        hits = int((fitted.predict(rows) == labels).sum())
        found = binomtest(hits, len(labels), alternative="greater")
        low, high = binomtest(hits, len(labels)).proportion_ci(self.level)
        details = {"p_value": float(found.pvalue), "rows_used": [n, n]}
        return Quantity(
            hits / len(labels),
            float(low),
            float(high),
            self.level,
            "estimate",
            "accuracy",
            "classifier test",
            len(labels),
            details=details,
        )


@dataclass(frozen=True)
class TwoSample:
    """Rows against as many draws of a model: MMD^2 as a Quantity of kind ``none``, for it is no
    likelihood.

    ``details`` holds the p-value, the coverage, and with ``classifier`` the accuracy of the
    classifier test.
    """

    mmd: MMD = MMD()
    classifier: ClassifierTest | None = None

    def __post_init__(self) -> None:
        for name, kind in (("mmd", MMD), ("classifier", ClassifierTest | None)):
            if not isinstance(getattr(self, name), kind):
                raise invalid(
                    "TwoSample",
                    name,
                    f"be {'an MMD' if kind is MMD else 'a ClassifierTest or None'}",
                    repr(getattr(self, name)),
                )

    @torch.no_grad()
    def __call__(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Quantity:
        capability.require("TwoSample", model)
        x = some_rows(x, self.mmd.rows, generator)
        y = model.draw(len(x), generator=generator).to(x.device)
        q = self.mmd(x, y, generator=generator)
        details = {**q.details, "coverage": float(coverage(x, y, min(5, len(x) - 1)))}
        if self.classifier is not None:
            details["classifier"] = self.classifier(x, y, generator=generator)
        return replace(
            q, kind="none", method="two-sample MMD, not a likelihood", n=len(x), details=details
        )


def some_rows(x: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """All rows, or ``most`` of them at random: the first ones of a sorted table are not like the
    others.
    """
    return x if len(x) <= most else x[rng.permutation(len(x), generator)[:most].to(x.device)]


def _mmd2_with_error(kernel: Tensor, n: int) -> tuple[float, float]:
    """The statistic and its standard error from kernels without diagonal, ``(n + m, n + m)``: the
    two-sample jackknife by projections.

    The part of pairs is added once more: it is skewed where the samples are alike, and the
    jackknife alone would cover too seldom.
    """
    m = len(kernel) - n
    xx, yy, xy = kernel[:n, :n], kernel[n:, n:], kernel[:n, n:]
    value = float(xx.sum() / (n * (n - 1)) + yy.sum() / (m * (m - 1)) - 2 * xy.mean())
    # half the influence of each row
    of_x, of_y = xx.sum(1) / (n - 1) - xy.mean(1), yy.sum(1) / (m - 1) - xy.mean(0)
    spread = 4 * (float(of_x.var()) / n + float(of_y.var()) / m)
    pairs = sum(2 * _pair_variance(part) / (len(part) * (len(part) - 1)) for part in (xx, yy))
    across = xy - xy.mean(1, keepdim=True) - xy.mean(0) + xy.mean()
    return value, math.sqrt(spread + pairs + 4 * float(across.square().mean()) / (n * m))


def _pair_variance(kernel: Tensor) -> float:
    """Mean square of a sample's kernel without diagonal, ``(n, n)``, after what each row says by
    itself is taken off.
    """
    n = len(kernel)
    row = kernel.sum(1) / (n - 1)
    centered = (kernel - row[:, None] - row + row.mean()).fill_diagonal_(0.0)
    return float(centered.square().sum()) / (n * (n - 1))


def _permutation_p(
    kernel: Tensor, n: int, value: float, count: int, generator: torch.Generator
) -> float:
    """How often shuffled labels give at least ``value``; all shuffles at once from one product with
    the kernel.
    """
    total, m = len(kernel), len(kernel) - n
    labels = torch.zeros(total, count, dtype=kernel.dtype, device=kernel.device)
    for column in range(count):
        labels[rng.permutation(total, generator)[:n].to(kernel.device), column] = 1.0
    of_x, row = kernel @ labels, kernel.sum(1)
    xx, all_x = (labels * of_x).sum(0), row @ labels
    xy = all_x - xx
    yy = row.sum() - all_x - xy
    shuffled = xx / (n * (n - 1)) + yy / (m * (m - 1)) - 2 * xy / (n * m)
    return float((1 + (shuffled >= value).sum()) / (count + 1))


def _classifier(name: Any, seed: int) -> Any:
    if not isinstance(name, str):
        from sklearn.base import clone

        return clone(name)
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    made = {
        "forest": lambda: RandomForestClassifier(200, min_samples_leaf=5, random_state=seed),
        "logistic": lambda: LogisticRegression(max_iter=1000),
        "mlp": lambda: MLPClassifier((64, 64), early_stopping=True, random_state=seed),
    }
    return make_pipeline(StandardScaler(), made[name]())


def _labeled(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(parts), np.repeat([0, 1], [len(part) for part in parts])
