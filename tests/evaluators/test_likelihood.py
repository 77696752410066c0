"""Log-likelihoods: exact against enumeration, signs and directions, impossible values, bad
input.
"""

import math
from itertools import product
from typing import Any

import pytest
import torch

import partita
from partita.core import Diverged, InputError, Quantity, bits_per_dimension
from partita.evaluators import AIS, FromPartition, Sandwich
from partita.models import RBM


@pytest.fixture
def model(generator: torch.Generator) -> RBM:
    model = RBM(6, 4, scale=1.0, generator=generator)
    with torch.no_grad():
        model.b.normal_(generator=generator)
    return model


def states(d: int) -> torch.Tensor:
    return torch.tensor(list(product([0.0, 1.0], repeat=d)))


def test_exact_likelihood_sums_to_one(model: RBM, generator: torch.Generator) -> None:
    q = partita.evaluate(model, states(6), generator=generator)
    assert (q.kind, q.n, q.level) == ("exact", 64, 1.0)
    assert float(q.details["rows"].exp().sum()) == pytest.approx(1.0, abs=1e-12)
    assert q.value == pytest.approx(float(q.details["rows"].mean()))
    assert q.se_data == pytest.approx(float(q.details["rows"].std()) / 8)


def test_ais_flatters_an_energy_model(model: RBM, generator: torch.Generator) -> None:
    q = partita.evaluate(model, states(6), evaluator=AIS(50, 32), generator=generator)
    assert (q.kind, q.direction) == ("upper", "high")
    assert q.low <= q.value <= q.high


def test_a_known_log_z_serves_as_evaluator(model: RBM, generator: torch.Generator) -> None:
    exact = partita.evaluate(model, states(6), generator=generator)
    again = partita.evaluate(
        model, states(6), evaluator=exact.details["log_z"], generator=generator
    )
    assert again.value == exact.value


def test_large_models_get_a_sandwich_and_ladders_beside_it(generator: torch.Generator) -> None:
    model = RBM(30, 25, generator=generator)
    x = model.reference().draw(20, generator=generator)
    q = partita.evaluate(model, x, generator=generator)
    assert q.kind == "estimate"
    assert q.method == "replica exchange beside annealing from both sides"
    assert q.verdict == "loose", (
        "no training rows are known, so a mode that was never visited cannot show"
    )


def test_masses_above_one_are_never_published(model: RBM, generator: torch.Generator) -> None:
    too_low = Quantity(
        -50.0, -50.1, -49.9, level=0.95, kind="estimate", method="a broken annealing"
    )
    q = FromPartition(too_low)(model, states(6), generator=generator)
    assert q.verdict == "do not publish"
    assert q.details["mass_of_rows"] > 1


def test_repeated_rows_are_counted_once_in_that_check(
    model: RBM, generator: torch.Generator
) -> None:
    x = states(6).repeat(5, 1)
    q = partita.evaluate(model, x, evaluator=Sandwich(300, 64), generator=generator)
    assert q.trusted


def test_bits_per_dimension(model: RBM, generator: torch.Generator) -> None:
    q = partita.evaluate(model, states(6), generator=generator)
    assert bits_per_dimension(q, 6).value == pytest.approx(-q.value / 6 / math.log(2))


def test_bad_input(model: RBM, generator: torch.Generator) -> None:
    with pytest.raises(
        ValueError,
        match=r"evaluate: x must have shape \(\*, 6\) to match Binary\(D=6\); got \(3, 5\)",
    ):
        partita.evaluate(model, torch.zeros(3, 5), generator=generator)
    with pytest.raises(
        ValueError, match=r"evaluate: x must hold only 0 and 1; got 0.5 in column 2"
    ):
        partita.evaluate(model, torch.tensor([[0, 1, 0.5, 0, 0, 0]]), generator=generator)
    with pytest.raises(ValueError, match=r"evaluate: x must be finite; got nan at row 0, column 1"):
        partita.evaluate(model, torch.tensor([[0, math.nan, 0, 0, 0, 0]]), generator=generator)
    with pytest.raises(ValueError, match=r"evaluate: x must have at least 1 row; got 0"):
        partita.evaluate(model, torch.zeros(0, 6), generator=generator)


def test_a_broken_model_is_named(model: RBM, generator: torch.Generator) -> None:
    with torch.no_grad():
        model.c[0] = math.nan
    with pytest.raises(Diverged, match=r"parameter 'c' of RBM\(6, 4\) must be finite"):
        partita.evaluate(model, states(6), generator=generator)


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(-0.51, 0.6, "tight"), (-1.5, -0.49, "do not publish")]
)
def test_the_mass_check_asks_whether_the_interval_allows_a_mass_of_one(
    low: float, high: float, verdict: str
) -> None:
    """RBM(2, 1) at zero: log Z = 3 log 2; the value is half a nat too low, and only the first
    interval covers the truth.
    """
    g = torch.Generator().manual_seed(0)
    model = RBM(2, 1, scale=0.0, generator=g)
    truth = 3 * math.log(2)
    log_z = Quantity(truth - 0.5, truth + low, truth + high, level=0.95, kind="estimate")
    assert partita.evaluate(model, states(2), evaluator=log_z, generator=g).verdict == verdict


def test_arrays_frames_and_rows_are_taken(model: RBM, generator: torch.Generator) -> None:
    pandas = pytest.importorskip("pandas")
    exact = partita.evaluate(model, states(6), generator=generator).value
    for x in (
        states(6).numpy(),
        pandas.DataFrame(states(6).numpy().astype(int)),
        partita.tables.as_rows(states(6)),
    ):
        assert partita.evaluate(model, x, generator=generator).value == exact


@pytest.mark.parametrize("evaluator", ["sandwich", Sandwich, 3])
def test_an_evaluator_is_an_object(evaluator: Any, generator: torch.Generator) -> None:
    model = RBM(4, 3, generator=generator)
    with pytest.raises(
        InputError, match=r"evaluate: evaluator must be an object such as Sandwich\(\); got "
    ):
        partita.evaluate(model, torch.zeros(3, 4), evaluator=evaluator, generator=generator)


def test_a_level_is_a_number() -> None:
    with pytest.raises(InputError, match=r"AIS: level must lie between 0 and 1; got x"):
        AIS(level="x")  # type: ignore[arg-type]
