"""A VRNN on piano rolls, in nats per frame from below, beside a plain recurrent network of the same
size trained for the same time.

Published, nats per frame (secondary): SRNN 4.74 on jsb_chorales and 2.94 on nottingham. ``python
benchmarks/vrnn_music.py MINUTES`` is shorter.
"""

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import partita
from harness import show
from partita.core.protocols import Capability, Data, DirectedModel
from partita.core.support import Binary
from partita.core.support import Sequence as Steps
from partita.datasets import Sequences
from partita.datasets.open import Reading, load_sequences
from partita.evaluators import IWAE, ParticleFilter
from partita.models import VRNN
from partita.models.directed.autoregressive.emissions import bernoulli_log_prob
from partita.models.directed.autoregressive.model import row_ends
from partita.nets import MLP
from partita.objectives import FIVO

DATA = "polyphonic_music"
SETS = ("jsb_chorales", "nottingham")
MINUTES, HIDDEN, LATENT, WINDOW, KEYS = 6.0, 128, 16, 64, 88
OPTIONS: dict[str, Any] = {"batch_size": 16, "learning_rate": 4e-3, "validations": 8}


class PlainRNN(DirectedModel):
    """A GRU whose hidden units give the odds of every key of the next frame: the VRNN without its
    latent variables, exactly scored.
    """

    capabilities = frozenset({Capability.LOG_PROB, Capability.ENDS})
    support: Steps
    base: Tensor

    def __init__(self, length: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.support = Steps(Binary(KEYS), length)
        self.phi = MLP(KEYS, HIDDEN, widths=(HIDDEN,), activation="relu", generator=generator)
        self.gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.decoder = MLP(HIDDEN, KEYS, widths=(HIDDEN,), activation="relu", generator=generator)
        self.register_buffer("base", torch.zeros(KEYS))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.log_prob(x, lengths)

    def log_prob(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        steps = x.unflatten(-1, (-1, KEYS))
        ends = row_ends(steps) if lengths is None else lengths
        there = torch.arange(int(ends.max())) < ends[:, None]
        steps = steps[:, : there.shape[1]].where(there[..., None], 0.0)
        h = self.gru(self.phi(steps[:, :-1] - self.base.sigmoid()))[0]
        h = torch.cat([h.new_zeros(len(h), 1, HIDDEN), h], 1)
        return (bernoulli_log_prob(self.decoder(h) + self.base, steps).sum(-1) * there).sum(-1)

    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        rate = torch.from_numpy(np.asarray(data.stream, dtype=np.float64).mean(0))  # type: ignore[attr-defined]
        self.base.copy_((rate * 0.999 + 5e-4).logit())

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        raise NotImplementedError("only scored here")

    def settings(self) -> dict[str, Any]:
        return {"length": self.support.L}


def cut(rows: Sequences, length: int) -> Sequences:
    """Sequences in windows of at most ``length`` steps, which overlap by half: a pass through time
    of them costs less.
    """
    starts, lengths = [], []
    for start, steps in zip(rows.starts, rows.lengths, strict=True):
        for offset in range(0, max(1, int(steps) - length // 2), length // 2):
            starts.append(start + offset)
            lengths.append(min(length, int(steps) - offset))
    return Sequences(rows.stream, starts, lengths, longest=length)


def longer(fitted: Any, model: Any) -> Any:
    """A model of whole sequences with the weights of one of windows, which do not depend on the
    length.
    """
    model.load_state_dict(fitted.state_dict())
    return model


def run(minutes: float = MINUTES, names: tuple[str, ...] = SETS) -> None:
    """Fit both on windows with the same time, choose weights on validation windows, score whole
    test sequences.
    """
    for name in names:
        g = torch.Generator().manual_seed(0)
        data: Any = load_sequences(f"{DATA}/{name}", Reading(length=None))
        train, valid, test = cut(data.train, WINDOW), cut(data.valid, WINDOW), data.test
        valid = valid.take(np.arange(0, len(valid), max(1, len(valid) // 200)))
        plain = PlainRNN(WINDOW, generator=g)
        fitted = partita.fit(
            plain, train, minutes=minutes / 2, validation=valid, **OPTIONS, generator=g
        )
        q = partita.evaluate(longer(plain, PlainRNN(test.longest, generator=g)), test, generator=g)
        show(
            f"{name}, plain RNN",
            nats_per_frame=q.details["per_step"],
            kind=q.kind,
            steps=fitted.steps,
            best=fitted.history[-1]["best"],
        )
        sizes: dict[str, Any] = {
            "size": KEYS,
            "latent": LATENT,
            "hidden": HIDDEN,
            "features": HIDDEN,
        }
        model = VRNN(WINDOW, **sizes, generator=g)
        fitted = partita.fit(
            model,
            train,
            FIVO(4, every=8),
            minutes=minutes,
            validation=valid,
            **OPTIONS,
            generator=g,
        )
        show(
            f"{name}, VRNN fitted",
            steps=fitted.steps,
            epochs=float(fitted.history[-1]["epoch"]),
            active=model.active_units(),
        )
        whole = longer(model, VRNN(test.longest, **sizes, generator=g))
        for evaluator in (IWAE(32), ParticleFilter(32)):
            scored = partita.evaluate(whole, test, evaluator=evaluator, generator=g)
            show(
                f"{name}, VRNN",
                by=scored.method,
                nats_per_frame=scored.details["per_step"],
                kind=scored.kind,
                verdict=scored.verdict,
            )
        better = scored.details["per_step"] > q.details["per_step"]
        show(
            f"{name}, target",
            better_than_the_plain_rnn=better,
            published_srnn={"jsb_chorales": -4.74, "nottingham": -2.94}[name],
        )


if __name__ == "__main__":
    run(float(sys.argv[1]) if len(sys.argv) > 1 else MINUTES, tuple(sys.argv[2:]) or SETS)
