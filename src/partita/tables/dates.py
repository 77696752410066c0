"""Dates and times of a table: as numbers, days since the first of 1970 in UTC, and back as they
were written.

Text is read by a pattern of strftime's codes (``%-d`` and ``%-m`` without a zero in front, ``%3f``
three digits of a fraction) that every field of a column matches letter for letter, so that what is
read is written back the same. Columns of Arrow's types keep their type, with its unit and zone.

A day is a whole number, a time of the day a fraction of one: times are exact to the second in all
years, and to the microsecond from 1791 to 2149.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

compute: Any = import_module("pyarrow.compute")  # whose functions are made when it is imported
DAY = 86_400_000_000  # microseconds
FIRST, LAST = -719_162 * DAY, 2_932_897 * DAY - 1  # of the years 1 to 9999
NANOSECONDS = 2**63 // 1000 - 1  # microseconds from 1970 that 64 bits hold as nanoseconds
NAMES = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
SHORT = tuple(name[:3] for name in NAMES)
CODES = {  # what each matches, and how it is written
    "%Y": (r"(?P<Y>\d{4})", "{Y:04d}"),
    "%m": (r"(?P<m>\d\d)", "{m:02d}"),
    "%d": (r"(?P<d>\d\d)", "{d:02d}"),
    "%-m": (r"(?P<m>[1-9]\d?)", "{m}"),
    "%-d": (r"(?P<d>[1-9]\d?)", "{d}"),
    "%b": (f"(?P<b>{'|'.join(SHORT)})", "{b}"),
    "%B": (f"(?P<B>{'|'.join(NAMES)})", "{B}"),
    "%H": (r"(?P<H>\d\d)", "{H:02d}"),
    "%-H": (r"(?P<H>\d|[1-9]\d)", "{H}"),
    "%M": (r"(?P<M>\d\d)", "{M:02d}"),
    "%S": (r"(?P<S>\d\d)", "{S:02d}"),
    **{f"%{k}f": (rf"(?P<f>\d{{{k}}})", f"{{f:0{k}d}}") for k in range(1, 7)},
    "%z": (r"(?P<z>Z|[+-]\d\d:?\d\d)", "+00:00"),  # of rows that differ in it
}
CODE = re.compile(r"%-?[1-6]?[a-zA-Z]")
PADDED = (
    *(f"%Y{mark}%m{mark}%d" for mark in "-/."),
    *(f"%d{mark}%m{mark}%Y" for mark in "./-"),
    *(f"%m{mark}%d{mark}%Y" for mark in "/-"),
    *(form.format(month) for form in ("%d {} %Y", "%d-{}-%Y") for month in ("%b", "%B")),
    *(form.format(month) for form in ("{} %d, %Y", "{} %d %Y") for month in ("%b", "%B")),
)
DATES = (*PADDED, *(one.replace("%d", "%-d").replace("%m", "%-m") for one in PADDED))
CLOCK = re.compile(
    r"(?P<gap>T|,? )(?P<hour>\d\d?):\d\d(?P<second>:\d\d(\.(?P<fraction>\d{1,6}))?)?"
    r"(?P<space> ?)(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
LIKE_DATES = re.compile(  # also what cannot be read
    r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?$|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?$"
    rf"|\d{{1,2}}[ -]{MONTH},?[ -]\d{{2,4}}( .*)?$|{MONTH} \d{{1,2}},? \d{{4}}( .*)?$",
    re.IGNORECASE,
)
ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")  # at the end of a pattern
TYPED = re.compile(
    r"timestamp\[(?P<unit>s|ms|us|ns)(, tz=(?P<zone>.+))?\]|date32\[day\]|date64\[ms\]"
)
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}  # microseconds; finer ones are not written


def has_clock(dtype: str) -> bool:
    """Whether dates are written with a time of the day."""
    return "H:" in dtype or dtype.startswith("timestamp")


def patterns_of(text: str) -> list[str]:
    """The patterns by which a date can be read, those with zeros in front first.

    >>> patterns_of("3/4/2020"), patterns_of("3 June 2020 09:30")
    (['%-d/%-m/%Y', '%-m/%-d/%Y'], ['%-d %B %Y %H:%M'])
    """
    heads = ((date, _regex(date).match(text)) for date in DATES)
    return [
        date + clock
        for date, head in heads
        if head is not None
        for clock in _clocks(text[head.end() :])
    ]


def _clocks(text: str) -> Iterator[str]:
    """The patterns of the time that follows a date."""
    if not text:
        yield ""
    if found := CLOCK.fullmatch(text):
        hours = ["%H"] * (len(found["hour"]) == 2) + ["%-H"] * (found["hour"][0] != "0")
        fraction = f".%{len(found['fraction'])}f" if found["fraction"] else ""
        rest = ":%M" + (f":%S{fraction}" if found["second"] else "") + found["space"]
        for hour in hours or ["%-H"]:
            for zone in [found["zone"], "%z"] if found["zone"] else [""]:
                yield f"{found['gap']}{hour}{rest}{zone}"


def date_pattern(words: Sequence[str]) -> str:
    """The pattern of dates, if all of some words are: the first by which all can be read; empty
    where day and month cannot be told apart.

    >>> date_pattern(["03/04/2020"]), date_pattern(["03/04/2020", "14/04/2020"])
    ('', '%d/%m/%Y')
    """
    text = pa.array(words, pa.string())
    found = patterns_of(words[0]) if words else []
    found = [pattern for pattern in found if read_text(pattern, text) is not None]
    months = (pattern.lower().replace("%b", "%m") for pattern in found)
    orders = {pattern.index("d") < pattern.index("m") for pattern in months}
    return found[0] if len(orders) == 1 else ""


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """What text written by a pattern looks like."""
    parts = zip(CODE.split(pattern), [*CODE.findall(pattern), ""], strict=True)
    return re.compile("".join(re.escape(text) + CODES.get(code, ("",))[0] for text, code in parts))


def read_text(pattern: str, text: pa.Array | pa.ChunkedArray) -> np.ndarray | None:
    """Days of text that is written by a pattern, NaN where it is null; None where some is not.

    >>> read_text("%Y-%m-%dT%H:%MZ", pa.array(["1970-01-02T12:00Z", None])).tolist()
    [1.5, nan]
    """
    text = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
    words = text.dictionary_encode()
    found = compute.extract_regex(words.dictionary, f"^{_regex(pattern).pattern}$")
    if found.null_count:
        return None
    parts = {name: found.field(i) for i, name in enumerate(field.name for field in found.type)}
    days = _days({name: part for name, part in parts.items()}, pattern)
    if days is None:
        return None
    place = words.indices.fill_null(len(days)).to_numpy(zero_copy_only=False)
    return np.append(days, np.nan)[place]


def _days(parts: dict[str, pa.Array], pattern: str) -> np.ndarray | None:
    """Days of the parts of dates; None where there is no such day or time."""

    def number(name: str) -> np.ndarray | int:
        return parts[name].cast(pa.int64()).to_numpy() if name in parts else 0

    names = next(((SHORT, NAMES)[name == "B"] for name in "bB" if name in parts), None)
    if names is None:
        month = parts["m"].cast(pa.int64()).to_numpy()
    else:
        words = parts["b" if "b" in parts else "B"]
        month = compute.index_in(words, value_set=pa.array(names)).to_numpy() + 1
    year, day = parts["Y"].cast(pa.int64()).to_numpy(), parts["d"].cast(pa.int64()).to_numpy()
    first = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    length = ((first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")).astype(int)
    hour, minute, second = number("H"), number("M"), number("S")
    possible = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)
    possible &= np.less(hour, 24) & np.less(minute, 60) & np.less(second, 60)
    if not possible.all():
        return None
    whole = first.astype("datetime64[D]").astype(np.int64) + day - 1
    time = (3600 * hour + 60 * minute + second) * 1_000_000
    if code := re.search(r"%([1-6])f", pattern):
        time = time + number("f") * 10 ** (6 - int(code[1]))
    if "z" in parts:
        time = time - np.array([_offset(one) for one in parts["z"].to_pylist()], dtype=np.int64)
    elif zone := ZONE.search(pattern):
        time = time - _offset(zone[1])
    return whole + time / DAY


def _offset(zone: str) -> int:
    """Microseconds that a zone is ahead of UTC.

    >>> _offset("-01:30") / 60_000_000
    -90.0
    """
    if zone == "Z":
        return 0
    minutes = 60 * int(zone[1:3]) + int(zone[-2:])
    return (-1 if zone[0] == "-" else 1) * minutes * 60_000_000


def read_typed(column: pa.ChunkedArray) -> np.ndarray:
    """Days of a column of one of Arrow's types of dates, NaN where it is null."""
    kind, per_day = column.type, 1
    if types.is_timestamp(kind):
        per_day = DAY // UNITS[kind.unit] * (1000 if kind.unit == "ns" else 1)
    elif types.is_date64(kind):
        per_day = DAY // 1000
    plain = column.cast(pa.int32()) if types.is_date32(kind) else column
    ticks = plain.cast(pa.int64()).fill_null(0).to_numpy()
    return np.where(
        column.is_null().to_numpy(), np.nan, ticks // per_day + ticks % per_day / per_day
    )


def arrow_type(dtype: str) -> pa.DataType:
    """The Arrow type of dates, as coarse as their pattern allows.

    >>> arrow_type("%d.%m.%Y"), arrow_type("%Y-%m-%d %H:%M:%S.%3f+01:00")
    (DataType(date32[day]), TimestampType(timestamp[ms, tz=+01:00]))
    """
    if found := TYPED.fullmatch(dtype):
        if found["unit"] is None:
            return pa.date32() if dtype.startswith("date32") else pa.date64()
        return pa.timestamp(found["unit"], found["zone"])
    if not has_clock(dtype):
        return pa.date32()
    code = re.search(r"%([1-6])f", dtype)
    unit = "s" if code is None else "ms" if int(code[1]) <= 3 else "us"
    zone = ZONE.search(dtype)
    utc = "%z" in dtype or (zone is not None and zone[1] == "Z")
    ahead = None if zone is None else f"{zone[1][:3]}:{zone[1][-2:]}"
    return pa.timestamp(unit, "UTC" if utc else ahead)


def _resolution(dtype: str) -> int:
    """Microseconds of the smallest step that dates are written in."""
    if found := TYPED.fullmatch(dtype):
        return DAY if found["unit"] is None else UNITS[found["unit"]]
    if code := re.search(r"%([1-6])f", dtype):
        return 10 ** (6 - int(code[1]))
    return 1_000_000 if "%S" in dtype else 60_000_000 if "%M" in dtype else DAY


def _microseconds(dtype: str, days: np.ndarray) -> np.ndarray:
    """Instants as they are written: rounded to the step of their column, within the years that it
    holds; zero where they are missing.
    """
    days = np.nan_to_num(days, nan=0.0).clip(FIRST / DAY, LAST / DAY)
    whole = np.floor(days)
    exact = whole.astype(np.int64) * DAY + np.rint((days - whole) * DAY).astype(np.int64)
    step = _resolution(dtype)
    rounded = (exact + step // 2) // step * step
    most = min(LAST, NANOSECONDS) if "[ns" in dtype else LAST
    low = max(FIRST, -most) if "[ns" in dtype else FIRST
    return rounded.clip(-(-low // step) * step, most // step * step)


def to_arrow(dtype: str, days: np.ndarray) -> pa.Array:
    """Days as an Arrow array of the type of their column, null where they are NaN."""
    kind, ticks = arrow_type(dtype), _microseconds(dtype, days)
    lost = np.isnan(days)
    if types.is_date32(kind):
        return pa.array((ticks // DAY).astype(np.int32), kind, mask=lost)
    unit = "ms" if types.is_date64(kind) else kind.unit
    ticks = ticks * 1000 if unit == "ns" else ticks // UNITS[unit]
    return pa.array(ticks, pa.int64(), mask=lost).cast(kind)


def to_text(dtype: str, days: np.ndarray) -> list[str | None]:
    """Days as text: by their pattern, else as Arrow writes their type.

    >>> to_text("%-d %b %Y", np.array([0.2, np.nan])), to_text("date32[day]", np.array([1.0]))
    (['1 Jan 1970', None], ['1970-01-02'])
    """
    if "%" not in dtype:
        return to_arrow(dtype, days).cast(pa.string()).to_pylist()
    zone = ZONE.search(dtype)
    ticks = _microseconds(dtype, days) + (_offset(zone[1]) if zone else 0)
    ticks = ticks.clip(FIRST, LAST)
    dates = (ticks // DAY).astype("datetime64[D]").astype(object)
    clocks = (ticks % DAY).tolist()
    code = re.search(r"%([1-6])f", dtype)
    step = 10 ** (6 - int(code[1])) if code else 1
    parts = zip(CODE.split(dtype), [*CODE.findall(dtype), ""], strict=True)
    template = "".join(text + CODES.get(code, ("", ""))[1] for text, code in parts)
    return [
        None
        if lost
        else template.format(
            Y=date.year,
            m=date.month,
            d=date.day,
            b=SHORT[date.month - 1],
            B=NAMES[date.month - 1],
            H=time // 3_600_000_000,
            M=time // 60_000_000 % 60,
            S=time // 1_000_000 % 60,
            f=time % 1_000_000 // step,
        )
        for date, time, lost in zip(dates, clocks, np.isnan(days).tolist(), strict=True)
    ]
