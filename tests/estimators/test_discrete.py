"""IsingDensity and PottsDensity: scikit-learn's contract, exact answers on small tables, imputation
of categories, words from files.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

from partita.datasets import load as load_data
from partita.errors import DataError, InputError
from partita.estimators import IsingDensity, PottsDensity, load
from partita.evaluators import AIS
from partita.families import FAMILIES
from partita.tables import Rows
from partita.tables.encoding import Encoding
from partita.tables.schema import label_number
from partita.training import PartitaWarning

SHORT = AIS(temperatures=20, chains=30, adaptive=False)


@pytest.mark.filterwarnings("ignore:fit. columns that are not")
@parametrize_with_checks(
    [
        IsingDensity(epochs=3, n_chains=16, l2=1e-2),
        PottsDensity(epochs=3, n_chains=16, l2=1e-2, evaluator=SHORT),
    ]
)
def test_scikit_learn_contract(
    estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


def table(n: int = 600) -> np.ndarray:
    """Three columns with values of their own; the second follows the first in four rows of five."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 3, n)
    second = np.where(rng.random(n) < 0.8, first, rng.integers(0, 3, n))
    return np.stack([first + 1, 10 * second, rng.integers(0, 2, n)], 1).astype(float)


def test_an_exact_potts_fit_has_the_pair_frequencies_of_the_data_and_imputes_the_mode() -> None:
    X = table()
    model = PottsDensity(l2=1e-7, random_state=0).fit(X)
    assert (
        model.encoding_.lists == ((1.0, 2.0, 3.0), (0.0, 10.0, 20.0), (0.0, 1.0))
        and not model.binned_
    )
    states = np.array(
        [[a, b, c] for a in (1, 2, 3) for b in (0, 10, 20) for c in (0, 1)], dtype=float
    )
    p = np.exp(model.score_samples(states))
    # the third column has no third value; half a count of mass is left there
    assert p.sum() == pytest.approx(1, abs=2e-3)
    for a, b in ((1, 0), (2, 10), (3, 0)):
        expected = ((X[:, 0] == a) & (X[:, 1] == b)).mean()
        assert p[(states[:, 0] == a) & (states[:, 1] == b)].sum() == pytest.approx(
            expected, abs=3e-3
        )
    filled = model.impute(np.array([[1, np.nan, 0], [np.nan, 20, 1], [2, 10, 1]]))
    np.testing.assert_array_equal(filled, [[1, 0, 0], [3, 20, 1], [2, 10, 1]])
    drawn = model.impute(np.tile([1, np.nan, 0], (300, 1)), how="draw", random_state=1)[:, 1]
    share = ((X[:, 0] == 1) & (X[:, 1] == 0)).sum() / (X[:, 0] == 1).sum()
    # five standard errors
    assert np.isin(drawn, [0, 10, 20]).all() and (drawn == 0).mean() == pytest.approx(
        share, abs=0.13
    )
    with pytest.raises(InputError, match=r"how must be 'mode' or 'draw' for categories"):
        model.impute(X[:2], how="mean")
    assert np.isin(model.sample(50), states).all()


def test_unknown_categories_are_named() -> None:
    model = PottsDensity(l2=1e-2, random_state=0).fit(table())
    with pytest.raises(
        InputError,
        match=r"X must hold categories seen in training, in column 1: 0, 10, 20; got 7 at row 0",
    ):
        model.score(np.array([[1.0, 7.0, 0.0]]))


def test_ising_on_bits_and_on_spins_is_one_model_and_agrees_with_the_data() -> None:
    rng = np.random.default_rng(1)
    common = rng.integers(0, 2, (500, 1))
    bits = ((common + (rng.random((500, 4)) < 0.25)) % 2).astype(float)
    on_bits = IsingDensity(random_state=0).fit(bits)
    on_spins = IsingDensity(random_state=0).fit(2 * bits - 1)
    np.testing.assert_allclose(
        on_bits.score_samples(bits), on_spins.score_samples(2 * bits - 1), atol=1e-6
    )
    states = np.array([[int(c) for c in f"{i:04b}"] for i in range(16)], dtype=float)
    p = np.exp(on_bits.score_samples(states))
    np.testing.assert_allclose(p.sum(), 1, atol=1e-6)
    # means and pair frequencies match
    np.testing.assert_allclose(states.T @ (p[:, None] * states), bits.T @ bits / 500, atol=2e-4)
    np.testing.assert_array_equal(np.unique(on_bits.sample(50)), [0, 1])
    np.testing.assert_array_equal(np.unique(on_spins.sample(50)), [-1, 1])
    filled = on_bits.impute(np.array([[1, 1, 1, np.nan], [0, 0, np.nan, 0]]))
    np.testing.assert_array_equal(filled, [[1, 1, 1, 1], [0, 0, 0, 0]])


def test_real_columns_are_cut_with_a_warning() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    with pytest.warns(
        PartitaWarning,
        match="fit: columns that are not categories are cut at their quartiles",
    ):
        potts = PottsDensity(l2=1e-2, random_state=0).fit(X)
    assert (
        potts.binned_
        and potts.model_.support.K == 4
        and set(np.unique(potts.sample(40))) <= {0, 1, 2, 3}
    )
    counts = np.stack([np.bincount(column.astype(int)) for column in potts.encoding_.encode(X).T])
    np.testing.assert_array_equal(counts, 50)
    with pytest.warns(
        PartitaWarning, match="fit: columns that are not binary are cut at their medians"
    ):
        ising = IsingDensity(l2=1e-2, random_state=0).fit(X)
    assert ising.binarized_ and set(np.unique(ising.sample(40))) == {0, 1}
    with pytest.raises(
        InputError, match=r"real columns were cut at their quantiles and cannot be drawn back"
    ):
        potts.impute(X[:2])


@pytest.mark.parametrize("estimator", [IsingDensity, PottsDensity])
def test_saved_and_loaded(estimator: Any, tmp_path: Path) -> None:
    X = table()[:, 2:].repeat(3, 1) if estimator is IsingDensity else table()
    first = estimator(l2=1e-2, random_state=0).fit(X)
    again = load(first.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.score_samples(X), first.score_samples(X))


def test_words_in_a_file_keep_their_meaning_in_another(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("color,size\n" + "red,S\nblue,extra large\ngreen,M\n" * 20)
    # in another order, with its own list
    (tmp_path / "b.csv").write_text("color,size\ngreen,M\nred,S\nblue,extra large\n")
    train = load_data(tmp_path / "a.csv", words=True).train
    assert train.columns == ("color", "size")
    encoding = Encoding.fit(train, "category")
    again = Encoding.from_json(encoding.as_json(), 2)
    other = load_data(tmp_path / "b.csv", words=True)
    rows = (
        torch.cat([other.train.tensor(), other.test.tensor()]).numpy()
        if other.test
        else other.train.tensor().numpy()
    )
    words = again.in_words(again.decode(again.encode(rows)))
    assert sorted(map(tuple, words)) == [("blue", "extra large"), ("green", "M"), ("red", "S")]
    with pytest.raises(InputError, match=r"in column 0: .*; got pink at row 0"):
        Encoding(
            "category",
            encoding.shift,
            encoding.scale,
            encoding.lists,
            {**encoding.labels, label_number("pink"): "pink"},
        ).check(np.array([[label_number("pink"), label_number("S")]]), "test")
    with pytest.raises(DataError, match="must be numeric; got text or other values in column"):
        load_data(tmp_path / "a.csv")


def test_sequences_share_their_alphabet(tmp_path: Path) -> None:
    lines = ["ACD-", "ACDE", "CADE", "DC-A"] * 10
    (tmp_path / "s.txt").write_text("\n".join(lines))
    (tmp_path / "s.fasta").write_text(
        "".join(f">row {i}\n{line[:2]}\n{line[2:]}\n" for i, line in enumerate(lines))
    )
    (tmp_path / "s.a2m").write_text(
        "".join(f">row {i}\n{line[:2]}xy.{line[2:]}\n" for i, line in enumerate(lines))
    )
    tables = [
        load_data(tmp_path / name, words=True).train.tensor()
        for name in ("s.txt", "s.fasta", "s.a2m")
    ]
    assert torch.equal(tables[0], tables[1]) and torch.equal(tables[0], tables[2])
    train = load_data(tmp_path / "s.fasta").train  # letters need no leave
    model, _ = FAMILIES["potts"].build(
        Encoding.fit(train, "category").rows(train), {}, generator=torch.Generator()
    )
    assert model.title() == "Potts(4, 5)"  # A, C, D, E and the gap in every column
    (tmp_path / "bad.fasta").write_text(">a\nACD\n>b\nAC\n")
    with pytest.raises(
        DataError,
        match=r"sequences must have one length.*got 3 in row 0 and 2 in row 1\. Align them first",
    ):
        load_data(tmp_path / "bad.fasta")
    (tmp_path / "none.fasta").write_text("ACD\n")
    with pytest.raises(DataError, match="must begin with a line that starts with '>'"):
        load_data(tmp_path / "none.fasta")


def test_families_build_what_they_say() -> None:
    g = torch.Generator().manual_seed(0)
    bits = Rows(torch.randint(2, (50, 5), generator=g).float())
    model, objective = FAMILIES["boltzmann"].build(bits, {"n_hidden": 2}, generator=g)
    assert (model.title(), type(objective).__name__) == ("Boltzmann(5, 2)", "ExactLikelihood")
    wide = Rows(torch.randint(2, (50, 30), generator=g).float())
    model, objective = FAMILIES["ising"].build(wide, {"edges": [[0, 1]]}, generator=g)
    assert (model.title(), type(objective).__name__) == ("Ising(30, 1 edges)", "PCD")
    codes = Rows(torch.randint(4, (50, 3), generator=g).float())
    kind = FAMILIES["rbm"].encoding_kind(codes, {"visible_units": "categorical"})
    model, _ = FAMILIES["rbm"].build(
        Encoding.fit(codes, kind).rows(codes),
        {"visible_units": "categorical", "n_hidden": 2},
        generator=g,
    )
    assert model.settings() == {
        "visible": 3,
        "hidden": 2,
        "visible_units": "categorical",
        "states": 4,
    }
    reals = Rows(torch.rand(20, 2, generator=g))
    assert FAMILIES["potts"].encoding_kind(reals, {}) == "quantile"
    assert FAMILIES["potts"].encoding_kind(reals, {"support": "categorical"}) == "category"
    for name, cut in (("ising", "median-signs"), ("boltzmann", "median"), ("maxent", "median")):
        assert FAMILIES[name].encoding_kind(reals, {}) == cut
        strict = Encoding.fit(reals, FAMILIES[name].encoding_kind(reals, {"support": "binary"}))
        with pytest.raises(InputError, match="fit: X must hold only 0 and 1; got"):
            strict.check(reals.tensor().numpy(), "fit")
