"""``partita fit mixture|ppca|mixture-ppca`` on tables with gaps, and ``partita impute``: names and
order stay.
"""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from partita.cli.app import app

NAMES = ["height", "weight", "age"]


def invoke(*words: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def table(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A table of three correlated columns with gaps, as a file, and the gaps."""
    g = np.random.default_rng(0)
    x = np.round(g.normal(size=(90, 1)) * [10, 12, 3] + [170, 70, 40] + g.normal(size=(90, 3)), 2)
    gaps = g.random(x.shape) < 0.1
    gaps[gaps.all(1), 0] = False
    lines = [
        ",".join("" if gap else f"{value:g}" for value, gap in zip(*both, strict=True))
        for both in zip(x, gaps, strict=True)
    ]
    path = tmp_path / "people.csv"
    path.write_text("\n".join([",".join(NAMES), *lines]) + "\n")
    return path, gaps


def read(path: Path) -> tuple[list[str], np.ndarray]:
    names, *lines = csv.reader(path.read_text().splitlines())
    return names, np.array([[float(field or "nan") for field in line] for line in lines])


@pytest.mark.parametrize(
    "words",
    [["mixture"], ["ppca"], ["mixture-ppca", "--set", "n_components=2", "--set", "n_latent=1"]],
)
def test_fit_evaluate_sample_and_impute(
    words: list[str], table: tuple[Path, np.ndarray], tmp_path: Path
) -> None:
    path, gaps = table
    fitted = json.loads(
        invoke("fit", words[0], path, *words[1:], "--out", tmp_path / "run", "--json")
    )
    assert fitted["stopped"] == "converged" and fitted["log_likelihood"]["kind"] == "exact"
    assert "exact" in invoke("evaluate", tmp_path / "run")
    assert "Exact independent draws" in invoke(
        "sample", tmp_path / "run", "-n", 3, "--out", tmp_path / "draws.csv"
    )
    message = json.loads(
        invoke("impute", tmp_path / "run", path, "--out", tmp_path / "filled.csv", "--json")
    )
    assert message["filled"] == gaps.sum() and message["rows"] == 90
    (names, before), (names_after, after) = read(path), read(tmp_path / "filled.csv")
    assert names == names_after == NAMES
    np.testing.assert_array_equal(after[~gaps], before[~gaps])
    assert not np.isnan(after).any()


def test_columns_are_matched_by_name_and_keep_their_order(
    table: tuple[Path, np.ndarray], tmp_path: Path
) -> None:
    path, _ = table
    invoke("fit", "ppca", path, "--out", tmp_path / "run", "--quiet")
    invoke("impute", tmp_path / "run", path, "--out", tmp_path / "filled.csv")
    names, x = read(path)
    turned = tmp_path / "turned.csv"
    rows = [
        [names[j] for j in (2, 0, 1)],
        *[["" if np.isnan(v) else f"{v:g}" for v in row[[2, 0, 1]]] for row in x],
    ]
    turned.write_text("\n".join(",".join(row) for row in rows) + "\n")
    invoke("impute", tmp_path / "run", turned)
    names_after, after = read(tmp_path / "turned-imputed.csv")
    assert names_after == rows[0]
    np.testing.assert_allclose(after[:, [1, 2, 0]], read(tmp_path / "filled.csv")[1])
    turned.write_text("a,b,c\n1,2,3\n")
    assert (
        "must have the columns of the fitted one, height, weight, age; got none called 'height'."
        in invoke("impute", tmp_path / "run", turned, code=1)
    )


def test_energy_models_fill_by_clamped_sampling(tmp_path: Path) -> None:
    """The second column is the first one with one value in twenty flipped, so its mode given the
    first is the first.
    """
    g = np.random.default_rng(0)
    x = g.integers(0, 2, (300, 3))
    x[:, 1] = (x[:, 0] + (g.random(300) < 0.05)) % 2
    np.save(tmp_path / "x.npy", x)
    invoke("fit", "maxent", tmp_path / "x.npy", "--out", tmp_path / "run", "--quiet")
    gappy = x[:20].astype(float)
    gappy[:, 1] = np.nan
    np.save(tmp_path / "gappy.npy", gappy)
    assert "20 of 60 values filled by clamped sampling" in invoke(
        "impute", tmp_path / "run", tmp_path / "gappy.npy"
    )
    np.testing.assert_array_equal(np.load(tmp_path / "gappy-imputed.npy")[:, 1], x[:20, 0])


def test_resuming_and_bad_files(table: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, _ = table
    invoke("fit", "mixture", path, "--out", tmp_path / "run", "--set", "n_components=2", "--quiet")
    assert "Converged" in invoke("fit", "--resume", tmp_path / "run", "--quiet")
    printed = invoke("impute", tmp_path / "run", path, "--out", "x.png", code=1)
    assert "impute: --out must end in one of .csv .parquet .arrow .feather .npy .npz" in printed
    assert "how must be one of 'auto', 'mean', 'mode', 'draw'" in invoke(
        "impute", tmp_path / "run", path, "--how", "guess", code=1
    )
    assert "file not found: " in invoke("impute", tmp_path / "run", tmp_path / "none.csv", code=1)
