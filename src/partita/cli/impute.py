"""``partita impute``: a file with its missing values filled in."""

from pathlib import Path
from typing import Annotated

import typer

from partita.cli import output
from partita.cli.options import AllowDiverged, Json, Run, Seed, file_argument, table_output


def impute(
    run: Run,
    data: Annotated[Path, file_argument("A file with missing values: empty cells or NaN.")],
    out: Annotated[Path | None, table_output("imputed")] = None,
    how: Annotated[str, typer.Option(help="auto, mean, mode or draw.")] = "auto",
    allow_diverged: AllowDiverged = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fill the missing values of a file from what its rows do hold; columns keep their names, types
    and order.
    """
    from partita.experiment.imputation import imputation_method, impute_file

    done = impute_file(run, data, out, how, seed=seed, allow_diverged=allow_diverged)
    if as_json:
        output.print_json(
            {"run": str(run), "out": str(done.path), "rows": done.rows, "filled": done.filled}
        )
        return
    typer.echo(
        f"{done.filled} of {done.values} values filled {imputation_method(done.model)} by "
        f"{done.model.title()}, written to {done.path}"
    )
