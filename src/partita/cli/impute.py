"""``partita impute``: a file with its missing values filled in, columns named and ordered as they came."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import typer

from partita.cli import show
from partita.cli.runs import Opened, open_run
from partita.core import rng
from partita.core.errors import DataError, invalid
from partita.data import read
from partita.data.files import Splits
from partita.estimators._impute import impute_encoded

ENDINGS = (".csv", ".npy", ".npz")


def report(folder: Path, source: Path, out: Path | None, how: str, *, seed: int, as_json: bool) -> None:
    """Read, fill, write, say how many values were missing."""
    opened = open_run(folder)
    path = source.with_name(f"{source.stem}-imputed{source.suffix}") if out is None else out
    if path.suffix.lower() not in ENDINGS:
        raise invalid("impute", "--out", f"end in one of {' '.join(ENDINGS)}", str(path))
    found = read(source, words=opened.encoding.kind == "category")
    table = found.train.reshape(len(found.train), -1).astype(np.float64)
    order = column_order(opened, found, table.shape[1])
    filled = table.copy()
    filled[:, order] = impute_encoded(
        opened.run.model, opened.encoding, table[:, order], how, "impute", generator=rng.keyed(seed, 4)
    )
    write(path, filled, found, opened.encoding.labels)
    count = int(np.isnan(table).sum())
    if as_json:
        show.print_json({"run": str(folder), "out": str(path), "rows": len(table), "filled": count})
        return
    typer.echo(f"{count} of {table.size} values filled {way(opened.run.model)} by {opened.run.model.title()}, written to {path}")


def way(model: Any) -> str:
    """How a model fills in, in words."""
    if "missing" in model.offers:
        return "exactly"
    return "on average over its posterior draws" if "posterior_draws" in model.offers else "by clamped sampling"


def column_order(opened: Opened, found: Splits, width: int) -> list[int]:
    """Where each column of the run is in the file: by name where both have names, else by place."""
    wanted = opened.data.get("columns")
    if found.columns is None or wanted is None:
        if width != opened.run.model.support.width:
            raise DataError(f"impute: DATA must have {opened.run.model.support.width} columns, as the run has; got {width}.")
        return list(range(width))
    lost = [name for name in wanted if name not in found.columns]
    if lost or len(wanted) != len(found.columns):
        more = [name for name in found.columns if name not in wanted]
        got = f"none called {lost[0]!r}" if lost else f"one more, {more[0]!r}"
        raise DataError(f"impute: DATA must have the columns of the run, {', '.join(wanted[:6])}{', ...' * (len(wanted) > 6)}; got {got}.")
    return [found.columns.index(name) for name in wanted]


def write(path: Path, x: np.ndarray, found: Splits, labels: dict[float, str]) -> None:
    """The table with its names; words as words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".npy":
        np.save(path, x)
    elif path.suffix.lower() == ".npz":
        names: dict[str, Any] = {} if found.columns is None else {"columns": np.array(found.columns)}
        np.savez_compressed(path, x=x, **names)
    else:
        words = {**labels, **(found.labels or {})}
        with path.open("w", newline="", encoding="utf-8") as stream:
            lines = csv.writer(stream, lineterminator="\n")
            if found.columns is not None:
                lines.writerow(found.columns)
            lines.writerows([words.get(value, f"{value:.12g}") for value in row] for row in x.tolist())
