"""Energy models of the plane: exact test log-likelihood against the ceiling, and the learned
density beside the true one as a figure.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import partita
from harness import show
from partita.cli.output import write_png
from partita.datasets import load
from partita.datasets.toys import MOONS_NOISE, eight_gaussians_log_prob
from partita.experiment.saved import evaluate_encoded
from partita.families import FAMILIES
from partita.integration.quadrature import Box, cells
from partita.tables.encoding import Encoding

FAMILY_NAMES = ("latent-energy", "neural-energy")
PIXELS = 240
WINDOWS = {"8gaussians": ((-4.5, -4.5), (4.5, 4.5)), "moons": ((-1.6, -1.6), (2.6, 2.1))}
FIGURE = Path("toys_2d.png")


def moons_log_prob(x: Tensor, points: int = 4000) -> Tensor:
    """The density of scikit-learn's moons: normal noise around evenly spaced points of two half
    circles, ``(*, 2) -> (*)``.
    """
    angle = torch.linspace(0, math.pi, points, dtype=torch.float64)
    upper = torch.stack([angle.cos(), angle.sin()], -1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], -1)
    arcs, parts = torch.cat([upper, lower]), x.double().reshape(-1, 2).split(2048)
    total = torch.cat(
        [
            torch.logsumexp(-torch.cdist(part, arcs).square() / (2 * MOONS_NOISE**2), -1)
            for part in parts
        ]
    )
    return (total - math.log(2 * points * 2 * math.pi * MOONS_NOISE**2)).view(x.shape[:-1])


TRUTHS = {"8gaussians": eight_gaussians_log_prob, "moons": moons_log_prob}


def run() -> None:
    """Fit both families to both sets with the defaults of the command line; print the distance to
    the ceiling; draw.
    """
    rows = []
    for name, truth in TRUTHS.items():
        data = load(name)
        encoding = Encoding.fit(data.train, "real")
        assert data.test is not None
        test = data.test.tensor().double()
        ceiling = truth(test)
        panels = [picture(truth(pixels(name)))]
        for family in FAMILY_NAMES:
            g = torch.Generator().manual_seed(0)
            train = encoding.rows(data.train)
            model, objective = FAMILIES[family].build(train, {}, generator=g)
            started = time.perf_counter()
            partita.fit(model, train, objective, generator=g)
            spent = time.perf_counter() - started
            q = evaluate_encoded(model, encoding, test.numpy(), generator=g)
            gap = ceiling - q.details["rows"]
            show(
                f"{family} on {name}",
                nats=q.value,
                kind=q.kind,
                ceiling=float(ceiling.mean()),
                gap=float(gap.mean()),
                se=float(gap.std()) / math.sqrt(len(gap)),
                seconds=spent,
                target="gap at most 0.1",
            )
            density = evaluate_encoded(
                model, encoding, pixels(name).numpy(), evaluator=q.details["log_z"], generator=g
            ).details["rows"]
            panels.append(picture(density))
        rows.append(np.concatenate(panels, 1))
    write_png(FIGURE, np.concatenate(rows, 0))
    print(f"true, {', '.join(FAMILY_NAMES)}: {FIGURE.resolve()}")


def pixels(name: str) -> Tensor:
    """Centers of the pixels of a window, from the top left, row by row, ``(P^2, 2)``."""
    low, high = (torch.tensor(corner, dtype=torch.float64) for corner in WINDOWS[name])
    x = torch.cat(list(cells(Box(low, high), PIXELS))).view(PIXELS, PIXELS, 2)
    return x.transpose(0, 1).flip(0).reshape(-1, 2)


def picture(log_p: Tensor) -> np.ndarray:
    """A density as gray levels, dark where it is high."""
    p = log_p.exp().sqrt().view(PIXELS, PIXELS)
    return (255 * (1 - p / p.max())).numpy().astype(np.uint8)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    run()
