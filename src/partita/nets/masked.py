r"""A perceptron with masks: output i sees only inputs before i.

.. math:: o_i = d_i + \textstyle\sum_k V_{ik} a_k, \quad a = \phi\big((M \odot W) x + U c + e\big),
          \qquad
    M_{kj} = 1 \text{ if } m_k \ge j, \quad V_{ik} = 0 \text{ unless } m_k < i
          (theory/sequences.md, eq. 24.4)

A column may also take in, and be given, several numbers; it then sees those of columns before it.

Letters: D inputs, numbered from 1; K numbers for each output; H hidden units, unit k with degree
m_k; c context.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from partita.core.arguments import NonNegativeInt, PositiveInt, Sizes, check_count
from partita.nets.base import ACTIVATIONS, Activation, Net, linear

SOFT = 0.1


class MaskedLinear(nn.Module):
    """A linear layer whose weights are multiplied by a mask."""

    mask: Tensor

    def __init__(self, mask: Tensor, *, generator: Generator) -> None:
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


class _Masked(Net):
    """Columns with several inputs and outputs each, of which each sees those before it."""

    into_hidden: nn.Linear  # where there is a context
    into_outputs: nn.Linear

    def _set(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        widths: Sequence[int],
        activation: str,
        generator: Generator,
    ) -> None:
        before, after = (
            torch.arange(1, len(sizes) + 1).repeat_interleave(torch.tensor(sizes))
            for sizes in (inputs, outputs)
        )
        self.hidden, degrees = nn.ModuleList(), before
        for width in widths:
            # inputs that each unit may see, spread evenly from 1 to D - 1; none of a single one
            following = 1 + torch.arange(width) % max(1, len(inputs) - 1)
            following = following if len(inputs) > 1 else torch.zeros_like(following)
            self.hidden.append(MaskedLinear(following[:, None] >= degrees, generator=generator))
            degrees = following
        self.last = MaskedLinear(after[:, None] > degrees, generator=generator)
        self.direct = MaskedLinear(after[:, None] > before, generator=generator)
        self.act = ACTIVATIONS[activation]()

    def numbers(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """The numbers of all columns side by side, ``(*, sum of inputs) -> (*, sum of
        outputs)``.
        """
        a = self.hidden[0](x)
        a = self.act(a if context is None else a + self.into_hidden(context))
        for layer in self.hidden[1:]:
            a = self.act(layer(a))
        y = self.last(a) + self.direct(x)
        return y if context is None else y + self.into_outputs(context)


class MaskedMLP(_Masked):
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
        inputs: PositiveInt,
        outputs: PositiveInt,
        *,
        widths: Sizes = (512,),
        context: NonNegativeInt = 0,
        activation: Activation = "relu",
        generator: Generator,
    ) -> None:
        super().__init__()
        check_count("MaskedMLP", "layers", len(widths))
        self.inputs, self.outputs = inputs, outputs
        self._set([1] * inputs, [outputs] * inputs, widths, activation, generator)
        if context:
            self.into_hidden = linear(context, widths[0], generator=generator)
            self.into_outputs = linear(context, inputs * outputs, generator=generator)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """``(*, D) -> (*, D, K)``."""
        return self.numbers(x, context).unflatten(-1, (self.inputs, self.outputs))


class MaskedColumns(_Masked):
    """As :class:`MaskedMLP`, with ``inputs`` and ``outputs`` of each column in place of one number
    for all (theory/mixed_tables.md, eq. 45.6).

    >>> net = MaskedColumns([1, 3], [2, 3], widths=(8,), generator=torch.Generator().manual_seed(0))
    >>> [part.shape[1] for part in net(torch.zeros(5, 4))]
    [2, 3]
    """

    def __init__(
        self,
        inputs: Sizes,
        outputs: Sizes,
        *,
        widths: Sizes = (512,),
        activation: Activation = "relu",
        generator: Generator,
    ) -> None:
        super().__init__()
        for name, values in (("inputs", inputs), ("outputs", outputs), ("widths", widths)):
            check_count("MaskedColumns", name, len(values))
        self.outputs = list(outputs)
        self._set(inputs, outputs, widths, activation, generator)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """``(*, sum of inputs)`` to the numbers of each column."""
        return self.numbers(x).split(self.outputs, -1)

    def biases(self) -> tuple[Tensor, ...]:
        """What each column gets before anything is seen; views, to be set."""
        return self.last.layer.bias.split(self.outputs)
