r"""A perceptron with masks: output i sees only inputs before i.

.. math:: o_i = d_i + \textstyle\sum_k V_{ik} a_k, \quad a = \phi\big((M \odot W) x + U c + e\big),
          \qquad
    M_{kj} = 1 \text{ if } m_k \ge j, \quad V_{ik} = 0 \text{ unless } m_k < i
          (theory/sequences.md, eq. 24.4)

Letters: D inputs, numbered from 1; K numbers for each output; H hidden units, unit k with degree
m_k; c context.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from partita.core.checks import check_count, check_counts
from partita.nets.base import Net, activation, linear

SOFT = 0.1


class MaskedLinear(nn.Module):
    """A linear layer whose weights are multiplied by a mask."""

    mask: Tensor

    def __init__(self, mask: Tensor, *, generator: torch.Generator) -> None:
        super().__init__()
        self.layer = linear(mask.shape[1], mask.shape[0], generator=generator)
        self.register_buffer("mask", mask.to(self.layer.weight), persistent=False)
        with torch.no_grad():  # as many inputs as there are, not as many as there might be
            self.layer.weight.mul_(
                (mask.shape[1] / self.mask.sum(1, keepdim=True).clamp_min(1)).sqrt()
            )

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.mask * self.layer.weight, self.layer.bias)

    @torch.no_grad()
    def soften(self) -> None:
        """Begin with small numbers: what is a mean or a log deviation is far off in units of a
        narrow normal soon.
        """
        for p in self.layer.parameters():
            p.mul_(SOFT)


class MaskedMLP(Net):
    """K numbers for each of D inputs, from the inputs before it (MADE, Germain et al. 2015) and a
    context that all may see.

    Arguments:
        inputs: D.
        outputs: K.
        widths: Hidden units of each layer.
        context: Size of c; 0 for none.
        activation: Of the hidden units.
        generator: Source of the first weights.

    >>> net = MaskedMLP(4, 2, widths=(8,), generator=torch.Generator().manual_seed(0))
    >>> net(torch.zeros(5, 4)).shape
    torch.Size([5, 4, 2])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        widths: Sequence[int] = (512,),
        context: int = 0,
        activation: str = "relu",
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.widths = check_counts("MaskedMLP", "widths", widths)
        for name, value in (("inputs", inputs), ("outputs", outputs), ("layers", len(self.widths))):
            check_count("MaskedMLP", name, value)
        self.inputs, self.outputs, self.activation = inputs, outputs, activation
        self.context = check_count("MaskedMLP", "context", context, 0)
        degrees, masks = torch.arange(1, inputs + 1), []
        for width in self.widths:
            following = degrees_of(width, inputs)
            masks, degrees = [*masks, following[:, None] >= degrees], following
        places = torch.arange(1, inputs + 1).repeat_interleave(outputs)
        self.hidden = nn.ModuleList(MaskedLinear(mask, generator=generator) for mask in masks)
        self.last = MaskedLinear(places[:, None] > degrees, generator=generator)
        self.direct = MaskedLinear(
            places[:, None] > torch.arange(1, inputs + 1), generator=generator
        )
        self.act = _activation(activation)
        if context:
            self.into_hidden = linear(context, self.widths[0], generator=generator)
            self.into_outputs = linear(context, inputs * outputs, generator=generator)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """``(*, D) -> (*, D, K)``."""
        a = self.hidden[0](x)
        a = self.act(a if context is None else a + self.into_hidden(context))
        for layer in self.hidden[1:]:
            a = self.act(layer(a))
        y = self.last(a) + self.direct(x)
        y = y if context is None else y + self.into_outputs(context)
        return y.unflatten(-1, (self.inputs, self.outputs))

    def settings(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "widths": list(self.widths),
            "context": self.context,
            "activation": self.activation,
        }


def degrees_of(width: int, inputs: int) -> Tensor:
    """How many inputs each unit may see, spread evenly from 1 to D - 1; 0 where there is but one
    input and nothing to see.
    """
    return (
        torch.zeros(width, dtype=torch.long)
        if inputs == 1
        else 1 + torch.arange(width) % (inputs - 1)
    )


def _activation(name: str) -> nn.Module:
    return activation("MaskedMLP", name)
