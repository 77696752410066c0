"""The README's picture: held-out digits on the left, draws from an RBM fitted to the others on the
right.
"""

from pathlib import Path

import numpy as np
import torch

import partita
from partita.cli.output import write_png
from partita.datasets import load
from partita.models import RBM
from partita.report.images import sheet
from partita.samplers import Gibbs

ACROSS, ZOOM, GAP = 10, 5, 4


def main() -> None:
    """Fit, draw, and write ``demo.png`` beside this file."""
    g = torch.Generator().manual_seed(0)
    data = load("digits")
    model = RBM(64, 64, generator=g)
    partita.fit(model, data.train, epochs=300, progress=True, generator=g)
    print(partita.evaluate(model, data.test.tensor(), generator=g))
    draws = partita.sample(model, ACROSS**2, sampler=Gibbs(), burn_in=5000, generator=g)
    pages = [sheet(rows.numpy(), (8, 8)) for rows in (data.test.tensor()[: ACROSS**2], draws)]
    blank = np.full((pages[0].shape[0], GAP), 255, np.uint8)
    page = np.concatenate([pages[0], blank, pages[1]], 1)
    write_png(Path(__file__).with_name("demo.png"), np.kron(page, np.ones((ZOOM, ZOOM), np.uint8)))


if __name__ == "__main__":
    main()
