"""Fits and comparisons to go on with, which somebody else may have begun, and what commands write
into such folders.
"""

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import junk, subjects
from tests.fuzz.audit import scratch
from tests.fuzz.cases import bounded, cases
from tests.fuzz.commands import command, explain
from tests.fuzz.tensors import LAST, MODEL, other_tensors, parts, signed
from tests.pressing import ctrl_c_after

# another number would only take longer
FIXED = {"total", "step", "steps", "epochs", "minutes", "models"}
COMPARED = (
    "comparison.json",
    "leaderboard.json",
    "rows.json",
    "mixture/config.json",
    "mixture/metrics.jsonl",
    "mixture/score.safetensors",
)
FAMILIES = {
    "rbm": ("--guard", "rollback"),
    "mixture": ("--set", "n_components=2"),
    "vae": ("--set", "n_latent=1"),
    "belief": (),
    "dpmm": (),
    "maxent": ("--set", "optimizer=lbfgs"),
    "potts": ("--set", "objective=pcd", "--set", "optimizer=adam"),
    "autoregressive": ("--set", "width=8"),
    "flow": ("--set", "n_layers=2", "--column", "*=real"),
}
INTERRUPTED = 130  # the exit code
TABLE = "a,b,c\n" + "0,1,1\n1,0,1\n1,1,0\n0,0,1\n" * 4


def made(name: str, *words: str, code: int = 0) -> Path:
    """What a command makes of a small table."""
    place = Path(subjects.home().name)
    (place / "binary.csv").write_text(TABLE)
    told = command(
        *words, place / "binary.csv", "--epochs", "3", "--out", place / name, "--no-report"
    )
    assert told.exit_code == code, told.output
    return place / name


@functools.cache
def finished(family: str) -> Path:
    """A run of the command line."""
    return made(f"finished-{family}", "fit", family, *FAMILIES[family])


@functools.cache
def unfinished(family: str) -> Path:
    """The same run, stopped after its first update: what it is taken up with has to serve for more
    of them.
    """
    with ctrl_c_after(1):
        folder = made(f"unfinished-{family}", "fit", family, *FAMILIES[family], code=INTERRUPTED)
    (folder / MODEL).unlink(missing_ok=True)
    return folder


@functools.cache
def comparison() -> Path:
    """A comparison of two families."""
    return made("comparison", "compare", "--models", "mixture,rbm")


@st.composite
def others(draw: st.DrawFn, path: Path) -> bytes:
    """What a file of a run could hold instead: other JSON, or a checkpoint of another structure,
    with other tensors or damaged.
    """
    raw = path.read_bytes()
    if path.suffix == ".jsonl":
        lines = [draw(junk.changed_json(json.loads(line))) for line in raw.splitlines()[:3]]
        return "\n".join(map(junk.as_text, lines)).encode()
    if path.suffix == ".json":
        # a forger would make it fit
        unsealed = {name: value for name, value in json.loads(raw).items() if name != "checksum"}
        return junk.as_text(draw(_changed(unsealed))).encode()
    header, rest = parts(raw)
    what = draw(st.sampled_from(["structure", "structure", "tensor", "tensor", "bytes"]))
    if what != "structure":
        return draw(other_tensors(header, rest) if what == "tensor" else junk.changed_bytes(raw))
    skeleton = json.loads(header["__metadata__"]["partita"])
    skeleton["dict"] = [
        [key, value] for key, value in draw(_changed(dict(skeleton["dict"]))).items()
    ]
    return signed(junk.as_text(skeleton), header, rest)


@st.composite
def _changed(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    """An object with odd places, but for how long it takes."""
    kept = {key: value[key] for key in value if key in FIXED}
    other = draw(junk.changed_config({key: value[key] for key in value if key not in FIXED}))
    return {**(other if isinstance(other, dict) else {}), **kept}


@cases(0.04)
@given(
    st.data(),
    st.sampled_from(sorted(FAMILIES)),
    st.sampled_from((str(LAST), str(LAST), "config.json", "metrics.jsonl")),
)
def test_runs_to_go_on_with(data: st.DataObject, family: str, file: str) -> None:
    go_on("fit", unfinished(family), {file: data.draw(others(unfinished(family) / file))})


@cases(0.02)
@given(
    st.data(),
    st.sampled_from(COMPARED),
    st.sampled_from(["", "mixture/score.safetensors", f"mixture/{MODEL}"]),
)
def test_comparisons_to_go_on_with(data: st.DataObject, file: str, gone: str) -> None:
    """Whatever of it is other than it was, or is gone; or a page about it is made."""
    written = {file: data.draw(others(comparison() / file))}
    go_on(
        data.draw(st.sampled_from(["compare", "report"])),
        comparison(),
        written | ({gone: b""} if gone else {}),
    )


def go_on(verb: str, begun: Path, written: dict[str, bytes]) -> None:
    """A command that takes up what was begun, some of whose files are others; empty ones are
    gone.
    """
    with scratch() as place:
        folder = shutil.copytree(begun, Path(place) / "run")
        for name, raw in written.items():
            (folder / name).write_bytes(raw) if raw else (folder / name).unlink()
        with bounded():
            told = (
                command(verb, folder)
                if verb == "report"
                else command(verb, "--resume", folder, "--no-report", "--quiet")
            )
    explain(told)


@pytest.mark.parametrize(
    "words",
    [["sample", "-n", "2"], ["report"], ["fit", "--no-report", "--quiet", "--resume"]],
    ids=" ".join,
)
def test_links_are_not_written_through(words: list[str], tmp_path: Path) -> None:
    """Files are first written under another name; a link that waits under that name is not
    followed.
    """
    run = shutil.copytree(
        unfinished("rbm") if words[0] == "fit" else finished("rbm"), tmp_path / "run"
    )
    outside = tmp_path / "outside"
    outside.write_text("kept")
    for path in map(
        run.joinpath,
        (
            "report.html",
            "samples-1.npz",
            "samples-1.csv",
            "config.json",
            "metrics.jsonl",
            LAST,
            MODEL,
        ),
    ):
        path.with_name(f".{path.name}.part").symlink_to(outside)
    told = command(*words, run)
    assert told.exit_code == 0 and outside.read_text() == "kept", told.output


def test_records_are_not_appended_to_a_file_elsewhere(tmp_path: Path) -> None:
    run = shutil.copytree(unfinished("rbm"), tmp_path / "run")
    (tmp_path / "outside").write_text("kept")
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(tmp_path / "outside")
    told = command("fit", "--resume", run, "--no-report", "--quiet")
    explain(told)
    assert "leads out of it" in told.stderr and (tmp_path / "outside").read_text() == "kept"
