"""How far a command walks: the modules of ours that it enters after all are imported.

The numbers may fall and not rise: a walk of fewer rooms is one that a reader can follow.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from typer.testing import CliRunner

from partita import cli
from partita.cli.app import app

SOURCE = str(Path(cli.__file__).parents[1])
MOST_OF_FIT, MOST_OF_COMPARE = 55, 73
PEOPLE = "age,city,children,smokes\n" + "".join(
    f"{20 + 7 * i % 50}.5,{('Rome', 'Oslo', 'Lima')[i % 3]},{i % 5},{('yes', 'no')[i % 2]}\n"
    for i in range(200)
)


@contextmanager
def entered() -> Iterator[set[str]]:
    """The files of ours in which a function is called inside the block, not while importing."""
    found: set[str] = set()

    def trace(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if file not in found and file.startswith(SOURCE) and not importing(frame):
            found.add(file)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(before)


def importing(frame: FrameType | None) -> bool:
    """Whether a call is part of an import."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(SOURCE):
            return True
        frame = frame.f_back
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["fit", "rbm", "digits", "--epochs", "1", "--no-report"], MOST_OF_FIT),
        (["compare", "people.csv", "--epochs", "1", "--no-report"], MOST_OF_COMPARE),
    ],
    ids=["fit", "compare"],
)
def test_a_walk_is_no_longer_than_it_was(
    words: list[str], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(PEOPLE)
    with entered() as found:
        done = CliRunner().invoke(app, [*words, "--quiet"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert len(found) <= most, "\n".join(sorted(found))
