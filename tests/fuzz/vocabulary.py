"""What is said on the command line: words that make sense, so that commands come to do their work,
and odd ones among them.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import typer
from hypothesis import strategies as st
from tests.fuzz import files

from partita.cli.app import app
from partita.cli.lab import LABS
from partita.families import FAMILIES, Family

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
FITTED = {
    "one": ("rbm", "binary.csv"),
    "two": ("mixture", "mixed.csv"),
    "three": ("autoregressive", "words.txt", "--set", "length=4"),
    "four": ("vae", "real.csv", "--set", "n_latent=1"),
    "five": ("rbm", "bits.npy"),
}

# odd words, by the name of a parameter or by its type
LONG_NAME, HUGE = "a" * 300, ("10000000000000", "9" * 30, "9" * 400, "9" * 5000)
TEXTS = (
    "",
    " ",
    "x",
    "-",
    "--",
    "-1",
    "auto",
    "none",
    "nan",
    "é",
    "a,b",
    "=",
    "a=b",
    "../x",
    "[1",
    '{"a": 1}',
    "%s",
    "rbm",
    "\udcff",
)
WHOLE = ("0", "-1", "1.5", "x", "", "nan", "1e3", "99999999999999999999999", "-0", "0x10", "１")
REAL = ("0", "0.5", "-1", "nan", "inf", "1e400", "x", "", "1e-9")
RUNS = ("nowhere", "", "real.csv", "empty", "..", LONG_NAME)
DATA = (
    *files.good(),
    *files.odd(),
    "binary.csv",
    "gaps.csv",
    "nope.csv",
    "nope",
    "",
    "empty",
    "one.npz:x",
    "one.npz:y",
    ":",
)
OUT = (
    "out.txt",
    "out.png",
    "new/out.csv",
    "",
    "empty",
    "real.csv/x.csv",
    "out",
    "one",
    "/proc/x.csv",
    LONG_NAME,
)
ODD: dict[str, tuple[str, ...]] = {
    "run": RUNS,
    "resume": RUNS,
    "folder": RUNS,
    "data": DATA,
    "normal": DATA,
    "out": OUT,
    "png": OUT,
    "name": ("x", ""),
    "model": ("x", "", "RBM", "rmb", *FAMILIES),
    "models": ("x", ",", "rbm,rbm", "ppca,x"),
    "objectives": ("x", ","),
    "column": ("a=count", "=real", "x1=x", "age", "a=category", "*=ignore"),
    "split": ("valid", "x"),
    "strategy": ("x",),
    "evaluator": (
        "quadrature",
        "iwae",
        "iwae-0",
        "filter-2",
        "latent-ais-2",
        "x",
        *(f"iwae-{n}" for n in HUGE),
    ),
    # others take long
    "devices": ("0", "-1", "x"),
    "nodes": ("0", "-1", "x"),
    "minutes": ("0", "-1", "nan", "inf", "x", ""),
}

# words that make sense
OUTS = {"fit": ("out",), "compare": ("out",), "report": ("out.html",), "lab": ("out.html",)}
USUAL: dict[str, tuple[str, ...]] = {
    "seed": ("0", "7"),
    "n": ("1", "3"),
    "burn_in": ("0", "2"),
    "length": ("1", "3"),
    "epochs": ("1", "2"),
    "minutes": ("1e-9", "1e-4"),
    "temperature": ("0.5", "1", "2"),
    "top_p": ("0.5", "1"),
    "alpha": ("0.01", "0.5", "1"),
    "prompt": ("the", "t", ""),
    "png": ("out.png",),
    "evaluator": ("auto", "enumeration", "iwae-2"),
    "split": ("test", "train"),
    "how": ("auto", "mean", "mode", "draw"),
    "guard": ("stop", "rollback"),
    "strategy": ("ddp",),
    "devices": ("1",),
    "nodes": ("1",),
    "name": tuple(LABS),
    "resume": ("one",),
    "model": ("rbm",),
    "models": ("mixture", "rbm", "ppca,mixture"),
    "objectives": ("cd", "exact,cd"),
    "column": ("*=real", "age=real"),
}

# settings of fits and labs
VALUES = (
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "nan",
    "inf",
    "1e400",
    "x",
    "",
    "auto",
    "none",
    "true",
    "[]",
    "[2, 2]",
    "[0]",
    '{"a": 1}',
    '"x"',
    "[[[1]]]",
    "1e300",
    *HUGE,
    "[" * 100_000,
)
SMALL = ("0", "1", "2", "-1", "0.5", "nan", "x", "none", "[]", '{"a": 1}', "true")
LONG = (
    "steps",
    "epochs",
    "minutes",
    "k",
    "restarts",
    "max_components",
    "chains",
    "validations",
    "critic_steps",
    "noise_ratio",
    "samples",
)
OF_FITS = {
    "batch_size": "5",
    "learning_rate": "0.01",
    "optimizer": "adam",
    "l2": "0.1",
    "binarize": "none",
    "patience": "1",
    "clip": "1",
    "average": "0.5",
    "steps": "2",
    "momentum": "0.5",
    "schedule": "cosine",
    "guard": "rollback",
}
QUICK_LABS = {
    "memory": ("length=8", "width=8", "draws=2"),
    "partition": ("visible=3", "n_hidden=2", "temperatures=5", "n_chains=4"),
    "no-free-lunch": ("width=2", "height=2", "train=2"),
    "gradients": ("bits=2", "draws=100"),
}
TABLES = (
    "binary.csv",
    "real.csv",
    "real.npy",
    "mixed.csv",
    "words.txt",
    "whole.npy",
    "aligned.fasta",
    "gaps.csv",
)
SUITED = {
    **dict.fromkeys(("boltzmann", "ising", "maxent"), ("binary.csv",)),
    **dict.fromkeys(("mixture", "vae"), ("binary.csv", "real.csv", "mixed.csv")),
    **dict.fromkeys(
        ("dpmm", "flow", "gan", "latent-energy", "ppca", "mixture-ppca"), ("real.csv",)
    ),
    **dict.fromkeys(("hyena", "ssm", "attention", "conv", "lstm"), ("words.txt", "series.npy")),
}


def options_of(verb: str) -> list[Any]:
    """The options of a command, as the command line itself knows them."""
    return [p for p in COMMANDS[verb].params if p.param_type_name == "option" and p.name != "help"]


def usual_of(name: str, verb: str, run: str) -> tuple[str, ...]:
    """Words that make sense for a parameter of a command that is about a run."""
    family, table = FITTED[run][:2]
    if name == "out":
        return OUTS.get(verb, ("out.csv", "out.parquet", "out.npz"))
    if name == "model" and verb == "fit":
        return (family,)
    return {"run": (run,), "folder": (run,), "data": (table,), "normal": (table,)}.get(
        name
    ) or USUAL.get(name, ("x",))


def _odd(parameter: Any) -> tuple[str, ...]:
    of_type = {int: WHOLE, float: REAL}.get(parameter.type_descriptor.annotation, TEXTS)
    return ODD.get(parameter.name, of_type)


@st.composite
def values_of(draw: st.DrawFn, parameter: Any, verb: str, run: str) -> str:
    """A word for a parameter of a command, of which one in four is odd."""
    if parameter.name == "settings":
        return draw(pairs(verb, FITTED[run][0] if verb == "fit" else ""))
    return draw(
        st.sampled_from(
            usual_of(parameter.name, verb, run) if draw(st.integers(0, 3)) else _odd(parameter)
        )
    )


def pairs(verb: str, family: str = "") -> st.SearchStrategy[str]:
    """``key=value`` for ``--set``: keys that exist, mostly."""
    if verb == "lab":
        keys = sorted({key for lab in LABS.values() for key in lab.settings})
        return st.builds("{}={}".format, st.sampled_from(keys), st.sampled_from(SMALL))
    known = [FAMILIES[family]] if family in FAMILIES else list(FAMILIES.values())
    own = sorted({key for one in known for key in one.settings})
    keys = st.sampled_from([*own * (5 if family else 1), *OF_FITS, "nonsense", ""])
    prefix = st.sampled_from(["", "ppca.", "x."]) if verb == "compare" else st.just("")
    return st.tuples(prefix, keys).flatmap(
        lambda key: st.builds((key[0] + key[1] + "={}").format, said(known, key[1]))
    )


def said(families: Iterable[Family], key: str) -> st.SearchStrategy[str]:
    """Values for a key: what it usually is, words that its meaning names, small numbers, and odd
    ones.
    """
    settings = [one.settings[key] for one in families if key in one.settings]
    words = {word for setting in settings for word in re.findall(r"[a-z-]{2,}", setting.meaning)}
    defaults = {json.dumps(setting.default).strip('"') for setting in settings} | {
        OF_FITS.get(key, "2")
    }
    odd = st.sampled_from(SMALL if key in LONG else VALUES)
    usual = st.sampled_from(sorted(defaults | {"1", "2"}))
    return st.one_of(odd, usual, st.sampled_from(sorted(words))) if words else st.one_of(odd, usual)


@st.composite
def fits(draw: st.DrawFn) -> list[str]:
    """A fit of a family to a table, mostly one that it takes, with one to three settings of which
    some are odd.
    """
    family = draw(st.sampled_from(sorted(FAMILIES)))
    table = draw(st.sampled_from((*SUITED.get(family, TABLES[:2]) * 4, *TABLES)))
    usual = ["length=4"] if "length" in FAMILIES[family].settings else []
    chosen = [*usual, *draw(st.lists(pairs("fit", family), min_size=1, max_size=3))]
    return [
        "fit",
        family,
        table,
        "--epochs",
        "1",
        "--no-report",
        "--quiet",
        *(word for pair in chosen for word in ("--set", pair)),
    ]


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    """Words of one command, of which most make sense."""
    verb = draw(st.sampled_from([*COMMANDS, "fit", "evaluate", "sample"]))
    run = draw(st.sampled_from(sorted(FITTED)))
    words, options = [verb], options_of(verb)
    for parameter in COMMANDS[verb].params:
        if parameter.param_type_name == "argument" and draw(st.integers(0, 19)):
            words.append(draw(values_of(parameter, verb, run)))
    words += [
        word for pair in QUICK_LABS.get(words[-1], ()) if verb == "lab" for word in ("--set", pair)
    ]
    chosen = draw(st.lists(st.sampled_from(options), max_size=4)) if options else []
    for option in chosen:
        flag = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
        words += [flag] if option.is_flag else [flag, draw(values_of(option, verb, run))]
    words += _kept_short(verb, {option.name for option in chosen})
    if not draw(st.integers(0, 9)):
        of_others = (option.opts[0] for other in COMMANDS for option in options_of(other))
        strange = st.sampled_from((*TEXTS, "--nonsense", "-x", "--help", "--version", *of_others))
        words.insert(draw(st.integers(0, len(words))), draw(strange))
    return words


def _kept_short(verb: str, said: set[str]) -> list[str]:
    """What keeps a command from taking long, where its words do not."""
    words = []
    if verb in ("fit", "compare") and not said & {"minutes", "epochs", "resume"}:
        words += ["--epochs", "1"]
    if verb in ("fit", "compare") and "page" not in said:
        words.append("--no-report")
    if verb == "compare" and not said & {"models", "model", "objectives", "resume"}:
        words += ["--models", "mixture"]
    return words
