r"""Is Z finite? What is added to a quadratic energy Q may rise as it likes; it may not fall faster
than Q rises.

.. math:: \frac{\log (-g(r_2 u))_+ - \log (-g(r_1 u))_+}{\log r_2 - \log r_1} < 2
          \quad\text{or}\quad
          g(r_2 u) + Q(r_2 u) > g(r_1 u) + Q(r_1 u) \qquad \text{for large } r_1 < r_2
          (theory/latent.md, eq. 30.7)

No finite number of points can prove it; far points along random directions refute what plainly
falls too fast, and goes on falling.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from partita.core import rng
from partita.errors import invalid

NEAR, FAR, FARTHEST = 1e2, 1e3, 1e4  # distances from zero between which growth is measured
FASTEST = 1.9
DIRECTIONS = 32
KEY = 811  # the directions are the same for every network

Energy = Callable[[Tensor], Tensor]


@torch.no_grad()
def check_growth(
    owner: str, parameter: str, added: Energy, quadratic: Energy, width: int, like: Tensor
) -> None:
    """Refuse a network that lowers the energy faster than x'x raises it, or is not a number far
    out; what rises is welcome.
    """
    u = rng.normal(
        (DIRECTIONS, width), torch.zeros((), dtype=torch.float64), rng.keyed(KEY, width)
    ).to(like)
    u = u / u.norm(dim=-1, keepdim=True)
    near, far = (called(owner, parameter, added, r * u).double() for r in (NEAR, FAR))
    if bool(((near + far).isnan() | (torch.minimum(near, far) == -torch.inf)).any()):
        raise invalid(
            owner,
            parameter,
            "give a number everywhere",
            f"nan or minus infinity at distance {FAR:g}",
            REMEDY,
        )
    exponent = torch.log10((-far).clamp_min(1.0)) - torch.log10((-near).clamp_min(1.0))
    at_near, at_far, at_farthest = (
        called(owner, parameter, added, r * u).double() + quadratic(r * u)
        for r in (NEAR, FAR, FARTHEST)
    )
    falls = (at_far < at_near) & (at_farthest < at_far) & (exponent > FASTEST)
    if bool(falls.any()):
        got = f"an energy that falls like -|x|^{float(exponent[falls].max()):.2g}"
        raise invalid(
            owner,
            parameter,
            "not lower the energy faster than x'x raises it, else Z is infinite",
            got,
            REMEDY,
        )


@torch.no_grad()
def called(owner: str, parameter: str, f: Energy, x: Tensor) -> Tensor:
    """f(x); what a network cannot take is named before a fit meets it."""
    try:
        return f(x)
    except RuntimeError as error:
        got = f"an error for {tuple(x.shape)}: {str(error).strip().splitlines()[0]}"
        raise invalid(
            owner,
            parameter,
            f"take rows of {x.shape[-1]} columns",
            got,
            "Look at the size of its first layer.",
        ) from None


REMEDY = "Bound it from below, or use partita.nets.MLP, which grows linearly."
