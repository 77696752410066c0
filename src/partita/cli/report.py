"""``partita report``: one HTML file about a run or a comparison."""

from pathlib import Path
from typing import Annotated

import typer

from partita.cli import output
from partita.cli.options import AllowDiverged, Json


def report(
    folder: Annotated[
        Path,
        typer.Argument(help="A run or a comparison, as fit or compare made it.", metavar="FOLDER"),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where the page goes, .html; FOLDER/report.html if not given."),
    ] = None,
    allow_diverged: AllowDiverged = False,
    as_json: Json = False,
) -> None:
    """One HTML file about a run or a comparison, which opens from disk with no network."""
    from partita.report.folder import write_report

    path = write_report(folder, out, allow_diverged=allow_diverged)
    if as_json:
        output.print_json({"folder": str(folder), "report": str(path)})
    else:
        typer.echo(f"Report written to {path}")
