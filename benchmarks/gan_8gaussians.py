"""GANs on eight Gaussians: modes found, share of draws within three deviations of one, seconds;
several losses, three seeds, as they come.

``SEEDS=1`` in the environment makes it a third as long.
"""

import os
import time

import torch

import partita
from harness import show
from partita.datasets import load
from partita.datasets.toys import RADIUS, SPREAD
from partita.divergences.samples import modes_covered
from partita.models import GAN
from partita.objectives import Adversarial
from partita.tables.encoding import Encoding

STEPS, BATCH = 8000, 250
LOSSES = {
    "non-saturating, penalty": Adversarial(),
    "Jensen-Shannon, penalty": Adversarial("jensen-shannon"),
    "Jensen-Shannon, no bound": Adversarial("jensen-shannon", "none"),
    "minimax of the notes, no bound": Adversarial("minimax", "none"),
    "Wasserstein, penalty": Adversarial("wasserstein", critic_steps=3),
    "Wasserstein, spectral norm": Adversarial("wasserstein", "spectral", critic_steps=3),
}
SEEDS = int(os.environ.get("SEEDS", "3"))


def centers() -> torch.Tensor:
    """Where the modes are."""
    angle = torch.arange(8) * torch.pi / 4
    return RADIUS * torch.stack([angle.cos(), angle.sin()], -1)


def run() -> None:
    """Fit each and count."""
    data = load("8gaussians")
    encoding = Encoding.fit(data.train, "real")
    train = encoding.rows(data.train)
    for name, objective in LOSSES.items():
        for seed in range(SEEDS):
            g = torch.Generator().manual_seed(seed)
            model, started = GAN(2, generator=g), time.perf_counter()
            record = partita.fit(
                model, train, objective, steps=STEPS, batch_size=BATCH, generator=g
            ).history[-1]
            spent = time.perf_counter() - started
            draws = torch.from_numpy(
                encoding.decode(model.draw(10_000, generator=g).double().numpy())
            )
            modes, near = modes_covered(draws, centers().double(), 3 * SPREAD)
            audit = {key: record[key] for key in ("wasserstein", "dual_over_lipschitz", "coverage")}
            show(
                name,
                seed=seed,
                modes=modes,
                within_3_sd=near,
                seconds=spent,
                **audit,
                target="8 modes, at least 0.9, within 180 s",
            )


if __name__ == "__main__":
    run()
