"""Autoregressive models as families: one named by what they are, and one for each backbone, as
``partita fit hyena FILE.txt``.
"""

from dataclasses import replace
from typing import cast

import torch

from partita.core.arguments import check_layers
from partita.core.protocols import Model, Settings
from partita.datasets import Sequences
from partita.datasets.open import Reading
from partita.families.base import FAMILIES, Family, Made, Setting
from partita.models import Autoregressive, MaskedAutoregressive, MixedAutoregressive
from partita.nets.sequence import MIXERS
from partita.objectives import ExactLikelihood
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind


def auto_masked(n: int, width: int) -> int:
    """Hidden units of a masked network: five per column while there are as many rows, between 32
    and 1000.

    >>> auto_masked(50_000, 784), auto_masked(1438, 64), auto_masked(40, 3)
    (1000, 320, 32)
    """
    return min(1000, max(32, min(5 * width, n)))


def element_of(rows: Rows | Sequences) -> str:
    """What a step holds: tokens where their number is known, zeros and ones, else real numbers."""
    if rows.states is not None:
        return "categorical"
    kind = infer_kind(cast("Rows", rows))  # which sequences are read like
    return "binary" if kind == "binary" else "real"


def _autoregressive(rows: Rows | Sequences, settings: Settings, generator: torch.Generator) -> Made:
    backbone, streams = settings["backbone"], isinstance(rows, Sequences)
    if backbone == "auto":
        backbone = "hyena" if streams else "masked"
    if backbone == "masked":
        return _masked(rows, settings, generator), ExactLikelihood()
    layers, hidden = settings["n_layers"], settings["n_hidden"]
    model = Autoregressive(
        element=element_of(rows),
        length=rows.longest if isinstance(rows, Sequences) else rows.width,
        size=rows.size if isinstance(rows, Sequences) else 1,
        states=rows.states or 2,
        components=settings["n_components"],
        **{name: settings[name] for name in ("width", "expand", "dropout", "options")},
        layers=4 if layers == "auto" else layers,
        backbone=backbone,
        hidden=128 if hidden == "auto" else hidden,
        positions=not streams,
        generator=generator,
    )
    return model, ExactLikelihood()


def _masked(rows: Rows | Sequences, settings: Settings, generator: torch.Generator) -> Model:
    layers, hidden = settings["n_layers"], settings["n_hidden"]
    hidden = auto_masked(len(rows), rows.width) if hidden == "auto" else hidden
    depth = check_layers("autoregressive", "n_layers", 1 if layers == "auto" else layers)
    sizes: Settings = {"components": settings["n_components"], "widths": (hidden,) * depth}
    if isinstance(rows, Rows) and rows.laws:
        return MixedAutoregressive(rows.laws, **sizes, generator=generator)
    return MaskedAutoregressive(
        rows.width, element_of(rows), states=rows.states or 2, **sizes, generator=generator
    )


def _kind(rows: Rows | Sequences, settings: Settings) -> Kind:
    """Sequences as they are: what scales real ones is part of the model. Tables by what they hold,
    letters of a sequence as categories.
    """
    if isinstance(rows, Sequences):
        return "steps"
    schema = rows.schema
    if schema is None:
        return "category" if rows.labels else infer_kind(rows)
    by_column = schema.by_column or bool(schema.labels)
    return "mixed" if by_column and settings["backbone"] in ("auto", "masked") else infer_kind(rows)


def reading_of(settings: Settings) -> Settings:
    """How the settings say that sequences are read."""
    return Reading(settings["length"], settings["tokens"], settings["encoding"]).as_json()


FAMILY = FAMILIES.register(
    Family(
        "autoregressive",
        "product of exact conditionals: tables, also of mixed columns, by a masked network, "
        "sequences and text by a causal one",
        {
            "backbone": Setting(
                "auto",
                "masked, hyena, h3, ssm, attention, conv, lstm, or auto: masked for tables, hyena "
                "for sequences",
                ("auto", "masked", *MIXERS),
            ),
            "width": Setting(128, "channels of a sequence network"),
            "n_layers": Setting(
                "auto",
                "hidden layers of a masked network, or blocks of a sequence network; auto is 1 and "
                "4",
            ),
            "expand": Setting(
                4,
                "hidden units of each block's perceptron, as a multiple of width; 0 leaves it out",
            ),
            "dropout": Setting(
                0.0,
                "share of the numbers in a sequence network that are left out at random while it "
                "learns",
            ),
            "options": Setting(None, 'settings of the mixer as JSON, such as {"order": 3}'),
            "n_hidden": Setting(
                "auto",
                "hidden units of a masked network, and of the prediction of a step of bits or "
                "numbers",
            ),
            "n_components": Setting(8, "normals in the mixture of a real value"),
            "length": Setting(256, "steps of a window of text"),
            "tokens": Setting("characters", "characters or bytes, of text"),
            "encoding": Setting("utf-8", "of text"),
        },
        _autoregressive,
        _kind,
        reads=reading_of,
        mixed=True,
    )
)


def _by_backbone(name: str, summary: str) -> Family:
    """The family of sequences by one network."""
    chosen = {"backbone": replace(FAMILY.settings["backbone"], default=name)}
    settings = {**FAMILY.settings, **chosen}
    return replace(FAMILY, name=name, summary=summary, settings=settings, mixed=False)


FAMILIES.register(
    _by_backbone("hyena", "sequences and text by gated long convolutions, exact likelihood")
)
FAMILIES.register(_by_backbone("ssm", "sequences and text by state-space models, exact likelihood"))
FAMILIES.register(
    _by_backbone("attention", "sequences and text by causal attention, exact likelihood")
)
FAMILIES.register(
    _by_backbone("conv", "sequences and text by causal convolutions, exact likelihood")
)
FAMILIES.register(
    _by_backbone("lstm", "sequences and text by long short-term memory, exact likelihood")
)
