"""Pages whose code runs: every block of Python and every ``partita`` command in turn, and below
each what it printed.

``python docs/pages.py`` runs all pages and writes what they print into them; ``python docs/pages.py
rbm`` those with rbm in their path.

A ``python`` block runs; the ``text`` block right below it is what it printed, and a ``bash`` block
runs where there is one. The words must be the same whenever the page runs, and numbers to the last
digit shown, give or take one. In a ``{ .text .near }`` block numbers may differ by a tenth, for
chains and training differ from one processor to another. A ``{ .text .varies }`` block has draws or
seconds, and is not compared. A block titled ``with $PARTITA_DATA`` runs where that folder is given.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FENCE = re.compile(r"^```(?P<head>[^\n`]*)\n(?P<body>.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
REAL = "$PARTITA_DATA"
HOW_TO = (
    "devices",
    "large_data",
    "log_z",
    "mixed_tables",
    "natural_gradient",
    "own_network",
    "own_part",
    "resume",
    "scores",
    "start",
)
WIDTH = "110"  # of tables, in letters


@dataclass(frozen=True)
class Block:
    """What a page runs, what it shows below, and where that stands (None where nothing is
    shown).
    """

    language: str
    code: str
    real: bool
    shown: str = ""
    manner: str = "exact"
    place: tuple[int, int] | None = None


def running() -> list[Path]:
    """The pages that run."""
    return sorted(
        [*(HERE / "tutorials").glob("*.md"), *(HERE / "how_to" / f"{name}.md" for name in HOW_TO)]
    )


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page that run, in order."""
    fences = list(FENCE.finditer(text))
    for fence, following in zip_longest(fences, fences[1:]):
        language, real = fence["head"].split(" ")[0], REAL in fence["head"]
        if language not in ("python", "bash"):
            continue
        if (
            following is None
            or text[fence.end() : following.start()].strip()
            or "text" not in following["head"]
        ):
            if language == "python":
                yield Block(language, fence["body"], real)
            continue
        manner = next((name for name in ("near", "varies") if name in following["head"]), "exact")
        yield Block(
            language, fence["body"], real, following["body"], manner, following.span("body")
        )


def lines(code: str) -> list[str]:
    r"""The lines of a block; one that ends in a backslash goes on in the next.

    >>> lines("partita fit rbm digits \\\n    --quiet")
    ['partita fit rbm digits     --quiet']
    """
    return code.replace("\\\n", "").splitlines()


def carry_out(page: Path, real: bool) -> Iterator[tuple[Block, str]]:
    """Every block that runs here with what it printed, in an empty folder and one set of names."""
    names: dict[str, Any] = {"__name__": page.stem}
    listed = list(blocks(page.read_text()))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in listed:
            if block.real and not real:
                continue
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                _run(block, page, names)
            yield (
                block,
                "".join(
                    f"{line.rstrip()}\n" for line in printed.getvalue().strip("\n").splitlines()
                ),
            )


def agree(shown: str, printed: str, manner: str) -> bool:
    """Whether a page still shows what its code prints.

    >>> (
    ...     agree("log Z = 4.21, exact", "log Z = 4.22, exact", "exact"),
    ...     agree("4.2 nats", "4.9 nats", "near"),
    ...     agree("4", "four", "near"),
    ... )
    (True, False, False)
    """
    if manner == "varies":
        return True
    if _words(shown) != _words(printed):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(
        abs(float(a) - float(b))
        <= 1.01 * max(_unit(a), _unit(b), 0.1 * abs(float(a)) * (manner == "near"))
        for a, b in pairs
    )


def refresh(page: Path, real: bool) -> None:
    """Write what the blocks print into the page."""
    text = page.read_text()
    for block, printed in reversed([pair for pair in carry_out(page, real) if pair[0].place]):
        assert block.place is not None
        text = text[: block.place[0]] + printed + text[block.place[1] :]
    page.write_text(text)


def _run(block: Block, page: Path, names: dict[str, Any]) -> None:
    if block.language == "python":
        exec(compile(block.code, str(page), "exec"), names)
        return
    from typer.testing import CliRunner

    from partita.cli.app import app

    for line in lines(block.code):
        words = shlex.split(line, comments=True)
        if words and words[0] == "partita":
            done = CliRunner(env={"COLUMNS": WIDTH}).invoke(app, words[1:], catch_exceptions=False)
            assert done.exit_code == 0, f"{line}: {done.output}"
            print(done.stdout)


def _words(text: str) -> list[str]:
    return NUMBER.sub("0", text).split()


def _unit(number: str) -> float:
    """One in the last digit shown."""
    digits, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


if __name__ == "__main__":
    for path in running():
        if any(word in str(path) for word in sys.argv[1:] or [""]):
            refresh(path, "PARTITA_DATA" in os.environ)
