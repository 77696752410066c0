"""``partita impute``, ``cluster`` and ``anomalies`` on tables that are read in parts: what comes
out does not depend on where they end.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from partita.cli.app import app
from partita.tables import arrays, arrow, csv, on_disk

ROWS = 400


def call(*words: Any, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of numbers, counts and words with gaps, and two runs: a mixture of it, and a
    Boltzmann machine of zeros and ones.
    """
    folder, g = tmp_path_factory.mktemp("parts"), np.random.default_rng(0)
    tall = g.random(ROWS) < 0.5
    frame = pd.DataFrame(
        {
            "height": np.round(g.normal(160 + 20 * tall, 5), 1),
            "visits": pd.array(g.poisson(2 + 6 * tall), dtype="Int32"),
            "town": pd.Categorical(
                np.where(g.random(ROWS) < 0.9, np.where(tall, "Ulm", "Bonn"), "Trier"),
                ["Trier", "Ulm", "Bonn", "Kiel"],
            ),
        }
    )
    lost = g.integers(0, 9, ROWS)
    for i, name in enumerate(frame):
        frame.loc[lost == i, name] = None
    frame.to_parquet(folder / "people.parquet", row_group_size=90)
    frame.to_feather(folder / "people.feather")
    frame.to_csv(folder / "people.csv", index=False)
    call(
        "fit",
        "mixture",
        folder / "people.parquet",
        "--set",
        "n_components=2",
        "--out",
        folder / "mixture",
        "--quiet",
        "--no-report",
    )
    x = g.integers(0, 2, (ROWS, 4))
    x[:, 1] = x[:, 0] ^ (g.random(ROWS) < 0.1)
    np.save(folder / "bits.npy", x)
    gappy = np.where(g.random(x.shape) < 0.2, np.nan, x)
    np.save(folder / "gappy.npy", gappy)
    pd.DataFrame(gappy, columns=list("abcd")).to_parquet(folder / "gappy.parquet")
    call("fit", "maxent", folder / "bits.npy", "--out", folder / "bits", "--quiet", "--no-report")
    return folder


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is too large for memory, and parts are short."""
    for module, name, value in (
        (on_disk, "IN_MEMORY", 100),
        (arrow, "CHUNK", 100),
        (arrays, "CHUNK", 150),
        (csv, "FIELDS", 70),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("how", ["auto", "draw"])
@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_an_exact_filling_is_that_of_the_whole_table(
    ending: str, how: str, folder: Path, tmp_path: Path, request: Any
) -> None:
    out = [tmp_path / f"{name}{ending}" for name in ("whole", "parts")]
    message = []
    for path in out:
        if path is out[1]:
            request.getfixturevalue("in_parts")
        message.append(
            json.loads(
                call(
                    "impute",
                    folder / "mixture",
                    folder / f"people{ending}",
                    "--how",
                    how,
                    "--out",
                    path,
                    "--json",
                )
            )
        )
    assert message[0]["filled"] == message[1]["filled"] and message[0]["rows"] == ROWS
    readers: dict[str, Any] = {
        ".csv": pd.read_csv,
        ".parquet": pd.read_parquet,
        ".feather": pd.read_feather,
    }
    before, whole, parts = (readers[ending](path) for path in (folder / f"people{ending}", *out))
    assert (parts.dtypes == whole.dtypes).all() and not parts.isna().any().any()
    if ending != ".csv":
        assert (parts.dtypes == before.dtypes).all() and list(parts["town"].cat.categories) == [
            "Trier",
            "Ulm",
            "Bonn",
            "Kiel",
        ]
    for name in before:
        there = before[name].notna()
        pd.testing.assert_series_equal(
            parts[name][there], before[name][there], check_dtype=ending != ".csv"
        )
    if how == "auto":
        for name in before:
            if name == "height":
                np.testing.assert_allclose(parts[name], whole[name], rtol=1e-12)
            else:
                assert parts[name].tolist() == whole[name].tolist()


def test_draws_depend_on_the_seed_and_the_rows_not_on_the_sort_of_file(
    folder: Path, tmp_path: Path, in_parts: None
) -> None:
    for name, source, seed in (
        ("a", "gappy.npy", 0),
        ("b", "gappy.parquet", 0),
        ("c", "gappy.npy", 1),
    ):
        call(
            "impute",
            folder / "bits",
            folder / source,
            "--how",
            "draw",
            "--seed",
            seed,
            "--out",
            tmp_path / f"{name}.npy",
        )
    a, b, c = (np.load(tmp_path / f"{name}.npy") for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert (a != c).any() and not np.isnan(a).any()
    short = np.load(folder / "gappy.npy")[: 2 * (150 // 4)]
    np.save(tmp_path / "short.npy", short)
    call(
        "impute",
        folder / "bits",
        tmp_path / "short.npy",
        "--how",
        "draw",
        "--out",
        tmp_path / "d.npy",
    )
    # whole parts do not know what follows them
    np.testing.assert_array_equal(np.load(tmp_path / "d.npy"), a[: len(short)])


def test_parts_draw_different_numbers(folder: Path, tmp_path: Path, in_parts: None) -> None:
    """Two parts of the same rows: that 74 or more draws of chance one half agree in all places has
    a probability below 1e-9.
    """
    x = np.full((2 * (150 // 4), 4), np.nan)
    x[:, 0] = 1
    np.save(tmp_path / "same.npy", x)
    call(
        "impute",
        folder / "bits",
        tmp_path / "same.npy",
        "--how",
        "draw",
        "--out",
        tmp_path / "out.npy",
    )
    drawn = np.load(tmp_path / "out.npy").reshape(2, -1)
    assert (drawn[0] != drawn[1]).any()


@pytest.mark.parametrize(
    ("verb", "more"),
    [("cluster", ["--probabilities"]), ("anomalies", ["--normal", "people.parquet"])],
)
@pytest.mark.parametrize("ending", [".csv", ".feather"])
def test_results_in_parts_are_those_of_the_whole_table(
    verb: str,
    more: list[str],
    ending: str,
    folder: Path,
    tmp_path: Path,
    request: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    out = [tmp_path / f"{name}{ending}" for name in ("whole", "parts")]
    for path in out:
        if path is out[1]:
            request.getfixturevalue("in_parts")
        call(verb, folder / "mixture", folder / f"people{ending}", *more, "--out", path)
    whole, parts = (
        pd.read_csv(path) if ending == ".csv" else pd.read_feather(path) for path in out
    )
    pd.testing.assert_frame_equal(parts, whole, rtol=1e-9)


def test_a_value_that_cannot_be_is_named_by_its_row_in_the_file(
    folder: Path, tmp_path: Path, in_parts: None
) -> None:
    x = np.load(folder / "gappy.npy")
    x[333, 2] = 7
    np.save(tmp_path / "bad.npy", x)
    assert "got 7 at row 333, column 2" in call(
        "impute", folder / "bits", tmp_path / "bad.npy", code=1
    )
    assert not (tmp_path / "bad-imputed.npy").exists() and not list(tmp_path.glob(".*"))
