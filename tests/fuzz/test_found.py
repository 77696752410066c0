"""What odd inputs have found, each by itself: faults that were, and the sentences that took their
place.
"""

import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.fuzz import subjects
from tests.fuzz.commands import command
from tests.fuzz.test_mixed_tables import fitted, usual

import partita
from partita.bayes.conjugate import PoissonGamma
from partita.core import capability, rng
from partita.datasets.open import Reading
from partita.datasets.text import Alphabet
from partita.errors import DataError, Diverged, InputError, RunError, TooLarge
from partita.estimators import (
    DirichletProcessMixture,
    FlowDensity,
    MixtureDensity,
    PrototypeEncoder,
)
from partita.models import RBM
from partita.nets import SequenceNet
from partita.report.ranking import Standing, table_cells
from partita.samplers import Gibbs, Tempering
from partita.tables.encoding import Encoding
from partita.training.guard import Watch

WATCH = Watch().tree()


@pytest.mark.parametrize(
    ("symbols", "tokens"), [("ab", [-1, 0]), ("ab", [2]), (None, [256]), (None, [-1])]
)
def test_tokens_outside_do_not_wrap_around(symbols: str | None, tokens: list[int]) -> None:
    with pytest.raises(InputError, match="must be of the vocabulary"):
        Alphabet(symbols).decode(tokens)


@pytest.mark.parametrize("symbols", ["ba", "aa", 3])
def test_a_vocabulary_is_in_order(symbols: Any) -> None:
    """Characters are looked up by bisection: in another order they would be taken for others."""
    with pytest.raises(DataError, match="each once and in order"):
        Reading(symbols=symbols)


def test_sequences_of_no_steps() -> None:
    with pytest.raises(InputError, match="L of at least 1"):
        SequenceNet(4, 1, generator=torch.Generator())(torch.zeros(2, 0, 4))


def test_an_encoding_without_its_lists() -> None:
    with pytest.raises(RunError, match="encoding must say how each of 1 columns"):
        Encoding.from_json(
            {"kind": "mixed", "columns": ["category"], "shift": [0.0], "scale": [1.0]}, 1
        )


@pytest.mark.parametrize(
    "other", [{"event": 1}, {"returns": None}, {"ill": [1]}, {"event": {"step": 1}}, {"good": 1}]
)
def test_what_a_watch_saw_is_checked(other: dict[str, Any]) -> None:
    with pytest.raises((RunError, KeyError)):  # the latter becomes one where a fit is taken up
        Watch.restored({**WATCH, **other}, None)
    assert Watch.restored(WATCH, None) == Watch()


def test_an_error_is_one_line_whatever_the_name(tmp_path: Path) -> None:
    """Nor does a file's name move the cursor or color the screen."""
    (path := tmp_path / "new\nline\x1b[31m\u2028.csv").touch()
    told = command("schema", path)
    assert (
        told.exit_code == 1
        and told.stderr.count("\n") == 1
        and "new\\nline\\x1b[31m\\u2028.csv" in told.stderr
    )


@pytest.mark.parametrize("path", ["a" * 300, "x\x00", 3, None], ids=repr)
@pytest.mark.parametrize("name", ["MixtureDensity", "PrototypeEncoder", "BayesianLinearRegression"])
def test_estimators_are_saved_in_folders(name: str, path: Any) -> None:
    with pytest.raises(InputError, match="save: path must be the path of a folder"):
        subjects.fitted(name).save(path)


def test_frames_in_another_order_are_filled_by_name() -> None:
    frame: pd.DataFrame = usual()[["t", "w", "n", "a"]]
    pd.testing.assert_frame_equal(fitted("MixtureDensity").impute(frame), frame)


@pytest.mark.parametrize("columns", [3, [1], {0: "real"}, torch.ones(2)], ids=repr)
def test_kinds_are_asked_for_by_name(columns: Any) -> None:
    with pytest.raises(InputError, match="columns must say kinds by name"):
        MixtureDensity(component="mixed", columns=columns).fit(usual())


def test_a_flag_is_true_or_false() -> None:
    with pytest.raises(InputError, match="verbose must be True or False"):
        FlowDensity(**{**subjects.quick("FlowDensity"), "verbose": "x"}).fit(
            subjects.rows("FlowDensity")[0]
        )


@pytest.mark.parametrize(
    "X",
    [np.zeros((2, 3), "i4,f8"), [["x"] * 3], [[1j] * 3], np.full((1, 3), np.nan), [1.0, 2.0], None],
    ids=repr,
)
def test_normal_scores_are_numbers(X: Any) -> None:
    with pytest.raises(InputError, match=r"FlowDensity\.inverse_transform"):
        subjects.fitted("FlowDensity").inverse_transform(X)


@pytest.mark.parametrize(
    "setting",
    [
        {"shape": []},
        {"shape": "auto"},
        {"shape": range(3)},
        {"shape": (1, 1, 3)},
        {"n_prototypes": 1.5},
        {"hidden": 3},
        {"hidden": np.array(3)},
        {"hidden": torch.ones(2)},
    ],
    ids=repr,
)
def test_sizes_are_whole_numbers(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"PrototypeEncoder: {next(iter(setting))} must be"):
        PrototypeEncoder(**subjects.quick("PrototypeEncoder") | setting).fit(
            subjects.rows("PrototypeEncoder")[0]
        )


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("RBMDensity", {"optimizer": np.ones(2)}),
        ("MixtureDensity", {"component": np.ones(2)}),
        ("VAEDensity", {"n_hidden": torch.ones(2)}),
        ("BayesianLinearRegression", {"ridge": np.ones(2)}),
        ("BayesianLogisticRegression", {"prior_precision": np.ones(2)}),
        ("RBMDensity", {"l1": Fraction(1, 3)}),
        ("PPCADensity", {"reg_covar": Fraction(1, 3)}),
        ("PrototypeEncoder", {"momentum": Fraction(1, 3)}),
        ("DirichletProcessMixture", {"weight_concentration_prior": 1e308}),
        ("DirichletProcessMixture", {"prior_mean": 1e308}),
        ("DirichletProcessMixture", {"prior_mean": 1e12}),
        ("RBMDensity", {"l1": 10**30}),
    ],
)
def test_settings_that_nothing_can_be_computed_with(name: str, setting: dict[str, Any]) -> None:
    """Arrays where there is one truth, numbers that torch does not multiply by, or whose squares
    are none.
    """
    (X, y), estimator = (
        subjects.rows(name),
        subjects.kind_of(name)(**subjects.quick(name) | setting),
    )
    with pytest.raises(InputError, match=f"{next(iter(setting))} must "):
        estimator.fit(X, y) if name.startswith("Bayes") else estimator.fit(X)


@pytest.mark.parametrize(
    "y",
    [-1, None, [[1, 2]], np.linspace(0, 1, 16), object()],
    ids=["number", "nothing", "matrix", "reals", "object"],
)
@pytest.mark.parametrize("method", ["knn_score", "probe_score"])
def test_probes_need_labels(method: str, y: Any) -> None:
    with pytest.raises(InputError, match="PrototypeEncoder: "):
        getattr(subjects.fitted("PrototypeEncoder"), method)(
            subjects.rows("PrototypeEncoder")[0], y
        )


@pytest.mark.parametrize("setting", [{"temperature": 1e308}, {"learning_rate": 1e308}], ids=repr)
def test_encoders_that_diverge_say_so(setting: dict[str, Any]) -> None:
    with warnings.catch_warnings(action="ignore"), pytest.raises(Diverged, match="Lower"):
        PrototypeEncoder(**subjects.quick("PrototypeEncoder") | setting).fit(
            subjects.rows("PrototypeEncoder")[0]
        )


def test_whole_numbers_of_numpy_are_keys_too() -> None:
    assert rng.keyed(3, np.int64(2)).initial_seed() == rng.keyed(3, 2).initial_seed()  # type: ignore[arg-type]


def test_cells_that_hold_lists_are_no_numbers() -> None:
    X = np.empty((4, 2), dtype=object)
    for row in range(4):
        X[row] = [float(row), [1]]
    with pytest.raises(InputError, match="must be numeric; got text or other values in column 1"):
        partita.tables.as_rows(X)


def test_tensors_that_are_not_dense_are_named() -> None:
    with pytest.raises(InputError, match=r"must be a dense table; .*to_dense"):
        partita.tables.as_rows(torch.ones(2, 2).to_sparse())


@pytest.mark.parametrize("betas", [torch.zeros(2, device="meta"), torch.eye(2).to_sparse()])
def test_temperatures_are_numbers_that_are_there(betas: Any) -> None:
    with pytest.raises(InputError, match="Tempering: betas must"):
        Tempering(Gibbs(), betas=betas)


def test_truth_values_are_steps_too(generator: torch.Generator) -> None:
    model = partita.models.Autoregressive(3, states=2, width=8, layers=1, generator=generator)
    x = torch.tensor([[True, False, True]])
    assert (
        partita.evaluate(model, x, generator=generator).value
        == partita.evaluate(model, x.float(), generator=generator).value
    )


def test_an_array_as_an_option_of_closed_form_updates_is_named(generator: torch.Generator) -> None:
    model = partita.models.Mixture(2, 2, generator=generator)
    with pytest.raises(InputError, match="average must be left out with EM"):
        partita.fit(model, torch.ones(4, 2), steps=1, average=np.array([1, 2]), generator=generator)


def test_words_are_filled_though_categories_were_fitted_and_none_is_no_table() -> None:
    words = pd.DataFrame({"a": np.linspace(0, 1, 12), "w": ["x", "y", "z"] * 4})
    model = MixtureDensity(2, component="mixed", random_state=0).fit(
        words.astype({"w": "category"})
    )
    words.loc[0, "w"] = None
    assert model.impute(words)["w"].isin(["x", "y", "z"]).all()
    with pytest.raises(InputError, match="X must have at least one row; got 0"):
        model.predict(words[:0])


def test_a_prior_that_is_none_is_named(generator: torch.Generator) -> None:
    """As a save that was changed may hold."""
    x = torch.randn(16, 2, generator=generator, dtype=torch.float64)
    model = DirichletProcessMixture(sweeps=3, random_state=0).fit(x.numpy())
    model.model_.prior.zero_()
    with pytest.raises(Diverged, match="positive definite"):
        model.predict(x.numpy())


def test_draws_of_other_clusters_are_named(tmp_path: Path) -> None:
    model = DirichletProcessMixture(sweeps=3, random_state=0).fit(
        np.random.default_rng(0).normal(size=(16, 2))
    )
    model.model_.partitions += 20
    with pytest.raises(RunError, match="must be of the clusters saved with them"):
        partita.estimators.load(model.save(tmp_path / "run"))


def test_names_of_columns_are_a_list(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([-6, 42]), columns=np.array(3))
    data = partita.datasets.load(tmp_path / "x.npz")
    assert data.train.width == 1 and data.columns is None


def test_a_flag_is_a_flag_and_an_encoder_no_density(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match="fit: resume must be True or False"):
        partita.fit(
            partita.models.RBM(2, 2, generator=generator),
            torch.ones(4, 2),
            steps=1,
            resume=torch.ones(2),
            generator=generator,
        )  # type: ignore[arg-type]
    encoder = subjects.kind_of("PrototypeEncoder")
    with pytest.raises(InputError, match="sample: model must be an object such as RBM"):
        partita.sample(encoder, 2, sampler=partita.samplers.Gibbs(), generator=generator)  # type: ignore[arg-type]


def test_numbers_that_are_not_known_are_shown_as_such() -> None:
    line = {
        "name": "x",
        "difference": {"value": None, "low": None, "high": 1.0},
        "bits_per_dimension": {"value": None},
        "log_likelihood": {
            "value": -1.0,
            "low": -1.0,
            "high": -1.0,
            "kind": "exact",
            "verdict": "tight",
        },
    }
    assert "? (?\u00a0to\u00a01.000)" in table_cells(Standing(line), [])


@pytest.mark.parametrize(
    ("name", "flag"),
    [("AIS", "adaptive"), ("Sandwich", "adaptive"), ("LatentAIS", "adaptive"), ("IWAE", "by_row")],
)
def test_flags_of_parts_are_true_or_false(name: str, flag: str) -> None:
    with pytest.raises(InputError, match=f"{name}: {flag} must be True or False"):
        capability.part_named(name)(**{flag: torch.ones(2)})


@pytest.mark.parametrize(
    ("part", "error", "said"),
    [
        (partita.objectives.NCE(ratio=1e308), TooLarge, "more memory than there is"),
        (
            partita.objectives.PCD(sampler=partita.samplers.Langevin(step_size=1e308)),
            Diverged,
            "Langevin",
        ),
    ],
    ids=["NCE", "Langevin"],
)
def test_numbers_near_the_largest_there_is(
    part: Any, error: type, said: str, generator: torch.Generator
) -> None:
    model = partita.models.RBM(2, 2, visible_units="gaussian", generator=generator)
    with pytest.raises(error, match=said):
        partita.fit(
            model, torch.randn(8, 2, generator=generator), part, steps=1, generator=generator
        )


def test_the_widths_of_a_critic_are_whole_numbers(generator: torch.Generator) -> None:
    objective = partita.objectives.Adversarial(critic=0.5)
    with pytest.raises(InputError, match="Adversarial: critic must be whole numbers"):
        partita.fit(
            partita.models.GAN(2, generator=generator),
            torch.ones(8, 2),
            objective,
            steps=1,
            generator=generator,
        )


@pytest.mark.parametrize("weight", [10**400, [10**400] * 4, "heavy"])
def test_weights_that_float64_cannot_hold_are_named(
    weight: Any, generator: torch.Generator
) -> None:
    with pytest.raises(InputError, match=r"^fit: weight must be numbers that float64 holds; got "):
        partita.fit(
            RBM(3, 2, generator=generator),
            torch.ones(4, 3),
            sample_weight=weight,
            steps=1,
            generator=generator,
        )


def test_hyper_parameters_that_float64_cannot_hold_are_named() -> None:
    with pytest.raises(InputError, match=r"PoissonGamma: a must be numbers; got 1000"):
        PoissonGamma(a=10**400, b=1.0)
