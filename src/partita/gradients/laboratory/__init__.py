"""The laboratory: every gradient estimator against the exact gradient of small problems."""

from partita.gradients.laboratory.measure import (
    Measured,
    all_estimators,
    bias_by_temperature,
    measure,
    variance_with_constant,
)
from partita.gradients.laboratory.problems import (
    Problem,
    bits,
    continuous,
    evidence,
    layers,
    one_hots,
    shifted,
)

__all__ = [
    "Measured",
    "Problem",
    "all_estimators",
    "bias_by_temperature",
    "bits",
    "continuous",
    "evidence",
    "layers",
    "measure",
    "one_hots",
    "shifted",
    "variance_with_constant",
]
