"""``partita data``: the data sets that can be given by name."""

import typer

from partita.cli import output
from partita.cli.options import Json


def data(as_json: Json = False) -> None:
    """The data sets that can be given by name."""
    from partita.datasets import names

    entries = names()
    if as_json:
        output.print_json([entry._asdict() for entry in entries])
        return
    for where in dict.fromkeys(entry.where for entry in entries):
        here = [entry for entry in entries if entry.where == where]
        rows = [[f"  {entry.name}", entry.size, entry.note] for entry in here]
        output.print_table(["", "rows x columns", ""], rows, where, whole=2)
        typer.echo("")
    typer.echo("A path serves too: .npz .npy .csv .txt .parquet .arrow .feather .fasta")
