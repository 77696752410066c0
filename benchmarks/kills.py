"""Fits, evaluations and comparisons killed at random moments, by SIGKILL, SIGTERM or Ctrl-C, against ones that were left alone.

A verb is drawn, begun, struck at a random moment by a random signal, and taken up again until it is done; then every weight, record and
score must agree with the unbroken one, bit for bit, clocks aside. One verb saves at every step, so that most strikes fall into the writing
of a file. Most processes are forked from one that has done its imports, which is what they cost; some start cold, so that imports are
struck too. ``KILLS=10`` is shorter, ``SEED=1`` draws others.
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
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

KILLS, SEED = int(os.environ.get("KILLS", "100")), int(os.environ.get("SEED", "0"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
BEYOND = 1.25  # moments are drawn up to this many times what the unbroken verb takes
MOST = 4  # strikes before a verb is spared
COLD = 0.05  # share of processes that start from nothing
PATIENCE = 120.0  # seconds after which a process that was struck should have ended
ENDED = (0, 130, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)  # how a process may end that was struck
CLOCK = "seconds"  # what differs between two equal runs
FIT = ("--quiet", "--no-report", "--out", "run")
RESUME = ("fit", "--resume", "run", "--quiet", "--no-report")
SMALL = ("--set", "rbm.hidden=3", "--set", "mixture.components=2", "--set", "vae.hidden=8")
WARM = ("lightning_fabric", "numba", "arviz_stats.base", "pydantic", "rich.live", "partita.cli.app", "partita.cli.compare",
        "partita.cli.evaluate", "partita.cli.fit")  # fmt: skip
PROGRAM = "import partita.training.loop as loop; loop.SAVE_SECONDS = {}; from partita.cli import main; main()"


@dataclass(frozen=True)
class Verb:
    """A command, how it is taken up again once ``begun`` is there, and how often its fits save."""

    name: str
    first: tuple[str, ...]
    again: tuple[str, ...] = ()
    begun: str = "nothing"
    save_seconds: float = 0.1

    def words(self, folder: Path) -> tuple[str, ...]:
        """What to call now."""
        return self.again if (folder / self.begun).exists() else self.first


RBM = ("fit", "rbm", "bars-and-stripes", "--set", "objective=pcd", "--set", "hidden=6")
BOARD = ("compare", "bars-and-stripes", "--models", "mixture,rbm,vae", *SMALL, "--epochs", "30", "--json", "--no-report", "--out", "board")
WILD = ("--set", "learning_rate=300", "--set", "optimizer=sgd", "--set", "schedule=constant", "--guard", "rollback")  # it diverges often
VERBS = (
    Verb("fit", (*RBM, "--epochs", "150", *FIT), RESUME, "run/config.json"),
    Verb("fit, going back", (*RBM, "--epochs", "100", *WILD, *FIT), RESUME, "run/config.json"),
    Verb("fit, saving at every step", (*RBM, "--epochs", "100", *FIT), RESUME, "run/config.json", save_seconds=-1.0),
    Verb("evaluate", ("evaluate", "scored", "--evaluator", "sandwich", "--json")),
    Verb("compare", BOARD, ("compare", "--resume", "board", "--json", "--no-report"), "board/comparison.json"),
)  # fmt: skip
SCORED = (*RBM, "--epochs", "30", "--quiet", "--no-report", "--out", "scored")  # what evaluate is about


def run() -> None:
    """In a process of its own, which has done nothing but its imports and can be forked."""
    from harness import show

    with tempfile.TemporaryDirectory() as scratch:
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, __file__, "--here", f"{scratch}/found.json"], env=alone, check=True)
        for name, columns in json.loads(Path(scratch, "found.json").read_text()).items():
            show(name, **columns)


def here(out: Path) -> None:
    """Strike until there were enough, and write down what was struck."""
    _warm_up()
    chance, counts = random.Random(SEED), {verb.name: Counter() for verb in VERBS}
    with tempfile.TemporaryDirectory() as scratch:
        whole = {verb: _unbroken(verb, Path(scratch) / f"whole {verb.name}") for verb in VERBS}
        rounds = 0
        while sum(count["kills"] for count in counts.values()) < KILLS:
            verb, folder = VERBS[rounds % len(VERBS)] if rounds < len(VERBS) else chance.choice(VERBS), Path(scratch) / f"{rounds}"
            made, seconds = whole[verb]
            _prepare(verb, folder, made)
            strikes = chance.randint(1, MOST)
            while not _struck(verb, folder, chance, BEYOND * seconds, counts[verb.name], spare=not strikes):
                strikes -= strikes > 0
            _assert_same(verb, folder, made)
            rounds += 1
        found = {verb.name: {**counts[verb.name], "unbroken_seconds": whole[verb][1], "identical": "yes"} for verb in VERBS}
        out.write_text(json.dumps(found))


def _warm_up() -> None:
    """The imports that all verbs need, and no threads, which would not survive a fork."""
    for name in WARM:
        import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise SystemExit(f"kills: imports must start no thread; got {threads - 1}")


def _unbroken(verb: Verb, folder: Path) -> tuple[Path, float]:
    """The verb left alone: where, and the seconds it takes."""
    _prepare(verb, folder)
    started = time.monotonic()
    status = _ended(_forked(verb, folder))
    if status != 0:
        raise SystemExit(f"{verb.name}: must end with 0; got {status}: {_said(folder)}")
    return folder, time.monotonic() - started


def _prepare(verb: Verb, folder: Path, like: Path | None = None) -> None:
    """A folder to work in, for an evaluation with the run that it is about."""
    folder.mkdir()
    if verb.name == "evaluate" and like is not None:
        shutil.copytree(like / "scored", folder / "scored")
    elif verb.name == "evaluate":
        status = _ended(_forked(Verb("fit", SCORED), folder))
        assert status == 0, _said(folder)


def _struck(verb: Verb, folder: Path, chance: random.Random, latest: float, count: Counter[str], spare: bool) -> bool:
    """One process, struck at a random moment unless it ended before, or is to be spared; whether the verb is done."""
    cold = chance.random() < COLD
    moment, number = math.inf if spare else chance.uniform(0, latest + 5.0 * cold), chance.choice(SIGNALS)
    process, begun = (_started if cold else _forked)(verb, folder), time.time()
    until = time.monotonic() + moment
    while (status := process.poll()) is None and time.monotonic() < until:
        time.sleep(0.002)
    if status is None:
        os.kill(process.pid, number)
        count.update(["kills", number.name, *(["cold"] if cold else [])])
        status = _ended(process)
        count["amid a file"] += any(part.stat().st_mtime > begun for part in folder.rglob(".*.part"))
    said = _said(folder)
    if status not in ENDED or ("Traceback" in said and not cold):
        raise SystemExit(f"{verb.name}: must end in order after {number.name} at {moment:.3f} s; got {status}: {said}")
    return status == 0


class Forked:
    """A process made from this one, with the two names of a started one that are needed."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.pid = os.fork()
        if not self.pid:
            work()

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        found, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None


def _forked(verb: Verb, folder: Path) -> Forked:
    words = verb.words(folder)

    def work() -> None:
        code = 1
        try:
            _become_command(words, folder)
            from partita.training import loop

            loop.SAVE_SECONDS = verb.save_seconds
            from partita.cli import main

            main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except KeyboardInterrupt:  # before the command line could catch it
            code = 130
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    return Forked(work)


def _become_command(words: tuple[str, ...], folder: Path) -> None:
    """The streams, the folder, the arguments and the signals of a command that a shell would start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(folder)
    sys.argv = ["partita", *words]
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream.fileno())


def _started(verb: Verb, folder: Path) -> Any:
    command = [sys.executable, "-c", PROGRAM.format(verb.save_seconds), *verb.words(folder)]
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=err)


def _ended(process: Any) -> int:
    """The exit code of a process that is about to end; one that hangs is an error."""
    until = time.monotonic() + PATIENCE
    while (status := process.poll()) is None:
        if time.monotonic() > until:
            os.kill(process.pid, signal.SIGKILL)
            raise SystemExit(f"a process must end within {PATIENCE:g} seconds; got one that hangs")
        time.sleep(0.002)
    return status


def _said(folder: Path) -> str:
    return "".join(path.read_text() for path in [folder / "stderr"] if path.exists())


def _assert_same(verb: Verb, folder: Path, whole: Path) -> None:
    """Every file of both: the same names, and the same content but for clocks."""
    made, expected = (_content(path) for path in (folder, whole))
    wrong = [name for name in sorted(made.keys() | expected.keys()) if name not in made or made[name] != expected.get(name)]
    if wrong:
        raise SystemExit(f"{verb.name}: must end as if never struck; got others in {', '.join(wrong)}")


def _content(folder: Path) -> dict[str, Any]:
    """What must agree, by the name of the file; the save before the last depends on when saves were due."""
    ours = [path for path in folder.rglob("*") if path.is_file() and not path.stem.endswith("previous") and path.name != "stderr"]
    return {str(path.relative_to(folder)): _read(path) for path in ours if path.suffix != "" or path.name == "stdout"}


def _read(path: Path) -> Any:
    from partita.training import checkpoint

    if path.suffix == ".safetensors":
        return _bits(checkpoint.load(path))
    text = path.read_text()
    if path.suffix == ".jsonl":
        return [_bits(json.loads(line)) for line in text.splitlines()]
    if path.suffix == ".csv":
        return [_bits(row) for row in csv.DictReader(text.splitlines())]
    return _bits(json.loads(text)) if text.startswith("{") else text


def _bits(tree: Any) -> Any:
    """A nested value without clocks, with numbers as their digits and tensors as their bytes: equal only where every bit is."""
    import torch

    if isinstance(tree, torch.Tensor):
        flat = tree.contiguous().reshape(-1)
        return str(tree.dtype), tuple(tree.shape), flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""
    if isinstance(tree, dict):
        return {key: _bits(value) for key, value in tree.items() if key != CLOCK}
    return [_bits(value) for value in tree] if isinstance(tree, list) else repr(tree) if isinstance(tree, float) else tree


if __name__ == "__main__":
    here(Path(sys.argv[2])) if sys.argv[1:2] == ["--here"] else run()
