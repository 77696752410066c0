"""The page about a comparison: who stands where and how surely, who failed and why, and every run in short."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from partita.report import plots
from partita.report.blocks import Beside, Block, Figure, Folded, Link, Section, Table, Text, anchor
from partita.report.page import write
from partita.report.run import Maker, blocks_of, sections
from partita.report.sections import about, parts
from partita.report.sections.curves import visible
from partita.report.sections.samples import correlations, data_picture, draws_picture, pictured
from partita.report.subject import DRAWS, Subject

COMMON: dict[str, Maker] = {"Data": about.data_card, "Make it again": about.origin}  # the same for all
IN_SHORT: dict[str, Maker] = {"What the model is made of": parts.parts}


@dataclass(frozen=True)
class Standing:
    """A line of a saved leaderboard, with its run where it can be opened.

    Arguments:
        line: As saved: name, log_likelihood (a Quantity as JSON, or null), seconds, problem; where they are known also run, parameters,
            bits_per_dimension, difference (to the best, a Quantity as JSON) and tied (with the best).
        subject: None where there is no run.
        page: The run's own page, relative to this one, where there is one.
    """

    line: Mapping[str, Any]
    subject: Subject | None = None
    page: str = ""

    @property
    def name(self) -> str:
        return str(self.line["name"])

    @property
    def score(self) -> Mapping[str, Any] | None:
        """None where there is no likelihood to compare."""
        score = self.line.get("log_likelihood")
        return score if score is not None and score.get("kind") != "none" and score.get("value") is not None else None

    @property
    def distance(self) -> Mapping[str, Any] | None:
        """The two-sample statistic of what has no likelihood."""
        score = self.line.get("log_likelihood")
        return score if score is not None and score.get("kind") == "none" else None

    @property
    def order(self) -> tuple[int, float]:
        """Numbers to trust first, best first; then those not to be published, then what has none."""
        return (2, 0.0) if self.score is None else (int(self.score.get("verdict") == "do not publish"), -self.score["value"])

    @property
    def anchor(self) -> str:
        return anchor(self.name)


def write_comparison(board: Mapping[str, Any], standings: Sequence[Standing], path: Path) -> Path:
    """Write the page about a comparison; ``board`` is the saved leaderboard, ``standings`` its lines, opened."""
    ranked = sorted(standings, key=lambda s: s.order)
    scored = [s for s in ranked if s.score]
    shared = [
        Section("Leaderboard", list(_leaderboard(ranked, board))),
        Section("Scores with their intervals", [scores(scored, board.get("entropy"))] if scored else []),
        Section("Without a likelihood", list(_apart([s for s in ranked if s.distance]))),
        Section("Learning curves", list(_curves([s for s in ranked if not s.distance]))),
        Section("Samples beside data", list(_draws([s for s in ranked if s.subject is not None]))),
    ]
    singles = [Section(s.name, list(_in_short(s))) for s in ranked]
    first = next((s.subject for s in ranked if s.subject is not None), None)
    made = [section for section in [*shared, *singles] if section.blocks] + ([] if first is None else sections(first, COMMON))
    return write(path, str(board.get("title", "Comparison")), f"{len(standings)} contenders.", made)


def _leaderboard(ranked: Sequence[Standing], board: Mapping[str, Any]) -> Iterator[Block]:
    best = next((s for s in ranked if s.score), None)
    yield Text("Mean log-likelihood of the same rows, in nats per row; higher is better. The interval is about computing the number; "
               "± is its standard error over the rows.", "lead")  # fmt: skip
    head = ("", "contender", "nats", "interval", "± rows", "bits/dim", "behind the best", "kind", "verdict", "parameters", "seconds")
    lines = [_line(s, best) for s in ranked if not s.distance]
    told = [i for i in range(len(head)) if any(line[i] for line in lines)]
    yield Table([[line[i] for i in told] for line in lines], [head[i] for i in told])
    if any(s.line.get("difference") for s in ranked):
        yield Text("Behind the best: the mean difference of paired rows, with an interval that holds the spread over rows and the "
                   "computing error of both. A lower bound may hide a model that is better than shown.", "small")  # fmt: skip
    tied = [s.name for s in ranked if s.score and s.line.get("tied")]
    if best and tied:
        yield Text(f"Tied with {best.name}, for the interval of the paired difference covers zero: {', '.join(tied)}.")
    if board.get("entropy") is not None:
        yield Text(f"No model scores above {-board['entropy']:.3f} on average: the data's negative entropy.")
    for s in ranked:
        if s.line.get("problem"):
            yield Text(f"{s.name}: {s.line['problem']}", "caution")
    for name, reason in (board.get("left_out") or {}).items():
        yield Text(f"Left out {name}: {reason}.", "small")


def _line(standing: Standing, best: Standing | None) -> list[str | Link]:
    q, seconds = standing.score, f"{standing.line.get('seconds', 0.0):.1f}"
    name = Link(standing.name, f"#{standing.anchor}")
    size = "" if standing.line.get("parameters") is None else f"{standing.line['parameters']:,}"
    if q is None:
        return ["", name, "", "", "", "", "", "failed" if standing.line.get("problem") else "no likelihood", "", size, seconds]
    mark = "★" if standing is best else "=" if standing.line.get("tied") else ""
    interval, verdict = ("", "") if q["kind"] == "exact" else (_interval(q), str(q["verdict"]))
    behind, bits = standing.line.get("difference"), standing.line.get("bits_per_dimension")
    gap = "" if behind is None else f"{behind['value']:.3f} ({_interval(behind)})"
    spread, per_column = f"{q.get('se_data') or 0.0:.3f}", "" if bits is None else f"{bits['value']:.4f}"
    return [mark, name, f"{q['value']:.3f}", interval, spread, per_column, gap, str(q["kind"]), verdict, size, seconds]


def _interval(q: Mapping[str, Any]) -> str:
    """Ends that are not known are infinite, and saved as null."""
    low, high = ("?" if end is None else f"{end:.3f}" for end in (q["low"], q["high"]))
    return f"{low} to {high}"


def _apart(standings: Sequence[Standing]) -> Iterator[Block]:
    """Contenders whose number is no likelihood, by how far their draws are from the rows."""
    if not standings:
        return
    yield Text("These have draws and no likelihood, so no place on the leaderboard. The number is the squared kernel distance of draws "
               "from the scored rows: zero on average where they agree.", "lead")  # fmt: skip
    lines: list[list[str | Link]] = []
    for s in standings:
        q = s.distance or {}
        more = [f"{q['details'][name]:.3f}" if name in (q.get("details") or {}) else "" for name in ("p_value", "coverage")]
        ends = f"{q['low']:.5f} to {q['high']:.5f}"
        lines.append([Link(s.name, f"#{s.anchor}"), f"{q['value']:.5f}", ends, *more, f"{s.line.get('seconds', 0.0):.1f}"])
    yield Table(lines, ["contender", "MMD²", "interval", "p-value", "coverage", "seconds"])


def _known_ends(q: Mapping[str, Any]) -> tuple[float, float]:
    """For a bar: an end that is not known is drawn at the value itself, whose cross says enough."""
    low, high = (q["value"] if end is None else end for end in (q["low"], q["high"]))
    return low, high


def scores(scored: Sequence[Standing], entropy: float | None = None) -> Figure:
    """Values with their intervals, best on top; a cross is not to be published, a dotted line is where no model comes beyond on average."""
    quantities = [s.score for s in scored if s.score]
    values = [q["value"] for q in quantities]
    above, below = zip(*((high - q["value"], q["value"] - low) for q in quantities for low, high in [_known_ends(q)]), strict=True)
    bars = {"type": "data", "array": above, "arrayminus": below, "symmetric": False, "thickness": 1.5, "color": plots.DATA}
    symbols = ["x" if q["verdict"] == "do not publish" else "circle" for q in quantities]
    marks = {"size": 10, "color": [plots.colour(i) for i in range(len(scored))], "symbol": symbols}
    trace = {"type": "scatter", "mode": "markers", "x": values, "y": [s.name for s in scored], "error_x": bars, "marker": marks}
    ends = f"from {values[-1]:.2f} ({scored[-1].name}) to {values[0]:.2f} ({scored[0].name}) nats per row"
    alt = f"Scores of {len(scored)} contenders with intervals, {ends}."
    layout: dict[str, Any] = {"xaxis": plots.axis("nats per row"), "yaxis": {"autorange": "reversed", "type": "category"}}
    if entropy is not None:
        line = {"color": plots.DATA, "width": 1, "dash": "dot"}
        layout["shapes"] = [{"type": "line", "x0": -entropy, "x1": -entropy, "yref": "paper", "y0": 0, "y1": 1, "line": line}]
    exact = all(q["kind"] == "exact" for q in quantities)
    caption = "All are exact: computing them leaves no interval." if exact else (
        "Intervals of the computation. A cross marks a number that is not to be published.")  # fmt: skip
    return Figure([trace], alt, layout, caption, 110 + 30 * len(scored))


def _curves(ranked: Sequence[Standing]) -> Iterator[Block]:
    """Validation scores of all along the seconds of their fits."""
    traces, values = [], []
    for i, s in enumerate(ranked):
        points = [] if s.subject is None else timed(s.subject.run.history)
        if len(points) > 1:
            seconds, scores = zip(*points, strict=True)
            traces.append(plots.line(np.maximum(seconds, 1e-2), scores, s.name, plots.colour(i)))
            values += scores
    if traces:
        layout = {"xaxis": plots.axis("seconds", type="log", dtick="D2"), "yaxis": plots.axis("nats per row", range=visible(values))}
        alt = f"Validation scores of {len(traces)} contenders along their fits."
        yield Figure(traces, alt, layout, "Validation rows along the fit of each.", 420)


def _draws(opened: Sequence[Standing]) -> Iterator[Block]:
    """The data once, then draws of every contender; of tables, the correlations that each has learnt."""
    subjects = [(s.name, s.subject) for s in opened if s.subject is not None]
    data = next((picture for _, subject in subjects if pictured(subject) and (picture := data_picture(subject))), None)
    draws = [block for name, subject in subjects for block in blocks_of(partial(_drawn, name=f"draws of {name}"), subject)]
    if draws:
        yield Beside(draws if data is None else [data, *draws], least=240)


def _drawn(subject: Subject, name: str) -> Iterator[Block]:
    data = None if pictured(subject) else subject.some_rows(DRAWS)
    if pictured(subject):
        yield draws_picture(subject, name)
    elif data is not None and data.shape[1] > 2 and not subject.encoding.labels and not subject.mixed:
        yield correlations(data, subject.drawn.x, name)


def timed(history: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(seconds, score of the validation rows) along a fit."""
    clock, found = 0.0, []
    for record in history:
        clock = record.get("seconds", clock)
        if isinstance(record.get("validation"), float) and np.isfinite(record["validation"]):
            found.append((clock, record["validation"]))
    return found


def _in_short(standing: Standing) -> Iterator[Block]:
    """One contender: how it ended, what it is made of, and where to read on."""
    run = None if standing.subject is None else standing.subject.run
    if standing.line.get("problem"):
        yield Text(str(standing.line["problem"]), "caution")
    if run is None or standing.subject is None:
        return
    settings, q = (run.config.get("family") or {}).get("settings") or {}, standing.score
    interval = "" if q is None or q["kind"] == "exact" else f" ({_interval(q)}), {q['verdict']}"
    yield Table([
        *([] if q is None else [["score", f"{q['value']:.3f} nats per row, {q['kind']}{interval}"]]), ["model", run.model.title()],
        ["stopped", f"{run.stopped} after {run.steps:,} steps"],
        ["settings", ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)],
        ["page of its own", Link(standing.page, standing.page) if standing.page else f"partita report {run.folder}"],
    ])  # fmt: skip
    for caution in run.cautions:
        yield Text(f"Caution: {caution}", "caution")
    for section in sections(standing.subject, IN_SHORT):
        yield Folded(section.title, section.blocks)
