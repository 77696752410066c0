"""``partita lab NAME``: small experiments that show what the theory says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from partita.cli import output
from partita.cli.options import Json, Seed, Settings

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LabSettings = Mapping[str, Any]  # by name; each lab checks its own


class Finding(NamedTuple):
    """What a lab found.

    Arguments:
        figure: Drawn by plotly.
        title, columns, rows: The table that is printed.
        numbers: The same as JSON.
        note: What is printed below the table.
    """

    figure: "Figure"
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: dict[str, object]
    note: str = ""


@dataclass(frozen=True)
class Lab:
    """An experiment: what it shows, its settings with their defaults, and its function.

    The function is called as ``experiment(settings, seed)``; its module is imported only then.
    """

    summary: str
    settings: LabSettings
    module: str
    function: str

    def experiment(self) -> Callable[[LabSettings, int], Finding]:
        """The function."""
        return getattr(import_module(f"partita.cli.{self.module}"), self.function)


LABS = {
    "memory": Lab(
        "how far back each kind of sequence layer remembers: |dy(t)/du(t-n)| by distance, and "
        "attention's logits",
        {"length": 256, "width": 16, "draws": 4},
        "lab_memory",
        "compare_layers",
    ),
    "partition": Lab(
        "log Z of a machine small enough to enumerate: every evaluator against the truth, with "
        "interval, verdict and seconds",
        {"visible": 20, "hidden": 10, "scale": 1.0, "temperatures": 500, "chains": 100},
        "lab_partition",
        "compare_evaluators",
    ),
    "no-free-lunch": Lab(
        "every target on a small grid: all learners make equally many mistakes on unseen points, "
        "until a prior takes sides",
        {"width": 3, "height": 3, "train": 4},
        "lab_no_free_lunch",
        "compare_learners",
    ),
    "gradients": Lab(
        "every estimator of the gradient of E_q[f(z)] against the exact one: bias, variance, "
        "variance for the work",
        {"problem": "bits", "bits": 4, "draws": 200_000},
        "lab_gradients",
        "compare_estimators",
    ),
}


def lab(
    name: Annotated[
        str | None, typer.Argument(help="Which; all are listed if not given.", metavar="NAME")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the figure goes, .html.")] = None,
    settings: Settings = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Small experiments that show what the theory says."""
    if name is None:
        _list_labs(as_json)
        return
    from partita.errors import invalid
    from partita.experiment.saved import free_path

    chosen = _lab_named(name)
    values = _parse_settings(name, chosen, settings or [])
    if out is not None and out.suffix.lower() != ".html":
        raise invalid(f"lab {name}", "--out", "end in .html", str(out))
    found = chosen.experiment()(values, seed)
    path = free_path(Path(name), ".html") if out is None else out
    path.parent.mkdir(parents=True, exist_ok=True)
    found.figure.write_html(path, include_plotlyjs=True)
    if as_json:
        output.print_json({"figure": str(path), **found.numbers})
        return
    output.print_table(found.columns, found.rows, found.title)
    if found.note:
        typer.echo(found.note)
    typer.echo(f"Figure in {path}")


def _list_labs(as_json: bool) -> None:
    """Every lab: what it shows, and its settings with their defaults."""
    if as_json:
        output.print_json(
            {name: {"summary": lab.summary, "settings": lab.settings} for name, lab in LABS.items()}
        )
        return
    rows = []
    for name, one in LABS.items():
        defaults = ", ".join(f"{key}={value}" for key, value in one.settings.items())
        rows += [[f"  {name}", one.summary], ["", defaults]]
    output.print_table(["", ""], rows, "Small experiments, and what --set reaches in each:")
    typer.echo("Example: partita lab memory --set length=512 --out memory.html")


def _lab_named(name: str) -> Lab:
    if name in LABS:
        return LABS[name]
    from partita.errors import did_you_mean, invalid

    hint = did_you_mean(name.lower(), LABS, "`partita lab` lists them.")
    raise invalid("lab", "NAME", f"be one of {', '.join(LABS)}", repr(name), hint)


def _parse_settings(name: str, lab: Lab, pairs: list[str]) -> LabSettings:
    from partita.errors import invalid
    from partita.experiment.requests import parse_value

    settings = dict(lab.settings)
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or key not in settings:
            allowed = f"be key=value with a key of {', '.join(settings)}"
            raise invalid(f"lab {name}", "--set", allowed, repr(pair))
        settings[key] = parse_value(text)
    return settings
