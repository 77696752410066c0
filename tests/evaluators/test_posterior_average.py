"""The posterior predictive against its exact value by enumeration of all partitions."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import norm

import partita
from partita.core.quantity import VERDICTS
from partita.diagnostics.partitions import enumerate_posterior
from partita.errors import PartitaWarning, Unsupported
from partita.evaluators import PosteriorAverage
from partita.models import RBM, DPMixture
from partita.models.directed.dirichlet_process import log_partition_prior
from partita.models.directed.dirichlet_process.kernels import Clusters
from partita.objectives import CollapsedGibbs
from partita.objectives.partition_chain import PartitionState, gather, keep_draw
from partita.tables import Rows

X = np.array([-2.0, -1.6, 0.2, 0.3, 1.9, 2.4])
NOISE, SPREAD, ALPHA = 0.4, 4.0, 0.8


def log_evidence(x: np.ndarray) -> float:
    covariance = NOISE * np.eye(len(x)) + SPREAD
    return float(
        -0.5
        * (
            len(x) * np.log(2 * np.pi)
            + np.linalg.slogdet(covariance)[1]
            + x @ np.linalg.solve(covariance, x)
        )
    )


def exact_log_predictive(new: float) -> float:
    """log p(new | X): the evidence of seven rows over that of six."""
    together = np.append(X, new)
    six = enumerate_posterior(
        6, partial(log_partition_prior, alpha=ALPHA), lambda rows: log_evidence(X[rows])
    )
    seven = enumerate_posterior(
        7, partial(log_partition_prior, alpha=ALPHA), lambda rows: log_evidence(together[rows])
    )
    return seven.log_evidence - six.log_evidence


def fitted(seed: int, steps: int, chains: int = 4) -> DPMixture:
    g = torch.Generator().manual_seed(seed)
    model = DPMixture(
        1,
        alpha=ALPHA,
        known_scale=math.sqrt(NOISE),
        prior_mean=0.0,
        prior_scale=math.sqrt(SPREAD),
        generator=g,
    )
    partita.fit(model, X[:, None], CollapsedGibbs(chains=chains), steps=steps, generator=g)
    return model


def test_intervals_cover_the_enumerated_predictive() -> None:
    """Of 20 fits' 95 % intervals at most 5 miss: more would have probability 3e-4 at the nominal
    level.
    """
    rows = np.array([[-1.0], [0.5], [3.0], [9.0]])
    exact = np.mean([exact_log_predictive(x) for x in rows[:, 0]])
    found = [
        partita.evaluate(fitted(seed, 60), torch.from_numpy(rows), generator=torch.Generator())
        for seed in range(20)
    ]
    assert all(q.kind == "estimate" and q.direction == "low" and q.level == 0.95 for q in found)
    assert sum(not q.low <= exact <= q.high for q in found) <= 5
    mean = np.mean([q.value for q in found])
    se = np.std([q.value for q in found], ddof=1) / np.sqrt(20)
    # the bias of a logarithm of an average of 240 draws
    assert abs(mean - exact) < norm.isf(1e-3 / 2) * se + 0.002
    assert np.allclose(found[0].details["rows"].mean(), found[0].value)


def test_drawn_rows_follow_the_predictive() -> None:
    """Probability of (-1, 1) by draws and by integrating the scored density, whose total is one; z
    test at 1e-3.
    """
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


def held(labels: np.ndarray) -> DPMixture:
    """A model with these partitions of the rows X as its draws, ``(S, C, 6)``, alpha fixed."""
    g = torch.Generator().manual_seed(0)
    model = DPMixture(
        1,
        alpha=ALPHA,
        known_scale=math.sqrt(NOISE),
        prior_mean=0.0,
        prior_scale=math.sqrt(SPREAD),
        generator=g,
    )
    model.initialize(Rows(X[:, None]), generator=g)
    for sweep, z in enumerate(labels.astype(np.int32)):
        clusters = tuple(
            Clusters(*map(torch.from_numpy, gather(model.kernel, X[:, None], chain))) for chain in z
        )
        alpha = torch.full((len(z),), ALPHA, dtype=torch.float64)
        keep_draw(
            model,
            PartitionState(
                torch.from_numpy(z), alpha, clusters, torch.tensor(10_000 + sweep), torch.tensor(1)
            ),
            10_000,
        )
    return model


ONE, THREE, SIX = np.zeros(6, int), np.array([0, 0, 1, 1, 2, 2]), np.arange(6)
ROWS = torch.tensor([[-1.0], [0.5], [3.0]], dtype=torch.float64)


def switching(C: int, S: int, p: float, seed: int = 0) -> np.ndarray:
    """PartitionState that leave one partition for the other with probability p at every sweep."""
    g = np.random.default_rng(seed)
    state = (np.arange(C) + (g.random((S, C)) < p).cumsum(0)) % 2
    return np.where(state[..., None] == 1, THREE, SIX)


CHAINS = {
    "four that mix": switching(4, 250, 0.5),
    "two that mix": switching(2, 100, 0.5),
    "slow": switching(4, 100, 0.1),
    "slower": switching(4, 100, 0.02),
    "stuck": switching(4, 100, 0.0),
    "one": switching(1, 100, 0.5),
    "three draws": switching(4, 3, 0.5),
    "still": switching(4, 100, 0.0) * 0,
}


@pytest.mark.parametrize("chains", CHAINS)
def test_the_warning_of_fit_mixing_and_the_verdict_cannot_disagree(chains: str) -> None:
    """One report behind all three: warned if and only if not mixed, no score trusted then, and none
    tighter than the chains.
    """
    model = held(CHAINS[chains])
    report = model.mixing()
    q = PosteriorAverage()(model, ROWS, generator=torch.Generator())
    warned = model.fit_warnings()
    assert (
        bool(warned) == (not report.mixed) == (chains in ("slower", "stuck", "one", "three draws"))
    )
    assert not warned or report.finding in warned[0]
    assert report.finding in str(report)
    assert VERDICTS.index(q.verdict) >= VERDICTS.index(report.verdict)
    assert (q.verdict == "tight") == (chains == "four that mix")
    assert report.mixed or q.details["mixing"].startswith("not mixed, ")
    assert q.width > 0  # even where nothing moved


def test_the_interval_reaches_over_chains_that_disagree() -> None:
    """Two chains that stay apart: what each of them says alone lies within the interval, which is
    not trusted.
    """
    rows = torch.from_numpy(X[:, None])
    q = PosteriorAverage()(
        held(np.tile(np.stack([ONE, SIX]), (100, 1, 1))), rows, generator=torch.Generator()
    )
    alone = [
        PosteriorAverage()(held(np.tile(z, (100, 2, 1))), rows, generator=torch.Generator())
        for z in (ONE, SIX)
    ]
    assert abs(alone[0].value - alone[1].value) > 0.1
    assert q.verdict == "do not publish" and "none of them moves" in q.details["mixing"]
    assert all(q.low <= one.value <= q.high for one in alone)
    assert [one.verdict for one in alone] == ["loose", "loose"] and all(
        one.width == pytest.approx(2 * math.log(20) / 200) for one in alone
    )


def test_a_fit_warns_in_the_words_of_mixing() -> None:
    g = torch.Generator().manual_seed(0)
    model = DPMixture(1, alpha=ALPHA, known_scale=math.sqrt(NOISE), generator=g)
    with pytest.warns(
        PartitaWarning,
        match="fit: the chains are not mixed, one chain has no other to agree with: averages",
    ):
        partita.fit(model, X[:, None], CollapsedGibbs(chains=1), steps=40, generator=g)
