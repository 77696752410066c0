"""Files that are whole or absent, whenever a process is killed: written beside their name, forced
to the disk, then moved over it.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, keep: Path | None = None) -> Iterator[Path]:
    """A temporary path to write to, moved over ``path`` at the end of the block, and removed if
    the block fails.

    Arguments:
        path: Of the file; its folder is made where there is none.
        keep: Another name, under which the file that was there stays.
    """
    beside = _beside(path)
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise FileExistsError(errno.EEXIST, "A device or a pipe is no file to write", str(path))
        beside.unlink(missing_ok=True)  # it may be a link to somewhere else
        try:
            yield beside
            to_disk(beside)
            if keep is not None and path.exists():
                _name_too(path, keep)
            os.replace(beside, path)
            to_disk(path.parent)
        finally:
            beside.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8", newline="")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make errors of the system inside the block name this file: a full disk names none, and the
    temporary name means nothing to a user.
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None and str(error.filename) in ("None", str(_beside(path))):
            error.filename, error.filename2 = str(path), None
        raise


def unreachable(path: str | Path) -> str:
    """Why the system cannot even tell whether a file exists: a name too long, half a character in
    it, a closed folder; empty if it can.

    >>> unreachable("nowhere/at/all"), unreachable("a" * 300)
    ('', 'File name too long')
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    return ""


def to_disk(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk; not every system can do so for
    folders.
    """
    with contextlib.suppress(PermissionError, IsADirectoryError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _beside(path: Path) -> Path:
    return path.parent / f".{path.name}.part"


def _name_too(path: Path, other: Path) -> None:
    """Give a file a second name without ever removing the first; where hard links are not
    supported, move it.
    """
    beside = _beside(other)
    beside.unlink(missing_ok=True)
    try:
        os.link(path, beside)
    except OSError:
        os.replace(path, other)
        return
    os.replace(beside, other)
    beside.unlink(missing_ok=True)  # it stays where both were names of one file already
