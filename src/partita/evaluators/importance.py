r"""log p(x) of latent-variable models by importance sampling from the encoder: a lower bound in expectation, tighter with every draw.

.. math:: \log \hat p_k(x) = \log \frac1k \sum_{i=1}^k w_i, \qquad E[\log \hat p_k(x)] \le \log p(x)
          (theory/latent_variables.md, eq. 41.6)

For rows that the model itself draws, the z behind each is a draw from the exact posterior: with it as one of the k the same average errs
high (41.10). The two sides of simulated rows enclose their log-likelihood, and the gap between them says how loose the bound can be.
Processes that work together share out the rows.

Letters: N rows, k draws for each, w weights.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

import torch
from torch import Tensor

from partita.core import capability, processes, rng
from partita.core.checks import check_count, check_flag, check_level
from partita.core.errors import Diverged
from partita.core.quantity import Quantity, Verdict, half_width
from partita.diagnostics.weights import GAP_LOOSE, GAP_TIGHT, MIN_ESS
from partita.evaluators.likelihood import per_step
from partita.models.directed.latent import ACTIVE

CELLS = 1 << 22  # rows x draws x columns at once


class Sums(NamedTuple):
    """What k weights of each row say: their log mean, and how many of them carry it."""

    log_mean: Tensor  # (N,), float64
    ess: Tensor  # (N,)
    log_half: Tensor  # (N,), the log mean of the first half alone

    def variance(self, k: int) -> Tensor:
        """Of each log mean, by the delta method."""
        return (1 / self.ess - 1 / k).clamp_min(0)


@dataclass(frozen=True)
class IWAE:
    """Mean lower bound per row from k draws of q(z | x), with an interval for the finite number of draws.

    Arguments:
        k: Draws for each row.
        simulated: Rows drawn from the model on which both sides are computed; their gap goes into ``details["gap"]``. 0 leaves it out.
        by_row: Seed the draws of each row by the row itself, so that its score does not depend on which rows stand beside it; slower.
        level: Of the interval.
    """

    k: int = 128
    simulated: int = 0
    by_row: bool = False
    level: float = 0.95

    def __post_init__(self) -> None:
        check_count("IWAE", "k", self.k, 2)
        check_count("IWAE", "simulated", self.simulated, 0)
        check_flag("IWAE", "by_row", self.by_row)
        check_level("IWAE", self.level)

    @torch.no_grad()
    def __call__(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Quantity:
        capability.require("IWAE", model)
        x = x.to(model.device_like)
        sums = self._by_row(model, x, generator) if self.by_row else weigh(model, x, self.k, generator)
        check_weights(model, sums)
        details = {"k": self.k, **per_step(model, x, sums.log_mean), **latent_use(model, x)}
        if self.simulated:
            low, high = simulated_bounds(model, self.simulated, self.k, level=self.level, generator=generator)
            details |= {"simulated_lower": low, "simulated_upper": high, "gap": high.value - low.value}
        return bound_quantity(sums, self.k, self.level, f"IWAE with {self.k} draws", details)

    def _by_row(self, model: Any, x: Tensor, generator: torch.Generator) -> Sums:
        key = rng.seed(generator)
        seeds = [rng.keyed(key, crc32(row.double().cpu().numpy().tobytes())) for row in x]

        def of(part: slice, _: torch.Generator) -> Sums:
            each = zip(x[part], seeds[part], strict=True)
            return joined([weigh(model, row[None], self.k, _on(row, seed)) for row, seed in each])

        return joined(processes.shared_out(len(x), of, generator))


@torch.no_grad()
def weigh(model: Any, x: Tensor, k: int, generator: torch.Generator) -> Sums:
    """The weights of k draws for each row, a few rows or draws at a time, ``(N, D)``; processes that work together share out the rows."""
    width = int((~x.isnan()).sum(-1).max())  # of the longest row, where rows end early
    draws = max(1, min(k, CELLS // width))
    size = max(1, CELLS // (draws * width))

    def of(part: slice, own: torch.Generator) -> Sums:
        return joined([_weighed(model, rows, k, draws, own) for rows in x[part].split(size)])

    return joined(processes.shared_out(len(x), of, generator))


def joined(parts: list[Sums]) -> Sums:
    """Sums of rows one after the other."""
    return Sums(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _weighed(model: Any, x: Tensor, k: int, draws: int, generator: torch.Generator) -> Sums:
    log_w = torch.cat([model.log_weights(x, min(draws, k - done), generator=generator).double() for done in range(0, k, draws)])
    return sums_of(log_w)


def sums_of(log_w: Tensor) -> Sums:
    """Of log weights ``(k, N)``."""
    total = torch.logsumexp(log_w, 0)
    ess = torch.exp(2 * total - torch.logsumexp(2 * log_w, 0))
    half = max(1, len(log_w) // 2)
    return Sums(total - math.log(len(log_w)), ess, torch.logsumexp(log_w[:half], 0) - math.log(half))


def check_weights(model: Any, sums: Sums) -> None:
    """Raise :class:`Diverged` where a weight is not finite."""
    lost = int((~torch.isfinite(sums.log_mean)).sum())
    if lost:
        remedy = "Fit it again with a lower learning_rate."
        raise Diverged(f"evaluate: the weights of {model.title()} must be finite; they are not at {lost} rows. {remedy}")


def bound_quantity(sums: Sums, k: int, level: float, method: str, details: dict[str, Any]) -> Quantity:
    """The mean over rows of log means of k weights each, as a lower bound."""
    n, rows = len(sums.log_mean), sums.log_mean
    half = half_width(math.sqrt(float(sums.variance(k).sum())) / n, level)
    value, spread = float(rows.mean()), float(rows.std()) / math.sqrt(n) if n > 1 else 0.0
    details = {"rows": rows, "ess_of_rows": float(sums.ess.median()), **details}
    return Quantity(value, value - half, value + half, level, "lower", "nats", method, n, spread, _verdict(sums, details.get("gap")), "low",
                    details)  # fmt: skip


@torch.no_grad()
def simulated_bounds(model: Any, n: int, k: int, *, level: float = 0.95, generator: torch.Generator) -> tuple[Quantity, Quantity]:
    """The mean log-likelihood of ``n`` rows drawn from the model, from below and from above, with the same k."""
    x, z = model.draw_joint(n, generator=generator)
    low = weigh(model, x, k, generator)
    exact = model.log_weight(x, z).double()  # of a draw from p(z | x)
    if k > 1:
        others = weigh(model, x, k - 1, generator).log_mean + math.log(k - 1)
        exact = torch.logaddexp(exact, others) - math.log(k)
    return one_side(low.log_mean, "lower", k, level), one_side(exact, "upper", k, level)


def one_side(rows: Tensor, kind: Any, k: int, level: float) -> Quantity:
    """The mean over rows; its interval covers the draws of rows too, for they are the model's own."""
    value, se = float(rows.mean()), float(rows.std()) / math.sqrt(len(rows)) if len(rows) > 1 else math.inf
    half = half_width(se, level)
    return Quantity(value, value - half, value + half, level, kind, "nats", f"simulated rows, {k} draws", len(rows), se,
                    direction="low" if kind == "lower" else "high", details={"rows": rows})  # fmt: skip


def _verdict(sums: Sums, gap: float | None) -> Verdict:
    """Tight where the bound has come to rest: by what twice the draws still gained, and by the gap of simulated rows where it is known.

    Where most rows hang on a few draws the interval means nothing, though the bound still holds in expectation.
    """
    gained, gap = float((sums.log_mean - sums.log_half).mean()), 0.0 if gap is None else gap
    if gained > GAP_TIGHT or gap > GAP_LOOSE:
        return "do not publish"
    return "tight" if float(sums.ess.median()) >= MIN_ESS and max(gained, gap) <= GAP_TIGHT / 4 else "loose"


@torch.no_grad()
def latent_use(model: Any, x: Tensor) -> dict[str, Any]:
    """Which latent dimensions carry anything about these rows, where the model can say."""
    if not hasattr(model, "kl_per_dimension"):
        return {}
    kl = model.kl_per_dimension(x).double().mean(0)
    return {"kl_per_dimension": kl, "active_units": int((kl.abs() > ACTIVE).sum())}


def _on(like: Tensor, generator: torch.Generator) -> torch.Generator:
    """The generator on the device of ``like``."""
    return generator if like.device.type == "cpu" else torch.Generator(like.device).manual_seed(generator.initial_seed())
