"""The table of families and the encodings: what command line and estimators build on."""

from typing import Any

import numpy as np
import pytest
import torch

from partita.core.capability import grid
from partita.core.registry import example_models
from partita.errors import InputError
from partita.evaluators.likelihood import named_evaluator
from partita.families import FAMILIES, family_named
from partita.tables import Rows
from partita.tables.encoding import Encoding, infer_kind

BINARY = Rows(torch.eye(6))


@pytest.mark.parametrize(
    ("family", "settings", "title", "objective"),
    [
        ("rbm", {}, "RBM(6, 8)", "PCD"),
        ("rbm", {"n_hidden": 3, "objective": "cd", "n_steps": 4}, "RBM(6, 3)", "CD"),
        ("rbm", {"objective": "exact"}, "RBM(6, 8)", "ExactLikelihood"),
        ("rbm", {"objective": "tempered"}, "RBM(6, 8)", "PCD"),
        ("maxent", {}, "MaxEnt(pairwise, 6)", "ExactLikelihood"),
        (
            "maxent",
            {"features": "independent", "objective": "pcd"},
            "MaxEnt(independent, 6)",
            "PCD",
        ),
    ],
)
def test_families_build(
    family: str, settings: dict[str, Any], title: str, objective: str, generator: torch.Generator
) -> None:
    model, built = FAMILIES[family].build(BINARY, settings, generator=generator)
    assert (model.title(), type(built).__name__) == (title, objective)


def test_maxent_of_many_columns_samples(generator: torch.Generator) -> None:
    _, objective = FAMILIES["maxent"].build(Rows(torch.eye(17)), {}, generator=generator)
    assert type(objective).__name__ == "PCD"


def test_real_rows_get_gaussian_units(generator: torch.Generator) -> None:
    model, _ = FAMILIES["rbm"].build(
        Rows(torch.randn(50, 3, generator=generator)), {}, generator=generator
    )
    assert model.settings()["visible_units"] == "gaussian"


def test_unknown_names_get_the_closest(generator: torch.Generator) -> None:
    with pytest.raises(
        InputError,
        match=r"family rbm: a setting must be one of n_hidden, .*; got 'n_chain'. Did you mean "
        r"'n_chains'\?",
    ):
        FAMILIES["rbm"].build(BINARY, {"n_chain": 3}, generator=generator)
    with pytest.raises(
        InputError,
        match=r"MODEL must be one of attention, .*, vrnn; got 'maxnet'. Did you mean 'maxent'\?",
    ):
        family_named("maxnet")
    with pytest.raises(InputError, match=r"evaluator must be one of 'auto'"):
        named_evaluator("bridg")


def test_every_setting_has_a_meaning() -> None:
    assert all(
        setting.meaning for family in FAMILIES.values() for setting in family.settings.values()
    )


def test_representatives_fill_the_grid() -> None:
    cells = grid(example_models())
    assert {reason is None for *_, reason in cells} == {True, False}


@pytest.mark.parametrize("kind", ["binary", "spin", "real", "median"])
def test_encodings_come_back_from_json_bit_for_bit(kind: Any) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    first = Encoding.fit(Rows(x), kind)
    again = Encoding.from_json(first.as_json(), 3)
    np.testing.assert_array_equal(first.encode(x), again.encode(x))
    assert again.log_jacobian == first.log_jacobian
    if kind != "median":
        np.testing.assert_allclose(again.decode(first.encode(x)), x)


def test_only_chosen_rows_decide_the_kind() -> None:
    rows = Rows(np.array([[0.0, 1.0], [1.0, 1.0], [0.5, 0.0]]))
    assert (infer_kind(rows), infer_kind(rows.take([0, 1]))) == ("real", "binary")
    assert (
        infer_kind(Rows(np.array([[0, 255], [7, 9]], dtype=np.uint8), binarize="dynamic"))
        == "binary"
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0.0, 1.0], [1.0, 1.0]], "binary"),
        ([[1.0, 1.0]], "binary"),
        ([[-1.0, 1.0], [1.0, 1.0]], "spin"),
        ([[-1.0, 0.0], [1.0, 1.0]], "real"),
        ([[0.0, 2.0]], "real"),
        ([[0.3], [0.0], [1.0]], "real"),
    ],
)
def test_the_narrowest_kind_that_holds_the_rows_is_taken(rows: list, expected: str) -> None:
    assert infer_kind(Rows(rows)) == expected
