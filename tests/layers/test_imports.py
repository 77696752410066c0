"""Imports point one way: errors <- runtime <- core <- models and their kin <- objectives | samplers
| evaluators <- ... <- cli.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "partita"
FILES = sorted(ROOT.rglob("*.py"))
LAYERS = (
    ("errors",),
    ("runtime",),
    ("core",),
    (
        "tables",
        "datasets",
        "nets",
        "models",
        "bayes",
        "gradients",
        "divergences",
        "diagnostics",
        "integration",
    ),
    ("objectives", "samplers", "evaluators", "optim", "probes"),
    ("training",),
    ("families",),
    ("experiment",),
    ("estimators",),
    ("report",),
    ("evidence",),
    ("cli",),
    ("",),  # the package itself: partita/__init__.py offers what is below
)
RANK = {package: rank for rank, packages in enumerate(LAYERS) for package in packages}
APART = LAYERS[4]  # these receive one another as arguments and never import one another
HEAVY = ("sklearn", "lightning_fabric", "pandas", "plotly", "typer", "matplotlib")


def package_of(file: Path) -> str:
    """The layer's name: the first folder under partita, the errors, or "" for the package's other
    files.
    """
    first = Path(file.relative_to(ROOT).parts[0]).stem
    return first if first in RANK or (ROOT / first).is_dir() else ""


def imported_modules(file: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every module of ours that a file imports, at the top or inside a
    function.
    """
    here = ["partita", *file.relative_to(ROOT).parent.parts]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def imported_packages(file: Path) -> Iterator[tuple[int, str]]:
    """Line and layer of every import of ours; a name that is no layer counts as the package
    itself.
    """
    for line, name in imported_modules(file):
        parts = name.split(".")
        if parts[0] == "partita":
            yield line, parts[1] if len(parts) > 1 and parts[1] in RANK else ""


def may_import(package: str, other: str) -> bool:
    if package == other:
        return True
    if package in APART and other in APART:
        return False
    return RANK[other] <= RANK[package]


def test_the_picture_of_the_rooms_shows_these_layers() -> None:
    picture = (ROOT.parents[1] / "docs" / "images" / "rooms.svg").read_text()
    drawn = re.findall(r'text-anchor="middle">(\w+)', picture)
    rooms = [room for layer in reversed(LAYERS[1:-1]) for room in layer]
    assert drawn[: len(rooms)] == rooms


def test_the_sources_are_found() -> None:
    assert ROOT / "core" / "protocols.py" in FILES


def test_every_folder_has_a_layer() -> None:
    assert {package_of(file) for file in FILES} <= set(RANK)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_point_down(file: Path) -> None:
    package = package_of(file)
    wrong = [
        f"line {line}: {other or 'partita'}"
        for line, other in imported_packages(file)
        if not may_import(package, other)
    ]
    assert not wrong, (
        f"{file.relative_to(ROOT)} must not import from above or beside: {'; '.join(wrong)}"
    )


def test_packages_do_not_import_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for file in FILES:
        graph.setdefault(package_of(file), set()).update(
            other for _, other in imported_packages(file) if other != package_of(file)
        )
    # raises CycleError, which names the circle
    assert set(TopologicalSorter(graph).static_order()) >= set(graph)


@pytest.mark.parametrize(
    ("package", "other", "allowed"),
    [
        ("core", "tables", False),
        ("runtime", "core", False),
        ("core", "runtime", True),
        ("models", "nets", True),
        ("training", "families", False),
        ("estimators", "experiment", True),
        ("samplers", "objectives", False),
        ("training", "samplers", True),
        ("cli", "", False),
    ],
)
def test_the_rule_itself(package: str, other: str, allowed: bool) -> None:
    assert may_import(package, other) is allowed


def test_relative_imports_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "core" / "bad.py"
    file.parent.mkdir()
    file.write_text(
        "def f():\n    from ..models import rbm\n    import partita\n    from partita import "
        "training\n"
    )
    assert list(imported_packages(file)) == [(2, "models"), (3, ""), (4, "training")]


def test_import_partita_is_light() -> None:
    code = f"import sys, partita; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT.parent)},
    )
    assert done.stdout.split() == []
