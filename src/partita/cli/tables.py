"""Everyday verbs on tables: schema, impute, anomalies, cluster; each imports what does its work
only when it is called.
"""

from pathlib import Path
from typing import Annotated

import typer

from partita.cli.options import Json, Kinds, Run, Seed

app = typer.Typer()


@app.command(epilog="Example: partita schema people.csv --column age=real --column id=ignore")
def schema(
    data: Annotated[
        str, typer.Argument(help="A .csv, .parquet, .arrow or .feather file.", metavar="DATA")
    ],
    column: Kinds = None,
    as_json: Json = False,
) -> None:
    """What each column of a table is taken for, and how to say otherwise."""
    from partita.cli import schema as command
    from partita.experiment.settings import parse_columns

    command.report(data, parse_columns(column or [], "schema"), as_json=as_json)


@app.command(
    epilog="Example: partita impute runs/mixture-people-1 people-with-gaps.csv --out filled.csv"
)
def impute(
    run: Run,
    data: Annotated[
        Path, typer.Argument(help="A file with missing values: empty cells or NaN.", metavar="DATA")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help=".csv .parquet .arrow .npy .npz; DATA-imputed beside the file if not given."
        ),
    ] = None,
    how: Annotated[str, typer.Option(help="auto, mean, mode or draw.")] = "auto",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fill the missing values of a file from what its rows do hold; columns keep their names, types
    and order.
    """
    from partita.cli import impute as command

    command.report(run, data, out, how, seed=seed, as_json=as_json)


@app.command(epilog="Example: partita anomalies runs/mixture-people-1 new-people.csv --alpha 0.01")
def anomalies(
    run: Run,
    data: Annotated[Path, typer.Argument(help="A file of rows to look at.", metavar="DATA")],
    normal: Annotated[
        Path | None,
        typer.Option(
            help="A file of normal rows to rank among; by default the run's own test rows."
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="The tail probability up to which a row is called an anomaly.")
    ] = 0.01,
    out: Annotated[
        Path | None,
        typer.Option(
            help=".csv .parquet .arrow .npy .npz; DATA-anomalies beside the file if not given."
        ),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """How strange each row is, with the probability that a normal row is as strange."""
    from partita.cli import anomalies as command

    command.report(run, data, normal, alpha, out, seed=seed, as_json=as_json)


@app.command(epilog="Example: partita cluster runs/mixture-people-1 people.csv --probabilities")
def cluster(
    run: Run,
    data: Annotated[Path, typer.Argument(help="A file of rows to assign.", metavar="DATA")],
    out: Annotated[
        Path | None,
        typer.Option(
            help=".csv .parquet .arrow .npy .npz; DATA-clusters beside the file if not given."
        ),
    ] = None,
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Also a column with the probability of each cluster."),
    ] = False,
    as_json: Json = False,
) -> None:
    """To which component of a mixture each row belongs, with its probability."""
    from partita.cli import cluster as command

    command.report(run, data, out, probabilities, as_json=as_json)
