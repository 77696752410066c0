"""``make bench``: run every benchmark, or those named: ``python benchmarks/run.py pcd_step imports``.

The MNIST ones read ``$PARTITA_DATA`` and are skipped, with a line that says so, where it is not set.
"""

import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from harness import machine

BENCHMARKS = {"imports": False, "pcd_step": False, "rbm16_mnist": True, "rbm500_mnist": True}  # whether it needs MNIST


def main(names: list[str]) -> None:
    """Run benchmarks by name."""
    print(machine())
    for name in names or BENCHMARKS:
        if name not in BENCHMARKS:
            sys.exit(f"benchmarks: name must be one of {', '.join(BENCHMARKS)}; got {name!r}.")
        if BENCHMARKS[name] and "PARTITA_DATA" not in os.environ:
            print(f"{name}: skipped; set PARTITA_DATA to the folder that holds mnist")
            continue
        print(f"\n== {name} ==")
        importlib.import_module(name).run()


if __name__ == "__main__":
    main(sys.argv[1:])
