"""``partita models``: the families of models, and the grid of what runs with what."""

from typing import TYPE_CHECKING, Annotated

import typer

from partita.cli import output
from partita.cli.options import Json

if TYPE_CHECKING:
    from partita.families import Family


def models(
    name: Annotated[
        str | None, typer.Argument(help="A family, to show its settings.", metavar="NAME")
    ] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="What runs with what, and why not where it does not.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The families of models, one line each; the settings of one, by its name."""
    if grid and name is not None:
        raise typer.BadParameter("shows all models; leave out NAME.", param_hint="--grid")
    if grid:
        _show_grid(as_json)
        return
    if name is None and not as_json:
        _list_families()
        return
    from partita.families import FAMILIES, family_named

    families = list(FAMILIES.values()) if name is None else [family_named(name, "models", "NAME")]
    if as_json:
        output.print_json({family.name: _family_json(family) for family in families})
    else:
        _show_family(families[0])


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


def _list_families() -> None:
    """One line each; no family is imported for it."""
    from partita.families.summaries import summaries

    for name, summary in summaries().items():
        typer.echo(f"{name}: {summary}")
    typer.echo("Settings of one: partita models rbm. What runs with what: partita models --grid.")


def _show_family(family: "Family") -> None:
    from partita.training.settings import SETTING_NAMES

    rows = [
        [f"  {name}", str(setting.default).replace("None", "none"), setting.meaning]
        for name, setting in family.settings.items()
    ]
    output.print_table(["", "default", ""], rows, f"{family.name}: {family.summary}")
    typer.echo(f"\nEvery fit also takes, through --set: {', '.join(SETTING_NAMES)}, binarize.")
    typer.echo(f"Example: partita fit {family.name} DATA --set l2=1e-4")


def _family_json(family: "Family") -> dict[str, object]:
    settings = {
        name: {"default": setting.default, "meaning": setting.meaning}
        for name, setting in family.settings.items()
    }
    return {"summary": family.summary, "settings": settings}
