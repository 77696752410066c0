"""Every cell of the grid: a few steps end to end, or one sentence with the reason and the nearest
part that works.
"""

import copy
import math
import re
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

import pytest
import torch
from tests.grid.examples import rows_in
from torch import Tensor

import partita
from partita.cli import grid
from partita.core import capability
from partita.core.capability import PARTS, nearest, reason_against
from partita.core.protocols import Capability, EnergyModel
from partita.core.quantity import Quantity
from partita.core.registry import example_models
from partita.errors import Unsupported
from partita.samplers import Gibbs

SMALL = {
    "temperatures": 6,
    "chains": 8,
    "active": None,
    "steps": 1,
    "slices": 1,
    "sweeps": 1,
    "warm_up": 5,
    "ratio": 2.0,
    "draws": 8,
    "burn_in": 2,
    "restarts": 1,
    "live": 32,
    "remaining": 0.1,
}
PILOTS = {
    "evaluators.partition.annealing": {
        "PILOT_TEMPERATURES": 6,
        "PILOT_CHAINS": 8,
        "LEAST_TEMPERATURES": 6,
        "MOST_TEMPERATURES": 12,
    },
    "evaluators.partition.bridge": {"REACHED": 8},
    "evaluators.partition.ladders": {"STEPS_ON_A_RUNG": 2},
    "evaluators.partition.modes": {
        "SETTLING_STEPS": 2,
        "COOLING_STEPS": 2,
        "SOUGHT": 4,
        "DESCENTS": 8,
        "DESCENT_STEPS": 5,
        "MOST_LOOKS": 64,
    },
    "evaluators.partition.nested.live_points": {"MOST_STEPS": 1},
    "evaluators.partition.nested.passed_by": {"DEEPER": 1.0, "HEARD": 4, "SCOUTS": 8},
    "evaluators.partition.replicas": {
        "LADDERS": 4,
        "LEAST_RUNGS": 4,
        "MOST_RUNGS": 6,
        "MOST": 600,
        "REACHED": 8,
    },
    "evaluators.partition.sandwich": {
        "PILOT_TEMPERATURES": 6,
        "WITNESSES": 8,
        "LOCAL_TEMPERATURES": 4,
    },
    "evaluators.partition.witnesses": {"SOUGHT": 4},
    "samplers.adaptive": {"TUNING_BETAS": (0.0, 0.5, 1.0), "TUNING_STEPS": 2, "TUNING_CHAINS": 8},
}
pytestmark = pytest.mark.slow


def small(part: str, model: Any) -> Any:
    """A part with settings that are quick, whatever else it can be set to."""
    kind = capability.part_named(part)
    known = {field.name for field in fields(kind)}
    settings = {name: value for name, value in SMALL.items() if name in known}
    if part == "Tempering":
        kernel = capability.default("sampler", model) if isinstance(model, EnergyModel) else Gibbs()
        settings |= {"kernel": kernel, "betas": (0.0, 0.5, 1.0)}
    return kind(**settings)


def run_objective(part: str, model: Any, x: Tensor, g: torch.Generator) -> None:
    objective = small(part, model)
    # so few rows have no finite optimum without one
    penalty = {} if hasattr(objective, "update") else {"l2": 0.01}
    steps = partita.fit(model, x, objective, steps=2, generator=g, **penalty).steps
    assert 1 <= steps <= 2
    assert all(torch.isfinite(p).all() for p in model.parameters())


def run_sampler(part: str, model: Any, x: Tensor, g: torch.Generator) -> None:
    drawn = partita.sample(model, 3, sampler=small(part, model), burn_in=2, generator=g)
    assert drawn.shape == (3, model.support.width)
    model.support.check(drawn, "test")


def run_partition(part: str, model: Any, x: Tensor, g: torch.Generator) -> None:
    q = small(part, model)(model, generator=g)
    assert isinstance(q, Quantity)
    assert math.isfinite(q.value)
    assert q.low <= q.value <= q.high


def run_likelihood(part: str, model: Any, x: Tensor, g: torch.Generator) -> None:
    q = partita.evaluate(model, x, evaluator=small(part, model), generator=g)
    assert isinstance(q, Quantity)
    assert math.isfinite(q.value)


RUN: dict[str, Callable[..., None]] = {
    "objective": run_objective,
    "sampler": run_sampler,
    "partition": run_partition,
    "likelihood": run_likelihood,
}


@cache
def models() -> dict[str, Any]:
    return example_models()


def prepared(label: str) -> tuple[Any, Tensor, torch.Generator]:
    """A copy of a model with random parameters and rows to its support; directed ones are told
    about the rows first.
    """
    g = torch.Generator().manual_seed(1)
    model = copy.deepcopy(models()[label])
    x = rows_in(model.support, g).to(model.like)
    model.initialize(partita.tables.as_rows(x), generator=g)
    return model, x, g


@pytest.fixture
def short_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that place temperatures, tune step sizes, seek modes and bear witness, cut short: here
    they only have to run.
    """
    for module, constants in PILOTS.items():
        for name, value in constants.items():
            monkeypatch.setattr(f"partita.{module}.{name}", value)


@pytest.mark.usefixtures("short_pilots")
@pytest.mark.parametrize("part", list(PARTS))
@pytest.mark.parametrize("label", list(models()))
def test_a_cell_runs_or_says_why_not(label: str, part: str) -> None:
    model, x, g = prepared(label)
    reason, role = reason_against(part, model), PARTS[part].role
    if (
        Capability.POSTERIOR_DRAWS in model.capabilities and role != "objective"
    ):  # there are none before a fit
        partita.fit(model, x, capability.default("objective", model), steps=1, generator=g)
    if reason is None:
        RUN[role](part, model, x, g)
        return
    title = model.title() if hasattr(model, "title") else type(model).__name__
    sentence = f"{part} cannot run on {title}: {reason}. Use {nearest(part, model)} instead."
    with pytest.raises(Unsupported, match=f"^{re.escape(sentence)}$"):
        RUN[role](part, model, x, g)


def test_every_model_has_an_objective_and_a_way_to_be_scored() -> None:
    for label, model in models().items():
        assert capability.default("objective", model) is not None, label
        role = "partition" if isinstance(model, EnergyModel) else "likelihood"
        assert capability.default(role, model) is not None, label


def test_the_nearest_part_of_every_refusal_is_named_in_the_table_or_in_words() -> None:
    for name, part in PARTS.items():
        named = re.findall(r"[A-Z][A-Za-z]+", part.instead)
        assert all(other in PARTS and other != name for other in named), f"{name}: {part.instead}"


def test_what_a_refusal_names_runs() -> None:
    """In every cell where anything of the part's role does; the table's own words stand where
    nothing does.
    """
    for label, model in models().items():
        for name, part in PARTS.items():
            named = [other for other in nearest(name, model).split(" or ") if other in PARTS]
            anything = any(
                reason_against(other, model) is None
                for other, row in PARTS.items()
                if row.role == part.role
            )
            if reason_against(name, model) is not None and anything:
                assert named and all(reason_against(other, model) is None for other in named), (
                    f"{name} on {label}: {named}"
                )


def test_the_page_has_every_cell_and_the_reasons() -> None:
    page = grid.grid_page()
    tables = [[line.split(" | ") for line in block.splitlines()] for block in page.split("\n\n")]
    tables = [table for table in tables if len(table) > 2 and table[1][0].startswith("|---|")]
    *roles, reasons = tables
    words = {row[0].strip("| "): row[1].strip(" |") for row in reasons[2:]}
    seen = set()
    for (_, *parts), _, *rows in roles:
        for label, *marks in rows:
            model = models()[label.strip("| ")]
            for part, mark in zip(parts, marks, strict=True):
                found = words.get(mark.strip(" |"))
                assert found == reason_against(part.strip("`| "), model)
                seen.add((label, part.strip("`| ")))
    assert len(seen) == len(models()) * len(PARTS)


def test_letters_go_on_after_z() -> None:
    assert [grid._letter(n) for n in (0, 25, 26, 27, 52)] == ["a", "z", "aa", "ab", "ba"]


def test_the_terminals_grid_shows_every_model_in_any_width() -> None:
    made = grid.capability_grid()
    for width in (60, 80, 200):
        for parts in made.marks.values():
            lines = grid.grid_lines(parts, len(made.models), width)
            assert max(map(len, lines)) <= width
            heads = [
                word for line in lines if not line.split()[0].isalpha() for word in line.split()
            ]
            assert heads == [str(number) for number in range(1, len(made.models) + 1)]
            for part, row in parts.items():
                assert [
                    mark for line in lines if line.split()[0] == part for mark in line.split()[1:]
                ] == row
