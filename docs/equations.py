"""Equations become MathML while the site is built, so that pages need no script and no network;
long names in tables may break.
"""

import re
from typing import Any

from latex2mathml.converter import convert

DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.S)
INLINE = re.compile(r"(?<![\\$`\w])\$([^$\n`]+(?:\n[^$\n`]+)?)\$(?![\w$])")
TAG = re.compile(r"\\tag\{([^}]*)\}")
CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.S)
CELL = re.compile(r"<td.*?</td>", re.S)
NAME = re.compile(r"(?<=<code>)[^<]+(?=</code>)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Every equation outside code."""
    parts = CODE.split(markdown)
    return "".join(part if part.startswith("`") else _render(part) for part in parts)


def on_page_content(html: str, **_: Any) -> str:
    """Names in tables may break after a dot, a slash, a colon or an underscore."""
    return CELL.sub(
        lambda cell: NAME.sub(lambda name: re.sub(r"([./_]|::)", r"\1<wbr>", name[0]), cell[0]),
        html,
    )


def _render(text: str) -> str:
    return INLINE.sub(_inline, DISPLAY.sub(_display, text))


def _inline(found: re.Match[str]) -> str:
    # without which an equation that begins a line would be a paragraph of its own
    return f"<span>{convert(found[1])}</span>"


def _display(found: re.Match[str]) -> str:
    tag = TAG.search(found[1])
    number = f'<span class="number">({tag[1]})</span>' if tag else ""
    equation = convert(" ".join(TAG.sub("", found[1]).split()), display="block")
    return f'\n<div class="equation">{equation}{number}</div>\n'
