"""``partita log-z`` on files: what it says while it works, and what it refuses."""

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import rich.console
import torch
from tests.cli.conftest import Call

import partita
from partita.cli import output
from partita.core import Real
from partita.runtime.deadline import listening, say

BELL = "def bell(x):\n    return -0.5 * (x**2).sum(-1)\n"


def test_it_says_which_method_runs(call: Call, tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text(BELL)
    heard: list[str] = []

    def bell(x: torch.Tensor) -> torch.Tensor:
        return -0.5 * x.square().sum(-1)

    with listening(heard.append):
        partita.log_z(bell, Real(1))
    assert heard == ["Looking for modes", "Quadrature"]
    result = call("log-z", "target.py:bell", "--support", "real:1", "--json")
    assert json.loads(result.stdout)["value"] == pytest.approx(0.9189, abs=1e-3)
    assert result.stderr == ""  # no terminal, nothing to show


def test_a_terminal_shows_the_last_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = StringIO()
    terminal = rich.console.Console(file=shown, force_terminal=True, width=80)
    monkeypatch.setattr(rich.console, "Console", lambda **_: terminal)
    with output.showing_progress():
        say("[bold] is no markup")
    assert "[bold] is no markup ..." in shown.getvalue()


def test_a_support_beside_a_model_is_refused(call: Call, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", W=np.zeros((4, 2)), b=np.zeros(4), c=np.zeros(2))
    plain = call("log-z", "w.npz", "--model", "rbm", "--json")
    assert json.loads(plain.stdout)["value"] == pytest.approx(6 * np.log(2))
    both = call("log-z", "w.npz", "--model", "rbm", "--support", "binary:4")
    assert both.exit_code == 1 and "support must be left out for RBM(4, 2)" in both.stderr


def test_a_support_beside_a_prior_is_refused(call: Call, tmp_path: Path) -> None:
    prior = "from torch.distributions import Normal\n\nprior = [Normal(0.0, 1.0)]\n\n\n"
    (tmp_path / "target.py").write_text(prior + BELL)
    both = call("log-z", "target.py:bell", "--support", "real:1")
    refusal = "--support must be left out where the file defines a prior; got real:1."
    assert both.exit_code == 1 and refusal in both.stderr
