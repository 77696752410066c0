"""Places that files are said to be at: odd names, folders, devices, pipes, links, files that nobody
may read, folders that are locked.
"""

import contextlib
import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tests.fuzz.vocabulary import COMMANDS, FITTED, usual_of

STEMS = (
    "table",
    "with space",
    " before",
    "é ü",
    "日本",
    "🎲",
    "e\u0301",
    "-dash",
    "new\nline",
    "\x1b[31mred",
    "a:b",
    "%s{x}",
    "*",
    "..",
    "",
    "a" * 240,
    "a" * 300,
    "sub/table",
    "\udcff",
    "CON",
    "'quoted\"",
    "runs",
)
ENDINGS = (
    "",
    ".csv",
    ".CSV",
    ".parquet",
    ".arrow",
    ".npy",
    ".npz",
    ".txt",
    ".fasta",
    ".html",
    ".png",
    ".csv.gz",
    ".csv ",
    ".",
)
ELSEWHERE = (
    "/dev/zero",
    "/dev/null",
    "/dev/full",
    "/dev/stdin",
    "/proc/self/mem",
    "/proc/version",
    "/proc/x/y.csv",
    "/sys/x.csv",
    "/",
    ".",
    "..",
    "//",
    "~",
    "./",
    "one/..",
    "a/" * 3000,
    "/etc/passwd",
    "one/config.json",
    "one/checkpoints",
    "file://x.csv",
    "http://x/y.csv",
)
PLACED = ("run", "resume", "folder", "data", "normal", "out", "png")  # parameters that are paths
OVERRIDES = (1 << 1) | (1 << 2)  # the capabilities by which root reads and writes whatever it likes


def _copied(path: Path, good: Path) -> None:
    """What should be there, under that name."""
    shutil.copytree(good, path) if good.is_dir() else shutil.copy(
        good, path
    ) if good.exists() else None


def _within(mode: int) -> Callable[[Path, Path], None]:
    """It is there, in a folder with such rights."""

    def make(path: Path, good: Path) -> None:
        _copied(path, good)
        path.parent.chmod(mode)

    return make


def _unreadable(path: Path, good: Path) -> None:
    _copied(path, good)
    path.touch() if not path.exists() else None
    path.chmod(0)


MADE: dict[str, Callable[[Path, Path], Any]] = {
    "copy": _copied,
    "nothing": lambda path, good: None,
    "folder": lambda path, good: path.mkdir(),
    "pipe": lambda path, good: os.mkfifo(path),
    "empty": lambda path, good: path.touch(),
    "loop": lambda path, good: path.symlink_to(path.name),
    "link": lambda path, good: path.symlink_to(good),
    "link to nothing": lambda path, good: path.symlink_to("gone/away"),
    "zeros": lambda path, good: path.symlink_to("/dev/zero"),
    "full": lambda path, good: path.symlink_to("/dev/full"),
    "unreadable": _unreadable,
    "locked": _within(0o500),
    "closed": _within(0),
}


@st.composite
def commands_at_odd_places(draw: st.DrawFn) -> tuple[list[str], Callable[[Path], None] | None]:
    """A command that makes sense but for one path, and what makes that place."""
    placed = [
        (verb, one)
        for verb, command in COMMANDS.items()
        for one in command.params
        if one.name in PLACED
    ]
    verb, odd = draw(st.sampled_from(placed))
    run = draw(st.sampled_from(sorted(FITTED)))
    usual = draw(st.sampled_from(usual_of(odd.name, verb, run)))
    if not draw(st.integers(0, 3)):
        return _words(verb, run, odd, draw(st.sampled_from(ELSEWHERE))), None
    ending = draw(st.sampled_from([Path(usual).suffix] * 3 + [*ENDINGS]))
    place = Path("places") / (draw(st.sampled_from(STEMS)) + ending)
    return _words(verb, run, odd, str(place)), _maker(
        place, usual, MADE[draw(st.sampled_from(sorted(MADE)))]
    )


def _maker(place: Path, good: str, make: Callable[[Path, Path], Any]) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        with contextlib.suppress(OSError, shutil.Error, ValueError):  # no file system has all names
            (folder / place).parent.mkdir(parents=True)
            make(folder / place, folder / good)

    return prepare


def _words(verb: str, run: str, odd: Any, place: str) -> list[str]:
    """The arguments that a command needs, of which one, or an option beside them, is a place;
    nothing of it takes long.
    """
    needed = [one for one in COMMANDS[verb].params if one.param_type_name == "argument"]
    if odd.name == "resume":
        return [verb, "--resume", place, "--no-report", "--quiet"]
    arguments = [place if one is odd else usual_of(one.name, verb, run)[0] for one in needed]
    short = {
        "fit": ["--epochs", "1", "--no-report"],
        "compare": ["--models", "mixture", "--epochs", "1", "--no-report"],
    }.get(verb, [])
    return [verb, *arguments, *short, *([] if odd in needed else [odd.opts[0], place])]


@contextlib.contextmanager
def without_overrides() -> Iterator[None]:
    """Inside it the rights of files hold for root as for everybody."""
    libc = ctypes.CDLL(None, use_errno=True)
    # effective, permitted, inheritable, each twice 32 bits
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) != 0:
        yield
        return
    whole = sets[0]
    sets[0] &= ~OVERRIDES
    libc.capset(header, sets)
    try:
        yield
    finally:
        sets[0] = whole
        libc.capset(header, sets)
