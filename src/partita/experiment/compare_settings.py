"""The settings of a comparison: as the command line gives them, and as they are saved."""

import json
import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path

from partita.core.checks import check_count, check_real
from partita.errors import RunError, invalid
from partita.runtime.atomic_files import write_whole
from partita.runtime.untrusted import inside, read_json, read_record, sealed, unsealed
from partita.training.run import MEANT

PLAN = "comparison.json"  # the settings, in the folder of a comparison


@dataclass(frozen=True)
class CompareSettings:
    """What is compared and how, as it is saved.

    Arguments:
        data: A name or a path.
        models: Names of families; empty for all that the data allow.
        settings: ``key=value`` for every fit, ``family.key=value`` for one family.
        minutes: For all together.
        epochs: For each, in place of minutes.
        evaluator: Of log Z.
        seed: Of every candidate alike.
        columns: ``name=kind``, of columns of a table.
        model: One family that is fitted by several objectives, in place of ``models``; empty to
            compare families.
        objectives: Their names, or ``all``.
    """

    data: str
    models: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    minutes: float | None = None
    epochs: int | None = None
    evaluator: str = "auto"
    seed: int = 0
    columns: list[str] = field(default_factory=list)
    model: str = ""
    objectives: list[str] = field(default_factory=list)

    @property
    def command(self) -> str:
        """The command that makes the same comparison again."""
        words = ["partita", "compare", self.data]
        if self.models:
            words += ["--models", ",".join(self.models)]
        if self.model:
            words += ["--model", self.model, "--objectives", ",".join(self.objectives)]
        words += [word for pair in self.settings for word in ("--set", pair)]
        words += [word for pair in self.columns for word in ("--column", pair)]
        for name in ("minutes", "epochs", "evaluator", "seed"):
            if getattr(self, name) is not None:
                words.append(f"--{name}={getattr(self, name)}")
        return shlex.join(words)

    def check_time(self) -> None:
        """Minutes for all or epochs for each, not both."""
        if self.minutes is not None:
            check_real("compare", "--minutes", self.minutes, 0, open_low=True)
        if self.epochs is not None:
            check_count("compare", "--epochs", self.epochs)
        if self.minutes is not None and self.epochs is not None:
            raise invalid("compare", "one of --minutes and --epochs", "be given", "both")


def read_settings(folder: Path) -> CompareSettings:
    """The settings of the comparison in a folder."""
    if not (folder / PLAN).exists():
        made = "the folder of a comparison, as `partita compare DATA` makes"
        raise RunError(f"compare: --resume must be {made}; found no {PLAN} in {folder}.")
    saved, whole = unsealed(read_json(inside(folder, PLAN), dict))
    request = read_record(CompareSettings, saved, PLAN)
    check_count("compare", "the seed of the comparison", request.seed, 0)
    if not whole:
        raise RunError(
            f"compare: {folder / PLAN} must be as partita wrote it, to go on with the comparison; "
            f"got a changed one. {MEANT}"
        )
    return request


def keep(folder: Path, request: CompareSettings) -> None:
    """Save the settings; a folder that holds another comparison is left as it is."""
    if (folder / PLAN).exists():
        before = asdict(read_settings(folder))
        for name, value in asdict(request).items():
            if value != before[name]:
                raise RunError(
                    f"compare: {name} must be that of the comparison in {folder}, "
                    f"{before[name]!r}, to go on with it; got {value!r}. Choose another --out."
                )
        return
    if (folder / "config.json").exists():
        raise RunError(
            f"compare: --out must be a new folder or that of a comparison; {folder} holds a run. "
            "Choose another name."
        )
    write_whole(folder / PLAN, json.dumps(sealed(asdict(request)), indent=2) + "\n")
