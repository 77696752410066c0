"""Piano rolls with an exact likelihood, in nats per frame, beside bounds of recurrent models with
latent variables.

The published bounds are those of the SRNN; ``vrnn_music`` fits a VRNN to the same sets.
"""

import sys

import torch

import partita
from harness import show
from partita.datasets.open import Reading, load_sequences
from partita.models import Autoregressive

DATA = "polyphonic_music"
SETS = ("jsb_chorales", "nottingham", "piano_midi")
MINUTES = 5.0
# the fewer frames there are, the more
DROPOUT = {"jsb_chorales": 0.5, "nottingham": 0.2, "piano_midi": 0.3}
PUBLISHED = {"jsb_chorales": -4.74, "nottingham": -2.94}  # lower bounds, nats per frame


def run(minutes: float = MINUTES, names: tuple[str, ...] = SETS) -> None:
    """Fit on whole sequences, keep the weights that validate best, score the test sequences
    exactly.
    """
    for name in names:
        g = torch.Generator().manual_seed(0)
        data = load_sequences(f"{DATA}/{name}", Reading(length=None))
        train, test = data.train, data.test
        net = {
            "backbone": "lstm",
            "width": 128,
            "layers": 1,
            "expand": 2,
            "dropout": DROPOUT[name],
            "hidden": 200,
        }
        model = Autoregressive(train.longest, "binary", size=train.size, **net, generator=g)
        fitted = partita.fit(
            model, train, minutes=minutes, validation=data.valid, batch_size=8, generator=g
        )
        q = partita.evaluate(model, test, generator=g)
        found = {
            "nats_per_frame": q.details["per_step"],
            "kind": q.kind,
            "published_bound": PUBLISHED.get(name, "none"),
        }
        show(name, **found, frames=q.details["steps"], steps=fitted.steps, stopped=fitted.stopped)


if __name__ == "__main__":
    run(float(sys.argv[1]) if len(sys.argv) > 1 else MINUTES, tuple(sys.argv[2:]) or SETS)
