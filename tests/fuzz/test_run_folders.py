"""Folders of runs that somebody else may have made: nothing is executed, no path leads outside, no
size is believed, and what is damaged is said so by an error of partita's.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import junk, subjects
from tests.fuzz.audit import nothing_but, scratch
from tests.fuzz.cases import bounded, cases, only_named_errors
from tests.fuzz.tensors import MODEL, joined, other_tensors, parts, signed

import partita
from partita import estimators
from partita.errors import PartitaError, RunError, TooLarge
from partita.experiment.saved import open_run
from partita.report.folder import write_report

KINDS = ("link", "loop", "pipe", "folder")
names = st.sampled_from(subjects.NAMES)


def use(folder: Path, name: str) -> None:
    """All that a run's folder is opened for."""
    x = subjects.rows(name)[0]
    with nothing_but(folder):
        with only_named_errors():
            run = partita.load(folder)
            partita.sample(run.model, 2, burn_in=2, generator=torch.Generator())
        with only_named_errors():
            estimator = estimators.load(folder)
            estimator.predict(x) if hasattr(estimator, "predict") else estimator.sample(2)
        with only_named_errors():
            opened = open_run(folder)
            opened.encoding.decode(opened.encoding.encode(x))


@st.composite
def damages(draw: st.DrawFn, name: str) -> tuple[str, dict[str, bytes]]:
    """A file of a run's folder, changed: its JSON, its tensors' header, its structure, or its
    bytes.
    """
    folder = subjects.saved(name)
    raw = (folder / MODEL).read_bytes()
    header, rest = parts(raw)
    often = ["config"] * 3 + ["structure", "tensor"] * 2
    what = draw(st.sampled_from([*often, "model", "header", "bytes", "metrics"]))
    if what == "config":
        config = draw(junk.changed_config(json.loads((folder / "config.json").read_text())))
        return name, {"config.json": junk.as_text(config).encode()}
    if what == "model":
        config = json.loads((folder / "config.json").read_text())
        config["model"] = draw(junk.changed_json(config["model"]))
        return name, {"config.json": junk.as_text(config).encode()}
    if what == "header":
        return name, {str(MODEL): joined(draw(junk.changed_json(header)), rest)}
    if what == "structure":
        skeleton = draw(junk.changed_json(json.loads(header["__metadata__"]["partita"])))
        return name, {str(MODEL): signed(junk.as_text(skeleton), header, rest)}
    if what == "tensor":
        return name, {str(MODEL): draw(other_tensors(header, rest))}
    if what == "metrics":
        lines = [
            junk.as_text(draw(junk.changed_json({"step": 1, "loss": 0.5, "validation": 1.0})))
            for _ in range(3)
        ]
        return name, {"metrics.jsonl": draw(junk.changed_bytes("\n".join(lines).encode()))}
    file = draw(st.sampled_from(["config.json", str(MODEL)]))
    return name, {file: draw(junk.changed_bytes((folder / file).read_bytes()))}


@pytest.fixture(scope="module", autouse=True)
def _everything_was_imported() -> None:
    """Each estimator is loaded and used once, so that what the cases open is only what folders make
    them open.
    """
    for name in subjects.NAMES:
        use(subjects.saved(name), name)


@cases(0.11)
@given(names.flatmap(damages))
def test_damaged_folders(case: tuple[str, dict[str, bytes]]) -> None:
    name, changed = case
    with scratch() as place:
        folder = shutil.copytree(subjects.saved(name), Path(place) / "run")
        for file, raw in changed.items():
            (folder / file).write_bytes(raw)
        use(folder, name)


@cases(0.02)
@given(
    names,
    st.sampled_from(["config.json", str(MODEL), "checkpoints", "metrics.jsonl"]),
    st.sampled_from(KINDS),
)
def test_files_that_are_none(name: str, file: str, what: str) -> None:
    """Links to another run's files, links without end, pipes that nobody writes to, folders in
    place of files.
    """
    with scratch() as place:
        folder = shutil.copytree(subjects.saved(name), Path(place) / "run")
        other = shutil.copytree(subjects.saved(name), Path(place) / "other")
        path = folder / file
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if what == "link":
            path.symlink_to(other / file)
        elif what == "loop":
            path.symlink_to(path)
        else:
            os.mkfifo(path) if what == "pipe" else path.mkdir()
        with bounded(), pytest.raises(RunError):
            partita.load(folder)
        use(folder, name)


@cases(0.02)
@given(names, st.sampled_from([10**7, 10**9, 10**12, 10**18]), st.data())
def test_sizes_that_nothing_accounts_for(name: str, size: int, data: st.DataObject) -> None:
    """Every whole number of a model's settings, made gigantic, is refused before memory is asked
    for.
    """
    config = json.loads((subjects.saved(name) / "config.json").read_text())
    found = [(c, k) for c, k in junk.places(config["model"]) if type(c[k]) is int]
    if not found:
        return
    container, key = found[data.draw(st.integers(0, len(found) - 1))]
    container[key] = size
    with scratch() as place:
        folder = shutil.copytree(subjects.saved(name), Path(place) / "run")
        (folder / "config.json").write_text(json.dumps(config))
        with bounded(), pytest.raises((RunError, TooLarge)):
            partita.load(folder)


@cases(0.02)
@given(st.data())
def test_damaged_leaderboards(data: st.DataObject) -> None:
    """A comparison's page is written, or one sentence says why not; runs that its lines name are
    looked for beside it alone.
    """
    q = {
        "value": -1.5,
        "low": -2.0,
        "high": -1.0,
        "kind": "estimate",
        "verdict": "tight",
        "se_data": 0.1,
        "details": {"p_value": 0.5},
    }
    lines = [
        {
            "name": "rbm",
            "log_likelihood": q,
            "seconds": 1.0,
            "problem": None,
            "parameters": 3,
            "tied": False,
            "difference": q,
        },
        {
            "name": "../other",
            "log_likelihood": {**q, "kind": "none"},
            "seconds": 1.0,
            "problem": None,
            "run": "/etc",
        },
    ]
    board = data.draw(
        junk.changed_json({"title": "t", "folder": "f", "results": lines, "left_out": {"x": "y"}})
    )
    with scratch() as place:
        folder = Path(place) / "comparison"
        folder.mkdir()
        (folder / "leaderboard.json").write_text(junk.as_text(board))
        with nothing_but(folder), only_named_errors():
            write_report(folder)


def test_a_name_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    shutil.copytree(subjects.saved("RBMDensity"), tmp_path / "outside")
    folder = tmp_path / "comparison"
    folder.mkdir()
    line = {"name": "../outside", "log_likelihood": None, "seconds": 0.0, "problem": "none"}
    (folder / "leaderboard.json").write_text(
        json.dumps({"title": "t", "results": [line], "left_out": {}})
    )
    with pytest.raises(PartitaError, match="leads out of it"):
        write_report(folder)


def test_the_witness_sees(tmp_path: Path) -> None:
    """The oracle itself: a file outside, and a pickle, are noticed."""
    import pickle

    (tmp_path / "outside").write_bytes(pickle.dumps(np.float64(1)))
    (tmp_path / "run").mkdir()
    with pytest.raises(AssertionError, match="open"), nothing_but(tmp_path / "run"):
        (tmp_path / "outside").read_bytes()
    with pytest.raises(AssertionError, match="find_class"), nothing_but(tmp_path):
        pickle.loads((tmp_path / "outside").read_bytes())
