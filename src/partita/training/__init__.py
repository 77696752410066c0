"""The training loop, runs on disk, and the guard that watches a fit."""

from partita.errors import PartitaWarning
from partita.training.loop import fit
from partita.training.run import Interrupted, Run, load
from partita.training.settings import Settings

__all__ = ["Interrupted", "PartitaWarning", "Run", "Settings", "fit", "load"]
