"""What a field of text can stand for: a number, a truth value, a date, nothing, or else a word."""

import re

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
TRUTH = {"true": 1.0, "false": 0.0}
MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?$|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?$"
    rf"|\d{{1,2}}[ -]{MONTH},?[ -]\d{{2,4}}( .*)?$|{MONTH} \d{{1,2}},? \d{{4}}( .*)?$",
    re.IGNORECASE,
)
# 1,234.5 and 12 %; also with the typographic minus sign, and with spaces that do not break
MARKED = re.compile(
    r"[+\-\u2212]?[$€£]?(\d{1,3}([,.' \u00a0\u202f]\d{3})+|\d+)([.,]\d+)?\s?[%€$£]?"
)
# 007 is a name, not a number
WHOLE, PADDED = re.compile(r"[+-]?(0|[1-9]\d*)"), re.compile(r"[+-]?0\d+")
EXACT = 2.0**53  # whole numbers from here on are not all float64


def is_missing(field: str) -> bool:
    """Whether a field stands for no value.

    >>> is_missing(""), is_missing("NaN"), is_missing("0")
    (True, True, False)
    """
    return field.lower() in MISSING


def is_number(field: str) -> bool:
    """Whether a field is a number, or stands for none."""
    try:
        to_number(field)
    except ValueError:
        return False
    return True


def to_number(field: str) -> float:
    """The number in a field; NaN where it is missing."""
    if "_" in field:  # which Python takes for a thousands' mark
        raise ValueError(field)
    return float("nan") if field.lower() in MISSING else float(field)


def is_lossy(field: str) -> bool:
    """Whether a field is a number that cannot be told from others once it is one: with leading
    zeros, or too large to be exact.

    >>> is_lossy("007"), is_lossy("10000000000000000001"), is_lossy("7"), is_lossy("0.5")
    (True, True, False, False)
    """
    return is_number(field) and (
        PADDED.fullmatch(field) is not None or abs(to_number(field)) >= EXACT
    )
