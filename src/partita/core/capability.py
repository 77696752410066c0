"""What each part needs and each model offers, written once.

``partita models --grid``, the defaults and the error messages all read this table. A cell
runs, or raises :class:`Unsupported` with the reason and the nearest cell that works.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeVar

from partita.core.protocols import Capability, DirectedModel, EnergyModel, Model
from partita.core.support import Product, Real, Sequence, Support
from partita.errors import PartName, Unsupported, invalid

EXACT_BITS = 20  # a side of at most 2^20 states is summed, not sampled
QUADRATURE_WIDTH = 3  # real coordinates over which an integral can be a sum over a grid
CHEAP_WIDTH = 2  # few enough to integrate at every step
CHEAP_BITS = 12  # few enough states to sum at every step


@dataclass(frozen=True)
class Need:
    """A property a part relies on: how to see it, and the reason given where it is missing."""

    holds: Callable[[object], bool]
    otherwise: str


def smallest_bits(model: object) -> float:
    """log2 of the number of terms of the cheaper way to write Z; infinite where it is no finite
    sum.
    """
    sides = model.sides() if isinstance(model, EnergyModel) else []
    return min((side.support.bits for side in sides), default=math.inf)


def _all_real(support: Support) -> bool:
    """Whether every coordinate is a real number."""
    if isinstance(support, Sequence):
        return _all_real(support.element)
    if isinstance(support, Product):
        return all(map(_all_real, support.parts))
    return isinstance(support, Real)


def _countable_sites(model: object) -> bool:
    """Whether every coordinate has the same finite list of values."""
    return isinstance(model, EnergyModel) and model.support.countable_sites


def _integrates(model: object, width: float) -> bool:
    """Whether Z is an integral over at most ``width`` real coordinates."""
    return (
        isinstance(model, EnergyModel) and _all_real(model.support) and model.support.width <= width
    )


def _can(capability: Capability) -> Callable[[object], bool]:
    """Whether a model has a capability; what is no model has none."""
    return lambda model: isinstance(model, Model) and capability in model.capabilities


def cheap_exact(model: object) -> bool:
    """Whether the likelihood is exact and cheap enough for every step of a fit."""
    return (
        _can(Capability.LOG_PROB)(model)
        or smallest_bits(model) <= CHEAP_BITS
        or _integrates(model, CHEAP_WIDTH)
    )


LACKING = {  # the reason given where a model lacks a capability
    Capability.LOG_PROB: "it has no exact log_prob",
    Capability.CLOSED_FORM: "its maximum likelihood has no closed form",
    Capability.EM: "it names no E and M steps",
    Capability.JOINT: "it has no hidden units whose conditional can be drawn beside a joint energy",
    Capability.POSTERIOR_DRAWS: "its posterior is not kept as draws",
    Capability.GENERATES: "its draws carry no gradients back to its parameters",
    Capability.LATENT: "it has no latent variables with a proposal for their posterior",
    Capability.REPARAMETERIZED: (
        "draws of its latent variables carry no gradients to their proposal"
    ),
    Capability.DISCRETE_LATENTS: (
        "it has no discrete latent variables with an evidence bound to estimate"
    ),
    Capability.DOUBLY: (
        "it is no VAE, whose proposal is one normal for all latent variables at once"
    ),
    Capability.FILTERS: "its latent variables do not come step by step along a sequence",
    Capability.LATENT_ENERGY: "its latent variables are not real with a known prior",
    Capability.EMBEDS: "it is a density and no encoder",
    Capability.CENTERING: "it has no centered form of its gradient",
}
NEEDS: dict[str, Need] = {
    **{capability.value: Need(_can(capability), why) for capability, why in LACKING.items()},
    "energy": Need(lambda m: isinstance(m, EnergyModel), "it has no free energy"),
    "directed": Need(
        lambda m: isinstance(m, DirectedModel), "it has no independent draws to compare with"
    ),
    "enumerable": Need(
        lambda m: smallest_bits(m) <= EXACT_BITS,
        f"neither side has at most 2^{EXACT_BITS} states to sum",
    ),
    "exact": Need(
        lambda m: cheap_exact(m) or smallest_bits(m) <= EXACT_BITS,
        f"it has no exact log_prob and neither side has at most 2^{EXACT_BITS} states to sum",
    ),
    "cheap_exact": Need(
        cheap_exact,
        f"it has no exact log_prob and neither side has at most 2^{CHEAP_BITS} states, few enough "
        "to sum at every step",
    ),
    "sites": Need(_countable_sites, "its coordinates do not have finitely many values to sum over"),
    "gibbs": Need(
        lambda m: (
            _countable_sites(m) or (isinstance(m, EnergyModel) and _can(Capability.CONDITIONALS)(m))
        ),
        "its coordinates cannot be drawn one after the other: it has no conditionals and its "
        "support is not discrete",
    ),
    "real": Need(
        lambda m: _integrates(m, math.inf), "its coordinates are not all real, so it has no slope"
    ),
    "differentiable": Need(
        lambda m: isinstance(m, EnergyModel) and m.differentiable, "its energy has no gradient"
    ),
    "quadrature": Need(
        lambda m: _integrates(m, QUADRATURE_WIDTH),
        f"it does not live on at most {QUADRATURE_WIDTH} real coordinates",
    ),
}


Role = Literal["objective", "sampler", "partition", "likelihood"]
PACKAGES: dict[Role, str] = {  # where the parts of a role live
    "objective": "partita.objectives",
    "sampler": "partita.samplers",
    "partition": "partita.evaluators",
    "likelihood": "partita.evaluators",
}


# roles whose parts score a model, and the argument that names one
ARGUMENTS: dict[Role, str] = {"partition": "evaluator", "likelihood": "evaluator"}


@dataclass(frozen=True)
class Part:
    """A row of the table: what a method needs, and what to use where it cannot run."""

    role: Role
    needs: tuple[str, ...]
    instead: str
    # what more it takes to be the default of its role; None is never
    by_default: tuple[str, ...] | None = ()
    kind: type | None = None  # the class, where it is none of the role's package


PARTS: dict[str, Part] = {
    "EM": Part("objective", ("em",), "ExactLikelihood"),
    "ClosedForm": Part("objective", ("closed_form",), "EM", None),
    "OnlineEM": Part("objective", ("em",), "ExactLikelihood", None),
    "ExactLikelihood": Part("objective", ("exact",), "PCD", ("cheap_exact",)),
    "Adversarial": Part("objective", ("generates",), "ExactLikelihood"),
    "ELBO": Part("objective", ("latent", "reparameterized"), "DiscreteELBO or ExactLikelihood"),
    "IWAEBound": Part(
        "objective", ("latent", "reparameterized"), "DiscreteELBO or ExactLikelihood", None
    ),
    "DiscreteELBO": Part("objective", ("latent", "discrete_latents"), "ELBO or ExactLikelihood"),
    "FIVO": Part("objective", ("latent", "filters"), "IWAEBound", None),
    "PCL": Part("objective", ("embeds",), "ExactLikelihood"),
    "PCD": Part("objective", ("energy",), "ExactLikelihood"),
    "CD": Part("objective", ("energy",), "ExactLikelihood"),
    "NCE": Part("objective", ("energy",), "ExactLikelihood", None),
    "ScoreMatching": Part(
        "objective", ("energy", "real", "differentiable"), "PseudoLikelihood", None
    ),
    "PseudoLikelihood": Part("objective", ("energy", "sites"), "ScoreMatching", None),
    "RatioMatching": Part("objective", ("energy", "sites"), "ScoreMatching", None),
    "MAP": Part("objective", ("exact",), "PCD", None),
    "CollapsedGibbs": Part("objective", ("posterior_draws",), "EM"),
    "InstantiatedGibbs": Part("objective", ("posterior_draws",), "EM"),
    "Gibbs": Part("sampler", ("gibbs",), "MALA"),
    "MALA": Part("sampler", ("energy", "real", "differentiable"), "Gibbs"),
    "HMC": Part("sampler", ("energy", "real", "differentiable"), "Gibbs"),
    "NUTS": Part("sampler", ("energy", "real", "differentiable"), "Gibbs"),
    "RandomWalk": Part("sampler", ("energy", "real"), "Gibbs"),
    "Ensemble": Part("sampler", ("energy", "real"), "Gibbs", None),
    "Langevin": Part("sampler", ("energy", "real", "differentiable"), "Gibbs", None),
    "Alternating": Part(
        "sampler", ("energy", "real", "differentiable", "joint"), "MALA or Gibbs", None
    ),
    "Informed": Part("sampler", ("energy", "sites"), "MALA", None),
    "Tempering": Part("sampler", ("energy",), "Gibbs", None),
    "Enumeration": Part("partition", ("enumerable",), "Sandwich"),
    "Quadrature": Part("partition", ("energy", "quadrature"), "Sandwich"),
    "Sandwich": Part("partition", ("energy",), "Enumeration"),
    "Bridge": Part("partition", ("energy",), "Sandwich"),
    "AIS": Part("partition", ("energy",), "Sandwich"),
    "SMC": Part("partition", ("energy",), "Sandwich"),
    "ReverseAIS": Part("partition", ("energy",), "Sandwich"),
    "ImportanceSampling": Part("partition", ("energy", "real"), "Sandwich", None),
    "NestedSampling": Part("partition", ("energy",), "Sandwich", None),
    "LogProb": Part("likelihood", ("log_prob",), "an evaluator of log Z"),
    "PosteriorAverage": Part("likelihood", ("posterior_draws",), "LogProb"),
    "IWAE": Part("likelihood", ("latent",), "LogProb"),
    "LatentAIS": Part("likelihood", ("latent", "latent_energy"), "IWAE", None),
    "ParticleFilter": Part("likelihood", ("latent", "filters"), "IWAE", None),
    "TwoSample": Part("likelihood", ("directed",), "an evaluator of log Z", ("generates",)),
}


Kind = TypeVar("Kind", bound=type)


def part(
    role: Role, needs: tuple[str, ...], instead: str, by_default: tuple[str, ...] | None = None
) -> Callable[[Kind], Kind]:
    """A row for a class outside partita, as its decorator; it comes after the rows of the table,
    and is no default of its role unless ``by_default`` says when.
    """

    def add(kind: Kind) -> Kind:
        known = PARTS.get(kind.__name__)
        if known and (known.kind is None or known.kind.__module__ != kind.__module__):
            allowed = "be new, to be registered"
            raise invalid(kind.__module__, f"the name {kind.__name__!r}", allowed, "one of another")
        PARTS[kind.__name__] = Part(role, needs, instead, by_default, kind)
        return kind

    return add


def reason_against(part: str, model: object) -> str | None:
    """Why ``part`` cannot run on ``model``; None if it can."""
    return _first_lacking(PARTS[part].needs, model)


def require(part: str, model: object) -> None:
    """Raise :class:`Unsupported` unless ``part`` runs on ``model``."""
    reason = reason_against(part, model)
    if reason is not None:
        role, named = PARTS[part].role, nearest(part, model).split(" or ")
        words = [PartName(ARGUMENTS.get(role, role), value=name) for name in named]
        use = [word for one in words for word in (one, " or ")][:-1]
        raise Unsupported(
            f"{part} cannot run on {_title(model)}: {reason}. Use ", *use, " instead."
        )


def nearest(part: str, model: object) -> str:
    """What runs in a part's place: of those that its row names the ones that do, else the first of
    its role that does; a score for which nothing of its role is needed is computed by the other.
    """
    row = PARTS[part]
    named = [
        name
        for name in row.instead.split(" or ")
        if name in PARTS and reason_against(name, model) is None
    ]
    if named:
        return " or ".join(named)
    roles = sorted(ARGUMENTS, key=row.role.__ne__) if row.role in ARGUMENTS else [row.role]
    running = (
        name
        for role in roles
        for name, other in PARTS.items()
        if other.role == role and reason_against(name, model) is None
    )
    return next(running, row.instead)


def require_need(need: str, owner: str, model: object, instead: str) -> None:
    """Raise :class:`Unsupported` unless ``model`` has the one property that an option of ``owner``
    relies on.
    """
    if not NEEDS[need].holds(model):
        raise Unsupported(
            f"{owner} cannot run on {_title(model)}: {NEEDS[need].otherwise}. {instead}"
        )


def default(role: str, model: object) -> Any:
    """The first part of a role that runs on ``model``, built with its default settings."""
    reasons = {}
    for name, part in PARTS.items():
        if part.role == role and part.by_default is not None:
            reasons[name] = _first_lacking((*part.needs, *part.by_default), model)
            if reasons[name] is None:
                return part_named(name)()
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise Unsupported(f"No {role} runs on {_title(model)}: {listed}.")


def part_named(name: str) -> Any:
    """The class behind a name of the table, imported only now: parts never import one another."""
    row = PARTS[name]
    return row.kind or getattr(import_module(PACKAGES[row.role]), name)


def grid(models: dict[str, Model]) -> list[tuple[str, str, str, str | None]]:
    """Every cell as (model, role, part, reason against it)."""
    return [
        (label, part.role, name, reason_against(name, model))
        for label, model in models.items()
        for name, part in PARTS.items()
    ]


def _first_lacking(needs: tuple[str, ...], model: object) -> str | None:
    return next((NEEDS[need].otherwise for need in needs if not NEEDS[need].holds(model)), None)


def _title(model: object) -> str:
    return model.title() if isinstance(model, Model) else type(model).__name__
