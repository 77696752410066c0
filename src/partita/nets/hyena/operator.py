r"""The Hyena operator of order N: N long convolutions, N gates.

.. math:: z^1 = v, \quad z^{n+1}_t = x^n_t \, (h^n * z^n)_t, \quad y = z^{N+1}
    \quad\Longleftrightarrow\quad y = D_x^N S_h^N \cdots D_x^1 S_h^1 \, v
          (theory/sequences.md, eq. 23.4)

Letters: B batch, L length, D width, N order; v, x^1 ... x^N projections of u; h^1 ... h^N filters;
D_x diagonal, S_h Toeplitz.
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from partita.core.arguments import Depth, PositiveInt, check_count
from partita.core.protocols import Settings
from partita.errors import invalid
from partita.nets.base import Options, linear
from partita.nets.fftconv import Toeplitz, causal_convolution, spectrum
from partita.nets.hyena.filters import ImplicitFilter
from partita.nets.mixer import MatrixMixer, channels_first, check_capacity
from partita.nets.short import depthwise_causal, short_filters


class HyenaState(NamedTuple):
    """What exact decoding remembers: inputs of the short filters, and every z so far."""

    recent: Tensor  # (B, (N + 1) D, K - 1)
    past: Tensor  # (N, B, D, capacity)
    reversed: Tensor  # the filters, last value first, (N, D, capacity)
    steps: int


class Hyena(MatrixMixer[HyenaState]):
    """Gated long convolutions at O(N L log L), ``(B, L, D) -> (B, L, D)``.

    Arguments:
        width: D.
        order: N, at least 1.
        kernel: K, length of the short filter of each projection.
        max_length: The longest sequence to accept, if it is to be declared; no value of a filter
            depends on it.
        filter: Settings of :class:`ImplicitFilter`, as a dict.
        generator: Source of the first weights.

    >>> op = Hyena(8, 2, generator=torch.Generator().manual_seed(0))
    >>> op(torch.zeros(1, 100, 8)).shape, op.dense(torch.zeros(1, 5, 8)).shape
    (torch.Size([1, 100, 8]), torch.Size([1, 8, 5, 5]))
    """

    def __init__(
        self,
        width: PositiveInt,
        order: Depth = 2,
        *,
        kernel: PositiveInt = 3,
        max_length: PositiveInt | None = None,
        filter: Options = None,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.width, self.order, self.kernel, self.max_length = width, order, kernel, max_length
        self.into = linear(width, (order + 1) * width, generator=generator)
        self.short = nn.Parameter(short_filters((order + 1) * width, kernel, generator))
        try:
            self.filters = ImplicitFilter(width, order, **(filter or {}), generator=generator)
        except TypeError as error:
            allowed = "be settings of ImplicitFilter"
            raise invalid("Hyena", "filter", allowed, filter, f"({error})") from None
        self.out = linear(width, width, generator=generator)
        # parameters of the filters, and what they made
        self._kept: tuple[list[Tensor], Tensor, Tensor] | None = None

    def project(self, u: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """v, then the gates x^1 ... x^N, then all filters and their transforms: Algorithms 1 and 2
        of the notes.
        """
        self.check_length(u.shape[1])
        parts = zip(
            *(x.chunk(self.order + 1) for x in (self.into.weight, self.into.bias, self.short)),
            strict=True,
        )
        v, *gates = (
            depthwise_causal(channels_first(weight, bias, u), short)
            for weight, bias, short in parts
        )
        return v, (*gates, *self.filters_and_spectra(u.shape[1]))

    def filters_and_spectra(self, length: int) -> tuple[Tensor, Tensor]:
        """h and its transforms, ``(N, D, L), (N, D, F)``; without gradients both are kept until
        another length or parameter is met.
        """
        if torch.is_grad_enabled():
            h = self.filters(length)
            return h, spectrum(h, length)
        made_of = [*self.filters.parameters(), *self.filters.buffers()]
        kept = self._kept
        if kept is None or kept[1].shape[-1] != length or not _same(made_of, kept[0]):
            h = self.filters(length)
            kept = ([x.detach().clone() for x in made_of], h, spectrum(h, length))
            self._kept = kept
        return kept[1:]

    def operate(self, v: Tensor, gates: tuple[Tensor, ...]) -> Tensor:
        """Algorithm 3 of the notes."""
        *gates_x, filters, spectra = gates
        for x, h, H in zip(gates_x, filters, spectra, strict=True):
            v = x * causal_convolution(h, v, H)
        return v

    def matrix(self, gates: tuple[Tensor, ...], length: int) -> Tensor:
        *gates_x, filters, _ = gates
        product = torch.eye(length, dtype=filters.dtype, device=filters.device)
        for x, h in zip(gates_x, filters, strict=True):
            product = x.unsqueeze(-1) * (Toeplitz(h).dense() @ product)
        return product

    def start(self, batch: int, capacity: int) -> HyenaState:
        self.check_length(check_count("Hyena", "capacity", capacity))
        filters = self.filters(capacity)
        recent = filters.new_zeros(batch, (self.order + 1) * self.width, self.kernel - 1)
        past = filters.new_zeros(self.order, batch, self.width, capacity)
        return HyenaState(recent, past, filters.flip(-1).contiguous(), 0)

    def step(self, u: Tensor, state: HyenaState) -> tuple[Tensor, HyenaState]:
        """O(N D t): one scalar product with the past per channel and order."""
        t, capacity = state.steps, state.reversed.shape[-1]
        check_capacity(t, capacity, "Hyena")
        near = torch.cat([state.recent, self.into(u).unsqueeze(-1)], -1)
        v, *gates = (near * self.short).sum(-1).chunk(self.order + 1, 1)
        for n, x in enumerate(gates):
            state.past[n, :, :, t] = v
            v = x * torch.einsum(
                "bdl,dl->bd", state.past[n, :, :, : t + 1], state.reversed[n, :, capacity - t - 1 :]
            )
        return self.out(v), state._replace(recent=near[..., 1:], steps=t + 1)

    def check_length(self, length: int) -> None:
        """Refuse what is longer than declared; nothing is cut."""
        if self.max_length is not None and length > self.max_length:
            remedy = "Give a larger max_length: it changes no value of the filters."
            allowed = f"have at most max_length = {self.max_length} steps"
            raise invalid("Hyena", "u", allowed, length, remedy)

    def settings(self) -> Settings:
        filters = self.filters.settings()
        del filters["width"], filters["order"]
        return {**super().settings(), "filter": filters}


def _same(now: list[Tensor], before: list[Tensor]) -> bool:
    """Whether tensors, at least one, hold the same numbers in the same dtype and place as before;
    nan is never the same.
    """
    alike = len(now) == len(before) > 0 and all(
        a.dtype == b.dtype and a.device == b.device for a, b in zip(now, before, strict=True)
    )
    return alike and all(map(torch.equal, now, before))
