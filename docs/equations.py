"""Equations become MathML while the site is built, so that pages need no script and no network."""

import re
from typing import Any

from latex2mathml.converter import convert

DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.S)
INLINE = re.compile(r"(?<![\\$`\w])\$([^$\n`]+(?:\n[^$\n`]+)?)\$(?![\w$])")
TAG = re.compile(r"\\tag\{([^}]*)\}")
CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.S)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Every equation outside code."""
    parts = CODE.split(markdown)
    return "".join(part if part.startswith("`") else _render(part) for part in parts)


def _render(text: str) -> str:
    return INLINE.sub(lambda found: convert(found[1]), DISPLAY.sub(_display, text))


def _display(found: re.Match[str]) -> str:
    tag = TAG.search(found[1])
    number = f'<span style="float: right">({tag[1]})</span>' if tag else ""
    equation = convert(" ".join(TAG.sub("", found[1]).split()), display="block")
    return f'\n<div style="clear: both; margin: 1em 0">{number}{equation}</div>\n'
