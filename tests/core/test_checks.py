"""Every check lets through what is allowed, and names owner, parameter, allowed and got where it is
not.
"""

import math

import numpy as np
import pytest
import torch

from partita.core import arguments as checks
from partita.errors import (
    DataError,
    Diverged,
    InputError,
    PartitaError,
    RunError,
    Unsupported,
    invalid,
)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (InputError, ValueError),
        (DataError, ValueError),
        (RunError, RuntimeError),
        (Diverged, ArithmeticError),
        (Unsupported, TypeError),
    ],
)
def test_every_error_is_ours_and_of_a_familiar_kind(
    error: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(error, PartitaError)
    assert issubclass(error, builtin)


def test_the_one_template() -> None:
    assert (
        str(invalid("PCD", "chains", "be at least 1", 0))
        == "PCD: chains must be at least 1; got 0."
    )
    assert (
        str(invalid("PCD", "chains", "be at least 1", 0, "Give more."))
        == "PCD: chains must be at least 1; got 0. Give more."
    )


@pytest.mark.parametrize(("value", "least"), [(1, 1), (0, 0), (np.int64(7), 7), (10**12, 1)])
def test_counts_that_count(value: int, least: int) -> None:
    counted = checks.check_count("RBM", "hidden", value, least)
    assert counted == value
    assert type(counted) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, 2.5, True, "3", None, math.nan])
def test_counts_that_do_not(value: object) -> None:
    with pytest.raises(
        InputError, match=rf"^RBM: hidden must be a whole number of at least 1; got {value!r}\.$"
    ):
        checks.check_count("RBM", "hidden", value)  # type: ignore[arg-type]


def test_a_count_below_its_own_least() -> None:
    with pytest.raises(InputError, match=r"K must be a whole number of at least 2; got 1\."):
        checks.check_count("Categorical", "K", 1, 2)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (0.0, 0, 1),
        (1.0, 0, 1),
        (-5, -math.inf, math.inf),
        (np.float32(0.5), 0, 1),
        (3, 0, math.inf),
    ],
)
def test_numbers_in_their_range(value: float, low: float, high: float) -> None:
    checked = checks.check_real("fit", "momentum", value, low, high)
    assert checked == value
    assert type(checked) is float


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "1", None, True, 1 + 0j])
def test_what_is_no_finite_number(value: object) -> None:
    with pytest.raises(InputError, match=r"^fit: rate must be a finite number; got "):
        checks.check_real("fit", "rate", value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "low", "high", "open_low", "words"),
    [
        (1.5, 0, 1, False, r"lie in \[0, 1\]; got 1\.5"),
        (-0.1, 0, 1, False, r"lie in \[0, 1\]; got -0\.1"),
        (0.0, 0, 1, True, r"lie in \(0, 1\]; got 0\.0"),
        (0.0, 0, math.inf, True, r"be a finite number above 0; got 0\.0"),
        (-1, 0, math.inf, False, r"be a finite number of at least 0; got -1"),
    ],
)
def test_numbers_out_of_their_range(
    value: float, low: float, high: float, open_low: bool, words: str
) -> None:
    with pytest.raises(InputError, match=f"^fit: rate must {words}"):
        checks.check_real("fit", "rate", value, low, high, open_low=open_low)


@pytest.mark.parametrize("value", [0, None, np.random.default_rng(0)])
def test_a_seed_is_no_generator(value: object) -> None:
    checks.check_generator("sample", torch.Generator())
    with pytest.raises(
        InputError,
        match=r"^sample: generator must be a torch\.Generator; got .* As in torch\.Generator\(\)",
    ):
        checks.check_generator("sample", value)


def test_choices() -> None:
    checks.check_choice("fit", "optimizer", "adam", ("sgd", "adam"))
    with pytest.raises(
        InputError, match=r"^fit: optimizer must be one of 'sgd', 'adam'; got 'sdg'\.$"
    ):
        checks.check_choice("fit", "optimizer", "sdg", ("sgd", "adam"))


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (0, 3)])
def test_the_last_dimension_is_the_width(shape: tuple[int, ...]) -> None:
    checks.check_width("RBM", "x", torch.zeros(shape), 3, "RBM(3, 2)")


@pytest.mark.parametrize("shape", [(), (4,), (3, 5), (3, 2)])
def test_another_width_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        InputError, match=r"^RBM: x must have shape \(\*, 3\) to match RBM\(3, 2\); got \("
    ):
        checks.check_width("RBM", "x", torch.zeros(shape), 3, "RBM(3, 2)")


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (
            torch.tensor([[0.0, 1.0], [math.nan, 1.0]]),
            r"got nan at row 1, column 0\. Remove or impute",
        ),
        (torch.tensor([0.0, -math.inf]), r"got -inf at position \(1,\)\."),
        (torch.tensor([[[math.inf]]], dtype=torch.float64), r"got inf at position \(0, 0, 0\)\."),
    ],
)
def test_the_first_value_that_is_not_finite_is_named(x: torch.Tensor, words: str) -> None:
    with pytest.raises(InputError, match=rf"^fit: x must be finite; {words}"):
        checks.check_finite("fit", "x", x)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["W", "b"])
def test_the_first_parameter_that_is_no_number_is_named(name: str, value: float) -> None:
    parameters = {"W": torch.zeros(2, 2), "b": torch.zeros(2)}
    checks.check_parameters("fit", "RBM(2, 2)", parameters.items(), "Lower learning_rate.")
    parameters[name].view(-1)[-1] = value
    words = (
        rf"^fit: parameter '{name}' of RBM\(2, 2\) must be finite; got nan or infinity\. "
        r"Lower learning_rate\.$"
    )
    with pytest.raises(Diverged, match=words):
        checks.check_parameters("fit", "RBM(2, 2)", parameters.items(), "Lower learning_rate.")


def test_finite_and_whole_values_pass() -> None:
    checks.check_finite("fit", "x", torch.zeros(2, 2))
    checks.check_finite("fit", "x", torch.zeros(2, 2, dtype=torch.int64))


def test_tables_have_two_dimensions_and_enough_rows() -> None:
    checks.check_rows("fit", "x", torch.zeros(2, 3), 2)
    with pytest.raises(
        InputError,
        match=r"^fit: x must be a table of rows and columns; got shape \(3,\)\. Reshape it to "
        r"\(rows, col",
    ):
        checks.check_rows("fit", "x", torch.zeros(3))
    with pytest.raises(InputError, match=r"^fit: x must have at least 1 row; got 0\.$"):
        checks.check_rows("fit", "x", torch.zeros(0, 3))
    with pytest.raises(InputError, match=r"^fit: x must have at least 2 rows; got 1\.$"):
        checks.check_rows("fit", "x", torch.zeros(1, 3), 2)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, -0.5, float("nan"), "x", True, None])
def test_a_level_lies_strictly_between_zero_and_one(level: object) -> None:
    with pytest.raises(InputError, match="AIS: level must lie between 0 and 1; got "):
        checks.check_level("AIS", level)
