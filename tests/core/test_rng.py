"""Draws: from the generator alone, with the right frequencies, and torch's own randomness
untouched.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, distributions

from partita.core import rng

# false-alarm rate of each family of tests below, at its fixed seed; divided among its members
FAMILY = 1e-4
N = 20_000
Law = distributions.Distribution

# a distribution, and what scipy says about it
CASES: list[tuple[Law, Any]] = [
    (distributions.Bernoulli(probs=torch.tensor(0.3)), stats.bernoulli(0.3)),
    (distributions.Bernoulli(logits=torch.tensor(1.2)), stats.bernoulli(1 / (1 + np.exp(-1.2)))),
    (distributions.Normal(torch.tensor(2.0), torch.tensor(0.5)), stats.norm(2.0, 0.5)),
    (distributions.Normal(torch.tensor(-1.0), torch.tensor(3.0)), stats.norm(-1.0, 3.0)),
    (distributions.Gamma(torch.tensor(2.0), torch.tensor(3.0)), stats.gamma(2.0, scale=1 / 3)),
    (distributions.Poisson(torch.tensor(4.0)), stats.poisson(4.0)),
    (distributions.Uniform(torch.tensor(-1.0), torch.tensor(3.0)), stats.uniform(-1.0, 4.0)),
    (distributions.Beta(torch.tensor(2.0), torch.tensor(5.0)), stats.beta(2.0, 5.0)),
    (distributions.LogNormal(torch.tensor(0.0), torch.tensor(0.5)), stats.lognorm(0.5)),
]
IDS = [f"{type(d).__name__}-{i}" for i, (d, _) in enumerate(CASES)]


@pytest.fixture
def torch_untouched() -> Iterator[None]:
    """Fails where a test moved torch's global generator."""
    before = torch.random.get_rng_state()
    yield
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.usefixtures("torch_untouched")
@pytest.mark.parametrize(("distribution", "truth"), CASES, ids=IDS)
def test_draws_have_the_mean_and_variance_of_their_distribution(
    distribution: Law, truth: Any, generator: torch.Generator
) -> None:
    x = rng.draw(distribution, generator, (N,)).double().numpy()
    mean, variance, excess = (float(v) for v in truth.stats("mvk"))
    # two statistics of each of the cases, two-sided
    bound = stats.norm.isf(FAMILY / (2 * len(CASES)) / 2)
    assert x.shape == (N,)
    assert abs(x.mean() - mean) < bound * np.sqrt(variance / N)
    assert abs(x.var() - variance) < bound * variance * np.sqrt((excess + 2) / N)


@pytest.mark.usefixtures("torch_untouched")
@pytest.mark.parametrize("distribution", [law for law, _ in CASES], ids=IDS)
def test_draws_depend_on_the_generator_alone(distribution: Law) -> None:
    first = rng.draw(distribution, torch.Generator().manual_seed(1), (50,))
    with torch.random.fork_rng():
        torch.manual_seed(12345)
        again = rng.draw(distribution, torch.Generator().manual_seed(1), (50,))
    other = rng.draw(distribution, torch.Generator().manual_seed(2), (50,))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("distribution", [law for law, _ in CASES], ids=IDS)
def test_a_second_draw_is_another(distribution: Law, generator: torch.Generator) -> None:
    first = rng.draw(distribution, generator, (50,))
    second = rng.draw(distribution, generator, (50,))
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    "distribution",
    [
        distributions.Bernoulli(probs=torch.full((3, 4), 0.5, dtype=torch.float64)),
        distributions.Normal(
            torch.zeros(3, 4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
        ),
        distributions.Independent(
            distributions.Normal(torch.zeros(3, 4).double(), torch.ones(3, 4).double()), 1
        ),
        distributions.Gamma(
            torch.ones(3, 4, dtype=torch.float64), torch.ones(3, 4, dtype=torch.float64)
        ),
        distributions.MultivariateNormal(
            torch.zeros(3, 4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
        ),
    ],
    ids=lambda d: type(d).__name__,
)
def test_draws_have_the_shape_and_dtype_of_sample(
    distribution: Law, generator: torch.Generator
) -> None:
    x = rng.draw(distribution, generator, (2,))
    assert x.shape == distribution.sample(torch.Size((2,))).shape == (2, 3, 4)
    assert x.dtype == torch.float64
    assert len(x.unique()) > 1


def test_a_batch_of_normals_keeps_each_mean_and_deviation_in_its_place(
    generator: torch.Generator,
) -> None:
    loc, scale = torch.tensor([-5.0, 0.0, 5.0]), torch.tensor([0.1, 1.0, 2.0])
    x = rng.draw(distributions.Normal(loc, scale), generator, (N,))
    bound = stats.norm.isf(FAMILY / 6 / 2)  # six two-sided tests
    assert ((x.mean(0) - loc).abs() < bound * scale / N**0.5).all()
    assert ((x.var(0) - scale**2).abs() < bound * scale**2 * (2 / N) ** 0.5).all()


def test_bernoulli_frequencies_are_its_probabilities(generator: torch.Generator) -> None:
    p = torch.tensor([0.0, 0.02, 0.5, 0.9, 1.0], dtype=torch.float64)
    x = rng.bernoulli(p.expand(N, -1), generator)
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert x.dtype == torch.float64
    z = (x.mean(0) - p)[1:4] / (p * (1 - p) / N)[1:4].sqrt()
    assert (z.abs() < stats.norm.isf(FAMILY / 3 / 2)).all()
    assert (x[:, 0] == 0).all()  # never where it cannot be, always where it must
    assert (x[:, 4] == 1).all()


@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000])
def test_fast_draws_of_any_length_and_layout(n: int, generator: torch.Generator) -> None:
    """float32 on a CPU takes a generator of sixteen lanes; certain values must come out wherever
    they stand.
    """
    p = (torch.arange(n) % 3 == 0).float()
    assert torch.equal(rng.bernoulli(p, generator), p)
    table = p.expand(5, n).T  # not contiguous
    assert torch.equal(rng.bernoulli(table, generator), table)
    assert rng.bernoulli(torch.empty(0, n), generator).shape == (0, n)
    learned = p.clone().requires_grad_()
    assert not rng.bernoulli(learned, generator).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_near_and_far_in_one_call_and_across_calls_are_independent(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    """Correlations at the distances where a generator of lanes would show itself, and between one
    call and the next.
    """
    n, p = 200_000, 0.3
    first, second = (
        rng.bernoulli(torch.full((n,), p, dtype=dtype), generator).double() for _ in range(2)
    )
    z = lambda a, b: ((a - p) * (b - p)).mean() / (p * (1 - p)) * len(a) ** 0.5  # noqa: E731
    scores = [z(first[lag:], first[:-lag]).item() for lag in (1, 2, 8, 15, 16, 17, 32, 64)] + [
        z(first, second).item()
    ]
    assert max(map(abs, scores)) < stats.norm.isf(FAMILY / (2 * len(scores)) / 2)


@pytest.mark.parametrize("p", [1e-4, 0.01, 0.5, 0.97])
def test_fast_draws_have_the_right_frequency_in_every_lane(
    p: float, generator: torch.Generator
) -> None:
    n = 40_000
    ones = rng.bernoulli(torch.full((n, 16), p), generator).double().sum(0)
    exact = float(np.float32(p))
    # sixteen lanes and all of them together
    for count, size in [(int(k), n) for k in ones] + [(int(ones.sum()), 16 * n)]:
        tail = min(stats.binom.cdf(count, size, exact), stats.binom.sf(count - 1, size, exact))
        assert tail > FAMILY / (4 * 17) / 2


def test_uniform_and_normal_follow_their_laws(generator: torch.Generator) -> None:
    like = torch.zeros((), dtype=torch.float64)
    u, z = rng.uniform((N,), like, generator), rng.normal((N,), like, generator)
    assert u.dtype == z.dtype == torch.float64
    assert u.min() >= 0
    assert u.max() < 1
    assert stats.kstest(u.numpy(), "uniform").pvalue > FAMILY / 2
    assert stats.kstest(z.numpy(), "norm").pvalue > FAMILY / 2


@pytest.mark.parametrize("shift", [0.0, 1000.0, -1000.0])
@pytest.mark.parametrize(
    "weights",
    [[0.5, 0.0, 0.25, 0.05, 0.2, 0.0], [0.0, 0.25, 0.05, 0.2, 0.0, 0.5]],
    ids=["last empty", "first empty"],
)
def test_categorical_frequencies_follow_the_weights(
    weights: list[float], shift: float, generator: torch.Generator
) -> None:
    p = torch.tensor(weights, dtype=torch.float64)
    index = rng.categorical(p.log() + shift, generator, N)
    count = index.bincount(minlength=6).double()
    kept = p > 0
    assert (count[~kept] == 0).all()  # what has no weight never comes, not even first or last
    distance = ((count - N * p)[kept] ** 2 / (N * p)[kept]).sum().item()
    assert distance < stats.chi2.isf(FAMILY / 6, 3)


def test_categorical_by_float32_weights_stays_in_range(generator: torch.Generator) -> None:
    index = rng.categorical(torch.randn(1000, generator=generator), generator, N)
    assert index.shape == (N,)
    assert index.min() >= 0
    assert index.max() < 1000


def test_systematic_indices_are_as_even_as_the_weights_allow() -> None:
    p = torch.tensor([0.45, 0.0, 0.3, 0.25], dtype=torch.float64)
    total = torch.zeros(4, dtype=torch.float64)
    for seed in range(400):
        count = rng.systematic(p.log(), torch.Generator().manual_seed(seed), 7).bincount(
            minlength=4
        )
        assert count.sum() == 7
        assert ((count >= (7 * p).floor()) & (count <= (7 * p).ceil())).all()
        total += count
    # each count is one of two whole numbers, the upper with this probability
    share = 7 * p - (7 * p).floor()
    z = (total / 400 - 7 * p)[p > 0] / (share * (1 - share) / 400)[p > 0].sqrt()
    assert (z.abs() < stats.norm.isf(FAMILY / 3 / 2)).all()


def test_a_permutation_holds_everything_once_and_all_orders_are_equally_likely() -> None:
    orders = [
        tuple(rng.permutation(3, torch.Generator().manual_seed(seed)).tolist())
        for seed in range(1200)
    ]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    _, count = np.unique(orders, axis=0, return_counts=True)
    assert len(count) == 6
    assert ((count - 200) ** 2 / 200).sum() < stats.chi2.isf(FAMILY, 5)


@pytest.mark.parametrize(
    "make", [rng.seed, lambda g: rng.child(g).initial_seed()], ids=["seed", "child"]
)
def test_seeds_are_fresh_and_repeatable(make: Callable[[torch.Generator], int]) -> None:
    g, same = (torch.Generator().manual_seed(5) for _ in range(2))
    seeds = [make(g) for _ in range(100)]
    assert seeds == [make(same) for _ in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**31 for seed in seeds)  # numba and scikit-learn take 32 bits


def stream(generator: torch.Generator) -> Tensor:
    return torch.rand(4, generator=generator)


def test_keyed_generators_depend_on_their_numbers_alone() -> None:
    assert torch.equal(stream(rng.keyed(7, 1, 2)), stream(rng.keyed(7, 1, 2)))
    paths = [
        (),
        (0,),
        (1,),
        (2,),
        (-1,),
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 2),
        (2, 1),
        *((i,) for i in range(3, 200)),
    ]
    streams = [
        tuple(stream(rng.keyed(key, *path)).tolist()) for key in (0, 1, 2**31 - 2) for path in paths
    ]
    assert len(set(streams)) == len(streams)


@pytest.mark.usefixtures("torch_untouched")
def test_inside_seeded_torch_is_a_function_of_the_generator() -> None:
    def inside(seed: int) -> Tensor:
        with rng.seeded(torch.Generator().manual_seed(seed)):
            return torch.rand(3)

    assert torch.equal(inside(1), inside(1))
    assert not torch.equal(inside(1), inside(2))


@pytest.mark.usefixtures("torch_untouched")
def test_seeded_gives_torch_its_randomness_back_after_an_error(generator: torch.Generator) -> None:
    with pytest.raises(KeyError, match="lost"), rng.seeded(generator):
        raise KeyError("lost")
