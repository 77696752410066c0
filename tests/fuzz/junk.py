"""Values that nobody expects, and what turns a good file into a bad one."""

import json
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

HUGE = (10**12, 10**18, 2**63, 10**30, -(10**18), 10**400)
NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    0.5,
    -0.5,
    1.0,
    1e-308,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    True,
    False,
)
OUTSIDE = "../../x"
TEXTS = (
    "",
    " ",
    "x",
    "auto",
    "none",
    "nan",
    "0",
    "-1",
    "1e400",
    "é\u202e\x00",
    OUTSIDE,
    "a" * 300,
    "\ud800",
)
OTHERS = (
    None,
    [],
    [1],
    [1, "x"],
    (),
    (2, 2),
    {},
    {"a": 1},
    b"x",
    int,
    len,
    object(),
    1j,
    np.float32(2),
    np.int64(2),
    np.array([1, 2]),
    np.array(["x"]),
    np.datetime64("NaT"),
    np.longdouble("1e4000"),
    torch.ones(2),
    torch.ones(2, 2).to_sparse(),
    torch.ones(2, device="meta"),
    Decimal("NaN"),
    Fraction(1, 3),
    range(3),
)


def values(huge: bool = True) -> st.SearchStrategy[Any]:
    """Of a parameter in Python."""
    return st.sampled_from([*NUMBERS, *TEXTS, *OTHERS, *(HUGE if huge else ())])


def json_values() -> st.SearchStrategy[Any]:
    """Of a place in JSON."""
    nested = [
        [],
        [[]],
        [1, 2],
        ["x"],
        [None],
        {},
        {"a": 1},
        {"part": "PCD"},
        {"name": "RBM"},
        *DEEP,
    ]
    return st.sampled_from(
        [
            None,
            *NUMBERS,
            *HUGE,
            *TEXTS,
            "real",
            "binary",
            "category",
            "mixed",
            "/etc/passwd",
            *nested,
        ]
    )


DEEP = {"@nested without end@": 100_000, "@nested as deep as can be read@": 800}


def as_text(value: Any) -> str:
    """JSON in which some strings stand for lists in lists."""
    text = json.dumps(value)
    for mark, depth in DEEP.items():
        text = text.replace(json.dumps(mark), "[" * depth + "]" * depth)
    return text


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value with each of its keys."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    return [place for key in keys for place in ((value, key), *places(value[key]))]


@st.composite
def changed_json(draw: st.DrawFn, value: Any) -> Any:
    """A copy of a JSON value with one to three places changed, left out, renamed or added."""
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, 3))):
        found = places(value)
        if not found:
            return draw(json_values())
        container, key = draw(st.sampled_from(range(len(found))).map(found.__getitem__))
        what = draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename"]))
        if what == "replace":
            container[key] = draw(json_values())
        else:
            held = container.pop(key)
            if what == "rename" and isinstance(container, dict):
                container[draw(st.sampled_from([*TEXTS, "part", "table", "law"]))] = held
    return value


@st.composite
def changed_config(draw: st.DrawFn, value: dict[str, Any]) -> Any:
    """Such a copy of an object, mostly without its checksum, which who changes it on purpose would
    take out.
    """
    kept = "" if not draw(st.integers(0, 4)) else "checksum"
    return draw(changed_json({name: part for name, part in value.items() if name != kept}))


@st.composite
def changed_bytes(draw: st.DrawFn, raw: bytes) -> bytes:
    """A copy of bytes with one to four places flipped, cut, inserted, doubled, or overwritten by a
    number at the edge of its type.
    """
    raw = bytes(raw)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        what = draw(st.sampled_from(["flip", "flip", "cut", "insert", "double", "number"]))
        if what == "flip" and raw:
            raw = raw[:at] + bytes([raw[at] ^ draw(st.integers(1, 255))]) + raw[at + 1 :]
        elif what == "cut":
            raw = (
                raw[:at] + raw[at + draw(st.integers(1, 64)) :] if draw(st.booleans()) else raw[:at]
            )
        elif what == "insert":
            raw = raw[:at] + draw(st.binary(min_size=1, max_size=16)) + raw[at:]
        elif what == "double":
            raw = raw[:at] + raw[at : at + draw(st.integers(1, 200))] + raw[at:]
        else:
            number = draw(
                st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1])
            )
            raw = raw[:at] + struct.pack("<Q", number) + raw[at + 8 :]
    return raw
