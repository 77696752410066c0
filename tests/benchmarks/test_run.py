"""How benchmarks are run: recorded, left out, checked against the record, and named when they fail;
what make runs.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import harness
import records
import run
from records import Record

ROOT = Path(__file__).parents[2]
BENCHMARKS = {
    "fine": "QUICK = True\ndef run():\n    harness.show('x', ratio=float((HERE / "
    "'ratio').read_text()))\n    torch.set_num_threads(1)\n",
    "breaks": "QUICK = True\ndef run():\n    raise ValueError('broken')\n",
    "long": "def run():\n    harness.show('y', ratio=1.0)\n",
    "real": "QUICK = True\nDATA = 'mnist'\ndef run():\n    harness.show('z', ratio=1.0)\n",
    "told": "QUICK = True\ndef run(quick=False):\n    harness.show('w', told=quick)\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Benchmarks of a moment; ``fine`` reads its ratio from a file."""
    monkeypatch.delenv("PARTITA_DATA", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for name, body in BENCHMARKS.items():
        top = "import harness, torch\nfrom pathlib import Path\nHERE = Path(__file__).parent\n"
        (tmp_path / f"{name}.py").write_text(top + body)
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "ratio").write_text("1.0")
    return tmp_path


def test_results_are_recorded_and_a_broken_benchmark_is_named_at_the_end(folder: Path) -> None:
    with pytest.raises(SystemExit, match=r"^benchmarks: breaks failed; see its error above$"):
        run.main([], folder)
    known = records.read(folder / "results.json")
    assert {name: [line["what"] for line in record.lines] for name, record in known.items()} == {
        "fine": ["x"],
        "long": ["y"],
        "real": [],
        "told": ["w"],
    }
    assert known["real"].notes == ["real: skipped; set PARTITA_DATA to the folder that holds mnist"]
    assert known["told"].lines[0]["told"] is False
    assert known["fine"].command == "python benchmarks/run.py fine"
    assert "2 ratios of 2 benchmarks" in (folder / "results.html").read_text()


def test_quick_runs_the_quick_ones(folder: Path) -> None:
    run.main(["--quick", "fine", "long", "real", "told"], folder)
    known = records.read(folder / "results.json")
    assert set(known) == {"fine", "real", "told"}
    assert known["told"].lines[0]["told"] is True
    assert known["told"].command == "python benchmarks/run.py told --quick"


def test_a_fuller_record_stays(folder: Path) -> None:
    before = {
        name: Record([{"what": "w", "ratio": 2.0}], command=f"python benchmarks/run.py {name}")
        for name in ("fine", "real", "told")
    }
    records.write(before, folder / "results.json")
    run.main(["--quick", "fine", "real", "told"], folder)
    known = records.read(folder / "results.json")
    # skipped, and shorter
    assert (known["real"], known["told"]) == (before["real"], before["told"])
    assert known["fine"].lines == [{"what": "x", "ratio": 1.0}]


def test_what_was_written_meanwhile_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"other": Record([{"what": "o", "ratio": 1.0}])}
    monkeypatch.setattr(
        harness, "about", lambda: records.write(other, folder / "results.json") or {}
    )
    monkeypatch.setattr(harness, "machine", str)
    run.main(["fine"], folder)
    assert set(records.read(folder / "results.json")) == {"fine", "other"}


def test_a_benchmark_that_takes_one_thread_leaves_the_others_theirs(folder: Path) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run.main(["fine"], folder)
        assert torch.get_num_threads() == 2
        assert records.read(folder / "results.json")["fine"].about["threads"] == "1"
    finally:
        torch.set_num_threads(before)


def test_a_worse_ratio_fails_the_check_and_the_record_stays(folder: Path) -> None:
    run.main(["fine"], folder)
    before = (folder / "results.json").read_bytes()
    run.main(["fine", "--check"], folder)
    (folder / "ratio").write_text("1.3")
    with pytest.raises(
        SystemExit, match=r"^benchmarks: worse than recorded: fine, x: ratio 1\.3, recorded 1$"
    ):
        run.main(["fine", "--check"], folder)
    assert (folder / "results.json").read_bytes() == before


def test_what_is_worse_only_once_passes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.main(["fine"], folder)
    shown, once = harness.show, iter([2.0, 1.0])
    monkeypatch.setattr(harness, "show", lambda name, **columns: shown(name, ratio=next(once)))
    run.main(["fine", "--check"], folder)
    assert next(once, None) is None


def test_an_environment_that_cannot_make_the_page_still_records(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    run.main(["fine"], folder)
    assert "page: not made here (import of jinja2 halted" in capsys.readouterr().out
    assert set(records.read(folder / "results.json")) == {"fine"}
    assert not (folder / "results.html").exists()


@pytest.mark.parametrize(("now", "got"), [("nan", "nan"), ("inf", "inf"), (None, "not shown")])
def test_a_ratio_that_is_no_number_or_is_gone_fails_the_check(
    folder: Path, now: str | None, got: str
) -> None:
    known = [{"what": "x" if now else "gone", "ratio": 1.0}]
    records.write(
        {"fine": Record(known, command="python benchmarks/run.py fine")}, folder / "results.json"
    )
    (folder / "ratio").write_text(now or "1.0")
    with pytest.raises(
        SystemExit,
        match=rf"^benchmarks: worse than recorded: fine, {known[0]['what']}: ratio {got}, recorded "
        r"1$",
    ):
        run.main(["fine", "--check"], folder)


def test_what_a_shorter_run_does_not_show_passes_the_check(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {
        name: Record([{"what": "w", "ratio": 1.0}], command=f"python benchmarks/run.py {name}")
        for name in ("told", "real")
    }
    records.write(known, folder / "results.json")
    run.main(["told", "real", "fine", "--quick", "--check"], folder)
    assert "fine: nothing is recorded to check against" in capsys.readouterr().out


def test_a_check_against_nothing_is_refused(folder: Path) -> None:
    with pytest.raises(
        SystemExit, match="nothing is recorded to check against; run make bench first"
    ):
        run.main(["--check"], folder)


def test_an_unknown_name_is_refused(folder: Path) -> None:
    with pytest.raises(
        SystemExit,
        match=r"name must be one of breaks, fine, long, real, told, or --quick or --check; got "
        r"'fien'\.",
    ):
        run.main(["fien"], folder)


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["bench"], "run.py"),
        (["bench", "--check"], "run.py --check"),
        (["bench", "QUICK=1", "CHECK=1"], "run.py --quick --check"),
        (["bench-check"], "run.py --quick --check"),
        (["bench-quick", "ONLY=imports"], "run.py --quick imports"),
    ],
)
def test_what_make_runs(words: list[str], command: str) -> None:
    # make test runs this too
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    printed = subprocess.run(
        ["make", "--dry-run", *words],
        cwd=ROOT,
        env=plain,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert " ".join(printed.splitlines()[-1].split()).endswith(f"benchmarks/{command}")


def imported(path: Path) -> set[str]:
    """First parts of the names that a file imports when it is itself imported."""
    tree = ast.parse(path.read_text())
    plain = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
    return {
        name.split(".")[0]
        for name in plain
        | {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
    }


@pytest.mark.parametrize("name", run.names())
def test_no_benchmark_needs_a_peer_to_be_imported(name: str) -> None:
    """Peers live elsewhere: what is imported at the top is Python's, the project's, or one of its
    dependencies.
    """
    ours = {"partita", "torch", "numpy", "scipy", "sklearn", "threadpoolctl"} | {
        path.stem for path in (ROOT / "benchmarks").glob("*.py")
    }
    assert imported(ROOT / "benchmarks" / f"{name}.py") - ours <= sys.stdlib_module_names
