"""The pages of the API, made while the site is built from the docstrings of every public name, and
the grid, made from the capability table.
"""

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

PACKAGES = {  # title of the page: packages on it
    "partita": ("partita", "partita.training"),
    "models": ("partita.models", "partita.models.energy"),
    "objectives": ("partita.objectives",),
    "samplers": ("partita.samplers",),
    "evaluators": ("partita.evaluators",),
    "estimators": ("partita.estimators",),
    "data": ("partita.tables", "partita.datasets", "partita.datasets.toys"),
    "experiment": ("partita.experiment", "partita.families"),
    "bayes": ("partita.bayes", "partita.bayes.mean_field"),
    "gradients": ("partita.gradients", "partita.gradients.laboratory"),
    "divergences": ("partita.divergences", "partita.divergences.transport"),
    "diagnostics": ("partita.diagnostics",),
    "nets": ("partita.nets", "partita.nets.fftconv", "partita.nets.ssm", "partita.nets.spectral"),
    "optim": ("partita.optim", "partita.optim.natural_gradient"),
    "probes": ("partita.probes.memory", "partita.probes.no_free_lunch"),
    "core": ("partita.core",),
}
SECTION = re.compile(r"^(Arguments|Attributes|Returns|Raises):\n((?:[ \t]+.*\n|\n)*)", re.M)
ENTRY = re.compile(r"^    (\S[^:\n]*): (.*(?:\n     +.*|\n(?=\n     ))*)", re.M)
MATH = re.compile(r"^\.\. math::\s*((?:.*\n)(?:[ \t]+.*\n)*)", re.M)
EXAMPLE = re.compile(r"^>>> (?:.*\n?)+?(?=\n\n|\Z)", re.M)
ROLE = re.compile(r":(?:class|func|meth|data|mod):`~?(?:[\w.]*\.)?(\w+)`")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """One page for each title."""
    from mkdocs.structure.files import File

    from partita.cli.grid import grid_page

    files.append(File.generated(config, "grid.md", content=grid_page()))
    for title, modules in PACKAGES.items():
        files.append(File.generated(config, f"api/{title}.md", content=page(title, modules)))
    return files


def page(title: str, modules: tuple[str, ...]) -> str:
    """All public names of some modules."""
    parts, seen = [f"# {title}\n"], set()
    for name in modules:
        module = import_module(name)
        new = [found for found in public_names(module) if id(getattr(module, found)) not in seen]
        seen |= {id(getattr(module, found)) for found in new}
        parts += [
            f"## {name}\n",
            prose(inspect.getdoc(module) or ""),
            *(described(name, found, getattr(module, found)) for found in new),
        ]
    return "\n".join(parts)


def public_names(module: Any) -> list[str]:
    """What a module exports; without a list, what it defines."""
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    ]
    names = [
        name
        for name in getattr(module, "__all__", own)
        if not inspect.ismodule(getattr(module, name))
    ]
    return sorted(
        names, key=lambda name: (not isinstance(getattr(module, name), type), name.lower())
    )


def described(module: str, name: str, value: Any) -> str:
    """A name with its signature, its docstring and, for a class, what it can do."""
    if not callable(value):
        listed = (
            ", ".join(f"`{key}`" for key in value) if isinstance(value, Mapping) else f"`{value!r}`"
        )
        return f"### {name}\n\nA table of {listed}.\n"
    shown = f"```python\n{signature(name, value)}\n```\n"
    methods = method_table(value) if isinstance(value, type) else ""
    return (
        f"### {name} {{ #{module}.{name} "
        f"}}\n\n{shown}\n{prose(inspect.getdoc(value) or '')}\n{methods}"
    )


def signature(name: str, value: Any) -> str:
    """Parameters with their defaults; types are said in words below."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return name
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in parameters
        if parameter.name != "self"
    ]
    text = str(inspect.Signature(bare)) if all(map(plain, bare)) else "(...)"
    return name + (
        text
        if len(text) < 110
        else text.replace("(", "(\n    ", 1).replace(", ", ",\n    ").removesuffix(")") + ",\n)"
    )


def plain(parameter: inspect.Parameter) -> bool:
    return "<" not in repr(parameter.default) or parameter.default is inspect.Parameter.empty


def method_table(kind: type) -> str:
    """The methods and properties that say something, those of our own base classes too."""
    found = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("partita"):
            found |= {
                name: member
                for name, member in vars(base).items()
                if not name.startswith("_") and member.__doc__
            }
    members = [
        (name, member)
        for name, member in found.items()
        if inspect.isfunction(member) or isinstance(member, property | classmethod)
    ]
    rows = [
        f"| `{name}` | {first_sentence(inspect.getdoc(member) or '')} |" for name, member in members
    ]
    return "\n".join(["| | |", "|---|---|", *rows, ""]) if rows else ""


def first_sentence(text: str) -> str:
    return inline(" ".join(text.split("\n\n")[0].split())).replace("|", "\\|")


def prose(text: str) -> str:
    """A docstring as Markdown: equations, examples, lists of arguments."""
    text = MATH.sub(lambda found: equation(found[1]), inspect.cleandoc(text) + "\n")
    text = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    text = SECTION.sub(lambda found: f"**{found[1]}**\n\n{entries(found[2])}\n", text)
    return "\n".join(
        part if part.startswith("```") else inline(part)
        for part in re.split(r"(```.*?```)", text, flags=re.S)
    )


def equation(text: str) -> str:
    """``.. math::`` as a display equation, with the page that numbers it."""
    body, _, place = " ".join(text.split()).partition("(theory/")
    source = re.sub(r"(\w+\.md), (eq\..*)\)$", r"*[\2](../theory/\1)*", place)
    return f"$$ {body.strip()} $$\n\n{source}\n"


def entries(text: str) -> str:
    found = ENTRY.findall(text)
    return (
        "\n".join(f"* `{name}`: {' '.join(what.split())}" for name, what in found) + "\n"
        if found
        else inspect.cleandoc(text)
    )


def inline(text: str) -> str:
    """reStructuredText's marks inside a line as Markdown's."""
    text = re.sub(r":math:`([^`]+)`", r"$\1$", ROLE.sub(r"``\1``", text))
    return re.sub(r"``([^`]+)``", r"`\1`", text)
