r"""A number that says what it is: exact, a bound or an estimate, with an interval and a verdict.

The interval is about computing the number on these data (Monte Carlo, log Z); ``se_data`` is the
spread over test points. The two errors are kept apart.

.. math:: -[l, u] = [-u, -l], \qquad [l_1, u_1] + [l_2, u_2] = [l_1 + l_2,\; u_1 + u_2]
          (theory/scoring.md, eq. 5.1)

Sums of intervals cover with probability at least 1 - alpha_1 - alpha_2 whatever the dependence
(Bonferroni), and say so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import NormalDist
from typing import Any, Literal, get_args

from partita.errors import invalid

Kind = Literal["exact", "lower", "upper", "estimate", "none"]
Verdict = Literal["tight", "loose", "do not publish"]
Direction = Literal["low", "high", "none"]

KINDS: tuple[Kind, ...] = get_args(Kind)
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # from best to worst
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
# level of an interval from a rule's own error: no chance is in it, but rules can err alike; of 100
# integrals 99 hold
DETERMINISTIC = 0.99
_MIRROR_KIND: dict[Kind, Kind] = {"lower": "upper", "upper": "lower"}
_MIRROR_DIRECTION: dict[Direction, Direction] = {"low": "high", "high": "low"}


@dataclass(frozen=True)
class Quantity:
    """A value with its kind, interval and method.

    Arguments:
        value: The number.
        low, high: Ends of the interval for the computing error; equal to ``value`` when exact.
        level: Probability with which the interval covers; 1 when exact. Of a deterministic error,
            as quadrature's, the share of integrals that it is calibrated to cover.
        kind: ``exact``, ``lower`` or ``upper`` (a bound in expectation), ``estimate``, or ``none``
            (no likelihood exists).
        unit: For example ``nats``.
        method: How it was computed, in a few words.
        n: How many data it averages over; 0 if it is not about data.
        se_data: Standard error over the data, for a mean over rows.
        verdict: ``tight``, ``loose`` or ``do not publish``.
        direction: The side on which the value errs if it errs: ``low``, ``high`` or ``none``
            (either).
        details: Diagnostics by name (ESS, k-hat, gap, per-row values).

    >>> log_z = Quantity(
    ...     10.0, 9.5, 10.5, level=0.95, kind="estimate", method="AIS", direction="low"
    ... )
    >>> print(-log_z)
    -10.000 nats [-10.500, -9.500], estimate by AIS, tight
    >>> print(Quantity(2.0, method="enumeration"))
    2.000 nats, exact by enumeration, tight
    >>> (3.0 - log_z).direction
    'high'
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    level: float = 1.0
    kind: Kind = "exact"
    unit: str = "nats"
    method: str = ""
    n: int = 0
    se_data: float = 0.0
    verdict: Verdict = "tight"
    direction: Direction = "none"
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for name, allowed in (("kind", KINDS), ("verdict", VERDICTS), ("direction", DIRECTIONS)):
            if getattr(self, name) not in allowed:
                raise invalid(
                    "Quantity", name, "be one of " + ", ".join(allowed), repr(getattr(self, name))
                )
        if not 0 <= self.level <= 1:
            raise invalid("Quantity", "level", "lie in [0, 1]", self.level)
        if math.isnan(self.value) and self.kind != "none":
            raise invalid(
                "Quantity", "value", "be a number", "nan", "Say kind='none' where there is none."
            )
        for end in ("low", "high"):
            if math.isnan(getattr(self, end)):
                object.__setattr__(self, end, self.value)
        if self.low > self.value or self.value > self.high:
            raise invalid(
                "Quantity",
                "low and high",
                "enclose the value",
                f"{self.low} <= {self.value} <= {self.high}",
            )
        if self.kind == "exact" and self.low != self.high:
            raise invalid(
                "Quantity",
                "low and high",
                "equal the value when the kind is exact",
                f"[{self.low}, {self.high}]",
            )

    @property
    def width(self) -> float:
        """Length of the interval."""
        return self.high - self.low

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the interval."""
        return self.low, self.high

    @property
    def trusted(self) -> bool:
        """Whether the verdict allows the number to be published with its interval."""
        return self.verdict != "do not publish"

    def as_json(self) -> dict[str, object]:
        """All fields as JSON, with those diagnostics that are numbers or words, log Z and the KL
        divergence of each latent dimension.

        >>> Quantity(2.0, details={"ess": 9.5, "rows": [1.0, 3.0]}).as_json()["details"]
        {'ess': 9.5}
        """
        result: dict[str, object] = {
            item.name: getattr(self, item.name) for item in fields(self) if item.name != "details"
        }
        result["details"] = {
            name: value
            for name, value in self.details.items()
            if isinstance(value, bool | int | float | str)
        }
        if isinstance(log_z := self.details.get("log_z"), Quantity):
            result["log_z"] = log_z.as_json()
        if "kl_per_dimension" in self.details:
            result["kl_per_dimension"] = self.details["kl_per_dimension"].tolist()
        return result

    def __float__(self) -> float:
        return float(self.value)

    def __neg__(self) -> "Quantity":
        return replace(
            self,
            value=-self.value,
            low=-self.high,
            high=-self.low,
            kind=_MIRROR_KIND.get(self.kind, self.kind),
            direction=_MIRROR_DIRECTION.get(self.direction, self.direction),
            details=dict(self.details),
        )

    def __add__(self, other: "Quantity | float") -> "Quantity":
        if not isinstance(other, Quantity):
            shift = float(other)
            return replace(
                self, value=self.value + shift, low=self.low + shift, high=self.high + shift
            )
        if self.unit != other.unit:
            raise invalid(
                "Quantity", "unit", f"be {self.unit!r} in both terms of a sum", repr(other.unit)
            )
        return Quantity(
            value=self.value + other.value,
            low=self.low + other.low,
            high=self.high + other.high,
            level=max(0.0, self.level + other.level - 1.0),
            kind=_sum_kind(self.kind, other.kind),
            unit=self.unit,
            method=" and ".join(dict.fromkeys(m for m in (self.method, other.method) if m)),
            n=max(self.n, other.n),
            se_data=math.hypot(self.se_data, other.se_data),
            verdict=worst(self.verdict, other.verdict),
            direction=_sum_direction(self, other),
            details={**other.details, **self.details},
        )

    __radd__ = __add__

    def __sub__(self, other: "Quantity | float") -> "Quantity":
        return self + (-other)

    def __rsub__(self, other: "Quantity | float") -> "Quantity":
        return -self + other

    def __mul__(self, factor: float) -> "Quantity":
        base = -self if factor < 0 else self
        a = abs(float(factor))
        return replace(
            base,
            value=a * base.value,
            low=a * base.low,
            high=a * base.high,
            se_data=a * base.se_data,
        )

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Quantity":
        return self * (1.0 / divisor)

    def __str__(self) -> str:
        data = f" (± {self.se_data:.3f} over {self.n} rows)" if self.n and self.se_data else ""
        label = {
            "lower": "lower bound",
            "upper": "upper bound",
            "none": "" if self.method else "no likelihood",
        }.get(self.kind, self.kind)
        method = f" by {self.method}" if self.method else ""
        return (
            f"{self.value:.3f} {self.unit}{self._interval()}{data}, {f'{label}{method}'.strip()}, "
            f"{self.verdict}"
        )

    def _interval(self) -> str:
        """Nothing if it has no length; its half if three decimals do not show it."""
        if self.kind == "exact" or self.low == self.high:
            return ""
        half = max(self.high - self.value, self.value - self.low)
        return f" ± {half:.0e}" if half < 5e-4 else f" [{self.low:.3f}, {self.high:.3f}]"


def half_width(se: float, level: float) -> float:
    """Half the length of the normal interval that covers with probability ``level``.

    >>> round(half_width(1.0, 0.95), 2)
    1.96
    """
    return NormalDist().inv_cdf(0.5 + level / 2) * se


def bits_per_dimension(q: Quantity, dimensions: float) -> Quantity:
    """A log-likelihood in nats per row as negative bits per coordinate (lower is better).

    >>> round(bits_per_dimension(Quantity(-8 * math.log(2)), 8).value, 3)
    1.0
    """
    return replace(-q / (dimensions * math.log(2)), unit="bits per dimension")


def pooled(parts: Sequence[Quantity]) -> Quantity:
    """One mean per row out of means over parts of the rows, without the values of single rows.

    Errors are taken to be the same in all parts: true of a common log Z, wider than need be where
    they are independent.

    >>> pooled([Quantity(1.0, n=1), Quantity(4.0, n=3)]).value
    3.25
    """
    n = sum(part.n for part in parts)
    share = [part.n / n for part in parts]
    value, low, high = (
        sum(w * getattr(part, name) for w, part in zip(share, parts, strict=True))
        for name in ("value", "low", "high")
    )
    # within and between
    squares = sum(
        part.se_data**2 * part.n * (part.n - 1) + part.n * (part.value - value) ** 2
        for part in parts
    )
    details = {name: kept for name, kept in parts[0].details.items() if name != "rows"}
    verdicts: list[Verdict] = [part.verdict for part in parts]
    return replace(
        parts[0],
        value=value,
        low=low,
        high=high,
        n=n,
        se_data=math.sqrt(squares / (n * max(1, n - 1))),
        verdict=worst(*verdicts),
        details={**details, "parts": len(parts)},
    )


def worst(*verdicts: Verdict) -> Verdict:
    """The least trusting of several verdicts.

    >>> worst("tight", "do not publish", "loose")
    'do not publish'
    """
    return max(verdicts, key=lambda verdict: VERDICTS.index(verdict))


def _sum_kind(a: Kind, b: Kind) -> Kind:
    if "none" in (a, b):
        return "none"
    if a == b:
        return a
    if "exact" in (a, b):
        return b if a == "exact" else a
    return "estimate"  # a lower plus an upper bound, or a bound plus an estimate, has no direction


def _sum_direction(a: Quantity, b: Quantity) -> Direction:
    if a.direction == b.direction:
        return a.direction
    if "exact" in (a.kind, b.kind):
        return b.direction if a.kind == "exact" else a.direction
    return "none"
