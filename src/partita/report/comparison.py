"""The page about a comparison: places and how sure they are, failures, and a summary of every
run.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from partita.experiment.leaderboard import SavedBoard, SavedQuantity
from partita.report import plots
from partita.report.blocks import Beside, Block, Figure, Folded, Link, Section, Table, Text
from partita.report.context import DRAWS, Subject
from partita.report.page import write_page
from partita.report.ranking import (
    Standing,
    interval_ends,
    kinds_of_scores,
    leaderboard,
    without_likelihood,
)
from partita.report.run import Maker, blocks_of, sections
from partita.report.sections import about, parts
from partita.report.sections.curves import visible_range
from partita.report.sections.samples import correlations, data_picture, draws_picture, pictured

# the same for all
COMMON: dict[str, Maker] = {"Data": about.data_card, "Make it again": about.origin}
IN_SHORT: dict[str, Maker] = {"What the model is made of": parts.parts}


def write_comparison(board: SavedBoard, standings: Sequence[Standing], path: Path) -> Path:
    """Write the page about a comparison; ``standings`` are the lines of its saved leaderboard, with
    their runs.
    """
    ranked = sorted(standings, key=lambda s: s.order)
    scored = [(s, q) for s in ranked if (q := s.score)]
    opened = [(s.name, s.subject) for s in ranked if s.subject is not None]
    shared = {
        "Leaderboard": leaderboard(ranked, board),
        "What the numbers mean": kinds_of_scores([s for s, _ in scored]),
        "Scores with their intervals": _scores(scored, board.get("entropy")),
        "Without a likelihood": without_likelihood(ranked),
        "Learning curves": _curves([s for s in ranked if not s.distance]),
        "Samples beside data": _draws(opened),
    }
    made = [Section(title, list(blocks)) for title, blocks in shared.items()]
    made += [Section(s.name, list(_summary(s))) for s in ranked]
    made = [section for section in made if section.blocks]
    if opened:
        made += sections(opened[0][1], COMMON)
    return write_page(path, board.get("title", "Comparison"), f"{len(standings)} candidates.", made)


def _scores(
    scored: Sequence[tuple[Standing, SavedQuantity]], entropy: float | None = None
) -> Iterator[Block]:
    """Values with their intervals, best on top; a cross is not to be published, a dotted line is
    the highest possible score on average.
    """
    if not scored:
        return
    names, quantities = [s.name for s, _ in scored], [q for _, q in scored]
    # an end that is not known is drawn at the value itself, whose cross says enough
    values, lows, highs = (
        np.array([q["value"] if q[end] is None else q[end] for q in quantities])
        for end in ("value", "low", "high")
    )
    symbols = ["x" if q["verdict"] == "do not publish" else "circle" for q in quantities]
    marks = {"size": 10, "color": [plots.color(i) for i in range(len(scored))], "symbol": symbols}
    ends = plots.errors(values, lows, highs, thickness=1.5, color=plots.DATA)
    trace = plots.scatter(values, names, "markers", error_x=ends, marker=marks)
    alt = (
        f"Scores of {len(scored)} candidates with intervals, from {values[-1]:.2f} ({names[-1]}) "
        f"to {values[0]:.2f} ({names[0]}) nats per row."
    )
    caption = "Intervals of the computation. A cross marks a number that is not to be published."
    if all(q["kind"] == "exact" for q in quantities):
        caption = "All are exact: computing them leaves no interval."
    seen = visible_range(values.tolist())
    if seen is not None:  # no farther than the last that is
        last = float(lows[values >= seen[0]].min())
        seen = [max(seen[0], last - 0.05 * (seen[1] - last)), seen[1]]
        beyond = [
            f"{name} ({value:.2f})"
            for name, value in zip(names, values, strict=True)
            if value < seen[0]
        ]
        caption += f" Too far left to be seen: {', '.join(beyond)}."
    dotted = partial(plots.vertical, color=plots.DATA, width=1, dash="dot")
    layout = {
        "xaxis": plots.axis("nats per row", range=seen),
        "yaxis": {"autorange": "reversed", "type": "category"},
        "shapes": [] if entropy is None else [dotted(-entropy)],
    }
    yield Figure([trace], alt, layout, caption, 110 + 30 * len(scored))


def _curves(ranked: Sequence[Standing]) -> Iterator[Block]:
    """Validation scores of all along the seconds of their fits."""
    traces, values, absent = [], [], []
    for i, s in enumerate(ranked):
        points = [] if s.subject is None else timed_validation(s.subject.run.history)
        if len(points) > 1:
            seconds, scores = zip(*points, strict=True)
            line = {"color": plots.color(i), "width": 1.8, "dash": plots.dash(i)}
            traces.append(
                plots.line(np.maximum(seconds, 1e-2), scores, s.name, plots.color(i), line=line)
            )
            values += scores
        elif s.subject is not None:
            absent.append(s.name)
    if not traces:
        return
    layout = {
        "xaxis": plots.log_axis("seconds"),
        "yaxis": plots.axis("nats per row", range=visible_range(values)),
    }
    alt = f"Validation scores of {len(traces)} candidates along their fits."
    caption = (
        "Validation rows along the fit of each, by the seconds since it began, its search included."
    )
    if absent:
        caption += f" With fewer than two validations, and so not here: {', '.join(absent)}."
    yield Figure(traces, alt, layout, caption, 420)


def _draws(opened: Sequence[tuple[str, Subject]]) -> Iterator[Block]:
    """The data once, then draws of every candidate; of tables, the correlations that each has
    learned.
    """
    pictures = (data_picture(subject) for _, subject in opened if pictured(subject))
    data = next((picture for picture in pictures if picture is not None), None)
    draws = [
        block
        for name, subject in opened
        for block in blocks_of(partial(_drawn, name=f"draws of {name}"), subject)
    ]
    if draws:
        yield Beside(draws if data is None else [data, *draws], least=240)


def _drawn(subject: Subject, name: str) -> Iterator[Block]:
    if pictured(subject):
        yield draws_picture(subject, name)
        return
    data = subject.some_rows(DRAWS)
    numeric = not subject.encoding.labels and not subject.mixed
    if data is not None and data.shape[1] > 2 and numeric:
        yield correlations(data, subject.drawn.x, name)


def timed_validation(history: Sequence[Mapping[str, object]]) -> list[tuple[float, float]]:
    """(seconds, score of the validation set) along a fit."""
    clock, found = 0.0, []
    for record in history:
        seconds, score = record.get("seconds"), record.get("validation")
        if isinstance(seconds, int | float):
            clock = seconds
        if isinstance(score, float) and np.isfinite(score):
            found.append((clock, score))
    return found


def _summary(standing: Standing) -> Iterator[Block]:
    """One candidate: how it ended, what it is made of, and where to read on."""
    line, subject, q = standing.line, standing.subject, standing.score
    if problem := line.get("problem"):
        yield Text(problem, "warning")
    if subject is None:
        return
    run = subject.run
    rows: list[list[str | Link]] = []
    if q is not None:
        interval = "" if q["kind"] == "exact" else f" ({interval_ends(q)})"
        score = f"{q['value']:.3f} nats per row, {q['kind']}{interval}, {q['verdict']}"
        rows.append(["score", score])
    cut = ", cut short by the clock" if line.get("cut_short") else ""
    settings = (run.config.get("family") or {}).get("settings") or {}
    given = ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
    made_by = f"made by: partita report {run.folder}"
    rows += [
        ["model", run.model.title()],
        ["stopped", f"{run.stopped} after {run.steps:,} steps{cut}"],
        ["settings", given],
        ["its own page", Link(standing.page, standing.page) if standing.page else made_by],
    ]
    yield Table(rows)
    for warning in run.warnings:
        yield Text(f"Warning: {warning}", "warning")
    for section in sections(subject, IN_SHORT):
        yield Folded(section.title, section.blocks)
