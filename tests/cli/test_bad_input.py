"""Bad input on the command line: one sentence, exit code 1 or 2, no traceback, nothing lost."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita

DAMAGED = {
    "nan.csv": "a,b\n0,1\n,1\n1,0\n",
    "inf.csv": "a,b\n0.5,1\ninf,1\n1,0\n",
    "text.csv": "a,color\n0,red\n1,blue\n",
    "empty.csv": "",
    "header.csv": "a,b\n",
    "one.csv": "0,1,1\n",
    "constant.csv": "a,b\n0.5,1.5\n0.5,1.5\n0.5,1.5\n0.5,1.5\n0.5,1.5\n",
    "counts.csv": "0,3\n1,2\n0,1\n2,2\n1,1\n0,1\n",
    "notes.md": "hello",
}


def sentence(result: Any, code: int = 1) -> str:
    """The one line that a user sees."""
    assert result.exit_code == code
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("Error: ")
    return lines[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nan.csv", "must be finite; got nan at row 1, column 'a'. Remove or impute"),
        ("inf.csv", "must be finite; got inf at row 1, column 'a'"),
        ("text.csv", "must be numeric; got text or other values in column 'color'"),
        ("empty.csv", "empty.csv is empty"),
        ("header.csv", "must hold rows; got only a line of names"),
        ("one.csv", "must have at least 2 rows; got 1"),
        (
            "constant.csv",
            "at least one column must be left to learn from; got none: 'a' (one value throughout), "
            "'b' (one value throughout).",
        ),
        ("notes.md", "must end in one of .npz .npy .csv"),
        ("missing.csv", "file not found: missing.csv"),
    ],
)
def test_bad_files(name: str, words: str, call: Any) -> None:
    if name in DAMAGED:
        Path(name).write_text(DAMAGED[name])
    assert words in sentence(call("fit", "rbm", name, "--json"))
    assert not Path("runs").exists()


def test_a_cut_file_is_refused(call: Any) -> None:
    np.savez("whole.npz", x=np.random.default_rng(0).integers(0, 2, (500, 8)))
    Path("cut.npz").write_bytes(Path("whole.npz").read_bytes()[:900])
    assert "must be a whole .npz file; got one that is cut short or damaged" in sentence(
        call("fit", "rbm", "cut.npz", "--json")
    )


def test_values_outside_the_support_are_refused(call: Any) -> None:
    Path("counts.csv").write_text(DAMAGED["counts.csv"])
    assert "must hold only 0 and 1; got" in sentence(
        call("fit", "maxent", "counts.csv", "--set", "support=binary", "--json")
    )
    assert "must hold only 0 and 1; got" in sentence(
        call("fit", "rbm", "counts.csv", "--set", "visible_units=bernoulli", "--json")
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rmb", "digits"], "; got 'rmb'. Did you mean 'rbm'?"),
        (["rbm", "digit"], "Did you mean 'digits'?"),
        (
            ["rbm", "digits", "--set", "n_hidden=0"],
            "fit: --set n_hidden must be a whole number of at least 1; got 0.",
        ),
        (
            ["rbm", "digits", "--set", "n_hidden=many"],
            "fit: --set n_hidden must be a whole number of at least 1; got 'many'.",
        ),
        (
            ["rbm", "digits", "--set", "n_chains=0"],
            "fit: --set n_chains must be a whole number of at least 1; got 0.",
        ),
        (["rbm", "digits", "--set", "n_hiden=3"], "got 'n_hiden'. Did you mean 'n_hidden'?"),
        (["rbm", "digits", "--set", "hidden"], "fit: --set must be key=value; got 'hidden'."),
        (["rbm", "digits", "--set", "learning_rate=-1"], "fit: --set learning_rate must be"),
        (
            ["rbm", "digits", "--set", "learning_rate=" + "9" * 400],
            "fit: --set learning_rate must be",
        ),
        (
            ["rbm", "digits", "--set", "n_hidden=" + "[" * 100_000],
            "fit: --set n_hidden must be a whole number of at least 1; got '[[[",
        ),
        (
            ["vrnn", "digits", "--set", "step_columns=0"],
            "fit: --set step_columns must be a whole number of at least 1; got 0.",
        ),
        (["rbm", "digits", "--set", "objective=mle"], "rbm: --set objective must be one of"),
        (
            ["rbm", "digits", "--set", "objective=exact"],
            "ExactLikelihood cannot run on RBM(64, 64)",
        ),
        (
            ["rbm", "digits", "--epochs", "0"],
            "fit: --epochs must be a whole number of at least 1; got 0.",
        ),
        (["rbm", "digits", "--minutes", "-1"], "fit: --minutes must be"),
        (
            ["rbm", "digits", "--epochs", "1", "--minutes", "1"],
            "one of --epochs, --set steps and --minutes must be given; got epochs and minutes",
        ),
        (["rbm", "digits-gray", "--set", "binarize=7"], "binarize must be"),
        (["maxent", "digits", "--set", "features=triples"], "fit: --set features must be"),
    ],
)
def test_bad_settings(arguments: list[str], words: str, call: Any) -> None:
    assert words in sentence(call("fit", *arguments, "--json"))
    assert not Path("runs").exists()


def test_a_learning_rate_that_diverges_names_the_remedy_and_keeps_the_run(call: Any) -> None:
    line = sentence(
        call(
            "fit",
            "rbm",
            "digits",
            "--set",
            "learning_rate=1e6",
            "--epochs",
            "3",
            "--json",
            "--out",
            "run",
        )
    )
    assert "Lower learning_rate (now 1e+06, halved down to 3906.25 in vain)" in line
    assert (
        Path("run/checkpoints/last.safetensors").exists()
        and json.loads(Path("run/config.json").read_text())["format"] == 2
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "fit rbm",
        "fit",
        "fitt",
        "fit rbm x --resume run",
        "sample",
        "fit --nope",
        "fit rbm \udcff.csv",
    ],
)
def test_wrong_usage_exits_with_two(arguments: str, call: Any) -> None:
    assert call(*arguments.split()).exit_code == 2


@pytest.fixture
def fitted(call: Any, table: Path) -> Path:
    call("fit", "rbm", str(table), "--epochs", "1", "--quiet", "--out", "run")
    return Path("run")


def test_bad_questions_to_a_run(call: Any, fitted: Path) -> None:
    assert "X must have shape (*, 5) to match RBM(5, 8); got (1797, 64)" in sentence(
        call("evaluate", "run", "digits")
    )
    assert "--split must be one of test, train, all for" in sentence(
        call("evaluate", "run", "--split", "valid")
    )
    assert "--evaluator must be one of 'auto'" in sentence(
        call("evaluate", "run", "--evaluator", "guess")
    )
    assert "--evaluator must be one of 'auto'" in sentence(
        call("evaluate", "run", "--evaluator", "iwae-" + "9" * 5000)
    )
    assert "--evaluator must end in a whole number of at least 2; got 'iwae-0'." in sentence(
        call("evaluate", "run", "--evaluator", "iwae-0")
    )
    assert "RUN must be a folder with a config.json" in sentence(
        call("evaluate", "nowhere", "digits")
    )
    assert "sample: -n must be a whole number of at least 1; got 0." in sentence(
        call("sample", "run", "-n", "0")
    )
    printed = sentence(call("sample", "run", "--out", "draws.xls"))
    assert (
        "--out must end in one of .csv .parquet .arrow .feather .npy .npz; got draws.xls."
        in printed
    )
    assert "must have rows that are images" in sentence(call("sample", "run", "--png", "p.png"))
    assert "--burn-in must be a whole number of at least 0; got -1" in sentence(
        call("sample", "run", "--burn-in", "-1")
    )


@pytest.mark.parametrize("evaluator", ["sandwich", "enumeration", "iwae-50", "filter-20"])
def test_a_refused_evaluator_names_an_option_that_works(evaluator: str, call: Any) -> None:
    """A mixture has an exact likelihood, which none of these computes."""
    call("fit", "mixture", "digits", "--epochs", "1", "--set", "n_components=2", "--out", "exact")
    said = sentence(call("evaluate", "exact", "--evaluator", evaluator))
    assert said.endswith(" Use --evaluator auto instead.")
    assert "exact" in call("evaluate", "exact", "--evaluator", "auto").stdout


def test_a_refused_evaluator_of_an_energy_names_one_of_log_z(call: Any, fitted: Path) -> None:
    said = sentence(call("evaluate", "run", "--evaluator", "iwae-50"))
    assert said.endswith(" Use --evaluator enumeration instead.")


def test_a_refused_objective_names_a_setting(call: Any) -> None:
    words = "fit rbm digits --set objective=score-matching --json"
    assert "Use --set objective=pseudo-likelihood instead." in sentence(call(*words.split()))


def test_models_shows_one_family_or_says_which_there_are(call: Any) -> None:
    shown = call("models", "rbm").stdout
    assert "n_hidden" in shown and "vae:" not in shown
    assert list(json.loads(call("models", "rbm", "--json").stdout)) == ["rbm"]
    said = sentence(call("models", "rmb"))
    assert "NAME must be one of " in said and said.endswith("Did you mean 'rbm'?")


def test_an_existing_run_is_never_written_over(call: Any, fitted: Path) -> None:
    before = {path: path.read_bytes() for path in fitted.rglob("*") if path.is_file()}
    assert "already holds a run" in sentence(
        call("fit", "rbm", "digits", "--epochs", "1", "--out", "run", "--json")
    )
    assert before == {path: path.read_bytes() for path in fitted.rglob("*") if path.is_file()}


def test_a_checkpoint_of_another_model_is_refused(call: Any, fitted: Path) -> None:
    call(
        "fit", "rbm", "digits", "--epochs", "1", "--set", "n_hidden=3", "--quiet", "--out", "other"
    )
    shutil.copy("other/checkpoints/model.safetensors", "run/checkpoints/model.safetensors")
    assert "It belongs to another model." in sentence(call("evaluate", "run"))


@pytest.mark.parametrize("file", ["config.json", "checkpoints/model.safetensors"])
def test_a_damaged_run_is_refused(file: str, call: Any, fitted: Path) -> None:
    path = fitted / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "damaged" in sentence(call("evaluate", "run"))


def test_changed_data_are_noticed_on_resume(call: Any, fitted: Path, table: Path) -> None:
    lines = table.read_text().splitlines()
    table.write_text("\n".join(lines[:100]) + "\n")
    assert "must be the data that run was fitted to, 240 x 5; got 79 x 5" in sentence(
        call("fit", "--resume", "run", "--json")
    )


def test_a_config_that_speaks_of_other_rows_is_refused(call: Any, fitted: Path) -> None:
    config = json.loads((fitted / "config.json").read_text())
    for changed in (
        {"columns": ["a", "b"]},
        {"shape": [2, 3]},
        {"schema": config["data"]["schema"][1:]},
    ):
        (fitted / "config.json").write_text(
            json.dumps({**config, "data": {**config["data"], **changed}})
        )
        assert f"config.json: data: {next(iter(changed))} must be of 5 values in a row" in sentence(
            call("report", "run")
        )


def test_a_changed_config_warns_when_used_and_is_refused_when_resumed(
    call: Any, fitted: Path
) -> None:
    path = fitted / "config.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    assert (
        "Warning: config.json has changed since partita wrote it. Restore it, or take"
        in call("evaluate", "run", "--json").stderr
    )
    (fitted / "checkpoints" / "model.safetensors").unlink()
    refused = sentence(call("fit", "--resume", "run", "--json"))
    assert (
        "config.json must be as partita wrote it, to resume the run; got a changed one" in refused
    )


def test_half_a_character_in_a_config_is_refused(call: Any, fitted: Path) -> None:
    path = fitted / "config.json"
    path.write_text(path.read_text().replace('"a"', '"\\ud800"'))
    assert "config.json must be JSON; got a damaged file" in sentence(call("sample", "run"))


def test_data_of_another_width_are_no_data_of_the_run(call: Any, fitted: Path, table: Path) -> None:
    call("fit", "rbm", "bars-and-stripes", "--epochs", "1", "--quiet", "--out", "images")
    config = json.loads(Path("images/config.json").read_text())
    config["data"]["source"] = str(table)
    assert config.pop("checksum")  # the change is meant
    Path("images/config.json").write_text(json.dumps(config))
    assert "must be the data that the run was fitted to, 16 values in a row; got 5" in sentence(
        call("evaluate", "images")
    )
    assert call("report", "images").exit_code == 0
    assert "The data of the run cannot be read" in Path("images/report.html").read_text()


def test_a_closed_pipe_is_no_error(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed() -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("partita.datasets.names", closed)
    result = call("data")
    assert result.exit_code == 1 and result.output == ""


def test_a_python_run_cannot_be_resumed_by_the_command_line(call: Any, generator: Any) -> None:
    import torch

    from partita.models import RBM

    partita.fit(
        RBM(3, 2, generator=generator), torch.eye(3), epochs=1, out="run", generator=generator
    )
    assert "does not say its data and settings. Resume it in Python" in sentence(
        call("fit", "--resume", "run", "--json")
    )
    assert "DATA must be given for run" in sentence(call("evaluate", "run"))


def test_an_unexpected_error_is_not_swallowed(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita.datasets.names", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError, match="by zero"):
        call("data")


def test_a_place_that_cannot_be_written_is_named(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partita.datasets.names", lambda: os.listdir("/nowhere/at/all"))
    result = call("data")
    assert result.exit_code == 1
    assert (
        "Error: No such file or directory: /nowhere/at/all. Choose another place." in result.output
    )


def test_too_much_memory_is_one_sentence(call: Any) -> None:
    assert "more memory than there is" in sentence(
        call("fit", "rbm", "bars-and-stripes", "--set", "n_hidden=10000000000000", "--json")
    )


def test_an_encoding_that_does_not_exist_is_refused(call: Any) -> None:
    call("fit", "rbm", "bars-and-stripes", "--epochs", "1", "--out", "run", "--json")
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps({**config, "encoding": {"kind": "hexagonal"}}))
    assert "encoding must be one of" in sentence(call("evaluate", "run", "--json"))
