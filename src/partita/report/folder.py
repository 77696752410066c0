"""The page about a folder that holds a run or a comparison."""

import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from partita.core import rng
from partita.core.quantity import Quantity
from partita.datasets import Dataset
from partita.errors import Argument, DataError, PartitaError, PartitaWarning, RunError
from partita.experiment.leaderboard import Line, read_board
from partita.experiment.saved import SCORING, open_run
from partita.report.comparison import write_comparison
from partita.report.context import Subject
from partita.report.ranking import Standing
from partita.report.run import write_run
from partita.runtime.files import inside
from partita.tables.encoding import Encoding
from partita.training import Run

NAME = "report.html"


def write_report(folder: Path, out: Path | None = None, *, allow_diverged: bool = False) -> Path:
    """Write the page about a folder that holds a run or a comparison."""
    path = folder / NAME if out is None else out
    if path.suffix.lower() not in (".html", ".htm"):
        raise RunError("report: ", Argument("out"), f" must end in .html; got {path}.")
    board = read_board(folder)
    if board is not None:
        standings = [_standing(line, folder, path) for line in board["results"]]
        return write_comparison(board, standings, path)
    if not (folder / "config.json").exists():
        raise RunError(
            "report: FOLDER must hold a run, as `partita fit` makes, or a comparison, as `partita "
            f"compare` makes; found neither in {folder}."
        )
    return write_run(open_subject(folder, allow_diverged=allow_diverged), path)


def write_after_fit(
    run: Run, encoding: Encoding, dataset: Dataset, split: str, score: Quantity
) -> Path | None:
    """Write the page of a run that was just fitted and scored."""
    assert run.folder is not None
    subject = Subject(run, encoding, dataset, score, split)
    return _unless_hindered(partial(write_run, subject, run.folder / NAME), run.folder)


def write_after_comparison(folder: Path) -> Path | None:
    """Write the page of a comparison that has just ended."""
    return _unless_hindered(partial(write_report, folder), folder)


def _unless_hindered(write: Callable[[], Path], folder: Path) -> Path | None:
    """What is written about work that is complete: a failure is only a warning."""
    try:
        return write()
    except (PartitaError, OSError) as error:
        reason = str(error)
    except KeyboardInterrupt:
        reason = f"interrupted. Write it with: partita report {folder}"
    warnings.warn(f"no report was written: {reason}", PartitaWarning, stacklevel=3)
    return None


def open_subject(folder: Path, *, scored: bool = True, allow_diverged: bool = False) -> Subject:
    """A run with its data and its score, as ``partita fit`` found it; without them the page says
    why.
    """
    saved = open_run(folder, allow_diverged=allow_diverged)
    try:
        dataset = saved.dataset(None)
    except (DataError, RunError) as error:
        problem = f"The data of the run cannot be read, so nothing is scored or compared. {error}"
        return Subject(saved.run, saved.encoding, problem=problem)
    rows, split = dataset.test, "test"
    if rows is None:
        rows, split = dataset.train, "train"
    score, problem = None, ""
    if scored:
        try:
            seed = saved.run.config.get("seed") or 0
            score = saved.score(rows, None, rng.keyed(seed, SCORING))
        except PartitaError as error:
            problem = str(error)
    return Subject(saved.run, saved.encoding, dataset, score, split, problem)


def _standing(line: Line, folder: Path, page: Path) -> Standing:
    """A line with its run, which lies beside the leaderboard under its name."""
    found = folder / line["name"]
    if not inside(folder, line["name"], "config.json").exists():
        return Standing(line)
    try:
        subject = open_subject(found, scored=False)
    except PartitaError as error:
        return Standing({**line, "problem": line.get("problem") or str(error)})
    own = found / NAME
    link = Path(os.path.relpath(own, page.parent)).as_posix() if own.exists() else ""
    return Standing(line, subject, link)
