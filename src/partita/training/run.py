"""A run: a model, how it was fitted and what was recorded; on disk a folder that never needs code
to be read.

``config.json`` (with a format version), ``metrics.jsonl``, ``checkpoints/last.safetensors``
(everything, to resume) and ``checkpoints/model.safetensors`` (the weights to use, and beside them
the last and the averaged ones). A folder holds a run from the moment its ``config.json`` exists,
which is written after the first checkpoint; every checkpoint stands for a whole fit, to which the
records are rewound.
"""

import json
import platform
import warnings
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from partita.core import registry
from partita.core.arguments import check_flag
from partita.core.protocols import EnergyModel, Model
from partita.errors import Parameter, PartitaWarning, RunError, TooLarge
from partita.runtime import files, processes
from partita.runtime.files import (
    Json,
    JsonObject,
    Shape,
    check_like,
    inside,
    read_json,
    sealed,
    unsealed,
    write_whole,
)
from partita.runtime.memory_limit import Bounded
from partita.training import checkpoint
from partita.training.checkpoint import Tree
from partita.training.history import History, Record, read_records, recorded_series
from partita.training.session import Session, in_half
from partita.training.settings import Learner

FORMAT = 2
SHAPE: Shape = {  # of what is read from config.json
    "model": {"name": str, "dtype": str},
    "objective": dict,
    "fit": dict,
    "family": {"name": str, "settings": dict},
    "encoding": dict,
    "data": {
        "name": str,
        "source": str,
        "binarize": (str, float),
        "rows": [int],
        "shape": [int],
        "columns": [str],
        "reading": {"length": int, "tokens": str, "encoding": str, "symbols": str},
        "schema": [dict],
    },
    "estimator": {"name": str, "parameters": dict, "key": int, "columns": [str], "schema": [dict]},
    "rows": [int],
    "seed": int,
    "steps": int,
    "key": int,
    "command": str,
    "versions": dict,
    "remarks": [str],
    "cuts": [str],
    "validated": bool,
}
# of what is read from a checkpoint of a model
SAVED = {"weights": dict, "step": int, "stopped": str, "warnings": [str]}
# numbers that building a model may take for each that is saved, and whatever is saved
ROOM, SMALL = 16, 1 << 22
MEANT = "Restore it, or take its checksum out if the change is meant."
CHANGED = f"config.json has changed since partita wrote it. {MEANT}"
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
}

LAST, MODEL, METRICS = "last.safetensors", "model.safetensors", "metrics.jsonl"
# the length of a fit is fixed when it begins
PLAN = ("epochs", "steps", "minutes", "validations")


@dataclass
class Run:
    """What a fit leaves.

    Arguments:
        model: With the weights to use: the best validated, else the averaged ones.
        history: Records by step.
        config: Model, objective, settings, data and versions as JSON.
        steps: Updates made.
        stopped: Why it ended: ``finished``, ``converged`` (at a minimum, as far as rounding lets
            one see), ``stalled`` (the loss falls no further though its gradient is not small),
            ``early stop``, ``out of time``, ``interrupted`` or ``diverged``.
        warnings: What looked wrong, one sentence each.
        folder: Where it is saved, if it is.
    """

    model: Model = field(repr=False)
    history: list[Record] = field(repr=False)
    config: JsonObject = field(repr=False)
    steps: int
    stopped: str = "finished"
    warnings: list[str] = field(default_factory=list)
    folder: Path | None = None

    def series(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one recorded number."""
        return recorded_series(self.history, name)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM met a fit, which ended between two steps; it is saved if it has a folder.

    Arguments:
        run: What the fit left.
    """

    def __init__(self, run: Run) -> None:
        way_on = "it has no folder (out=), so it cannot be resumed."
        if run.folder is not None:
            way_on = f"it is saved in {run.folder}. Go on with resume=True."
        super().__init__(f"fit: interrupted after {run.steps:,} steps; {way_on}")
        self.run = run


def make_config(model: Model, objective: Learner, settings: JsonObject, **more: Json) -> JsonObject:
    """The JSON from which a run is understood and resumed."""
    return {
        "format": FORMAT,
        "model": {
            "name": type(model).__name__,
            "dtype": str(model.like.dtype).removeprefix("torch."),
            **model.settings(),
        },
        "objective": registry.describe_part(objective),
        "fit": settings,
        **more,
        "versions": {
            "partita": version("partita"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def check_new(folder: Path) -> None:
    """An existing run is never written over."""
    if (folder / "config.json").exists():
        raise RunError(
            f"fit: out must be a new folder; {folder} already holds a run. Choose another name, or "
            "resume it."
        )


def write_config(folder: Path, config: JsonObject) -> None:
    """Write ``config.json``, whole or not at all, with a checksum."""
    write_whole(folder / "config.json", json.dumps(sealed(config), indent=2) + "\n")


def read_config(folder: str | Path) -> JsonObject:
    """Read ``config.json``, or say in one sentence why it cannot be read."""
    return _read_config(folder)[0]


def _read_config(folder: str | Path) -> tuple[JsonObject, bool]:
    """The config, and whether it is as it was written."""
    if not isinstance(folder, str | Path):
        raise RunError(
            f"load: RUN must be the path of a run's folder; got {type(folder).__name__}. For data "
            "use partita.datasets.load."
        )
    path = inside(Path(folder), "config.json")
    if not path.exists():
        raise RunError(
            "load: RUN must be a folder with a config.json, as `partita fit` makes; found none in "
            f"{folder}."
        )
    config = read_json(path)
    made = config.get("format") if isinstance(config, dict) else "no object"
    model = config.get("model") if isinstance(config, dict) else None
    if made != FORMAT:
        raise RunError(
            f"load: {path} must have format {FORMAT}; got {made}. It was made by another version "
            "of partita."
        )
    if not isinstance(model, dict) or "name" not in model:
        raise RunError(f"load: {path} must name a model; got none. Restore the file, or fit again.")
    check_like(config, SHAPE, path.name)
    return unsealed(config)


def check_resumable(folder: Path, config: JsonObject) -> None:
    """Refuse to resume a run with another objective, optimizer or batch size, or on other rows: its
    state would not fit.

    A config that changed on the disk is refused too: the fit would silently end elsewhere.
    """
    made, intact = _read_config(folder)
    pairs = [(name, config[name], made.get(name)) for name in ("objective", "rows")]
    fit = made.get("fit") or {}
    pairs += [(name, config["fit"][name], fit.get(name)) for name in ("optimizer", "batch_size")]
    for name, here, there in pairs:
        if here != there:
            raise RunError(
                f"fit: {name} must be that of the run in {folder}, {there}, to resume it; got "
                f"{here}."
            )
    if not intact:
        raise RunError(
            f"fit: {folder / 'config.json'} must be as partita wrote it, to resume the run; got a "
            f"changed one. {MEANT}"
        )


def build_model(config: JsonObject, saved: int = 0) -> Model:
    """A fresh model as a config describes it, whose sizes the ``saved`` numbers of its weights can
    account for.
    """
    settings = dict(config["model"])
    name, dtype = settings.pop("name"), settings.pop("dtype", None)
    kind = registry.model_named(name)
    if dtype not in DTYPES:
        raise RunError(
            f"load: the model's dtype must be one of {', '.join(DTYPES)}; got {dtype!r}."
        )
    most = ROOM * saved + SMALL
    refusal = (
        f"load: config.json must hold the sizes of the {name} that was saved; got larger ones."
    )
    if _largest(settings) > most:
        raise TooLarge(refusal)
    try:
        with Bounded(most, refusal, together=True):
            return kind.from_settings(settings, generator=torch.Generator()).to(DTYPES[dtype])
    except (TooLarge, RunError):
        raise
    except Exception as error:  # any complaint of a constructor about settings
        raise RunError(
            f"load: config.json must hold the settings of {name}; got others "
            f"({checkpoint.reason(error)})."
        ) from error


def _numbers(tree: checkpoint.Tree) -> int:
    """How many numbers the tensors of a nested value hold."""
    if isinstance(tree, dict):
        return sum(map(_numbers, tree.values()))
    return tree.numel() if isinstance(tree, torch.Tensor) else 0


def _largest(tree: Json) -> int:
    """The largest integer in a JSON value."""
    if isinstance(tree, dict | list):
        return max(map(_largest, tree.values() if isinstance(tree, dict) else tree), default=0)
    return tree if isinstance(tree, int) else 0


def load(
    folder: str | Path,
    *,
    model: Model | None = None,
    weights: str = "use",
    allow_diverged: bool = False,
) -> Run:
    """A saved run, with its model ready to use; no code of the folder is ever executed.

    Arguments:
        folder: As ``fit(..., out=folder)`` or ``partita fit`` made it.
        model: Needed only where the model is made of functions, which are not saved.
        weights: ``"use"`` (the best validated, else averaged), ``"last"`` or ``"average"``.
        allow_diverged: Load the last good weights of a fit that diverged, which may be those it
            began with; such a run is refused otherwise.
    """
    check_flag("load", "allow_diverged", allow_diverged)
    (config, intact), folder = _read_config(folder), Path(folder)
    path = folder / "checkpoints" / "model.safetensors"
    saved = checkpoint.load_tree(path)
    checkpoint.expect(saved, path, *SAVED)
    check_like(saved, SAVED, path.name, whole=True)
    check_like(saved, {"kept": dict, "trajectory": [dict]}, path.name)
    if saved["stopped"] == "diverged" and not allow_diverged:
        remedy = ("Fit it again, or give ", Parameter("allow_diverged"), " to use what it left.")
        got = f"{folder}, which diverged at step {saved['step']:,}"
        raise RunError.about("load", "RUN", "hold a fit that succeeded", got, remedy)
    if weights not in saved["weights"]:
        names = ", ".join(map(str, saved["weights"]))
        raise RunError(f"load: weights must be one of {names}; got {weights!r}.")
    chosen = saved["weights"][weights]
    check_like(chosen, dict, "model.safetensors: weights")
    model = build_model(config, _numbers(chosen)) if model is None else model
    checkpoint.load_weights(model, chosen)
    if isinstance(model, EnergyModel):
        model.trajectory = _trajectory(model, saved.get("trajectory", []))
    return Run(
        model,
        read_records(inside(folder, "metrics.jsonl")),
        config,
        saved["step"],
        saved["stopped"],
        [
            *([] if intact else [CHANGED]),
            *config.get("remarks", []),
            *config.get("cuts", []),
            *saved["warnings"],
        ],
        folder,
    )


def _trajectory(model: EnergyModel, saved: list[Tree]) -> tuple[dict[str, Tensor], ...]:
    """The weights on the way that a file holds, all of them this model's."""
    like = in_half(dict(model.named_parameters()))
    with checkpoint.refusing(f"model.safetensors: trajectory must hold weights of {model.title()}"):
        return tuple(checkpoint.rebuild(like, weights, sizes=True) for weights in saved)


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
                files.to_disk(records)
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
