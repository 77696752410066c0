"""Nats per character of tiny Shakespeare after five minutes: Hyena, SSM, attention and LSTM of
about equal size.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch

import partita
from harness import show
from partita.datasets import Sequences
from partita.datasets.text import Alphabet
from partita.models import Autoregressive

DATA = "tiny_shakespeare"
MINUTES, LENGTH = 5.0, 128
MODELS = {
    "hyena": {"layers": 4, "width": 128},
    "ssm": {"layers": 4, "width": 128},
    "attention": {"layers": 4, "width": 128},
    "lstm": {"layers": 2, "width": 208, "expand": 0},
}


def streams() -> tuple[np.ndarray, np.ndarray, Alphabet]:
    """The first nine tenths to learn from, the last to validate on, as nanoGPT splits them."""
    raw = np.load(Path(os.environ["PARTITA_DATA"]) / DATA / f"{DATA}.npz")["bytes"]
    text = raw.tobytes().decode()
    alphabet = Alphabet.of(text)
    tokens, cut = alphabet.encode(text), int(0.9 * len(raw))
    return tokens[:cut], tokens[cut:], alphabet


def run(minutes: float = MINUTES, names: tuple[str, ...] = tuple(MODELS)) -> None:
    """Fit each for the same time by the library's recipe and score every character of the last
    tenth once.
    """
    train, valid, alphabet = streams()
    found = {}
    for name in names:
        g = torch.Generator().manual_seed(0)
        model = Autoregressive(
            LENGTH, states=alphabet.size, backbone=name, **MODELS[name], generator=g
        )
        rows = Sequences.windows(train, LENGTH, stride=LENGTH // 8)
        fitted = partita.fit(model, rows, minutes=minutes, generator=g)
        q = partita.evaluate(model, Sequences.windows(valid, LENGTH), generator=g)
        found[name] = -q.details["per_step"]
        show(
            name,
            nats_per_character=found[name],
            parameters=sum(p.numel() for p in model.parameters()),
            steps=fitted.steps,
            kind=q.kind,
        )
    show("targets", best="below 1.60", reached=min(found.values()) < 1.60)
    if {"hyena", "attention"} <= found.keys():
        show(
            "hyena against attention",
            difference=found["hyena"] - found["attention"],
            target="at most 0.05",
        )


if __name__ == "__main__":
    run(float(sys.argv[1]) if len(sys.argv) > 1 else MINUTES, tuple(sys.argv[2:]) or tuple(MODELS))
