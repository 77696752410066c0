"""From lines that were shown to ``results.json`` and the page, and back; marks, and what is worse
than recorded.
"""

import doctest
import json
import re
import runpy
from html import escape
from pathlib import Path
from typing import Any

import pytest
import torch

import growth
import harness
import page
import ratios
import records
from ratios import ratios_of, regressions
from records import Record

ROOT = Path(__file__).parents[2]
DOCS = runpy.run_path(str(ROOT / "docs" / "measured.py"))
MACHINE = {"processor": "Abacus <9>", "cores": "2", "threads": "1", "torch": "9.8.7"}
GROWN = {
    "what": "EM against rows",
    "exponent": 1.04,
    "low": 1.01,
    "high": 1.07,
    "theory": 1.0,
    "formula": "n",
    "bare": 0.98,
    "sizes": "8 to 64",
    "seconds": 0.0123,
    "departs": "The cost of a unit of theory rises by 9% from 8 to 64.",
}
CURVE = {
    "what": "EM",
    "axis": "rows",
    "sizes": [8, 16, 32, 64],
    "cost": [0.001, 0.002, 0.005, 0.0123],
    "fitted": [8, 64],
    "theory": [0.0015, 0.0123],
}


def made_up() -> dict[str, Record]:
    """Every sort of line that benchmarks show."""
    about: dict[str, Any] = {"about": MACHINE, "date": "2031-02-03 04:05 UTC", "seconds": 12.5}
    speed = [
        {
            "what": "update",
            "milliseconds": 3.25,
            "six_products": 2.5,
            "ratio": 1.3125,
            "target": "at most 1.35",
        },
        {
            "what": "epochs",
            "partita_seconds": 2.0,
            "scikit_learn": 2.5,
            "times_faster": 1.25,
            "target": "at least 1.5",
        },
    ]
    quality = [
        {
            "what": "digits & <b>",
            "nats": -84.1675,
            "reached": True,
            "rows": 10_000,
            "wanted": "nan",
            "curve": "1.5 at 2 s, " * 9,
        }
    ]
    return {
        "pcd": Record(speed, title="One update.", command="python benchmarks/run.py pcd", **about),
        "digits": Record(quality, notes=["zuko: not installed here"], **about),
        "absent": Record(
            [], notes=["absent: skipped; set PARTITA_DATA to the folder that holds mnist"]
        ),
        "scaling": Record([GROWN], [CURVE], **about),
    }


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    records.write(made_up(), path)
    assert records.read(path) == made_up()
    assert list(json.loads(path.read_text())) == sorted(made_up())
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_shown_is_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    harness.show("a", ratio=torch.tensor(1.5), wanted=float("nan"), rows=3, kind="exact")
    assert harness.LINES.pop() == {
        "what": "a",
        "ratio": 1.5,
        "wanted": "nan",
        "rows": 3,
        "kind": "exact",
    }
    assert capsys.readouterr().out == "a: ratio 1.5  wanted nan  rows 3  kind exact\n"


def cells(text: str) -> list[str]:
    return [
        re.sub(r"<[^>]+>", "", found) for found in re.findall(r"<td[^>]*>(.*?)</td>", text, re.S)
    ]


@pytest.fixture(params=["page", "docs"])
def text(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The page as it stands alone, and as a page of the documentation."""
    records.write(made_up(), tmp_path / "results.json")
    if request.param == "docs":
        return DOCS["page"](tmp_path / "results.json")
    return page.write(
        records.read(tmp_path / "results.json"), tmp_path / "results.html"
    ).read_text()


def test_the_page_has_every_number_beside_its_target(text: str) -> None:
    found = "\n".join(cells(text)).replace("\u00a0", " ")
    assert "pcd\n1.31 x the cost\n≤ 1.35\nyes\nupdate\nsix matrix products\n" in found
    assert "pcd\n1.25 x as fast\n≥ 1.5\nno\nepochs\nscikit-learn\n" in found
    assert "update\n1.312\nat most 1.35\n3.25\n2.5\n" in found
    assert "digits &amp; &lt;b&gt;\n\n-84.17\nyes\n10,000\n" in found
    assert "EM\nrows\n1.04\n1.01 to 1.07\n1.00 (n)\n0.98\n8 to 64\n12.3\n" in found


def test_the_page_says_when_where_how_and_what_is_missing(text: str) -> None:
    for said in (
        "Abacus <9>",
        "9.8.7",
        "2031-02-03",
        "python benchmarks/run.py pcd",
        "zuko: not installed here",
        "absent: skipped",
        "Of 2 with a mark 1 meet it",
        GROWN["departs"],
        "digits & <b>",
        "One update.",
    ):
        assert escape(str(said), quote=False) in text.replace("&#39;", "'"), said


def test_figures_show_all_ratios_in_one_sense(tmp_path: Path) -> None:
    parts = {section.title: section for section in page.sections(made_up())}
    strip = next(block for block in parts["At a glance"].blocks if block.kind == "figure")
    assert {
        (y, x) for trace in strip.traces for y, x in zip(trace["y"], trace["x"], strict=True)
    } == {("pcd", 1 / 1.3125), ("pcd", 1.25)}
    assert [section.title for section in page.sections({})] == ["At a glance"]


def test_a_page_of_the_documentation_without_records(tmp_path: Path) -> None:
    assert "Nothing is recorded yet." in DOCS["page"](tmp_path / "results.json")


@pytest.mark.parametrize(
    ("line", "mark", "met"),
    [
        ({"what": "a", "ratio": 1.2, "target": "at most 1.35"}, 1.35, True),
        ({"what": "a", "ratio": 1.4, "target": "at most 1.35"}, 1.35, False),
        ({"what": "a", "times_as_fast": 1.4, "wanted": 3.0}, 3.0, False),
        (
            {"what": "a against zuko", "times_as_fast": 1.4, "target": "at least 1.2 x zuko"},
            1.2,
            True,
        ),
        (
            {"what": "a against nflows", "times_as_fast": 1.4, "target": "at least 1.2 x zuko"},
            None,
            None,
        ),
        ({"what": "a", "times_as_fast": 14.0, "target": "at most 4 ms"}, None, None),
        ({"what": "a", "to_sklearn_em": 14.0, "target": "at least 5e6"}, None, None),
    ],
)
def test_a_mark_is_held_against_the_ratio_it_is_about(
    line: dict[str, Any], mark: float | None, met: bool | None
) -> None:
    (found,) = ratios_of([line])
    assert (found.mark, found.met) == (mark, met)


@pytest.mark.parametrize(
    ("key", "then", "now", "worse"),
    [
        ("ratio", 1.0, 1.24, False),
        ("ratio", 1.0, 1.26, True),
        ("ratio", 1.26, 1.0, False),
        ("times_as_fast", 1.26, 1.0, True),
        ("times_as_fast", 1.24, 1.0, False),
        ("times_as_fast", 1.0, 1.26, False),
    ],
)
def test_worse_by_more_than_a_quarter_in_the_ratios_own_sense(
    key: str, then: float, now: float, worse: bool
) -> None:
    assert bool(regressions([{"what": "a", key: now}], [{"what": "a", key: then}])) is worse
    assert regressions([{"what": "b", key: now}], [{"what": "a", key: then}]) == {}


@pytest.mark.parametrize(
    ("exponent", "low", "worse"),
    [(1.3, 1.2, True), (1.3, 1.05, False), (1.2, 1.15, False), (0.5, 0.4, False)],
)
def test_steeper_growth_is_worse(exponent: float, low: float, worse: bool) -> None:
    assert bool(regressions([GROWN | {"exponent": exponent, "low": low}], [GROWN])) is worse


def test_examples_of_the_tools() -> None:
    for module in (harness, records, ratios, growth, page):
        assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0
