"""Dates to days and back: letter for letter, instant for instant, in every format that is read."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from partita.errors import DataError, PartitaWarning
from partita.estimators import MixtureDensity
from partita.tables import read
from partita.tables.copies import convert, write_filled
from partita.tables.dates import DATES, date_pattern, read_text, read_typed, to_arrow, to_text
from partita.tables.files import frame_table
from partita.tables.write import write_columns

CLOCKS = ("", "T%H:%M", " %-H:%M", ", %H:%M:%S", " %H:%M:%S.%3f", "T%H:%M:%S.%6fZ")
ZONES = (" %H:%M:%S+05:30", "T%H:%M:%S-0330", "T%H:%M +01:00")
DAY = 86_400_000_000


def days(n: int, seed: int = 0) -> np.ndarray:
    """Instants of the years 1791 to 2149, to the microsecond; the ends of years among them."""
    g = np.random.default_rng(seed)
    ticks = g.integers(-65_000 * DAY, 65_000 * DAY, n)
    edges = np.array(["1900-02-28", "2000-02-29", "1999-12-31T23:59:59.999999", "1969-12-31"])
    return np.r_[edges.astype("datetime64[us]").astype(int), ticks] / DAY


@pytest.mark.parametrize("clock", [*CLOCKS, *ZONES])
@pytest.mark.parametrize("date", DATES)
def test_what_is_written_is_read_back_letter_for_letter(date: str, clock: str) -> None:
    pattern = date + clock
    written = to_text(pattern, np.r_[days(40), np.nan])
    assert len(set(written[:-1])) > 30 and written[-1] is None
    again = read_text(pattern, pa.array(written, pa.string()))
    assert again is not None and np.isnan(again[-1])
    assert to_text(pattern, again) == written


@pytest.mark.parametrize("date", DATES)
def test_the_pattern_of_a_column_is_found(date: str) -> None:
    """One that writes the same fields; days beyond the twelfth tell their order."""
    for clock in (*CLOCKS, *ZONES):
        written = [word for word in to_text(date + clock, days(60)) if word is not None]
        found = date_pattern(written)
        assert found and to_text(found, days(60)) == written


@pytest.mark.parametrize(
    "words",
    [
        ["2020-05-01", "1999-12-31"],
        ["2020-05-01T10:20:30.123456"],
        ["2020-05-01 10:20:30Z"],
        ["2020-05-01 10:20:30+01:00", "2020-11-01 10:20:30+01:00"],
        ["2020-05-01 10:20:30+02:00", "2020-12-01 10:20:30+01:00"],
        ["3 May 2020", "14 June 1921"],
    ],
)
def test_days_are_those_of_pandas(words: list[str]) -> None:
    known = pd.to_datetime(pd.Series(words), utc=True, format="mixed")
    truth = (known - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    found = read_text(date_pattern(words), pa.array(words))
    assert found is not None
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-12 * 20_000)


@pytest.mark.parametrize(
    "words",
    [
        ["03/04/2020", "05/06/2021"],  # day or month first
        ["2020-02-30"],
        ["2020-13-01"],
        ["2020-05-01 24:00"],
        ["2020-05-01 10:60"],
        ["0000-01-01"],
        ["2020-05-01", "01.05.2020"],  # in two ways
        ["2020-5-1", "2020-05-02"],
        ["14.3.20"],
        ["12:30", "13:00"],
        ["20200501"],
        ["May", "June"],
    ],
)
def test_what_is_no_date_or_can_be_read_in_two_ways_has_no_pattern(words: list[str]) -> None:
    assert date_pattern(words) == ""


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+05:30"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_types_of_arrow_keep_every_instant(unit: str, zone: str | None) -> None:
    kind = pa.timestamp(unit, zone)
    ticks = np.rint(days(2000) * DAY).astype(np.int64)
    ticks = ticks * 1000 if unit == "ns" else ticks // (DAY // int(pa_day(unit)))
    before = pa.chunked_array([pa.array([*ticks.tolist(), None], kind)])
    assert to_arrow(str(kind), read_typed(before)).equals(before.combine_chunks())


def pa_day(unit: str) -> int:
    """Ticks of a day."""
    return {"s": 86_400, "ms": 86_400_000, "us": DAY, "ns": 1000 * DAY}[unit]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_of_arrow_are_whole_days(kind: pa.DataType) -> None:
    before = pa.chunked_array([pa.array(["0001-01-01", "9999-12-31", None]).cast(pa.date32())])
    before = before.cast(kind)
    found = read_typed(before)
    assert found[:2].tolist() == [-719_162, 2_932_896]
    assert to_arrow(str(kind), found).equals(before.combine_chunks())


def test_what_is_drawn_beyond_the_calendar_is_held_at_its_ends() -> None:
    far = np.array([-1e9, 1e9])
    assert to_text("%d.%m.%Y", far) == ["01.01.0001", "31.12.9999"]
    ahead = to_text("%Y-%m-%d %H:%M+05:30", far)
    assert ahead == ["0001-01-01 05:30+05:30", "9999-12-31 23:59+05:30"]
    ends = to_arrow("timestamp[ns]", far).cast(pa.string()).to_pylist()
    assert [end[:4] for end in ends] == ["1677", "2262"]


def visits(n: int = 60) -> pd.DataFrame:
    g = np.random.default_rng(1)
    day = pd.Timestamp("2019-01-01") + pd.to_timedelta(g.integers(0, 900, n), unit="D")
    return pd.DataFrame({"day": day, "town": g.choice(["Ulm", "Bern"], n), "x": g.normal(size=n)})


def test_all_sources_of_dates_agree(tmp_path: Path) -> None:
    """Text, dates and instants of files and frames: the same days, each written as it was."""
    frame = visits()
    frame.to_parquet(tmp_path / "t.parquet")
    text = frame.assign(day=frame["day"].dt.strftime("%d/%m/%Y"))
    text.to_csv(tmp_path / "t.csv", index=False)
    text.to_parquet(tmp_path / "text.parquet")
    sources = [
        *(read(tmp_path / name, words=True) for name in ("t.csv", "t.parquet", "text.parquet")),
        *(frame_table(one, None, "fit") for one in (frame, text, pl.from_pandas(frame))),
    ]
    for found in sources:
        schema = found.schema
        assert schema is not None and schema.columns[0].kind == "date"
        table = found.values if hasattr(found, "values") else found.train  # type: ignore[union-attr]
        np.testing.assert_array_equal(table[:, 0], (frame["day"] - pd.Timestamp(0)).dt.days)
        write_columns(tmp_path / "out.parquet", schema.used, table)
        again = pd.read_parquet(tmp_path / "out.parquet")["day"]
        assert (pd.to_datetime(again) == frame["day"]).all()
    schema = sources[0].schema
    assert schema is not None
    write_columns(tmp_path / "out.csv", schema.used, sources[0].train)  # type: ignore[union-attr]
    assert pd.read_csv(tmp_path / "out.csv")["day"].equals(text["day"])


def test_another_file_is_read_by_the_pattern_of_the_first(tmp_path: Path) -> None:
    frame = visits()
    frame.assign(day=frame["day"].dt.strftime("%d/%m/%Y")).to_csv(tmp_path / "t.csv", index=False)
    schema = read(tmp_path / "t.csv", words=True).schema
    assert schema is not None and schema.columns[0].dtype == "%d/%m/%Y"
    (tmp_path / "few.csv").write_text("day,town,x\n03/04/2020,Ulm,0.5\n,Ulm,1.5\n")
    found = read(tmp_path / "few.csv", words=True, columns=schema).train[:, 0]
    assert found[0] == pd.Timestamp("2020-04-03").toordinal() - 719_163 and np.isnan(found[1])
    for cell, got in (("2020-04-03", "words, such as '2020-04-03'"), ("7", "numbers")):
        (tmp_path / "few.csv").write_text(f"day,town,x\n{cell},Ulm,0.5\n{cell},Ulm,1.5\n")
        with pytest.raises(DataError) as refused:
            read(tmp_path / "few.csv", words=True, columns=schema)
        allowed = "column 'day' must hold dates, as in the fitted table (%d/%m/%Y)"
        assert f"{allowed}; got {got}." in str(refused.value)


def test_gaps_among_dates_are_filled_and_the_rest_is_kept(tmp_path: Path) -> None:
    source = "day,x\n2020-01-05 10:00,1\n,2\n2020-01-07 09:30,4\n"
    (tmp_path / "t.csv").write_text(source)
    found = read(tmp_path / "t.csv", words=True)
    assert found.schema is not None
    filled = found.train.copy()
    filled[1, 0] = filled[0, 0] + 1 / 3
    for name in ("o.csv", "o.parquet"):
        write_filled(tmp_path / "t.csv", tmp_path / name, found.schema, filled)
    assert (tmp_path / "o.csv").read_text() == source.replace("\n,", "\n2020-01-05 18:00,")
    copy = pd.read_parquet(tmp_path / "o.parquet")
    assert copy["day"].tolist() == [
        pd.Timestamp(f"2020-01-0{one}") for one in ("5 10:00", "5 18:00", "7 09:30")
    ]
    convert(tmp_path / "t.csv", tmp_path / "c.parquet", found.schema.used)
    assert pd.read_parquet(tmp_path / "c.parquet")["day"].isna().tolist() == [False, True, False]


def test_dates_that_cannot_be_read_are_left_out_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("day,x\n01/02/2020,0.5\n03/04/2020,1.5\n")
    with pytest.warns(PartitaWarning, match=r"'day' \(dates that can be read in several ways"):
        assert read(tmp_path / "t.csv", words=True).columns == ("x",)
    words = read(tmp_path / "t.csv", columns={"day": "category"}).schema
    assert words is not None and words.columns[0].in_words() == "01/02/2020, 03/04/2020"
    with pytest.raises(DataError, match="'day' must hold dates to be date; got '01/02/2020'"):
        read(tmp_path / "t.csv", columns={"day": "date"})
    (tmp_path / "t.csv").write_text("day,x\n2020-01-31,0.5\n2020-02-29,1.5\n")
    with pytest.raises(DataError, match=r"counts 0, 1, 2, \.\.\. to be count; got '2020-01"):
        read(tmp_path / "t.csv", columns={"day": "count"})
    waits = pd.DataFrame({"wait": pd.to_timedelta([1, 2], unit="h"), "x": [0.5, 1.5]})
    with pytest.warns(PartitaWarning, match=r"'wait' \(times of day or durations\)"):
        assert frame_table(waits, None, "fit").columns == ("x",)


@pytest.mark.parametrize("form", ["typed", "text"])
def test_a_density_of_dates_is_by_the_day_and_draws_are_dates(form: str) -> None:
    """The score is that of the same column as a number of days."""
    frame = visits(200)
    number = frame.assign(day=(frame["day"] - pd.Timestamp(0)).dt.days + 0.0)
    dates = frame.assign(day=frame["day"].dt.strftime("%d.%m.%Y")) if form == "text" else frame
    settings: dict[str, Any] = {"component": "mixed", "random_state": 0}
    model = MixtureDensity(2, **settings).fit(dates)
    plain = MixtureDensity(2, **settings, columns={"day": "real"}).fit(number)
    assert model.score(dates) == pytest.approx(plain.score(number), abs=1e-12)
    drawn = model.sample(50)
    assert drawn["day"].dtype == dates["day"].dtype
    if form == "text":
        assert drawn["day"].str.fullmatch(r"\d\d\.\d\d\.\d{4}").all()
    gaps = dates.assign(day=dates["day"].where(np.arange(200) > 5))
    filled = model.impute(gaps)
    assert filled["day"].notna().all() and filled["day"][6:].equals(dates["day"][6:])
