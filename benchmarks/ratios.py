"""Ratios to peers and to the bare arithmetic, read off the lines that benchmarks show; their marks,
and which of them got worse.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from records import Lines

PEER, ARITHMETIC, OTHER = "a peer", "bare arithmetic", "another yardstick"
# is better
LARGER = ("times_as_fast", "times_faster", "times_faster_than_attention", "to_sklearn_em")
SMALLER = ("ratio", "ratio_to_plain_fft")
BY_KEY = {
    "times_faster_than_attention": ("torch's attention", PEER),
    "to_sklearn_em": ("an EM step of scikit-learn", PEER),
    "ratio_to_plain_fft": ("torch.fft, written plainly", ARITHMETIC),
}
BY_COLUMN = {  # the reference's own time stands beside the ratio
    "six_products": ("six matrix products", ARITHMETIC),
    "two_products": ("two matrix products", ARITHMETIC),
    "bare": ("a bare loop", ARITHMETIC),
    "numpy_checkerboard": ("NumPy arithmetic", ARITHMETIC),
    "scikit_learn": ("scikit-learn", PEER),
    "scipy": ("SciPy", PEER),
    "torchebm": ("torchebm", PEER),
    "import_torch": ("importing torch", OTHER),
    "one_process_ms": ("one process", OTHER),
}
MARK = re.compile(r"(at least|at most) ([-\d.e]+)(?: x (\w+))?")
# by how much a ratio may be worse than the recorded one: they vary by a tenth or so between runs
SLACK = 1.25
STEEPER = 0.2  # by how much an exponent may be larger than the recorded one, beyond their intervals


@dataclass(frozen=True)
class Ratio:
    """One ratio of a benchmark.

    Arguments:
        what, key: The line, and its column.
        against, sort: The reference, and what sort of reference it is.
        mark: What was aimed at, where the line says so in a way that can be held against the ratio.
    """

    what: str
    key: str
    value: float
    against: str
    sort: str
    mark: float | None = None

    @property
    def speed(self) -> float:
        """Times as fast as the reference."""
        return self.value if self.key in LARGER else 1 / self.value

    @property
    def met(self) -> bool | None:
        """None where there is no mark."""
        return (
            None
            if self.mark is None
            else self.value >= self.mark
            if self.key in LARGER
            else self.value <= self.mark
        )


def ratios_of(lines: Lines) -> Iterator[Ratio]:
    """All ratios of a benchmark.

    >>> next(
    ...     ratios_of([{"what": "a", "six_products": 2.0, "ratio": 1.5, "target": "at most 1.35"}])
    ... )
    Ratio(what='a', key='ratio', value=1.5, against='six matrix products', sort='bare arithmetic',
    mark=1.35)
    """
    for line in lines:
        for key in (*LARGER, *SMALLER):
            if isinstance(line.get(key), int | float):
                yield Ratio(
                    line["what"], key, line[key], *_reference(line, key), mark=_mark(line, key)
                )


def _reference(line: dict[str, Any], key: str) -> tuple[str, str]:
    """What a line is held against: named by its column, by the reference's own column, or by the
    words after "against".
    """
    columns = [BY_COLUMN[column] for column in line if column in BY_COLUMN]
    named = re.search(r" against (.+)", line["what"])
    return BY_KEY.get(key) or (columns[0] if columns else (named[1] if named else "", PEER))


def _mark(line: dict[str, Any], key: str) -> float | None:
    """The number aimed at: a ``wanted`` ratio, or a target of plain words that is about this
    ratio.
    """
    if key in BY_KEY:
        # the targets of those lines are about other columns, or stand in a line of their own
        return None
    if isinstance(line.get("wanted"), int | float):
        return line["wanted"]
    said = MARK.fullmatch(str(line.get("target", "")))
    sense = "at least" if key in LARGER else "at most"
    return float(said[2]) if said and said[1] == sense and (said[3] or "") in line["what"] else None


def regressions(
    lines: Lines, recorded: Lines, *, whole: bool = False
) -> dict[tuple[str, str], str]:
    """What is worse than recorded under the same words: a sentence for each line and column.

    A ratio that is no number any more is worse too, and so is one that is not shown any more where
    the ``whole`` benchmark ran.

    >>> regressions([{"what": "a", "ratio": 1.5}], [{"what": "a", "ratio": 1.0}])
    {('a', 'ratio'): 'a: ratio 1.5, recorded 1'}
    """
    now = {(ratio.what, ratio.key): ratio for ratio in ratios_of(lines)}
    said = {(line["what"], key): str(value) for line in lines for key, value in line.items()}
    found = {}
    for then in ratios_of(recorded):
        ratio = now.get(place := (then.what, then.key))
        gone = ratio is None and (whole or place in said)
        if gone or (ratio and then.speed / ratio.speed > SLACK):
            got = f"{ratio.value:.3g}" if ratio else said.get(place, "not shown")
            found[place] = (
                f"{then.what}: {then.key.replace('_', ' ')} {got}, recorded {then.value:.3g}"
            )
    return found | _steeper(lines, {line["what"]: line for line in recorded if "exponent" in line})


def _steeper(lines: Lines, recorded: dict[str, dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Exponents of growth that are above the recorded ones: clearly, and by more than both
    intervals allow.
    """
    found = {}
    for line in lines:
        then = recorded.get(line["what"])
        if (
            "exponent" in line
            and then
            and line["exponent"] - then["exponent"] > STEEPER
            and float(line["low"]) > float(then["high"])
        ):
            found[line["what"], "exponent"] = (
                f"{line['what']}: exponent {line['exponent']:.3g}, recorded {then['exponent']:.3g}"
            )
    return found
