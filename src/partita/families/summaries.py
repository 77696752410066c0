"""What each family is, in a line, read off the sources: to import the modules that register them
takes seconds.
"""

import ast
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

from partita.runtime import PLUGINS

REGISTER = "FAMILIES.register"


def summaries() -> dict[str, str]:
    """The summary of every family by name, in alphabetical order.

    They are read off the sources, where each is written as ``FAMILIES.register(Family(name,
    summary, ...))``; where plugins are installed, all families are imported.

    >>> summaries()["rbm"].split(":")[0]
    'restricted Boltzmann machine'
    """
    if entry_points(group=PLUGINS):
        from partita.families.base import FAMILIES

        return {family.name: family.summary for family in FAMILIES.values()}
    found: dict[str, str] = {}
    for path in Path(__file__).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path != Path(__file__) and REGISTER in text:
            found |= _registered(ast.parse(text))
    return dict(sorted(found.items()))


def _registered(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name and summary of each family that a module registers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == REGISTER:
            family = node.args[0]
            assert isinstance(family, ast.Call), ast.unparse(family)
            name, summary = map(ast.literal_eval, family.args[:2])
            yield name, summary
