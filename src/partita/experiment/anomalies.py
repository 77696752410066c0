r"""Anomalies: how improbable each row of a file is, and how rarely normal rows are as improbable.

.. math:: s(x) = -\log p(x), \qquad p(x_o) = \frac{1 + \#\{j : s(x_{jo}) \ge s(x_o)\}}{n + 1}
          (theory/mixed_tables.md, eq. 45.4)

Over n calibration rows, normal ones that the fit has not seen, in the columns o that the row holds:
a normal row is then as likely to rank in any place among them, so that p is at most a with
probability at most a, however good the model is. A row with a category that the fit never saw is
impossible, and has an infinite score.

A row with gaps is ranked among normal rows that hold all it holds, with its gaps made in them
(Zaffran, Dieuleveut, Josse & Romano 2023): where values are missing whatever they are, its place
among them is uniform. Where too few hold all of it, all are taken, and what they lack is drawn from
the model, given what they hold.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from partita.core import rng
from partita.core.arguments import check_real
from partita.core.protocols import Capability, EnergyModel
from partita.errors import DataError, PartitaWarning, invalid
from partita.evaluators import Portfolio
from partita.experiment.imputation import impute_encoded
from partita.experiment.input_table import InputTable, destination, read_input, write_results
from partita.experiment.saved import SPLIT_KEY, SavedRun, evaluate_encoded, open_run, split_table
from partita.tables import Column, Rows
from partita.tables.arrays import pieces, row_ranges
from partita.tables.on_disk import gather_rows
from partita.tables.write import check_ending

COLUMNS = (
    Column("anomaly_score", "real"),
    Column("tail_probability", "real"),
    Column("anomaly", "binary", "bool"),
)
FEWEST = 99  # normal rows that resolve a tail probability of one in a hundred
# normal rows, each once for every pattern of gaps; beyond it fewer are taken for each
MOST_SCORED = 1 << 20
# encoded numbers beyond it cannot be squared: their row counts as impossible
FARTHEST = 1e150
# by which scores of the same row may differ, relative to 1 + |s|, as sums round differently beside
# other rows
ROUNDING = 1e-9


class Ranking(NamedTuple):
    """Where each of N rows ranks among normal rows."""

    score: np.ndarray  # (N,), -log p(x)
    tail: np.ndarray  # (N,), tail probabilities
    calibration: np.ndarray  # (N,), how many normal rows each is ranked among


class AnomalySummary(NamedTuple):
    """Anomalies of a file at a level alpha, and where they were written."""

    path: Path
    alpha: float
    ranking: Ranking
    anomalous: np.ndarray  # (N,), true where the tail probability is at most alpha

    @property
    def least_tail(self) -> float:
        """The smallest tail probability that so many normal rows allow."""
        return 1 / (int(self.ranking.calibration.max()) + 1)


def find_anomalies(
    folder: Path,
    source: Path,
    normal: Path | None = None,
    alpha: float = 0.01,
    out: Path | None = None,
    *,
    seed: int = 0,
    allow_diverged: bool = False,
) -> AnomalySummary:
    """Rank the rows of a file among normal rows, and write scores and tail probabilities beside
    them.
    """
    check_real("anomalies", "--alpha", alpha, 0, 1, open_low=True)
    saved = open_run(folder, allow_diverged=allow_diverged)
    path = destination(source, out, "anomalies", "anomalies")
    table = read_input(saved, source, "anomalies", closed=False)
    check_ending(path, "anomalies")
    ranking = rank_rows(saved, table, normal, seed)
    found = AnomalySummary(path, alpha, ranking, ranking.tail <= alpha)
    write_results(table, path, COLUMNS, np.column_stack([*ranking[:2], found.anomalous]))
    if alpha < found.least_tail:
        _warn(
            f"no row can be called an anomaly: {ranking.calibration.max()} normal rows allow no "
            f"tail probability below {found.least_tail:.2g}, and --alpha is {alpha:g}. Give more "
            "normal rows with --normal, or a larger --alpha."
        )
    if impossible := int(np.isposinf(ranking.score).sum()):
        _warn(
            f"{impossible} of {len(table)} rows are impossible under the model: they hold a "
            "category that it never saw, or a number beyond any that can be scored."
        )
    return found


def rank_rows(saved: SavedRun, table: InputTable, normal: Path | None, seed: int) -> Ranking:
    """Scores and tail probabilities of the rows of a table.

    A gap drops out of a score, and with it the units of its column: rows are ranked among normal
    rows seen in the columns that they hold.
    """
    score_rows = row_scorer(saved, seed)
    scores, patterns = [], []
    for part, x in table.chunks():
        _check_gaps(saved, table, part, x)
        scores.append(score_rows(x))
        patterns.append(_observed_bits(saved, x))
    score = np.concatenate(scores)
    calibration = normal_rows(saved, normal, seed)
    distinct, which = np.unique(np.concatenate(patterns), axis=0, return_inverse=True)
    order, sizes = np.argsort(which.ravel(), kind="stable"), np.bincount(which.ravel())
    tail, count = np.empty(len(table)), np.empty(len(table), dtype=int)
    for pattern, rows in zip(distinct, np.split(order, np.cumsum(sizes)[:-1]), strict=True):
        known = [score_rows(x) for x in calibration.seen_in(pattern, len(distinct))]
        tail[rows] = tail_probabilities(score[rows], np.concatenate(known))
        count[rows] = sum(map(len, known))
    return Ranking(score, tail, count)


def tail_probabilities(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """The share of calibration scores that are at least as large, up to rounding; the row itself
    counts as one.

    >>> tail_probabilities(np.array([5.0, 2.0, 0.0]), np.array([1.0, 2.0, 3.0])).tolist()
    [0.25, 0.75, 1.0]
    """
    # impossible rows tie with one another
    slack = np.where(np.isfinite(scores), ROUNDING * (1 + np.abs(scores)), 0.0)
    below = np.searchsorted(np.sort(calibration), scores - slack, side="left")
    return (1 + len(calibration) - below) / (len(calibration) + 1)


def row_scorer(saved: SavedRun, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """-log p(x) as a function of rows, ``(N, D) -> (N,)``; all calls share an estimate of log Z."""
    model, encoding, generator = saved.run.model, saved.encoding, rng.keyed(seed, 5)
    log_z = None
    if isinstance(model, EnergyModel):
        log_z = Portfolio()(model, generator=generator)

    def finite(x: np.ndarray) -> np.ndarray:
        q = evaluate_encoded(
            model, encoding, x, evaluator=log_z, owner="anomalies", generator=generator
        )
        if q.kind == "none":
            allowed, remedy = "be of a family with a likelihood", "A mixture or a flow has one."
            raise invalid("anomalies", "RUN", allowed, model.title(), remedy)
        return -q.details["rows"].double().cpu().numpy()

    def score_rows(x: np.ndarray) -> np.ndarray:
        scores = np.full(len(x), np.inf)
        known = np.flatnonzero(~encoding.unseen(x))
        with np.errstate(over="ignore"):
            encoded = encoding.encode(encoding.check(x[known], "anomalies"))
        possible = known[~(np.abs(encoded) > FARTHEST).any(1)]
        if len(possible):
            scores[possible] = finite(x[possible])
        return scores

    return score_rows


@dataclass(frozen=True)
class NormalRows:
    """Rows to rank among.

    Arguments:
        saved: The run that draws what they lack.
        table: (n, D), columns in the order of the run, in memory or on disk.
        seed: Of what is drawn.
    """

    saved: SavedRun
    table: np.ndarray
    seed: int

    def seen_in(self, pattern: np.ndarray, patterns: int) -> Iterator[np.ndarray]:
        """Chunks of rows with the gaps of a pattern of observed values, one of so many patterns."""
        n, width = self.table.shape
        columns = np.unpackbits(pattern, count=width).astype(bool)
        at, table = np.flatnonzero(((self._observed & pattern) == pattern).all(1)), self.table
        if len(at) < min(n, FEWEST):
            at, table = np.arange(n), self._filled
        if not columns.all():
            at = at[:: max(1, min(len(at) // FEWEST, patterns * n // MOST_SCORED))]
        for part in row_ranges(len(at), width):
            yield np.where(columns, table[at[part]], np.nan)

    @cached_property
    def _observed(self) -> np.ndarray:
        return np.concatenate([_observed_bits(self.saved, x) for x in pieces(self.table)])

    @cached_property
    def _filled(self) -> np.ndarray:
        """The rows with a draw in the place of every gap."""
        model, encoding = self.saved.run.model, self.saved.encoding
        generator = rng.keyed(self.seed, 6)
        filled = (
            impute_encoded(model, encoding, x, "draw", "anomalies", generator=generator)
            for x in pieces(self.table)
        )
        return gather_rows(filled, self.table.shape, np.float64)


def normal_rows(saved: SavedRun, normal: Path | None, seed: int) -> NormalRows:
    """Normal rows that the fit has not seen: those of a file, else the run's own test set."""
    if normal is not None:
        table = read_input(saved, normal, "anomalies --normal", closed=False)
        rows = (x for _, x in table.chunks())
        return NormalRows(saved, gather_rows(rows, table.shape, np.float64), seed)
    dataset = saved.dataset(None) if saved.data.source else None
    if dataset is None or dataset.test is None:
        raise DataError(
            "anomalies: --normal must be given for a run whose data have no test rows; got none. "
            "Give a file of normal rows."
        )
    if saved.has_changed(dataset):
        _warn(
            f"{saved.data.name} has other rows than when the run was fitted: it may have "
            "learned from some normal rows, and tail probabilities be too small. Give others with "
            "--normal."
        )
    test = dataset.test
    if not isinstance(test, Rows):
        return NormalRows(saved, split_table(test), seed)
    parts = test.parts(rng.keyed(SPLIT_KEY, len(test)))
    return NormalRows(saved, gather_rows(parts, (len(test), test.width), np.float64), seed)


def _observed_bits(saved: SavedRun, x: np.ndarray) -> np.ndarray:
    """Which values of rows are observed, a bit for each; a family that takes no gaps has NaN only
    where sequences have ended.
    """
    missing = np.isnan(x) & (Capability.MISSING in saved.run.model.capabilities)
    return np.packbits(~missing, axis=1)


def _check_gaps(saved: SavedRun, table: InputTable, part: slice, x: np.ndarray) -> None:
    """Refuse rows with gaps where the family takes none; sequences have NaN where they ended."""
    model, gaps = saved.run.model, np.isnan(x)
    ends = saved.encoding.kind == "steps"
    if Capability.MISSING in model.capabilities or ends or not gaps.any():
        return
    row, column = np.argwhere(gaps)[0]
    name = repr(table.names[table.order[column]]) if table.names else str(column)
    allowed = f"hold no gaps for {model.title()}"
    got = f"one at row {part.start + row}, column {name}"
    remedy = "Fit a mixture, which scores rows by what they hold, or impute them first."
    raise invalid("anomalies", "DATA", allowed, got, remedy)


def _warn(text: str) -> None:
    warnings.warn(text, PartitaWarning, stacklevel=3)
