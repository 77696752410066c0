"""Words and tables: what a number means, in the terminal and as JSON."""

import json
import math
from typing import Any

import typer

from partita.core.quantity import Quantity

KIND_IN_WORDS = {
    "exact": "Exact: computed without sampling; only rounding is left.",
    "estimate": "An estimate: the interval holds the true value with the probability shown, as far as the verdict allows.",
    "lower": "A lower bound in expectation: the true value is at least this, up to the interval.",
    "upper": "An upper bound in expectation: it flatters the model; the sandwich gives both sides.",
    "none": "This model has no likelihood; the number is a distance between these rows and its draws, zero on average where they agree.",
}
DIRECTION_IN_WORDS = {"low": " If it errs, it errs low.", "high": " If it errs, it errs high: it flatters the model.", "none": ""}
VERDICT_IN_WORDS = {
    "tight": "publish it with its interval",
    "loose": "publish it with its interval, or compute longer for a shorter one",
    "do not publish": "the computation did not settle; compute longer or try another evaluator",
}


def meaning(q: Quantity) -> str:
    """What kind of number this is, in plain words.

    >>> meaning(Quantity(-1.0))
    'Exact: computed without sampling; only rounding is left.'
    """
    direction = "" if q.kind in ("exact", "upper") else DIRECTION_IN_WORDS[q.direction]
    return KIND_IN_WORDS[q.kind] + direction


def verdict(q: Quantity) -> str:
    """The verdict with what to do about it."""
    return "exact" if q.kind == "exact" else f"{q.verdict}: {VERDICT_IN_WORDS[q.verdict]}"


def interval(q: Quantity) -> str:
    """The interval with its level; nothing for an exact number."""
    return "" if q.kind == "exact" else f"[{q.low:.3f}, {q.high:.3f}] ({100 * q.level:g} %)"


def quantity_json(q: Quantity) -> dict[str, Any]:
    """A Quantity as JSON, diagnostics that are numbers or words included."""
    names = ("value", "low", "high", "level", "kind", "unit", "method", "n", "se_data", "verdict", "direction")
    details = {name: value for name, value in q.details.items() if isinstance(value, bool | int | float | str)}
    result = {**{name: getattr(q, name) for name in names}, "details": details}
    if isinstance(q.details.get("log_z"), Quantity):
        result["log_z"] = quantity_json(q.details["log_z"])
    return result


def print_json(value: Any) -> None:
    """One JSON object on stdout; what is not finite becomes null."""
    typer.echo(as_json_text(value))


def as_json_text(value: Any) -> str:
    """JSON in which what is not finite is null."""
    return json.dumps(_finite(value), indent=2, default=str)


def table(columns: list[str], rows: list[list[str]], title: str = "", whole: int = 1) -> None:
    """A small table; text is shown as it is, never read as markup, and the first ``whole`` columns are never broken."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=title or None, title_justify="left", box=None, pad_edge=False, show_header=any(columns))
    for i, column in enumerate(columns):
        grid.add_column(column, no_wrap=i < whole)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(grid)


def caution(text: str) -> None:
    """What looked wrong, on stderr."""
    typer.echo(f"Caution: {text}", err=True)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
