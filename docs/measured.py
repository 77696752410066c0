"""The page of recorded benchmarks, made from ``benchmarks/results.json`` while the site is built;
figures are in the page's own ink.
"""

import math
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PLACE = "benchmarks/measured.md"
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 420, 56, 14, 10, 44
LETTER = 6.2  # pixels across a letter of a label
INTRODUCTION = """# Benchmarks as measured

Made from `benchmarks/results.json`, which `make bench` writes (`make bench QUICK=1` for the short
ones only); `make bench --check` runs them again and fails where a ratio is worse than the recorded
one by more than a quarter. What the numbers mean, and what was seen before, is told in
[Benchmarks](../benchmarks.md).
"""


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """One page more."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PLACE, content=page(ROOT / "benchmarks" / "results.json")))
    return files


def page(results: Path) -> str:
    """The sections of the page of results, as Markdown."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from page import sections, subtitle  # type: ignore[import-not-found]
    from records import read  # type: ignore[import-not-found]

    known = read(results)
    parts = [
        f"## {part.title} {{ #{part.anchor} }}\n\n" + "\n\n".join(map(shown, part.blocks))
        for part in sections(known)
    ]
    return (
        "\n\n".join(
            [INTRODUCTION, subtitle(known), *(parts if known else ["Nothing is recorded yet."])]
        )
        + "\n"
    )


def shown(block: Any) -> str:
    """A block of a report as HTML that Markdown leaves alone."""
    if block.kind == "table":
        return table(block)
    if block.kind == "figure":
        return figure(block)
    if block.kind == "beside":
        return f'<div class="figures">{"".join(map(shown, block.blocks))}</div>'
    if block.kind == "folded":
        inner = "".join(map(shown, block.blocks))
        return f"<details><summary>{escape(block.title)}</summary>{inner}</details>"
    text = escape(block.text, quote=False)
    return f"<p><small>{text}</small></p>" if block.tone == "small" else f"<p>{text}</p>"


def table(block: Any) -> str:
    """Rows and their head."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in block.head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{linked(cell)}</td>" for cell in row) + "</tr>" for row in block.rows
    )
    caption = f"<p>{escape(block.caption)}</p>" if block.caption else ""
    header = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"{caption}<table>{header}<tbody>{rows}</tbody></table>"


def linked(cell: Any) -> str:
    """Text, or text that leads somewhere."""
    return (
        escape(cell)
        if isinstance(cell, str)
        else f'<a href="{escape(cell.href)}">{escape(cell.text)}</a>'
    )


def figure(block: Any) -> str:
    """Points and lines over a logarithmic axis as SVG; colors and names below."""
    names = {trace["name"]: trace["marker"]["color"] for trace in block.traces if trace.get("name")}
    key = " ".join(
        f'<span style="color:{color}">●</span> {escape(name)}' for name, color in names.items()
    )
    return f"<figure>{svg(block)}<figcaption>{key}<br>{escape(block.caption)}</figcaption></figure>"


def svg(block: Any) -> str:
    """The drawing alone."""
    across, up = block.layout["xaxis"], block.layout["yaxis"]
    rows, shapes = up.get("categoryarray"), block.layout.get("shapes", [])
    left = LEFT if rows is None else int(LETTER * max(map(len, rows))) + 12
    xs, ys = ([value for trace in block.traces for value in trace[side]] for side in "xy")
    xs += [shape["x0"] for shape in shapes]
    height = block.height
    x = scale(xs, left, WIDTH - RIGHT)
    y = (
        {
            name: height - BOTTOM - (i + 0.5) * (height - BOTTOM - TOP) / len(rows)
            for i, name in enumerate(rows)
        }.__getitem__
        if rows
        else (scale(ys, height - BOTTOM, TOP))
    )
    below, end = height - BOTTOM, WIDTH - RIGHT
    parts = [
        line(x(at), TOP, x(at), below) + label(x(at), below + 16, short(at))
        for at in ticks(xs, across.get("tickvals"))
    ]
    parts += [
        line(left, y(at), end, y(at)) + label(left - 6, y(at) + 4, at if rows else short(at), "end")
        for at in rows or ticks(ys)
    ]
    parts += [
        line(x(shape["x0"]), TOP, x(shape["x0"]), below, ' stroke-dasharray="4"')
        for shape in shapes
    ]
    parts += [drawn(trace, x, y) for trace in block.traces]
    parts += [label((left + WIDTH - RIGHT) / 2, height - 8, across["title"]["text"])]
    parts += [] if rows else [label(LEFT - 6, TOP + 2, up["title"]["text"], "end")]
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(block.alt)}" '
        f'font-size="12">{"".join(parts)}</svg>'
    )


def scale(values: Sequence[float], start: float, end: float) -> Any:
    """From a value to its place in pixels, by logarithms, with a little room at both ends."""
    low, high = math.log(min(values)), math.log(max(values))
    low, high = low - 0.05 * (high - low or 1), high + 0.05 * (high - low or 1)
    return lambda value: start + (math.log(value) - low) / (high - low) * (end - start)


def ticks(values: Sequence[float], given: Sequence[float] | None = None) -> list[float]:
    """Round numbers within the values: 1, 2 and 5 of every ten where there is room."""
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [
            digit * 10.0**power
            for power in decades
            for digit in digits
            if low * 0.99 <= digit * 10.0**power <= high * 1.01
        ]
        if len(found) <= 7:
            break
    return list(given or found)


def short(value: float) -> str:
    """A number in few letters."""
    return (
        f"{value / 1e6:g}M"
        if value >= 1e6
        else f"{value / 1e3:.3g}k"
        if value >= 10_000
        else f"{value:g}"
    )


def line(x0: float, y0: float, x1: float, y1: float, more: str = "") -> str:
    """A thin line in the page's ink."""
    faint = "" if more else ' stroke-opacity="0.15"'
    return (
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" '
        f'stroke="currentColor"{faint}{more}/>'
    )


def label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    """Words in the page's ink."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'fill="currentColor">{escape(text)}</text>'
    )


def drawn(trace: dict[str, Any], x: Any, y: Any) -> str:
    """Points, and a line through them where the trace has one."""
    places = [(x(a), y(b)) for a, b in zip(trace["x"], trace["y"], strict=True)]
    color = trace["marker"]["color"]
    dots = "".join(
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.2" fill="{color}" fill-opacity="0.8"/>'
        for a, b in places
    )
    dashes = ' stroke-dasharray="2 4"' if trace.get("line", {}).get("dash") else ""
    through = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    path = f'<polyline points="{through}" fill="none" stroke="{color}" stroke-width="1.6"{dashes}/>'
    return ("" if trace["mode"] == "markers" else path) + ("" if trace["mode"] == "lines" else dots)
