"""Fits, evaluations, comparisons, imputations and pages killed at random moments, by SIGKILL,
SIGTERM or Ctrl-C, against undisturbed ones.

A verb is begun, struck at a moment drawn uniformly from the time that it takes undisturbed, and
taken up again until it is done; then every weight, record, score, table and page must agree with
the undisturbed one, bit for bit, clocks aside. A strike counts where it met a living process and
ended it; every verb and every signal gets its equal part of them. One verb saves at every step, and
is struck as soon after its moment as a file is being written. Most processes are forked from one
that has done its imports, which is what they cost; some start cold, so that imports are struck too.
``KILLS=3`` strikes the first three verbs once each, ``VERB=saving`` only those named so, ``SEED=1``
draws others.
"""

import csv
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from struck import Command, ended, forked, said, started, warm_up

KILLS, SEED = int(os.environ.get("KILLS", "100")), int(os.environ.get("SEED", "0"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MOST = 4  # strikes of one verb before it is spared
COLD = 0.05  # share of processes that start from nothing
STRUCK = (130, *(-number for number in SIGNALS))  # how a process ends that a strike ended
CLOCK = "seconds"  # what differs between two equal runs


@dataclass(frozen=True)
class Verb:
    """A command, how it is taken up again once ``begun`` is there, how often its fits save, whether
    it is about a run that was, and whether it is struck while it writes into ``run``.
    """

    name: str
    first: tuple[str, ...]
    again: tuple[str, ...] = ()
    begun: str = "nothing"
    save_seconds: float = 0.1
    of_a_run: bool = False
    writing: bool = False

    def command(self, folder: Path) -> Command:
        """What to call now."""
        return Command(
            self.again if (folder / self.begun).exists() else self.first, self.save_seconds
        )

    def open_to(self, folder: Path) -> bool:
        """Whether it may be struck now."""
        return not self.writing or any((folder / "run" / "checkpoints").glob(".*.part"))


@dataclass
class Tally:
    """An undisturbed verb, where and how many seconds, and what was counted against it."""

    whole: Path
    seconds: float
    count: Counter[str] = field(default_factory=Counter)

    def columns(self) -> dict[str, Any]:
        """What is shown: "identical" only of what was struck and compared."""
        rounds = self.count["compared"]
        names = ("kills", *(number.name for number in SIGNALS), "amid_a_file", "cold", "too_late")
        same = f"{rounds} of {rounds}" if rounds else "nothing compared"
        return {
            **{name: self.count[name] for name in names},
            "undisturbed_seconds": self.seconds,
            "identical": same,
        }


FIT = ("--quiet", "--no-report", "--out", "run")
RESUME = ("fit", "--resume", "run", "--quiet", "--no-report")
SMALL = ("--set", "rbm.n_hidden=3", "--set", "mixture.n_components=2", "--set", "vae.n_hidden=8")
RBM = ("fit", "rbm", "bars-and-stripes", "--set", "objective=pcd", "--set", "n_hidden=6")
BOARD = (
    "compare",
    "bars-and-stripes",
    "--models",
    "mixture,rbm,vae",
    *SMALL,
    "--epochs",
    "30",
    "--json",
    "--no-report",
    "--out",
    "board",
)
# it diverges often
WILD = (
    "--set",
    "learning_rate=300",
    "--set",
    "optimizer=sgd",
    "--set",
    "schedule=constant",
    "--guard",
    "rollback",
)
# to write, not to fit
LARGE = (
    "fit",
    "rbm",
    "bars-and-stripes",
    "--set",
    "objective=pcd",
    "--set",
    "n_hidden=200",
    "--set",
    "n_chains=2000",
)
VERBS = (
    Verb(
        "fit, saving at every step",
        (*LARGE, "--epochs", "15", *FIT),
        RESUME,
        "run/config.json",
        -1.0,
        writing=True,
    ),
    Verb(
        "compare",
        BOARD,
        ("compare", "--resume", "board", "--json", "--no-report"),
        "board/comparison.json",
    ),
    Verb("evaluate", ("evaluate", "scored", "--evaluator", "sandwich", "--json"), of_a_run=True),
    Verb("fit", (*RBM, "--epochs", "150", *FIT), RESUME, "run/config.json"),
    Verb("fit, going back", (*RBM, "--epochs", "100", *WILD, *FIT), RESUME, "run/config.json"),
    Verb("impute", ("impute", "scored", "gaps.csv", "--out", "filled.csv"), of_a_run=True),
    Verb("report", ("report", "scored", "--out", "page.html"), of_a_run=True),
)
VERBS = tuple(verb for verb in VERBS if os.environ.get("VERB", "") in verb.name)
# what verbs of a run are about
SCORED = (*RBM, "--epochs", "30", "--quiet", "--no-report", "--out", "scored")


def run() -> None:
    """In a process of its own, which has done nothing but its imports and can be forked."""
    from harness import show

    with tempfile.TemporaryDirectory() as scratch:
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(
            [sys.executable, __file__, "--here", f"{scratch}/found.json"], env=alone, check=True
        )
        for name, columns in json.loads(Path(scratch, "found.json").read_text()).items():
            show(name, **columns)


def here(out: Path) -> None:
    """Strike until there were enough, the verb next that was struck least, and write down what was
    struck.
    """
    imports, chance, rounds = warm_up(), random.Random(SEED), 0
    tallies: dict[Verb, Tally] = {}
    with tempfile.TemporaryDirectory() as scratch:
        while (left := KILLS - sum(tally.count["kills"] for tally in tallies.values())) > 0:
            verb = min(
                VERBS, key=lambda verb: tallies[verb].count["kills"] if verb in tallies else 0
            )
            tally = tallies[verb] = (
                tallies[verb] if verb in tallies else _undisturbed(verb, Path(scratch))
            )
            most = min(MOST, left, -(-KILLS // len(VERBS)) - tally.count["kills"])
            _round(
                verb, tally, Path(scratch) / f"{rounds}", chance, chance.randint(1, most), imports
            )
            rounds += 1
    out.write_text(json.dumps({verb.name: tally.columns() for verb, tally in tallies.items()}))


def _undisturbed(verb: Verb, scratch: Path) -> Tally:
    """The verb left alone."""
    folder = _prepared(verb, scratch / f"whole {verb.name}")
    begun = time.monotonic()
    if status := ended(forked(verb.command(folder), folder)):
        raise SystemExit(f"{verb.name}: must end with 0; got {status}: {said(folder)}")
    return Tally(folder, time.monotonic() - begun)


def _prepared(verb: Verb, folder: Path) -> Path:
    """A folder to work in; for some verbs with a run that is made once, and a table with gaps."""
    made = folder.with_name("made")
    if verb.of_a_run and not made.exists():
        made.mkdir()
        status, chance = ended(forked(Command(SCORED), made)), random.Random(1)
        assert status == 0, said(made)
        rows = [
            ["" if chance.random() < 0.4 else str(chance.randrange(2)) for _ in range(16)]
            for _ in range(400)
        ]
        (made / "gaps.csv").write_text(
            "\n".join(",".join(row) for row in [[f"x{i}" for i in range(16)], *rows]) + "\n"
        )
    shutil.copytree(made, folder) if verb.of_a_run else folder.mkdir()
    return folder


def _round(
    verb: Verb, tally: Tally, folder: Path, chance: random.Random, strikes: int, imports: float
) -> None:
    """The verb in a new folder, struck some times, taken up each time, done in the end, and
    compared.
    """
    _prepared(verb, folder)
    before = tally.count["kills"]
    while not _struck(verb, tally, folder, chance, imports, spare=not strikes):
        strikes -= strikes > 0
    _assert_same(verb, folder, tally.whole)
    tally.count["compared"] += tally.count["kills"] > before


def _struck(
    verb: Verb, tally: Tally, folder: Path, chance: random.Random, imports: float, spare: bool
) -> bool:
    """One process, struck at a random moment unless it ended before, or is to be spared; whether
    the verb is done.
    """
    cold, count = chance.random() < COLD, tally.count
    number = min(SIGNALS, key=lambda number: (count[number.name], chance.random()))
    moment = math.inf if spare else chance.uniform(0, tally.seconds + imports * cold)
    process, begun = (started if cold else forked)(verb.command(folder), folder), time.time()
    until = time.monotonic() + moment
    while (status := process.poll()) is None and (
        time.monotonic() < until or not verb.open_to(folder)
    ):
        time.sleep(0.002 if time.monotonic() < until else 0.0)
    if status is None:
        os.kill(process.pid, number)
        status = ended(process)
        amid = any(part.stat().st_mtime > begun for part in folder.rglob(".*.part"))
        count.update(
            ["kills", number.name, *["cold"] * cold, *["amid_a_file"] * amid]
            if status in STRUCK
            else []
        )
    count["too_late"] += not spare and status == 0
    text = said(folder)
    if (status not in STRUCK and status != 0) or ("Traceback" in text and not cold):
        raise SystemExit(
            f"{verb.name}: must end in order after {number.name} at {moment:.3f} s; got {status}: "
            f"{text}"
        )
    return status == 0


def _assert_same(verb: Verb, folder: Path, whole: Path) -> None:
    """Every file of both: the same names, and the same content but for clocks."""
    made, expected = (_content(path) for path in (folder, whole))
    wrong = [
        name
        for name in sorted(made.keys() | expected.keys())
        if name not in made or made[name] != expected.get(name)
    ]
    if wrong:
        raise SystemExit(
            f"{verb.name}: must end as if never struck; got others in {', '.join(wrong)}"
        )


def _content(folder: Path) -> dict[str, Any]:
    """What must agree, by the name of the file; the save before the last depends on when saves were
    due.
    """
    ours = [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.stem.endswith("previous") and path.name != "stderr"
    ]
    return {
        str(path.relative_to(folder)): _read(path)
        for path in ours
        if path.suffix != "" or path.name == "stdout"
    }


def _read(path: Path) -> Any:
    from partita.training import checkpoint

    if path.suffix == ".safetensors":
        return _bits(checkpoint.load_tree(path))
    text = path.read_text()
    if path.suffix == ".jsonl":
        return [_bits(json.loads(line)) for line in text.splitlines()]
    if path.suffix == ".csv":
        return [_bits(row) for row in csv.DictReader(text.splitlines())]
    return _bits(json.loads(text)) if text.startswith("{") else text


def _bits(tree: Any) -> Any:
    """A nested value without clocks, with numbers as their digits and tensors as their bytes: equal
    only where every bit is.
    """
    import torch

    if isinstance(tree, torch.Tensor):
        flat = tree.contiguous().reshape(-1)
        return (
            str(tree.dtype),
            tuple(tree.shape),
            flat.view(torch.uint8).numpy().tobytes() if len(flat) else b"",
        )
    if isinstance(tree, dict):
        return {key: _bits(value) for key, value in tree.items() if key != CLOCK}
    return (
        [_bits(value) for value in tree]
        if isinstance(tree, list)
        else repr(tree)
        if isinstance(tree, float)
        else tree
    )


if __name__ == "__main__":
    here(Path(sys.argv[2])) if sys.argv[1:2] == ["--here"] else run()
