"""What two processes find together about latent-variable models, each running this file; see
``test_latent_processes.py``.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from tests.gloo import one_of_two
from torch import Tensor

import partita
from partita.errors import Diverged
from partita.evaluators import IWAE, LatentAIS, ParticleFilter
from partita.models import VAE, VRNN
from partita.runtime import processes
from partita.samplers import HMC

warnings.simplefilter("ignore")
FIXED: dict[str, Any] = {"kernel": HMC(step_size=0.5, leapfrogs=4, warm_up=0), "adaptive": False}
EVALUATORS: dict[str, Any] = {
    "IWAE": IWAE(40, simulated=41),
    "its own error": IWAE(40, simulated=0),  # of the encoder's draws alone
    "by row": IWAE(8, by_row=True),
    "LatentAIS": LatentAIS(20, 7, simulated=41, **FIXED),
    "piloted": LatentAIS(10, 4, kernel=FIXED["kernel"]),
    "ParticleFilter": ParticleFilter(16, repeats=4),
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def decoder(seed: int = 0) -> VAE:
    """Bends far from linear; its encoder was never fitted."""
    made = VAE(4, 1, widths=(5,), generator=seeded(seed)).double()
    with torch.no_grad():
        for p in made.decoder.parameters():
            p.mul_(3)
    return made


def rows() -> Tensor:
    """An odd number, so that the shares differ."""
    return decoder().support.states(0, 15, torch.zeros((), dtype=torch.float64))


def sequences() -> Tensor:
    """Of different lengths, NaN from the end of a row on."""
    x = (torch.rand(13, 6, generator=seeded(3)) < 0.5).float()
    x[::3, 4:] = torch.nan
    return x


def evaluated(name: str, fabric: Any = None, seed: int = 5) -> Any:
    if name == "ParticleFilter":
        model, x = VRNN(6, latent=2, hidden=4, features=4, generator=seeded()), sequences()
    else:
        model, x = decoder(), rows()[:5] if name == "piloted" else rows()
    return partita.evaluate(
        model, x, evaluator=EVALUATORS[name], fabric=fabric, generator=seeded(seed)
    )


def one_row(fabric: Any) -> Any:
    """Fewer rows than processes."""
    return partita.evaluate(
        decoder(), rows()[:1], evaluator=IWAE(30), fabric=fabric, generator=seeded()
    )


def raised_by_one(fabric: Any) -> str:
    """What each process hears of an error that one of them meets."""

    def work(part: slice, _: torch.Generator) -> int:
        if part.start:
            raise Diverged("the second part went wrong")
        return part.stop

    with processes.together(fabric):
        try:
            processes.shared_out(5, work, seeded())
        except Diverged as error:
            return str(error)
    return ""


def run(_: Path, fabric: Fabric) -> dict[str, Any]:
    seen = {name: evaluated(name, fabric) for name in EVALUATORS}
    again = [evaluated("its own error", fabric, seed) for seed in range(20)]
    return {
        "seen": seen,
        "again": again,
        "one row": one_row(fabric),
        "raised": raised_by_one(fabric),
    }


if __name__ == "__main__":
    one_of_two(run)
