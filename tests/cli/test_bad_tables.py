"""Tables that cannot be used and places that cannot be written to: one sentence, exit code 1, and
what was there before stays whole.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.disks import full_disk


def refused(result: Any) -> str:
    """The one sentence of a refusal."""
    assert result.exit_code == 1, result.output
    assert (
        result.stdout == ""
        and result.stderr.startswith("Error: ")
        and result.stderr.count("\n") == 1
    )
    return result.stderr


@pytest.fixture
def run(call: Any) -> str:
    g = np.random.default_rng(0)
    pd.DataFrame(
        {"a": g.normal(size=60), "n": g.poisson(3, 60), "w": g.choice(["x", "y"], 60)}
    ).to_csv("good.csv", index=False)
    assert (
        call(
            "fit", "mixture", "good.csv", "--set", "n_components=1", "--out", "run", "--quiet"
        ).exit_code
        == 0
    )
    return "run"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,a\n1,2,3\n4,5,6\n", "columns must have different names; got 'a' twice"),
        ("a,b\n,\n,NA\n", "got none: 'a' (no observed value), 'b' (no observed value)."),
        ("a,b\n1,x\n2\n3,y,z\n", "must have 2 values in each row; got 1 in row 1"),
        ("a,b\n0.5,1\n2,-inf\n", "must be finite; got -inf at row 1, column 'b'. Replace it."),
        (
            "b\n" + "".join(f"{'x' * i} {i}\n" for i in range(90)),
            "at least one column must be left to learn from; got none: 'b' (90 different words",
        ),
        ("a\n3.5\n3.5\n3.5\n", "to learn from; got none: 'a' (one value throughout)"),
        (
            'a,pay\n0.5,"1,200"\n1.5,900\n',
            "column 'pay' must hold plain numbers or words; got numbers with marks in them, such "
            "as '1,2",
        ),
        (
            "a,w\n0.5,x\n2e200,y\n1e200,y\n0.1,x\n",
            "X must hold numbers that can be squared, below 1e154; got larger ones in column 'a'",
        ),
    ],
)
def test_junk_is_refused_in_one_sentence(text: str, words: str, call: Any) -> None:
    Path("junk.csv").write_text(text)
    assert words in refused(call("fit", "mixture", "junk.csv", "--quiet"))
    assert not Path("runs").exists()


def test_binary_rubbish_and_types_of_parquet_files(call: Any) -> None:
    Path("junk.csv").write_bytes(bytes(range(256)) * 20)
    assert "junk.csv must be a whole .csv file" in refused(call("schema", "junk.csv"))
    Path("junk.parquet").write_bytes(b"PAR1" + bytes(100))
    assert "must be a whole .parquet file" in refused(call("fit", "mixture", "junk.parquet"))
    frame = pd.DataFrame(
        {
            "a": [0.5, 1.5],
            "list": [[1], [2]],
            "none": [None, None],
        }
    )
    frame.to_parquet("odd.parquet")
    shown = call("schema", "odd.parquet")
    assert shown.exit_code == 0 and shown.stderr == (
        "Warning: load: odd.parquet: columns 'list' (lists, structures or other values that are no "
        "numbers), 'none' (no observed value) are left out.\n"
    )
    assert "column 'list' must hold numbers or words; got lists, structures" in refused(
        call("fit", "mixture", "odd.parquet", "--column", "list=real")
    )
    assert "column 'none' must have an observed value; got none" in refused(
        call("fit", "mixture", "odd.parquet", "--column", "none=category")
    )


def test_one_column_is_a_table_and_very_many_are_warned_of_their_cost(call: Any) -> None:
    Path("one.csv").write_text("town\n" + "Rome\nOslo\nOslo\n" * 20)
    assert (
        call(
            "fit", "mixture", "one.csv", "--set", "n_components=1", "--out", "one", "--quiet"
        ).exit_code
        == 0
    )
    g, width = np.random.default_rng(0), 100_000
    np.save("wide.npy", g.normal(size=(4, width)))
    assert (
        "covariance_type must be diagonal or spherical for more than 4096 real columns; got "
        "'full' for 100000" in refused(call("fit", "mixture", "wide.npy"))
    )
    # as long as the lines of so many, of fewer: each column of text takes its time
    lines = [
        ",".join(f"c{i:0140}" for i in range(5000)),
        *(",".join([f"{row % 2}.{5:080}"] * 5000) for row in range(4)),
    ]
    Path("wide.csv").write_text("\n".join(lines) + "\n")
    assert "more than 4096 real columns" in refused(call("fit", "mixture", "wide.csv"))


def test_places_that_cannot_be_written_to(call: Any, run: str) -> None:
    Path("file").write_text("before")
    for words in (
        ["sample", run, "--out", "file/x.csv"],
        ["impute", run, "good.csv", "--out", "file/x.csv"],
        ["cluster", run, "good.csv", "--out", "file/x.csv"],
        ["anomalies", run, "good.csv", "--out", "file/x.csv"],
    ):
        refused(call(*words))
    assert Path("file").read_text() == "before"
    # words are no numbers
    assert "--out must end in one of .csv .parquet" in refused(
        call("sample", run, "--out", "x.npy")
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_full_disk_leaves_earlier_results_whole(ending: str, call: Any, run: str) -> None:
    out = Path(f"out.{ending}")
    call("sample", run, "-n", "3", "--out", out)
    before = out.read_bytes()
    verbs = [
        ["sample", run, "-n", "9000"],
        ["impute", run, "many.csv"],
        ["cluster", run, "many.csv"],
        ["anomalies", run, "many.csv"],
    ]
    pd.concat([pd.read_csv("good.csv")] * 100).to_csv("many.csv", index=False)
    for words in verbs:
        with full_disk(300):
            assert "File too large" in refused(call(*words, "--out", out))
        assert out.read_bytes() == before and not list(Path(".").glob(".*.part"))


def test_a_full_disk_ends_a_fit_with_a_sentence_and_touches_no_other_run(
    call: Any, run: str
) -> None:
    kept = {path: path.read_bytes() for path in Path(run).rglob("*") if path.is_file()}
    with full_disk(2048):
        assert "Free some space" in refused(
            call("fit", "vae", "good.csv", "--epochs", "1", "--out", "other", "--json")
        )
    assert {path: path.read_bytes() for path in Path(run).rglob("*") if path.is_file()} == kept


def test_questions_that_a_run_cannot_answer(call: Any, run: str) -> None:
    pd.read_csv("good.csv").assign(w="z").to_csv("new.csv", index=False)
    for verb in ("impute", "cluster"):
        assert "column 'w' must hold categories of the fitted table, x, y; got 'z'" in refused(
            call(verb, run, "new.csv")
        )
    pd.read_csv("good.csv").assign(cluster=1, tail_probability=0).to_csv("new.csv", index=False)
    assert "got one more, 'cluster'" in refused(call("cluster", run, "new.csv"))
    for verb in ("anomalies", "cluster"):
        assert "file not found: digits" in refused(call(verb, run, "digits"))
    call("fit", "autoregressive", "good.csv", "--epochs", "1", "--out", "ar", "--quiet")
    assert "be of a family that can fill in what is missing; got MixedAutoregressive" in refused(
        call("impute", "ar", "good.csv")
    )
    assert "--alpha must lie in (0, 1]" in refused(
        call("anomalies", run, "good.csv", "--alpha", "0")
    )
    assert "file not found: " in refused(
        call("anomalies", run, "good.csv", "--normal", "missing.csv")
    )
