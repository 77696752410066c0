"""Objectives, samplers and evaluators with settings of any sort, on models of any sort, handed to
the three functions of the package, which take arguments of any sort too.
"""

import contextlib
import copy
import functools
import inspect
from dataclasses import fields
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import junk
from tests.fuzz.audit import scratch
from tests.fuzz.cases import cases, only_named_errors
from tests.grid.examples import rows_in

import partita
from partita import models
from partita.core import capability
from partita.core.registry import MODELS, example_arguments
from partita.samplers import Gibbs
from partita.training import Settings

QUICK: dict[str, Any] = {
    "chains": 4,
    "temperatures": 5,
    "draws": 8,
    "burn_in": 2,
    "k": 2,
    "ratio": 1.0,
    "permutations": 9,
    "rows": 20,
    "warm_up": 2,
    "leapfrogs": 2,
    "moves": 1,
    "keep": 4,
    "simulated": 0,
    "queue": 8,
    "clusters": (2,),
    "critic": (4,),
    "repeats": 2,
    "batch": 8,
}
EFFORT = {*QUICK, "steps", "sweeps", "restarts", "trial", "samples", "slices", "critic_steps"}
PLACES = ("objective", "evaluator", "sampler")
NEEDED: dict[str, dict[str, Any]] = {
    "fit": {"steps": 1},
    "sample": {"n": 2, "burn_in": 1},
    "evaluate": {},
}
# for what is built on these functions
INNER = ("options", "fabric", "about", "progress", "log_jacobian", "since")
TAKEN = {
    name: set(inspect.signature(getattr(partita, name)).parameters) - {"model", *INNER}
    for name in NEEDED
}
TAKEN["fit"] |= {field.name for field in fields(Settings)}
LASTING = {"steps", "epochs", "n", "burn_in"}  # more of them is right, and takes long
MINUTES = (-1, 0, float("nan"), float("inf"), "x", [], True, 1e-9)


@functools.cache
def example(name: str) -> tuple[Any, torch.Tensor]:
    """A small model of each sort, and rows for it."""
    g = torch.Generator().manual_seed(0)
    if name == "RBM, real":
        model: Any = models.RBM(2, 2, visible_units="gaussian", generator=g)
    else:
        model = MODELS[name](**next(iter(example_arguments(MODELS[name], g).values())))
    return model, rows_in(model.support, g)


def fresh(name: str) -> tuple[Any, torch.Tensor]:
    """A copy of it, for fits change what they fit."""
    model, x = example(name)
    return copy.deepcopy(model), x


NAMES = (*MODELS, "RBM, real")


@st.composite
def settings_of(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Quick settings of a part, of which up to two are odd."""
    fields = list(inspect.signature(capability.part_named(name)).parameters)
    chosen = {field: QUICK[field] for field in fields if field in QUICK}
    if name == "Tempering":
        chosen["kernel"] = Gibbs()
    for field in draw(st.lists(st.sampled_from(fields), max_size=2)) if fields else []:
        # any function may make a view of rows
        left_out = (None,) if field in EFFORT else (len,) if field == "augment" else ()
        values = junk.values(huge=field not in EFFORT).filter(
            lambda value, no=left_out: not any(value is one for one in no)
        )
        chosen[field] = draw(values)
    return chosen


def use(role: str, part: Any, name: str) -> None:
    """Something in the place of a part, with a model: one step, two draws, or a score."""
    (model, x), g = fresh(name), torch.Generator().manual_seed(0)
    if role == "objective":
        partita.fit(model, x, part, steps=1, generator=g)
    elif role == "sampler":
        partita.sample(model, 2, sampler=part, burn_in=1, generator=g)
    else:
        partita.evaluate(model, x, evaluator=part, generator=g)


@cases(0.05)
@given(
    st.sampled_from(sorted(capability.PARTS)).flatmap(
        lambda n: st.tuples(st.just(n), settings_of(n))
    ),
    st.sampled_from(NAMES),
)
def test_parts(case: tuple[str, dict[str, Any]], model: str) -> None:
    name, settings = case
    with only_named_errors():
        use(capability.PARTS[name].role, capability.part_named(name)(**settings), model)


@cases(0.02)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(PLACES),
    junk.values(huge=False).filter(lambda value: value is not len),
)
def test_what_is_no_part(model: str, place: str, value: Any) -> None:
    """A name, a class, a number or nothing where a part is expected; any function may be an
    evaluator.
    """
    with only_named_errors():
        use(place, value, model)


@st.composite
def arguments(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """One of the three functions, with one to two odd arguments beside those that it needs."""
    name = draw(st.sampled_from(sorted(NEEDED)))
    chosen = {**NEEDED[name], "generator": torch.Generator().manual_seed(0)}
    for argument in draw(st.lists(st.sampled_from(sorted(TAKEN[name])), min_size=1, max_size=2)):
        # any function may be an evaluator
        left_out = (None, junk.OUTSIDE, *((len,) if argument == "evaluator" else ()))
        odd = junk.values(huge=argument not in LASTING).filter(
            lambda value, no=left_out: not any(value is one for one in no)
        )
        chosen[argument] = draw(st.sampled_from(MINUTES) if argument == "minutes" else odd)
    return name, chosen


@cases(0.03)
@given(st.sampled_from(NAMES), arguments())
def test_arguments(model: str, case: tuple[str, dict[str, Any]]) -> None:
    (name, chosen), (made, x) = case, fresh(model)
    rows = {} if name == "sample" else {"x" if name == "evaluate" else "data": x}
    with scratch() as place, contextlib.chdir(place), only_named_errors():
        getattr(partita, name)(made, **{**rows, **chosen})
