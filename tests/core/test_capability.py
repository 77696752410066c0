"""Every cell of the table runs, or says why not and what runs instead."""

import json
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import partita
from partita.core import capability
from partita.core.capability import (
    PARTS,
    Part,
    default,
    grid,
    nearest,
    part_named,
    reason_against,
    require,
)
from partita.core.protocols import EnergyModel, Model
from partita.core.registry import MODELS, build_part, describe_part, model_named
from partita.core.support import Binary, Categorical, Real
from partita.errors import InputError, RunError, Unsupported
from partita.evaluators import AIS, Enumeration, Sandwich
from partita.models import RBM, MaxEnt
from partita.objectives import CD, PCD, ExactLikelihood
from partita.samplers import MALA, Gibbs, Tempering


class RealEnergy(EnergyModel):
    """A model with a free energy and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.support = Real(2)
        self.a = nn.Parameter(torch.ones(2))

    def free_energy(self, x: Tensor) -> Tensor:
        return (self.a * x.square()).sum(-1)

    def reference(self) -> Any:
        return None

    def initialize(self, data: Any, *, generator: torch.Generator) -> None: ...

    def settings(self) -> dict[str, Any]:
        return {}


def model_of(kind: str) -> Any:
    g = torch.Generator().manual_seed(3)
    made = {
        "binary RBM": lambda: RBM(4, 3, generator=g),
        "gaussian RBM": lambda: RBM(2, 3, visible_units="gaussian", generator=g),
        "large RBM": lambda: RBM(40, 30, generator=g),
        "maxent": lambda: MaxEnt("pairwise", Binary(4), generator=g),
        "large maxent": lambda: MaxEnt("independent", Binary(30), generator=g),
        "categorical maxent": lambda: MaxEnt(lambda x: x, Categorical(3, 3), generator=g),
        "real energy": RealEnergy,
    }
    return made[kind]()


KINDS = [
    "binary RBM",
    "gaussian RBM",
    "large RBM",
    "maxent",
    "large maxent",
    "categorical maxent",
    "real energy",
]
FEW = {"binary RBM", "gaussian RBM", "maxent", "categorical maxent"}  # what can be summed
# tests/grid has them all
BY_NEED = [
    "ExactLikelihood",
    "PCD",
    "CD",
    "Gibbs",
    "Enumeration",
    "Sandwich",
    "Bridge",
    "AIS",
    "ReverseAIS",
]
SITES = set(KINDS) - {"real energy"}  # what Gibbs can move


def rows_for(model: EnergyModel) -> Tensor:
    x = torch.randint(
        0, 2, (24, model.support.width), generator=torch.Generator().manual_seed(4)
    ).float()
    return (
        x
        if model.support.discrete
        else x + torch.randn(x.shape, generator=torch.Generator().manual_seed(5))
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", BY_NEED)
def test_the_table_says_what_can_run(part: str, kind: str) -> None:
    model, needs = model_of(kind), PARTS[part].needs
    few = {"enumerable", "exact"} & set(needs)
    integrated = "exact" in needs and kind == "real energy"  # over its two real coordinates
    can = (not few or kind in FEW or integrated) and ("gibbs" not in needs or kind in SITES)
    assert (reason_against(part, model) is None) is can
    if can:
        require(part, model)
        return
    title = type(model).__name__ if kind == "real energy" else model.title()
    sentence = (
        f"{part} cannot run on {title}: {reason_against(part, model)}. Use {nearest(part, model)} "
        "instead."
    )
    with pytest.raises(Unsupported, match=f"^{re.escape(sentence)}$"):
        require(part, model)


SMALL = {
    "PCD": {"chains": 4},
    "AIS": {"temperatures": 20, "chains": 30},
    "Tempering": {"kernel": Gibbs(), "betas": (0.5, 1.0)},
}


@pytest.mark.parametrize("kind", sorted(SITES))
@pytest.mark.parametrize("part", ["ExactLikelihood", "PCD", "CD"])
def test_every_objective_runs_or_refuses(part: str, kind: str) -> None:
    model, g = model_of(kind), torch.Generator().manual_seed(0)
    objective = part_named(part)(**SMALL.get(part, {}))
    if reason_against(part, model) is not None:
        with pytest.raises(
            Unsupported,
            match=rf"{part} cannot run on .* neither side has at most 2\^20 states to sum\. Use "
            r"PCD",
        ):
            partita.fit(model, rows_for(model), objective, steps=1, generator=g)
        return
    run = partita.fit(model, rows_for(model), objective, steps=2, generator=g)
    assert run.steps == 2 or run.stopped == "converged"
    assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.parametrize("kind", sorted(SITES))
@pytest.mark.parametrize("part", ["Gibbs", "Tempering"])
def test_every_sampler_runs_on_what_it_can(part: str, kind: str) -> None:
    model, g = model_of(kind), torch.Generator().manual_seed(0)
    x = partita.sample(
        model, 5, sampler=part_named(part)(**SMALL.get(part, {})), burn_in=2, generator=g
    )
    model.support.check(x, "test")
    assert x.shape == (5, model.support.width)


def test_gibbs_refuses_a_real_energy_and_so_does_every_way_to_it(
    generator: torch.Generator,
) -> None:
    model, x = RealEnergy(), torch.zeros(4, 2)
    words = (
        r"Gibbs cannot run on RealEnergy.*no conditionals and its support is not discrete\. "
        r"Use MALA instead\."
    )
    with pytest.raises(Unsupported, match=words):
        Gibbs().init(model, x, generator=generator)
    with pytest.raises(Unsupported, match=words):
        Tempering(Gibbs()).init(model, x, generator=generator)
    assert default("sampler", model) == MALA()  # which needs a slope and no conditionals


def test_centering_is_refused_where_there_is_no_centered_form(generator: torch.Generator) -> None:
    model = model_of("maxent")
    words = (
        r"cannot run on MaxEnt\(pairwise, 4\): it has no centered form of its gradient\. "
        r"Leave centered at None\."
    )
    for objective in (PCD(centered=True), CD(centered=True)):
        with pytest.raises(
            Unsupported, match=rf"{type(objective).__name__}\(centered=True\) {words}"
        ):
            partita.fit(model, rows_for(model), objective, steps=1, generator=generator)
    # by default it does what it can
    partita.fit(model, rows_for(model), PCD(chains=4), steps=1, generator=generator)


def test_a_part_that_needs_a_free_energy_refuses_what_has_none() -> None:
    with pytest.raises(
        Unsupported,
        match=r"^AIS cannot run on Linear: it has no free energy\. Use Sandwich instead\.$",
    ):
        require("AIS", nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("kind", "objective", "partition"),
    [
        ("binary RBM", ExactLikelihood, Enumeration),
        ("gaussian RBM", ExactLikelihood, Enumeration),
        ("large RBM", PCD, Sandwich),
        ("maxent", ExactLikelihood, Enumeration),
        ("large maxent", PCD, Sandwich),
    ],
)
def test_defaults_are_exact_where_states_are_few(
    kind: str, objective: type, partition: type
) -> None:
    model = model_of(kind)
    assert type(default("objective", model)) is objective
    assert type(default("partition", model)) is partition
    assert default("sampler", model) == Gibbs()


def test_no_default_names_every_part_and_its_reason() -> None:
    with pytest.raises(
        Unsupported,
        match=r"No sampler runs on Linear: Gibbs: its coordinates cannot be drawn one after the "
        r"other",
    ):
        default("sampler", nn.Linear(2, 2))
    with pytest.raises(
        Unsupported,
        match=r"No partition runs on Linear: Enumeration: .*; Sandwich: it has no free energy",
    ):
        default("partition", nn.Linear(2, 2))


def test_the_smaller_side_counts() -> None:
    assert capability.smallest_bits(model_of("large RBM")) == 30
    assert capability.smallest_bits(model_of("gaussian RBM")) == 3
    assert capability.smallest_bits(RealEnergy()) == float("inf")
    assert reason_against("Enumeration", RBM(20, 40, generator=torch.Generator())) is None
    assert reason_against("Enumeration", RBM(21, 40, generator=torch.Generator())) is not None


def test_the_grid_has_every_cell_once() -> None:
    models = {kind: model_of(kind) for kind in KINDS}
    cells = grid(models)
    assert [(label, part) for label, _, part, _ in cells] == [
        (kind, part) for kind in KINDS for part in PARTS
    ]
    assert all(reason == reason_against(part, models[label]) for label, _, part, reason in cells)
    assert all(role == PARTS[part].role for _, role, part, _ in cells)


@pytest.mark.parametrize("name", list(PARTS))
def test_every_name_of_the_table_is_a_class_of_that_name(name: str) -> None:
    assert part_named(name).__name__ == name


@pytest.mark.parametrize("name", list(MODELS))
def test_every_model_of_the_table_is_a_class_of_that_name(name: str) -> None:
    assert model_named(name).__name__ == name
    assert issubclass(model_named(name), Model)


@pytest.mark.parametrize("name", ["MyModel", "os.system", "partita.models:RBM", "", None, ["RBM"]])
def test_other_models_are_never_imported(name: Any) -> None:
    with pytest.raises(
        RunError,
        match=r"load: model must be one of Autoregressive, .*, VRNN; got .* hand it over: "
        r"load\(path, model=\.\.\.\)\.",
    ):
        model_named(name)


@pytest.mark.parametrize(
    "part",
    [
        ExactLikelihood(),
        CD(steps=3),
        CD(Gibbs(2), centered=False),
        PCD(Gibbs(), chains=7, steps=2),
        PCD(Tempering(Gibbs(sweeps=3), betas=(0.1, 0.4, 1.0)), chains=5),
        AIS(temperatures=11, chains=30),
    ],
    ids=str,
)
def test_a_part_survives_its_description_as_json(part: Any) -> None:
    text = json.dumps(describe_part(part))
    assert build_part(json.loads(text)) == part


@pytest.mark.parametrize(
    "description",
    [
        {"part": "Popen", "args": "ls"},
        {"part": "os.system"},
        {"part": None},
        {"part": ["PCD"]},
        {"sampler": 1},
    ],
    ids=str,
)
def test_only_parts_of_the_table_are_built(description: dict) -> None:
    with pytest.raises(
        RunError, match=r"load: part must be one of .*ExactLikelihood, .*PCD, .*; got "
    ):
        build_part(description)


def test_a_part_inside_a_part_is_looked_up_too() -> None:
    with pytest.raises(RunError, match=r"load: part must be one of .*; got 'Popen'"):
        build_part({"part": "PCD", "sampler": {"part": "Popen", "args": ["ls"]}})


def test_wrong_settings_of_a_part_are_refused_in_a_sentence() -> None:
    with pytest.raises(
        RunError,
        match=r"load: PCD has no such settings \(.*'temperature'\)\. The run was made by another "
        r"version",
    ):
        build_part({"part": "PCD", "temperature": 3})
    with pytest.raises(
        InputError, match=r"PCD: chains must be a whole number of at least 1; got 0\."
    ):
        build_part({"part": "PCD", "chains": 0})


def test_a_part_with_another_inside_is_never_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTS, "Gibbs", Part("sampler", ("enumerable",), "nothing"))
    with pytest.raises(Unsupported, match=r"No sampler runs on RBM\(40, 30\): Gibbs: neither side"):
        default("sampler", model_of("large RBM"))
