"""A folder with good and bad files and runs of several families, and commands that are carried out
in a copy of it.
"""

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import event
from tests.fuzz import files
from tests.fuzz.cases import bounded
from tests.fuzz.commands import command, explain
from tests.fuzz.vocabulary import COMMANDS, FITTED


@functools.cache
def workshop() -> tempfile.TemporaryDirectory:
    """It lasts as long as the tests."""
    place = tempfile.TemporaryDirectory(prefix="partita-fuzz-cli-")
    for name, raw in {**files.good(), **files.odd()}.items():
        (Path(place.name) / name).write_bytes(raw)
    (Path(place.name) / "binary.csv").write_text("a,b,c\n" + "0,1,1\n1,0,1\n1,1,0\n0,0,1\n" * 4)
    np.save(Path(place.name) / "bits.npy", files.CODES.reshape(12, 1, 3) > 0)
    (Path(place.name) / "gaps.csv").write_text("a,b,c\n0,1,1\n1,,1\n,1,0\n0,0,1\n")
    (Path(place.name) / "empty").mkdir()
    with contextlib.chdir(place.name):
        for name, (model, data, *more) in FITTED.items():
            result = command(
                "fit", model, data, "--epochs", "1", "--out", name, "--no-report", *more
            )
            assert result.exit_code == 0, result.output
    return place


def carry_out(
    words: list[str],
    prepare: Callable[[Path], Any] | None = None,
    *,
    circumstances: Any = contextlib.nullcontext,
) -> Any:
    """A command in a copy of the folder, which is prepared for it, under circumstances that hold
    only for the command.
    """
    with tempfile.TemporaryDirectory(prefix="partita-fuzz-case-") as place:
        folder = Path(shutil.copytree(workshop().name, place, dirs_exist_ok=True))
        if prepare is not None:
            prepare(folder)
        with contextlib.chdir(folder), bounded(), circumstances():
            result = command(*words)
        after = contents(folder) if result.exit_code else {}
    # the statistics count them
    event(f"{words[0] if words[0] in COMMANDS else 'no command'} ended with {result.exit_code}")
    explain(result)
    return after


def contents(folder: Path) -> dict[str, bytes]:
    """What every plain file in a folder holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
