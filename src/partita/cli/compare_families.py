"""``partita compare DATA``: every family that the data allow, in one time, on one leaderboard; what is done is kept."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import typer

from partita.cli import leaderboard, show
from partita.cli.fit import describe_data
from partita.cli.runs import free_path, short_name
from partita.cli.values import DATA_KEYS, parse_columns, parse_value
from partita.core.checks import check_count, check_real
from partita.core.errors import PartitaError, RunError, invalid
from partita.data import Dataset
from partita.data import load as load_data
from partita.training import Settings
from partita.training.bake_off import Contender, Entry
from partita.training.contenders import contenders_by_family
from partita.training.contest import Contest
from partita.training.families import family_named, named_evaluator, unknown_setting
from partita.training.paired import ranking

PLAN = "comparison.json"  # what was asked for, in the folder of a comparison
MINUTES = 0.5  # for each family, where nothing is said


@dataclass(frozen=True)
class Asked:
    """What a comparison is asked for, as it is saved.

    Arguments:
        data: A name or a path.
        models: Names of families; empty for all that the data allow.
        settings: ``key=value`` for every fit, ``family.key=value`` for one family.
        minutes: For all together.
        epochs: For each, in place of minutes.
        evaluator: Of log Z.
        seed: Of every contender alike.
        columns: ``name=kind``, of columns of a table.
    """

    data: str
    models: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    minutes: float | None = None
    epochs: int | None = None
    evaluator: str = "auto"
    seed: int = 0
    columns: list[str] = field(default_factory=list)

    @property
    def command(self) -> str:
        """What asks for the same again."""
        words = ["partita", "compare", self.data, *(["--models", ",".join(self.models)] if self.models else [])]
        words += [word for pair in self.settings for word in ("--set", pair)]
        words += [word for pair in self.columns for word in ("--column", pair)]
        options = {"minutes": self.minutes, "epochs": self.epochs, "evaluator": self.evaluator, "seed": self.seed}
        return shlex.join([*words, *(f"--{name}={value}" for name, value in options.items() if value is not None)])


def report(asked: Asked, out: Path | None, *, page: bool = True, as_json: bool = False, quiet: bool = False) -> list[Entry]:
    """Fit all, score all on the same rows, show and save the leaderboard and the page about it."""
    _check_time(asked)
    of_families, options, of_data = sort_pairs(asked.settings)
    binarize = of_data.get("binarize", "auto")
    evaluator = named_evaluator(asked.evaluator, "compare")
    dataset = load_data(asked.data, binarize="none" if binarize is None else binarize, words=True, missing=True,
                        asked=parse_columns(asked.columns, "compare") or None)  # fmt: skip
    contenders, left_out = contenders_by_family(asked.models, of_families, dataset)
    if not contenders:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise invalid("compare", "DATA", "be a table that at least one family can be compared on", f"none ({reasons})")
    folder = free_path(Path("runs") / f"compare-{short_name(asked.data)}") if out is None else out
    about = {"data": describe_data(asked.data, dataset), "command": asked.command}
    _keep_plan(folder, Asked(**{**asdict(asked), "data": about["data"]["source"]}))
    options |= {} if asked.epochs is None else {"epochs": asked.epochs}
    total = None if asked.epochs is not None else MINUTES * len(contenders) if asked.minutes is None else asked.minutes
    contest = Contest(dataset, options, None, evaluator, asked.seed, folder, about, total)
    title = f"{dataset.name}: {len(contest.scored)} {'training' if dataset.test is None else 'test'} rows, {dataset.train.width} columns"
    entries = _carry_out(contest, contenders, title, left_out, talk=not (as_json or quiet))
    interrupted = any(entry.run is not None and entry.run.stopped == "interrupted" for entry in entries)
    written = _write_page(folder) if page and not interrupted else None
    if as_json:
        show.print_json({**_board(contest, title, entries, left_out), "report": None if written is None else str(written)})
    else:
        _print(contest, title, entries, left_out, written)
    if interrupted:
        typer.echo(f"Interrupted; what is done is saved. Go on with: partita compare --resume {folder}", err=True)
        raise typer.Exit(130)
    return entries


def _check_time(asked: Asked) -> None:
    if asked.minutes is not None:
        check_real("compare", "--minutes", asked.minutes, 0, open_low=True)
    if asked.epochs is not None:
        check_count("compare", "--epochs", asked.epochs)
    if asked.minutes is not None and asked.epochs is not None:
        raise invalid("compare", "one of --minutes and --epochs", "be given", "both")


def resumed(folder: Path) -> Asked:
    """What the comparison in a folder was asked for."""
    path = folder / PLAN
    if not path.exists():
        made = "the folder of a comparison of families, as `partita compare DATA` makes"
        raise RunError(f"compare: --resume must be {made}; found no {PLAN} in {folder}.")
    try:
        return Asked(**json.loads(path.read_text()))
    except (ValueError, TypeError):
        raise RunError(f"compare: {path} must say what was compared; got a damaged file.") from None


def sort_pairs(pairs: Sequence[str]) -> tuple[dict[str, dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """``family.key=value`` to that family, ``key=value`` to every fit or to the data.

    >>> sort_pairs(["rbm.hidden=9", "batch_size=50", "binarize=none"])
    ({'rbm': {'hidden': 9}}, {'batch_size': 50}, {'binarize': None})
    """
    of_families: dict[str, dict[str, Any]] = {}
    options: dict[str, Any] = {}
    of_data: dict[str, Any] = {}
    known = [setting.name for setting in fields(Settings)]
    for pair in pairs:
        key, equals, text = pair.partition("=")
        name, dot, setting = key.partition(".")
        if not equals or not key:
            raise invalid("compare", "--set", "be key=value or family.key=value", repr(pair), "As in --set rbm.hidden=100.")
        if dot:
            family = family_named(name)
            family.resolve({setting: None})
            of_families.setdefault(name, {})[setting] = parse_value(text)
        elif key in (*known, *DATA_KEYS):
            (of_data if key in DATA_KEYS else options)[key] = parse_value(text)
        else:
            raise unknown_setting("compare --set", key, [*known, *DATA_KEYS])
    return of_families, options, of_data


def _keep_plan(folder: Path, asked: Asked) -> None:
    """Save what was asked for; a folder that holds another comparison is left as it is."""
    if (folder / PLAN).exists():
        before = asdict(resumed(folder))
        for name, value in asdict(asked).items():
            if value != before[name]:
                raise RunError(f"compare: {name} must be that of the comparison in {folder}, {before[name]!r}, to go on with it; "
                               f"got {value!r}. Choose another --out.")  # fmt: skip
        return
    if (folder / "config.json").exists():
        raise RunError(f"compare: --out must be a new folder or that of a comparison; {folder} holds a run. Choose another name.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PLAN).write_text(json.dumps(asdict(asked), indent=2) + "\n")


def _carry_out(contest: Contest, contenders: Sequence[Contender], title: str, left_out: dict[str, str], talk: bool) -> list[Entry]:
    """Every contender in turn; the leaderboard so far is saved after each."""
    if talk:
        time = "as long as the epochs take" if contest.total is None else f"about {contest.total:g} minutes for all"
        typer.echo(f"{title}. {len(contenders)} families, {time}.")
    width, folder = contest.dataset.train.width, contest.out
    assert folder is not None
    try:
        with leaderboard.Watch(contenders, width, talk) as watch:
            for entry in contest.run(contenders, watch.begin):
                watch.done(entry)
                leaderboard.save(folder, _board(contest, title, watch.entries, left_out))
    except KeyboardInterrupt:
        typer.echo(f"Stopped at once; what is done is saved. Go on with: partita compare --resume {folder}", err=True)
        raise typer.Exit(130) from None
    return watch.entries


def _board(contest: Contest, title: str, entries: Sequence[Entry], left_out: dict[str, str]) -> dict[str, Any]:
    lines = [leaderboard.place_json(place, contest.dataset.train.width) for place in ranking(entries)]
    return {"title": title, "folder": str(contest.out), "entries": lines, "left_out": left_out}


def _write_page(folder: Path) -> Path | None:
    """The page about the comparison; what hinders it is a caution, for the leaderboard itself is whole."""
    from partita.cli.report import write

    try:
        return write(folder)
    except (PartitaError, OSError) as error:
        show.caution(f"no report was written: {error}")
    except KeyboardInterrupt:
        show.caution(f"no report was written: interrupted. Write it with: partita report {folder}")
    return None


def _print(contest: Contest, title: str, entries: Sequence[Entry], left_out: dict[str, str], page: Path | None) -> None:
    dataset: Dataset = contest.dataset
    leaderboard.print_board(title, entries, dataset.train.width, left_out, dataset.entropy)
    for entry in entries:
        for text in [] if entry.run is None else entry.run.cautions:
            show.caution(f"{entry.name}: {text}")
    typer.echo(f"Runs and leaderboard.json, leaderboard.csv are in {contest.out}" + ("" if page is None else f"\nReport: {page}"))
