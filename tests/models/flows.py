"""Flows of every kind in float64, with every parameter away from where it starts."""

from typing import Any

import torch
from torch import Tensor

from partita.models import Flow

FLOWS: dict[str, dict[str, Any]] = {
    "one column, affine": {"visible": 1, "layers": 2},
    "one column, spline": {"visible": 1, "layers": 2, "coupling": "spline"},
    "plane, affine": {"visible": 2, "layers": 4, "widths": (16, 16)},
    "plane, spline": {"visible": 2, "layers": 2, "coupling": "spline", "widths": (16,)},
    "plane, logit": {"visible": 2, "layers": 2, "widths": (16,), "levels": 4.0},
    "plane, conditional": {"visible": 2, "layers": 2, "widths": (16,), "context": 3},
    "five columns, permutations": {
        "visible": 5,
        "layers": 3,
        "widths": (16,),
        "mixing": "permutation",
    },
    "five columns, reversed": {
        "visible": 5,
        "layers": 2,
        "widths": (16,),
        "mixing": "reverse",
        "activation": "silu",
    },
    "six columns, spline": {
        "visible": 6,
        "layers": 3,
        "widths": (16,),
        "coupling": "spline",
        "bins": 4,
    },
    "images": {"visible": 32, "layers": 4, "widths": (8,), "image": (2, 4, 4)},
    "odd images, conditional": {
        "visible": 30,
        "layers": 4,
        "widths": (8,),
        "image": (2, 3, 5),
        "context": 2,
    },
    "images, spline": {
        "visible": 16,
        "layers": 4,
        "widths": (8,),
        "image": (1, 4, 4),
        "coupling": "spline",
        "bins": 4,
    },
}


def make(name: str, generator: torch.Generator, spread: float = 0.1) -> Flow:
    """A flow with every parameter away from where it starts."""
    flow = Flow(**FLOWS[name], generator=generator)
    with torch.no_grad():
        for p in flow.parameters():
            p.add_(spread * torch.randn(p.shape, generator=generator))
    return flow.double()


def rows(flow: Flow, generator: torch.Generator, n: int = 20) -> tuple[Tensor, Tensor | None]:
    context = (
        torch.randn(n, flow.context, generator=generator, dtype=torch.float64)
        if flow.context
        else None
    )
    return flow.draw(n, context=context, generator=generator), context
