"""What runs of the evidence challenge come to."""

import time
from pathlib import Path

import numpy as np
import pytest

import evidence
from evidence import Run
from evidence_peers import Counted
from evidence_targets import eight_schools, regression


def runs() -> list[Run]:
    """Right, a little beside, confidently wrong, admitted, and no number at all."""
    return [
        Run("a", "b", 0, 0.0, 0.1, -0.4, 0.6, "stated", 1_000_000, 1.0),
        Run("a", "b", 1, 0.0, 0.7, 0.2, 1.2, "stated", 1_000_000, 2.0),
        Run("a", "b", 2, 0.0, 5.0, 4.5, 5.5, "loose", 4_000_000, 3.0),
        Run("a", "b", 3, 0.0, 5.0, 4.5, 5.5, "do not publish", 1_000_000, 4.0),
        Run("a", "b", 4, 0.0, reason="none"),
    ]


def test_columns_count_what_is_stated() -> None:
    found = evidence.columns(runs())
    assert found["covered"] == "1 of 3"
    assert found["admitted"] == "2 of 5"
    assert found["confident_wrong"] == 1
    assert found["rms_at_a_million"] == pytest.approx(found["rms_error"])
    assert evidence.totals(runs())["coverage"] == pytest.approx(1 / 3)
    assert evidence.columns(runs()[-1:])["width"] == "none"


def test_runs_are_kept_and_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "RUNS", str(tmp_path / "runs.jsonl"))
    monkeypatch.setattr(evidence, "MINUTES", 0.05 / 60)

    def slowly(known: object, seed: int) -> dict[str, object]:
        begun = time.process_time()
        while time.process_time() < begun + 5:
            pass
        return {}

    monkeypatch.setattr(evidence, "_own", slowly)
    late = evidence._asked(eight_schools(), evidence.OWN, 0)
    assert (late.value, late.stated) == (None, False)
    assert late.reason == "not done in 0.000833333 minutes"
    assert list(evidence._read()) == [("eight schools, 10-D", "partita", 0)]


def test_peers_see_the_cube_and_are_counted() -> None:
    target = Counted(regression(3))
    x = target.from_cube(np.array([[0.5] * 4, [0.1] * 4]))
    assert x[0] == pytest.approx([0.6931, 0, 0, 0], abs=1e-4)
    assert target.log_density(x).shape == (2,)
    assert target.log_density(x[0]).shape == ()
    assert target.calls == 3
