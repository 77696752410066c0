"""Supports against itertools: every state once, in order, and nothing else inside."""

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch

from partita.core.support import (
    Binary,
    Categorical,
    Count,
    Product,
    Real,
    Sequence,
    Spin,
    Support,
)
from partita.errors import InputError

LIKE = torch.zeros((), dtype=torch.float64)
ZERO_ONE, SPINS, THREE = (0.0, 1.0), (-1.0, 1.0), (0.0, 1.0, 2.0)

# a support, and the values of each of its coordinates
FINITE: list[tuple[Support, list[tuple[float, ...]]]] = [
    (Binary(1), [ZERO_ONE]),
    (Binary(4), [ZERO_ONE] * 4),
    (Spin(3), [SPINS] * 3),
    (Categorical(3, 3), [THREE] * 3),
    (Categorical(5, 3), [THREE] * 5),
    (Categorical(2, 7), [tuple(map(float, range(7)))] * 2),
    (Sequence(Binary(2), 3), [ZERO_ONE] * 6),
    (Sequence(Categorical(1, 3), 2), [THREE] * 2),
    (Product((Binary(2), Categorical(1, 3))), [ZERO_ONE, ZERO_ONE, THREE]),
    (Product((Categorical(2, 3), Spin(1), Binary(1))), [THREE, THREE, SPINS, ZERO_ONE]),
    (Sequence(Product((Spin(1), Categorical(1, 3))), 2), [SPINS, THREE] * 2),
    (
        Product((Sequence(Binary(1), 2), Product((Spin(1), Binary(1))))),
        [ZERO_ONE, ZERO_ONE, SPINS, ZERO_ONE],
    ),
]


@pytest.mark.parametrize(("support", "columns"), FINITE, ids=str)
def test_states_are_those_of_itertools_in_its_order(
    support: Support, columns: list[tuple[float, ...]]
) -> None:
    expected = torch.tensor(list(product(*columns)), dtype=torch.float64)
    states = support.states(0, len(expected), LIKE)
    assert torch.equal(states, expected)
    assert states.dtype == torch.float64
    assert support.width == len(columns)
    assert support.bits == pytest.approx(math.log2(len(expected)), abs=1e-12)
    assert support.discrete
    assert not support.outside(states).any()


@pytest.mark.parametrize(("support", "columns"), FINITE, ids=str)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_chunks_hold_every_state_once(
    support: Support, columns: list[tuple[float, ...]], size: int
) -> None:
    parts = list(support.chunks(LIKE, size))
    assert all(len(part) <= size for part in parts)
    assert torch.equal(torch.cat(parts), torch.tensor(list(product(*columns)), dtype=torch.float64))


@pytest.mark.parametrize(("support", "columns"), FINITE, ids=str)
def test_a_slice_and_single_numbers_agree_with_the_whole(
    support: Support, columns: list[tuple[float, ...]]
) -> None:
    expected = torch.tensor(list(product(*columns)))
    last = len(expected)
    assert torch.equal(support.states(1, last - 1, torch.zeros(())), expected[1 : last - 1])
    picked = torch.tensor([last - 1, 0, last // 2, 0])
    assert torch.equal(support.state_at(picked, torch.zeros(())), expected[picked])


@pytest.mark.parametrize(
    ("support", "inside", "outside"),
    [
        (Binary(1), [0.0, 1.0], [0.5, -1.0, 2.0, math.nan, math.inf]),
        (Spin(1), [-1.0, 1.0], [0.0, 2.0, math.nan]),
        (Categorical(1, 3), [0.0, 1.0, 2.0], [3.0, -1.0, 1.5, math.nan]),
        (Count(1), [0.0, 7.0, 1e6], [-1.0, 0.5, math.nan]),
        (Real(1), [-3.5, 0.0, 1e30], [math.nan, math.inf, -math.inf]),
    ],
    ids=str,
)
def test_inside_and_outside(support: Support, inside: list[float], outside: list[float]) -> None:
    assert not support.outside(torch.tensor(inside)[:, None]).any()
    assert support.outside(torch.tensor(outside)[:, None]).all()


def test_each_block_of_a_product_has_its_own_rule() -> None:
    support = Product((Binary(1), Categorical(1, 3), Real(1), Spin(1)))
    x = torch.tensor([[1.0, 2.0, 0.3, -1.0], [2.0, 2.0, 0.3, 0.0], [0.5, 3.0, math.inf, 1.0]])
    assert support.outside(x).tolist() == [
        [False] * 4,
        [True, False, False, True],
        [True, True, True, False],
    ]
    assert not support.discrete
    assert math.isinf(support.bits)


def test_each_step_of_a_sequence_has_the_rule_of_its_element() -> None:
    support = Sequence(Product((Binary(1), Categorical(1, 3))), 2)
    x = torch.tensor([[1.0, 2.0, 0.0, 0.0], [1.0, 2.0, 2.0, 1.0], [1.0, 3.0, 1.0, 1.0]])
    assert support.outside(x).tolist() == [
        [False] * 4,
        [False, False, True, False],
        [False, True, False, False],
    ]
    assert not Sequence(Real(2), 3).discrete


@pytest.mark.parametrize(
    ("support", "x", "words"),
    [
        (
            Binary(2),
            [[0.0, 0.5]],
            r"RBM\.draw: v must hold only 0 and 1; got 0\.5 in column 1\. Cut the values at a "
            r"threshold",
        ),
        (
            Spin(2),
            [[0.0, 1.0]],
            r"RBM\.draw: v must hold only -1 and \+1; got 0 in column 0\. Map 0 and 1 to spins "
            r"with 2 x - 1\.",
        ),
        (
            Categorical(1, 3),
            [[3.0]],
            r"v must hold whole numbers from 0 to 2; got 3 in column 0\. Choose the support",
        ),
        (Count(1), [[1.0], [-2.0]], r"v must hold counts 0, 1, 2, \.\.\.; got -2 in column 0\."),
        (
            Product((Binary(1), Spin(1))),
            [[0.0, 0.0]],
            r"hold only 0 and 1 in 1 columns; only -1 and \+1 in 1 columns; got 0 in column 1\.",
        ),
        (
            Binary(2),
            [[0.0, 1.0], [0.0, math.nan]],
            r"v must be finite; got nan at row 1, column 1\. Remove or impute the missing values",
        ),
        (Real(1), [[math.inf]], r"v must be finite; got inf at row 0, column 0\."),
        (
            Binary(2),
            [[0.0, 1.0, 1.0]],
            r"v must have shape \(\*, 2\) to match Binary\(D=2\); got \(1, 3\)\.",
        ),
    ],
)
def test_what_lies_outside_is_named(support: Support, x: list, words: str) -> None:
    with pytest.raises(InputError, match=words):
        support.check(torch.tensor(x), "RBM.draw", "v")


def test_what_lies_inside_comes_back_as_it_is() -> None:
    x = torch.tensor([[0.0, 1.0]])
    assert Binary(2).check(x, "fit") is x
    whole = torch.tensor([[0, 1]])
    assert Binary(2).check(whole, "fit") is whole


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Binary(0), r"Binary: D must be a whole number of at least 1; got 0\."),
        (lambda: Real(-1), r"Real: D must be a whole number of at least 1; got -1\."),
        (lambda: Spin(2.5), r"Spin: D must be a whole number of at least 1; got 2\.5\."),
        (
            lambda: Categorical(2, 0),
            r"Categorical: K must be a whole number of at least 1; got 0\.",
        ),
        (
            lambda: Sequence(Binary(1), 0),
            r"Sequence: L must be a whole number of at least 1; got 0\.",
        ),
        (
            lambda: Product(()),
            r"Product: the number of parts must be a whole number of at least 1; got 0\.",
        ),
    ],
)
def test_sizes_must_be_positive(make: Callable[[], Support], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize("support", [Real(2), Count(2)], ids=str)
def test_what_cannot_be_listed_says_so(support: Support) -> None:
    assert math.isinf(support.bits)
    assert not support.countable_sites
    with pytest.raises(
        InputError, match=r"the states cannot be listed; a discrete support such as Binary can\."
    ):
        support.states(0, 1, LIKE)


def test_supports_compare_by_value_also_when_given_as_lists() -> None:
    assert Product([Binary(1), Spin(2)]) == Product((Binary(1), Spin(2)))  # type: ignore[arg-type]
    assert len({Binary(2), Binary(2), Spin(2), Product([Binary(2)])}) == 3  # type: ignore[arg-type]
