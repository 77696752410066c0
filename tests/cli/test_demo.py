"""The demo: at least eight families that the digits allow, and a small one from end to end."""

from pathlib import Path
from typing import Any

import pytest

from partita.cli import demo
from partita.datasets import load
from partita.experiment.candidates import candidates_by_family
from partita.experiment.requests import sort_pairs


def test_the_demo_compares_at_least_eight_families_and_leaves_none_out() -> None:
    printed = sort_pairs(demo.SETTINGS)
    found, left_out = candidates_by_family(demo.MODELS, printed.families, load(demo.DATA))
    assert (
        len(found) == len(set(demo.MODELS)) >= 8
        and not left_out
        and not printed.fit
        and not printed.data
        and not printed.reading
    )
    assert demo.MINUTES <= 4


def test_demo_ends_with_a_leaderboard_and_a_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "MODELS", ["mixture", "autoregressive"])
    monkeypatch.setattr(
        demo,
        "SETTINGS",
        ["mixture.n_components=3", "mixture.n_init=1", "autoregressive.n_hidden=16"],
    )
    monkeypatch.setattr(demo, "MINUTES", 0.05)
    monkeypatch.setattr(demo.torch, "set_num_threads", lambda n: None)
    demo.run_demo()
    text = capsys.readouterr().out
    assert (
        "digits: 359 test rows, 64 columns" in text
        and "★" in text
        and "Report: runs/demo-1/report.html" in text
    )
    for name in (
        "report.html",
        "leaderboard.json",
        "leaderboard.csv",
        "mixture/config.json",
        "autoregressive/config.json",
    ):
        assert (tmp_path / "runs/demo-1" / name).exists()
