"""What a page is made of: sections, each a title and some blocks; the template knows how each kind
of block looks.

Every text is plain: the template escapes it, so that names of columns or files can never become
markup.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple


class Link(NamedTuple):
    """A cell of a table that leads somewhere."""

    text: str
    href: str


@dataclass(frozen=True)
class Text:
    """A paragraph; a warning stands out."""

    kind: ClassVar[str] = "text"
    text: str
    tone: Literal["plain", "lead", "warning", "small"] = "plain"


@dataclass(frozen=True)
class Big:
    """The number that the page is about, with a line on each side of it."""

    kind: ClassVar[str] = "big"
    value: str
    unit: str
    badge: str = ""
    tone: Literal["good", "fair", "bad"] = "good"
    below: str = ""


@dataclass(frozen=True)
class Figure:
    """A plotly figure as JSON, drawn when it scrolls into view.

    Arguments:
        traces, layout: As plotly takes them; colors of paper, ink and scales named ``"sequential"``
            or ``"diverging"`` are the page's.
        alt: What the figure shows, in a sentence, for those who cannot see it.
        caption: What to look for; printed below.
        height: In pixels.
    """

    kind: ClassVar[str] = "figure"
    traces: Sequence[Mapping[str, object]]
    alt: str
    layout: Mapping[str, object] = field(default_factory=dict)
    caption: str = ""
    height: int = 320


@dataclass(frozen=True)
class Picture:
    """A PNG that is part of the page, with square pixels; ``width`` is in pixels of the screen."""

    kind: ClassVar[str] = "picture"
    png: bytes = field(repr=False)
    alt: str
    caption: str = ""
    width: int = 320

    @property
    def address(self) -> str:
        return f"data:image/png;base64,{b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Table:
    """Rows of cells, whose digits stand below one another; ``head`` may be left out."""

    kind: ClassVar[str] = "table"
    rows: Sequence[Sequence[str | Link]]
    head: Sequence[str] = ()
    caption: str = ""


@dataclass(frozen=True)
class Code:
    """Text in which every character counts."""

    kind: ClassVar[str] = "code"
    text: str
    caption: str = ""


@dataclass(frozen=True)
class Beside:
    """Blocks side by side where there is room, one below the other where there is not."""

    kind: ClassVar[str] = "beside"
    blocks: "Sequence[Block]"
    least: int = 280  # pixels that each needs


@dataclass(frozen=True)
class Folded:
    """Blocks behind a line that opens them; always open on paper."""

    kind: ClassVar[str] = "folded"
    title: str
    blocks: "Sequence[Block]"


Block = Text | Big | Figure | Picture | Table | Code | Beside | Folded


@dataclass(frozen=True)
class Section:
    """A part of the page under its own title.

    >>> Section("What the number means", []).anchor
    'what-the-number-means'
    """

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        return anchor(self.title)


def anchor(title: str) -> str:
    """What follows ``#`` in a link to a title."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
