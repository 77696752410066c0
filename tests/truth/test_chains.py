"""The one rule for chains against chains whose truth is known: what is trusted covers, is not too
wide, and is not refused without need.

A family is AR(1), or two modes four deviations apart between which a chain switches at random;
chains begin off their law, and their first half is dropped, as samplers of partitions drop it.
``make coverage`` takes more runs of more families.
"""

import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor

import partita
from partita.core.quantity import VERDICTS
from partita.diagnostics.chains import ChainReport, mean_half_width, summarize_chains, worst_of

ROUNDS = int(os.environ.get("PARTITA_COVERAGE_ROUNDS", "1"))
LEVEL, FALSE_ALARM = 0.95, 1e-3


def ar(C: int, n: int, a: float, g: np.random.Generator) -> np.ndarray:
    """x' = a x + noise, of variance one, from three deviations off."""
    x, noise = np.empty((C, 2 * n)), g.normal(size=(C, 2 * n)) * math.sqrt(1 - a * a)
    x[:, 0] = 3 * (1 - 2 * (np.arange(C) % 2))
    for t in range(1, 2 * n):
        x[:, t] = a * x[:, t - 1] + noise[:, t]
    return x[:, n:]


def modes(C: int, n: int, p: float, g: np.random.Generator) -> np.ndarray:
    """Two modes at -2 and 2, each left with probability p at every step; which one comes first is a
    coin's toss.
    """
    mode = (g.integers(0, 2, (C, 1)) + (g.random((C, 2 * n)) < p).cumsum(1)) % 2
    return (4 * mode - 2 + g.normal(size=mode.shape))[:, n:]


def true_error(C: int, n: int, variance: float, a: float) -> float:
    """Of the mean of C chains with correlation a^k at distance k."""
    k = np.arange(1, n)
    return math.sqrt(variance / (C * n) * (1 + 2 * ((1 - k / n) * a**k).sum()))


FAST = {  # family, C, n, its parameter, and the deviation of a mean of all draws
    "independent": (ar, 4, 150, 0.0, true_error(4, 150, 1.0, 0.0)),
    "two chains": (ar, 2, 76, 0.4, true_error(2, 76, 1.0, 0.4)),
    "four chains": (ar, 4, 150, 0.6, true_error(4, 150, 1.0, 0.6)),
    "many chains": (ar, 16, 100, 0.6, true_error(16, 100, 1.0, 0.6)),
    "two modes": (modes, 4, 150, 0.25, math.sqrt(4 * true_error(4, 150, 1.0, 0.5) ** 2 + 1 / 600)),
}


def judged(
    make: object, C: int, n: int, parameter: float, runs: int, seed: int
) -> list[tuple[ChainReport, float, float]]:
    """The report, the mean and half its interval in every run."""
    g, found = np.random.default_rng(seed), []
    for _ in range(runs):
        x = torch.from_numpy(make(C, n, parameter, g))  # type: ignore[operator]
        report = summarize_chains(x[..., None])
        found.append((report, float(x.mean()), mean_half_width(x, report, LEVEL)))
    return found


@pytest.mark.parametrize("family", FAST)
def test_chains_that_mix_are_trusted_and_their_intervals_cover_and_are_no_wider_than_they_must(
    family: str,
) -> None:
    """At true coverage 0.95 fewer than the bound have probability 1e-3 in each family; widths are
    within 30 % of what is known exactly.
    """
    make, C, n, parameter, error = FAST[family]
    found = judged(make, C, n, parameter, 60 * ROUNDS, 0)
    trusted = [(mean, half) for report, mean, half in found if report.mixed]
    assert len(trusted) >= 0.9 * len(found), "a shrug is a failure"
    assert sum(abs(mean) <= half for mean, half in trusted) >= binom.ppf(
        FALSE_ALARM, len(trusted), LEVEL
    )
    widths = np.array([half for _, half in trusted]) / (1.96 * error)
    assert 0.9 < np.median(widths) < 1.3
    assert ("tight" in {report.verdict for report, *_ in found}) == (
        family in ("independent", "many chains")
    )


SLOW = [(ar, 4, 150, 0.98), (ar, 16, 100, 0.97), (modes, 16, 100, 0.005), (modes, 16, 100, 0.0)]


@pytest.mark.parametrize(("make", "C", "n", "parameter"), SLOW)
def test_chains_that_do_not_mix_are_not_trusted(
    make: object, C: int, n: int, parameter: float
) -> None:
    """Sixteen chains that never leave their mode are all in one with probability 2^-15; slow ones
    pass once in a hundred.
    """
    found = judged(make, C, n, parameter, 25 * ROUNDS, 1)
    assert sum(report.mixed for report, *_ in found) <= (1 if ROUNDS == 1 else 0.02 * len(found))


@pytest.mark.parametrize("apart", [0.0, 8.0])
def test_an_interval_reaches_to_every_chain_where_they_disagree(
    apart: float, generator: torch.Generator
) -> None:
    x = torch.randn(4, 100, generator=generator).double() + apart * torch.tensor(
        [[0.0], [0.0], [0.0], [1.0]]
    )
    report = summarize_chains(x[..., None])
    half = mean_half_width(x, report, LEVEL)
    assert report.mixed == (apart == 0)
    assert (half >= float((x.mean(1) - x.mean()).abs().max())) == (apart > 0)


STEADY = torch.arange(4.0)[:, None, None].expand(4, 50, 1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            torch.randn(1, 5000, 1, generator=torch.Generator().manual_seed(0)),
            "not mixed, one chain has no other to agree with",
        ),
        (
            torch.randn(4, 3, 1, generator=torch.Generator().manual_seed(0)),
            "not mixed, fewer than 4 draws of a chain show nothing",
        ),
        (torch.ones(4, 50, 2), "not mixed, no chain moved, and all are alike"),
        (STEADY, "not mixed, the chains disagree, and none of them moves"),
        (
            torch.cat([STEADY[:, :49], torch.full((4, 1, 1), math.nan)], 1),
            "not mixed, a summary of the chains is not finite",
        ),
        (torch.full((4, 50, 1), math.inf), "not mixed, a summary of the chains is not finite"),
    ],
    ids=["one chain", "three draws", "still and alike", "still and apart", "nan", "infinite"],
)
def test_what_cannot_be_judged_is_said_plainly_and_never_trusted(
    values: Tensor, words: str
) -> None:
    report = summarize_chains(values)
    assert report.verdict == "do not publish" and not report.mixed
    assert report.finding == words and f": {words}: run longer, or temper" in str(report)


def test_gibbs_sampling_that_finds_one_state_again_and_again_is_believed_but_never_tight() -> None:
    assert summarize_chains(torch.ones(4, 500, 1), redrawn=True).verdict == "loose"
    assert summarize_chains(torch.ones(1, 500, 1), redrawn=True).verdict == "do not publish"
    assert summarize_chains(STEADY, redrawn=True).verdict == "do not publish"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "tight"),
        ({"rhat": 1.0101}, "loose"),
        ({"rhat": 1.1}, "loose"),
        ({"rhat": 1.1001}, "do not publish"),
        ({"ess_bulk": 399.0}, "loose"),
        ({"ess_tail": 399.0}, "loose"),
        ({"ess_bulk": 49.0}, "do not publish"),
        ({"ess_tail": 49.0}, "do not publish"),
        ({"chains": 3}, "loose"),
        ({"chains": 3, "ess_tail": 37.0}, "do not publish"),
        ({"chains": 1}, "do not publish"),
        ({"chains": 64}, "loose"),
        ({"chains": 64, "ess_tail": 640.0, "ess_bulk": 640.0}, "tight"),
        ({"chains": 90}, "do not publish"),
        ({"draws": 3}, "do not publish"),
    ],
)
def test_the_thresholds(changes: dict[str, float], verdict: str) -> None:
    report = ChainReport(1.01, 400.0, 400.0, 4, 200)._replace(**changes)
    assert report.verdict == verdict
    words = {"tight": "mixed, ", "loose": "nearly mixed, ", "do not publish": "not mixed, "}
    assert report.finding.startswith(words[verdict]) and report.mixed == (
        verdict != "do not publish"
    )


def test_the_worst_report_counts() -> None:
    good, fair, bad, still = (
        ChainReport(rhat, 500.0, 500.0, 4, 200, redrawn=True) for rhat in (1.0, 1.05, 1.5, math.nan)
    )
    assert worst_of(good, bad, fair) is bad and worst_of(good, fair) is fair
    assert worst_of(good, still) is still and worst_of(still, fair) is fair
    assert all(
        VERDICTS.index(worst_of(good, r).verdict) >= VERDICTS.index(r.verdict)
        for r in (good, fair, bad, still)
    )


def test_no_other_file_holds_a_threshold_of_its_own() -> None:
    """R-hat is compared with numbers in diagnostics/chains.py alone, so that warnings, verdicts and
    reports cannot disagree.
    """
    root = Path(partita.__file__).parent
    own = re.compile(
        r"rhat\s*[<>]|[<>]=?\s*\w*rhat|RHAT\w*\s*(,\s*\w+\s*)?=|R-hat[^\n]*\b1\.\d", re.IGNORECASE
    )
    found = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if own.search(path.read_text(encoding="utf-8"))
    ]
    assert found == [str(Path("diagnostics") / "chains.py")]


def table(runs: int) -> None:
    """Print the table of docs/theory/scoring.md: the share of runs that is trusted, and of these
    the share that covers.
    """
    families = [
        ("AR(1), 0.5", ar, 0.5),
        ("AR(1), 0.8", ar, 0.8),
        *((f"two modes, {100 * p:g} %", modes, p) for p in (0.2, 0.01, 0.0)),
    ]
    print("| chains x draws |", " | ".join(name for name, *_ in families), "|")
    for C, n in ((2, 75), (4, 150), (4, 500), (16, 100)):
        cells = []
        for _, make, parameter in families:
            hits = [
                abs(mean) <= half
                for report, mean, half in judged(make, C, n, parameter, runs, 2)
                if report.mixed
            ]
            cells.append(f"{len(hits) / runs:.2f}" + (f", {np.mean(hits):.2f}" if hits else ""))
        print(f"| {C} x {n} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    table(200)
