"""The rooms of the house as floors, and the four walks through them.

``python docs/images/rooms.py`` writes rooms.svg.
"""

from pathlib import Path
from xml.sax.saxutils import escape

# from the ground up; a room imports only from floors below its own
FLOORS = [
    ["runtime  (and errors)"],
    ["core"],
    [
        "tables",
        "datasets",
        "nets",
        "models",
        "bayes",
        "gradients",
        "divergences",
        "diagnostics",
        "integration",
    ],
    ["objectives", "samplers", "evaluators", "optim", "probes"],
    ["training"],
    ["families"],
    ["experiment"],
    ["estimators"],
    ["report"],
    ["evidence"],
    ["cli"],
]
# the rooms that data enter, one after the other
WALKS = {
    "partita fit rbm digits": (
        "#b5462f",
        ["cli", "experiment", "datasets", "families", "training", "evaluators", "report"],
    ),
    "RBMDensity().fit(X)": (
        "#2f6db5",
        ["estimators", "experiment", "tables", "families", "training", "evaluators"],
    ),
    "partita compare table.csv": (
        "#3c8a4e",
        ["cli", "experiment", "tables", "families", "training", "evaluators", "report"],
    ),
    "partita.evaluate(model, x)": ("#8a5bb0", ["evaluators", "core", "samplers", "models"]),
}
WIDTH, LEFT = 1000, 20
INK, BOX, EDGE = "#37424a", "#eef1f3", "#9aa7b0"


def box(x: float, y: float, wide: float, high: float, label: str, fill: str, edge: str) -> str:
    """A rounded box with its label in the middle."""
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{wide:.0f}" height="{high:.0f}" rx="6" '
        f'fill="{fill}" stroke="{edge}"/><text x="{x + wide / 2:.0f}" y="{y + high / 2 + 5:.0f}" '
        f'text-anchor="middle">{escape(label)}</text>'
    )


def words(x: float, y: float, text: str, color: str, weight: int = 400) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" fill="{color}" font-weight="{weight}">{escape(text)}</text>'
    )


def walk(name: str, color: str, stops: list[str], y: float) -> str:
    """One line: the call, then the rooms in the order in which data enter them."""
    parts, x = [words(LEFT, y + 5, name, color, 600)], LEFT + 236.0
    for stop in stops:
        wide = 7.6 * len(stop) + 16
        arrow = f'<path d="M{x - 14:.0f} {y} h10 m-4 -4 l4 4 l-4 4" fill="none" stroke="{color}"/>'
        parts += [arrow, box(x, y - 13, wide, 26, stop, "none", color)]
        x += wide + 18
    return "".join(parts)


def main() -> None:
    shapes, y = [], 20.0
    for floor in reversed(FLOORS):
        wide = (WIDTH - 2 * LEFT) / len(floor)
        shapes += [
            box(LEFT + i * wide + 3, y, wide - 6, 34, room, BOX, EDGE)
            for i, room in enumerate(floor)
        ]
        y += 44
    shapes.append(words(LEFT + 3, y + 12, "imports point downward only", "#66737c"))
    shapes += [walk(name, *way, y + 50 + 38 * i) for i, (name, way) in enumerate(WALKS.items())]
    Path(__file__).with_name("rooms.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 195:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="14" fill="{INK}">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(shapes)}</svg>\n'
    )


if __name__ == "__main__":
    main()
