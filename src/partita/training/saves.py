"""A run's folder while it is being fitted: what is written when, by the one process that leads, and how a fit is taken up again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from partita.core import processes
from partita.training import checkpoint
from partita.training.history import History
from partita.training.run import check_new, check_resumable, prepare_folder, read_config
from partita.training.session import Session

LAST, MODEL = "last.safetensors", "model.safetensors"


class Saves:
    """Where a fit writes; without a folder, and in processes that do not lead, every call writes nothing.

    All processes of a fit must come to each call, for they hand their chains to the one that writes.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.leads = processes.current().leads

    def check(self, config: dict[str, Any], resume: bool) -> None:
        """Refuse a folder that holds another run, before anything is done."""
        if self.folder is not None:
            check_resumable(self.folder, config) if resume else check_new(self.folder)
        processes.current().gather(None)  # nobody writes before all have looked

    def history(self) -> History:
        """The records, on disk where there is a folder."""
        return History(self.folder / "metrics.jsonl" if self.folder is not None and self.leads else None)

    def take_up(self, session: Session, history: History, config: dict[str, Any]) -> dict[str, Any]:
        """Put a session where the last save left it; returns the config with what the run said of itself."""
        assert self.folder is not None
        team, made = processes.current(), read_config(self.folder)
        session.restore(team.told(checkpoint.load_or_previous(self._path(LAST)) if self.leads else None))
        history.rewind(session.step)
        session.settings = replace(session.settings, validations=made["fit"].get("validations", session.settings.validations))
        return {**made, **config}

    def begin(self, session: Session, config: dict[str, Any]) -> None:
        """Make the folder, write the config and the first save."""
        if self.folder is not None and self.leads:
            prepare_folder(self.folder, config)
        self.save(session)

    def save(self, session: Session) -> None:
        """Everything, to go on from."""
        if self.folder is None:
            return
        tree = session.tree()
        if self.leads:
            checkpoint.save(self._path(LAST), tree, keep_previous=True)

    def finish(self, session: Session, saved: dict[str, Any]) -> None:
        """The weights to use; a fit that diverged leaves its last good save as it is."""
        if saved["stopped"] != "diverged":
            self.save(session)
        if self.folder is not None and self.leads:
            checkpoint.save(self._path(MODEL), saved)

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / "checkpoints" / name
