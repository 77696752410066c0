"""The page of results: ratios at a glance, how cost grows, then every benchmark; ``python
benchmarks/page.py`` makes it anew.

It is made of the same parts as the reports of runs, from ``results.json`` alone.
"""

import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import growth
import records
from partita.report import page, plots
from partita.report.blocks import Block, Figure, Folded, Link, Section, Table, Text, anchor
from ratios import ARITHMETIC, LARGER, OTHER, PEER, SMALLER, Ratio, ratios_of
from records import FOLDER, Lines, Record

PAGE = FOLDER / "results.html"
TITLE = "Benchmarks of partita"
COLORS = {PEER: plots.color(0), ARITHMETIC: plots.color(1), OTHER: plots.color(2)}
FIRST = (*LARGER, *SMALLER, "target", "wanted")  # columns that stand right after the name
MOST_COLUMNS = 6  # of a table with one row; longer ones are turned on their side
LONG = 60  # letters of a cell that is folded away

Records = Mapping[str, Record]


def write(known: Records, path: Path = PAGE) -> Path:
    """Write the page, whole or not at all."""
    return page.write_page(path, TITLE, subtitle(known), sections(known))


def subtitle(known: Records) -> str:
    """When, on what."""
    days = sorted({record.date[:10] for record in known.values() if record.date})
    processors = sorted(
        {
            f"{record.about['processor']}, cores: {record.about['cores']}"
            for record in known.values()
            if record.about
        }
    )
    return ". ".join(
        part
        for part in (" to ".join(days[:: max(1, len(days) - 1)]), "; ".join(processors))
        if part
    )


def sections(known: Records) -> list[Section]:
    """All of the page: benchmarks with ratios come before those of quality."""
    shown = {name: record for name, record in known.items() if record.lines and name != growth.NAME}
    order = sorted(shown, key=lambda name: (not any(ratios_of(shown[name].lines)), name))
    found = [
        Section("At a glance", list(glance(shown))),
        *(
            [Section("How cost grows", list(growth.blocks(known[growth.NAME])))]
            if growth.NAME in known
            else []
        ),
        *(Section(name, list(benchmark(shown[name]))) for name in order),
        Section("Not measured", list(left_out(known))),
        Section("How it was made", list(made(known))),
    ]
    return [section for section in found if section.blocks]


def glance(known: Records) -> Iterator[Block]:
    """All ratios as points, and those that have a mark in a table."""
    found = [(name, ratio) for name, record in known.items() for ratio in ratios_of(record.lines)]
    marked = [(name, ratio) for name, ratio in found if ratio.met is not None]
    if not found:
        yield Text("No ratio is recorded yet.")
        return
    met, benchmarks = sum(bool(ratio.met) for _, ratio in marked), len({name for name, _ in found})
    yield Text(
        f"{len(found)} ratios of {benchmarks} benchmarks, each measured in turn with its reference "
        f"in the same run: absolute times are noise on shared machines. Of {len(marked)} with a "
        f"mark {met} meet it.",
        "lead",
    )
    yield strips(found)
    rows = [
        [
            Link(name, f"#{anchor(name)}"),
            words(ratio),
            bound(ratio),
            "yes" if ratio.met else "no",
            ratio.what,
            ratio.against,
        ]
        for name, ratio in marked
    ]
    if rows:
        yield Table(rows, ["benchmark", "ratio", "mark", "met", "what", "against"])


def words(ratio: Ratio) -> str:
    """A ratio in its own sense, on one line."""
    return f"{ratio.value:.3g} x {'as fast' if ratio.key in LARGER else 'the cost'}".replace(
        " ", "\u00a0"
    )


def bound(ratio: Ratio) -> str:
    """What is aimed at."""
    return f"{'≥' if ratio.key in LARGER else '≤'}\u00a0{ratio.mark:g}"


def strips(found: list[tuple[str, Ratio]]) -> Figure:
    """A row for each benchmark: its ratios on a logarithmic axis, all in the same sense."""
    traces = []
    for sort, color in COLORS.items():
        of_sort = [(name, ratio) for name, ratio in found if ratio.sort == sort]
        hover = [f"{ratio.what}, against {ratio.against}: {words(ratio)}" for _, ratio in of_sort]
        marks = {"size": 9, "color": color, "opacity": 0.75}
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [ratio.speed for _, ratio in of_sort],
                "y": [name for name, _ in of_sort],
                "name": f"against {sort}",
                "marker": marks,
                "text": hover,
                "hoverinfo": "text",
            }
        )
    one = {
        "type": "line",
        "x0": 1,
        "x1": 1,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": plots.DATA, "dash": "dot", "width": 1.5},
    }
    rows = list(dict.fromkeys(name for name, _ in found))
    layout = {
        "xaxis": plots.axis("times as fast as the reference", type="log", dtick="D2"),
        "shapes": [one],
        "yaxis": {"type": "category", "categoryorder": "array", "categoryarray": rows[::-1]},
    }
    slowest, fastest = (end((ratio.speed, name) for name, ratio in found) for end in (min, max))
    alt = (
        f"Ratios of {len(rows)} benchmarks, from {slowest[0]:.2g} ({slowest[1]}) to "
        f"{fastest[0]:.3g} ({fastest[1]}) times as fast."
    )
    caption = "Right of the dotted line partita is the faster one."
    return Figure(
        [trace for trace in traces if trace["x"]], alt, layout, caption, 130 + 26 * len(rows)
    )


def benchmark(record: Record) -> Iterator[Block]:
    """What it is, its tables, what was left out, and how to make it again."""
    if record.title:
        yield Text(record.title.replace("``", ""))
    for _, group in groupby(record.lines, key=lambda line: tuple(line)):
        yield from table(list(group))
    for note in record.notes:
        yield Text(f"Left out: {note}", "caution")
    yield Text(made_by(record), "small")


def made_by(record: Record) -> str:
    """Command, date and seconds, as far as they are known."""
    return ", ".join(
        part
        for part in (
            record.command,
            record.date,
            f"{record.seconds:.0f} s" if record.seconds else "",
        )
        if part
    )


def table(lines: Lines) -> Iterator[Block]:
    """Lines with the same columns: ratios and targets first; what is long is folded away."""
    keys = sorted(
        (key for key in lines[0] if key != "what"),
        key=lambda key: FIRST.index(key) if key in FIRST else len(FIRST),
    )
    long = [
        key
        for key in keys
        if any(isinstance(line[key], str) and len(line[key]) > LONG for line in lines)
    ]
    short = [key for key in keys if key not in long]
    if len(lines) == 1 and len(short) > MOST_COLUMNS:
        yield Table(
            [[key.replace("_", " "), cell(lines[0][key])] for key in short],
            caption=lines[0]["what"],
        )
    else:
        rows = [[line["what"], *(cell(line[key]) for key in short)] for line in lines]
        yield Table(rows, ["", *(key.replace("_", " ") for key in short)])
    for key in long:
        yield Folded(
            key.replace("_", " "), [Table([[line["what"], cell(line[key])] for line in lines])]
        )


def cell(value: Any) -> str:
    """A value with as many digits as a reader wants.

    >>> cell(1.23456), cell(20000), cell(True), cell("exact"), cell("nan"), cell(12345678.9)
    ('1.235', '20,000', 'yes', 'exact', '', '1.235e+07')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:.4g}"
        if isinstance(value, float)
        else ""
        if value == "nan"
        else value
    )


def left_out(known: Records) -> Iterator[Block]:
    """Benchmarks that could not run at all."""
    for name, record in known.items():
        if not record.lines:
            yield Text(" ".join(record.notes) or name)


def made(known: Records) -> Iterator[Block]:
    """Machines with their versions, once each, and the commands."""
    machines = list(
        dict.fromkeys(tuple(record.about.items()) for record in known.values() if record.about)
    )
    for machine in machines:
        names = [name for name, record in known.items() if tuple(record.about.items()) == machine]
        yield Table([*map(list, machine), ["benchmarks", ", ".join(names)]])
    rows = [
        [record.command, record.date, f"{record.seconds:.0f}"]
        for record in known.values()
        if record.command
    ]
    if rows:
        yield Folded("Commands", [Table(rows, ["command", "date", "seconds"])])


if __name__ == "__main__":
    print(write(records.read()))
