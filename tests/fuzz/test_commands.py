"""The command line: any words, options and values give a result, or one sentence and exit code 1 or 2; never a traceback."""

import functools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import typer
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import files, junk
from tests.fuzz.cases import bounded, cases
from tests.fuzz.commands import command, explain

from partita.cli.app import app
from partita.cli.lab import LABS
from partita.training.families import FAMILIES, Family

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
TEXTS = ("", " ", "x", "-", "--", "-1", "auto", "none", "nan", "é", "a,b", "=", "a=b", "../x", "[1", '{"a": 1}', "%s", "rbm", "test")
WHOLE = ("0", "1", "2", "-1", "1.5", "x", "", "nan", "1e3", "99999999999999999999999", "-0", "0x10", "１")
REAL = ("0", "0.5", "-1", "nan", "inf", "1e400", "x", "", "1e-9")
FEW = {"devices": ("0", "-1", "x", "1"), "nodes": ("0", "-1", "x"), "minutes": ("0", "-1", "nan", "inf", "x", "")}  # others take long
QUICK = {"n": ("1", "3"), "burn_in": ("0", "2"), "length": ("1", "3"), "epochs": ("1",)}
VALUES = ("0", "1", "2", "-1", "0.5", "nan", "inf", "1e400", "x", "", "auto", "none", "true", "[]", "[2, 2]", "[0]", '{"a": 1}', '"x"',
          "[[[1]]]", "10000000000000", "9" * 30, "1e300", "9" * 5000)  # fmt: skip
LONG = ("steps", "epochs", "minutes", "k", "restarts", "max_components", "chains", "validations", "critic_steps", "noise_ratio", "samples")
SMALL = ("0", "1", "2", "-1", "0.5", "nan", "x", "none", "[]", '{"a": 1}', "true")
OF_FITS = ("batch_size", "learning_rate", "optimizer", "l2", "binarize", "patience", "average", "steps", "momentum", "clip", "schedule")
TABLES = ("binary.csv", "binary.csv", "real.csv", "real.npy", "mixed.csv", "words.txt", "whole.npy", "aligned.fasta", "gaps.csv")
MODELS = (*FAMILIES, "x", "", "RBM", "rmb")


@functools.cache
def workshop() -> tempfile.TemporaryDirectory:
    """A folder with good and bad files, and runs of three families."""
    place = tempfile.TemporaryDirectory(prefix="partita-fuzz-cli-")
    for name, raw in files.good().items():
        (Path(place.name) / name).write_bytes(raw)
    (Path(place.name) / "binary.csv").write_text("a,b,c\n" + "0,1,1\n1,0,1\n1,1,0\n0,0,1\n" * 4)
    (Path(place.name) / "gaps.csv").write_text("a,b,c\n0,1,1\n1,,1\n,1,0\n0,0,1\n")
    (Path(place.name) / "broken.npz").write_bytes(files.good()["one.npz"][:100])
    (Path(place.name) / "empty").mkdir()
    with inside(place.name):
        for name, model, data in (("one", "rbm", "binary.csv"), ("two", "mixture", "mixed.csv"), ("three", "autoregressive", "words.txt")):
            small = ["--set", "length=4"] if name == "three" else []
            result = command("fit", model, data, "--epochs", "1", "--out", name, "--no-report", *small)
            assert result.exit_code == 0, result.output
    return place


@contextmanager
def inside(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


LONG_NAME = "a" * 300
RUNS = ("one", "one", "two", "three", "nowhere", "", "real.csv", "empty", "..", LONG_NAME)
DATA = (*sorted(files.good()), "binary.csv", "gaps.csv", "broken.npz", "nope.csv", "nope", "", "empty", "one.npz:x", "one.npz:y", ":")
OUT = ("out.csv", "out.parquet", "out.npz", "out.html", "out.png", "new/out.csv", "", "empty", "real.csv/x.csv", "out", LONG_NAME)


def values_of(parameter: Any, verb: str) -> st.SearchStrategy[str]:
    """Values for a parameter of a command, by its name and its type."""
    name = parameter.name or ""
    if name in FEW:
        return st.sampled_from(FEW[name])
    if name in ("run", "resume", "folder"):
        return st.sampled_from(RUNS)
    if name == "model" or (verb == "fit" and name == "models"):
        return st.sampled_from(MODELS)
    if name == "models":
        return st.sampled_from(("ppca", "ppca,mixture", "x", ",", "rbm,rbm", "ppca,x"))
    if name == "objectives":
        return st.sampled_from(("cd", "exact,cd", "x", ","))
    if name in ("data", "normal"):
        return st.sampled_from(DATA)
    if name in ("out", "png"):
        return st.sampled_from(OUT)
    if name == "name":
        return st.sampled_from((*LABS, "x", ""))
    if name == "settings":
        return pairs(verb)
    if name == "column":
        return st.builds("{}={}".format, st.sampled_from(("a", "age", "*", "x1", "")), st.sampled_from(("real", "count", "ignore", "x")))
    if parameter.type_descriptor.annotation is int:
        return st.sampled_from((*QUICK.get(name, ()) * 3, *WHOLE))
    return st.sampled_from(REAL if parameter.type_descriptor.annotation is float else TEXTS)


def pairs(verb: str, family: str = "") -> st.SearchStrategy[str]:
    """``key=value`` for ``--set``: keys that exist, mostly."""
    if verb == "lab":
        keys = sorted({key for lab in LABS.values() for key in lab.settings})
        return st.builds("{}={}".format, st.sampled_from(keys), st.sampled_from(SMALL))
    known = [FAMILIES[family]] if family in FAMILIES else FAMILIES.values()
    own = sorted({key for one in known for key in one.settings})
    keys = st.sampled_from([*own * (5 if family else 1), *OF_FITS, "nonsense", ""])
    prefix = st.sampled_from(["", "ppca.", "x."]) if verb == "compare" else st.just("")
    return st.tuples(prefix, keys).flatmap(lambda key: st.builds((key[0] + key[1] + "={}").format, said(known, key[1])))


def said(families: Iterable[Family], key: str) -> st.SearchStrategy[str]:
    """Values for a key: odd ones, and words that its meaning names."""
    words = {word for one in families if key in one.settings for word in re.findall(r"[a-z-]{2,}", one.settings[key].meaning)}
    odd = st.sampled_from(SMALL if key in LONG else VALUES)
    return st.one_of(odd, odd, st.sampled_from(sorted(words))) if words else odd


@st.composite
def fits(draw: st.DrawFn) -> list[str]:
    """A fit of a family to a table, with one to three odd settings."""
    family, table = draw(st.sampled_from(sorted(FAMILIES))), draw(st.sampled_from(TABLES))
    words = [word for pair in draw(st.lists(pairs("fit", family), min_size=1, max_size=3)) for word in ("--set", pair)]
    return ["fit", family, table, "--epochs", "1", "--no-report", "--quiet", *words]


def options_of(verb: str) -> list[Any]:
    """The options of a command, as the command line itself knows them."""
    return [p for p in COMMANDS[verb].params if p.param_type_name == "option" and p.name != "help"]


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    """Words of one command, of which most make sense."""
    verb = draw(st.sampled_from([*COMMANDS, "fit", "fit", "fit", "evaluate", "sample"]))
    words, options = [verb], options_of(verb)
    for parameter in COMMANDS[verb].params:
        if parameter.param_type_name == "argument" and draw(st.integers(0, 9)):
            words.append(draw(values_of(parameter, verb)))
    chosen = draw(st.lists(st.sampled_from(options), max_size=4)) if options else []
    for option in chosen:
        flag = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
        words += [flag] if option.is_flag else [flag, draw(values_of(option, verb))]
    names = {option.name for option in chosen}
    if verb in ("fit", "compare") and not names & {"minutes", "epochs", "resume"}:
        words += ["--epochs", "1"]
    if verb == "fit" and "page" not in names:
        words.append("--no-report")
    if verb == "compare" and not names & {"models", "model", "objectives", "resume"}:
        words += ["--models", "ppca", "--no-report"]
    if verb == "lab" and "settings" not in names:
        words += ["--set", "nonsense=1"]
    if not draw(st.integers(0, 9)):
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from((*TEXTS, "--nonsense", "-x", "--help", "--version"))))
    return words


def test_options_and_their_types_are_known() -> None:
    """Without them the commands below would be bare words."""
    known = {option.name: option.type_descriptor.annotation for option in options_of("sample")}
    assert known["burn_in"] is int and known["temperature"] is float and known["prompt"] is str


@cases(0.06)
@given(commands())
def test_commands(words: list[str]) -> None:
    carry_out(words)


@cases(0.08)
@given(fits())
def test_settings_of_fits(words: list[str]) -> None:
    carry_out(words)


@st.composite
def uses(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    """A run, its config with odd places, and a command that opens it."""
    run, verb = draw(st.sampled_from(("one", "two", "three"))), draw(st.sampled_from(("evaluate", "sample", "report", "cluster", "impute")))
    config = draw(junk.changed_json(json.loads((Path(workshop().name) / run / "config.json").read_text())))
    table = {"one": "gaps.csv", "two": "mixed.csv", "three": "words.txt"}[run]
    more = {"evaluate": draw(st.sampled_from(([], [table]))), "sample": ["-n", "2", "--burn-in", "2"], "report": []}.get(verb, [table])
    return run, junk.as_text(config), [verb, run, *more]


@cases(0.05)
@given(uses())
def test_runs_with_odd_configs(case: tuple[str, str, list[str]]) -> None:
    run, config, words = case
    carry_out(words, {f"{run}/config.json": config})


def carry_out(words: list[str], written: Mapping[str, str] = MappingProxyType({})) -> None:
    """A command in a folder of its own, some of whose files are others."""
    with tempfile.TemporaryDirectory(prefix="partita-fuzz-case-") as place:
        folder = shutil.copytree(workshop().name, place, dirs_exist_ok=True)
        for name, text in written.items():
            (Path(folder) / name).write_text(text)
        with inside(folder), bounded():
            result = command(*words)
    explain(result)
