"""``partita anomalies``: how strange each row of a file is."""

from pathlib import Path
from typing import Annotated

import typer

from partita.cli import output
from partita.cli.options import AllowDiverged, Json, Run, Seed, file_argument, table_output

SHOWN = 5  # of the strangest rows


def anomalies(
    run: Run,
    data: Annotated[Path, file_argument("A file of rows to look at.")],
    normal: Annotated[
        Path | None,
        typer.Option(
            help="A file of normal rows to rank among; by default the run's own test rows."
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="The tail probability up to which a row is called an anomaly.")
    ] = 0.01,
    out: Annotated[Path | None, table_output("anomalies")] = None,
    allow_diverged: AllowDiverged = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """How strange each row is, with the probability that a normal row is as strange."""
    import numpy as np

    from partita.experiment.anomalies import find_anomalies

    found = find_anomalies(run, data, normal, alpha, out, seed=seed, allow_diverged=allow_diverged)
    score, tail, calibration = found.ranking
    most, fewest = int(calibration.max()), int(calibration.min())
    if as_json:
        output.print_json(
            {
                "run": str(run),
                "out": str(found.path),
                "rows": len(score),
                "calibration_rows": most,
                "alpha": alpha,
                "anomalies": np.flatnonzero(found.anomalous).tolist(),
                "least_tail_probability": found.least_tail,
            }
        )
        return
    # by score too, for many share the least tail probability
    strangest = np.lexsort((-score, tail))[:SHOWN]
    lines = [[str(row), f"{score[row]:.4g}", f"{tail[row]:.4g}"] for row in strangest]
    output.print_table(["row", "score", "tail probability"], lines)
    typer.echo(
        f"{found.anomalous.sum()} of {len(score)} rows have a tail probability of at most "
        f"{alpha:g}; among normal rows at most {alpha * len(score):.3g} would, on average."
    )
    among = f"{fewest} to {most}" if fewest < most else f"{most}"  # where normal rows have gaps
    typer.echo(
        f"Ranked among {among} normal rows, so no tail probability is below "
        f"{found.least_tail:.2g}. Rows are counted from 0. Written to {found.path}"
    )
