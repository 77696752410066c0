"""Files are whole or not there: on errors, on kills between two moves, and without hard links."""

import os
from pathlib import Path

import pytest

from partita.runtime import files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_text_replaces_another_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    for text in ("one\r\n", "two ✓"):
        files.write_whole(path, text)
        assert path.read_bytes() == text.encode() and names(path.parent) == ["a.txt"]


def test_what_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.write_whole(path, "one")
    with pytest.raises(UnicodeEncodeError), files.replacing(path) as beside:
        beside.write_text("two ✓", encoding="ascii")
    assert path.read_text() == "one" and names(tmp_path) == ["a.txt"]


def test_a_link_that_waits_beside_a_file_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("kept")
    (tmp_path / ".a.txt.part").symlink_to(tmp_path / "outside")
    files.write_whole(tmp_path / "a.txt", "one")
    assert (tmp_path / "outside").read_text() == "kept" and (
        tmp_path / "a.txt"
    ).read_text() == "one"


def test_a_pipe_or_a_device_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="no file to write"):
        files.write_whole(tmp_path / "pipe", "one")
    assert (tmp_path / "pipe").is_fifo() and names(tmp_path) == ["pipe"]


@pytest.mark.parametrize("links", [True, False], ids=["with hard links", "without"])
def test_the_file_before_is_kept_under_another_name(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    for text in ("one", "two", "three"):
        with files.replacing(tmp_path / "last", keep=tmp_path / "before") as beside:
            beside.write_text(text)
    assert (tmp_path / "last").read_text() == "three" and (tmp_path / "before").read_text() == "two"
    assert names(tmp_path) == ["before", "last"]


def test_an_error_of_the_system_names_the_file_to_write(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="No space") as found,
        files.replacing(tmp_path / "a.txt"),
    ):
        raise OSError(28, "No space left on device")
    assert found.value.filename == str(tmp_path / "a.txt")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError) as found, files.replacing(tmp_path / "b.txt"):
        (tmp_path / "file" / "below").read_text()
    assert found.value.filename == str(tmp_path / "file" / "below")
