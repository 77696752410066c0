"""What it costs to import partita and to ask the command line for help, against importing torch."""

import subprocess
import sys

from harness import show, side_by_side

QUICK = True


def run() -> None:
    """Print both ratios."""
    torch = [sys.executable, "-c", "import torch"]
    for name, command, target in (
        ("import partita", [sys.executable, "-c", "import partita"], 1.2),
        ("partita --help", [sys.executable, "-m", "partita.cli", "--help"], 1.5),
    ):
        own, other, ratio = side_by_side(
            lambda c=command: _quietly(c), lambda: _quietly(torch), rounds=7, warm_up=1
        )
        show(name, seconds=own, import_torch=other, ratio=ratio, target=f"at most {target}")


def _quietly(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    run()
