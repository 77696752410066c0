"""Autoregressive models as families: one named by what they are, and one for each backbone, as
``partita fit hyena FILE.txt``.
"""

from dataclasses import replace
from typing import Any

import torch

from partita.core.checks import check_choice, check_layers
from partita.core.protocols import Model, Objective
from partita.datasets import Sequences
from partita.datasets.open import Reading
from partita.families.base import Family, Setting
from partita.models import Autoregressive, MaskedAutoregressive, MixedAutoregressive
from partita.nets.sequence import MIXERS
from partita.objectives import ExactLikelihood
from partita.tables.encoding import Kind, infer_kind

BACKBONES = ("auto", "masked", *MIXERS)
SUMMARIES = {
    "hyena": "sequences and text by gated long convolutions, exact likelihood",
    "ssm": "sequences and text by state-space models, exact likelihood",
    "attention": "sequences and text by causal attention, exact likelihood",
    "conv": "sequences and text by causal convolutions, exact likelihood",
    "lstm": "sequences and text by long short-term memory, exact likelihood",
}


def auto_masked(n: int, width: int) -> int:
    """Hidden units of a masked network: five per column while there are as many rows, between 32
    and 1000.

    >>> auto_masked(50_000, 784), auto_masked(1438, 64), auto_masked(40, 3)
    (1000, 320, 32)
    """
    return min(1000, max(32, min(5 * width, n)))


def element_of(rows: Any) -> str:
    """What a step holds: tokens where their number is known, zeros and ones, else real numbers."""
    if getattr(rows, "states", None) is not None:
        return "categorical"
    return "binary" if infer_kind(rows) == "binary" else "real"


def _model(
    rows: Any, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Objective]:
    check_choice("autoregressive", "backbone", settings["backbone"], BACKBONES)
    streams, backbone = isinstance(rows, Sequences), settings["backbone"]
    backbone = ("hyena" if streams else "masked") if backbone == "auto" else backbone
    element = element_of(rows)
    common = {"states": getattr(rows, "states", None) or 2, "components": settings["n_components"]}
    if backbone == "masked":
        hidden = (
            auto_masked(len(rows), rows.width)
            if settings["n_hidden"] == "auto"
            else settings["n_hidden"]
        )
        depth = 1 if settings["n_layers"] == "auto" else settings["n_layers"]
        common["widths"] = (hidden,) * check_layers("autoregressive", "n_layers", depth)
        if getattr(rows, "laws", None):
            made = {name: common[name] for name in ("components", "widths")}
            return MixedAutoregressive(rows.laws, **made, generator=generator), ExactLikelihood()
        return MaskedAutoregressive(
            rows.width, element, **common, generator=generator
        ), ExactLikelihood()
    shape = (
        {"length": rows.longest, "size": rows.size}
        if streams
        else {"length": rows.width, "size": 1}
    )
    net = {name: settings[name] for name in ("width", "expand", "dropout", "options")}
    net |= {
        "layers": 4 if settings["n_layers"] == "auto" else settings["n_layers"],
        "backbone": backbone,
        "hidden": 128 if settings["n_hidden"] == "auto" else settings["n_hidden"],
        "positions": not streams,
    }
    return Autoregressive(
        element=element, **shape, **common, **net, generator=generator
    ), ExactLikelihood()


def _kind(rows: Any, settings: dict[str, Any]) -> Kind:
    """Sequences as they are: what scales real ones is part of the model. Tables by what they hold,
    letters of a sequence as categories.
    """
    if isinstance(rows, Sequences):
        return "steps"
    by_column = rows.schema is not None and (rows.schema.by_column or bool(rows.schema.labels))
    if by_column and settings["backbone"] in ("auto", "masked"):
        return "mixed"
    return "category" if rows.labels and rows.schema is None else infer_kind(rows)


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "Autoregressive, tokens": Autoregressive(16, states=4, width=8, layers=1, generator=g),
        "MaskedAutoregressive": MaskedAutoregressive(64, widths=(32,), generator=g),
        "MixedAutoregressive": MixedAutoregressive(("real", "count", 3), widths=(32,), generator=g),
    }


def _nothing(g: torch.Generator) -> dict[str, Model]:
    return {}


def reading_of(settings: dict[str, Any]) -> dict[str, Any]:
    """How the settings say that sequences are read."""
    return Reading(settings["length"], settings["tokens"], settings["encoding"]).as_json()


FAMILY = Family(
    "autoregressive",
    "product of exact conditionals: tables, also of mixed columns, by a masked network, sequences "
    "and text by a causal one",
    {
        "backbone": Setting(
            "auto",
            "masked, hyena, h3, ssm, attention, conv, lstm, or auto: masked for tables, hyena for "
            "sequences",
        ),
        "width": Setting(128, "channels of a sequence network"),
        "n_layers": Setting(
            "auto",
            "hidden layers of a masked network, or blocks of a sequence network; auto is 1 and 4",
        ),
        "expand": Setting(
            4, "hidden units of each block's perceptron, as a multiple of width; 0 leaves it out"
        ),
        "dropout": Setting(
            0.0,
            "share of the numbers in a sequence network that are left out at random while it "
            "learns",
        ),
        "options": Setting(None, 'settings of the mixer as JSON, such as {"order": 3}'),
        "n_hidden": Setting(
            "auto",
            "hidden units of a masked network, and of the prediction of a step of bits or numbers",
        ),
        "n_components": Setting(8, "normals in the mixture of a real value"),
        "length": Setting(256, "steps of a window of text"),
        "tokens": Setting("characters", "characters or bytes, of text"),
        "encoding": Setting("utf-8", "of text"),
    },
    _model,
    _kind,
    _examples,
    reads=reading_of,
    mixed=True,
)


def _named(backbone: str) -> Family:
    settings = {
        **FAMILY.settings,
        "backbone": replace(FAMILY.settings["backbone"], default=backbone),
    }
    return replace(
        FAMILY,
        name=backbone,
        summary=SUMMARIES[backbone],
        settings=settings,
        examples=_nothing,
        mixed=False,
    )


BY_BACKBONE = tuple(map(_named, SUMMARIES))
