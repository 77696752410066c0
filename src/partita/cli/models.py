"""``partita models``: the families of models, and the grid of what runs with what."""

from typing import TYPE_CHECKING, Annotated

import typer

from partita.cli import output
from partita.cli.options import Json

if TYPE_CHECKING:
    from partita.families import Family


def models(
    name: Annotated[
        str | None, typer.Argument(help="One family; all if not given.", metavar="NAME")
    ] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="What runs with what, and why not where it does not.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The families of models and their settings."""
    from partita.families import FAMILIES, family_named

    if grid and name is not None:
        raise typer.BadParameter("shows all models; leave out NAME.", param_hint="--grid")
    families = list(FAMILIES.values()) if name is None else [family_named(name, "models", "NAME")]
    if grid:
        _show_grid(as_json)
    elif as_json:
        output.print_json({family.name: _family_json(family) for family in families})
    else:
        _show_families(families)


def _show_grid(as_json: bool) -> None:
    from partita.cli.grid import print_grid
    from partita.core import capability
    from partita.core.registry import example_models

    if as_json:
        keys = ("model", "role", "part", "reason")
        cells = capability.grid(example_models())
        output.print_json([dict(zip(keys, cell, strict=True)) for cell in cells])
    else:
        print_grid()


def _show_families(families: "list[Family]") -> None:
    from dataclasses import fields

    from partita.training import Settings

    for family in families:
        rows = [
            [f"  {name}", str(setting.default).replace("None", "none"), setting.meaning]
            for name, setting in family.settings.items()
        ]
        output.print_table(["", "default", ""], rows, f"{family.name}: {family.summary}")
        typer.echo("")
    every = ", ".join(field.name for field in fields(Settings))
    typer.echo(f"Every fit also takes, through --set: {every}, binarize.")
    example = "rbm digits --set n_hidden=100" if len(families) > 1 else f"{families[0].name} DATA"
    typer.echo(f"Example: partita fit {example} --set l2=1e-4")


def _family_json(family: "Family") -> dict[str, object]:
    settings = {
        name: {"default": setting.default, "meaning": setting.meaning}
        for name, setting in family.settings.items()
    }
    return {"summary": family.summary, "settings": settings}
