"""Models with latent variables on the command line: fit, evaluate from below, sample, impute."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from partita.core.quantity import Quantity
from partita.report.format import latent_use_in_words


@pytest.mark.filterwarnings("ignore:fit. the posterior has collapsed")
def test_a_vae_is_fitted_scored_from_below_sampled_and_fills_holes(
    call: Any, tmp_path: Path
) -> None:
    result = call(
        "fit", "vae", "moons", "--set", "steps=5", "--set", "n_hidden=8", "--quiet", "--out", "run"
    )
    assert result.exit_code == 0 and "lower bound by IWAE with 128 draws" in result.output
    printed = json.loads(
        call("evaluate", "run", "--evaluator", "iwae-8", "--split", "train", "--json").stdout
    )
    assert printed["kind"] == "lower" and printed["method"] == "IWAE with 8 draws"
    assert len(printed["kl_per_dimension"]) == 2 and printed["details"]["active_units"] == sum(
        kl > 0.01 for kl in printed["kl_per_dimension"]
    )
    phrase = f"{printed['details']['active_units']} of 2 carry more than 0.01 nats"
    assert phrase in call("evaluate", "run", "--evaluator", "iwae-8", "--split", "train").output
    assert (
        "Latent dimensions: " in result.output and "of 2 carry more than 0.01 nats" in result.output
    )
    assert "Exact independent draws." in call("sample", "run", "-n", "3").output
    holes = tmp_path / "holes.csv"
    holes.write_text("a,b\n0.5,\n,0.2\n")
    assert (
        "2 of 4 values filled by chains of its posterior"
        in call("impute", "run", holes, "--out", tmp_path / "full.csv").output
    )
    assert np.isfinite(np.loadtxt(tmp_path / "full.csv", delimiter=",", skiprows=1)).all()
    assert "--evaluator must be one of" in call("evaluate", "run", "--evaluator", "iwaee").output


@pytest.mark.filterwarnings("ignore:fit. the posterior has collapsed")
def test_a_vrnn_reads_sequences_of_different_lengths(call: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 7, 30)
    stream = (rng.random((lengths.sum(), 3)) < 0.3).astype(np.uint8)
    np.savez(
        tmp_path / "rolls.npz",
        train=stream,
        train_lengths=lengths,
        test=stream,
        test_lengths=lengths,
    )
    small = [
        "--set",
        "n_hidden=8",
        "--set",
        "n_features=8",
        "--set",
        "n_latent=2",
        "--set",
        "steps=3",
    ]
    result = call(
        "fit",
        "vrnn",
        tmp_path / "rolls.npz",
        *small,
        "--set",
        "objective=fivo",
        "--set",
        "n_particles=2",
        "--quiet",
        "--out",
        "run",
    )
    assert (
        result.exit_code == 0 and "Per step: -" in result.output and "lower bound" in result.output
    )
    printed = json.loads(call("evaluate", "run", "--evaluator", "filter-4", "--json").stdout)
    assert (
        printed["method"] == "particle filter with 4 particles"
        and printed["details"]["steps"] == lengths.sum()
    )
    drawn = json.loads(call("sample", "run", "-n", "2", "--length", "5", "--json").stdout)
    assert drawn["exact"] and np.load(drawn["out"])["x"].shape == (2, 5, 3)
    assert (
        "be left out with latent variables" in call("sample", "run", "--temperature", "0.5").output
    )


def test_a_collapsed_posterior_is_called_so_wherever_a_score_is_shown() -> None:
    kl = torch.zeros(16).index_fill(0, torch.tensor([3]), 0.5)
    q = Quantity(
        -8.0, kind="lower", details={"kl_per_dimension": kl, "active_units": 1, "per_step": -8.0}
    )
    printed = (
        "1 of 16 carry more than 0.01 nats a step: 0.5 in all, the most 0.5. The posterior has "
        "collapsed: the model hardly uses them"
    )
    assert latent_use_in_words(q) == printed and latent_use_in_words(Quantity(-8.0)) == ""


def test_text_has_no_likelihood_here_and_says_where_it_has(call: Any, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("abra cadabra " * 200)
    result = call("fit", "vrnn", tmp_path / "words.txt", "--set", "length=16")
    assert (
        result.exit_code == 1
        and "be sequences of bits or numbers" in result.output
        and "partita fit autoregressive" in result.output
    )
