"""Contests of families: who may take part, how time is shared, and numbers against fits by hand
(tests/truth has the truth).
"""

import itertools
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from partita.core import rng
from partita.datasets import Dataset, Sequences
from partita.errors import RunError
from partita.experiment.candidates import candidates_by_family
from partita.experiment.compare import FIT_SHARE, Candidate, Comparison, Result, read_result
from partita.experiment.experiment import encoded_parts
from partita.experiment.saved import evaluate_encoded
from partita.families import FAMILIES
from partita.families.base import table_kind
from partita.runtime import deadline
from partita.tables import Rows
from partita.tables.encoding import Encoding
from partita.training import PartitaWarning, fit
from partita.training.budget import LEAST_STEPS, affordable, annealing_cost

STATES = np.array(list(itertools.product([0.0, 1.0], repeat=5)))
# of a mixture of two Bernoullis with weights 0.6 and 0.4
CENTERS = np.array([[0.9, 0.8, 0.9, 0.2, 0.1], [0.1, 0.3, 0.2, 0.9, 0.7]])
TRUTH = np.array([0.6, 0.4]) @ np.prod(
    np.where(STATES[None] == 1, CENTERS[:, None], 1 - CENTERS[:, None]), 2
)


def drawn(n: int, seed: int) -> np.ndarray:
    return STATES[np.random.default_rng(seed).choice(len(STATES), n, p=TRUTH)]


def dataset(train: Any, test: Any = None) -> Dataset:
    rows, held_out = (
        None if part is None else Rows(np.asarray(part, dtype=np.float32)) for part in (train, test)
    )
    assert rows is not None
    return Dataset("mine", rows, None, held_out)


def real(n: int = 120) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 3)) @ [
        [2.0, 1.0, 0.0],
        [0.0, 0.3, 0.0],
        [0.0, 0.0, 9.0],
    ]


def test_families_of_each_kind_of_table() -> None:
    binary, left_out = candidates_by_family([], {}, dataset(drawn(200, 0)))
    assert {c.name for c in binary} == {
        "mixture",
        "rbm",
        "boltzmann",
        "neural-energy",
        "autoregressive",
        "dpmm",
        "vae",
        "belief",
    }
    assert (
        left_out["flow"]
        == "its scores would be densities of real columns, those of this table are masses of "
        "discrete rows"
    )
    assert left_out["ising"].endswith("ask for it by name")
    assert [
        c.name for c in candidates_by_family(["ising", "flow"], {}, dataset(drawn(200, 0)))[0]
    ] == ["ising"]
    columns, left_out = candidates_by_family([], {}, dataset(real()))
    assert {c.name for c in columns} == {
        "ppca",
        "mixture-ppca",
        "mixture",
        "rbm",
        "neural-energy",
        "latent-energy",
        "autoregressive",
        "dpmm",
        "flow",
        "gan",
        "vae",
        "belief",
    }
    assert (
        left_out["maxent"].startswith("its scores would be masses of cut columns")
        and left_out["potts"] == left_out["ising"] == left_out["maxent"]
    )


def test_whole_numbers_are_categories_unless_held_out_rows_have_new_ones() -> None:
    whole = np.random.default_rng(0).integers(0, 4, (200, 3))
    assert table_kind(dataset(whole, whole[:20])) == "category"
    found, left_out = candidates_by_family([], {}, dataset(whole, whole[:20]))
    assert {c.name for c in found} == {
        "mixture",
        "rbm",
        "potts",
        "vae",
        "belief",
    } and "flow" in left_out
    assert {c.name: c.settings for c in found}["rbm"] == {"visible_units": "categorical"}
    assert table_kind(dataset(whole, whole[:20] + 1)) == "real"


def test_sequences_are_for_models_of_sequences() -> None:
    tokens = Sequences.windows(np.arange(400) % 5, 16)
    tokens.states = 5
    found, left_out = candidates_by_family([], {}, Dataset("mine", tokens))  # type: ignore[arg-type]
    assert [c.name for c in found] == ["attention", "conv", "hyena", "lstm", "ssm"]
    assert left_out["rbm"] == "it takes tables, and these are sequences"
    assert (
        left_out["autoregressive"]
        == "on sequences it is the model that hyena is; ask for it by name"
    )
    assert left_out["vrnn"].startswith(
        "DATA must be sequences of bits or numbers; got text or other tokens"
    )
    waves = Dataset("mine", Sequences.windows(np.sin(np.arange(400.0)), 16))  # type: ignore[arg-type]
    assert {c.name for c in candidates_by_family([], {}, waves)[0]} == {
        "hyena",
        "ssm",
        "attention",
        "conv",
        "lstm",
        "vrnn",
    }


def test_missing_values_leave_those_that_take_them() -> None:
    x = real().astype(np.float32)
    x[3, 1] = np.nan
    found, left_out = candidates_by_family([], {}, Dataset("mine", Rows(x, missing=True)))
    assert {c.name for c in found} == {"ppca", "mixture-ppca", "mixture"}
    assert left_out["flow"] == "values are missing, which it cannot take"


def test_a_family_that_would_cut_the_table_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        FAMILIES._known,
        "cutting",
        replace(FAMILIES["maxent"], name="cutting", kind=lambda rows, settings: "median"),
    )
    for table in (real(), drawn(200, 0)):
        assert candidates_by_family(["cutting"], {}, dataset(table))[1]["cutting"].startswith(
            "its scores would be masses of cut columns"
        )


@pytest.mark.parametrize("name", ["rbm", "vae", "mixture"])
def test_numbers_are_those_of_a_fit_and_an_evaluation_by_hand(name: str) -> None:
    data, family = dataset(drawn(300, 1), drawn(100, 2)), FAMILIES[name]
    (candidate,), _ = candidates_by_family([name], {}, data)
    (result,) = Comparison(data, {"epochs": 3}, seed=5).run([candidate])
    encoding = Encoding.fit(data.train, "binary")
    train, validation = encoded_parts(data, encoding, 5)
    g = torch.Generator().manual_seed(5)
    model, objective = family.build(
        train, {"component": "bernoulli"} if name == "mixture" else {}, generator=g
    )
    with pytest.warns(PartitaWarning) if result.run and result.run.warnings else _nothing():
        fit(
            model,
            train,
            objective,
            validation=validation,
            epochs=3,
            patience=0 if name == "mixture" else 5,
            generator=g,
        )
    assert data.test is not None and result.score is not None
    q = evaluate_encoded(
        model, encoding, data.test.tensor().numpy().astype(float), generator=rng.keyed(5, 1)
    )
    assert (q.value, q.low, q.high, q.kind) == (
        result.score.value,
        result.score.low,
        result.score.high,
        result.score.kind,
    )
    assert torch.equal(q.details["rows"], result.score.details["rows"])


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def test_densities_are_in_the_units_of_the_table() -> None:
    """Columns in units ten times smaller have densities ten times smaller, each."""
    x, chosen = real(150), {"mixture": {"n_components": 2}, "ppca": {"n_components": 1}}

    def scores(factor: float) -> list[float]:
        comparison = Comparison(dataset(factor * x[:120], factor * x[120:]), {"epochs": 20})
        found = comparison.run(candidates_by_family(list(chosen), chosen, comparison.dataset)[0])
        return [result.score.value for result in found if result.score is not None]

    assert np.subtract(scores(1.0), scores(10.0)) == pytest.approx([3 * math.log(10)] * 2, abs=2e-3)


def test_time_is_shared_evenly_and_what_is_not_used_goes_to_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits, now = [], [0.0]

    def enter(self: Comparison, candidate: Candidate, progress: bool = False) -> Result:
        limits.append(self.limit)
        now[0] += {"rbm": 0.0, "vae": 120.0, "belief": 60.0}[candidate.name]
        return Result(candidate.name, None, 0.0, problem="none")

    monkeypatch.setattr(Comparison, "enter", enter)
    monkeypatch.setattr("partita.experiment.compare.deadline.now", lambda: now[0])
    candidates = [Candidate(name, FAMILIES[name]) for name in ("rbm", "vae", "belief")]
    comparison = Comparison(dataset(drawn(20, 0)), total=6.0, out=tmp_path)
    list(comparison.run(candidates))
    assert limits == pytest.approx([FIT_SHARE * 2, FIT_SHARE * 3, FIT_SHARE * 4])
    # all done: nobody enters again
    assert [result.problem for result in comparison.run(candidates)] == ["none"] * 3 and len(
        limits
    ) == 3


def test_a_recipe_is_cut_only_where_it_would_take_longer() -> None:
    """What was said counts; gradients stop early; closed-form updates are given no patience; what
    is too long is cut to its time.
    """
    data = dataset(drawn(300, 1))

    def budget(name: str, seconds: float = math.inf, **options: Any) -> dict[str, Any]:
        (candidate,), _ = candidates_by_family([name], {"mixture": {"n_components": 2}}, data)
        model, objective = candidate.family.build(
            data.train, candidate.settings, generator=torch.Generator().manual_seed(0)
        )
        with deadline.ending_within(seconds):
            return affordable(
                model, objective, data.train, data.train.take(range(30)), options
            ).options

    assert budget("vae", 6e5) == {"patience": 5} and budget("mixture", 6e5) == {}
    assert budget("vae", 6e-3, epochs=3) == {"patience": 5, "epochs": 3} and budget("vae") == {
        "patience": 5
    }
    cut = budget("vae", 0.06)
    assert (
        cut.keys() == {"patience", "steps", "validations"}
        and 10 <= cut["steps"] < 500
        and 1 <= cut["validations"] <= 20
    )
    assert budget("mixture", 6e-4)["steps"] == LEAST_STEPS


def test_a_score_is_kept_bit_for_bit(tmp_path: Path) -> None:
    comparison = Comparison(dataset(drawn(200, 1), drawn(50, 2)), {"epochs": 1}, out=tmp_path)
    (candidate,), _ = candidates_by_family(["vae"], {}, comparison.dataset)
    (result,) = comparison.run([candidate])
    kept = read_result(tmp_path / "vae", "vae", 50)
    assert kept.score == result.score and kept.seconds == result.seconds
    assert kept.score is not None and result.score is not None
    assert torch.equal(kept.score.details["rows"], result.score.details["rows"])
    for name, rows in (("rbm", 50), ("vae", 49)):
        with pytest.raises(
            RunError, match=f"must hold the score of {name} on {rows} rows; got another"
        ):
            read_result(tmp_path / "vae", name, rows)


def test_an_annealing_is_timed_by_two_short_ones_after_a_first_that_had_to_get_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, calls = [0.0], []

    def anneal(temperatures: int) -> None:
        now[0] += 0.5 * (not calls) + 0.2 + 0.01 * temperatures
        calls.append(temperatures)

    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    assert annealing_cost(anneal) == pytest.approx((0.2, 0.01)) and calls == [10, 10, 30]
    with deadline.ending_within(1.0):  # no time for another
        assert annealing_cost(anneal) == pytest.approx((0.0, 0.03)) and calls[3:] == [10, 10]


def test_whoever_comes_first_does_not_pay_for_the_imports_of_all() -> None:
    """In a new process, a mixture and an RBM import hardly anything after the comparison got ready:
    a few modules that take no time.
    """
    code = """
import sys
import numpy as np
from partita.datasets import Dataset
from partita.tables import Rows
from partita.experiment.candidates import candidates_by_family
from partita.experiment.compare import Comparison, get_ready
get_ready()
before = set(sys.modules)
x = (np.random.default_rng(0).random((60, 5)) < 0.5).astype(np.float32)
data = Dataset("mine", Rows(x))
found, _ = candidates_by_family(["mixture", "rbm"], {"mixture": {"n_components": 2}}, data)
results = list(Comparison(data, {"steps": 2}).run(found))
assert all(result.score is not None for result in results)
print(sum(not name.startswith("partita") for name in set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 50
