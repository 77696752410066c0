"""Means as Quantities: a normal interval, and a verdict from the tail of what is averaged."""

import math

import torch
from torch import Tensor

from partita.core.quantity import Kind, Quantity, Verdict, half_width
from partita.diagnostics.weights import tail_indices, verdict_on_mean


def tail_verdict(values: Tensor) -> tuple[Verdict, float]:
    """How far a mean and its standard error can be trusted, from the shape of the heavier tail, and that shape."""
    khat = max(tail_indices(values), key=lambda k: -math.inf if math.isnan(k) else k)
    return verdict_on_mean(khat, len(values)), khat


def mean_quantity(values: Tensor, level: float, method: str, kind: Kind = "estimate", unit: str = "nats") -> Quantity:
    """The mean of independent ``values`` with its interval; heavy tails, under which neither means much, are in the verdict."""
    values = values.detach().double()
    mean, se = float(values.mean()), float(values.std()) / math.sqrt(len(values))
    verdict, khat = tail_verdict(values)
    half = half_width(se, level)
    return Quantity(mean, mean - half, mean + half, level, kind, unit, method, verdict=verdict, details={"se": se, "khat": khat})


def difference_quantity(a: Tensor, b: Tensor, level: float, method: str, kind: Kind = "estimate", unit: str = "nats") -> Quantity:
    """mean(a) - mean(b) of two independent samples with its interval."""
    a, b = a.detach().double(), b.detach().double()
    value = float(a.mean() - b.mean())
    se = math.sqrt(float(a.var()) / len(a) + float(b.var()) / len(b))
    verdicts = [tail_verdict(part) for part in (a, b)]
    verdict, khat = max(verdicts, key=lambda pair: -math.inf if math.isnan(pair[1]) else pair[1])
    verdict = verdict if math.isfinite(value) and math.isfinite(se) else "do not publish"
    half = half_width(se, level)
    return Quantity(value, value - half, value + half, level, kind, unit, method, verdict=verdict, details={"se": se, "khat": khat})


def check_samples(owner: str, *samples: tuple[str, Tensor]) -> None:
    """At least two numbers in each sample."""
    from partita.core.errors import invalid

    for name, values in samples:
        if values.dim() != 1 or len(values) < 2 or not bool(torch.isfinite(values).all()):
            raise invalid(owner, name, "be at least two finite numbers", f"shape {tuple(values.shape)}")
