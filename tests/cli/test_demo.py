"""The demo's parts, made small."""

from pathlib import Path
from typing import Any

import pytest

from partita.cli import demo
from partita.evaluators import Sandwich


def test_demo_prints_a_leaderboard_and_writes_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "MAXENT", ["chains=8", "batch_size=100", "l2=1e-3", "steps=3"])
    monkeypatch.setattr(demo, "RBM", ["hidden=8", "steps=20"])
    monkeypatch.setattr(demo, "Sandwich", lambda **_: Sandwich(temperatures=5, chains=8))
    monkeypatch.setattr(demo.torch, "set_num_threads", lambda n: None)
    demo.main()
    text = capsys.readouterr().out
    assert "independent pixels" in text and "-25.39" in text and "exact" in text
    assert (tmp_path / "runs/demo-maxent-1/config.json").exists() and (tmp_path / "runs/demo-rbm-1/config.json").exists()
    assert "Runs: runs/demo-maxent-1, runs/demo-rbm-1" in text
