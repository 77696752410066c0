"""The documentation is true: pages run and print what they show, tables name what exists, commands
parse, public names are described.
"""

import ast
import os
import re
import runpy
import shlex
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "docs" / "pages.py"))
REAL = "PARTITA_DATA" in os.environ


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES["running"](), ids=lambda page: page.stem)
@pytest.mark.filterwarnings("default" if REAL else "error")  # real data deserve some warnings
def test_a_page_runs_and_shows_what_it_prints(page: Path) -> None:
    for block, printed in PAGES["carry_out"](page, REAL):
        assert PAGES["agree"](block.shown, printed, block.manner), (
            f"{block.code}shows\n{block.shown}and prints\n{printed}"
        )


def test_the_python_of_the_readme_is_that_of_a_page_that_runs() -> None:
    texts = ((ROOT / name).read_text() for name in ("README.md", "docs/how_to/start.md"))
    readme, start = (
        [(block.code, block.shown) for block in PAGES["blocks"](text) if block.language == "python"]
        for text in texts
    )
    assert len(readme) == 2 and readme == start


@pytest.mark.parametrize(
    ("shown", "printed", "manner", "same"),
    [
        ("4.21 nats", "4.22 nats", "exact", True),
        ("4.21 nats", "4.23 nats", "exact", False),
        ("4.21 nats", "4.21 bits", "near", False),
        ("100 nats", "109 nats", "near", True),
        ("100 nats", "112 nats", "near", False),
        ("2e-05", "3e-05", "exact", True),
        ("one 1", "one 1 and 2", "near", False),
        ("seconds 3", "anything", "varies", True),
    ],
)
def test_what_counts_as_the_same(shown: str, printed: str, manner: str, same: bool) -> None:
    assert PAGES["agree"](shown, printed, manner) is same


def rows_of_the_notes() -> list[list[str]]:
    """Cells of every row of the tables of theory/notes.md."""
    lines = (ROOT / "docs" / "theory" / "notes.md").read_text().splitlines()
    return [
        line.strip("|").split("|")
        for line in lines
        if line.startswith("| ") and not line.startswith("| section")
    ]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def find(name: str) -> Any:
    """What a dotted name below ``partita`` stands for."""
    parts = ["partita", *name.split(".")]
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_table_of_the_notes_names_code_and_tests_that_exist() -> None:
    rows = rows_of_the_notes()
    assert len(rows) > 35
    for section, _, _, code, test in rows:
        assert named(code) and named(test), section
        assert all(find(name) is not None for name in named(code))
        missing = [
            name
            for name in named(test)
            if name.split("::")[1] not in functions_of(name.split("::")[0])
        ]
        assert not missing, section


def test_equations_named_in_the_table_are_on_their_pages() -> None:
    theory = ROOT / "docs" / "theory"
    links = re.findall(
        r"\[([\d., ]+(?:to [\d.]+|and on)?)\]\((\w+\.md)\)", (theory / "notes.md").read_text()
    )
    assert len(links) > 35
    wanted = [(number, page) for text, page in links for number in re.findall(r"\d+\.\d+", text)]
    assert not [
        (number, page)
        for number, page in wanted
        if f"\\tag{{{number}}}" not in (theory / page).read_text()
    ]


def test_every_public_name_is_described_on_a_page_of_the_api() -> None:
    api = runpy.run_path(str(ROOT / "docs" / "api.py"))
    listed = {module for modules in api["PACKAGES"].values() for module in modules}
    # whose modules are
    assert {f"partita.{name}" for name in import_module("partita")._SUBPACKAGES} - listed <= {
        "partita.probes"
    }
    for module in map(import_module, sorted(listed)):
        assert api["public_names"](module), module
        assert not [
            name for name in api["public_names"](module) if not getattr(module, name).__doc__
        ], module


def commands() -> list[str]:
    """Every line that begins with ``partita`` in a block of the README and the pages."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    bodies = [
        fence["body"]
        for page in pages
        for fence in PAGES["FENCE"].finditer(page.read_text())
        if fence["head"].startswith("bash")
    ]
    return sorted(
        {
            line.strip()
            for body in bodies
            for line in PAGES["lines"](body)
            if line.startswith("partita ")
        }
    )


def examples(group: Any) -> list[str]:
    """Every command that a ``--help`` shows."""
    told = [group.epilog, *(command.epilog for command in group.commands.values())]
    return [
        line for text in told for line in re.split(", (?:or|then) ", text.removeprefix("Example: "))
    ]


def test_every_command_of_the_pages_and_of_help_parses() -> None:
    from typer.main import get_command

    from partita.cli.app import app

    group: Any = get_command(app)
    assert len(commands()) > 40 and len(examples(group)) > len(group.commands)
    for line in commands() + examples(group):
        verb, *words = shlex.split(line, comments=True)[1:]
        assert verb in group.commands, line
        group.commands[verb].make_context(verb, words, resilient_parsing=False)
