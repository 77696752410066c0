"""Places where nothing can be read or written, and disks that are full: one sentence, and what was
there before stays whole.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.disks import full_disk
from tests.fuzz.cases import cases
from tests.fuzz.places import commands_at_odd_places, without_overrides
from tests.fuzz.vocabulary import FITTED
from tests.fuzz.workshop import carry_out, contents, workshop

WRITERS = {
    "fit": ["--epochs", "1", "--out", "new"],
    "compare": ["--models", "mixture", "--epochs", "1", "--out", "new"],
    "sample": ["-n", "2"],
    "impute": ["--out", "out.csv"],
    "anomalies": ["--out", "out.parquet"],
    "cluster": ["--out", "out.npz"],
    "report": [],
    "evaluate": [],
}


@cases(0.04)
@given(commands_at_odd_places())
@example((["impute", "one", "."], None))
@example((["anomalies", "one", "/"], None))
def test_places(case: tuple[list[str], Callable[[Path], Any] | None]) -> None:
    carry_out(*case, circumstances=without_overrides)


@cases(0.02)
@given(
    st.sampled_from(sorted(WRITERS)),
    st.sampled_from(sorted(FITTED)),
    st.one_of(st.integers(0, 40_000), st.just(0)),
)
def test_full_disks(verb: str, run: str, size: int) -> None:
    """Whatever a command was writing when there was no more room, earlier files are as they
    were.
    """
    family, table = FITTED[run][:2]
    subject = {
        "fit": [family, table],
        "compare": [table],
        "sample": [run],
        "evaluate": [run],
        "report": [run],
    }.get(verb, [run, table])
    before = contents(Path(workshop().name))
    after = carry_out(
        [verb, *subject, *WRITERS[verb]], circumstances=functools.partial(full_disk, size)
    )
    if after:  # the command did not succeed
        assert before.items() <= after.items()


def test_rights_hold_for_root_too(tmp_path: Path) -> None:
    """The circumstances themselves: what nobody may read is not read inside, and is outside by root
    again.
    """
    (tmp_path / "closed").write_text("x")
    (tmp_path / "closed").chmod(0)
    with without_overrides(), pytest.raises(PermissionError):
        (tmp_path / "closed").read_text()
