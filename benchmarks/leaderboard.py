"""Whole comparisons, fits included, on data from a known machine: how often each interval covers,
and whether the true family is beaten.
"""

import itertools
import math
from typing import Any

import numpy as np
import torch
from scipy.stats import t

from harness import show
from partita.core.protocols import EnergyModel, in_double
from partita.datasets import Dataset
from partita.evaluators import Sandwich
from partita.experiment.candidates import candidates_by_family
from partita.experiment.compare import Comparison
from partita.experiment.leaderboard import Place, ranking
from partita.models import RBM
from partita.tables import Rows
from partita.tables.encoding import Encoding

CONTESTS, TRAIN, TEST, WIDTH = 60, 1500, 200, 8
STATES = torch.tensor(list(itertools.product([0.0, 1.0], repeat=WIDTH)), dtype=torch.float64)
SETTINGS: dict[str, dict[str, Any]] = {  # the true family first
    "rbm": {"n_hidden": 2, "objective": "exact"},
    "mixture": {"n_components": 3},
    "ising": {},
    "autoregressive": {"n_hidden": 32},
}


@torch.no_grad()
def run() -> None:
    """Print, for each family, the share of comparisons in which its score's interval, its ± rows
    and its difference to the best cover.
    """
    truth = RBM(WIDTH, 2, generator=torch.Generator().manual_seed(3)).double()
    truth.W.copy_(
        2.5 * torch.randn(WIDTH, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    )
    law = torch.softmax(-truth.free_energy(STATES), 0)
    counts = {name: np.zeros(4, dtype=int) for name in SETTINGS}
    beaten = best = 0
    for seed in range(CONTESTS):
        places, masses, index = _contest(law, seed)
        winner = places[0].result.name
        for place in places:
            counts[place.result.name] += _covered(
                place, masses[place.result.name], masses[winner], law, index
            )
        own = next(place for place in places if place.result.name == "rbm")
        best += own.difference is None
        beaten += own.difference is not None and own.difference.high < 0
    for name, (computed, expected, difference, told) in counts.items():
        show(
            name,
            comparisons=CONTESTS,
            score_covered=computed / CONTESTS,
            expected_covered=expected / CONTESTS,
            difference_covered=difference / max(1, told),
            level=0.95,
        )
    show(
        "the true family",
        best=best,
        tied=CONTESTS - best - beaten,
        beaten_by_more_than_the_interval=beaten,
    )


def _contest(
    law: torch.Tensor, seed: int
) -> tuple[list[Place], dict[str, torch.Tensor], np.ndarray]:
    """One comparison: places, log p of all states by each fitted model, and which states the
    held-out rows are.
    """
    index = np.random.default_rng(seed).choice(len(law), TRAIN + TEST, p=law.numpy())
    train, test = (
        Rows(STATES.numpy()[part].astype(np.float32)) for part in (index[:TRAIN], index[TRAIN:])
    )
    comparison = Comparison(
        Dataset("known", train, None, test),
        evaluator=Sandwich(100, 64, adaptive=False),
        seed=seed,
        limit=0.05,
    )
    candidates, _ = candidates_by_family(list(SETTINGS), SETTINGS, comparison.dataset)
    with torch.enable_grad():
        results = list(comparison.run(candidates))
    masses = {}
    for candidate, result in zip(candidates, results, strict=True):
        assert result.run is not None, result.problem
        encoding = Encoding.fit(train, candidate.family.encoding_kind(train, candidate.settings))
        model, z = in_double(result.run.model), torch.from_numpy(encoding.encode(STATES.numpy()))
        masses[result.name] = (
            torch.log_softmax(-model.free_energy(z), 0)
            if isinstance(model, EnergyModel)
            else model.log_prob(z)
        )
    return ranking(results), masses, index[TRAIN:]


def _covered(
    place: Place, masses: torch.Tensor, of_best: torch.Tensor, law: torch.Tensor, index: np.ndarray
) -> np.ndarray:
    """Whether the interval of the score covers, that over rows, that of the difference, and whether
    there is one.
    """
    q, d = place.result.score, place.difference
    assert q is not None
    here = float(masses[torch.from_numpy(index)].mean())
    half = t.ppf(0.975, q.n - 1) * q.se_data
    expected, apart = float(law @ masses), float(law @ (masses - of_best))
    slack = 1e-6 if math.isclose(q.low, q.high) else 0.0  # of rounding, where the number is exact
    return np.array(
        [
            q.low - slack <= here <= q.high + slack,
            q.low - half <= expected <= q.high + half,
            d is not None and d.low <= apart <= d.high,
            d is not None,
        ]
    )


if __name__ == "__main__":
    run()
