"""``make bench``: run every benchmark of this folder, or those named: ``python benchmarks/run.py pcd_step imports``.

A benchmark is a file with a function ``run``; one that takes about a minute says so (``QUICK = True``), and ``--quick`` runs only those.
One that reads real data says which (``DATA = "mnist"``); it is skipped, with a line that says so, where ``$PARTITA_DATA`` is not set.

What was shown goes to ``results.json`` beside this file, one entry for each benchmark. ``--check`` (``make bench-check``) leaves that file
as it is and ends with an error where a ratio is worse than the recorded one by more than a quarter.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness

FOLDER = Path(__file__).parent
TOOLS = ("run", "harness")
RESULTS = FOLDER / "results.json"
LARGER_IS_BETTER = ("times_as_fast", "times_faster", "times_faster_than_attention")
SMALLER_IS_BETTER = ("ratio", "ratio_to_plain_fft")
SLACK = 1.25  # by how much a ratio may be worse than the recorded one: they vary by a tenth or so between runs

Lines = list[dict[str, Any]]


def names() -> list[str]:
    """Every benchmark in the folder."""
    return sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in TOOLS)


def main(arguments: list[str]) -> None:
    """Run benchmarks by name, and record or check what they show."""
    chosen = [name for name in arguments if not name.startswith("--")]
    for name in chosen:
        if name not in names():
            sys.exit(f"benchmarks: name must be one of {', '.join(names())}; got {name!r}.")
    recorded = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    print(harness.machine())
    worse = []
    for name in chosen or names():
        lines = _run(name, quick="--quick" in arguments)
        if lines is None:
            continue
        if "--check" in arguments:
            worse += regressions(name, lines, recorded.get(name, {}).get("lines", []))
        else:
            recorded[name] = {"machine": harness.machine(), "lines": lines}
            RESULTS.write_text(json.dumps(recorded, indent=1) + "\n")
    if worse:
        sys.exit("benchmarks: worse than recorded:\n" + "\n".join(worse))


def _run(name: str, quick: bool) -> Lines | None:
    """What one benchmark showed; None where it was left out."""
    module = importlib.import_module(name)
    if quick and not getattr(module, "QUICK", False):
        return None
    data = getattr(module, "DATA", None)
    if data and "PARTITA_DATA" not in os.environ:
        print(f"{name}: skipped; set PARTITA_DATA to the folder that holds {data}")
        return None
    print(f"\n== {name} ==")
    before = len(harness.LINES)
    module.run()
    return harness.LINES[before:]


def regressions(name: str, lines: Lines, recorded: Lines) -> list[str]:
    """Ratios that are worse than those recorded under the same words, one sentence each.

    >>> regressions("x", [{"what": "a", "ratio": 1.5}], [{"what": "a", "ratio": 1.0}])
    ['x, a: ratio 1.5, recorded 1']
    """
    known = {line["what"]: line for line in recorded}
    found = []
    for line in lines:
        for key in (*LARGER_IS_BETTER, *SMALLER_IS_BETTER):
            if key in line and key in known.get(line["what"], {}):
                now, then = line[key], known[line["what"]][key]
                if (then / now if key in LARGER_IS_BETTER else now / then) > SLACK:
                    found.append(f"{name}, {line['what']}: {key.replace('_', ' ')} {now:.3g}, recorded {then:.3g}")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
