"""Named families of models: the one table from which the command line and the estimators build a model and its objective.

Letters: N rows, D columns.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch

from partita.core import capability
from partita.core.checks import check_choice
from partita.core.errors import InputError, invalid
from partita.core.protocols import EnergyModel, Objective
from partita.core.support import Binary
from partita.data import Rows
from partita.models import RBM, MaxEnt
from partita.objectives import CD, PCD, ExactLikelihood
from partita.samplers import Gibbs, Tempering
from partita.training.encoding import Kind, infer_kind

AUTO_EXACT_BITS = 16  # a support of at most 2^16 states is summed at every step of a fit by default
OBJECTIVES = ("pcd", "cd", "exact", "tempered")
UNITS = ("auto", "bernoulli", "gaussian")
EVALUATORS = {"enumeration": "Enumeration", "sandwich": "Sandwich", "bridge": "Bridge", "ais": "AIS", "reverse-ais": "ReverseAIS"}


@dataclass(frozen=True)
class Setting:
    """What a setting is when nothing is said, and what it means."""

    default: Any
    meaning: str


@dataclass(frozen=True)
class Family:
    """A name, what it is for, the settings it takes, and how it is built.

    >>> g = torch.Generator().manual_seed(0)
    >>> model, objective = FAMILIES["rbm"].build(Rows(torch.eye(4)), {"hidden": 3}, generator=g)
    >>> model.title(), type(objective).__name__
    ('RBM(4, 3)', 'PCD')
    """

    name: str
    summary: str
    settings: dict[str, Setting]
    make: Callable[[Rows, dict[str, Any], torch.Generator], tuple[EnergyModel, Objective]]
    kind: Callable[[Rows, dict[str, Any]], Kind]

    def resolve(self, settings: dict[str, Any]) -> dict[str, Any]:
        """What was said over the defaults; an unknown name is refused with the closest known one."""
        for name in settings:
            if name not in self.settings:
                raise unknown_setting(f"family {self.name}", name, self.settings)
        return {**{name: setting.default for name, setting in self.settings.items()}, **settings}

    def build(self, rows: Rows, settings: dict[str, Any], *, generator: torch.Generator) -> tuple[EnergyModel, Objective]:
        """A model for encoded rows, with fresh parameters, and the objective to fit it by."""
        return self.make(rows, self.resolve(settings), generator)

    def encoding_kind(self, rows: Rows, settings: dict[str, Any]) -> Kind:
        """How rows are to be encoded for this family: by what they hold, or as the settings say."""
        return self.kind(rows, self.resolve(settings))


def family_named(name: str) -> Family:
    """The family of a name, or one sentence with the known and the closest."""
    if name not in FAMILIES:
        close = get_close_matches(name.lower(), FAMILIES, 1, 0.5)
        hint = f"Did you mean {close[0]!r}?" if close else "`partita models` lists them."
        raise invalid("fit", "MODEL", f"be one of {', '.join(FAMILIES)}", repr(name), hint)
    return FAMILIES[name]


def unknown_setting(owner: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a setting that nobody takes.

    >>> print(unknown_setting("family rbm", "hiden", ["hidden", "k"]))
    family rbm: a setting must be one of hidden, k; got 'hiden'. Did you mean 'hidden'?
    """
    known = list(known)
    close = get_close_matches(name, known, 1, 0.5)
    return invalid(owner, "a setting", f"be one of {', '.join(known)}", repr(name), f"Did you mean {close[0]!r}?" if close else "")


def named_evaluator(name: Any, owner: str = "evaluate") -> Any:
    """An evaluator of log Z by name; None for ``"auto"``; any other object as it is."""
    if not isinstance(name, str):
        return name
    check_choice(owner, "evaluator", name, ("auto", *EVALUATORS))
    return None if name == "auto" else capability.load(EVALUATORS[name])()


def representatives() -> dict[str, EnergyModel]:
    """One model of each sort, for the capability grid: what enumerates and what does not, discrete and real."""
    g = torch.Generator().manual_seed(0)
    return {
        "RBM, few hidden units": RBM(784, 16, generator=g),
        "RBM, many hidden units": RBM(784, 500, generator=g),
        "RBM, gaussian visibles": RBM(784, 500, visible_units="gaussian", generator=g),
        "MaxEnt, few columns": MaxEnt("pairwise", Binary(10), generator=g),
        "MaxEnt, many columns": MaxEnt("pairwise", Binary(64), generator=g),
    }


def auto_hidden(n: int, width: int) -> int:
    """About one hidden unit per column while there are twenty rows for each, between 8 and 500.

    >>> auto_hidden(60_000, 784), auto_hidden(1438, 64), auto_hidden(32, 16)
    (500, 64, 8)
    """
    return min(500, max(8, min(width, n // 20)))


def _rbm(rows: Rows, settings: dict[str, Any], generator: torch.Generator) -> tuple[EnergyModel, Objective]:
    check_choice("rbm", "objective", settings["objective"], OBJECTIVES)
    check_choice("rbm", "visible_units", settings["visible_units"], UNITS)
    hidden, units = settings["hidden"], settings["visible_units"]
    hidden = auto_hidden(len(rows), rows.width) if hidden == "auto" else hidden
    units = ("gaussian" if infer_kind(rows) == "real" else "bernoulli") if units == "auto" else units
    return RBM(rows.width, hidden, visible_units=units, generator=generator), _objective(settings)


def _rbm_kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Bernoulli units take zeros and ones, gaussian ones standardised columns; told neither, what the rows hold."""
    check_choice("rbm", "visible_units", settings["visible_units"], UNITS)
    kinds: dict[str, Kind] = {"bernoulli": "binary", "gaussian": "real"}
    return kinds.get(settings["visible_units"]) or infer_kind(rows)


def _maxent(rows: Rows, settings: dict[str, Any], generator: torch.Generator) -> tuple[EnergyModel, Objective]:
    check_choice("maxent", "objective", settings["objective"], ("auto", *OBJECTIVES))
    model = MaxEnt(settings["features"], Binary(rows.width), generator=generator)
    if settings["objective"] == "auto":
        few = capability.smallest_bits(model) <= AUTO_EXACT_BITS
        settings = {**settings, "objective": "exact" if few else "pcd"}
    return model, _objective(settings)


def _maxent_kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Spins are relabelled; anything else must be zeros and ones."""
    return "spin" if infer_kind(rows) == "spin" else "binary"


def _objective(settings: dict[str, Any]) -> Objective:
    name, k, centered = settings["objective"], settings["k"], settings.get("centered")
    if name == "exact":
        return ExactLikelihood()
    if name == "cd":
        return CD(steps=k, centered=centered)
    sampler = Tempering(Gibbs()) if name == "tempered" else None
    return PCD(sampler, chains=settings["chains"], steps=k, centered=centered)


_CHAINS = {
    "chains": Setting(256, "Markov chains of the negative phase (pcd, tempered)"),
    "k": Setting(1, "sampler steps between two updates, as in CD-k and PCD-k"),
}

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "rbm",
            "restricted Boltzmann machine: binary or real columns, binary hidden units",
            {
                "hidden": Setting("auto", "hidden units; auto is one per column while there are 20 rows for each, from 8 to 500"),
                "visible_units": Setting("auto", "bernoulli, gaussian, or auto: bernoulli for binary data, gaussian otherwise"),
                "objective": Setting("pcd", "pcd, cd, exact (at most 2^20 states on one side) or tempered (pcd with replica exchange)"),
                **_CHAINS,
                "centered": Setting(None, "centre the gradient; none does so where the model can"),
            },
            _rbm,
            _rbm_kind,
        ),
        Family(
            "maxent",
            "maximum entropy given feature averages: binary columns, convex in its parameters",
            {
                "features": Setting("pairwise", "independent, pairwise or k-pairwise"),
                "objective": Setting("auto", "exact, pcd, cd, tempered, or auto: exact up to 16 columns, else pcd"),
                **_CHAINS,
            },
            _maxent,
            _maxent_kind,
        ),
    )
}
