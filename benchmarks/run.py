"""``make bench``: run every benchmark of this folder, or those named: ``python benchmarks/run.py
pcd_step imports``.

A benchmark is a file with a function ``run``; one that takes about a minute says so (``QUICK =
True``), and ``--quick`` runs only those. A ``run`` that takes ``quick`` is told. One that reads
real data says which (``DATA = "mnist"``); it is skipped, with a line that says so, where
``$PARTITA_DATA`` is not set. One that fails leaves the others to run, and is named at the end.

What was shown goes to ``results.json`` beside this file, one record for each benchmark, and from
there to the page ``results.html``; a run in which something was left out, or a shorter one, does
not replace a fuller record. ``--check`` leaves both as they are and ends with an error where a
ratio is worse than the recorded one by more than a quarter, twice.
"""

import importlib
import inspect
import os
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch

import harness
import page
import records
from ratios import regressions
from records import FOLDER, QUICKLY, Record

OPTIONS = ("--quick", "--check")


def names(folder: Path = FOLDER) -> list[str]:
    """Every benchmark in a folder."""
    return sorted(
        file.stem
        for file in folder.glob("*.py")
        if "\ndef run(" in file.read_text(encoding="utf-8")
    )


def main(arguments: list[str], folder: Path = FOLDER) -> None:
    """Run benchmarks by name, and record or check what they show."""
    chosen = _chosen(arguments, names(folder))
    quick, check = (option in arguments for option in OPTIONS)
    results = folder / records.RESULTS.name
    known = records.read(results)
    if check and not known:
        sys.exit("benchmarks: nothing is recorded to check against; run make bench first.")
    print(harness.machine())
    failed, worse = [], []
    for name in chosen:
        try:
            if check:
                worse += _worse(name, known.get(name, Record([])), quick)
            elif record := _run(name, quick):
                _keep(name, record, results)
        except (Exception, SystemExit):
            traceback.print_exc()
            failed.append(name)
    if not check:
        _make_page(results)
    if failed or worse:
        sys.exit(
            "\n".join(
                [*(f"benchmarks: {name} failed; see its error above" for name in failed), *worse]
            )
        )


def _chosen(arguments: list[str], there: list[str]) -> list[str]:
    """The benchmarks named, or all."""
    for word in arguments:
        if word not in (*OPTIONS, *there):
            sys.exit(
                f"benchmarks: name must be one of {', '.join(there)}, or {' or '.join(OPTIONS)}; "
                f"got {word!r}."
            )
    return [word for word in arguments if word not in OPTIONS] or there


def _keep(name: str, record: Record, results: Path) -> None:
    """Into the file, as it is by now: a run in another environment may have written to it. A fuller
    record is not replaced.
    """
    known = records.read(results)
    if name in known and known[name].fullness > record.fullness:
        print(f"{name}: the fuller record of {known[name].date or 'an earlier run'} stays")
    else:
        records.write({**known, name: record}, results)


def _make_page(results: Path) -> None:
    """From all that is recorded; an environment made for a peer may lack what pages need."""
    try:
        print(f"\npage: {page.write(records.read(results), results.with_name(page.PAGE.name))}")
    except ImportError as error:
        print(
            f"\npage: not made here ({error}); python benchmarks/page.py makes it where plotly and "
            "jinja2 are installed"
        )


def _run(name: str, quick: bool) -> Record | None:
    """What one benchmark showed; None where it is not among the quick ones. It may set the number
    of threads for itself.
    """
    module = importlib.import_module(name)
    if quick and not getattr(module, "QUICK", False):
        return None
    print(f"\n== {name} ==")
    kept = (harness.LINES, harness.CURVES, harness.NOTES)
    before = [len(part) for part in kept]
    threads = torch.get_num_threads()
    started = time.perf_counter()
    about: dict[str, Any] = {
        "title": " ".join((module.__doc__ or "").split("\n\n")[0].split()),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }
    told = {"quick": quick} if "quick" in inspect.signature(module.run).parameters else {}
    try:
        _carry_out(name, module, told)
        about["about"] = harness.about()
    finally:
        torch.set_num_threads(threads)
    lines, curves, notes = (part[start:] for part, start in zip(kept, before, strict=True))
    command = f"python benchmarks/run.py {name}{QUICKLY * bool(quick and told)}"
    return Record(
        lines,
        curves,
        notes,
        **about,
        command=command,
        seconds=round(time.perf_counter() - started, 1),
    )


def _carry_out(name: str, module: Any, told: dict[str, bool]) -> None:
    """Call it, unless the data it reads are not at hand."""
    data = getattr(module, "DATA", None)
    if data and "PARTITA_DATA" not in os.environ:
        harness.leave_out(name, f"skipped; set PARTITA_DATA to the folder that holds {data}")
    else:
        module.run(**told)


def _worse(name: str, recorded: Record, quick: bool) -> list[str]:
    """Sentences about what is worse than recorded, in two runs: one may be disturbed by other work
    on the machine.
    """
    found = _found(record := _run(name, quick), recorded)
    if record and not recorded.lines:
        print(f"{name}: nothing is recorded to check against", flush=True)
    if found:
        print(f"{name}: worse than recorded, so once more", flush=True)
        still = _found(_run(name, quick), recorded)
        found = {key: sentence for key, sentence in still.items() if key in found}
    return [f"benchmarks: worse than recorded: {name}, {sentence}" for sentence in found.values()]


def _found(record: Record | None, recorded: Record) -> dict[tuple[str, str], str]:
    """What is worse in a run; one as long as the recorded one, in which nothing was left out, shows
    all that was shown then.
    """
    if record is None:
        return {}
    whole = not record.notes and record.command == recorded.command
    return regressions(record.lines, recorded.lines, whole=whole)


if __name__ == "__main__":
    main(sys.argv[1:])
