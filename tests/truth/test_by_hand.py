"""``partita compare`` says what the models and estimators say when they are called by hand: on
generated sets, and where ``$PARTITA_DATA`` has them on real ones.
"""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from typer.testing import CliRunner

import partita
from partita.cli.app import app
from partita.core.protocols import in_double
from partita.datasets import Dataset, load
from partita.estimators import IsingDensity, MaxEntDensity, MixtureDensity, PPCADensity
from partita.experiment.experiment import encoded_parts
from partita.tables import Rows
from partita.tables.encoding import Encoding


def real(file: str, *names: str) -> list[Any]:
    """Real sets where ``$PARTITA_DATA`` has their file; else one that is skipped."""
    there = (Path(os.environ.get("PARTITA_DATA", "")) / file).is_file()
    return (
        list(names)
        if there
        else [pytest.param(names[0], marks=pytest.mark.skip(reason=f"$PARTITA_DATA has no {file}"))]
    )


SETS = ("faithful", "geyser", "iris", "wreath", "crabs", "banknote", "diabetes145", "thyroid")
BINARY = ["coins", *real("debd/nltcs.npz", "debd/nltcs")]
CLOUDS = ["clouds", *real("mixtures/mixtures.npz", *(f"mixtures:{name}" for name in SETS))]
QUICK = ("--set", "validations=1")


def generated(folder: Path) -> dict[str, Path]:
    """Coins of a known machine in three parts, and two clouds of real points whose columns have
    different units.
    """
    g = np.random.default_rng(0)
    states = np.array(list(itertools.product([0.0, 1.0], repeat=7)))
    energy = np.logaddexp(0, states @ g.normal(0, 1.5, (7, 3))).sum(1) + states @ g.normal(
        0, 0.5, 7
    )
    coins = states[g.choice(len(states), 1600, p=np.exp(energy - logsumexp(energy)))].astype(
        np.uint8
    )
    np.savez(folder / "coins.npz", train=coins[:1000], valid=coins[1000:1200], test=coins[1200:])
    clouds = np.concatenate(
        [g.normal(size=(300, 3)) @ g.normal(size=(3, 3)), 6 + g.normal(size=(200, 3))]
    ) * [1.0, 20.0, 0.1]
    np.save(folder / "clouds.npy", clouds[g.permutation(500)])
    return {"coins": folder / "coins.npz", "clouds": folder / "clouds.npy"}


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(generated(tmp_path).get(request.param, request.param))


def compare(source: str, *words: str) -> dict[str, Any]:
    """Lines of the leaderboard by name; the runs are in ``board``."""
    result = CliRunner().invoke(
        app,
        ["compare", source, *words, "--json", "--no-report", "--out", "board"],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    board = json.loads(result.stdout)
    assert not board["left_out"] and not any(line["problem"] for line in board["results"])
    return {line["name"]: line["log_likelihood"] for line in board["results"]}


def learned_and_scored(dataset: Dataset, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The rows that a fit learns from, some being set aside to choose the weights by, and the rows
    of the test.
    """
    assert dataset.test is not None
    train, _ = encoded_parts(dataset, Encoding.constant("raw", dataset.train.width), seed)
    return tuple(rows.tensor().numpy().astype(float) for rows in (train, dataset.test))  # type: ignore[return-value]


@pytest.mark.parametrize("source", BINARY, indirect=True)
def test_energy_models_score_what_summing_all_states_gives(source: str) -> None:
    """Of the RBM with its equation in NumPy; of the others by the energies of all states. No chance
    is left.
    """
    words = ("--models", "rbm,ising,maxent", "--epochs", "2", "--set", "rbm.n_hidden=5", *QUICK)
    said, (_, x) = compare(source, *words), learned_and_scored(load(source))
    states = ((np.arange(2 ** x.shape[1])[:, None] >> np.arange(x.shape[1])) & 1).astype(float)
    for name, q in said.items():
        model = in_double(partita.load(Path("board", name)).model)
        if name == "rbm":
            W, b, c = (getattr(model, part).detach().numpy() for part in "Wbc")
            score, z = (np.logaddexp(0, rows @ W + c).sum(1) + rows @ b for rows in (x, states))
        else:
            spins = (lambda rows: 2 * rows - 1) if name == "ising" else lambda rows: rows
            with torch.no_grad():
                score, z = (-model(torch.from_numpy(spins(rows))).numpy() for rows in (x, states))
        assert q["kind"] == "exact" and q["n"] == len(x)
        assert q["value"] == pytest.approx(score.mean() - logsumexp(z), abs=1e-8)


@pytest.mark.parametrize("source", BINARY, indirect=True)
def test_models_with_one_optimum_score_as_their_estimators(source: str) -> None:
    """Two searches for one optimum, which end where the likelihood of training rows moves by less
    than 1e-3.

    On real rows, where every step sums over 65,536 states, one model will do.
    """
    models = (
        {"ising": IsingDensity, "maxent": MaxEntDensity}
        if source.endswith("coins.npz")
        else {"ising": IsingDensity}
    )
    said = compare(source, "--models", ",".join(models), "--set", "epochs=25", *QUICK)
    train, test = learned_and_scored(load(source))
    for name, estimator in models.items():
        by_hand = estimator(random_state=0, epochs=25).fit(train).evaluate(test)
        assert (by_hand.kind, by_hand.n) == (said[name]["kind"], said[name]["n"])
        assert said[name]["value"] == pytest.approx(by_hand.value, abs=3e-3)
        assert said[name]["se_data"] == pytest.approx(by_hand.se_data, rel=0.01)


@pytest.mark.parametrize("source", CLOUDS, indirect=True)
def test_closed_forms_score_as_their_estimators_and_as_scipy(source: str) -> None:
    """One normal law, and probabilistic PCA: nothing is left to chance, nor to a search."""
    words = (
        "--models",
        "mixture,ppca",
        "--set",
        "mixture.n_components=1",
        "--set",
        "ppca.n_components=1",
        "--set",
        "ppca.scale=common",
    )
    said, (train, test) = compare(source, *words), learned_and_scored(load(source))
    one = MixtureDensity(1).fit(train).score_samples(test)
    law = multivariate_normal(train.mean(0), np.cov(train.T, bias=True)).logpdf(test)
    assert (
        said["mixture"]["value"]
        == pytest.approx(one.mean(), abs=1e-5)
        == pytest.approx(law.mean(), abs=1e-5)
    )
    assert said["mixture"]["se_data"] == pytest.approx(
        law.std(ddof=1) / np.sqrt(len(law)), rel=1e-4
    )
    assert said["ppca"]["value"] == pytest.approx(
        PPCADensity(1, scale="common").fit(train).score(test), abs=1e-5
    )


@pytest.mark.parametrize("source", CLOUDS, indirect=True)
def test_mixtures_score_as_their_estimator(source: str) -> None:
    """Both begin at the best of eight starts; where they end in one optimum they score the same,
    but for the last steps, which validation rows cut short here. Where the optima differ, they
    differ by less than the spread of the rows.
    """
    words = ("--models", "mixture", "--set", "mixture.n_components=2", "--set", "mixture.n_init=8")
    said, (train, test) = compare(source, *words)["mixture"], learned_and_scored(load(source))
    by_hand = MixtureDensity(2, n_init=8, random_state=0).fit(train).evaluate(test)
    assert (said["kind"], said["n"]) == (by_hand.kind, by_hand.n)
    assert said["value"] == pytest.approx(by_hand.value, abs=0.5 * by_hand.se_data)


def test_missing_values_are_scored_and_counted_by_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One normal law for each column: that of its observed values; bits are counted by the values
    that are there.
    """
    monkeypatch.chdir(tmp_path)
    g = np.random.default_rng(0)
    x = g.normal(3.0, 1.0, (240, 3)) * [1.0, 20.0, 0.1]
    x[np.arange(240)[::2], g.integers(0, 3, 120)] = np.nan
    np.savetxt("gaps.csv", x, delimiter=",", header="a,b,c", comments="", fmt="%.6f")
    words = (
        "--models",
        "mixture",
        "--set",
        "mixture.n_components=1",
        "--set",
        "mixture.covariance_type=diagonal",
    )
    said, data = compare("gaps.csv", *words)["mixture"], load("gaps.csv", missing=True)
    train, test = learned_and_scored(data)
    by_row = np.nansum(norm.logpdf(test, np.nanmean(train, 0), np.nanstd(train, 0)), 1)
    assert said["value"] == pytest.approx(by_row.mean(), abs=1e-4) and said["n"] == len(test)
    assert said["se_data"] == pytest.approx(by_row.std(ddof=1) / np.sqrt(len(test)), rel=1e-3)
    line = json.loads(Path("board", "leaderboard.json").read_text())["results"][0]
    assert line["bits_per_dimension"]["value"] == pytest.approx(
        -said["value"] * len(test) / np.log(2) / (~np.isnan(test)).sum()
    )


@pytest.mark.parametrize("source", [*BINARY, *CLOUDS], indirect=True)
def test_every_number_is_that_of_fit_with_the_same_seed(source: str) -> None:
    """Bit for bit: estimates and bounds as well, for their draws are the same."""
    binary = source.endswith("coins.npz") or source.startswith("debd")
    models, more = (
        ("rbm,vae,autoregressive", {})
        if binary
        else ("flow,vae,dpmm", {"flow": ("n_layers=2",), "dpmm": ()})
    )
    # many rows: without bounds
    models, epochs = ("rbm,autoregressive", "1") if source.startswith("debd") else (models, "2")
    said = compare(
        source,
        "--models",
        models,
        "--epochs",
        epochs,
        *(w for n in more for pair in more[n] for w in ("--set", f"{n}.{pair}")),
    )
    for name in models.split(","):
        own = ([] if name == "dpmm" else ["patience=5"]) + list(more.get(name, ()))
        words = [
            "fit",
            name,
            source,
            "--epochs",
            epochs,
            "--json",
            "--no-report",
            *(word for pair in own for word in ("--set", pair)),
        ]
        alone = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)
        assert alone["log_likelihood"] == said[name]


def test_rows_are_set_aside_alike() -> None:
    """What these tests take for the rows of a fit are those rows: nine in ten, always the same."""
    data = Dataset("mine", Rows(np.arange(400.0).reshape(200, 2)), None, Rows(np.ones((3, 2))))
    (a, test), (b, _) = learned_and_scored(data), learned_and_scored(data)
    assert a.shape == (180, 2) and np.array_equal(a, b) and test.shape == (3, 2)
