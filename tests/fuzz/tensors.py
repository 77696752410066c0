"""Checkpoints taken apart and put together again, as who makes a bad one on purpose would."""

import hashlib
import itertools
import json
import math
import struct
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tests.fuzz import junk

MODEL, LAST = Path("checkpoints") / "model.safetensors", Path("checkpoints") / "last.safetensors"
# of dtypes
SIZES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "I64": 8,
    "I32": 4,
    "U64": 8,
    "U8": 1,
    "BOOL": 1,
    "C64": 8,
}
FILLS = (
    b"\0",
    b"\xff",
    b"\x7f",
    *(struct.pack("<f", value) for value in (math.nan, math.inf, 1.0, -1.0, 1e-30, 1e30)),
    *(struct.pack("<q", value) for value in (1, 3)),
)


def parts(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the rest of a safetensors file."""
    length = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def joined(header: Any, rest: bytes) -> bytes:
    text = junk.as_text(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


def signed(skeleton: str, header: dict[str, Any], rest: bytes) -> bytes:
    """The file with another structure and the checksum that belongs to it, as who makes such a file
    on purpose would write it.
    """
    total = hashlib.blake2b(skeleton.encode(), digest_size=16)
    for name in sorted(key for key in header if key != "__metadata__"):
        start, stop = header[name]["data_offsets"]
        total.update(rest[start:stop])
    return joined(
        {**header, "__metadata__": {"partita": skeleton, "checksum": total.hexdigest()}}, rest
    )


def _near(shape: list[int]) -> list[list[int]]:
    """Shapes that differ in one size."""
    return [
        [*shape[:i], size + more, *shape[i + 1 :]]
        for i, size in enumerate(shape)
        for more in (1, -1)
        if size + more >= 0
    ]


@st.composite
def other_tensors(draw: st.DrawFn, header: dict[str, Any], rest: bytes) -> bytes:
    """The file with one tensor of other values, of another type or of another shape, and the
    checksum that belongs to it.
    """
    held = {name: dict(about) for name, about in header.items() if name != "__metadata__"}
    content = {name: rest[slice(*about["data_offsets"])] for name, about in held.items()}
    name = draw(st.sampled_from(sorted(held)))
    about = held[name]
    if draw(st.booleans()):
        about["dtype"] = draw(st.sampled_from(sorted(SIZES)))
    if not draw(st.integers(0, 2)):
        about["shape"] = draw(
            st.sampled_from(
                [
                    [],
                    [0],
                    [1],
                    [3, 3],
                    [*about["shape"], 1],
                    about["shape"][1:],
                    *_near(about["shape"]),
                ]
            )
        )
    size, value = math.prod(about["shape"]) * SIZES[about["dtype"]], draw(st.sampled_from(FILLS))
    content[name] = (value * (size // len(value) + 1))[:size]
    ends = list(itertools.accumulate(map(len, content.values()), initial=0))
    for about, *span in zip(held.values(), ends, ends[1:], strict=False):
        about["data_offsets"] = span
    return signed(header["__metadata__"]["partita"], held, b"".join(content.values()))
