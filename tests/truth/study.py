"""Can I publish this? What ``Sandwich`` says of every hard family over many seeds, beside the
truth: ``python -m tests.truth.study FILE``.

Each run is a line of FILE (JSON), and those that it holds already are not made again; at the end
comes the table of docs/how_to/publish.md. Seeds begin at 100: settings were chosen on the first
few.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from tests.truth.hard_models import FAMILIES, UNSEEN, RowsKind

from partita.evaluators import Sandwich

KINDS: tuple[RowsKind, ...] = ("fair", "skewed", "none")
FIRST, SEEDS = 100, 20
Run = dict[str, Any]


def cases(seeds: int = SEEDS) -> Iterator[tuple[str, RowsKind, int]]:
    """Every family with every seed, and rows of each kind in turn."""
    for seed in range(FIRST, FIRST + seeds):
        for i, family in enumerate(FAMILIES):
            yield family, KINDS[(seed + i) % 3], seed


def run(family: str, rows: RowsKind, seed: int) -> Run:
    """One answer: its error and the ends of its interval, all less the truth; in float64 where the
    seed is odd.
    """
    model, truth = FAMILIES[family](seed, rows)
    model, begun = model.double() if seed % 2 else model, time.perf_counter()
    q = Sandwich()(model, generator=torch.Generator().manual_seed(1000 + seed))
    return {
        "family": family,
        "rows": rows,
        "seed": seed,
        "error": q.value - truth,
        "low": q.low - truth,
        "high": q.high - truth,
        "verdict": q.verdict,
        "seconds": time.perf_counter() - begun,
    }


def miss(one: Run) -> float:
    """How far the truth lies outside the interval, in half-widths."""
    outside = max(0.0, one["low"], -one["high"])
    return outside and outside / (0.5 * (one["high"] - one["low"]))


def table(runs: list[Run]) -> str:
    """A row for each family and one for all, over what can be seen at all."""
    runs = [one for one in runs if (one["family"], one["rows"]) not in UNSEEN]
    lines = [
        f"| {family} | {said([one for one in runs if one['family'] == family])} |"
        for family in FAMILIES
    ]
    head = (
        "family",
        "runs",
        "tight",
        "loose",
        "do not publish",
        "covered",
        "worst miss",
        "largest error",
        "half-width",
        "seconds",
    )
    return "\n".join(
        [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines, f"| **all** | {said(runs)} |"]
    )


def said(runs: list[Run]) -> str:
    """Cells of one row: verdicts; of trusted numbers how many cover, the worst miss in half-widths,
    the largest error, the median width.
    """
    counts = [
        sum(one["verdict"] == verdict for one in runs)
        for verdict in ("tight", "loose", "do not publish")
    ]
    trusted = [one for one in runs if one["verdict"] != "do not publish"]
    seconds = f"{median(one['seconds'] for one in runs):.0f}" if runs else ""
    if not trusted:
        return " | ".join([str(len(runs)), *map(str, counts), "", "", "", "", seconds])
    covered = sum(miss(one) == 0 for one in trusted)
    worst, largest = max(map(miss, trusted)), max(abs(one["error"]) for one in trusted)
    half = median(0.5 * (one["high"] - one["low"]) for one in trusted)
    numbers = (f"{number:.2f}" for number in (worst, largest, half))
    return " | ".join(
        [str(len(runs)), *map(str, counts), f"{covered} of {len(trusted)}", *numbers, seconds]
    )


def main(file: Path) -> None:
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    made = {(one["family"], one["rows"], one["seed"]) for one in known}
    with file.open("a") as out:
        for case in cases():
            if case not in made:
                known.append(run(*case))
                out.write(json.dumps(known[-1]) + "\n")
                out.flush()
    print(table(known))
    for kind in KINDS:
        of_kind = [
            one for one in known if one["rows"] == kind and (one["family"], kind) not in UNSEEN
        ]
        print(
            f"rows {kind}: {sum(one['verdict'] != 'do not publish' for one in of_kind)} of "
            f"{len(of_kind)} trusted"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
