"""Where the run came from: the data, the settings, and how to make it again."""

import json
import platform
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from partita.core.support import Sequence
from partita.report import images
from partita.report.blocks import Block, Code, Folded, Picture, Table, Text
from partita.report.context import Subject
from partita.report.format import short_number
from partita.tables import Column, Rows
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
    if not subject.data:
        yield Text("The run was made in Python and does not say what its data are.")
        return
    yield Table(_facts(subject))
    if subject.dataset is None:
        yield Text(subject.problem, "warning")
        return
    if subject.shape is not None:
        mean, caption = subject.dataset.train.mean().numpy(), "Mean of the rows to learn from"
        limits = (0.0, 1.0) if subject.encoding.kind == "binary" else None
        sheet = images.png(images.sheet(mean[None], subject.shape, limits=limits))
        yield Picture(sheet, f"{caption}, as an image.", caption, 160)
    elif not subject.sequential:
        yield _profile(subject, subject.dataset.train)
    if (alphabet := subject.alphabet) is not None and alphabet.symbols:
        yield Code(alphabet.symbols, f"The {alphabet.size} characters of the text")


def _facts(subject: Subject) -> list[list[str]]:
    data, dataset = subject.data, subject.dataset
    rows = [["name", str(data.get("name"))], ["source", str(data.get("source"))]]
    if dataset is not None:
        total = len(dataset.train)
        fitted = (subject.run.config.get("rows") or [total])[0]
        aside = "" if fitted == total else f", of {total}: the others chose the weights"
        rows.append(["rows to learn from", f"{fitted}{aside}"])
        held_out = (("validate", dataset.valid), ("test", dataset.test))
        rows += [[f"rows to {what}", f"{len(part)}"] for what, part in held_out if part is not None]
    if isinstance(support := subject.model.support, Sequence):
        rows.append(["steps in a row", f"{support.L}"])
    else:
        rows.append(["columns", f"{support.width}"])
    if subject.shape:
        rows.append(["an image of", " x ".join(map(str, subject.shape))])
    rows.append(["values", ENCODINGS.get(subject.encoding.kind, subject.encoding.kind)])
    if data.get("binarize") is not None:
        rows.append(["made binary", str(data["binarize"])])
    if dataset is not None and dataset.note:
        rows.append(["note", dataset.note])
    return rows


def _profile(subject: Subject, rows: Rows) -> Table:
    """The first columns: lowest, mean, highest and deviation, or their categories; and the share
    that is missing.
    """
    some = rows.take(np.arange(min(PROFILED, len(rows)))).tensor(subject.generator(6)).numpy()
    columns = some.astype(np.float64)[:, :LISTED].T
    labels = subject.encoding.labels
    if subject.mixed:
        head = ("kind", "holds")
        middle = [_of_kind(*pair) for pair in zip(subject.mixed, columns, strict=False)]
    elif labels:
        head, middle = ("values", "most frequent"), [_words(x, labels) for x in columns]
    else:
        head, middle = ("lowest", "mean", "highest", "deviation"), [_range(x) for x in columns]
    lines = [
        [name, *cells, f"{100 * np.isnan(x).mean():.1f} %"]
        for name, cells, x in zip(subject.columns, middle, columns, strict=False)
    ]
    caption, width = "Columns of the rows to learn from", subject.model.support.width
    if width > len(lines):
        caption += f": the first {len(lines)} of {width}"
    return Table(lines, ("column", *head, "missing"), caption)


def _range(x: np.ndarray) -> list[str]:
    return [short_number(float(f(x))) for f in (np.nanmin, np.nanmean, np.nanmax, np.nanstd)]


def _of_kind(column: Column, x: np.ndarray) -> list[str]:
    """Its kind, and its categories or range."""
    if column.levels:
        return [column.kind, column.in_words()]
    low, mean, high, _ = _range(x)
    if column.kind == "date":
        low, mean, high = map(
            str, column.words([float(f(x)) for f in (np.nanmin, np.nanmean, np.nanmax)])
        )
    return [column.kind, f"{low} to {high}, mean {mean}"]


def _words(x: np.ndarray, labels: Mapping[float, str]) -> list[str]:
    """How many categories there are, and the most frequent of them."""
    values, counts = np.unique(x[~np.isnan(x)], return_counts=True)
    most = float(values[counts.argmax()])
    return [f"{len(values)}", labels.get(most, f"{most:g}")]


def configuration(subject: Subject) -> Iterator[Block]:
    """What was fitted, how, and with which settings."""
    run, config = subject.run, subject.run.config
    parameters = sum(p.numel() for p in run.model.parameters())
    seconds = seconds_of(run.history)
    family = config.get("family") or {}
    rows = [["model", run.model.title()]]
    if family:
        rows.append(["family", str(family.get("name"))])
    rows += [
        ["parameters", f"{parameters:,}"],
        ["objective", str((config.get("objective") or {}).get("part", "given in Python"))],
        ["stopped", f"{run.stopped} after {run.steps:,} steps"],
    ]
    if seconds:
        rows.append(["time of the fit", f"{seconds:.1f} seconds"])
    yield Table(rows)
    for warning in run.warnings:
        yield Text(f"Warning: {warning}", "warning")
    if family:
        yield Folded("Settings of the family", [Table(_settings(family.get("settings") or {}))])
    yield Folded("Settings of the fit", [Table(_settings(config.get("fit") or {}))])
    as_saved = {name: config.get(name) for name in ("objective", "model")}
    yield Folded("Objective and model, as saved", [Code(json.dumps(as_saved, indent=2))])


def _settings(settings: Mapping[str, object]) -> list[list[str]]:
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
