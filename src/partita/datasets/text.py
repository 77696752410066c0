"""Text as tokens: characters of a vocabulary, or bytes, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from partita.core.arguments import check_choice
from partita.errors import Argument, invalid, unusable
from partita.runtime.memory_limit import check_room
from partita.tables.arrays import bad_file
from partita.tables.files import empty, no_file

TOKENS = ("characters", "bytes")
BYTES = Argument("tokens", value="bytes")


@dataclass(frozen=True)
class Alphabet:
    """What each token stands for: the characters of ``symbols`` in order, or bytes where there are
    none.

    >>> letters = Alphabet.of("banana")
    >>> letters.symbols, letters.encode("nab").tolist(), letters.decode([2, 1])
    ('abn', [2, 0, 1], 'nb')
    >>> Alphabet().decode(Alphabet().encode("né"))
    'né'
    """

    symbols: str | None = None

    @classmethod
    def of(cls, text: str) -> "Alphabet":
        """The characters of a text in the order of their code points."""
        return cls("".join(map(chr, np.unique(_points(text)))))

    @property
    def size(self) -> int:
        """K: the number of tokens."""
        return 256 if self.symbols is None else len(self.symbols)

    def encode(self, text: str, owner: str = "encode") -> np.ndarray:
        """Text as tokens; a character outside the vocabulary is named."""
        if self.symbols is None:
            return np.frombuffer(text.encode("utf-8", "surrogateescape"), dtype=np.uint8)
        points, known = _points(text), _points(self.symbols)
        index = np.searchsorted(known, points).clip(max=len(known) - 1)
        wrong = np.flatnonzero(known[index] != points)
        if len(wrong):
            where = f"{text[wrong[0]]!r} at place {wrong[0]}"
            allowed = f"hold the {self.size} characters the model was built from"
            raise invalid(owner, "text", allowed, where, ("Fit with ", BYTES, "."))
        return index.astype(np.uint8 if self.size <= 256 else np.uint32)

    def decode(self, tokens: ArrayLike) -> str:
        """Tokens as text; bytes that are no UTF-8 become a replacement mark."""
        index = np.asarray(tokens).astype(np.int64)
        outside = index[(index < 0) | (index >= self.size)]
        if len(outside):
            allowed = f"be of the vocabulary, from 0 to {self.size - 1}"
            raise invalid("decode", "tokens", allowed, int(outside[0]))
        if self.symbols is None:
            return index.astype(np.uint8).tobytes().decode("utf-8", "replace")
        return "".join(self.symbols[i] for i in index)

    def as_json(self) -> dict[str, str]:
        if self.symbols is None:
            return {"tokens": "bytes"}
        return {"tokens": "characters", "symbols": self.symbols}

    @classmethod
    def from_json(cls, value: Mapping[str, str]) -> "Alphabet":
        return cls(value.get("symbols"))


def read_tokens(
    path: str | Path,
    tokens: str = "characters",
    encoding: str = "utf-8",
    alphabet: Alphabet | None = None,
) -> tuple[np.ndarray, Alphabet]:
    """The tokens of a text file and what they stand for; bytes stay on disk. ``alphabet`` is that
    of an earlier fit.
    """
    check_choice("load", "tokens", tokens, TOKENS)
    path = Path(path)
    if not path.is_file():
        raise no_file(path)
    if path.stat().st_size == 0:
        raise empty(path)
    if tokens == "bytes":
        return np.memmap(path, dtype=np.uint8, mode="r"), Alphabet()
    remedy = "Take it as bytes, which stay on disk: tokens=bytes."
    check_room("load", str(path), path.stat().st_size, remedy)
    try:
        text = path.read_bytes().decode(encoding)
    except UnicodeDecodeError as error:
        got = f"the byte {error.object[error.start]:#04x} at place {error.start}"
        latin = Argument("encoding", value="latin-1")
        remedy = ("Name its encoding, as in ", latin, ", or take it as it is: ", BYTES, ".")
        raise bad_file(path, f"be text in {encoding}", got, remedy) from None
    except (LookupError, TypeError, ValueError):
        allowed = "be one that Python knows, as utf-8 or latin-1"
        raise unusable("load", "encoding", allowed, repr(encoding)) from None
    alphabet = Alphabet.of(text) if alphabet is None else alphabet
    if alphabet.size < 2:
        allowed = "hold at least two different characters"
        raise bad_file(path, allowed, "one, which needs no model")
    return alphabet.encode(text, "load"), alphabet


def _points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
