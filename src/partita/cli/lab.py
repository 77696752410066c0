"""``partita lab NAME``: small experiments that show what the theory says; ``partita lab`` lists
them.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from partita.cli import show
from partita.errors import invalid
from partita.experiment.settings import parse_value


@dataclass(frozen=True)
class Lab:
    """An experiment: what it shows, the settings it takes with their defaults, and the function
    that runs it.

    The function is called as ``run(settings, out, seed=..., as_json=...)`` and is imported only
    then.
    """

    summary: str
    settings: dict[str, Any]
    path: str


LABS: dict[str, Lab] = {
    "memory": Lab(
        "how far back each kind of sequence layer remembers: |dy(t)/du(t-n)| by distance, and "
        "attention's logits",
        {"length": 256, "width": 16, "draws": 4},
        "partita.cli.lab_memory:run",
    ),
    "partition": Lab(
        "log Z of a machine small enough to enumerate: every evaluator against the truth, with "
        "interval, verdict and seconds",
        {"visible": 20, "hidden": 10, "scale": 1.0, "temperatures": 500, "chains": 100},
        "partita.cli.lab_partition:run",
    ),
    "no-free-lunch": Lab(
        "every target on a small grid: all learners make equally many mistakes on unseen points, "
        "until a prior takes sides",
        {"width": 3, "height": 3, "train": 4},
        "partita.cli.lab_no_free_lunch:run",
    ),
    "gradients": Lab(
        "every estimator of the gradient of E_q[f(z)] against the exact one: bias, variance, "
        "variance for the work",
        {"problem": "bits", "bits": 4, "draws": 200_000},
        "partita.cli.lab_gradients:run",
    ),
}


def listing(as_json: bool) -> None:
    """Every lab: what it shows, and its settings with their defaults."""
    if as_json:
        show.print_json(
            {name: {"summary": lab.summary, "settings": lab.settings} for name, lab in LABS.items()}
        )
        return
    rows = [
        row
        for name, lab in LABS.items()
        for row in ([f"  {name}", lab.summary], ["", _words(lab.settings)])
    ]
    show.table(["", ""], rows, "Small experiments, and what --set reaches in each:")
    typer.echo("Example: partita lab memory --set length=512 --out memory.html")


def _words(settings: dict[str, Any]) -> str:
    """Settings with their defaults, as ``--set`` takes them."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def run(name: str, pairs: list[str], out: Path | None, *, seed: int, as_json: bool) -> None:
    """One lab, with its settings."""
    if name not in LABS:
        close = get_close_matches(name.lower(), LABS, 1, 0.5)
        hint = f"Did you mean {close[0]!r}?" if close else "`partita lab` lists them."
        raise invalid("lab", "NAME", f"be one of {', '.join(LABS)}", repr(name), hint)
    lab = LABS[name]
    module, function = lab.path.split(":")
    getattr(import_module(module), function)(
        _settings(name, lab, pairs), out, seed=seed, as_json=as_json
    )


def _settings(name: str, lab: Lab, pairs: list[str]) -> dict[str, Any]:
    settings = dict(lab.settings)
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or key not in settings:
            raise invalid(
                f"lab {name}",
                "--set",
                f"be key=value with a key of {', '.join(settings)}",
                repr(pair),
            )
        settings[key] = parse_value(text)
    return settings
