"""Two-sample tests: values against loops and closed forms, calibration under the null, power
against an alternative.
"""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor

import partita
from partita.divergences import coverage, mmd2
from partita.divergences.samples import gaussian_kernel, modes_covered
from partita.errors import InputError, Unsupported
from partita.evaluators import MMD, ClassifierTest, TwoSample
from partita.models import GAN, RBM


def samples(
    generator: torch.Generator, n: int, m: int, shift: float = 0.0, d: int = 2
) -> tuple[Tensor, Tensor]:
    x, y = (torch.randn(count, d, generator=generator, dtype=torch.float64) for count in (n, m))
    return x, y + shift


def test_mmd_is_the_sum_over_pairs(generator: torch.Generator) -> None:
    x, y = samples(generator, 6, 8, 0.5)

    def k(a: Tensor, b: Tensor) -> float:
        return math.exp(-float((a - b).square().sum()) / (2 * 1.3**2))

    within_x = np.mean([k(x[i], x[j]) for i in range(6) for j in range(6) if i != j])
    within_y = np.mean([k(y[i], y[j]) for i in range(8) for j in range(8) if i != j])
    between = np.mean([k(a, b) for a in x for b in y])
    expected = within_x + within_y - 2 * between
    assert mmd2(x, y, 1.3).item() == pytest.approx(expected, abs=1e-12)
    assert MMD(1.3, permutations=0)(x, y, generator=generator).value == pytest.approx(
        expected, abs=1e-12
    )


def closed_form(shift: float, d: int, h: float) -> float:
    """MMD^2 of N(0, I) and N(shift, I): the kernel against N(0, 2 I)."""
    scale = (h**2 / (h**2 + 2)) ** (d / 2)
    return 2 * scale * (1 - math.exp(-d * shift**2 / (2 * (h**2 + 2))))


def test_intervals_cover_the_true_distance(generator: torch.Generator) -> None:
    """Of 200 intervals at 90 % at least 166 cover, and a true share of 0.9 gives fewer in 1 of
    1,000 trials.
    """
    truth, hits = closed_form(0.5, 2, 1.5), 0
    for _ in range(200):
        q = MMD(1.5, permutations=0, level=0.9)(
            *samples(generator, 80, 100, 0.5), generator=generator
        )
        hits += q.low <= truth <= q.high
    assert hits >= int(binom.ppf(1e-3, 200, 0.9))


@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_few_rows_are_loose_and_cover(shift: float, generator: torch.Generator) -> None:
    """Ten rows each, 300 times, against the closed form; a coverage of .9 or more, less three
    standard errors of 300 trials.
    """
    truth = 2 / math.sqrt(3) * (1 - math.exp(-(shift**2) / 6))
    found = [
        MMD(1.0, 0)(
            torch.randn(10, 1, generator=generator),
            shift + torch.randn(10, 1, generator=generator),
            generator=generator,
        )
        for _ in range(300)
    ]
    assert {q.verdict for q in found} == {"loose"}
    assert sum(q.low <= truth <= q.high for q in found) >= 300 * (
        0.9 - 3 * math.sqrt(0.9 * 0.1 / 300)
    )
    spread = float(torch.tensor([q.value for q in found]).std())
    # Student's factor for ten rows is 2.3; samples that are alike get a wider interval.
    assert shift < 3 or sum(q.width for q in found) / 600 < 3.2 * spread


def test_intervals_cover_zero_where_the_samples_are_alike(generator: torch.Generator) -> None:
    """Of 150 intervals at 90 % at least as many cover as a true share of 0.9 gives in 999 of 1,000
    trials.
    """
    found = [
        MMD(1.5, permutations=0, level=0.9)(*samples(generator, 40, 30), generator=generator)
        for _ in range(150)
    ]
    assert sum(q.low <= 0 <= q.high for q in found) >= int(binom.ppf(1e-3, 150, 0.9))


def test_far_from_zero_nothing_changes(generator: torch.Generator) -> None:
    """The same rows 10,000 deviations away, in float32: only their own rounding is lost."""
    x, y = (part.float() for part in samples(generator, 300, 300))
    assert coverage(x + 1e4, y + 1e4).item() == pytest.approx(coverage(x, y).item(), abs=0.02)
    assert mmd2(x + 1e4, y + 1e4).item() == pytest.approx(mmd2(x, y).item(), abs=2e-3)


def test_whole_numbers_are_compared_with_fractions(generator: torch.Generator) -> None:
    x, y = torch.zeros(50, 1, dtype=torch.int64), torch.full((50, 1), 0.9)
    assert MMD(1.0)(x, y, generator=generator).value > 0.5
    assert ClassifierTest("forest")(x, y, generator=generator).value == 1.0


def test_rows_of_a_sorted_table_are_chosen_at_random(generator: torch.Generator) -> None:
    """Both are uniform on [0, 1], one sorted: its first rows alone would lie far from the other's.
    False alarm 1 in 200.
    """
    x, y = torch.rand(2, 1000, 1, generator=generator)
    assert MMD(rows=100)(x.sort(0).values, y, generator=generator).details["p_value"] > 0.005


def test_the_permutation_test_keeps_its_level_and_sees_a_shift(generator: torch.Generator) -> None:
    """Under the null p <= 0.1 in at most a share that binom(150, 0.1) passes in 1 of 1,000
    trials.
    """
    test = MMD(permutations=99)
    p = [
        test(*samples(generator, 30, 40), generator=generator).details["p_value"]
        for _ in range(150)
    ]
    assert sum(value <= 0.1 for value in p) <= int(binom.ppf(0.999, 150, 0.1))
    assert test(*samples(generator, 60, 60, 1.0), generator=generator).details[
        "p_value"
    ] == pytest.approx(0.01)


def test_the_classifier_test(generator: torch.Generator) -> None:
    """The null's one-sided p-value is below 1e-3 in 1 of 1,000 trials."""
    for name in ("logistic", "forest"):
        same = ClassifierTest(name)(*samples(generator, 200, 200), generator=generator)
        far = ClassifierTest(name)(*samples(generator, 200, 200, 1.5), generator=generator)
        assert same.details["p_value"] > 1e-3 and same.low <= 0.5
        assert far.low > 0.7 and far.details["p_value"] < 1e-10


def test_coverage_counts_missed_modes(generator: torch.Generator) -> None:
    centers = torch.tensor(
        [[0.0, 0.0], [20.0, 0.0], [0.0, 20.0], [20.0, 20.0]], dtype=torch.float64
    )
    x, _ = samples(generator, 400, 1)
    y, _ = samples(generator, 400, 1)
    x = x + centers.repeat(100, 1)
    assert coverage(x, y + centers.repeat(100, 1)).item() > 0.9
    assert coverage(x, y + centers[:1]).item() < 0.3
    assert modes_covered(y + centers[:2].repeat(200, 1), centers, 3.0)[0] == 2


def test_the_kernel_is_bounded_by_one(generator: torch.Generator) -> None:
    x, y = samples(generator, 5, 6)
    assert torch.equal(gaussian_kernel(x, x, 2.0).diagonal(), torch.ones(5, dtype=torch.float64))
    assert (gaussian_kernel(x, y, 2.0) < 1).all()


def test_a_gan_is_evaluated_by_two_samples_and_says_so(generator: torch.Generator) -> None:
    model = GAN(2, generator=generator)
    x = torch.randn(100, 2, generator=generator)
    q = partita.evaluate(model, x, generator=generator)
    assert (q.kind, q.unit, q.n) == ("none", "MMD^2", 100)
    assert q.value > 0 and q.details["p_value"] < 0.05 and 0 <= q.details["coverage"] <= 1
    assert "not a likelihood" in str(q)
    full = TwoSample(classifier=ClassifierTest("logistic"))(model, x, generator=generator)
    assert full.details["classifier"].unit == "accuracy"


def test_wrong_samples_are_named(generator: torch.Generator) -> None:
    x, y = samples(generator, 20, 20)
    with pytest.raises(InputError, match=r"y must have shape \(\*, 2\) to match x"):
        MMD()(x, y[:, :1], generator=generator)
    with pytest.raises(InputError, match=r"x must have at least 4 rows; got 3"):
        MMD()(x[:3], y, generator=generator)
    with pytest.raises(
        Unsupported, match=r"TwoSample cannot run on RBM\(2, 1\): it has no independent draws"
    ):
        TwoSample()(RBM(2, 1, generator=generator), x, generator=generator)
