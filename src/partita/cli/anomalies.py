r"""``partita anomalies``: how strange each row is, and how seldom normal rows are as strange.

.. math:: s(x) = -\log p(x), \qquad p(x_o) = \frac{1 + \#\{j : s(x_{jo}) \ge s(x_o)\}}{n + 1}
          (theory/mixed_tables.md, eq. 45.4)

Over n calibration rows, normal ones that the fit has not seen, in the columns o that the row holds:
a normal row is then as likely to rank in any place among them, so that p is at most a with
probability at most a, however good the model is. A row with a category that the fit never saw is
impossible, and as strange as can be.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import typer

from partita.cli import show
from partita.core import capability, rng
from partita.core.checks import check_real
from partita.core.protocols import Capability, EnergyModel
from partita.errors import invalid
from partita.experiment.anomalies import held_in, normal_rows
from partita.experiment.encoded import evaluate_encoded
from partita.experiment.input_table import InputTable, destination, read_input, write_beside
from partita.experiment.saved import SavedRun, open_run
from partita.tables.schema import Column
from partita.tables.write import check_ending

COLUMNS = (
    Column("anomaly_score", "real"),
    Column("tail_probability", "real"),
    Column("anomaly", "binary", "bool"),
)
SHOWN = 5  # of the strangest rows
# of encoded numbers: beyond it they cannot be squared, and a row is stranger than any that can be
# scored
FARTHEST = 1e150
# by which scores of one and the same row may differ, relative to 1 + |s|: sums over other rows
# beside it round otherwise
ROUNDING = 1e-9


def report(
    folder: Path,
    source: Path,
    normal: Path | None,
    alpha: float,
    out: Path | None,
    *,
    seed: int,
    as_json: bool,
) -> None:
    """Score the rows of a file and of the calibration set together, rank, write, say which rows are
    strangest.
    """
    check_real("anomalies", "--alpha", alpha, 0, 1, open_low=True)
    opened = open_run(folder)
    path = destination(source, out, "anomalies", "anomalies")
    tabled = read_input(opened, source, "anomalies", closed=False)
    check_ending(path, "anomalies")
    own, tail, others = ranked(opened, tabled, normal, seed)
    found = tail <= alpha
    write_beside(tabled, path, COLUMNS, np.stack([own, tail, found], 1))
    most = int(others.max())
    least = 1 / (most + 1)
    if alpha < least:
        show.warning(
            f"no row can be called an anomaly: {most} normal rows allow no tail probability below "
            f"{least:.2g}, and --alpha is {alpha:g}. Give more normal rows with --normal, or a "
            "larger --alpha."
        )
    if impossible := int(np.isposinf(own).sum()):
        show.warning(
            f"{impossible} of {len(own)} rows are impossible under the model: they hold a category "
            "that it never saw, or a number beyond any that can be scored."
        )
    if as_json:
        show.print_json(
            {
                "run": str(folder),
                "out": str(path),
                "rows": len(own),
                "calibration_rows": most,
                "alpha": alpha,
                "anomalies": np.flatnonzero(found).tolist(),
                "least_tail_probability": least,
            }
        )
        return
    # by score too, for many share the least tail probability
    strangest = np.lexsort((-own, tail))[:SHOWN]
    show.table(
        ["row", "score", "tail probability"],
        [[str(row), f"{own[row]:.4g}", f"{tail[row]:.4g}"] for row in strangest],
    )
    typer.echo(
        f"{int(found.sum())} of {len(own)} rows have a tail probability of at most {alpha:g}; "
        f"among normal rows at most {alpha * len(own):.3g} would, on average."
    )
    fewest = f"{others.min()} to " * (int(others.min()) < most)  # where normal rows have gaps
    typer.echo(
        f"Ranked among {fewest}{most} normal rows, so no tail probability is below {least:.2g}. "
        f"Rows are counted from 0. Written to {path}"
    )


def ranked(
    opened: SavedRun, tabled: InputTable, normal: Path | None, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The score of each row, its tail probability, and among how many normal rows it ranks,
    ``(N,)``.

    A gap drops out of a score, and with it the units of its column: rows are ranked among normal
    rows seen in the columns that they hold.
    """
    scores, own, held = scorer(opened, seed), [], []
    for part, x in tabled.parts():
        check_gaps(opened, tabled, part, x)
        own.append(scores(x))
        held.append(held_in(opened, x))
    others, (patterns, which) = (
        normal_rows(opened, normal, seed),
        np.unique(np.concatenate(held), axis=0, return_inverse=True),
    )
    groups = np.split(
        np.argsort(which.ravel(), kind="stable"), np.cumsum(np.bincount(which.ravel()))[:-1]
    )
    strange = np.concatenate(own)
    tail = np.empty(len(tabled))
    count = np.empty(len(tabled), dtype=int)
    for pattern, rows in zip(patterns, groups, strict=True):
        known = np.concatenate([scores(x) for x in others.seen_in(pattern, len(patterns))])
        tail[rows], count[rows] = tail_probabilities(strange[rows], known), len(known)
    return strange, tail, count


def check_gaps(opened: SavedRun, tabled: InputTable, part: slice, x: np.ndarray) -> None:
    """Refuse rows with gaps where the family takes none; sequences have NaN where they have
    ended.
    """
    if (
        Capability.MISSING in opened.run.model.capabilities
        or opened.encoding.kind == "steps"
        or not (gaps := np.isnan(x)).any()
    ):
        return
    row, column = np.argwhere(gaps)[0]
    name = repr(tabled.names[tabled.order[column]]) if tabled.names else str(column)
    allowed = f"hold no gaps for {opened.run.model.title()}"
    got = f"one at row {part.start + row}, column {name}"
    raise invalid(
        "anomalies",
        "DATA",
        allowed,
        got,
        "Fit a mixture, which scores rows by what they hold, or impute them first.",
    )


def tail_probabilities(scores: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """The share of calibration scores that are at least as large, but for rounding, the row itself
    counted.

    >>> tail_probabilities(np.array([5.0, 2.0, 0.0]), np.array([1.0, 2.0, 3.0])).tolist()
    [0.25, 0.75, 1.0]
    """
    # impossible rows are as strange as one another
    slack = np.where(np.isfinite(scores), ROUNDING * (1 + np.abs(scores)), 0.0)
    below = np.searchsorted(np.sort(calibration), scores - slack, side="left")
    return (1 + len(calibration) - below) / (len(calibration) + 1)


def scorer(opened: SavedRun, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Minus the log-likelihood of rows; all calls share what is estimated of the model itself, its
    log Z.
    """
    model, generator = opened.run.model, rng.keyed(seed, 5)
    known = (
        capability.default("partition", model)(model, generator=generator)
        if isinstance(model, EnergyModel)
        else None
    )

    def finite(x: np.ndarray) -> np.ndarray:
        q = evaluate_encoded(
            model, opened.encoding, x, evaluator=known, owner="anomalies", generator=generator
        )
        if q.kind == "none":
            raise invalid(
                "anomalies",
                "RUN",
                "be of a family with a likelihood",
                model.title(),
                "A mixture or a flow has one.",
            )
        return -q.details["rows"].double().cpu().numpy()

    def scores(x: np.ndarray) -> np.ndarray:
        possible = np.flatnonzero(~opened.encoding.unseen(x))
        with np.errstate(over="ignore"):
            far = (
                np.abs(opened.encoding.encode(opened.encoding.check(x[possible], "anomalies")))
                > FARTHEST
            ).any(1)
        out, near = np.full(len(x), np.inf), possible[~far]
        out[near] = finite(x[near]) if len(near) else ()
        return out

    return scores
