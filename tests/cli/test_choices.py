"""The same data are taken in the same way by a fit, a comparison and an estimator; words that only
held-out rows have are categories.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partita.datasets import Dataset, load
from partita.estimators import MixtureDensity
from partita.families.base import table_kind
from partita.tables import Rows
from partita.tables.encoding import Encoding
from partita.training.run import read_config

G = np.random.default_rng(0)
COINS = G.integers(0, 2, (120, 4))
TABLES = {
    "zeros and ones": (COINS, "bernoulli"),
    "spins": (2 * COINS - 1, "bernoulli"),
    "ratings": (COINS + 2, "categorical"),
    "numbers": (G.normal(size=(120, 4)), "gaussian"),
}
MIXTURE = ("--epochs", "4", "--json", "--no-report")


@pytest.mark.parametrize("name", TABLES)
def test_a_mixture_has_the_components_that_the_table_asks_for(name: str, call: Any) -> None:
    x, component = TABLES[name]
    np.save("x.npy", x)
    alone = json.loads(
        call(
            "fit",
            "mixture",
            "x.npy",
            "--set",
            "n_components=2",
            "--epochs",
            "4",
            "--json",
            "--out",
            "run",
        ).stdout
    )
    (entry,) = json.loads(
        call(
            "compare", "x.npy", "--models", "mixture", "--set", "mixture.n_components=2", *MIXTURE
        ).stdout
    )["results"]
    assert alone["log_likelihood"]["value"] == entry["log_likelihood"]["value"]
    made = read_config("run")
    assert (
        made["model"]["component"] == component == read_config(entry["run"])["model"]["component"]
    )
    estimator = MixtureDensity(2, "auto", random_state=0, max_iter=4).fit(x)
    assert (
        estimator.run_.config["model"]["component"] == component
        and estimator.encoding_.kind == made["encoding"]["kind"]
    )


def held_out_row(n: int) -> int:
    """The number of a row of an unsplit file that is kept for the test."""
    test = load(np.arange(float(n))[:, None]).test
    assert test is not None
    return int(test.tensor()[3, 0])


@pytest.mark.parametrize("ending", [".csv", ".txt", ".fasta"])
def test_a_word_that_only_test_rows_have_is_an_improbable_category(ending: str, call: Any) -> None:
    words = np.random.default_rng(1).choice(list("ACD"), (80, 3))
    words[held_out_row(80), 1] = "W"
    lines = {
        ".csv": ["p,q,r", *map(",".join, words)],
        ".txt": list(map(" ".join, words)),
        ".fasta": [line for i, row in enumerate(words) for line in (f">s{i}", "".join(row))],
    }[ending]
    Path(f"rare{ending}").write_text("\n".join(lines) + "\n")
    done = call(
        "compare",
        f"rare{ending}",
        "--models",
        "mixture,potts,rbm",
        "--set",
        "mixture.n_components=1",
        *MIXTURE,
    )
    board = {entry["name"]: entry for entry in json.loads(done.stdout)["results"]}
    assert all(math.isfinite(entry["log_likelihood"]["value"]) for entry in board.values()), (
        done.output
    )
    printed = json.loads(
        call(
            "fit", "mixture", f"rare{ending}", "--set", "n_components=1", "--epochs", "4", "--json"
        ).stdout
    )
    assert printed["log_likelihood"]["value"] == board["mixture"]["log_likelihood"]["value"]
    assert [len(known) for known in read_config(printed["run"])["encoding"]["lists"]][1] == 4


def test_numbers_that_go_beyond_those_of_training_stay_numbers() -> None:
    """A category that was never seen has a name; a whole number beyond all others is a sign that
    they are no categories.
    """
    x = np.random.default_rng(2).integers(2, 6, (60, 2))
    x[held_out_row(60), 0] = 40
    data = load(x)
    assert table_kind(data) == "real" and table_kind(load(np.minimum(x, 5))) == "category"
    # and a family that takes it for one all the same can score it
    assert 40.0 in Encoding.fit(data.train, "category").lists[0]
    assert table_kind(Dataset("whole", Rows(x))) == "category"


def test_what_held_out_rows_cannot_hold_is_found_before_the_fit(call: Any) -> None:
    test = COINS[:20].copy()
    test[4, 1] = 2
    np.savez("split.npz", train=COINS, test=test)
    for words in (("fit", "rbm"), ("compare", "--models", "rbm")):
        done = (
            call(words[0], *words[1:], "split.npz")
            if words[0] == "fit"
            else call(words[0], "split.npz", *words[1:])
        )
        assert (
            done.exit_code == 1
            and "test rows: X must hold only 0 and 1; got 2 at row 4, column 1" in done.stderr
        )
    assert not Path("runs").exists()
