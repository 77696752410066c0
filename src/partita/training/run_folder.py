"""A run's folder while it is being fitted: what process rank 0 writes when, and how a fit is
resumed.

A folder holds a run from the moment its ``config.json`` exists, which is written after the first
checkpoint; every checkpoint stands for a whole fit, to which the records are rewound.
"""

import warnings
from dataclasses import replace
from pathlib import Path

from partita.errors import PartitaWarning
from partita.runtime import atomic_files, processes
from partita.runtime.untrusted import JsonObject, check_like, inside
from partita.training import checkpoint
from partita.training.checkpoint import Tree
from partita.training.history import History
from partita.training.run import check_new, check_resumable, read_config, write_config
from partita.training.session import Session

LAST, MODEL, METRICS = "last.safetensors", "model.safetensors", "metrics.jsonl"
# the length of a fit is fixed when it begins
PLAN = ("epochs", "steps", "minutes", "validations")


class RunFolder:
    """The folder that a fit writes to; without one, every call writes nothing.

    Only process rank 0 writes, but all processes of a fit must make each call together, for it
    gathers their chains.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.team = processes.current()
        # about the files, and no part of the run
        self.warnings: list[str] = []
        self._written = folder if self.team.is_zero else None  # by this process
        self.history = History()

    def check(self, config: JsonObject, resume: bool) -> None:
        """Refuse a folder that holds another run, before anything is written."""
        if self.folder is not None:
            check_resumable(self.folder, config) if resume else check_new(self.folder)
        self.team.gather(None)  # no process writes before all have checked
        if self._written is not None:
            self.history = History(inside(self._written, METRICS))

    def resume(self, session: Session, config: JsonObject) -> JsonObject:
        """Put a session where the last checkpoint left it; returns the config, with the run's own
        entries below the new ones.
        """
        assert self.folder is not None
        made = read_config(self.folder)
        tree: Tree = self.team.broadcast(self._last() if self.team.is_zero else None)
        session.restore(tree)
        self.history.rewind(session.step)
        self._check_records(tree)
        event = session.watch.event
        if event is not None and event not in self.history.records:
            self.history.add(event)
        if made["fit"].get("tolerance") != session.settings.tolerance:
            session.settled = ""
        check_like(made["fit"], {"validations": int}, "config.json: fit", whole=True)
        plan = {name: made["fit"].get(name) for name in PLAN}
        session.settings = replace(session.settings, **plan)
        return {**made, **config}

    def begin(self, session: Session, config: JsonObject, resumed: bool) -> None:
        """Write the first checkpoint and then the config, with which the folder holds a run."""
        if not resumed:
            if self._written is not None:
                # left by a fit that was stopped before this was a run
                for path in (self._written / METRICS, *_checkpoints(self._written)):
                    path.unlink(missing_ok=True)
            self.save(session)
        if self._written is not None:
            write_config(self._written, config)

    def save(self, session: Session) -> None:
        """Write everything that a resume needs; the records up to it are on the disk before it."""
        if self.folder is None:
            return
        tree = session.tree()
        if self._written is not None:
            if (records := self._written / METRICS).exists():
                atomic_files.to_disk(records)
            tree["records"] = self.history.digest(session.step)
            last, _ = _checkpoints(self._written)
            checkpoint.save_tree(last, tree, keep_previous=True)

    def finish(self, session: Session, saved: Tree) -> None:
        """Write the weights to use; a fit that diverged keeps its last good checkpoint."""
        if saved["stopped"] != "diverged":
            self.save(session)
        if self._written is not None:
            checkpoint.save_tree(self._written / "checkpoints" / MODEL, saved)

    def _last(self) -> Tree:
        """The last whole checkpoint; a damaged one is removed, so that it never takes the place of
        the one before it.
        """
        assert self.folder is not None
        last, _ = _checkpoints(self.folder)
        tree, warning = checkpoint.load_or_previous(last)
        if warning:
            self.warnings.append(warning)
            last.unlink(missing_ok=True)
        return tree

    def _check_records(self, tree: Tree) -> None:
        """Warn where the records changed since the checkpoint was written; the fit itself does not
        depend on them.
        """
        found = self.history.digest(tree["step"])
        if self.team.is_zero and tree.get("records", found) != found:
            self.warnings.append(
                f"load: {self.folder}/{METRICS} must hold what was recorded up to step "
                f"{tree['step']}; got other records. Weights do not depend on them; curves do."
            )
            warnings.warn(self.warnings[-1], PartitaWarning, stacklevel=3)


def _checkpoints(folder: Path) -> tuple[Path, Path]:
    """Where the last checkpoint of a run is, and the one before it."""
    last = folder / "checkpoints" / LAST
    return last, checkpoint.previous(last)


def saved_numbers(folder: Path) -> int:
    """How many numbers the larger checkpoint of a run holds: what the sizes in its config must
    account for when it is resumed.
    """
    return max(map(checkpoint.count_numbers, _checkpoints(folder)))


def is_begun(folder: Path) -> bool:
    """Whether a folder holds a fit that can be resumed."""
    return (folder / "config.json").exists() and any(p.exists() for p in _checkpoints(folder))
