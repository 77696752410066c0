"""log Z of models whose modes are far apart: no trusted number is wrong, and few are not trusted.

``make test`` takes one seed of some families, ``make coverage`` ten seeds a round of all, in turn
with rows of the model, with skewed rows and with none, in float32 and in float64. The bound on
coverage is binomial with a false-alarm rate of 1e-3; seeds are fixed, and none of those that
settings were chosen on.
"""

import os
from statistics import median

import pytest
import torch
from scipy.stats import binom
from tests.truth.hard_models import FAMILIES, UNSEEN, Density, RowsKind
from tests.truth.study import Run, cases, miss, run

from partita.core.support import Real
from partita.errors import PartitaError
from partita.evaluators import AIS, SMC, Bridge, ReverseAIS
from partita.models import NeuralEnergy

ROUNDS = int(os.environ.get("PARTITA_COVERAGE_ROUNDS", "0"))
LEVEL, FALSE_ALARM = 0.95, 1e-3
QUICK: dict[str, RowsKind] = {
    "templates 100, half": "fair",
    "templates 100, most": "skewed",
    "templates 200, little": "none",
    "far products 2": "skewed",
    "RBM 3": "fair",
    "Gaussian RBM": "fair",
    "categorical RBM": "skewed",
    "Curie-Weiss": "skewed",
    "Curie-Weiss in a field": "none",
    "Hopfield": "skewed",
    "spin glass": "fair",
    "wells": "none",
}


def judged(runs: list[Run]) -> None:
    """None misses by more than its half-width, enough cover, and rows of the model allow most to be
    trusted.
    """
    trusted = [one for one in runs if one["verdict"] != "do not publish"]
    assert max(map(miss, trusted)) <= 1, max(trusted, key=miss)
    assert sum(miss(one) == 0 for one in trusted) >= binom.ppf(FALSE_ALARM, len(trusted), LEVEL), [
        one for one in trusted if miss(one)
    ]
    with_rows = [one["verdict"] != "do not publish" for one in runs if one["rows"] == "fair"]
    assert sum(with_rows) >= 0.7 * len(with_rows)
    assert median(0.5 * (one["high"] - one["low"]) for one in trusted) <= 0.3
    assert all(one["verdict"] != "tight" for one in runs if one["rows"] == "none")


@pytest.mark.slow
def test_no_trusted_number_is_wrong_where_modes_are_far_apart() -> None:
    judged([run(family, rows, 0) for family, rows in QUICK.items()])


@pytest.mark.parametrize("family", FAMILIES if ROUNDS else [])
def test_every_family_over_many_seeds(family: str) -> None:
    judged(
        [run(*case) for case in cases(10 * ROUNDS) if case[0] == family and case[:2] not in UNSEEN]
    )


def test_without_rows_what_passes_modes_by_is_not_trusted_and_reaches_to_them() -> None:
    """The model's own path hardly ever reaches the templates, which hold nearly all of the mass."""
    model, truth = FAMILIES["templates 100, most"](0, "none")
    for evaluate in (
        Bridge(temperatures=12, chains=16, draws=100, burn_in=100),
        ReverseAIS(),
        AIS(),
        SMC(),
    ):
        q = evaluate(model, generator=torch.Generator().manual_seed(0))
        assert q.verdict == "do not publish" and q.low <= truth <= q.high


def test_a_bridge_is_tight_only_where_rows_were_given() -> None:
    model, truth = FAMILIES["far products 2"](0, "fair")
    rows = model.anchor_rows(128)
    model.anchored.fill_(False)
    bridge = Bridge(temperatures=12, chains=8, draws=100, burn_in=50)
    with_rows = bridge(model, rows=rows, generator=torch.Generator().manual_seed(0))
    alone = bridge(model, generator=torch.Generator().manual_seed(0))
    assert [q.verdict for q in (with_rows, alone)] == ["tight", "loose"]
    # four standard errors, and a short interval
    assert all(abs(q.value - truth) < q.width < 0.6 for q in (with_rows, alone))
    with pytest.raises(
        PartitaError,
        match=r"Bridge: rows must have shape \(N, 60\) with N of at least 1; got \(3,\)",
    ):
        bridge(model, rows=torch.zeros(3), generator=torch.Generator())


def test_a_density_without_an_integral_gets_no_number() -> None:
    """One coordinate is flat: energies at beta = 1 mix well, and ladders drift off too slowly for
    their draws to show it.
    """
    model = NeuralEnergy(Density(lambda x: 0.5 * x[..., :2].square().sum(-1)), Real(3))
    with pytest.raises(PartitaError, match=r"along 1 of 3 directions, else Z is infinite"):
        Bridge(temperatures=16, chains=16)(model, generator=torch.Generator().manual_seed(0))
