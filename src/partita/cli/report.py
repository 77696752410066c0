"""``partita report``: one HTML file about a run or a comparison, which opens from disk with no
network.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from partita.cli import show
from partita.core import rng
from partita.core.quantity import Quantity
from partita.datasets import Dataset
from partita.errors import DataError, PartitaError, RunError
from partita.experiment.saved import open_run
from partita.report.comparison import write_comparison
from partita.report.context import Subject
from partita.report.ranking import Standing
from partita.report.run import write_run
from partita.runtime.untrusted import inside, read_json
from partita.tables.encoding import Encoding
from partita.training import Run

NAME = "report.html"
QUANTITY = {
    "value": float,
    "low": float,
    "high": float,
    "kind": str,
    "verdict": str,
    "se_data": float,
    "level": float,
    "details": {"p_value": float, "coverage": float, "per_step": float},
}
LINE = {
    "name": str,
    "problem": str,
    "seconds": float,
    "parameters": int,
    "steps": int,
    "planned_steps": int,
    "model": str,
    "stopped": str,
    "cut_short": bool,
    "log_likelihood": QUANTITY,
    "difference": QUANTITY,
    "bits_per_dimension": QUANTITY,
}
BOARD = {
    "title": str,
    "results": [LINE],
    "left_out": dict,
    "entropy": float,
    "waiting": [str],
    "folder": str,
    "warnings": [str],
}  # of a saved leaderboard
LEADERBOARD = "leaderboard.json"  # what a comparison leaves


def report(folder: Path, out: Path | None, *, as_json: bool) -> None:
    """Write the page and say where it is."""
    path = write(folder, out)
    if as_json:
        show.print_json({"folder": str(folder), "report": str(path)})
    else:
        typer.echo(f"Report written to {path}")


def write(folder: Path, out: Path | None = None) -> Path:
    """Write the page about a folder that holds a run or a comparison."""
    path = folder / NAME if out is None else out
    if path.suffix.lower() not in (".html", ".htm"):
        raise RunError(f"report: --out must end in .html; got {path}.")
    board = read_board(folder)
    if board is not None:
        return write_comparison(
            board, [_standing(line, folder, path) for line in board["results"]], path
        )
    if not (folder / "config.json").exists():
        made = "a run, as `partita fit` makes, or a comparison, as `partita compare` makes"
        raise RunError(f"report: FOLDER must hold {made}; found neither in {folder}.")
    return write_run(open_subject(folder), path)


def write_after_fit(
    run: Run, encoding: Encoding, dataset: Dataset, split: str, score: Quantity
) -> Path | None:
    """The page of a run that was just made and scored; what hinders it is a warning, for the run
    itself is whole.
    """
    assert run.folder is not None
    try:
        return write_run(Subject(run, encoding, dataset, score, split), run.folder / NAME)
    except (PartitaError, OSError) as error:
        show.warning(f"no report was written: {error}")
    except KeyboardInterrupt:
        show.warning(
            f"no report was written: interrupted. Write it with: partita report {run.folder}"
        )
    return None


def open_subject(folder: Path, *, scored: bool = True) -> Subject:
    """A run with its data and its score, as ``partita fit`` found it; without them the page says
    why.
    """
    opened = open_run(folder)
    try:
        dataset = opened.dataset(None)
    except (DataError, RunError) as error:
        problem = f"The data of the run cannot be read, so nothing is scored or compared. {error}"
        return Subject(opened.run, opened.encoding, problem=problem)
    split = "train" if dataset.test is None else "test"
    if not scored:
        return Subject(opened.run, opened.encoding, dataset, None, split)
    try:
        score = opened.score(
            getattr(dataset, split), None, rng.keyed(opened.run.config.get("seed") or 0, 1)
        )
    except PartitaError as error:
        return Subject(opened.run, opened.encoding, dataset, None, split, str(error))
    return Subject(opened.run, opened.encoding, dataset, score, split)


def read_board(folder: Path) -> Mapping[str, Any] | None:
    """The saved leaderboard of a comparison; None where there is none."""
    if not (folder / LEADERBOARD).exists():
        return None
    board = read_json(inside(folder, LEADERBOARD), BOARD)
    if not all(_whole(line) for line in board.get("results") or [{}]):
        raise RunError(
            f"report: {folder / LEADERBOARD} must be a leaderboard, as `partita compare` writes "
            "it; got a damaged file."
        )
    return board


def _whole(line: Mapping[str, Any]) -> bool:
    """Whether a line has a name and its quantities all that is shown of them."""
    interval = {"value", "low", "high"}
    needed = {
        "log_likelihood": {*interval, "kind", "verdict"},
        "difference": interval,
        "bits_per_dimension": {"value"},
    }
    return bool(line.get("name")) and all(
        keys <= line[name].keys() for name, keys in needed.items() if line.get(name)
    )


def _standing(line: Mapping[str, Any], folder: Path, page: Path) -> Standing:
    """A line with its run, which lies beside the leaderboard under its name."""
    found = folder / line["name"]
    if not inside(folder, line["name"], "config.json").exists():
        return Standing(line)
    try:
        subject = open_subject(found, scored=False)
    except PartitaError as error:
        return Standing({**line, "problem": line.get("problem") or str(error)})
    own = found / NAME
    return Standing(
        line, subject, Path(os.path.relpath(own, page.parent)).as_posix() if own.exists() else ""
    )
