"""Who takes part, and on what: what is asked of columns is what families are given, also where it
is one kind for all, as masses or densities by that kind; columns without a density are named; one
that fails does not stop the others.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, poisson

from partita.datasets import Dataset
from partita.datasets.open import open_dataset
from partita.errors import InputError, RunError
from partita.experiment.candidates import candidates_by_family, degenerate_columns, measure_of
from partita.experiment.compare import Comparison
from partita.experiment.experiment import encoded_parts
from partita.families import FAMILIES
from partita.families.base import table_kind
from partita.tables import Rows
from partita.tables.encoding import Encoding

MIXED = ("mixture", "vae", "autoregressive")
COUNTS = np.random.default_rng(0).poisson(4.0, (150, 2))


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """``table("count")``: whole numbers in a file whose columns are all read as one kind; as they
    look where it is None.
    """
    path = tmp_path / "counts.csv"
    path.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in COUNTS))
    return lambda kind: open_dataset(
        str(path), words=True, missing=True, columns=kind and {"*": kind}
    )


@pytest.mark.parametrize(
    ("kind", "held", "takes_all"),
    [
        ("real", "densities of real columns", ("flow", "ppca", "rbm")),
        ("count", "masses of discrete rows", ()),
        ("category", "masses of discrete rows", ("potts",)),
    ],
)
def test_one_kind_asked_of_all_columns_is_what_every_family_takes(
    table: Any, kind: str, held: str, takes_all: tuple[str, ...]
) -> None:
    data = table(kind)
    schema = data.train.schema
    assert (
        schema.by_column and not schema.mixed and measure_of(table_kind(data), data.train) == held
    )
    for name in (*MIXED, *takes_all):
        assert measure_of(FAMILIES[name].encoding_kind(data.train, {}), data.train) == held
    found, left_out = candidates_by_family([], {}, data)
    assert {*MIXED, *takes_all} <= {candidate.name for candidate in found}
    assert {
        measure_of(candidate.family.encoding_kind(data.train, candidate.settings), data.train)
        for candidate in found
    } == {held}
    if kind != "real":
        assert "must all be real; got 'a' (" in left_out["flow"]
        with pytest.raises(
            InputError, match=rf"columns must all be real; got 'a' \({kind}\), 'b' \({kind}\)"
        ):
            FAMILIES["flow"].encoding_kind(data.train, {})


def test_what_was_not_asked_is_by_what_numbers_look_like(table: Any) -> None:
    data = table(None)
    assert [column.kind for column in data.train.schema.used] == [
        "count",
        "count",
    ] and not data.train.schema.by_column
    assert (
        FAMILIES["flow"].encoding_kind(data.train, {}) == "real" and table_kind(data) == "category"
    )


@pytest.mark.parametrize("kind", ["count", "real"])
def test_scores_are_those_of_the_kind_asked_for(table: Any, kind: str) -> None:
    """One component: Poisson or normal laws of the rows that are learned from."""
    data = table(kind)
    found, _ = candidates_by_family(
        ["mixture"], {"mixture": {"n_components": 1, "covariance_type": "diagonal"}}, data
    )
    (result,) = Comparison(data, {"steps": 3}).run(found)
    assert result.score is not None, result.problem
    learned, _ = encoded_parts(data, Encoding.constant("raw", 2), 0)
    train, test = (rows.tensor().numpy() for rows in (learned, data.test))
    laws = (
        poisson.logpmf(test, train.mean(0))
        if kind == "count"
        else norm.logpdf(test, train.mean(0), train.std(0))
    )
    assert result.score.value == pytest.approx(laws.sum(1).mean(), abs=1e-4)


def test_columns_without_a_density_are_named() -> None:
    """Values that repeat, copies of other columns; not where scores are masses, nor where there is
    nothing to say.
    """
    x = np.random.default_rng(0).normal(size=(200, 2))
    atom, copy = x.copy(), np.column_stack([x, 3 * x[:, 0]])
    atom[::3, 1] = 0.0
    for table, words in (
        (atom, "column 1 takes one value in 34 % of the rows: densities"),
        (copy, "column 2 is a copy of column 0"),
    ):
        (said,) = degenerate_columns(Dataset("mine", Rows(table)))
        assert said.startswith(words)
    gappy = x.copy()
    gappy[3, 1] = np.nan
    for table in (x, gappy, (x > 0).astype(float), COUNTS):
        assert degenerate_columns(Dataset("mine", Rows(table, missing=True))) == []


def test_missing_values_of_test_rows_count_too() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    gappy = x[:9].copy()
    gappy[3, 1] = np.nan
    found, left_out = candidates_by_family(
        ["flow", "ppca"], {}, Dataset("mine", Rows(x), None, Rows(gappy, missing=True))
    )
    assert [candidate.name for candidate in found] == ["ppca"] and left_out[
        "flow"
    ] == "values are missing, which it cannot take"


def test_whatever_a_family_comes_to_the_others_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw is one candidate's; a disk that fails is everybody's."""
    data = Dataset(
        "mine", Rows(np.random.default_rng(0).normal(size=(60, 2))), None, Rows(np.zeros((2, 2)))
    )
    found, _ = candidates_by_family(["ppca", "mixture"], {"mixture": {"n_components": 1}}, data)

    def failing(error: Exception) -> Any:
        def build(rows: Any, settings: Any, generator: Any) -> Any:
            raise error

        return [
            replace(c, family=replace(c.family, make=build)) if c.name == "ppca" else c
            for c in found
        ]

    results = list(Comparison(data).run(failing(KeyError("nobody"))))
    assert {result.name: result.problem for result in results} == {
        "ppca": "KeyError: 'nobody'",
        "mixture": "",
    }
    with pytest.raises(OSError, match="full"):
        list(Comparison(data).run(failing(OSError("full"))))


def test_a_contest_goes_on_with_the_rows_it_was_begun_with(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    found, _ = candidates_by_family(
        ["mixture"], {"mixture": {"n_components": 1}}, Dataset("mine", Rows(x))
    )
    (result,) = Comparison(Dataset("mine", Rows(x)), out=tmp_path).run(found)
    (again,) = Comparison(Dataset("mine", Rows(x.copy())), out=tmp_path).run(found)
    assert (
        result.score is not None
        and again.score is not None
        and again.score.value == result.score.value
    )
    x[7, 1] += 1e-6
    with pytest.raises(
        RunError,
        match=r"must hold the rows that the comparison in .* was begun with; they have changed",
    ):
        list(Comparison(Dataset("mine", Rows(x)), out=tmp_path).run(found))
