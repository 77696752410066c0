"""Metrics on disk: whole lines come back, a line cut by a kill does not, and a resumed run forgets
what it will do again.
"""

import json
import os
from pathlib import Path

import pytest

from partita.training.history import History, read_records, recorded_series


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def written(path: Path, steps: range) -> History:
    history = History(path)
    for step in steps:
        history.add(
            {"step": step, "model": step / 7, **({"validation": -step} if step % 2 else {})}
        )
    return history


def test_records_come_back_exactly(path: Path) -> None:
    history = written(path, range(1, 6))
    assert read_records(path) == history.records
    assert [json.loads(line) for line in path.read_text().splitlines()] == history.records
    assert history.records[2]["model"] == 3 / 7  # every digit


def test_without_a_path_records_stay_in_memory(tmp_path: Path) -> None:
    history = History()
    history.add({"step": 1, "model": 0.5})
    assert history.records == [{"step": 1, "model": 0.5}]
    assert list(tmp_path.iterdir()) == []
    history.rewind(0)
    assert history.records == []


def test_series_take_only_the_records_that_have_the_number(path: Path) -> None:
    assert recorded_series(written(path, range(1, 6)).records, "validation") == [
        (1, -1),
        (3, -3),
        (5, -5),
    ]
    assert recorded_series(written(path, range(1, 3)).records, "nothing") == []


@pytest.mark.parametrize("cut", [1, 2, 10, 30])
def test_a_last_line_cut_by_a_kill_is_left_out(path: Path, cut: int) -> None:
    records = written(path, range(1, 4)).records
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    # without its newline the last record is still whole
    assert read_records(path) == (records if cut == 1 else records[:-1])


def test_rewinding_drops_later_records_and_the_cut_line(path: Path) -> None:
    records = written(path, range(1, 6)).records
    with path.open("a") as file:
        file.write('{"step": 6, "mod')
    history = History(path)
    history.rewind(3)
    assert history.records == records[:3]
    assert read_records(path) == records[:3]
    history.add({"step": 4, "model": 9.0})
    assert read_records(path) == [*records[:3], {"step": 4, "model": 9.0}]


def test_a_file_whose_last_newline_is_missing_is_mended_by_rewinding(path: Path) -> None:
    records = written(path, range(1, 4)).records
    path.write_text(path.read_text()[:-1])
    history = History(path)
    history.rewind(3)
    history.add({"step": 4})
    assert read_records(path) == [*records, {"step": 4}]


def test_rewinding_leaves_no_half_written_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = written(path, range(1, 4)).records

    def refuse(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no space left"):
        History(path).rewind(1)
    assert read_records(path) == records


def test_no_file_is_no_records(path: Path) -> None:
    assert read_records(path) == []
    assert read_records(None) == []
    History(path).rewind(5)
    assert read_records(path) == []


def test_numbers_that_are_not_finite_survive(path: Path) -> None:
    history = History(path)
    history.add({"step": 1, "best": float("-inf")})
    assert read_records(path) == [{"step": 1, "best": float("-inf")}]


def test_only_what_a_fit_records_is_read(path: Path) -> None:
    odd = {"list": [1], "object": {}, "huge": 10**400}
    path.write_text(
        json.dumps({"step": 1, "loss": 0.5, "event": "x", "none": None, **odd})
        + "\n"
        + json.dumps({"step": [2]})
        + "\n"
    )
    assert read_records(path) == [{"step": 1, "loss": 0.5, "event": "x", "none": None}]
