"""The evidence challenge: whether intervals for log Z hold the truth, how wide they are, and
whether failures are admitted; beside dynesty, nautilus, UltraNest, pocoMC and blackjax.

A run's interval is the one it states at 95 %: partita's own, a peer's value with 1.96 of its
standard errors. A failure is admitted by a verdict "do not publish", or by giving no number;
a *confident wrong* number is one that is stated without a word while the truth lies more than half
the interval's width beyond its end. Each code runs as it does by default, and decides for itself
how long; an error that falls as the root of the evaluations is brought to a million of them.

Settings from the environment: ``SEEDS=20``, ``TARGETS="funnel, 10-D;shells"`` (parts of names),
``METHODS=partita,dynesty``, ``MINUTES=10`` for one run. Minutes and seconds are the processor's,
for others may use the machine. ``RUNS=file`` keeps every run as a line and takes up from there,
also what another environment has added: peers that do not get along with partita's dependencies
can be run elsewhere.
"""

import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from types import FrameType

import partita
from evidence_peers import PEERS, Counted, quietly
from evidence_targets import Known, discrete_targets, open_targets, real_targets
from harness import leave_out, show
from partita.errors import PartitaError

QUICK = True
QUICKLY = ("eggbox", "eight schools", "regression", "Hopfield")  # targets of the short form
HALF = 1.96  # standard errors
OWN = "partita"
SEEDS = int(os.environ.get("SEEDS", "20"))
MINUTES = float(os.environ.get("MINUTES", "10"))
TARGETS = tuple(filter(None, os.environ.get("TARGETS", "").split(";")))
METHODS = tuple(filter(None, os.environ.get("METHODS", "").split(",")))
RUNS = os.environ.get("RUNS", "")


@dataclass(frozen=True)
class Run:
    """One answer of one method about one target; no value where it gave none."""

    target: str
    method: str
    seed: int
    truth: float
    value: float | None = None
    low: float = math.nan
    high: float = math.nan
    verdict: str = "none"
    evaluations: int = 0
    seconds: float = 0.0
    reason: str = ""

    @property
    def stated(self) -> bool:
        """Whether it stands by its interval."""
        return self.value is not None and self.verdict != "do not publish"

    @property
    def covers(self) -> bool:
        """Whether the truth is inside."""
        return self.low <= self.truth <= self.high

    @property
    def confidently_wrong(self) -> bool:
        """Stated, and further off than half the width of the interval.

        >>> Run("a", "b", 0, 0.0, 5.0, 4.0, 6.0, "stated").confidently_wrong
        True
        """
        beyond = max(self.low - self.truth, self.truth - self.high)
        return self.stated and beyond > (self.high - self.low) / 2


class _Late(Exception):
    """A run has had its minutes."""


def run(quick: bool = False) -> None:
    """Ask every method about every target, then show what came of it."""
    targets = [*real_targets(), *open_targets(), *discrete_targets()]
    wanted = QUICKLY if quick else TARGETS
    targets = [known for known in targets if not wanted or _named(known.name, wanted)]
    methods, kept = _present(), _read()
    runs = [
        kept.get((known.name, method, seed)) or _asked(known, method, seed)
        for seed in range(2 if quick else SEEDS)
        for known in targets
        for method in methods
        if known.prior is not None or method == OWN
    ]
    for known in targets:
        for method in methods:
            of_both = [run for run in runs if (run.target, run.method) == (known.name, method)]
            if of_both:
                show(f"{known.name}, {method}", **columns(of_both))
    for method in methods:
        show(f"all targets, {method}", **totals([run for run in runs if run.method == method]))


def columns(runs: Sequence[Run]) -> dict[str, object]:
    """What the runs of one method on one target come to."""
    answered = [run for run in runs if run.value is not None]
    errors = [run.value - run.truth for run in answered if run.value is not None]
    root = math.sqrt(sum(error**2 for error in errors) / max(1, len(errors)))
    evaluations = median(run.evaluations for run in runs)
    stated = [run for run in runs if run.stated]
    return {
        "truth": runs[0].truth,
        "value": median(run.value for run in answered if run.value is not None)
        if answered
        else "none",
        "covered": f"{sum(run.covers for run in stated)} of {len(stated)}",
        "width": median(run.high - run.low for run in stated) if stated else "none",
        "rms_error": root if answered else "none",
        "rms_at_a_million": root * math.sqrt(evaluations / 1e6) if answered else "none",
        "admitted": f"{len(runs) - len(stated)} of {len(runs)}",
        "confident_wrong": sum(run.confidently_wrong for run in runs),
        "evaluations": evaluations,
        "seconds": median(run.seconds for run in runs),
    }


def totals(runs: Sequence[Run]) -> dict[str, object]:
    """Of one method on all targets."""
    stated = [run for run in runs if run.stated]
    return {
        "runs": len(runs),
        "stated": len(stated),
        "coverage": sum(run.covers for run in stated) / max(1, len(stated)),
        "confident_wrong": sum(run.confidently_wrong for run in runs),
        "median_width": median(run.high - run.low for run in stated) if stated else "none",
        "seconds": sum(run.seconds for run in runs),
    }


def _asked(known: Known, method: str, seed: int) -> Run:
    """One run, kept."""
    begun = time.process_time()
    about = Run(known.name, method, seed, known.log_z)
    parts: dict[str, object]
    try:
        with _at_most(60 * MINUTES):
            parts = _own(known, seed) if method == OWN else _peer(known, method, seed)
    except _Late:
        parts = {"reason": f"not done in {MINUTES:g} minutes"}
    except Exception as error:  # a peer's own errors are its answers
        if method == OWN and not isinstance(error, PartitaError):
            raise
        parts = {"reason": f"{type(error).__name__}: {error}"[:200]}
    found = Run(**{**asdict(about), **parts, "seconds": time.process_time() - begun})  # type: ignore[arg-type]
    print(
        f"{found.target}, {method}, {seed}: {found.value} [{found.low}, {found.high}]", flush=True
    )
    if RUNS:
        with Path(RUNS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(found)) + "\n")
    return found


def _own(known: Known, seed: int) -> dict[str, object]:
    prior = None if known.prior is None else list(known.prior)
    q = partita.log_z(known.log_density, known.support, prior=prior, generator=seed)
    tried = {name: one.interval for name, one in q.details["tried"].items()}
    return {
        "value": q.value,
        "low": q.low,
        "high": q.high,
        "verdict": q.verdict,
        "evaluations": q.details["evaluations"],
        "reason": ", ".join(f"{name} [{a:.3f}, {b:.3f}]" for name, (a, b) in tried.items()),
    }


def _peer(known: Known, method: str, seed: int) -> dict[str, object]:
    target = Counted(known)
    value, error = quietly(PEERS[method], target, seed)
    return {
        "value": value,
        "low": value - HALF * error,
        "high": value + HALF * error,
        "verdict": "stated",
        "evaluations": target.calls,
    }


def _present() -> list[str]:
    """The methods that are wanted and here; what runs elsewhere has left runs."""
    methods = []
    for name in METHODS or (OWN, *PEERS):
        if name == OWN or find_spec(name) or any(key[1] == name for key in _read()):
            methods.append(name)
        else:
            leave_out(name, "not installed here")
    return methods


def _read() -> dict[tuple[str, str, int], Run]:
    """Runs that were kept; a later one replaces an earlier one."""
    if not RUNS or not Path(RUNS).exists():
        return {}
    lines = Path(RUNS).read_text(encoding="utf-8").splitlines()
    runs = [Run(**json.loads(line)) for line in lines]
    return {(run.target, run.method, run.seed): run for run in runs}


def _named(name: str, parts: Sequence[str]) -> bool:
    return any(part in name for part in parts)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise in what takes more of the processor's time, where the system has alarms."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise _Late

    if not hasattr(signal, "SIGPROF"):
        yield
        return
    before: Callable[..., object] | int | None = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


if __name__ == "__main__":
    run()
