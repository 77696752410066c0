"""The sets that come with the library: scikit-learn's digits and the toys."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from partita.core.rng import keyed
from partita.datasets import toys
from partita.tables.arrays import Splits

TOY_ROWS = 10_000
TOY_KEY = 1
GRAY = 16.0  # the largest gray level of the digits


@dataclass(frozen=True)
class Maker:
    """How to make a built-in set, and its line in the listing."""

    make: Callable[[], Splits]
    size: str
    note: str


def _digits(gray: bool) -> Splits:
    from sklearn.datasets import load_digits

    x = np.asarray(load_digits(return_X_y=True)[0])
    values = x.astype(np.float32) if gray else (x > GRAY / 2 - 0.5).astype(np.uint8)
    scale = GRAY if gray else None
    return Splits(values, note=DIGITS_NOTE, shape=(8, 8), scale=scale)


def _bars_and_stripes() -> Splits:
    x = toys.bars_and_stripes(4).numpy().astype(np.uint8)
    entropy = toys.bars_and_stripes_entropy(4)
    return Splits(x, test=x, note=BARS_NOTE, shape=(4, 4), entropy=entropy)


def _plane(draw: Callable[..., torch.Tensor], entropy: Callable[[], float] | None = None) -> Splits:
    train, test = (draw(TOY_ROWS, generator=keyed(TOY_KEY, part)).numpy() for part in range(2))
    known = None if entropy is None else entropy()
    return Splits(train, test=test, note="generated", entropy=known)


DIGITS_NOTE = "8 x 8 handwritten digits of scikit-learn (UCI, CC BY 4.0)"
BARS_NOTE = "all 4 x 4 patterns of full columns or full rows; train and test are the same rows"

BUILTIN = {
    "digits": Maker(
        partial(_digits, False), "1797 x 64", f"{DIGITS_NOTE}, cut at half gray to binary"
    ),
    "digits-gray": Maker(
        partial(_digits, True), "1797 x 64", f"{DIGITS_NOTE}, gray levels 0 to 16"
    ),
    "bars-and-stripes": Maker(_bars_and_stripes, "32/32 x 16", BARS_NOTE),
    "moons": Maker(partial(_plane, toys.moons), "10000/10000 x 2", "two noisy half circles"),
    "8gaussians": Maker(
        partial(_plane, toys.eight_gaussians, toys.eight_gaussians_entropy),
        "10000/10000 x 2",
        "eight normal distributions on a circle",
    ),
    "checkerboard": Maker(
        partial(_plane, toys.checkerboard, lambda: toys.CHECKERBOARD_ENTROPY),
        "10000/10000 x 2",
        "uniform on eight squares",
    ),
}
