"""The gradient laboratory and belief nets on the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def test_the_gradient_lab(call: Any) -> None:
    settings = ("--set", "draws=400", "--set", "bits=2", "--json", "--out", "g.html")
    printed = json.loads(call("lab", "gradients", *settings).stdout)
    assert {"REINFORCE", "REBAR", "VIMCO", "Gumbel-softmax"} <= set(printed["estimators"])
    found = printed["estimators"]["leave-one-out"]
    assert (
        found["unbiased"]
        and found["cost"] == 4
        and found["variance_times_cost"] == pytest.approx(4 * found["variance"])
    )
    assert Path("g.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("bits=30", "bits must be at most 10"),
        ("problem=bit", "problem must be one of 'bits', 'layers', 'categories', 'evidence'"),
        ("draws=3", "draws must be a whole number of at least 100"),
    ],
)
def test_wrong_settings_of_the_lab_are_named(call: Any, setting: str, message: str) -> None:
    assert message in call("lab", "gradients", "--set", setting).output


def test_fit_score_sample_and_impute_a_belief_net(call: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.repeat(rng.integers(0, 2, (60, 2)), 3, axis=1).astype(float)
    np.save("x.npy", x)
    settings = (
        "--set",
        "estimator=rebar",
        "--set",
        "n_layers=2",
        "--set",
        "n_hidden=8",
        "--epochs",
        "2",
        "--quiet",
        "--out",
        "run",
    )
    result = call("fit", "belief", "x.npy", *settings)
    assert result.exit_code == 0 and "lower bound by IWAE" in result.output
    assert call("sample", "run", "-n", "3").exit_code == 0
    x[0, 0] = np.nan
    np.save("holes.npy", x)
    assert call("impute", "run", "holes.npy", "--out", "full.npy").exit_code == 0
    assert not np.isnan(np.load("full.npy")).any()
    refused = call("fit", "belief", "x.npy", "--set", "estimator=rebarr", "--out", "other")
    assert "estimator must be one of 'reinforce'" in refused.output
