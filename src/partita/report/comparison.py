"""The page about a comparison: who stands where and how surely, who failed and why, and every run
in short.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from partita.report import plots
from partita.report.blocks import Beside, Block, Figure, Folded, Link, Section, Table, Text
from partita.report.context import DRAWS, Subject
from partita.report.page import write
from partita.report.ranking import Standing, apart, ends, leaderboard, meaning
from partita.report.run import Maker, blocks_of, sections
from partita.report.sections import about, parts
from partita.report.sections.curves import visible
from partita.report.sections.samples import correlations, data_picture, draws_picture, pictured

# the same for all
COMMON: dict[str, Maker] = {"Data": about.data_card, "Make it again": about.origin}
IN_SHORT: dict[str, Maker] = {"What the model is made of": parts.parts}


def write_comparison(board: Mapping[str, Any], standings: Sequence[Standing], path: Path) -> Path:
    """Write the page about a comparison; ``board`` is the saved leaderboard, ``standings`` its
    lines, opened.
    """
    ranked = sorted(standings, key=lambda s: s.order)
    scored = [s for s in ranked if s.score]
    shared = [
        Section("Leaderboard", list(leaderboard(ranked, board))),
        Section("What the numbers mean", list(meaning(scored))),
        Section(
            "Scores with their intervals", [scores(scored, board.get("entropy"))] if scored else []
        ),
        Section("Without a likelihood", list(apart([s for s in ranked if s.distance]))),
        Section("Learning curves", list(_curves([s for s in ranked if not s.distance]))),
        Section("Samples beside data", list(_draws([s for s in ranked if s.subject is not None]))),
    ]
    singles = [Section(s.name, list(_in_short(s))) for s in ranked]
    first = next((s.subject for s in ranked if s.subject is not None), None)
    made = [section for section in [*shared, *singles] if section.blocks] + (
        [] if first is None else sections(first, COMMON)
    )
    return write(path, str(board.get("title", "Comparison")), f"{len(standings)} candidates.", made)


def _known_ends(q: Mapping[str, Any]) -> tuple[float, float]:
    """For a bar: an end that is not known is drawn at the value itself, whose cross says enough."""
    low, high = (q["value"] if end is None else end for end in (q["low"], q["high"]))
    return low, high


def scores(scored: Sequence[Standing], entropy: float | None = None) -> Figure:
    """Values with their intervals, best on top; a cross is not to be published, a dotted line is
    where no model comes beyond on average.
    """
    quantities = [s.score for s in scored if s.score]
    values = [q["value"] for q in quantities]
    above, below = zip(
        *(
            (high - q["value"], q["value"] - low)
            for q in quantities
            for low, high in [_known_ends(q)]
        ),
        strict=True,
    )
    bars = {
        "type": "data",
        "array": above,
        "arrayminus": below,
        "symmetric": False,
        "thickness": 1.5,
        "color": plots.DATA,
    }
    symbols = ["x" if q["verdict"] == "do not publish" else "circle" for q in quantities]
    marks = {"size": 10, "color": [plots.color(i) for i in range(len(scored))], "symbol": symbols}
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": values,
        "y": [s.name for s in scored],
        "error_x": bars,
        "marker": marks,
    }
    ends = (
        f"from {values[-1]:.2f} ({scored[-1].name}) to {values[0]:.2f} ({scored[0].name}) nats per "
        "row"
    )
    alt = f"Scores of {len(scored)} candidates with intervals, {ends}."
    seen = visible(values)
    if seen is not None:  # no farther than the last that is
        last = min(min(q["value"], _known_ends(q)[0]) for q in quantities if q["value"] >= seen[0])
        seen = [max(seen[0], last - 0.05 * (seen[1] - last)), seen[1]]
    layout: dict[str, Any] = {
        "xaxis": plots.axis("nats per row", range=seen),
        "yaxis": {"autorange": "reversed", "type": "category"},
    }
    if entropy is not None:
        line = {"color": plots.DATA, "width": 1, "dash": "dot"}
        layout["shapes"] = [
            {
                "type": "line",
                "x0": -entropy,
                "x1": -entropy,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": line,
            }
        ]
    exact = all(q["kind"] == "exact" for q in quantities)
    caption = (
        "All are exact: computing them leaves no interval."
        if exact
        else ("Intervals of the computation. A cross marks a number that is not to be published.")
    )
    if seen is not None:
        beyond = ", ".join(
            f"{s.name} ({q['value']:.2f})"
            for s, q in zip(scored, quantities, strict=True)
            if q["value"] < seen[0]
        )
        caption += f" Too far left to be seen: {beyond}."
    return Figure([trace], alt, layout, caption, 110 + 30 * len(scored))


def _curves(ranked: Sequence[Standing]) -> Iterator[Block]:
    """Validation scores of all along the seconds of their fits."""
    traces, values = [], []
    for i, s in enumerate(ranked):
        points = [] if s.subject is None else timed(s.subject.run.history)
        if len(points) > 1:
            seconds, scores = zip(*points, strict=True)
            line = {"color": plots.color(i), "width": 1.8, "dash": plots.dash(i)}
            traces.append(
                plots.line(np.maximum(seconds, 1e-2), scores, s.name, plots.color(i), line=line)
            )
            values += scores
    if traces:
        layout = {
            "xaxis": plots.log_axis("seconds"),
            "yaxis": plots.axis("nats per row", range=visible(values)),
        }
        alt = f"Validation scores of {len(traces)} candidates along their fits."
        lost = ", ".join(
            s.name
            for s in ranked
            if s.subject is not None and s.name not in {trace["name"] for trace in traces}
        )
        caption = (
            "Validation rows along the fit of each, by the seconds since it began, its search "
            "included."
        )
        yield Figure(
            traces,
            alt,
            layout,
            f"{caption} With fewer than two validations, and so not here: {lost}."
            if lost
            else caption,
            420,
        )


def _draws(opened: Sequence[Standing]) -> Iterator[Block]:
    """The data once, then draws of every candidate; of tables, the correlations that each has
    learnt.
    """
    subjects = [(s.name, s.subject) for s in opened if s.subject is not None]
    data = next(
        (
            picture
            for _, subject in subjects
            if pictured(subject) and (picture := data_picture(subject))
        ),
        None,
    )
    draws = [
        block
        for name, subject in subjects
        for block in blocks_of(partial(_drawn, name=f"draws of {name}"), subject)
    ]
    if draws:
        yield Beside(draws if data is None else [data, *draws], least=240)


def _drawn(subject: Subject, name: str) -> Iterator[Block]:
    data = None if pictured(subject) else subject.some_rows(DRAWS)
    if pictured(subject):
        yield draws_picture(subject, name)
    elif (
        data is not None and data.shape[1] > 2 and not subject.encoding.labels and not subject.mixed
    ):
        yield correlations(data, subject.drawn.x, name)


def timed(history: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(seconds, score of the validation rows) along a fit."""
    clock, found = 0.0, []
    for record in history:
        clock = seconds if isinstance(seconds := record.get("seconds"), int | float) else clock
        if isinstance(record.get("validation"), float) and np.isfinite(record["validation"]):
            found.append((clock, record["validation"]))
    return found


def _in_short(standing: Standing) -> Iterator[Block]:
    """One candidate: how it ended, what it is made of, and where to read on."""
    run = None if standing.subject is None else standing.subject.run
    if standing.line.get("problem"):
        yield Text(str(standing.line["problem"]), "warning")
    if run is None or standing.subject is None:
        return
    settings, q = (run.config.get("family") or {}).get("settings") or {}, standing.score
    interval = (
        "" if q is None else f"{'' if q['kind'] == 'exact' else f' ({ends(q)})'}, {q['verdict']}"
    )
    yield Table(
        [
            *(
                []
                if q is None
                else [["score", f"{q['value']:.3f} nats per row, {q['kind']}{interval}"]]
            ),
            ["model", run.model.title()],
            [
                "stopped",
                f"{run.stopped} after {run.steps:,} "
                f"steps{', cut short by the clock' * bool(standing.line.get('cut_short'))}",
            ],
            [
                "settings",
                ", ".join(
                    f"{name}={value}" for name, value in settings.items() if value is not None
                ),
            ],
            [
                "its own page",
                Link(standing.page, standing.page)
                if standing.page
                else f"made by: partita report {run.folder}",
            ],
        ]
    )
    for warning in run.warnings:
        yield Text(f"Warning: {warning}", "warning")
    for section in sections(standing.subject, IN_SHORT):
        yield Folded(section.title, section.blocks)
