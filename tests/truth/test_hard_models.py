"""log Z of models whose modes are far apart: no trusted number is wrong, and few are not trusted.

``make test`` takes one seed of some families, ``make coverage`` ten seeds a round of all, in turn with rows of the model, with skewed rows
and with none, in float32 and in float64. The bound on coverage is binomial with a false-alarm rate of 1e-3; seeds are fixed, and none of
those that settings were chosen on.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from scipy.stats import binom
from tests.truth.hard_models import FAMILIES, UNSEEN, RowsKind

from partita.core.errors import PartitaError
from partita.core.quantity import Quantity
from partita.evaluators import AIS, SMC, Bridge, ReverseAIS, Sandwich

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
FIRST = 100  # seed of the study
KINDS: tuple[RowsKind, ...] = ("fair", "skewed", "none")


class Said(NamedTuple):
    """What was said of a model, and the truth."""

    family: str
    rows: RowsKind
    q: Quantity
    truth: float

    @property
    def covers(self) -> bool:
        return self.q.low <= self.truth <= self.q.high

    @property
    def miss(self) -> float:
        """How far the truth lies outside the interval, in half-widths."""
        outside = max(self.q.low - self.truth, self.truth - self.q.high, 0.0)
        return outside / (0.5 * self.q.width)


def said_of(family: str, rows: RowsKind, seed: int) -> Said:
    model, truth = FAMILIES[family](seed, rows)
    model = model.double() if seed % 2 else model
    return Said(family, rows, Sandwich()(model, generator=torch.Generator().manual_seed(1000 + seed)), truth)


def judged(said: list[Said]) -> None:
    """None misses by more than its half-width, enough cover, and rows of the model allow most to be trusted."""
    trusted = [s for s in said if s.q.trusted]
    assert max(s.miss for s in trusted) <= 1, max(trusted, key=lambda s: s.miss)
    assert sum(s.covers for s in trusted) >= binom.ppf(FALSE_ALARM, len(trusted), LEVEL), [s for s in trusted if not s.covers]
    with_rows = [s for s in said if s.rows == "fair"]
    assert sum(s.q.trusted for s in with_rows) >= 0.7 * len(with_rows)
    half_widths = torch.tensor([0.5 * s.q.width for s in trusted])
    assert float(half_widths.median()) <= 0.3
    assert all(s.q.verdict != "tight" for s in said if s.rows == "none")


def short() -> Iterator[tuple[str, RowsKind, int]]:
    yield from ((family, rows, 0) for family, rows in QUICK.items())


def test_no_trusted_number_is_wrong_where_modes_are_far_apart() -> None:
    judged([said_of(*case) for case in short()])


@pytest.mark.parametrize("family", FAMILIES if ROUNDS else [])
def test_every_family_over_many_seeds(family: str) -> None:
    turns = [(KINDS[seed % 3], seed) for seed in range(FIRST, FIRST + 10 * ROUNDS)]
    judged([said_of(family, rows, seed) for rows, seed in turns if (family, rows) not in UNSEEN])


def test_without_rows_what_passes_modes_by_is_not_trusted_and_reaches_to_them() -> None:
    """The model's own path hardly ever reaches the templates, which hold nearly all of the mass."""
    model, truth = FAMILIES["templates 100, most"](0, "none")
    for evaluate in (Bridge(temperatures=12, chains=16, draws=100, burn_in=100), ReverseAIS(), AIS(), SMC()):
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
    assert all(abs(q.value - truth) < q.width < 0.6 for q in (with_rows, alone))  # four standard errors, and a short interval
    with pytest.raises(PartitaError, match=r"Bridge: rows must have shape \(N, 60\) with N of at least 1; got \(3,\)"):
        bridge(model, rows=torch.zeros(3), generator=torch.Generator())
