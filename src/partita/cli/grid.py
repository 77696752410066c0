"""The grid of every model with every part, for the terminal and as a page of the site."""

import shutil
from dataclasses import dataclass
from string import ascii_lowercase

import typer

from partita.cli import output
from partita.core import capability
from partita.core.registry import example_models

ROLES = {
    "objective": "Objectives",
    "sampler": "Samplers",
    "partition": "Evaluators of log Z",
    "likelihood": "Evaluators of log p(x)",
}
RUNS = "•"
HEAD = """---
hide:
  - toc
---

# The grid

Which part runs on which model. A dot runs; a letter refuses, with the reason below and the nearest
part that works in the error message. `partita models --grid` prints the same, and every cell is a
test (`tests/grid`).
"""


@dataclass(frozen=True)
class Marks:
    """Marks by role, part and model, and what the letters among them mean."""

    models: list[str]
    marks: dict[str, dict[str, list[str]]]  # by role, then part: one mark for each model
    notes: dict[str, str]  # letter to reason


def capability_grid() -> Marks:
    """The grid of the capability table over one model of each sort."""
    cells = capability.grid(example_models())
    models = list(dict.fromkeys(model for model, *_ in cells))
    reasons = list(dict.fromkeys(reason for *_, reason in cells if reason))
    letters = {reason: _letter(number) for number, reason in enumerate(reasons)}
    marks: dict[str, dict[str, list[str]]] = {}
    for _, role, part, reason in cells:
        mark = RUNS if reason is None else letters[reason]
        marks.setdefault(role, {}).setdefault(part, []).append(mark)
    return Marks(models, marks, {letter: reason for reason, letter in letters.items()})


def print_grid() -> None:
    """Models by number, one block for each role, letters for reasons."""
    grid = capability_grid()
    numbered = [[str(number), model] for number, model in enumerate(grid.models, 1)]
    output.print_table(["", ""], numbered, "Models")
    for role, parts in grid.marks.items():
        typer.echo(f"\n{ROLES.get(role, role)}")
        for text in grid_lines(parts, len(grid.models), shutil.get_terminal_size().columns):
            typer.echo(text)
    typer.echo(f"\n{RUNS} runs")
    for letter, reason in grid.notes.items():
        typer.echo(f"{letter} {reason}")


def grid_lines(parts: dict[str, list[str]], models: int, width: int) -> list[str]:
    """Lines of parts by numbers of models, as many models side by side as ``width`` holds, the
    others below.
    """
    name = 2 + max(map(len, parts))
    cell = 1 + max(len(str(models)), *(len(mark) for row in parts.values() for mark in row))
    fit, lines = max(1, (width - name) // cell), []
    for start in range(0, models, fit):
        shown = range(start, min(start + fit, models))
        lines.append(" " * name + "".join(f"{i + 1:>{cell}}" for i in shown))
        lines += [
            f"  {part:<{name - 2}}" + "".join(f"{row[i]:>{cell}}" for i in shown)
            for part, row in parts.items()
        ]
    return lines


def grid_page() -> str:
    """The grid as a page: models down, parts across."""
    grid, blocks = capability_grid(), [HEAD]
    for role, parts in grid.marks.items():
        lines = [
            f"| | {' | '.join(f'`{part}`' for part in parts)} |",
            "|---" * (len(parts) + 1) + "|",
        ]
        lines += [
            f"| {model} | {' | '.join(row[i] for row in parts.values())} |"
            for i, model in enumerate(grid.models)
        ]
        blocks.append(f"## {ROLES.get(role, role)}\n\n" + "\n".join(lines) + "\n")
    notes = "\n".join(f"| {letter} | {reason} |" for letter, reason in grid.notes.items())
    return "\n".join([*blocks, f"## Reasons\n\n| | |\n|---|---|\n{notes}\n"])


def _letter(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    before = _letter(number // 26 - 1) if number >= 26 else ""
    return before + ascii_lowercase[number % 26]
