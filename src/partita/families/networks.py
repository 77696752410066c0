"""Networks by name for the families that take one: perceptrons, and convolutions along the places
of a row.

Letters: C channels, (L,) or (I, J) places of a row.
"""

import math
from collections.abc import Iterable
from math import prod

import torch

from partita.core.arguments import check_layers
from partita.core.protocols import Settings
from partita.errors import invalid
from partita.families.base import Setting
from partita.nets import MLP, ConvNet, Net

CHOICE = Setting("mlp", "mlp, or conv for images and sequences", ("mlp", "conv"))
IMAGE = Setting(
    None,
    "[height, width] or [length] of a row (conv); none takes a square image, and a sequence where "
    "columns make no square",
)
NETWORK = {
    "network": CHOICE,
    "width": Setting(64, "units of each layer (mlp)"),
    "n_layers": Setting(2, "layers (mlp)"),
    "activation": Setting("silu", "silu, tanh, softplus, gelu or relu"),
    "channels": Setting([16, 32], "of convolutions, each followed by pooling (conv)"),
    "image": IMAGE,
    "pool": Setting("average", "max, average or none (conv)"),
    "separable": Setting(False, "depthwise separable convolutions (conv)"),
}


def network(settings: Settings, inputs: int, outputs: int, generator: torch.Generator) -> Net:
    """The network that a family's settings describe, from rows of ``inputs`` columns to ``outputs``
    numbers.

    >>> g = torch.Generator().manual_seed(0)
    >>> usual = {name: setting.default for name, setting in NETWORK.items()}
    >>> (
    ...     type(network(usual, 64, 1, g)).__name__,
    ...     network({**usual, "network": "conv"}, 64, 1, g).shape,
    ... )
    ('MLP', (8, 8))
    """
    if settings["network"] == "conv":
        shape = image_shape(inputs, settings["image"])
        chosen = {name: settings[name] for name in ("channels", "pool", "separable", "activation")}
        return ConvNet(shape, outputs, depth=inputs // prod(shape), **chosen, generator=generator)
    widths = (settings["width"],) * check_layers("network", "n_layers", settings["n_layers"], 0)
    return MLP(
        inputs,
        outputs,
        widths=widths,
        activation=settings["activation"],
        gain=math.sqrt(6),
        generator=generator,
    )


def image_shape(width: int, image: Iterable[int] | None) -> tuple[int, ...]:
    """The places of a row as they are given, each with the same number of channels; else a square,
    else a sequence.

    >>> image_shape(784, None), image_shape(10, None), image_shape(3 * 784, [28, 28])
    ((28, 28), (10,), (28, 28))
    """
    if image is None:
        side = math.isqrt(width)
        return (side, side) if side * side == width else (width,)
    shape = tuple(image)
    if not all(isinstance(n, int) and n > 0 for n in shape) or width % prod(shape):
        allowed = f"be sizes whose product divides the {width} columns"
        raise invalid("network", "image", allowed, list(shape))
    return shape
