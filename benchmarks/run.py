"""``make bench``: run every benchmark of this folder, or those named: ``python benchmarks/run.py pcd_step imports``.

A benchmark is a file with a function ``run``. One that reads real data says which (``DATA = "mnist"``); it is skipped, with a line
that says so, where ``$PARTITA_DATA`` is not set.
"""

import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from harness import machine

FOLDER = Path(__file__).parent
TOOLS = ("run", "harness")


def names() -> list[str]:
    """Every benchmark in the folder."""
    return sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in TOOLS)


def main(chosen: list[str]) -> None:
    """Run benchmarks by name."""
    print(machine())
    for name in chosen or names():
        if name not in names():
            sys.exit(f"benchmarks: name must be one of {', '.join(names())}; got {name!r}.")
        module = importlib.import_module(name)
        data = getattr(module, "DATA", None)
        if data and "PARTITA_DATA" not in os.environ:
            print(f"{name}: skipped; set PARTITA_DATA to the folder that holds {data}")
            continue
        print(f"\n== {name} ==")
        module.run()


if __name__ == "__main__":
    main(sys.argv[1:])
