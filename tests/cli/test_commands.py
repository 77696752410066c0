"""Every command on small data: what it prints, what it writes, and that its numbers are the
library's.
"""

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import partita
from partita.cli import options
from partita.datasets import load
from partita.errors import PartitaWarning
from partita.estimators import IsingDensity, MaxEntDensity
from partita.evaluators.likelihood import EVALUATORS
from partita.experiment.saved import free_path

COMMANDS = ("fit", "evaluate", "sample", "models", "data")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(command: str, call: Any) -> None:
    result = call(command, "--help")
    assert result.exit_code == 0
    assert f"Example: partita {command}" in result.output
    assert "<bool>" not in result.output  # a flag takes no value


def test_the_help_of_evaluate_names_every_evaluator() -> None:
    """Written by hand, for the help imports no torch."""
    named = set(re.findall(r"[\w-]+", options.EVALUATORS))
    assert named >= {"auto", *EVALUATORS, "iwae-K", "latent-ais-T", "filter-K"}


def test_version_and_bare_call(call: Any) -> None:
    assert call("--version").output == f"partita {partita.__version__}\n"
    assert call().exit_code == 2


def test_fit_shows_card_score_and_next_steps(call: Any) -> None:
    result = call("fit", "rbm", "bars-and-stripes", "--epochs", "5")
    assert result.exit_code == 0
    assert (
        "bars-and-stripes: 32 training rows, 32 test; 16 columns, binary.\nModel: RBM(16, "
        "8)." in result.output
    )
    assert (
        "Log-likelihood per test row: -" in result.output
        and "exact by enumeration of 2^8 hidden states" in result.output
    )
    assert "Exact: computed without sampling" in result.output
    assert "Next: partita evaluate runs/rbm-bars-and-stripes-1" in result.output
    call("fit", "rbm", "bars-and-stripes", "--epochs", "1", "--quiet")
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "rbm-bars-and-stripes-1",
        "rbm-bars-and-stripes-2",
    ]


def test_fit_json_is_one_object_with_the_librarys_number(call: Any) -> None:
    result = call(
        "fit",
        "rbm",
        "digits",
        "--epochs",
        "2",
        "--set",
        "n_hidden=6",
        "--json",
        "--out",
        "run",
        "--seed",
        "4",
    )
    printed = json.loads(result.stdout)
    run = partita.load("run")
    test = load("digits").test
    assert test is not None
    q = partita.evaluate(run.model, test.tensor(), generator=torch.Generator())
    assert printed["log_likelihood"]["value"] == q.value
    assert (
        printed["log_likelihood"]["kind"] == "exact"
        and printed["run"] == "run"
        and printed["stopped"] == "finished"
    )
    assert (
        run.config["seed"] == 4
        and run.config["data"]["name"] == "digits"
        and run.config["command"].startswith("partita")
    )
    assert run.series("validation")  # a tenth of the training rows was held out


def test_settings_reach_family_fit_and_data(call: Any) -> None:
    words = (
        "n_hidden=3",
        "objective=cd",
        "n_steps=2",
        "learning_rate=.5",
        "schedule=constant",
        "batch_size=50",
        "centered=false",
        "binarize=0.4",
    )
    settings = [part for word in words for part in ("--set", word)]
    result = call(
        "fit", "rbm", "digits-gray", "--epochs", "1", "--quiet", "--out", "run", *settings
    )
    assert result.exit_code == 0
    config = partita.load("run").config
    assert config["model"] == {
        "name": "RBM",
        "dtype": "float32",
        "visible": 64,
        "hidden": 3,
        "visible_units": "bernoulli",
    }
    assert (
        config["objective"]["part"] == "CD"
        and config["objective"]["steps"] == 2
        and config["objective"]["centered"] is False
    )
    assert (
        config["fit"]["learning_rate"],
        config["fit"]["schedule"],
        config["fit"]["batch_size"],
    ) == (0.5, "constant", 50)
    assert config["data"]["binarize"] == 0.4
    assert call("evaluate", "run").exit_code == 0


def test_gray_levels_are_drawn_in_the_same_way_by_every_command(call: Any) -> None:
    fit = call(
        "fit",
        "rbm",
        "digits-gray",
        "--set",
        "binarize=dynamic",
        "--set",
        "n_hidden=4",
        "--epochs",
        "1",
        "--json",
        "--out",
        "run",
    )
    assert (
        json.loads(fit.stdout)["log_likelihood"]["value"]
        == json.loads(call("evaluate", "run", "--json").stdout)["value"]
    )


def test_minutes_fix_the_number_of_steps(call: Any) -> None:
    call("fit", "rbm", "bars-and-stripes", "--minutes", "0.02", "--quiet", "--out", "run")
    run = partita.load("run")
    assert run.steps == run.config["steps"] >= 10


def test_maxent_of_few_columns_is_fitted_exactly(call: Any, table: Path) -> None:
    result = call(
        "fit",
        "maxent",
        str(table),
        "--json",
        "--out",
        "run",
        "--set",
        "features=k-pairwise",
        "--set",
        "l2=1e-6",
    )
    assert json.loads(result.stdout)["log_likelihood"]["kind"] == "exact"
    assert partita.load("run").config["objective"] == {"part": "ExactLikelihood"}


CUT = "columns that are not binary are cut at their medians. Cut them yourself"


@pytest.mark.parametrize(("family", "cls"), [("ising", IsingDensity), ("maxent", MaxEntDensity)])
def test_real_columns_are_cut_alike_here_and_in_python(family: str, cls: Any, call: Any) -> None:
    np.save("x.npy", np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32))
    fit = ("fit", family, "x.npy", "--set", "l2=1e-2", "--out")
    card = call(*fit, "shown")
    assert "3 columns, real, cut at their medians" in card.stdout
    assert f"Warning: {CUT}" in card.stderr
    printed = json.loads(call(*fit, "run", "--json").stdout)
    run = partita.load("run")
    with pytest.warns(PartitaWarning, match=f"^fit: {CUT}"):
        model = cls(l2=1e-2, random_state=0).fit(load("x.npy").train.tensor().double().numpy())
    assert printed["warnings"][0].startswith(CUT) and run.warnings[0].startswith(CUT)
    assert run.config["encoding"] == model.encoding_.as_json()


def test_real_columns_are_standardized_and_scored_in_their_units(call: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(400, 2)) * [1000, 0.1] + [5e4, 3]
    np.save(tmp_path / "x.npy", x)
    printed = json.loads(
        call(
            "fit", "rbm", "x.npy", "--epochs", "20", "--set", "n_hidden=2", "--json", "--out", "run"
        ).stdout
    )
    entropy = np.log(2 * np.pi * np.e) + np.log(1000 * 0.1)
    # 80 test rows: four standard errors
    assert printed["log_likelihood"]["value"] == pytest.approx(-entropy, abs=0.3)
    assert (
        json.loads(call("evaluate", "run", "--json").stdout)["value"]
        == printed["log_likelihood"]["value"]
    )
    call("sample", "run", "-n", "200", "--out", "y.npy")
    np.testing.assert_allclose(np.load("y.npy").mean(0), [5e4, 3], rtol=0.05)


@pytest.fixture
def fitted(call: Any, table: Path) -> Path:
    call("fit", "rbm", str(table), "--epochs", "3", "--quiet", "--out", "run")
    return Path("run")


def test_evaluate_finds_the_data_of_the_run_from_anywhere(
    call: Any, fitted: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = call("evaluate", str(fitted)).output
    assert (
        "5 test rows" not in here
        and "60 test rows of" in here
        and "log-likelihood per row" in here
        and "verdict" in here
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (
        call("evaluate", "../run", "--split", "train", "--bits").output.count("bits per dimension")
        == 1
    )


def test_all_rows_of_other_data_are_scored_and_what_was_held_out_of_its_own(
    call: Any, fitted: Path, table: Path
) -> None:
    """The mean over all rows is that of both parts of the run's own file; another file has no part
    that was learned from.
    """
    copy = table.with_name("other.csv")
    copy.write_text(table.read_text())
    printed = {
        split: json.loads(call("evaluate", fitted, table, "--split", split, "--json").stdout)
        for split in ("train", "test", "all")
    }
    assert [printed[split]["n"] for split in printed] == [240, 60, 300]
    assert 300 * printed["all"]["value"] == pytest.approx(
        240 * printed["train"]["value"] + 60 * printed["test"]["value"]
    )
    for given in ((), (table,), ("spikes.csv",)):
        assert (
            json.loads(call("evaluate", fitted, *given, "--json").stdout)["value"]
            == printed["test"]["value"]
        )
    other = json.loads(call("evaluate", fitted, copy, "--json").stdout)
    assert other["split"] == "all" and (other["n"], other["value"]) == (
        300,
        pytest.approx(printed["all"]["value"]),
    )
    assert "on all 300 rows of other.csv" in call("evaluate", fitted, "other.csv").output
    assert "of these the run learned from some" in call("evaluate", fitted, "--split", "all").output


def test_parts_of_its_own_are_scored_together(call: Any, fitted: Path, table: Path) -> None:
    x = np.loadtxt(table, delimiter=",", skiprows=1)
    np.savez("parts.npz", train=x[:100], valid=x[100:130], test=x[130:])
    requests = ((table, "--split", "all"), ("parts.npz",))
    whole, together = (
        json.loads(call("evaluate", fitted, *given, "--json").stdout) for given in requests
    )
    assert together["n"] == 300 and together["value"] == pytest.approx(whole["value"])
    assert json.loads(call("anomalies", fitted, "parts.npz", "--json").stdout)["rows"] == 300


def test_rows_that_came_after_the_fit_are_cautioned_about(
    call: Any, fitted: Path, table: Path
) -> None:
    table.write_text(table.read_text() + "0,0,1,1,0\n" * 20)
    assert "has other rows than when the run was fitted" in call("evaluate", fitted).stderr


KINDS = {
    "enumeration": "exact",
    "ais": "upper",
    "reverse-ais": "estimate",
    "sandwich": "estimate",
    "bridge": "estimate",
}


@pytest.mark.parametrize(("evaluator", "kind"), KINDS.items())
def test_evaluators_say_what_they_are(
    evaluator: str, kind: str, call: Any, fitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AIS", "ReverseAIS", "Sandwich", "Bridge"):
        cls = getattr(partita.evaluators, name)
        small = (
            {"temperatures": 40, "chains": 64}
            if name != "Bridge"
            else {"temperatures": 6, "draws": 100}
        )
        monkeypatch.setattr(partita.evaluators, name, lambda cls=cls, small=small: cls(**small))
    exact = json.loads(call("evaluate", str(fitted), "--json").stdout)
    q = json.loads(call("evaluate", str(fitted), "--evaluator", evaluator, "--json").stdout)
    assert q["kind"] == kind
    assert q["value"] == pytest.approx(exact["value"], abs=0.1)
    words = {"exact": "Exact:", "upper": "An upper bound", "estimate": "An estimate:"}[kind]
    assert words in call("evaluate", str(fitted), "--evaluator", evaluator).output


def test_sample_writes_every_format(call: Any, fitted: Path) -> None:
    for name in ("d.csv", "d.npy", "d.npz"):
        result = call("sample", str(fitted), "-n", "7", "--out", name)
        assert (
            f"7 draws written to {name}" in result.output
            and "Exact independent draws" in result.output
        )
    assert Path("d.csv").read_text().startswith("a,b,c,d,e\n")
    with np.load("d.npz") as archive:
        np.testing.assert_array_equal(archive["x"], np.load("d.npy"))
        assert list(archive["columns"]) == list("abcde")
    np.testing.assert_array_equal(np.loadtxt("d.csv", delimiter=",", skiprows=1), np.load("d.npy"))
    call("sample", str(fitted), "-n", "7")
    assert (fitted / "samples-1.csv").exists()  # for the columns have names


def test_sample_previews_images_and_reports_mixing(call: Any) -> None:
    call("fit", "rbm", "digits", "--epochs", "1", "--set", "n_hidden=4", "--quiet", "--out", "run")
    result = call("sample", "run", "-n", "4", "--burn-in", "20", "--png", "p.png")
    assert "R-hat" in result.output and "█" in result.output
    data = Path("p.png").read_bytes()
    assert data.startswith(b"\x89PNG") and struct.unpack(">II", data[16:24]) == (17, 17)
    printed = json.loads(call("sample", "run", "-n", "4", "--burn-in", "20", "--json").stdout)
    assert printed["exact"] is False and printed["n"] == 4 and printed["rhat"] > 0.9


def test_lists(call: Any) -> None:
    families = json.loads(call("models", "--json").stdout)
    assert (
        set(families) >= {"rbm", "maxent"}
        and families["rbm"]["settings"]["n_chains"]["default"] == 256
    )
    lines = call("models").output.splitlines()
    assert lines[:-1] == [f"{name}: {family['summary']}" for name, family in families.items()]
    text = call("models", "rbm").output
    assert "rbm: restricted Boltzmann machine" in text and "learning_rate" in text
    grid = call("models", "--grid").output
    assert "ExactLikelihood" in grid and "neither side has at most 2^20 states" in grid
    assert re.search(r"^  PCD .*( +•)+", grid, re.M)
    assert re.search(r"^  ScoreMatching .*\b[a-z]\b.*•", grid, re.M)
    assert {"model", "role", "part", "reason"} == set(
        json.loads(call("models", "--grid", "--json").stdout)[0]
    )
    assert "bars-and-stripes" in call("data").output
    assert json.loads(call("data", "--json").stdout)[0]["name"] == "digits"


def test_free_path_counts_on(tmp_path: Path) -> None:
    assert free_path(tmp_path / "runs" / "a").name == "a-1"
    (tmp_path / "a-1").mkdir()
    (tmp_path / "a-3").mkdir()
    assert free_path(tmp_path / "a").name == "a-2"
