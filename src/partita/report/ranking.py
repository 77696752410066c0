"""Who stands where in a comparison: the leaderboard, what its numbers mean, and who has no
likelihood.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from partita.core.quantity import Quantity
from partita.report import format
from partita.report.blocks import Block, Link, Table, Text, anchor
from partita.report.context import Subject
from partita.report.run import blocks_of
from partita.report.sections.meaning import in_words

NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Standing:
    """A line of a saved leaderboard, with its run where it can be opened.

    Arguments:
        line: As saved: name, log_likelihood (a Quantity as JSON, or null), seconds, problem; where
            they are known also run, parameters, bits_per_dimension, difference (to the best, a
            Quantity as JSON) and tied (with the best).
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
        return (
            score
            if score is not None and score.get("kind") != "none" and score.get("value") is not None
            else None
        )

    @property
    def distance(self) -> Mapping[str, Any] | None:
        """The two-sample statistic of what has no likelihood."""
        score = self.line.get("log_likelihood")
        return score if score is not None and score.get("kind") == "none" else None

    @property
    def order(self) -> tuple[int, float]:
        """Numbers to trust first, best first; then those not to be published, then what has
        none.
        """
        return (2, 0.0) if self.score is None else (int(not self.trusted), -self.score["value"])

    @property
    def trusted(self) -> bool:
        """Whether its score may be published."""
        return self.score is not None and self.score.get("verdict") != "do not publish"

    @property
    def anchor(self) -> str:
        return anchor(self.name)


def leaderboard(ranked: Sequence[Standing], board: Mapping[str, Any]) -> Iterator[Block]:
    """The table, and what is to be said about it."""
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
    told = [i for i in range(len(head)) if any(line[i] for line in lines)]
    yield Table([[line[i] for i in told] for line in lines], [head[i] for i in told])
    behind = [s.line["difference"] for s in ranked if s.line.get("difference")]
    if behind:
        yield Text(
            "Behind the best: the mean difference of paired rows, with an "
            f"interval{_level(behind)} that holds the spread over rows and the computing error of "
            "both. A lower bound may hide a model that is better than shown.",
            "small",
        )
    yield from _remarks(ranked, best)
    if waiting := board.get("waiting"):
        yield Text(
            f"Not yet fitted: {', '.join(map(str, waiting))}. Go on with: partita compare --resume "
            f"{board.get('folder')}",
            "warning",
        )
    if board.get("entropy") is not None:
        yield Text(
            f"No model scores above {-board['entropy']:.3f} on average: the data's negative "
            "entropy."
        )
    for text in board.get("warnings") or []:
        yield Text(f"Warning: {text}", "warning")
    for text in format.left_out(board.get("left_out") or {}):
        yield Text(text, "small")


def _remarks(ranked: Sequence[Standing], best: Standing | None) -> Iterator[Block]:
    """Who is tied, what is not to be trusted, who had too little time, and who failed."""
    tied = [s.name for s in ranked if s.score and s.line.get("tied")]
    if best and tied:
        yield Text(
            f"Tied with {best.name}, for the interval of the paired difference covers zero: "
            f"{', '.join(tied)}."
        )
    if doubtful := [s.name for s in ranked if s.score and not s.trusted]:
        yield Text(f"Not to be published, and so below the others: {', '.join(doubtful)}.")
    if fitted := format.models([s.line for s in ranked]):
        yield Text(fitted, "small")
    if cut := [s.line for s in ranked if s.line.get("cut_short") and s.line.get("steps")]:
        yield Text(format.cut_short(cut))
    for s in ranked:
        if s.line.get("problem"):
            yield Text(f"{s.name}: {s.line['problem']}", "warning")


def _level(quantities: Iterable[Mapping[str, Any] | None]) -> str:
    """The probability with which intervals cover, the least of all that have one."""
    levels = [
        q["level"] for q in quantities if q and q.get("level") is not None and q["low"] != q["high"]
    ]
    if not levels:
        return ""
    least = format.percent(min(levels)).replace(" ", NO_BREAK)
    return f" (at least {least})" if len(set(levels)) > 1 else f" ({least})"


def meaning(scored: Sequence[Standing]) -> Iterator[Block]:
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
    q, cut = standing.score, f"{NO_BREAK}cut" if standing.line.get("cut_short") else ""
    seconds = f"{standing.line.get('seconds', 0.0):.1f}{cut}"
    name = Link(standing.name, f"#{standing.anchor}")
    size = "" if standing.line.get("parameters") is None else f"{standing.line['parameters']:,}"
    if q is None:
        failed = "interrupted" if standing.line.get("stopped") == "interrupted" else "failed"
        return [
            "",
            name,
            "",
            "",
            "",
            "",
            failed if standing.line.get("problem") else "no likelihood",
            "",
            size,
            seconds,
        ]
    first = standing is best
    mark = "★" if first else "=" if standing.line.get("tied") else ""
    interval, verdict = "" if q["kind"] == "exact" else f" ({ends(q)})", str(q["verdict"])
    behind, bits = standing.line.get("difference"), standing.line.get("bits_per_dimension")
    gap = (
        "best" if first else "" if behind is None else f"{number(behind['value'])} ({ends(behind)})"
    )
    spread = f"{q['se_data']:.3f}" if q.get("se_data") else ""
    per_column = "" if bits is None else number(bits["value"], 4)
    return [
        mark,
        name,
        f"{q['value']:.3f}{interval}",
        spread,
        per_column,
        gap,
        str(q["kind"]),
        verdict,
        size,
        seconds,
    ]


def ends(q: Mapping[str, Any]) -> str:
    return f"{number(q['low'])}{NO_BREAK}to{NO_BREAK}{number(q['high'])}"


def number(value: float | None, digits: int = 3) -> str:
    """One that is not known is infinite, and saved as null."""
    return "?" if value is None else f"{value:.{digits}f}"


def apart(standings: Sequence[Standing]) -> Iterator[Block]:
    """Candidates whose number is no likelihood, by how far their draws are from the rows."""
    if not standings:
        return
    yield Text(
        "These have draws and no likelihood, so no place on the leaderboard. The number is the "
        "squared kernel distance of draws from the scored rows: zero on average where they agree.",
        "lead",
    )
    lines: list[list[str | Link]] = []
    for s in standings:
        q = s.distance or {}
        more = [
            f"{q['details'][name]:.3f}" if name in (q.get("details") or {}) else ""
            for name in ("p_value", "coverage")
        ]
        interval = f"{q['low']:.5f}{NO_BREAK}to{NO_BREAK}{q['high']:.5f}"
        lines.append(
            [
                Link(s.name, f"#{s.anchor}"),
                f"{q['value']:.5f}",
                interval,
                *more,
                f"{s.line.get('seconds', 0.0):.1f}",
            ]
        )
    yield Table(lines, ["candidate", "MMD²", "interval", "p-value", "coverage", "seconds"])
