r"""How far below log p(x) a bound with latent variables lies: gaps between its two sides, and the
interval and verdict they allow.

.. math:: E[\log \hat p(x)] \le \log p(x) \le E[\log \hat p(x) \text{ with a posterior draw among
          its own}]
          (theory/latent_variables.md, eq. 41.10)

The upper side needs a draw z of p(z | x). Rows that the model draws come with one: their gap is
sure, but they lie where the model's draws do. On the rows themselves it is sought by restarts
(:func:`posterior_draws`): that gap is about the right rows, but as good as the search. The interval
reaches from the lower end of the bound up to the larger of the two, and is about log p(x) itself.

Letters: N rows, R posterior draws for each row.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import check_count
from partita.core.quantity import Quantity, Verdict, half_width
from partita.diagnostics.weights import verdict_on_reach
from partita.errors import Diverged
from partita.evaluators.latent_proposals import posterior_draws
from partita.evaluators.likelihood import per_step
from partita.models.directed.latent import ACTIVE
from partita.runtime import processes

LEAST_SIMULATED, MOST_SIMULATED = 100, 2000  # rows; between them as many as are scored
LEAST_SEARCHED, MOST_SEARCHED = 16, 64  # rows whose posterior is sought
SEARCH = 1200  # passes through the decoder that the search of a row is worth
DRAWS_OF_SEARCH = 128  # of the mixture that posterior draws are chosen from
POSTERIOR_DRAWS = 4  # R
CELLS = 1 << 21  # rows x draws x numbers at once
# (B, D) and (R, B, M) -> upper less lower side, (R, B)
Above = Callable[[Tensor, Tensor, torch.Generator], Tensor]


class Gap(NamedTuple):
    """Upper less lower side, on average over rows, with its standard error."""

    mean: float
    se: float

    def reach(self, se: float, level: float) -> float:
        """How far above the bound log p(x) may lie, at this level, with ``se`` the bound's own
        error.
        """
        found = max(self.mean, 0.0) + half_width(math.hypot(self.se, se), level)
        return math.inf if math.isnan(found) else found


def gap_of(each: Tensor) -> Gap:
    """Of gaps ``(R, B)``: the spread between rows holds the noise of their lower sides too, also
    where these are all the rows there are.

    A single row has that of its posterior draws, if they are several, beside the bound's own.
    """
    r, n = each.shape
    spread = each.mean(0) if n > 1 else each[:, 0]
    return Gap(
        float(each.mean()), float(spread.std()) / math.sqrt(len(spread)) if n * r > 1 else math.inf
    )


def stratified(each: Tensor, n: int, worst: int) -> Gap:
    """Of gaps ``(B,)`` of which the first ``worst`` stand for themselves, and the others for all
    that are left of ``n`` rows.
    """
    rest, left = each[worst:], n - worst
    if not len(rest):
        return gap_of(each[None])
    mean = (float(each[:worst].sum()) + left * float(rest.mean())) / n
    squares = (
        float((each[:worst] - mean).square().sum()) + left * float((rest - mean).square().mean())
    ) / n
    chosen = (
        (left / n) ** 2 * float(rest.var()) / len(rest) * (1 - len(rest) / left)
        if len(rest) > 1
        else squares
    )
    return Gap(mean, math.sqrt(squares / max(1, n - 1) + chosen))


class Known(NamedTuple):
    """Rows with draws of their posterior."""

    x: Tensor  # (B, D)
    z: Tensor  # (R, B, M)

    def gaps(self, above: Above, generator: torch.Generator) -> Tensor:
        """Upper less lower sides, ``(R, B)``, or several of them one after the other."""
        parts = processes.shared_out(
            len(self.x), lambda part, own: above(self.x[part], self.z[:, part], own), generator
        )
        return torch.cat(parts, 1)

    def some(self, index: Tensor) -> "Known":
        return Known(self.x[index], self.z[:, index])


def simulated_rows(model: Any, n: int, like: Tensor | None, generator: torch.Generator) -> Known:
    """``n`` rows of the model with the z behind them; they end, and have holes, where rows of
    ``like``, if given, do.
    """
    x, z = model.draw_joint(n, generator=generator)
    if like is None or (like.shape[1] == x.shape[1] and not like.isnan().any()):
        return Known(x, z[None])
    picked = like[(rng.uniform((n,), like, generator) * len(like)).long().clamp_max(len(like) - 1)]
    return Known(x[:, : like.shape[1]].masked_fill(picked.isnan(), torch.nan), z[None])


def auto_simulated(given: int | None, n: int, cost: int = 1) -> int:
    """As many rows as cost what the bound on ``n`` rows does, where one costs as much as ``cost``
    of them; within limits.

    >>> (
    ...     auto_simulated(None, 359),
    ...     auto_simulated(None, 10),
    ...     auto_simulated(None, 359, cost=2),
    ...     auto_simulated(7, 359),
    ... )
    (359, 100, 179, 7)
    """
    return max(LEAST_SIMULATED // cost, min(MOST_SIMULATED, n // cost)) if given is None else given


def check_simulated(owner: str, simulated: int | None) -> None:
    if simulated is not None:
        check_count(owner, "simulated", simulated, 0)


def searched(model: Any, x: Tensor, draws: int, generator: torch.Generator) -> Known:
    """Some of the rows, and posterior draws that were sought; as many rows as cost what ``draws``
    for every row do, within limits.
    """
    n = min(len(x), max(LEAST_SEARCHED, min(MOST_SEARCHED, len(x) * draws // SEARCH)))
    rows = x[rng.permutation(len(x), generator)[:n].to(x.device)]
    size = max(1, CELLS // (DRAWS_OF_SEARCH * (x.shape[1] + model.live(x[:1]).shape[1])))
    width = model.live(rows).shape[1]

    def of(part: slice, own: torch.Generator) -> Tensor:
        found = [
            posterior_draws(model, some, POSTERIOR_DRAWS, DRAWS_OF_SEARCH, own)
            for some in rows[part].split(size)
        ]
        # some end before the longest
        return torch.cat([torch.nn.functional.pad(z, (0, width - z.shape[-1])) for z in found], 1)

    return Known(rows, torch.cat(processes.shared_out(n, of, generator), 1))


class Bound(NamedTuple):
    """A mean over rows that errs low: its rows, the error of the mean, and what caps the
    verdict.
    """

    rows: Tensor  # (N,), float64
    se: float
    cap: Verdict


def conclude(
    model: Any,
    x: Tensor,
    bound: Bound,
    gaps: dict[str, Gap],
    level: float,
    method: str,
    details: dict[str, Any],
) -> Quantity:
    """The bound with an interval for log p(x), and the verdict on it; without gaps the interval is
    the bound's own, and not trusted.
    """
    rows, n = bound.rows, len(bound.rows)
    value = float(rows.mean())
    spread = float(rows.std()) / math.sqrt(n) if n > 1 else 0.0
    half = half_width(bound.se, level)
    high = max([half, *(gap.reach(bound.se, level) for gap in gaps.values())])
    verdict = verdict_on_reach(high, bound.cap) if gaps else "do not publish"
    text = {
        "rows": rows,
        **per_step(model, x, rows),
        **latent_use(model, x),
        **details,
        **{name: gap.mean for name, gap in gaps.items()},
    }
    return Quantity(
        value,
        value - half,
        value + high,
        level,
        "lower",
        "nats",
        method,
        n,
        spread,
        verdict,
        "low",
        text,
    )


def check_weights(model: Any, rows: Tensor) -> None:
    """Raise :class:`Diverged` where the logarithm of a row is not finite."""
    lost = int((~torch.isfinite(rows)).sum())
    if lost:
        remedy = "Fit it again with a lower learning_rate."
        raise Diverged(
            f"evaluate: the weights of {model.title()} must be finite; they are not at {lost} "
            f"rows. {remedy}"
        )


@torch.no_grad()
def latent_use(model: Any, x: Tensor) -> dict[str, Any]:
    """Which latent dimensions carry anything about these rows, where the model can say."""
    if not hasattr(model, "kl_per_dimension"):
        return {}
    kl = model.kl_per_dimension(x).double().mean(0)
    return {"kl_per_dimension": kl, "active_units": int((kl.abs() > ACTIVE).sum())}
