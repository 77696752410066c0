"""The posterior predictive against its exact value by enumeration of all partitions."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import norm

import partita
from partita.core.errors import Unsupported
from partita.diagnostics.partitions import enumerate_posterior
from partita.evaluators import PosteriorAverage
from partita.models import RBM, DPMixture
from partita.models.directed.dirichlet_process import log_partition_prior
from partita.objectives import CollapsedGibbs

X = np.array([-2.0, -1.6, 0.2, 0.3, 1.9, 2.4])
NOISE, SPREAD, ALPHA = 0.4, 4.0, 0.8


def log_evidence(x: np.ndarray) -> float:
    covariance = NOISE * np.eye(len(x)) + SPREAD
    return float(-0.5 * (len(x) * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + x @ np.linalg.solve(covariance, x)))


def exact_log_predictive(new: float) -> float:
    """log p(new | X): the evidence of seven rows over that of six."""
    together = np.append(X, new)
    six = enumerate_posterior(6, partial(log_partition_prior, alpha=ALPHA), lambda rows: log_evidence(X[rows]))
    seven = enumerate_posterior(7, partial(log_partition_prior, alpha=ALPHA), lambda rows: log_evidence(together[rows]))
    return seven.log_evidence - six.log_evidence


def fitted(seed: int, steps: int, chains: int = 4) -> DPMixture:
    g = torch.Generator().manual_seed(seed)
    model = DPMixture(1, alpha=ALPHA, known_scale=math.sqrt(NOISE), prior_mean=0.0, prior_scale=math.sqrt(SPREAD), generator=g)
    partita.fit(model, X[:, None], CollapsedGibbs(chains=chains), steps=steps, generator=g)
    return model


def test_intervals_cover_the_enumerated_predictive() -> None:
    """Of 20 fits' 95 % intervals at most 5 miss: more would have probability 3e-4 at the nominal level."""
    rows = np.array([[-1.0], [0.5], [3.0], [9.0]])
    exact = np.mean([exact_log_predictive(x) for x in rows[:, 0]])
    found = [partita.evaluate(fitted(seed, 60), torch.from_numpy(rows), generator=torch.Generator()) for seed in range(20)]
    assert all(q.kind == "estimate" and q.direction == "low" and q.level == 0.95 for q in found)
    assert sum(not q.low <= exact <= q.high for q in found) <= 5
    mean, se = np.mean([q.value for q in found]), np.std([q.value for q in found], ddof=1) / np.sqrt(20)
    assert abs(mean - exact) < norm.isf(1e-3 / 2) * se + 0.002  # the bias of a logarithm of an average of 240 draws
    assert np.allclose(found[0].details["rows"].mean(), found[0].value)


def test_drawn_rows_follow_the_predictive() -> None:
    """Probability of (-1, 1) by draws and by integrating the scored density, whose total is one; z test at 1e-3."""
    model = fitted(0, 60)
    grid = torch.linspace(-60, 60, 24001, dtype=torch.float64)[:, None]
    density = torch.logsumexp(model.log_predictive(grid), 0).exp() / model.draws
    step = float(grid[1, 0] - grid[0, 0])
    assert float(density.sum()) * step == pytest.approx(1.0, abs=1e-6)
    p = float(density[(grid[:, 0].abs() < 1)].sum()) * step
    drawn = model.draw(20_000, generator=torch.Generator().manual_seed(1))[:, 0]
    share = float((drawn.abs() < 1).double().mean())
    assert abs(share - p) < norm.isf(1e-3 / 2) * math.sqrt(p * (1 - p) / 20_000) + step


def test_too_few_draws_are_not_to_be_published() -> None:
    q = partita.evaluate(fitted(0, 2, chains=1), torch.zeros(2, 1), generator=torch.Generator())
    assert q.verdict == "do not publish"


def test_other_models_are_refused(generator: torch.Generator) -> None:
    with pytest.raises(Unsupported, match="PosteriorAverage cannot run on RBM"):
        PosteriorAverage()(RBM(2, 2, generator=generator), torch.zeros(1, 2), generator=generator)
