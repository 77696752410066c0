"""Two processes that share out the rows of a latent-variable model: one number, that of one process
within the stated errors.
"""

import math
from typing import Any

import pytest
import torch
from tests.evaluators import two_of_latents as both
from tests.gloo import in_two

pytestmark = pytest.mark.slow
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What two processes that talk by gloo found, each for itself."""
    return in_two(both.__file__, tmp_path_factory.mktemp("latents"))


def standard_error(q: Any) -> float:
    return (q.value - q.low) / 1.96


@pytest.mark.parametrize("name", list(both.EVALUATORS))
def test_both_processes_end_with_the_same_quantity_about_all_rows(name: str, found: Found) -> None:
    mine, theirs = (each["seen"][name] for each in found)
    assert mine == theirs and torch.equal(mine.details["rows"], theirs.details["rows"])
    alone = both.evaluated(name)
    assert (mine.n, mine.kind, mine.method) == (alone.n, alone.kind, alone.method) and len(
        mine.details["rows"]
    ) == alone.n
    assert mine.details.get("steps") == alone.details.get("steps")


@pytest.mark.parametrize("name", ["IWAE", "LatentAIS", "piloted", "ParticleFilter"])
def test_their_value_is_that_of_one_process_within_the_stated_errors(
    name: str, found: Found
) -> None:
    """Each |z| of a normal test stays below 4.1 with probability 1 - 4e-5; seeds are fixed."""
    mine, alone = found[0]["seen"][name], both.evaluated(name, seed=77)
    assert abs(mine.value - alone.value) < 4.1 * math.hypot(
        standard_error(mine), standard_error(alone)
    )
    assert mine.value != alone.value


def test_draws_that_each_row_seeds_give_the_same_bits_in_any_number_of_processes(
    found: Found,
) -> None:
    together, alone = found[0]["seen"]["by row"], both.evaluated("by row")
    assert torch.equal(together.details["rows"], alone.details["rows"]) and (
        together.value,
        together.low,
    ) == (alone.value, alone.low)


def test_the_spread_over_seeds_is_the_error_that_is_stated(found: Found) -> None:
    """Twenty values: their variance against the stated one is chi-squared on 19 degrees, outside
    [0.3, 2.5] with probability 2e-3.
    """
    values = torch.tensor([q.value for q in found[0]["again"]], dtype=torch.float64)
    stated = sum(standard_error(q) ** 2 for q in found[0]["again"]) / len(values)
    assert 0.3 < float(values.var()) / stated < 2.5


def test_the_processes_draw_different_numbers(found: Found) -> None:
    """With one stream in both, rows at the same place of either share would err alike; the
    correlation of 140 pairs that do not is below 0.33 with probability 1 - 1e-4.
    """
    errors = torch.stack([q.details["rows"] for q in found[0]["again"]])
    errors = (errors - errors.mean(0)) / errors.std(0)
    first, second = errors[:, :7], errors[:, 8:]
    assert abs(float(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1])) < 0.33


def test_fewer_rows_than_processes_and_an_error_of_one(found: Found) -> None:
    assert [each["one row"].n for each in found] == [1, 1] and found[0]["one row"] == found[1][
        "one row"
    ]
    assert [each["raised"] for each in found] == ["the second part went wrong"] * 2
