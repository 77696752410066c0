"""Missing values: cells of held-out rows are hidden, filled in from the others, and compared with
what they were.
"""

from collections.abc import Iterator

import numpy as np

from partita.core import rng
from partita.errors import InputError, Unsupported
from partita.report import images, plots
from partita.report.blocks import Block, Figure, Picture, Table, Text
from partita.report.context import Subject
from partita.report.format import short_number
from partita.tables.encoding import CUT

IMAGES = 10
ROWS = 100
EXAMPLES = 6
SIDE = 640


def imputation(subject: Subject) -> Iterator[Block]:
    """Nothing where the model cannot fill in, or rows are sequences."""
    from partita.experiment.imputation import impute_encoded

    x = subject.some_raw_rows(IMAGES if subject.shape else ROWS)
    if x is None or subject.sequential or subject.encoding.kind in CUT:
        return
    hidden = _lower_half(x, subject.shape) if subject.shape else _one_in_each_row(x, subject)
    shown = np.where(hidden, np.nan, x)
    try:
        filled = impute_encoded(
            subject.model, subject.encoding, shown, "auto", "report", generator=subject.generator(4)
        )
    except (Unsupported, InputError):  # a model that cannot
        return
    blocks = _as_images if subject.shape else _as_table
    yield from blocks(subject, x, hidden, filled)


def _lower_half(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    hidden = np.zeros((len(x), shape[0], x.shape[1] // shape[0]), bool)
    hidden[:, shape[0] // 2 :] = True
    return hidden.reshape(x.shape)


def _one_in_each_row(x: np.ndarray, subject: Subject) -> np.ndarray:
    """One observed cell of every row."""
    u = rng.uniform(x.shape, subject.model.like, subject.generator(5)).double().numpy()
    place = np.where(np.isnan(x), -1.0, u).argmax(1)
    return (np.arange(x.shape[1]) == place[:, None]) & ~np.isnan(x)


def _as_images(
    subject: Subject, x: np.ndarray, hidden: np.ndarray, filled: np.ndarray
) -> Iterator[Block]:
    assert subject.shape is not None
    filled = np.clip(filled, np.nanmin(x), np.nanmax(x))
    strips = [
        ("Rows of the data", x),
        ("The same with the lower half hidden", np.where(hidden, np.nan, x)),
        ("The hidden half filled in by the model", filled),
    ]
    for name, rows in strips:
        sheet = images.png(images.sheet(rows, subject.shape, across=len(rows)))
        yield Picture(sheet, f"{len(rows)} images. {name}.", name, SIDE)


def _as_table(
    subject: Subject, x: np.ndarray, hidden: np.ndarray, filled: np.ndarray
) -> Iterator[Block]:
    truth, guess = x[hidden], filled[hidden]
    columns = np.argwhere(hidden)[:, 1]
    yield Text(
        f"One cell of each of {len(truth)} rows was hidden, and filled in from the others of its "
        "row."
    )
    real = subject.real[columns]
    if not real.all():
        usual = np.array([_mode(x[:, i]) for i in columns])
        right, base = (100 * float((truth == other)[~real].mean()) for other in (guess, usual))
        yield Text(
            f"In columns that are not real ({(~real).sum()} cells) the model finds the true value "
            f"in {right:.0f} %; the most frequent value of each column would be right in "
            f"{base:.0f} %."
        )
    if real.any():
        yield from _scatter(x, truth[real], guess[real], columns[real])
    yield Table(
        _examples(subject, truth, guess, columns),
        ("column", "true value", "filled in"),
        "Some of the hidden cells",
    )


def _scatter(
    x: np.ndarray, truth: np.ndarray, guess: np.ndarray, columns: np.ndarray
) -> Iterator[Block]:
    """Truth against guess, every column in its own standard deviations."""
    mean, deviation = np.nanmean(x, 0)[columns], np.nanstd(x, 0)[columns]
    deviation = np.where(deviation > 0, deviation, 1.0)
    t, g = (truth - mean) / deviation, (guess - mean) / deviation
    error = float(np.sqrt(np.mean((t - g) ** 2)))
    yield Text(
        f"In real columns ({len(t)} cells) the model is off by {error:.2f} standard deviations of "
        "the column, whose mean would be off by about 1."
    )
    low, high = float(min(t.min(), g.min())), float(max(t.max(), g.max()))
    traces = [
        plots.diagonal(low, high),
        plots.points(t, g, "hidden cells", plots.MODEL),
    ]
    layout = plots.titled_axes("true value, in standard deviations", "filled in")
    alt = (
        f"True against filled-in values of {len(t)} hidden cells; root mean square error "
        f"{error:.2f}."
    )
    caption = "Each point is a hidden cell; on the dotted line the guess is right."
    yield Figure(traces, alt, layout, caption)


def _examples(
    subject: Subject, truth: np.ndarray, guess: np.ndarray, columns: np.ndarray
) -> list[list[str]]:
    pairs = zip(columns[:EXAMPLES], truth[:EXAMPLES], guess[:EXAMPLES], strict=True)
    names, words = subject.columns, subject.labels
    return [
        [names[i], *(words[i].get(float(value), short_number(value)) for value in pair)]
        for i, *pair in pairs
    ]


def _mode(column: np.ndarray) -> float:
    values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
    return float(values[counts.argmax()])
