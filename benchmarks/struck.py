"""Commands that can be struck: begun as a shell would begin them, most by a copy of a process that
has done its imports.
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

PATIENCE = 120.0  # seconds after which a process that was struck should have ended
ALLOCATOR = "jemalloc_bg_thd"
WARM = (
    "lightning_fabric",
    "numba",
    "arviz_stats.base",
    "pydantic",
    "rich.live",
    "plotly.graph_objects",
    "partita.report.run",
    "partita.cli.app",
    "partita.cli.leaderboard",
    "partita.experiment.leaderboard",
    "partita.experiment.compare_settings",
    "partita.experiment.requests",
    "partita.report.folder",
)  # not pyarrow, which starts a thread
PROGRAM = (
    "import partita.training.loop as loop; loop.SAVE_SECONDS = {}; from partita.cli import main; "
    "main()"
)


@dataclass(frozen=True)
class Command:
    """The words after ``partita``, and the seconds between two saves of its fits."""

    words: tuple[str, ...]
    save_seconds: float = 0.1


class Process(Protocol):
    """What a command became."""

    pid: int

    def poll(self) -> int | None: ...


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


def warm_up() -> float:
    """The imports that all commands need, and no threads, which would not survive a fork; returns
    their seconds. The allocator of pyarrow has one, which it starts anew after a fork.
    """
    started = time.monotonic()
    for name in WARM:
        import_module(name)
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    started_by = [name for name in names if name != ALLOCATOR][1:]
    if started_by:
        raise SystemExit(f"kills: imports must start no thread; got {', '.join(started_by)}")
    return time.monotonic() - started


def forked(command: Command, folder: Path) -> Forked:
    """A command whose imports are done."""

    def work() -> None:
        code = 1
        try:
            _become(command, folder)
            from partita.training import loop

            loop.SAVE_SECONDS = command.save_seconds
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


def started(command: Command, folder: Path) -> Any:
    """A command from nothing, imports and all."""
    words = [sys.executable, "-c", PROGRAM.format(command.save_seconds), *command.words]
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        return subprocess.Popen(words, cwd=folder, stdout=out, stderr=err)


def ended(process: Process) -> int:
    """The exit code of a process that is about to end; one that hangs is an error."""
    until = time.monotonic() + PATIENCE
    while (status := process.poll()) is None:
        if time.monotonic() > until:
            os.kill(process.pid, signal.SIGKILL)
            raise SystemExit(f"a process must end within {PATIENCE:g} seconds; got one that hangs")
        time.sleep(0.002)
    return status


def said(folder: Path) -> str:
    """What the last command wrote to its standard error."""
    return "".join(path.read_text() for path in [folder / "stderr"] if path.exists())


def _become(command: Command, folder: Path) -> None:
    """The streams, the folder, the arguments and the signals of a command that a shell would
    start.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(folder)
    sys.argv = ["partita", *command.words]
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream.fileno())
