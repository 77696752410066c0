"""``partita report``, and the page that ``partita fit`` leaves: what is wrong is one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from partita.cli.app import app
from partita.report import page

QUICK = ("--set", "n_components=2", "--quiet")


def call(*arguments: object) -> Any:
    result = CliRunner().invoke(
        app, [str(a) for a in arguments], prog_name="partita", catch_exceptions=False
    )
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def points(tmp_path: Path) -> Path:
    np.savetxt(
        tmp_path / "points.csv",
        np.random.default_rng(0).normal(size=(200, 2)),
        delimiter=",",
        header="a,b",
        comments="",
    )
    return tmp_path / "points.csv"


def test_a_fit_leaves_a_page_unless_switched_off(points: Path, tmp_path: Path) -> None:
    result = json.loads(
        call("fit", "mixture", points, "--out", tmp_path / "one", *QUICK, "--json").stdout
    )
    assert Path(result["report"]) == tmp_path / "one" / "report.html"
    assert "mixture on" in Path(result["report"]).read_text()
    assert (
        str(tmp_path / "two" / "report.html")
        in call("fit", "mixture", points, "--out", tmp_path / "two", *QUICK).stdout
    )
    assert (
        call("fit", "mixture", points, "--out", tmp_path / "none", *QUICK, "--no-report").exit_code
        == 0
    )
    assert not (tmp_path / "none" / "report.html").exists()


def test_a_page_that_cannot_be_written_does_not_fail_the_fit(
    points: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page, "render", full)
    result = call("fit", "mixture", points, "--out", tmp_path / "run", *QUICK)
    assert result.exit_code == 0
    assert "Warning: no report was written" in result.stderr
    assert call("evaluate", tmp_path / "run").exit_code == 0


def test_the_page_of_a_saved_run_and_of_a_comparison(
    points: Path, tmp_path: Path, comparison_page: Path
) -> None:
    call("fit", "mixture", points, "--out", tmp_path / "run", *QUICK, "--no-report")
    result = call("report", tmp_path / "run", "--out", tmp_path / "pages" / "mine.html")
    assert result.exit_code == 0 and "mine.html" in result.stdout
    assert (tmp_path / "pages" / "mine.html").exists() and not (
        tmp_path / "run" / "report.html"
    ).exists()
    text = comparison_page.read_text()
    assert (
        "Leaderboard" in text
        and 'href="#pcd"' in text
        and 'id="nce"' in text
        and "Left out" not in text
    )
    assert (
        "What the numbers mean" in text
        and "On average the model gives a" in text
        and "Cut short" not in text
    )


def test_failures_and_ties_are_reported(tmp_path: Path) -> None:
    def line(name: str, low: float, high: float, tied: bool | None = None) -> dict[str, Any]:
        score = {
            "value": (low + high) / 2,
            "low": low,
            "high": high,
            "kind": "estimate",
            "verdict": "tight",
            "se_data": 0.1,
        }
        return {
            "name": name,
            "log_likelihood": score,
            "seconds": 1.0,
            "problem": None,
            "tied": tied,
        }

    failed = {
        "name": "d",
        "log_likelihood": None,
        "seconds": 2.0,
        "problem": "fit: it diverged & left <nothing>.",
        "tied": None,
    }
    results = [line("a", -3, -2, True), line("b", -2.5, -1.5), line("c", -9, -8, False), failed]
    board = {"title": "four", "results": results, "left_out": {"e": "too many"}}
    (tmp_path / "leaderboard.json").write_text(json.dumps(board))
    assert call("report", tmp_path).exit_code == 0
    text = (tmp_path / "report.html").read_text()
    assert "Tied with b, for the interval of the paired difference covers zero: a." in text
    assert "d: fit: it diverged &amp; left &lt;nothing&gt;." in text
    assert "Left out e: too many." in text


def test_what_the_terminal_says_of_a_comparison_stands_on_its_page(tmp_path: Path) -> None:
    """Warnings about the data, which models were fitted, fits that ran out of time, and who is too
    far behind for the figure of scores.
    """

    def line(name: str, value: float, **more: Any) -> dict[str, Any]:
        q = {
            "value": value,
            "low": value,
            "high": value,
            "level": 1.0,
            "kind": "exact",
            "verdict": "tight",
            "se_data": 0.1,
        }
        return {"name": name, "log_likelihood": q, "seconds": 2.0, **more}

    late = {
        "steps": 10,
        "planned_steps": 50,
        "stopped": "out of time",
        "cut_short": True,
        "model": "RBM(4, 2)",
    }
    results = [line("a", -1.0), line("b", -1.2), line("c", -1.3), line("far", -90.0, **late)]
    board = {"title": "a board", "results": results, "warnings": ["column 'x' repeats."]}
    (tmp_path / "leaderboard.json").write_text(json.dumps(board))
    assert call("report", tmp_path).exit_code == 0
    text = (tmp_path / "report.html").read_text()
    assert (
        "Warning: column &#x27;x&#x27; repeats." in text
        or "Warning: column &#39;x&#39; repeats." in text
    )
    assert (
        "Models: far is RBM(4, 2)." in text
        and "far (10 of 50 steps, which took longer than planned)" in text
    )
    assert "Too far left to be seen: far (-90.00)." in text and ">2.0\N{NO-BREAK SPACE}cut<" in text


def test_differences_and_ties_of_the_leaderboard_come_first(tmp_path: Path) -> None:
    score = {
        "low": -2.0,
        "high": -2.0,
        "value": -2.0,
        "kind": "exact",
        "verdict": "tight",
        "se_data": 0.1,
    }
    behind = {"value": -0.25, "low": -0.5, "high": 0.01}
    lower = {**score, "value": -2.25, "low": -2.25, "high": -2.25}
    lines = [
        {"name": "a", "log_likelihood": score, "parameters": 1234},
        {"name": "b", "log_likelihood": lower, "difference": behind, "tied": True},
    ]
    (tmp_path / "leaderboard.json").write_text(json.dumps({"title": "two", "results": lines}))
    assert call("report", tmp_path).exit_code == 0
    text = (tmp_path / "report.html").read_text()
    assert "Tied with a, for the interval of the paired difference covers zero: b." in text
    assert (
        "behind the best" in text and "-0.250 (-0.500\xa0to\xa00.010)" in text and "1,234" in text
    )


def test_doubts_levels_and_lack_of_time_are_reported(tmp_path: Path) -> None:
    """A number that is not to be published is no winner, though it be the highest, or the
    only one.
    """
    sure = {
        "low": -3.1,
        "high": -2.9,
        "value": -3.0,
        "kind": "estimate",
        "verdict": "tight",
        "se_data": 0.1,
        "level": 0.95,
    }
    doubtful = {**sure, "low": -1.1, "high": -0.9, "value": -1.0, "verdict": "do not publish"}
    behind = {"value": 2.0, "low": 1.5, "high": 2.5, "level": 0.85}
    lines = [
        {"name": "a", "log_likelihood": sure, "cut_short": True, "steps": 1500},
        {"name": "b", "log_likelihood": doubtful, "difference": behind},
    ]
    reasons = {"c": "it takes no words", "d": "it takes no words", "e": "too many"}
    (tmp_path / "leaderboard.json").write_text(
        json.dumps({"title": "two", "results": lines, "left_out": reasons})
    )
    assert call("report", tmp_path).exit_code == 0
    text = (tmp_path / "report.html").read_text()
    assert "An interval (95\xa0%) in brackets is about computing" in text
    assert "with an interval (85\xa0%) that holds the spread over rows" in text
    assert text.index("★") < text.index('href="#b"') and text.count("★") == 1
    assert (
        "Not to be published, and so below the others: b." in text
        and "more minutes: a (1,500 steps)." in text
    )
    assert (
        "Left out c, d, each because it takes no words." in text and "Left out e: too many." in text
    )
    (tmp_path / "leaderboard.json").write_text(json.dumps({"title": "one", "results": lines[1:]}))
    assert (
        call("report", tmp_path).exit_code == 0
        and "★" not in (tmp_path / "report.html").read_text()
    )


@pytest.mark.parametrize("content", [None, "{", '{"results": 3}', "[]"])
def test_a_folder_that_is_neither_is_one_sentence(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "leaderboard.json").write_text(content)
    result = call("report", tmp_path)
    assert result.exit_code == 1
    assert (
        result.stderr.startswith("Error: report: " if content is None else "Error: load: ")
        and result.stderr.count("\n") == 1
    )


def test_bad_places(points: Path, tmp_path: Path) -> None:
    assert "no-such" in call("report", tmp_path / "no-such").stderr
    call("fit", "mixture", points, "--out", tmp_path / "run", *QUICK, "--no-report")
    assert (
        "must end in .html"
        in call("report", tmp_path / "run", "--out", tmp_path / "page.pdf").stderr
    )
    # a folder that is a file
    result = call("report", tmp_path / "run", "--out", points / "page.html")
    assert result.exit_code == 1 and "Error:" in result.stderr
