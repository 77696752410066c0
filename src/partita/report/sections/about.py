"""Where the run came from: the data, the settings, and how to make it again."""

import json
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from partita.report import images
from partita.report.blocks import Block, Code, Folded, Picture, Table, Text
from partita.report.context import Subject
from partita.report.format import short_number
from partita.tables import Column
from partita.training.history import seconds_of

LISTED = 30  # columns described one by one
PROFILED = 20_000  # rows that the profile is made of
ENCODINGS = {
    "binary": "zeros and ones",
    "spin": "spins",
    "count": "counts",
    "raw": "real",
    "real": "real, standardized; scores are in the table's own units",
    "scaled": "real, on one common scale; scores are in the table's own units",
    "median": "real, cut at the median of each column",
    "signs": "zeros and ones, read as spins",
    "spins": "spins",
    "median-signs": "real, cut at the median of each column",
    "category": "categories",
    "quantile": "real, cut into parts of about equally many rows",
    "steps": "sequences",
    "mixed": "of different sorts; real columns standardized, scores in the table's own units",
}


def data_card(subject: Subject) -> Iterator[Block]:
    """What the model was fitted to."""
    config, data = subject.run.config, subject.data
    if not data:
        yield Text("The run was made in Python and does not say what its data are.")
        return
    yield Table(_facts(subject))
    if subject.dataset is None:
        yield Text(subject.problem, "warning")
        return
    if subject.shape is not None:
        mean, caption = subject.dataset.train.mean().numpy(), "Mean of the rows to learn from"
        limits = (0.0, 1.0) if subject.encoding.kind == "binary" else None
        yield Picture(
            images.png(images.sheet(mean[None], subject.shape, limits=limits)),
            f"{caption}, as an image.",
            caption,
            160,
        )
    elif not subject.sequential:
        profile, numbers = column_profile(subject), ("lowest", "mean", "highest", "deviation")
        middle = (
            ("kind", "holds")
            if subject.mixed
            else ("values", "most frequent")
            if subject.encoding.labels
            else numbers
        )
        head = ("column", *middle, "missing")
        yield Table(profile, head, _profile_caption(subject, len(profile)))
    if (
        config["model"].get("element") == "categorical"
        and subject.alphabet is not None
        and subject.alphabet.symbols
    ):
        yield Code(subject.alphabet.symbols, f"The {subject.alphabet.size} characters of the text")


def _facts(subject: Subject) -> list[list[str]]:
    data, dataset = subject.data, subject.dataset
    rows = [["name", str(data.get("name"))], ["source", str(data.get("source"))]]
    if dataset is not None:
        fitted = (subject.run.config.get("rows") or [len(dataset.train)])[0]
        aside = (
            ""
            if fitted == len(dataset.train)
            else f", of {len(dataset.train)}: the others chose the weights"
        )
        rows += [["rows to learn from", f"{fitted}{aside}"]]
        held_out = (("validate", dataset.valid), ("test", dataset.test))
        rows += [[f"rows to {what}", f"{len(part)}"] for what, part in held_out if part is not None]
    rows += [
        ["steps in a row", f"{subject.model.support.L}"]  # type: ignore[attr-defined]
        if subject.sequential
        else ["columns", f"{subject.model.support.width}"]
    ]
    rows += [["an image of", " x ".join(map(str, subject.shape))]] if subject.shape else []
    rows += [["values", ENCODINGS.get(subject.encoding.kind, subject.encoding.kind)]]
    rows += [["made binary", str(data["binarize"])]] if data.get("binarize") is not None else []
    rows += [["note", dataset.note]] if dataset is not None and dataset.note else []
    return rows


def column_profile(subject: Subject) -> list[list[str]]:
    """Lowest, mean, highest and deviation of the first columns, or their words; and what share is
    missing.
    """
    assert subject.dataset is not None
    rows = subject.dataset.train
    x = (
        rows.take(np.arange(min(PROFILED, len(rows))))
        .tensor(subject.generator(6))
        .numpy()
        .astype(np.float64)[:, :LISTED]
    )
    if subject.mixed:
        return [
            [column.name, *_of_kind(column, values)]
            for column, values in zip(subject.mixed, x.T, strict=False)
        ]
    if subject.encoding.labels:
        return [
            [name, *_words(column, subject.encoding.labels)]
            for name, column in zip(subject.columns, x.T, strict=False)
        ]
    numbers = zip(np.nanmin(x, 0), np.nanmean(x, 0), np.nanmax(x, 0), np.nanstd(x, 0), strict=True)
    missing = np.isnan(x).mean(0)
    return [
        [name, *(short_number(value) for value in four), f"{100 * lost:.1f} %"]
        for name, four, lost in zip(subject.columns, numbers, missing, strict=False)
    ]


def _of_kind(column: Column, x: np.ndarray) -> list[str]:
    """Its kind, its categories or range, and what share is missing."""
    holds = (
        column.in_words()
        if column.levels
        else f"{short_number(np.nanmin(x))} to {short_number(np.nanmax(x))}, mean "
        f"{short_number(float(np.nanmean(x)))}"
    )
    return [column.kind, holds, f"{100 * np.isnan(x).mean():.1f} %"]


def _words(column: np.ndarray, labels: dict[float, str]) -> list[str]:
    """How many there are, and which is the most frequent."""
    values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
    most = float(values[counts.argmax()])
    return [
        f"{len(values)}",
        labels.get(most, f"{most:g}"),
        f"{100 * np.isnan(column).mean():.1f} %",
    ]


def _profile_caption(subject: Subject, listed: int) -> str:
    width = subject.model.support.width
    return "Columns of the rows to learn from" + (
        f": the first {listed} of {width}" if width > listed else ""
    )


def configuration(subject: Subject) -> Iterator[Block]:
    """What was fitted, how, and with which settings."""
    run, config = subject.run, subject.run.config
    parameters = sum(p.numel() for p in run.model.parameters())
    seconds = seconds_of(run.history)
    family = config.get("family") or {}
    yield Table(
        [
            ["model", run.model.title()],
            *([["family", str(family.get("name"))]] if family else []),
            ["parameters", f"{parameters:,}"],
            ["objective", str((config.get("objective") or {}).get("part", "given in Python"))],
            ["stopped", f"{run.stopped} after {run.steps:,} steps"],
            *([["time of the fit", f"{seconds:.1f} seconds"]] if seconds else []),
        ]
    )
    for warning in run.warnings:
        yield Text(f"Warning: {warning}", "warning")
    if family:
        yield Folded("Settings of the family", [Table(_settings(family.get("settings") or {}))])
    yield Folded("Settings of the fit", [Table(_settings(config.get("fit") or {}))])
    yield Folded(
        "Objective and model, as saved",
        [Code(json.dumps({name: config.get(name) for name in ("objective", "model")}, indent=2))],
    )


def _settings(settings: dict[str, Any]) -> list[list[str]]:
    return [[name, "" if value is None else str(value)] for name, value in settings.items()]


def origin(subject: Subject) -> Iterator[Block]:
    """The exact command and versions."""
    config = subject.run.config
    if config.get("command"):
        yield Code(config["command"], "The command")
        yield Text(
            "The same command with the same versions on the same machine gives the same numbers, "
            "bit for bit; "
            "only a fit that is cut short by the clock takes as many steps as it has time for.",
            "small",
        )
    else:
        yield Text("The run was made in Python; its settings are above.")
    versions = [[name, str(value)] for name, value in (config.get("versions") or {}).items()]
    threads = torch.get_num_threads()
    here = f"{platform.machine()} {platform.system()}, {threads} thread{'s' * (threads > 1)}"
    yield Table([*versions, ["seed", str(config.get("seed", ""))], ["this page was made on", here]])


def reproduction(subject: Subject) -> Iterator[Block]:
    """How the run was made, and what to do with it."""
    yield from origin(subject)
    if subject.run.folder is not None:
        name = subject.run.folder.name
        yield Code(
            f"partita evaluate {name}\npartita sample {name} -n 64\npartita report {name}",
            "From the folder that holds the run",
        )
