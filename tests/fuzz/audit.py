"""A witness: what a piece of code opens, executes and connects to, by Python's audit events."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EXECUTES = frozenset(
    {
        "pickle.find_class",
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.fork",
        "os.spawn",
        "socket.connect",
        "socket.getaddrinfo",
        "urllib.Request",
        "code.__new__",
    }
)
OWN = (sys.prefix, sys.base_prefix, os.path.dirname(os.__file__), Path(__file__).parents[2])
LIBRARIES = tuple({os.path.realpath(path) for path in OWN})
SYSTEM = ("/proc/", "/sys/", "/dev/null", "/dev/urandom")
_seen: list[str] | None = None
_home = ""


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    if event in EXECUTES and not _by_numba():
        _seen.append(f"{event} {arguments!r}"[:200])
    elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if not path.startswith((_home, *LIBRARIES, *SYSTEM)):
            _seen.append(f"open {path}")
    elif event == "exec" and arguments[0].co_filename.startswith(_home):
        _seen.append(f"exec {arguments[0].co_filename}")


def _by_numba() -> bool:
    """Whether it is numba that reads a kernel, which it compiled earlier, from its own cache."""
    frame = sys._getframe(2)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("numba."):
        frame = frame.f_back
    return frame is not None


# for good: Python has no way to take one back, so it sleeps outside the block below
sys.addaudithook(_listen)


@contextmanager
def nothing_but(folder: Path) -> Iterator[None]:
    """Inside it nothing is executed, and no file is opened but those of the folder and of installed
    libraries.
    """
    global _seen, _home
    _seen, _home = [], os.path.realpath(folder)
    try:
        yield
        seen = _seen
    finally:
        _seen = None
    assert not seen, f"{folder} made it {seen}"


def scratch() -> tempfile.TemporaryDirectory:
    """A folder for one case."""
    return tempfile.TemporaryDirectory(prefix="partita-fuzz-case-")
