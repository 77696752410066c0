r"""The multilayer perceptron.

.. math:: f(x) = A_L\, a(\cdots a(A_1 x + d_1) \cdots) + d_L          (theory/latent.md, eq. 30.9)

Letters: D inputs, K outputs, a activation.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from partita.core.arguments import LARGEST, PositiveInt, Sizes, within
from partita.nets.base import ACTIVATIONS, Activation, Net, linear

aten = torch.ops.aten
# a gradient and the input of the activation, torch's own formulas
BACKWARD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "silu": aten.silu_backward,
    "tanh": lambda d, z: aten.tanh_backward(d, z.tanh()),
    "softplus": lambda d, z: aten.softplus_backward(d, z, 1, 20),
    "gelu": aten.gelu_backward,
    "relu": lambda d, z: aten.threshold_backward(d, z, 0),
}


class MLP(Net):
    """Linear layers with an activation between each two; it grows at most linearly, so that it can
    be part of an energy.

    Arguments:
        inputs: D.
        outputs: K.
        widths: Units of the layers between.
        activation: ``"silu"``, ``"tanh"``, ``"softplus"``, ``"gelu"`` or ``"relu"``.
        gain: Scale of the first weights, 1 for torch's own and sqrt(6) for those that keep signals
            alive (He et al. 2015); no setting of a saved network, whose weights are saved too.
        generator: Source of the first weights.

    >>> net = MLP(2, 3, widths=(8,), generator=torch.Generator().manual_seed(0))
    >>> net(torch.zeros(5, 2)).shape
    torch.Size([5, 3])
    """

    unsaved = ("gain",)

    def __init__(
        self,
        inputs: PositiveInt,
        outputs: PositiveInt,
        *,
        widths: Sizes = (64, 64),
        activation: Activation = "silu",
        gain: Annotated[float, within(0, LARGEST, open_low=True)] = 1.0,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.inputs, self.outputs, self.activation = inputs, outputs, activation
        layers: list[nn.Module] = []
        for before, after in pairwise((inputs, *widths, outputs)):
            layers += [linear(before, after, gain=gain, generator=generator)]
            layers += [ACTIVATIONS[activation]()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """f(x), ``(*, D) -> (*, K)``."""
        return self.layers(x)

    @torch.no_grad()
    def pullback(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """f(x), and d -> d' df/dx row by row: the chain rule written out, for samplers, which need
        it often and no more of autograd.
        """
        inputs = []
        value = x
        linears = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        for layer in linears[:-1]:
            inputs.append(functional.linear(value, layer.weight, layer.bias))
            value = self.layers[1](inputs[-1])

        @torch.no_grad()
        def pull(d: Tensor) -> Tensor:
            d = d @ linears[-1].weight
            for layer, z in zip(linears[-2::-1], inputs[::-1], strict=True):
                d = BACKWARD[self.activation](d, z) @ layer.weight
            return d

        return functional.linear(value, linears[-1].weight, linears[-1].bias), pull
