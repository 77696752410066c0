"""``partita sample``: draws from a model, a preview where rows are images, and whether the chains
mixed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import typer

from partita.cli import pictures, show
from partita.core import capability, rng
from partita.core.checks import check_count
from partita.core.protocols import DirectedModel, Model
from partita.diagnostics import ChainReport
from partita.errors import invalid
from partita.experiment.encoded import draw_rows
from partita.experiment.saved import SavedRun, free_path, open_run, schema_of
from partita.samplers import run as run_chains
from partita.tables.encoding import CUT
from partita.tables.schema import Column
from partita.tables.write import check_ending, plain_columns, write_columns

DIAGNOSED = 64  # chains that are followed further to see whether they mixed
FOLLOWED = 100  # steps


def report(
    folder: Path,
    n: int,
    out: Path | None,
    burn_in: int | None,
    png: Path | None,
    *,
    seed: int,
    as_json: bool,
) -> None:
    """Draw, write, preview, diagnose."""
    check_count("sample", "-n", n)
    opened = open_run(folder)
    named = (
        bool(opened.encoding.labels or opened.data.get("columns"))
        or opened.encoding.kind == "mixed"
    )
    path = (
        free_path(folder / "samples", ".csv" if named else ".npz")
        if out is None
        else check_ending(out, "sample")
    )
    generator = rng.keyed(seed, 3)
    model = opened.run.model
    if burn_in is not None and isinstance(model, DirectedModel):
        raise invalid(
            "sample",
            "--burn-in",
            "go with a model that chains draw from",
            model.title(),
            "Leave it out: its draws are exact.",
        )
    z = draw_rows(model, n, burn_in, generator)
    x = opened.encoding.decode(z.double().numpy())
    chains = None if _exact(model, burn_in) else _diagnose(model, z, generator)
    small = x.astype(np.int8) if np.isin(x, (-1, 0, 1)).all() else x
    columns = _columns(opened, x)
    write_columns(
        check_ending(path, "sample", columns),
        columns,
        small,
        header=opened.data.get("columns") is not None,
    )
    if png is not None:
        pictures.write_png(png, pictures.sheet(x, _shape(opened, "sample --png")))
    if as_json:
        show.print_json(
            {
                "run": str(folder),
                "n": n,
                "out": str(path),
                "exact": chains is None,
                **(chains._asdict() if chains else {}),
            }
        )
        return
    if opened.data.get("shape"):
        typer.echo(pictures.preview(x, tuple(opened.data["shape"])))
    typer.echo(f"{n} draws written to {path}" + ("" if png is None else f" and {png}"))
    typer.echo("Exact independent draws." if chains is None else str(chains))


def _exact(model: Model, burn_in: int | None) -> bool:
    return isinstance(model, DirectedModel) or (
        burn_in is None and capability.smallest_bits(model) <= capability.CHEAP_BITS
    )


def _diagnose(model: Any, z: Any, generator: Any) -> ChainReport:
    """Follow some of the chains further: R-hat and ESS of the free energy."""
    return run_chains(
        model,
        capability.default("sampler", model),
        z[:DIAGNOSED],
        draws=FOLLOWED,
        generator=generator,
    ).report


def _shape(opened: SavedRun, owner: str) -> tuple[int, ...]:
    if not opened.data.get("shape"):
        raise invalid(
            owner,
            "RUN",
            "have rows that are images",
            f"{opened.data.get('name', 'data')!r}, whose rows have no shape",
        )
    return tuple(opened.data["shape"])


def _columns(opened: SavedRun, x: np.ndarray) -> list[Column]:
    """What draws are written as: as the run's table had them, where it is known."""
    schema, labels = schema_of(opened.data), opened.encoding.labels
    if schema is not None and opened.encoding.kind not in CUT:
        return list(schema.used)
    columns = plain_columns(opened.data.get("columns"), x)
    return (
        [Column(column.name, "category", "string", labels=labels) for column in columns]
        if labels
        else columns
    )
