"""Parts of the capability table as JSON and back, so that a saved run is rebuilt without executing
code of its own.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch.distributions import Distribution

from partita.core.capability import PARTS, load
from partita.errors import PartitaError, RunError

Json = Any  # what json.loads may give
PRIORS = (
    "Normal",
    "Laplace",
    "Cauchy",
    "StudentT",
    "Gamma",
    "Beta",
    "Uniform",
    "HalfNormal",
    "LogNormal",
    "Exponential",
)


def describe(part: object) -> Json:
    """A part of the table as JSON: its name and settings, parts and priors inside it too; other
    objects by their name alone.
    """
    if is_dataclass(part) and not isinstance(part, type):
        return {
            "part": type(part).__name__,
            **{f.name: describe(getattr(part, f.name)) for f in fields(part)},
        }
    if isinstance(part, tuple | list):
        return [describe(inner) for inner in part]
    if isinstance(part, Mapping):
        return {"table": {str(name): describe(inner) for name, inner in part.items()}}
    if isinstance(part, Distribution) and type(part).__name__ in PRIORS:
        by = {name: getattr(part, name) for name in part.arg_constraints}
        return {
            "law": type(part).__name__,
            "by": {name: [value.tolist(), str(value.dtype)] for name, value in by.items()},
        }
    if part is None or isinstance(part, bool | int | float | str):
        return part
    return {"not saved": repr(part)}


def build(description: Json) -> Any:
    """The part that :func:`describe` described; nothing but the table's own classes is ever
    called.
    """
    if not isinstance(description, dict):
        return tuple(description) if isinstance(description, list) else description
    if "not saved" in description:
        raise RunError(
            f"load: {description['not saved']} is an object of the caller's, and only its name was "
            "saved. Hand it over again, in Python: partita.fit(..., resume=True)."
        )
    if isinstance(description.get("table"), dict):
        return {name: build(inner) for name, inner in description["table"].items()}
    if "law" in description:
        return _build_prior(description)
    name = description.get("part")
    if not isinstance(name, str) or name not in PARTS:
        raise RunError(
            f"load: part must be one of {', '.join(PARTS)}; got {name!r}. The run was made by "
            "another version of partita."
        )
    settings = {key: build(value) for key, value in description.items() if key != "part"}
    try:
        return load(name)(**settings)
    except PartitaError:
        raise
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RunError(
            f"load: {name} has no such settings ({error}). The run was made by another version of "
            "partita."
        ) from None


def _build_prior(description: dict[str, Any]) -> Distribution:
    """One of the listed priors."""
    if description["law"] not in PRIORS:
        raise RunError(
            f"load: a prior must be one of {', '.join(PRIORS)}; got {description['law']!r}. "
            "Hand it over again, in Python."
        )
    law = getattr(torch.distributions, description["law"])
    dtypes = {str(dtype): dtype for dtype in (torch.float32, torch.float64)}
    try:
        by = description["by"].items()
        return law(**{name: torch.tensor(v, dtype=dtypes[dtype]) for name, (v, dtype) in by})
    except (TypeError, ValueError, OverflowError, KeyError, AttributeError) as error:
        raise RunError(
            f"load: {description['law']} has no such settings ({error}). Hand the prior over "
            "again, in Python."
        ) from None
