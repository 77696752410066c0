"""One HTML file that needs nothing else: sections into the template, plotly once, every figure as
JSON.
"""

import json
import math
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from partita.report.blocks import Section
from partita.runtime.files import write_whole

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATES = files("partita.report") / "templates"


def render(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The page as text."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["json"] = script_json
    environment.tests["number"] = looks_numeric
    template = environment.from_string(_read("page.html"))
    parts = {"style": _read("page.css"), "script": _read("page.js"), "plotly": _plotly()}
    return template.render(title=title, subtitle=subtitle, sections=sections, **parts)


def write_page(path: Path, title: str, subtitle: str, sections: Sequence[Section]) -> Path:
    """Write the page, whole or not at all."""
    write_whole(path, render(title, subtitle, sections))
    return path


def script_json(value: object) -> "Markup":
    """A figure as JSON that may stand inside a script element; what is not finite is null.

    Plotly reads tags in its texts: names of columns are escaped, and shown as they are.

    >>> str(script_json({"a": ["</script>", float("nan")]}))
    '{"a":["&lt;/script>",null]}'
    """
    from markupsafe import Markup

    return Markup(json.dumps(_plain(value), separators=(",", ":"), allow_nan=False))


def looks_numeric(cell: object) -> bool:
    """Whether a cell is a number, which is never broken into two lines.

    >>> [looks_numeric(cell) for cell in ("-1.5e+03", "12.5 %", "8 x 8", "")]
    [True, True, False, False]
    """
    return isinstance(cell, str) and bool(re.fullmatch(r"[-+]?[\d.,]+(e[-+]?\d+)?( %)?", cell))


def _plain(value: object) -> object:
    """Arrays as lists, numbers with as many digits as a screen can show."""
    if isinstance(value, np.ndarray | np.generic | Tensor):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, str):
        return value.replace("&", "&amp;").replace("<", "&lt;")
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value


def _read(name: str) -> str:
    from markupsafe import Markup

    text = (TEMPLATES / name).read_text(encoding="utf-8")
    return text if name.endswith(".html") else Markup(text)


@cache
def _plotly() -> "Markup":
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())
