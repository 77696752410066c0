"""What others may have written is as it should be, or one sentence says why not."""

import json
from pathlib import Path
from types import NoneType

import pytest

from partita.errors import RunError
from partita.runtime import files


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '{"\\uDFFF": 1}', "[" * 201 + "]" * 201, "{", "1" * 5000]
)
def test_texts_that_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(RunError, match="must be JSON; got a damaged file"):
        files.read_json(tmp_path / "a.json")


@pytest.mark.parametrize("value", ["\U0001f600", "\\ud800", [[{"a": []}]], 2**70])
def test_texts_that_are_read(value: object, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert files.read_json(tmp_path / "a.json") == value


def test_a_sealed_object_shows_a_change_through_json() -> None:
    value = {"rate": 0.1, "nan": float("nan"), "of": (1, [2.5, None]), "name": "\U0001f600"}
    read = json.loads(json.dumps(files.sealed(files.sealed(value)), indent=2))
    assert files.unsealed(read)[1] and "checksum" not in files.unsealed(read)[0]
    for change in ({"rate": 0.3}, {"checksum": "0" * 32}, {"more": 1}):
        assert not files.unsealed({**read, **change})[1]
    del read["checksum"]
    assert files.unsealed({**read, "rate": 0.3})[1]  # it is taken out on purpose


def test_what_must_be_whole() -> None:
    shape = {"name": str, "rows": (list, NoneType)}
    files.check_like({}, shape, "a")
    files.check_like({"name": "x", "rows": None}, shape, "a", whole=True)
    with pytest.raises(RunError, match="a: name must be text; got None"):
        files.check_like({"rows": None}, shape, "a", whole=True)


@pytest.mark.parametrize("kind", [int, float])
def test_numbers_that_no_machine_holds(kind: type) -> None:
    files.check_like(2**63, kind, "a")
    with pytest.raises(RunError, match="a must be a"):
        files.check_like(10**400, kind, "a")


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "a" * 300])
def test_names_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"must be a path; got one that cannot be opened \("):
        files.inside(tmp_path, name)
