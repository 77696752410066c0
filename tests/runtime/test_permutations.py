"""Orders and choices that are computed, not listed: whole, random, and the same whenever they are
read.
"""

import numpy as np
import pytest
import torch
from scipy import stats

from partita.core import rng
from partita.runtime.seeds import OneIn, Shuffled, Within, row_numbers


@pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 17, 255, 1000, 4097])
def test_a_shuffle_has_everything_once_in_any_order_of_asking(n: int) -> None:
    order = Shuffled(n, key=3)
    whole = order[:]
    assert (
        sorted(whole.tolist()) == list(range(n)) and len(order) == n and whole.dtype == torch.int64
    )
    assert torch.equal(torch.cat(list(order.split(7))), whole)
    assert torch.equal(order[np.arange(n)[::-1].copy()], whole.flip(0)) and torch.equal(
        order[n // 2 : n], whole[n // 2 :]
    )


def test_every_number_is_as_likely_at_any_place_and_after_any_other() -> None:
    """Two chi-squared tests of 1500 shuffles of six at a false-alarm rate of 1e-3 each."""
    orders = np.stack([Shuffled(6, key=key)[:].numpy() for key in range(1500)])
    for pairs in (orders * 6 + np.arange(6), (orders * 6 + np.roll(orders, 1, 1))[:, 1:]):
        counts = np.bincount(pairs.ravel(), minlength=36)
        assert stats.chisquare(counts[counts > 0]).pvalue > 1e-3


def test_very_many_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    few = rng.permutation(10**15, g)[5:9]
    assert len(set(few.tolist())) == 4 and int(few.max()) < 10**15
    monkeypatch.setattr(rng, "MOST_LISTED", 10)
    assert sorted(rng.permutation(11, g)[:].tolist()) == list(range(11))
    assert isinstance(rng.permutation(10, g), torch.Tensor)


@pytest.mark.parametrize(("n", "m"), [(100, 5), (103, 5), (20, 10), (7, 7), (11, 2)])
def test_one_of_every_group_and_the_others_are_all(n: int, m: int) -> None:
    one, others = (OneIn(n, m, key=9, others=which) for which in (False, True))
    chosen, left = one[np.arange(len(one))], others[np.arange(len(others))]
    assert sorted([*chosen, *left]) == list(range(n)) and (np.diff(left) > 0).all()
    assert (chosen // m == np.arange(n // m)).all()
    half, places = OneIn(len(left), 2, key=1), np.arange(len(left) // 2)
    np.testing.assert_array_equal(Within(others, half)[places], left[half[places]])


def test_every_place_of_a_group_is_as_likely() -> None:
    """Chi-squared on 4 degrees of freedom at a false-alarm rate of 1e-3."""
    places = OneIn(50_000, 5, key=1)[np.arange(10_000)] % 5
    assert stats.chisquare(np.bincount(places, minlength=5)).pvalue > 1e-3


def test_numbers_outside_are_refused() -> None:
    with pytest.raises(IndexError):
        row_numbers([3], 3)
    with pytest.raises(IndexError):
        row_numbers([-4], 3)
