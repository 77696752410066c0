"""A run's folder while it is being fitted: what is written when, by the one process that leads, and
how a fit is taken up again.

A folder holds a run from the moment its ``config.json`` is there, which is written after the first
save; every save stands for a whole fit, to which the records are cut back.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from partita.core.checks import check_path
from partita.errors import PartitaWarning
from partita.runtime import atomic_files, processes
from partita.runtime.untrusted import check_like, inside
from partita.training import checkpoint
from partita.training.history import History
from partita.training.run import check_new, check_resumable, read_config, write_config
from partita.training.session import Session

LAST, MODEL, METRICS = "last.safetensors", "model.safetensors", "metrics.jsonl"
# how long a fit takes is settled when it begins
PLAN = ("epochs", "steps", "minutes", "validations")


def folder_of(out: str | Path | None) -> Path | None:
    """The folder of a run that is to be, looked at before anything is done."""
    return None if out is None else check_path("fit", "out", out)


class Saves:
    """Where a fit writes; without a folder, and in processes that do not lead, every call writes
    nothing.

    All processes of a fit must come to each call, for they hand their chains to the one that
    writes.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.leads = processes.current().leads
        # what a user should know about the files, but is no part of the run
        self.remarks: list[str] = []
        self._records = History()

    def check(self, config: dict[str, Any], resume: bool) -> None:
        """Refuse a folder that holds another run, before anything is done."""
        if self.folder is not None:
            check_resumable(self.folder, config) if resume else check_new(self.folder)
        processes.current().gather(None)  # nobody writes before all have looked

    def history(self) -> History:
        """The records, on disk where there is a folder."""
        self._records = History(
            inside(self.folder, METRICS) if self.folder is not None and self.leads else None
        )
        return self._records

    def take_up(self, session: Session, history: History, config: dict[str, Any]) -> dict[str, Any]:
        """Put a session where the last save left it; returns the config with what the run said of
        itself.
        """
        assert self.folder is not None
        made = read_config(self.folder)
        tree = processes.current().told(self._last() if self.leads else None)
        session.restore(tree)
        history.rewind(session.step)
        self._check_records(history.digest(session.step), tree)
        returned = session.watch.event
        if returned is not None and returned not in history.records:
            history.add(returned)
        if made["fit"].get("tolerance") != session.settings.tolerance:
            session.settled = ""
        check_like(made["fit"], {"validations": int}, "config.json: fit", whole=True)
        session.settings = replace(
            session.settings, **{name: made["fit"].get(name) for name in PLAN}
        )
        return {**made, **config}

    def begin(self, session: Session, config: dict[str, Any], resumed: bool) -> None:
        """Make the folder, write the first save and then the config, with which it holds a run."""
        if self.folder is not None and self.leads and not resumed:
            for left in (
                self.folder / METRICS,
                self._path(LAST),
                checkpoint.previous(self._path(LAST)),
            ):
                left.unlink(missing_ok=True)  # by a fit that was stopped before this was a run
        if not resumed:
            self.save(session)
        if self.folder is not None and self.leads:
            write_config(self.folder, config)

    def save(self, session: Session) -> None:
        """Everything, to go on from; the records up to it are on the disk before it."""
        if self.folder is None:
            return
        tree = session.tree()
        if self.leads:
            if (records := self.folder / METRICS).exists():
                atomic_files.to_disk(records)
            checkpoint.save(
                self._path(LAST),
                {**tree, "records": self._records.digest(session.step)},
                keep_previous=True,
            )

    def finish(self, session: Session, saved: dict[str, Any]) -> None:
        """The weights to use; a fit that diverged leaves its last good save as it is."""
        if saved["stopped"] != "diverged":
            self.save(session)
        if self.folder is not None and self.leads:
            checkpoint.save(self._path(MODEL), saved)

    def _last(self) -> Any:
        """The last whole save; a damaged one is removed, so that it never takes the place of the
        one before it.
        """
        tree, remark = checkpoint.load_or_previous(self._path(LAST))
        if remark:
            self.remarks.append(remark)
            self._path(LAST).unlink(missing_ok=True)
        return tree

    def _check_records(self, found: str, tree: dict[str, Any]) -> None:
        """Say so where the records are others than when the save was written; the fit itself does
        not depend on them.
        """
        if self.leads and tree.get("records", found) != found:
            told = (
                f"load: {self.folder}/{METRICS} must hold what was recorded up to step "
                f"{tree['step']}; got other records."
            )
            self.remarks.append(f"{told} Weights do not depend on them; curves do.")
            warnings.warn(self.remarks[-1], PartitaWarning, stacklevel=3)

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / "checkpoints" / name


def numbers(folder: Path) -> int:
    """How many numbers the larger save of a run holds: what the sizes in its config must account
    for when it is taken up.
    """
    last = folder / "checkpoints" / LAST
    return max(map(checkpoint.numbers, (last, checkpoint.previous(last))))


def begun(folder: Path) -> bool:
    """Whether a folder holds a fit that can be taken up."""
    last = folder / "checkpoints" / LAST
    return (folder / "config.json").exists() and (
        last.exists() or checkpoint.previous(last).exists()
    )
