"""The leaderboard of a comparison, what its numbers mean, and candidates without a likelihood."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NotRequired, TypedDict

from partita.core.quantity import Quantity
from partita.report import format
from partita.report.blocks import Block, Link, Table, Text, anchor
from partita.report.context import Subject
from partita.report.run import blocks_of
from partita.report.sections.meaning import in_words

NO_BREAK = "\N{NO-BREAK SPACE}"


class SavedQuantity(TypedDict):
    """A Quantity as JSON; an end that is not finite is null."""

    value: float
    low: float | None
    high: float | None
    kind: str
    verdict: str
    level: NotRequired[float | None]
    se_data: NotRequired[float | None]
    details: NotRequired[dict[str, float]]


class Line(TypedDict):
    """A candidate on a saved leaderboard."""

    name: str
    log_likelihood: NotRequired[SavedQuantity | None]
    bits_per_dimension: NotRequired[SavedQuantity | None]
    difference: NotRequired[SavedQuantity | None]  # to the best
    tied: NotRequired[bool]  # with the best
    seconds: NotRequired[float]
    parameters: NotRequired[int | None]
    problem: NotRequired[str | None]
    model: NotRequired[str]
    steps: NotRequired[int]
    planned_steps: NotRequired[int]
    stopped: NotRequired[str]
    cut_short: NotRequired[bool]


class SavedBoard(TypedDict):
    """A saved leaderboard."""

    results: list[Line]
    title: NotRequired[str]
    folder: NotRequired[str]
    left_out: NotRequired[dict[str, str]]
    entropy: NotRequired[float | None]
    warnings: NotRequired[list[str]]
    waiting: NotRequired[list[str]]


@dataclass(frozen=True)
class Standing:
    """A line of a saved leaderboard, with its run where it can be opened.

    Arguments:
        line: As saved.
        subject: None where there is no run.
        page: The run's own page, relative to this one, where there is one.
    """

    line: Line
    subject: Subject | None = None
    page: str = ""

    @property
    def name(self) -> str:
        return str(self.line["name"])

    @property
    def score(self) -> SavedQuantity | None:
        """None where there is no likelihood to compare."""
        score = self.line.get("log_likelihood")
        compared = score and score["kind"] != "none" and score["value"] is not None
        return score if compared else None

    @property
    def distance(self) -> SavedQuantity | None:
        """The two-sample statistic of a model without a likelihood."""
        score = self.line.get("log_likelihood")
        return score if score and score["kind"] == "none" else None

    @property
    def order(self) -> tuple[int, float]:
        """Numbers to trust first, best first; then those not to be published, then what has
        none.
        """
        return (2, 0.0) if self.score is None else (int(not self.trusted), -self.score["value"])

    @property
    def trusted(self) -> bool:
        """Whether its score may be published."""
        return self.score is not None and self.score["verdict"] != "do not publish"

    @property
    def anchor(self) -> str:
        return anchor(self.name)


def leaderboard(ranked: Sequence[Standing], board: SavedBoard) -> Iterator[Block]:
    """The table, and the notes below it."""
    best = next((s for s in ranked if s.trusted), None)
    level = _level(s.score for s in ranked)
    about = f" An interval{level} in brackets is about computing the number;" if level else ""
    yield Text(
        f"Mean log-likelihood of the same rows, in nats per row; higher is better.{about} ± is the "
        "standard error over the rows.",
        "lead",
    )
    head = (
        "",
        "candidate",
        "nats",
        f"±{NO_BREAK}rows",
        "bits/dim",
        "behind the best",
        "kind",
        "verdict",
        "parameters",
        "seconds",
    )
    lines = [_line(s, best) for s in ranked if not s.distance]
    filled = [i for i in range(len(head)) if any(line[i] for line in lines)]
    yield Table([[line[i] for i in filled] for line in lines], [head[i] for i in filled])
    behind = [difference for s in ranked if (difference := s.line.get("difference"))]
    if behind:
        yield Text(
            "Behind the best: the mean difference of paired rows, with an "
            f"interval{_level(behind)} that holds the spread over rows and the computing error of "
            "both. A lower bound may hide a model that is better than shown.",
            "small",
        )
    yield from _notes(ranked, best)
    if waiting := board.get("waiting"):
        yield Text(
            f"Not yet fitted: {', '.join(map(str, waiting))}. Go on with: partita compare --resume "
            f"{board.get('folder')}",
            "warning",
        )
    if (entropy := board.get("entropy")) is not None:
        yield Text(f"No model scores above {-entropy:.3f} on average: the data's negative entropy.")
    for text in board.get("warnings") or []:
        yield Text(f"Warning: {text}", "warning")
    for text in format.left_out(board.get("left_out") or {}):
        yield Text(text, "small")


def _notes(ranked: Sequence[Standing], best: Standing | None) -> Iterator[Block]:
    """Ties, numbers that are not to be trusted, fits that were cut short, and failures."""
    tied = [s.name for s in ranked if s.score and s.line.get("tied")]
    if best and tied:
        yield Text(
            f"Tied with {best.name}, for the interval of the paired difference covers zero: "
            f"{', '.join(tied)}."
        )
    if doubtful := [s.name for s in ranked if s.score and not s.trusted]:
        yield Text(f"Not to be published, and so below the others: {', '.join(doubtful)}.")
    if fitted := format.fitted_models([s.line for s in ranked]):
        yield Text(fitted, "small")
    if cut := [s.line for s in ranked if s.line.get("cut_short") and s.line.get("steps")]:
        yield Text(format.cut_short(cut))
    for s in ranked:
        if problem := s.line.get("problem"):
            yield Text(f"{s.name}: {problem}", "warning")


def _level(quantities: Iterable[SavedQuantity | None]) -> str:
    """The probability with which intervals cover, the least of all that have one."""
    levels = [
        level
        for q in quantities
        if q and (level := q.get("level")) is not None and q["low"] != q["high"]
    ]
    if not levels:
        return ""
    least = format.percent(min(levels)).replace(" ", NO_BREAK)
    return f" (at least {least})" if len(set(levels)) > 1 else f" ({least})"


def kinds_of_scores(scored: Sequence[Standing]) -> Iterator[Block]:
    """The best score in plain words, and what each kind of number is."""
    best = next((s for s in scored if s.trusted), None)
    if best is None or best.score is None or best.subject is None:
        return
    yield Text(f"For {best.name}, the best:", "small")
    found = Quantity(best.score["value"], details=best.score.get("details") or {})
    yield from blocks_of(partial(in_words, found), best.subject)
    kinds = [(s.score["kind"], s.name) for s in scored if s.score]
    rows = [
        [
            kind,
            ", ".join(name for own, name in kinds if own == kind),
            format.KIND_IN_WORDS.get(kind, ""),
        ]
        for kind in dict(kinds)
    ]
    yield Table(rows, ("kind", "whose", "what it says"))


def _line(standing: Standing, best: Standing | None) -> list[str | Link]:
    line, q = standing.line, standing.score
    cut = f"{NO_BREAK}cut" if line.get("cut_short") else ""
    name = Link(standing.name, f"#{standing.anchor}")
    size = line.get("parameters")
    last = ["" if size is None else f"{size:,}", f"{line.get('seconds', 0.0):.1f}{cut}"]
    if q is None:
        failed = "interrupted" if line.get("stopped") == "interrupted" else "failed"
        kind = failed if line.get("problem") else "no likelihood"
        return ["", name, *[""] * 4, kind, "", *last]
    mark, gap, interval = "=" if line.get("tied") else "", "", ""
    behind, bits = line.get("difference"), line.get("bits_per_dimension")
    if standing is best:
        mark, gap = "★", "best"
    elif behind is not None:
        gap = f"{_number(behind['value'])} ({interval_ends(behind)})"
    if q["kind"] != "exact":
        interval = f" ({interval_ends(q)})"
    return [
        mark,
        name,
        f"{q['value']:.3f}{interval}",
        f"{spread:.3f}" if (spread := q.get("se_data")) else "",
        "" if bits is None else _number(bits["value"], 4),
        gap,
        q["kind"],
        q["verdict"],
        *last,
    ]


def interval_ends(q: SavedQuantity) -> str:
    """Both ends of an interval on one line; ``?`` where one is not known."""
    return f"{_number(q['low'])}{NO_BREAK}to{NO_BREAK}{_number(q['high'])}"


def _number(value: float | None, digits: int = 3) -> str:
    """A number that is not known is infinite, and saved as null."""
    return "?" if value is None else f"{value:.{digits}f}"


def without_likelihood(standings: Sequence[Standing]) -> Iterator[Block]:
    """Candidates whose number is no likelihood, by how far their draws are from the rows."""
    distances = [(s, q) for s in standings if (q := s.distance)]
    if not distances:
        return
    yield Text(
        "These have draws and no likelihood, so no place on the leaderboard. The number is the "
        "squared kernel distance of draws from the scored rows: zero on average where they agree.",
        "lead",
    )
    lines: list[list[str | Link]] = []
    for s, q in distances:
        details = q.get("details") or {}
        lines.append(
            [
                Link(s.name, f"#{s.anchor}"),
                f"{q['value']:.5f}",
                f"{q['low']:.5f}{NO_BREAK}to{NO_BREAK}{q['high']:.5f}",
                *(
                    f"{details[name]:.3f}" if name in details else ""
                    for name in ("p_value", "coverage")
                ),
                f"{s.line.get('seconds', 0.0):.1f}",
            ]
        )
    yield Table(lines, ["candidate", "MMD²", "interval", "p-value", "coverage", "seconds"])
