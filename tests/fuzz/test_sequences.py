"""Sequences: text in any encoding read as any other, prompts of any characters, and steps of any
length, width and value.
"""

import functools
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.audit import scratch
from tests.fuzz.cases import cases, only_named_errors
from tests.fuzz.workshop import carry_out

import partita
from partita import nets
from partita.datasets.open import open_dataset
from partita.models import VRNN, Autoregressive
from partita.nets.sequence import MIXERS

ENCODINGS = (
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-le",
    "utf-32",
    "latin-1",
    "cp1252",
    "shift-jis",
    "ascii",
    "utf-7",
    "cp037",
    "punycode",
)
NO_ENCODINGS = (
    "",
    "x",
    "hex",
    "rot13",
    "zip",
    "idna",
    "unicode_escape",
    "undefined",
    "utf-8\x00",
    "é",
    8,
    None,
    ["utf-8"],
)
TEXT = st.one_of(
    st.text(max_size=80),
    st.text("ab", max_size=80),
    st.text("a\r\n\t \x00\ufeff\u2028é", max_size=80),
    st.sampled_from(["", "a", "aa", "ab", "\ufeff", "abcd" * 40, "\ud800ab" * 9, "𝔸𝔹" * 20]),
)
READINGS = st.fixed_dictionaries(
    {},
    optional={
        "length": st.sampled_from([4, 4, 4, 1, 2, None, 0, -1, 1000, 10**30, 2.5, True, "x"]),
        "tokens": st.sampled_from(["characters", "characters", "bytes", "words", "", None]),
        "encoding": st.sampled_from((*ENCODINGS, *NO_ENCODINGS)),
        "symbols": st.sampled_from(
            [None, None, None, "", "a", "ab", "ba", "aa", "\ud800", "abé", 3]
        ),
    },
)
CELLS = (0.0, 1.0, 2.0, -1.0, 0.5, 255.0, 1e30, float("nan"), float("inf"))
DTYPES = (torch.float32, torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.bool)
SHAPES = (
    (2, 5),
    (2, 10),
    (2, 3),
    (1, 1),
    (3, 0),
    (0, 5),
    (2, 11),
    (5,),
    (),
    (2, 3, 4),
    (2, 10, 4),
    (1, 0, 4),
    (2, 3, 3),
    (0, 3, 4),
)
ELEMENTS = ("categorical", "binary", "real")


def encoded(text: str, encoding: str) -> bytes:
    """Bytes of a text; what the encoding does not have is a question mark."""
    try:
        return text.encode(encoding, "surrogatepass" if encoding.startswith("utf-") else "replace")
    except UnicodeError:
        return text.encode("utf-8", "surrogatepass")


@cases(0.02)
@given(
    TEXT,
    st.sampled_from(ENCODINGS),
    st.sampled_from(["text.txt", "text", "text.md", "text.TXT"]),
    READINGS,
)
def test_texts(text: str, encoding: str, name: str, reading: dict[str, Any]) -> None:
    """Read as sequences; every character of the text is in the vocabulary, so that none was
    replaced on the way.
    """
    with scratch() as place, only_named_errors():
        (path := Path(place) / name).write_bytes(raw := encoded(text, encoding))
        read = open_dataset(str(path), reading=reading)
        for part in (read.train, read.valid, read.test):
            if part is not None:
                part.tensor()
        if read.reading is not None and read.reading.get("tokens") == "characters":
            assert set(raw.decode(read.reading["encoding"])) <= set(read.reading["symbols"])


@cases(0.02)
@given(
    st.text(max_size=20),
    st.sampled_from(["8", "1", "0", "300", "-1"]),
    st.booleans(),
    st.sampled_from(ENCODINGS),
)
def test_prompts_and_other_texts(text: str, length: str, continued: bool, encoding: str) -> None:
    """A model of text goes on from a prompt, or scores another text."""
    # which no command line can say
    prompt = text.encode("utf-8", "replace").decode().replace("\x00", "")
    words = (
        ["sample", "three", "--prompt", prompt, "--length", length]
        if continued
        else ["evaluate", "three", "other.txt"]
    )
    carry_out(words, lambda folder: (folder / "other.txt").write_bytes(encoded(text, encoding)))


@functools.cache
def mixer(name: str) -> Any:
    """A causal network of width 4."""
    options = {"hyena": {"max_length": 9}, "attention": {"heads": 2}}.get(name, {})
    return nets.SequenceNet(
        4, 1, name, options=options, expand=1, generator=torch.Generator().manual_seed(0)
    )


@functools.cache
def model(name: str, element: str) -> Any:
    """A density of up to five steps of two numbers, or of three tokens."""
    size, g = {"categorical": 1}.get(element, 2), torch.Generator().manual_seed(0)
    if name == "VRNN":
        return VRNN(
            5,
            "binary" if element == "categorical" else element,
            size=size,
            latent=1,
            hidden=4,
            features=4,
            generator=g,
        )
    return Autoregressive(
        5, element, states=3, size=size, backbone=name, width=8, layers=1, hidden=4, generator=g
    )


@st.composite
def steps(draw: st.DrawFn) -> torch.Tensor:
    """A tensor of any length, in which a few values are odd."""
    shape = draw(st.sampled_from(SHAPES))
    x = (
        torch.randint(2, shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 3))))
        .double()
        .flatten()
    )
    for place in draw(st.lists(st.integers(0, max(0, len(x) - 1)), max_size=2)) if len(x) else []:
        x[place] = draw(st.sampled_from(CELLS))
    return x.reshape(shape).to(draw(st.sampled_from(DTYPES)))


@cases(0.02)
@given(
    st.sampled_from((*MIXERS, "VRNN")),
    st.sampled_from(ELEMENTS),
    steps(),
    st.sampled_from([None, 0, 1, 2, 6, -1, 2.5]),
)
def test_steps(name: str, element: str, x: torch.Tensor, n: Any) -> None:
    """Scored, gone on from, and drawn."""
    made = model(name, element)
    with only_named_errors():
        partita.evaluate(made, x, generator=torch.Generator())
    with only_named_errors():
        assert name == "VRNN" or made.log_prob(x.float()).shape == x.shape[:-1]
    with only_named_errors():
        made.draw(n, generator=torch.Generator()) if name == "VRNN" else made.extend(
            x, n, generator=torch.Generator()
        )


@cases(0.01)
@given(st.sampled_from(sorted(MIXERS)), steps())
def test_networks_of_sequences(name: str, u: torch.Tensor) -> None:
    """In the type of their weights, for torch says what is amiss with another."""
    with only_named_errors():
        assert mixer(name)(u.float()).shape == u.shape
