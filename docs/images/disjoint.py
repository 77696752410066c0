"""The figure of theory/divergences.md: two uniform distributions slide apart; Jensen-Shannon stays
at log 2, Wasserstein-1 does not.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch.distributions import Uniform

from partita.divergences import f_divergence
from partita.divergences.transport import line_transport

WIDTH, HEIGHT, MARGIN = 640, 340, 44
FARTHEST, TOP = 3.0, 3.2


def curves() -> dict[str, list[tuple[float, float]]]:
    """(shift, value) of both, for U[0, 1] and U[shift, shift + 1]."""
    g, x = torch.Generator().manual_seed(0), torch.linspace(0, 1, 401, dtype=torch.float64)
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    found: dict[str, list[tuple[float, float]]] = {"jensen-shannon": [], "wasserstein": []}
    for shift in np.linspace(0, FARTHEST, 121):
        p, q = Uniform(*ends), Uniform(*(ends + shift))
        found["jensen-shannon"].append(
            (float(shift), f_divergence("jensen-shannon", p, q, generator=g).value)
        )
        found["wasserstein"].append((float(shift), float(line_transport(x, x + shift))))
    return found


def path(points: list[tuple[float, float]], color: str, width: float) -> str:
    """A curve through points in data units, as SVG."""
    places = " ".join(f"{column(x):.1f},{row(y):.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="{width}"/>'


def label(x: float, y: float, text: str, color: str = "#777", anchor: str = "start") -> str:
    """Words at a place in data units."""
    style = f'fill="{color}" font-family="sans-serif" font-size="13" text-anchor="{anchor}"'
    return f'<text x="{column(x):.1f}" y="{row(y):.1f}" {style}>{text}</text>'


def column(x: float) -> float:
    """Pixels from the left."""
    return MARGIN + x / FARTHEST * (WIDTH - 2 * MARGIN)


def row(y: float) -> float:
    """Pixels from the top."""
    return HEIGHT - MARGIN - y / TOP * (HEIGHT - 2 * MARGIN)


def main() -> None:
    """Write ``disjoint.svg`` beside this file and print what the curves say."""
    found = curves()
    parts = [
        path([(0.0, TOP), (0.0, 0.0), (FARTHEST, 0.0)], "#999", 1),
        path([(1.0, 0.0), (1.0, TOP)], "#ccc", 1),
        path(found["wasserstein"], "#1f6fb4", 2.5),
        path(found["jensen-shannon"], "#d1495b", 2.5),
        label(2.2, 2.45, "Wasserstein-1", "#1f6fb4", "end"),
        label(2.98, 0.82, "Jensen-Shannon, log 2", "#d1495b", "end"),
        label(1.03, 3.05, "from here on the supports are disjoint"),
        label(1.5, -0.3, "shift between U[0, 1] and its copy", anchor="middle"),
        *(label(x, -0.16, f"{x:g}", anchor="middle") for x in (0.0, 1.0, 2.0, 3.0)),
        *(label(-0.03, y, f"{y:g}", anchor="end") for y in (1.0, 2.0, 3.0)),
    ]
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', *parts, "</svg>", ""]
    Path(__file__).with_name("disjoint.svg").write_text("\n".join(lines))
    beyond = [value for shift, value in found["jensen-shannon"] if shift >= 1]
    print(
        "past shift 1 Jensen-Shannon is within "
        f"{max(abs(value - math.log(2)) for value in beyond):.1e} of log 2 = {math.log(2):.4f}"
    )
    far, near = found["wasserstein"][-1][1], found["wasserstein"][40][1]
    print(f"Wasserstein-1 falls from {far:.3f} at shift {FARTHEST:g} to {near:.3f} at shift 1")


if __name__ == "__main__":
    main()
