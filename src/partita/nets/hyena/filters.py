r"""Implicit long filters: a small network of the place t, under a window that fades.

.. math:: h_t = \mathrm{Window}(t) \cdot \mathrm{FFN}(\mathrm{PositionalEncoding}(t)), \qquad
    \mathrm{Window}(t) = e^{-t / \tau_d} + b
          (theory/sequences.md, eq. 23.5)

Nothing in it depends on the length: a longer filter begins with the values of a shorter
one.

Letters: N order, D width, L length, E size of the encoding, tau_d the time constant of a channel.
"""

import math
from itertools import pairwise
from typing import Annotated, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from partita.core.arguments import Depth, Moderate, PositiveInt, at_least, check_count
from partita.errors import invalid
from partita.nets.base import Net, linear
from partita.nets.ssm import log_spaced

LONGEST_PERIOD = 4096.0
BLOCK = 128  # steps of a window that share a factor


class Sine(nn.Module):
    """sin(w x) with a frequency of each unit that is learned: smooth filters with fine structure
    (Sitzmann et al. 2020).
    """

    def __init__(self, units: int, frequency: float, *, device: torch.device) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.full((units,), frequency, device=device))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.w * x)


class ImplicitFilter(Net):
    """N D filters of any length from one network of the place.

    Arguments:
        width: D.
        order: N.
        hidden: Units of each hidden layer.
        encoding: E, odd: a logarithm of the place and (E - 1) / 2 waves, with periods from 2 steps
            to 4096.
        frequency: Of the sine units at first.
        shortest, longest: Time constants of the windows at first, spaced over the channels.

    >>> filters = ImplicitFilter(2, 1, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(filters(5), filters(500)[..., :5], atol=1e-6)
    True
    """

    def __init__(
        self,
        width: PositiveInt,
        order: Depth,
        *,
        hidden: PositiveInt = 32,
        encoding: Annotated[int, at_least(3)] = 17,
        frequency: Moderate = 4.0,
        shortest: float = 4.0,
        longest: float = 512.0,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.width, self.order, self.encoding = width, order, encoding
        if encoding % 2 == 0:
            allowed = "be odd: a logarithm, and pairs of waves"
            raise invalid("ImplicitFilter", "encoding", allowed, encoding)
        device = generator.device
        layers: list[nn.Module] = []
        for a, b in pairwise((encoding, hidden, hidden)):
            layers.append(linear(a, b, generator=generator))
            layers.append(Sine(b, frequency, device=device))
        self.network = nn.Sequential(*layers, linear(hidden, order * width, generator=generator))
        like = torch.zeros(width, device=device)
        longevity = log_spaced("ImplicitFilter", shortest, longest, like)
        self.log_decay = nn.Parameter(-longevity.repeat(order))
        self.floor = nn.Parameter(torch.full((order * width,), 0.01, device=device))
        # about unit energy under each window, so that a deep stack neither fades nor explodes
        self.scale = nn.Parameter((2 * self.log_decay.detach().exp()).sqrt())
        self.direct = nn.Parameter(torch.ones(order * width, device=device))
        self._encoded: Tensor | None = None

    def forward(self, length: int) -> Tensor:
        """h, ``(N, D, L)``."""
        check_count("ImplicitFilter", "length", length)
        scale, last = self.scale[:, None], cast(nn.Linear, self.network[-1])
        places = self.network[:-1](self._encoding(length))
        # time is last
        values = torch.addmm(scale * last.bias[:, None], scale * last.weight, places.T)
        now = functional.pad(self.direct[:, None], (0, length - 1))
        return torch.addcmul(now, values, self.window(length)).view(self.order, self.width, length)

    def window(self, length: int) -> Tensor:
        """Window(t), ``(N D, L)``: the exponential as a product over blocks and over places within
        them, one of each pair per channel.
        """
        dtype = torch.float64 if self.scale.dtype == torch.float64 else torch.float32
        rate = self.log_decay.to(dtype).exp()[:, None]
        t = torch.arange(BLOCK, device=self.scale.device, dtype=dtype)
        blocks = BLOCK * torch.arange(-(-length // BLOCK), device=t.device, dtype=dtype)
        # past all digits, and products stay normal numbers: others are slow
        faded = 0.25 * math.log(torch.finfo(dtype).tiny)
        far, near = ((-rate * place).clamp_min(faded).exp() for place in (blocks, t))
        window = torch.baddbmm(self.floor.to(dtype)[:, None, None], far[:, :, None], near[:, None])
        return window.flatten(1)[:, :length].to(self.scale.dtype)

    def _encoding(self, length: int) -> Tensor:
        """The encoding of all places, which is kept until another length, dtype or device is
        met.
        """
        kept, like = self._encoded, self.scale
        if kept is None or (len(kept), kept.dtype, kept.device) != (
            length,
            like.dtype,
            like.device,
        ):
            with torch.inference_mode(False):  # training must be able to use it later
                kept = _encode(length, self.encoding, like.device).to(like.dtype)
            self._encoded = kept
        return kept


def _encode(length: int, size: int, device: torch.device) -> Tensor:
    """log(1 + t), and waves with periods on a logarithmic scale, (L, E) in float64."""
    t = torch.arange(length, device=device, dtype=torch.float64)
    period = torch.logspace(
        math.log10(2.0), math.log10(LONGEST_PERIOD), (size - 1) // 2, device=device, dtype=t.dtype
    )
    # the remainder first: no large angles to round
    angle = 2 * math.pi * (t[:, None] % period) / period
    return torch.cat([0.25 * torch.log1p(t)[:, None], angle.cos(), angle.sin()], -1)[:, :size]
