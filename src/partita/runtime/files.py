"""Files: those of ours are whole or absent, whenever a process is killed, written beside their
name, forced to the disk, then moved over it; those of others, JSON and paths, hold what is expected
or are refused in a sentence.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from partita.errors import RunError

MOST_JSON = 1 << 26  # bytes of a JSON text; as Python's objects they are some twenty times as many
# levels of a JSON value, far more than partita writes and far fewer than Python follows
DEEPEST = 200
LARGEST = 1 << 64  # integers are smaller
SEAL = "checksum"  # the name under which an object keeps that of all else in it
RESTORE = "Restore the file as partita wrote it."
WORDS = {
    dict: "an object",
    list: "a list",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
}

T = TypeVar("T")

Json: TypeAlias = Any  # a value of a JSON text, whose shape check_like checks
JsonObject: TypeAlias = dict[str, Json]
Shape: TypeAlias = "type | Sequence[Shape] | Mapping[str, Shape] | None"


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


def inside(folder: Path, *names: str) -> Path:
    """A path in a folder; refused where a link or ``..`` leads out of it, or where it is no plain
    file, such as a pipe.

    >>> inside(Path("runs"), "..", "other.json")
    Traceback (most recent call last):
    partita.errors.RunError: load: runs/../other.json must lie in runs;
    got a path that leads out of it. ...
    """
    path = folder.joinpath(*names)
    if why := unreachable(path):
        raise RunError(
            f"load: {str(path)!r} must be a path; got one that cannot be opened ({why})."
        )
    home, real = Path(os.path.realpath(folder)), Path(os.path.realpath(path))
    if not real.is_relative_to(home):
        raise RunError(
            f"load: {path.as_posix()} must lie in {folder.as_posix()}; got a path that leads out "
            "of it. Put the file itself there, if you trust it."
        )
    if os.path.lexists(path) and not real.is_file():
        raise RunError(
            f"load: {path} must be a file; got a folder, a pipe, a device or a link to nothing."
        )
    return path


def read_text(path: Path, most: int = MOST_JSON, errors: str = "strict") -> str:
    """The text of a file of at most so many bytes."""
    if path.stat().st_size > most:
        raise RunError(f"load: {path} must have at most {most >> 20} MiB; got more. {RESTORE}")
    return path.read_text(encoding="utf-8", errors=errors)


def parse(text: str) -> Json:
    """The value of a JSON text; one too long, nested too deep, or with half a character, which no
    screen shows, is a ``ValueError``.
    """
    if len(text) > MOST_JSON:
        raise ValueError("too long a text")
    value = json.loads(text)
    if _deeper(value, DEEPEST):
        raise ValueError("nested too deep")
    if "\\ud" in text.lower():  # only so can it be written
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _deeper(value: Json, most: int) -> bool:
    """Whether lists and objects are nested more than so many times."""
    level = [value]
    for _ in range(most + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
        level = [
            one for outer in level for one in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return True


def read_json(path: Path, shape: Shape = None) -> Json:
    """The value in a JSON file, checked as :func:`check_like` does; a damaged file is named."""
    try:
        value = parse(read_text(path))
    # also what is no UTF-8, has numbers of thousands of digits, or is nested without end
    except (ValueError, RecursionError):
        raise RunError(f"load: {path} must be JSON; got a damaged file.") from None
    except OSError as error:
        raise RunError(
            f"load: {path} must be a file that can be read; got one that cannot ({error.strerror})."
        ) from None
    check_like(value, shape, str(path))
    return value


def finite_json(value: Json) -> Json:
    """A value for JSON, in which numbers that are not finite are null.

    >>> finite_json({"ends": (1.0, float("inf"))})
    {'ends': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: finite_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_digest(value: Json) -> str:
    """A checksum of a value as JSON."""
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()


def sealed(value: JsonObject) -> JsonObject:
    """An object with a checksum of all else in it, by which a change on the disk is noticed.

    >>> sealed({"rate": 0.1})
    {'rate': 0.1, 'checksum': 'ff5c20efcc60c1a6dba22c5eca3b3421'}
    """
    content = {name: part for name, part in value.items() if name != SEAL}
    return {**content, SEAL: json_digest(content)}


def unsealed(value: JsonObject) -> tuple[JsonObject, bool]:
    """The object without its checksum, and whether that matches; one without a checksum is
    accepted, so that a user can change it on purpose.
    """
    content = sealed(value)
    seal = content.pop(SEAL)
    return content, value.get(SEAL, seal) == seal


def check_like(value: Json, shape: Shape, where: str, *, whole: bool = False) -> None:
    """Raise unless a value has a shape: a type, several, a list ``[shape]``, or an object ``{name:
    shape}`` of which all may be absent, or none if it must be ``whole``.

    >>> check_like({"rows": [3, "x"]}, {"rows": [int]}, "config.json")
    Traceback (most recent call last):
    partita.errors.RunError: load: config.json: rows: 1 must be a whole number; got 'x'. ...
    """
    if shape is None:
        return
    kinds = _kinds(shape)
    if not _one_of(value, kinds):
        allowed = " or ".join(WORDS.get(kind, kind.__name__) for kind in kinds)
        got = repr(value) if len(repr(value)) < 40 else f"{repr(value)[:36]} ..."
        raise RunError(f"load: {where} must be {allowed}; got {got}. {RESTORE}")
    if isinstance(shape, list):
        for i, part in enumerate(value):
            check_like(part, shape[0], f"{where}: {i}")
    if isinstance(shape, dict):
        for name, inner in shape.items():
            if whole or value.get(name) is not None:
                check_like(value.get(name), inner, f"{where}: {name}", whole=whole)
            if whole and name not in value:
                raise RunError(
                    f"load: {where} must say {name}, if only that there is none. {RESTORE}"
                )


def shape_of(record: type) -> dict[str, Shape]:
    """The shape of a ``TypedDict``, for :func:`check_like`; null is allowed where it says so.

    >>> from typing import TypedDict
    >>> shape_of(TypedDict("Place", {"name": str, "rows": list[int], "score": float | None}))
    {'name': <class 'str'>, 'rows': [<class 'int'>], 'score': (<class 'float'>, <class 'NoneType'>)}
    """
    return {name: _shape(hint) for name, hint in get_type_hints(record).items()}


def read_record(kind: type[T], value: Json, where: str) -> T:
    """A dataclass from an object of its fields, which are checked by their annotations; one with a
    default may be absent or null.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Point:
    ...     place: tuple[float, ...]
    ...     name: str = ""
    >>> read_record(Point, {"place": [1, 2]}, "points.json")
    Point(place=(1, 2), name='')
    >>> read_record(Point, {"place": [1], "name": 7}, "points.json")
    Traceback (most recent call last):
    partita.errors.RunError: load: points.json: name must be text; got 7. ...
    """
    hints = get_type_hints(kind)
    shapes: dict[str, Shape] = {name: _shape(hint) for name, hint in hints.items()}
    check_like(value, shapes, where)
    for one in fields(kind):  # type: ignore[arg-type]
        if one.default is one.default_factory is MISSING:
            check_like(value, {one.name: shapes[one.name]}, where, whole=True)
    given = {name: value[name] for name in hints if value.get(name) is not None}
    return kind(**{name: _as_tuples(hints[name], part) for name, part in given.items()})


def _shape(hint: Any) -> Shape:
    """The shape of values of an annotated type."""
    if is_typeddict(hint):
        return shape_of(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if record := next(filter(is_typeddict, parts), None) if origin is UnionType else None:
        return shape_of(record)
    if origin in (list, tuple):
        return [_shape(parts[0])]
    if origin in (Union, UnionType):
        return tuple(map(_shape, parts))
    if origin is Literal:
        return type(parts[0])
    plain: Any = dict if origin is Mapping else origin or hint
    return plain


def _as_tuples(hint: Any, value: Json) -> Json:
    """A value of JSON with tuples where its annotated type has them."""
    if get_origin(hint) is not tuple:
        return value
    return tuple(_as_tuples(get_args(hint)[0], part) for part in value)


def _kinds(shape: Shape) -> tuple[type, ...]:
    """The types that a value of a shape may have; integers are numbers."""
    if isinstance(shape, dict | list):
        return (type(shape),)
    parts = shape if isinstance(shape, tuple) else (shape,)
    kinds = tuple(part for part in parts if isinstance(part, type))
    return (*kinds, int) if float in kinds else kinds


def _one_of(value: Json, kinds: tuple[type, ...]) -> bool:
    """Whether a value is of one of some types; true and false are no numbers, nor are integers
    beyond those of a machine.
    """
    fits = not isinstance(value, int) or abs(value) < LARGEST
    return isinstance(value, kinds) and fits and (bool in kinds or not isinstance(value, bool))
