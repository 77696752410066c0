"""The leaderboard of a comparison as it is saved: its cells and notes, for the terminal and for the
page alike, and the sections of the page.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from partita.core.quantity import Quantity
from partita.experiment.leaderboard import Line, SavedBoard, SavedQuantity
from partita.report import format
from partita.report.blocks import Block, Link, Table, Text, anchor
from partita.report.context import Subject
from partita.report.run import blocks_of
from partita.report.sections.meaning import score_in_words

NO_BREAK = "\N{NO-BREAK SPACE}"
COLUMNS = [
    "",
    "candidate",
    "nats",
    "interval",
    "± rows",
    "bits/dim",
    "behind the best",
    "kind",
    "verdict",
    "parameters",
    "seconds",
]
NAME, NATS, INTERVAL = 1, 2, 3  # of the columns


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
    def difference(self) -> SavedQuantity | None:
        """To the best; None of the best itself."""
        return self.line.get("difference")

    @property
    def link(self) -> Link:
        """To its part of the page."""
        return Link(self.name, f"#{anchor(self.name)}")


def standings(board: SavedBoard) -> list[Standing]:
    """The lines of a saved leaderboard, best first, without their runs."""
    return sorted(map(Standing, board["results"]), key=lambda s: s.order)


def best_of(ranked: Sequence[Standing]) -> Standing | None:
    """The first whose score may be published."""
    return next((s for s in ranked if s.trusted), None)


def table_cells(standing: Standing, ranked: Sequence[Standing]) -> list[str]:
    """A line of the table, a cell for each of the columns."""
    line, q = standing.line, standing.score
    cut = f"{NO_BREAK}cut" if line.get("cut_short") else ""
    size = line.get("parameters")
    last = ["" if size is None else f"{size:,}", f"{line.get('seconds', 0.0):.1f}{cut}"]
    if q is None:
        failed = "interrupted" if line.get("stopped") == "interrupted" else "failed"
        kind = failed if line.get("problem") else "no likelihood"
        return ["", standing.name, *[""] * 5, kind, "", *last]
    mark, gap = "=" if line.get("tied") else "", ""
    behind, bits = standing.difference, line.get("bits_per_dimension")
    if standing is best_of(ranked):
        mark, gap = "★", "best"
    elif behind is not None:
        gap = f"{_number(behind['value'])} ({interval_ends(behind)})"
    return [
        mark,
        standing.name,
        f"{q['value']:.3f}",
        "" if q["kind"] == "exact" else interval_ends(q),
        f"{spread:.3f}" if (spread := q.get("se_data")) else "",  # of one row there is none
        "" if bits is None else _number(bits["value"], 4),
        gap,
        q["kind"],
        q["verdict"],
        *last,
    ]


def interval_ends(q: SavedQuantity, digits: int = 3) -> str:
    """Both ends of an interval on one line; ``?`` where one is not known."""
    return f"{_number(q['low'], digits)}{NO_BREAK}to{NO_BREAK}{_number(q['high'], digits)}"


def _number(value: float | None, digits: int = 3) -> str:
    """A number that is not known is infinite, and saved as null."""
    return "?" if value is None else f"{value:.{digits}f}"


def distance_rows(ranked: Sequence[Standing]) -> list[list[str]]:
    """Candidates whose number is no likelihood: name, distance of their draws from the rows,
    interval, p-value, coverage, seconds.
    """
    lines = []
    for s in ranked:
        if (q := s.distance) is not None:
            details = q.get("details") or {}
            more = [
                f"{value:.3f}" if (value := details.get(name)) is not None else ""
                for name in ("p_value", "coverage")
            ]
            seconds = f"{s.line.get('seconds', 0.0):.1f}"
            lines.append([s.name, f"{q['value']:.5f}", interval_ends(q, 5), *more, seconds])
    return lines


def level(quantities: Iterable[SavedQuantity | None]) -> str:
    """The probability with which intervals cover, the least of all that have one."""
    levels = [
        level
        for q in quantities
        if q and (level := q.get("level")) is not None and q["low"] != q["high"]
    ]
    if not levels:
        return ""
    return f"{'at least ' * (len(set(levels)) > 1)}{format.percent(min(levels))}"


def _in_brackets(quantities: Iterable[SavedQuantity | None]) -> str:
    share = level(quantities).replace(" %", f"{NO_BREAK}%")
    return f" ({share})" if share else ""


def notes(board: SavedBoard, ranked: Sequence[Standing]) -> Iterator[Text]:
    """Ties, numbers that are not to be trusted, bounds that may hide more, fits that were cut
    short, failures, what waits, and what is left out.
    """
    best, scored = best_of(ranked), [s for s in ranked if s.score]
    tied = ", ".join(s.name for s in scored if s.line.get("tied"))
    if best and tied:
        yield Text(
            f"Tied with {best.name}, for the interval of the paired difference covers zero: {tied}."
        )
    if doubtful := ", ".join(s.name for s in scored if not s.trusted):
        yield Text(f"Not to be published, and so below the others: {doubtful}.")
    if bounds := ", ".join(s.name for s in scored if s.score and s.score["kind"] == "lower"):
        yield Text(f"Lower bounds, whose models may be better than shown: {bounds}.")
    if cut := [s.line for s in ranked if s.line.get("cut_short") and s.line.get("steps")]:
        yield Text(format.cut_short(cut))
    if (entropy := board.get("entropy")) is not None:
        yield Text(f"No model scores above {-entropy:.3f} on average: the data's negative entropy.")
    if fitted := format.fitted_models([s.line for s in ranked]):
        yield Text(fitted, "small")
    for s in ranked:
        if problem := s.line.get("problem"):
            yield Text(f"{s.name}: {problem}", "warning")
    if waiting := ", ".join(map(str, board.get("waiting") or [])):
        way = f"Go on with: partita compare --resume {board.get('folder')}"
        yield Text(f"Not yet fitted: {waiting}. {way}", "warning")
    for text in format.reasons_in_short(board.get("left_out") or {}):
        yield Text(text, "small")


def leaderboard(ranked: Sequence[Standing], board: SavedBoard) -> Iterator[Block]:
    """The table, and the notes below it."""
    share = _in_brackets(s.score for s in ranked)
    about = f" An interval{share} in brackets is about computing the number;" if share else ""
    yield Text(
        f"Mean log-likelihood of the same rows, in nats per row; higher is better.{about} ± is the "
        "standard error over the rows.",
        "lead",
    )
    lines = [_linked(s, ranked) for s in ranked if not s.distance]
    shown = [i for i in range(len(COLUMNS)) if i != INTERVAL and any(line[i] for line in lines)]
    head = [COLUMNS[i].replace("± ", f"±{NO_BREAK}") for i in shown]
    yield Table([[line[i] for i in shown] for line in lines], head)
    behind = [s.difference for s in ranked]
    if any(behind):
        yield Text(
            "Behind the best: the mean difference of paired rows, with an "
            f"interval{_in_brackets(behind)} that holds the spread over rows and the computing "
            "error of both.",
            "small",
        )
    yield from notes(board, ranked)
    for text in board.get("warnings") or []:
        yield Text(f"Warning: {text}", "warning")


def _linked(standing: Standing, ranked: Sequence[Standing]) -> list[str | Link]:
    """A line of the page's table, with its interval behind the number."""
    line: list[str | Link] = [*table_cells(standing, ranked)]
    line[NAME] = standing.link
    if line[INTERVAL]:
        line[NATS] = f"{line[NATS]} ({line[INTERVAL]})"
    return line


def kinds_of_scores(scored: Sequence[Standing]) -> Iterator[Block]:
    """The best score in plain words, and what each kind of number is."""
    best = best_of(scored)
    if best is None or best.score is None or best.subject is None:
        return
    yield Text(f"For {best.name}, the best:", "small")
    found = Quantity(best.score["value"], details={**(best.score.get("details") or {})})
    yield from blocks_of(partial(score_in_words, found), best.subject)
    kinds: dict[str, list[str]] = {}
    for s in scored:
        if s.score:
            kinds.setdefault(s.score["kind"], []).append(s.name)
    rows = [
        [kind, ", ".join(names), format.KIND_IN_WORDS.get(kind, "")]
        for kind, names in kinds.items()
    ]
    yield Table(rows, ("kind", "whose", "what it says"))


def without_likelihood(ranked: Sequence[Standing]) -> Iterator[Block]:
    """Candidates whose number is no likelihood, by how far their draws are from the rows."""
    lines = distance_rows(ranked)
    if not lines:
        return
    yield Text(
        "These have draws and no likelihood, so no place on the leaderboard. The number is the "
        "squared kernel distance of draws from the scored rows: zero on average where they agree.",
        "lead",
    )
    links = [s.link for s in ranked if s.distance]
    rows = [[link, *line[1:]] for link, line in zip(links, lines, strict=True)]
    yield Table(rows, ["candidate", "MMD²", "interval", "p-value", "coverage", "seconds"])
