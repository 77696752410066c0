r"""What a function can be at most over a whole box: linear forms with a remainder, carried through
every operation of the function.

.. math:: f(x) \in c + \textstyle\sum_i g_i e_i + [-r, r] \quad \text{for all } e \in [-1, 1]^D,
          \qquad x = m + h \odot e
          (theory/scoring.md, eq. 5.14)

Linear operations are exact, bent ones keep their slope at c and add what they bend to r. So nothing
hides between the points at which a function was looked at. An operation without a rule raises
:class:`NoRule`; :func:`lower_bound` then gives None.

Letters: D coordinates, M boxes, c middle, g_i slopes, r remainder, R reach = sum_i |g_i| + r.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from partita.integration.enclosure import rules  # noqa: F401  fills the table
from partita.integration.enclosure.form import Form, NoRule


@torch.no_grad()
def lower_bound(f: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor | None:
    """Below which f ``(M, D) -> (M,)`` does not fall in each of M boxes, ``(M,)``; None where an
    operation in f has no rule.
    """
    half = 0.5 * (high - low)
    slopes = [half * axis for axis in torch.eye(low.shape[1], dtype=low.dtype, device=low.device)]
    try:
        out = f(Form([0.5 * (low + high), *slopes, torch.zeros_like(low)]))
    except (NoRule, NotImplementedError, TypeError, RuntimeError):
        return None
    if not isinstance(out, Form):
        return None
    return torch.nan_to_num(out.ends()[0], nan=-math.inf, posinf=math.inf, neginf=-math.inf)
