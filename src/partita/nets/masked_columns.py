r"""A masked perceptron whose columns take in, and are given, different numbers of numbers: what
column i is given sees columns before i.

.. math:: o_i = d_i + \sum_k V_{ik} a_k, \quad a = \phi\big((M \odot W) e(x) + b\big), \qquad
          M_{kj} = 1 \text{ if } m_k \ge c_j, \quad V_{ik} = 0 \text{ unless } m_k < i
          (theory/mixed_tables.md, eq. 45.6)

Letters: D columns, e(x) what goes in, number j of it from column c_j; hidden unit k with degree
m_k.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from partita.core.checks import check_count, check_counts
from partita.nets.base import Net, activation
from partita.nets.masked import MaskedLinear, degrees_of


class MaskedColumns(Net):
    """As :class:`partita.nets.masked.MaskedMLP`, with ``inputs`` and ``outputs`` of each column in
    place of one number for all.

    >>> net = MaskedColumns([1, 3], [2, 3], widths=(8,), generator=torch.Generator().manual_seed(0))
    >>> [part.shape[1] for part in net(torch.zeros(5, 4))]
    [2, 3]
    """

    def __init__(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        widths: Sequence[int] = (512,),
        activation: str = "relu",
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        for name, values in (("inputs", inputs), ("outputs", outputs), ("widths", widths)):
            check_count("MaskedColumns", name, len(check_counts("MaskedColumns", name, values)))
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.widths = tuple(widths)
        self.activation = activation
        before, after = (
            torch.repeat_interleave(torch.arange(1, len(sizes) + 1), torch.tensor(sizes))
            for sizes in (inputs, outputs)
        )
        degrees, masks = before, []
        for width in self.widths:
            following = degrees_of(width, len(inputs))
            masks, degrees = [*masks, following[:, None] >= degrees], following
        self.hidden = nn.ModuleList(MaskedLinear(mask, generator=generator) for mask in masks)
        self.last = MaskedLinear(after[:, None] > degrees, generator=generator)
        self.direct = MaskedLinear(after[:, None] > before, generator=generator)
        self.act = _activation(activation)

    def forward(self, e: Tensor) -> tuple[Tensor, ...]:
        """``(*, sum of inputs)`` to as many numbers for each column as it is given."""
        a = e
        for layer in self.hidden:
            a = self.act(layer(a))
        return (self.last(a) + self.direct(e)).split(self.outputs, -1)

    def biases(self) -> tuple[Tensor, ...]:
        """What each column is given before anything is seen; views, to be set."""
        return self.last.layer.bias.split(self.outputs)

    def settings(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "widths": list(self.widths),
            "activation": self.activation,
        }


def _activation(name: str) -> nn.Module:
    return activation("MaskedColumns", name)
