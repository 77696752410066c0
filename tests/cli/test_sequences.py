"""Text on the command line: fit, evaluate, continue a prompt; labs."""

import json
from pathlib import Path
from signal import SIGINT, raise_signal
from typing import Any

import numpy as np
import pytest
import torch

import partita
from partita.families import FAMILIES
from partita.nets import ConvNet
from partita.tables import Rows
from partita.training.session import Session

SMALL = [
    "--set",
    "length=16",
    "--set",
    "width=8",
    "--set",
    "n_layers=1",
    "--set",
    "steps=6",
    "--quiet",
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text(" ".join(np.random.default_rng(0).choice(["abra", "cadabra", "hokus"], 300)))
    return path


@pytest.mark.parametrize("model", ["hyena", "ssm", "attention", "conv", "lstm", "autoregressive"])
def test_every_backbone_fits_a_text_file(model: str, call: Any, text: Path) -> None:
    result = call("fit", model, text, *SMALL, "--out", "run")
    assert result.exit_code == 0 and "Per step: -" in result.output
    printed = json.loads(call("evaluate", "run", "--json").stdout)
    assert printed["kind"] == "exact" and printed["details"]["per_step"] == pytest.approx(
        printed["value"] * printed["n"] / printed["details"]["steps"]
    )


def test_all_of_another_text_is_scored(call: Any, text: Path) -> None:
    """In windows that leave no step out."""
    call("fit", "hyena", text, *SMALL, "--out", "run")
    text.with_name("other.txt").write_text("abra cadabra hokus" * 20)
    printed = json.loads(call("evaluate", "run", "other.txt", "--json").stdout)
    assert printed["split"] == "all" and printed["details"]["steps"] == 18 * 20


def test_a_prompt_is_continued_and_the_same_seed_gives_the_same_text(call: Any, text: Path) -> None:
    call("fit", "hyena", text, *SMALL, "--out", "run")
    printed = json.loads(
        call("sample", "run", "--prompt", "abra", "--length", "9", "-n", "2", "--json").stdout
    )
    assert [len(t) for t in printed["texts"]] == [13, 13] and all(
        t.startswith("abra") for t in printed["texts"]
    )
    assert printed["exact"] and not printed["beyond_window"]
    again = json.loads(
        call("sample", "run", "--prompt", "abra", "--length", "9", "-n", "2", "--json").stdout
    )
    assert again["texts"] == printed["texts"]
    sharp = json.loads(
        call(
            "sample", "run", "--temperature", "0.5", "--top-p", "0.9", "--length", "20", "--json"
        ).stdout
    )
    assert not sharp["exact"] and sharp["beyond_window"]
    assert Path(printed["out"]).read_text().startswith("abra")


def test_bad_prompts_and_texts_are_named(call: Any, text: Path, tmp_path: Path) -> None:
    call("fit", "hyena", text, *SMALL, "--out", "run")
    assert (
        "hold the 11 characters the model was built from; got 'Z' at place 0"
        in call("sample", "run", "--prompt", "Z").output
    )
    assert (
        "--png must go with rows that are images" in call("sample", "run", "--png", "x.png").output
    )
    assert (
        "--burn-in must go with a model that chains draw from"
        in call("sample", "run", "--burn-in", "5").output
    )
    call("fit", "rbm", "bars-and-stripes", "--epochs", "1", "--quiet", "--out", "table")
    assert (
        "go with a model of sequences; got RBM" in call("sample", "table", "--prompt", "a").output
    )
    latin = tmp_path / "latin.txt"
    latin.write_bytes("né ".encode("latin-1") * 300)
    result = call("fit", "hyena", latin, *SMALL)
    assert result.exit_code == 1 and "must be text in utf-8; got the byte 0xe9" in result.output
    assert call("fit", "hyena", latin, *SMALL, "--set", "encoding=latin-1").exit_code == 0
    assert call("fit", "hyena", latin, *SMALL, "--set", "tokens=bytes").exit_code == 0


def test_a_resumed_fit_of_text_ends_bit_for_bit_like_one_never_stopped(
    call: Any, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("fit", "hyena", text, *SMALL, "--out", "whole").exit_code == 0
    step = Session.advance

    def interrupted(session: Session) -> dict[str, float]:
        if session.step == 3:
            raise_signal(SIGINT)
        return step(session)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "advance", interrupted)
        result = call("fit", "hyena", text, *SMALL, "--out", "stopped")
    assert result.exit_code == 130 and "Go on with: partita fit --resume stopped" in result.output
    assert call("fit", "--resume", "stopped", "--quiet").exit_code == 0
    whole, stopped = (partita.load(Path(run)).model.state_dict() for run in ("whole", "stopped"))
    assert all(whole[name].equal(stopped[name]) for name in whole)
    text.write_text(text.read_text().replace("h", "z"))
    assert (
        "hold the 11 characters the model was built from; got 'z'"
        in call("fit", "--resume", "whole").output
    )


def test_a_series_of_numbers_is_fitted_and_continued(call: Any, tmp_path: Path) -> None:
    np.savetxt(tmp_path / "wave.csv", np.sin(np.arange(600) / 5), header="level", comments="")
    result = call("fit", "hyena", tmp_path / "wave.csv", *SMALL, "--out", "run")
    assert result.exit_code == 0 and "Per step: " in result.output
    printed = json.loads(call("sample", "run", "-n", "2", "--length", "5", "--json").stdout)
    assert np.load(printed["out"])["x"].shape == (2, 5, 1)


CONVOLVED = {"network": "conv", "channels": [3]}


def test_convolutions_are_taken_by_name(call: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 16))
    np.save(tmp_path / "images.npy", x)
    pairs = [word for name, value in CONVOLVED.items() for word in ("--set", f"{name}={value}")]
    assert (
        call(
            "fit",
            "vae",
            tmp_path / "images.npy",
            *pairs,
            "--set",
            "steps=4",
            "--quiet",
            "--out",
            "run",
        ).exit_code
        == 0
    )
    built = [
        FAMILIES[name].build(Rows(x), CONVOLVED, generator=torch.Generator())[0]
        for name in ("neural-energy", "latent-energy")
    ]
    for model in (partita.load(Path("run")).model, *built):
        net = next(part for part in model.modules() if isinstance(part, ConvNet))
        assert net.shape == (4, 4) and net.settings()["channels"] == [3]


def test_a_table_is_read_column_by_column(call: Any, table: Path) -> None:
    result = call("fit", "autoregressive", table, "--epochs", "2", "--quiet", "--out", "run")
    assert result.exit_code == 0 and "exact by log_prob" in result.output
    assert call("sample", "run", "-n", "3").exit_code == 0


def test_labs_are_listed_and_run(call: Any) -> None:
    assert "memory" in call("lab").output
    printed = json.loads(
        call(
            "lab", "memory", "--set", "length=24", "--set", "width=8", "--json", "--out", "m.html"
        ).stdout
    )
    assert set(printed["layers"]) == {"SSM", "Hyena", "attention", "LSTM"} and all(
        m["causal"] for m in printed["layers"].values()
    )
    assert Path("m.html").stat().st_size > 1000
    assert "NAME must be one of memory" in call("lab", "memry").output
    assert (
        "--set must be key=value with a key of length"
        in call("lab", "memory", "--set", "n_layers=3").output
    )
