"""The command line: any words, options and values give a result, or one sentence and exit code 1 or
2; never a traceback.
"""

import json
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from tests.fuzz import junk
from tests.fuzz.cases import cases
from tests.fuzz.vocabulary import DATA, FITTED, commands, fits, options_of
from tests.fuzz.workshop import carry_out, workshop

USES = {
    "evaluate": ("", "real.csv", "mixed.csv", "words.txt"),
    "sample": ("-n 2", "-n 2 --burn-in 2", "-n 2 --out out.parquet"),
    "report": ("",),
}  # and with what
WRITTEN = ([], ["--out", "out.parquet"], ["--out", "out.csv"])
RECORDS = [
    {
        "step": step,
        "epoch": 1.0,
        "seconds": 0.1,
        "loss": 0.5,
        "validation": -2.0,
        "event": "it diverged",
        "done": "went on",
    }
    for step in (1, 2, 3)
]


def test_options_and_their_types_are_known() -> None:
    """Without them the commands below would be bare words."""
    known = {option.name: option.type_descriptor.annotation for option in options_of("sample")}
    assert known["burn_in"] is int and known["temperature"] is float and known["prompt"] is str


@cases(0.05)
@given(commands())
@example(["evaluate", "\udcff"])
def test_commands(words: list[str]) -> None:
    carry_out(words)


@cases(0.06)
@given(fits())
@example(["fit", "vrnn", "binary.csv", "--epochs", "1", "--set", "step_columns=0"])
def test_settings_of_fits(words: list[str]) -> None:
    carry_out(words)


@st.composite
def uses(draw: st.DrawFn) -> tuple[dict[str, str], list[str]]:
    """A run whose config or records have odd places, or whose data are others, and a command that
    opens it.
    """
    run = draw(st.sampled_from(sorted(FITTED)))
    what = draw(st.sampled_from(["config", "config", "data", "records"]))
    if what == "records":
        return {
            f"{run}/metrics.jsonl": "\n".join(
                junk.as_text(draw(junk.changed_json(record))) for record in RECORDS
            )
        }, ["report", run]
    config = json.loads((Path(workshop().name) / run / "config.json").read_text())
    if what == "data":
        config["data"]["source"] = draw(st.sampled_from(DATA))
    else:
        config = draw(junk.changed_config(config))
    verb = draw(st.sampled_from((*USES, "cluster", "impute", "anomalies")))
    table = "gaps.csv" if run == "one" else FITTED[run][1]
    more = (
        draw(st.sampled_from(USES[verb])).split()
        if verb in USES
        else [table, *draw(st.sampled_from(WRITTEN))]
    )
    return {f"{run}/config.json": junk.as_text(config)}, [verb, run, *more]


@cases(0.03)
@given(uses())
def test_odd_runs(case: tuple[dict[str, str], list[str]]) -> None:
    written, words = case
    carry_out(
        words, lambda folder: [(folder / name).write_text(text) for name, text in written.items()]
    )
