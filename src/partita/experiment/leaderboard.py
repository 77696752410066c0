r"""Places on a leaderboard: scores of the same rows compared row by row, and ties called ties.

.. math:: \hat\delta = \frac1N \sum_i \bigl(\log p_a(x_i) - \log p_b(x_i)\bigr), \qquad
          [\, l_a - u_b - t s, \; u_a - l_b + t s \,], \quad s^2 = \frac{1}{N(N-1)} \sum_i (d_i -
          \hat\delta)^2
          (theory/scoring.md, eq. 5.13)

Rows that are hard for one model are hard for the other: their difference varies less than either
score. The intervals of both computations, log Z above all, are the same for all rows and are added
on top. The best of many is best by luck as well, for the rows that choose it are those it is scored
on: t then holds for all that it was chosen from, at 1 - alpha / 2m for m of them.

Letters: N rows, d_i the difference at row i, [l, u] the interval of a computation, t the quantile
of Student's distribution, m choices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from partita.core.quantity import Quantity
from partita.experiment.results import Result

LEVEL = 0.95  # over the rows


def paired_difference(a: Quantity, b: Quantity, choices: int = 1) -> Quantity:
    """``a - b`` of mean log-likelihoods of the same rows: its interval holds the spread over rows
    and the computing error of both.

    It covers with at least the probability that remains when all errors are added up (Bonferroni),
    which is its ``level``; also where ``b`` is that of so many ``choices`` which scores best on
    these rows.

    >>> tables = torch.tensor([[-1.0, -5.0, -9.0], [-2.0, -6.1, -9.9]])
    >>> d = paired_difference(
    ...     *(Quantity(float(rows.mean()), n=3, details={"rows": rows}) for rows in tables)
    ... )
    >>> round(d.value, 3), d.low > 0, d.level
    (1.0, True, 0.95)
    """
    d = (
        torch.as_tensor(a.details["rows"]).double().cpu()
        - torch.as_tensor(b.details["rows"]).double().cpu()
    )
    se = float(d.std()) / math.sqrt(len(d)) if len(d) > 1 else math.inf
    computed = a - b
    half = _quantile(len(d), 1 - (1 - LEVEL) / choices) * se if len(d) > 1 else math.inf
    kind = "estimate" if computed.kind == "exact" else computed.kind
    covers = max(0.0, round(computed.level + LEVEL - 1.0, 12))
    return Quantity(
        computed.value,
        computed.low - half,
        computed.high + half,
        covers,
        kind,
        a.unit,
        "differences of paired rows",
        len(d),
        se,
        computed.verdict,
        computed.direction,
    )


def _quantile(n: int, level: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + level / 2, n - 1))


@dataclass(frozen=True)
class Place:
    """A result where it stands.

    Arguments:
        result: What was fitted and scored.
        difference: To the best; None for the best itself and where there is no likelihood.
        tied: Whether the interval of the difference covers zero; None where there is nothing to
            tell.
    """

    result: Result
    difference: Quantity | None = None
    tied: bool | None = None

    @property
    def group(self) -> int:
        """0 for numbers to trust, 1 for those not to be published, 2 for no likelihood, 3 for
        failures.
        """
        q = self.result.score
        return 3 if q is None else 2 if q.kind == "none" else 0 if q.trusted else 1


def ranking(results: Sequence[Result]) -> list[Place]:
    """Best first; numbers that are not to be published come after those that are, then what has no
    likelihood, then what failed.

    The best is the first whose number can be trusted. Two numbers are a tie where the interval of
    their difference covers zero.
    """
    order = sorted(
        map(Place, results),
        key=lambda place: (
            place.group,
            0.0 if place.result.score is None else -place.result.score.value,
        ),
    )
    if not order or order[0].group > 1:
        return order
    best, rivals = order[0].result.score, sum(place.group == order[0].group for place in order)
    assert best is not None
    return [
        order[0],
        *(_against(place, best, rivals - (place.group == order[0].group)) for place in order[1:]),
    ]


def _against(place: Place, best: Quantity, choices: int) -> Place:
    """The place with its difference to the best, which is that of so many others."""
    q = place.result.score
    if place.group > 1 or q is None:
        return place
    difference = paired_difference(q, best, choices=choices)
    return replace(
        place,
        difference=difference,
        tied=difference.low <= 0 <= difference.high if place.group == 0 else None,
    )
