"""``partita cluster``: the component of a mixture that each row of a file belongs to."""

from pathlib import Path
from typing import Annotated

import typer

from partita.cli import output
from partita.cli.options import AllowDiverged, Json, Run, file_argument, table_output


def cluster(
    run: Run,
    data: Annotated[Path, file_argument("A file of rows to assign.")],
    out: Annotated[Path | None, table_output("clusters")] = None,
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Also a column with the probability of each cluster."),
    ] = False,
    allow_diverged: AllowDiverged = False,
    as_json: Json = False,
) -> None:
    """To which component of a mixture each row belongs, with its probability."""
    from partita.experiment.clustering import cluster_file

    found = cluster_file(run, data, out, probabilities=probabilities, allow_diverged=allow_diverged)
    sizes = found.sizes.tolist()
    if as_json:
        output.print_json(
            {
                "run": str(run),
                "out": str(found.path),
                "rows": sum(sizes),
                "clusters": len(sizes),
                "sizes": sizes,
            }
        )
        return
    lines = [
        [str(k), str(size), f"{mean:.3f}" if size else ""]
        for k, (size, mean) in enumerate(zip(sizes, found.mean_probability, strict=True))
    ]
    output.print_table(["cluster", "rows", "mean probability"], lines)
    typer.echo(f"{sum(sizes)} rows assigned by {found.model}, written to {found.path}")
