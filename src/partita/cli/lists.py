"""``partita models`` and ``partita data``: what there is."""

from dataclasses import fields
from typing import Any

import typer

from partita.cli import show
from partita.cli.grid import print_grid
from partita.core import capability
from partita.datasets import names
from partita.families import FAMILIES, Family, representatives
from partita.training import Settings


def models(as_json: bool) -> None:
    """Families, their settings with defaults, and the settings of every fit."""
    if as_json:
        show.print_json({family.name: _family_json(family) for family in FAMILIES.values()})
        return
    for family in FAMILIES.values():
        rows = [
            [f"  {name}", _word(setting.default), setting.meaning]
            for name, setting in family.settings.items()
        ]
        show.table(["", "default", ""], rows, f"{family.name}: {family.summary}")
        typer.echo("")
    typer.echo(
        "Every fit also takes, through --set: "
        f"{', '.join(field.name for field in fields(Settings))}, binarize."
    )
    typer.echo("Example: partita fit rbm digits --set n_hidden=100 --set l2=1e-4")


def grid(as_json: bool) -> None:
    """Every model with every part: runs, or why not."""
    if not as_json:
        print_grid()
        return
    cells = capability.grid(representatives())
    show.print_json(
        [
            {"model": model, "role": role, "part": part, "reason": reason}
            for model, role, part, reason in cells
        ]
    )


def data(as_json: bool) -> None:
    """Data sets by name."""
    entries = names()
    if as_json:
        show.print_json([entry._asdict() for entry in entries])
        return
    for where in dict.fromkeys(entry.where for entry in entries):
        rows = [
            [f"  {entry.name}", entry.size, entry.note] for entry in entries if entry.where == where
        ]
        show.table(["", "rows x columns", ""], rows, where, whole=2)
        typer.echo("")
    typer.echo("A path serves too: .npz .npy .csv .txt .parquet .arrow .feather .fasta")


def _family_json(family: Family) -> dict[str, Any]:
    settings = {
        name: {"default": setting.default, "meaning": setting.meaning}
        for name, setting in family.settings.items()
    }
    return {"summary": family.summary, "settings": settings}


def _word(value: object) -> str:
    return "none" if value is None else str(value)
