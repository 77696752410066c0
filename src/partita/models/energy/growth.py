r"""Is Z finite? What is added to a quadratic energy must grow slower than it.

.. math:: \frac{\log \|f(r_2 u)\| - \log \|f(r_1 u)\|}{\log r_2 - \log r_1} < 2 \quad \text{for large } r_1 < r_2
          (theory/latent.md, eq. 30.7)

No finite number of points can prove it; far points along random directions refute what is plainly too fast.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from partita.core import rng
from partita.core.errors import invalid

NEAR, FAR = 1e2, 1e3  # distances from zero between which growth is measured
FASTEST = 1.9
DIRECTIONS = 32
KEY = 811  # the directions are the same for every network


@torch.no_grad()
def check_growth(owner: str, parameter: str, f: Callable[[Tensor], Tensor], width: int, like: Tensor) -> None:
    """Refuse a network that grows as fast as x'x, or is not finite far out."""
    u = rng.normal((DIRECTIONS, width), torch.zeros((), dtype=torch.float64), rng.keyed(KEY, width)).to(like)
    u = u / u.norm(dim=-1, keepdim=True)
    near, far = (called(owner, parameter, f, r * u).double().flatten(1).norm(dim=-1) for r in (NEAR, FAR))
    if not torch.isfinite(near + far).all():
        raise invalid(owner, parameter, "be finite everywhere", f"nan or infinity at distance {FAR:g}", REMEDY)
    exponent = float((torch.log10(far.clamp_min(1.0)) - torch.log10(near.clamp_min(1.0))).max())
    if exponent > FASTEST:
        raise invalid(owner, parameter, "grow slower than x'x, else Z is infinite", f"growth like |x|^{exponent:.2g}", REMEDY)


@torch.no_grad()
def called(owner: str, parameter: str, f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """f(x); what a network cannot take is named before a fit meets it."""
    try:
        return f(x)
    except RuntimeError as error:
        got = f"an error for {tuple(x.shape)}: {str(error).strip().splitlines()[0]}"
        raise invalid(owner, parameter, f"take rows of {x.shape[-1]} columns", got, "Look at the size of its first layer.") from None


REMEDY = "Bound it, for example by a last activation such as tanh, or use partita.nets.MLP, which grows linearly."
