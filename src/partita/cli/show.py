"""Words and tables: what a number means, in the terminal and as JSON."""

import json
import math
from typing import Any

import typer

from partita.core.quantity import Quantity
from partita.report.format import interval, latent_use, meaning, verdict

__all__ = [
    "as_json_text",
    "grid",
    "interval",
    "latent_use",
    "meaning",
    "print_json",
    "quantity_json",
    "table",
    "verdict",
    "warning",
]


def quantity_json(q: Quantity) -> dict[str, Any]:
    """A Quantity as JSON, diagnostics that are numbers or words included."""
    names = (
        "value",
        "low",
        "high",
        "level",
        "kind",
        "unit",
        "method",
        "n",
        "se_data",
        "verdict",
        "direction",
    )
    details = {
        name: value
        for name, value in q.details.items()
        if isinstance(value, bool | int | float | str)
    }
    result = {**{name: getattr(q, name) for name in names}, "details": details}
    if isinstance(q.details.get("log_z"), Quantity):
        result["log_z"] = quantity_json(q.details["log_z"])
    if "kl_per_dimension" in q.details:
        result["kl_per_dimension"] = q.details["kl_per_dimension"].tolist()
    return result


def print_json(value: Any) -> None:
    """One JSON object on stdout; what is not finite becomes null."""
    typer.echo(as_json_text(value))


def as_json_text(value: Any) -> str:
    """JSON in which what is not finite is null."""
    return json.dumps(_finite(value), indent=2, default=str)


def table(columns: list[str], rows: list[list[str]], title: str = "", whole: int = 1) -> None:
    """Print a small table; text is shown as it is, never read as markup, and the first ``whole``
    columns are never broken.
    """
    from rich.console import Console

    Console(highlight=False).print(grid(columns, rows, title, whole))


def grid(columns: list[str], rows: list[list[str]], title: str = "", whole: int = 1) -> Any:
    """The table that :func:`table` prints, for a display that changes it."""
    from rich.table import Table
    from rich.text import Text

    made = Table(
        title=title or None,
        title_justify="left",
        box=None,
        pad_edge=False,
        show_header=any(columns),
    )
    for i, column in enumerate(columns):
        made.add_column(column, no_wrap=i < whole)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def warning(text: str) -> None:
    """What looked wrong, on stderr."""
    typer.echo(f"Warning: {text}", err=True)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
