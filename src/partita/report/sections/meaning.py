"""What the score means, in plain words: how likely a row is, what was gained on knowing nothing,
and which error is which.
"""

import math
from collections.abc import Iterator

from partita.core.quantity import Quantity
from partita.report import format
from partita.report.baseline import independent_columns
from partita.report.blocks import Block, Text
from partita.report.context import Subject

MOST_TO_COUNT = 14.0  # nats: a factor of a million
FARTHEST = 700.0  # nats whose exponential is a number
COLUMNS_ALONE = "columns that are independent, each with its own distribution,"
STEPS_ALONE = "steps that are independent, each with the frequencies of all,"


def score_meaning(subject: Subject) -> Iterator[Block]:
    """Nothing where there is no score."""
    q = subject.score
    if q is None:
        return
    if q.kind == "none":
        yield Text(_distance(q, subject), "lead")
    else:
        yield from score_in_words(q, subject)
        yield Text(format.meaning(q))
    yield Text(f"Verdict {format.verdict(q)}.")
    if q.se_data:
        both = (
            "Two errors are kept apart. The interval is about computing this number on these rows. "
        )
        yield Text(
            f"{'' if q.kind == 'exact' else both}The ± is about the rows: another set of as many "
            "would move the number by about that much."
        )


def score_in_words(q: Quantity, subject: Subject) -> Iterator[Block]:
    """How likely a row is, and what was gained on knowing nothing."""
    yield Text(_mass(q, subject) if subject.discrete else _density(q, subject), "lead")
    yield from _gain(q, subject)


def _mass(q: Quantity, subject: Subject) -> str:
    if subject.sequential:
        return (
            f"On average the model gives a {subject.split} sequence a log-probability of "
            f"{q.value:.2f} nats.{_each_step(q)}"
        )
    bits, among = subject.model.support.bits, ""
    if math.isfinite(bits) and bits > 12:
        among = f" among {format.power(2, bits)} possible rows"
    return (
        f"On average the model gives a {subject.split} row a log-probability of {q.value:.2f} "
        f"nats: a typical row has a chance of {format.one_in(min(q.value, 0.0))}{among}."
    )


def _each_step(q: Quantity) -> str:
    step = q.details.get("per_step")
    if step is None:
        return ""
    choices = math.exp(min(-step, FARTHEST))
    return (
        f" That is {step:.3f} nats for each step: as if it chose, at every step, among "
        f"{choices:.2f} continuations that are equally likely."
    )


def _density(q: Quantity, subject: Subject) -> str:
    return (
        f"On average the model gives a {subject.split} row a log-density of {q.value:.2f} nats in "
        "the units of the table. A density is no probability and may be above zero; what counts "
        "is the difference between models on the same table."
    )


def _distance(q: Quantity, subject: Subject) -> str:
    p = q.details.get("p_value")
    tail = ""
    if p is not None:
        alike = " Were draws and rows alike, a value this large would come up with probability"
        tail = f"{alike} {p:.3g}."
    return (
        f"This model has no likelihood: it can only draw. The number, {q.value:.4f}, compares its "
        f"draws with {subject.split} rows; it is zero on average where the two are alike, and says "
        f"nothing about the probability of a row.{tail}"
    )


def _gain(q: Quantity, subject: Subject) -> Iterator[Block]:
    """What the model gains over independent columns, and the highest possible score where that is
    known.
    """
    base = independent_columns(subject)
    if base is not None:
        gain, alone = q.value - base, STEPS_ALONE if subject.sequential else COLUMNS_ALONE
        gains, more = ("gains", "more") if gain > 0 else ("loses", "less")
        likely = ""
        if abs(gain) < MOST_TO_COUNT:
            times = math.exp(abs(gain))
            count = f"{times:,.0f}" if times >= 100 else f"{times:.3g}"
            likely = f": it finds a typical row {count} times {more} likely"
        yield Text(
            f"For comparison, {alone} would score {base:.2f} nats. The model {gains} "
            f"{abs(gain):.2f} nats per row on that{likely}."
        )
    entropy = None if subject.dataset is None else subject.dataset.entropy
    if entropy is not None:
        yield Text(
            f"No model scores above {-entropy:.3f} nats on average: the negative entropy of the "
            "distribution behind these data."
        )
