"""``partita impute``: a file with its missing values filled in, columns named and ordered as they came, observed cells untouched."""

from pathlib import Path
from typing import Any

import numpy as np
import typer

from partita.cli import show
from partita.cli.runs import open_run
from partita.cli.tabled import Tabled, read_tabled, suffixed
from partita.core import rng
from partita.data.labels import Labels
from partita.data.schema import Column
from partita.data.write import check_ending, plain_columns, write_columns, write_filled
from partita.estimators._impute import impute_encoded


def report(folder: Path, source: Path, out: Path | None, how: str, *, seed: int, as_json: bool) -> None:
    """Read, fill, write, say how many values were missing."""
    opened = open_run(folder)
    path = suffixed(source, "imputed") if out is None else check_ending(out, "impute")
    tabled = read_tabled(opened, source, "impute")
    filled = impute_encoded(opened.run.model, opened.encoding, tabled.x, how, "impute", generator=rng.keyed(seed, 4))
    _write(tabled, path, filled, opened.encoding.labels)
    count = int(np.isnan(tabled.x).sum())
    if as_json:
        show.print_json({"run": str(folder), "out": str(path), "rows": len(filled), "filled": count})
        return
    typer.echo(f"{count} of {filled.size} values filled {way(opened.run.model)} by {opened.run.model.title()}, written to {path}")


def way(model: Any) -> str:
    """How a model fills in, in words."""
    if "latent" in model.offers:
        return "by chains of its posterior"
    if "missing" in model.offers:
        return "exactly"
    return "on average over its posterior draws" if "posterior_draws" in model.offers else "by clamped sampling"


def _write(tabled: Tabled, path: Path, filled: np.ndarray, labels: Labels) -> None:
    if tabled.schema is not None and path.suffix.lower() == tabled.path.suffix.lower():
        write_filled(tabled.path, path, tabled.schema, filled)
        return
    x = np.empty_like(filled)
    x[:, tabled.order] = filled
    columns = plain_columns(tabled.names, x) if tabled.schema is None else list(tabled.schema.used)
    if labels and tabled.schema is None:
        columns = [Column(column.name, "category", "string", labels=labels) for column in columns]
    write_columns(path, columns, x, header=tabled.names is not None)
