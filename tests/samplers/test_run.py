"""Collected chains: how many, from when, and whether R-hat and ESS say what they should."""

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import chi2
from torch import Tensor

import partita
from partita.core.protocols import DirectedModel, Sampler
from partita.core.support import Binary
from partita.diagnostics import summarize_chains
from partita.errors import InputError
from partita.models import RBM
from partita.samplers import Gibbs, Tempering, run, sample

ZEROS = torch.zeros(2, 6)
FAMILY = 1e-4  # false-alarm rate of each statistical test, at its fixed seed


class Count(NamedTuple):
    x: Tensor


class Step(NamedTuple):
    def numbers(self) -> dict[str, Tensor]:
        return {"moved": torch.tensor([0.0, 1.0])}


class Counter(Sampler[Count]):
    """A kernel that turns the bits of each chain into the number of steps it has made."""

    def init(self, model: Any, x: Tensor, *, generator: torch.Generator) -> Count:
        return Count(x)

    def step(self, model: Any, state: Count, *, generator: torch.Generator) -> tuple[Count, Step]:
        weight = 2 ** torch.arange(state.x.shape[-1] - 1, -1, -1)
        number = (state.x.long() * weight).sum(-1) + 1
        return Count((number[:, None] // weight % 2).to(state.x.dtype)), Step()


def numbers(x: Tensor) -> list[int]:
    return (x.long() * 2 ** torch.arange(x.shape[-1] - 1, -1, -1)).sum(-1).tolist()


def wide(generator: torch.Generator) -> RBM:
    return RBM(6, 2, generator=generator)


@pytest.mark.parametrize(
    ("draws", "burn_in", "thin"), [(4, 0, 1), (5, 3, 1), (4, 2, 5), (1, 0, 1), (6, 10, 2)]
)
def test_what_is_collected_and_when(
    draws: int, burn_in: int, thin: int, generator: torch.Generator
) -> None:
    result = run(
        wide(generator),
        Counter(),
        torch.zeros(3, 6),
        draws=draws,
        burn_in=burn_in,
        thin=thin,
        generator=generator,
    )  # type: ignore[arg-type]
    expected = [burn_in + thin * (i + 1) for i in range(draws)]
    assert result.x.shape == (3, draws, 6)
    assert [numbers(result.x[chain]) for chain in range(3)] == [expected] * 3
    assert numbers(result.state.x) == [expected[-1]] * 3  # where to go on
    assert result.flat().shape == (3 * draws, 6)
    assert result.acceptance == {"moved": 0.5}
    assert (result.report.chains, result.report.draws) == (3, draws)


def test_going_on_from_a_state_is_one_longer_run(generator: torch.Generator) -> None:
    model = wide(generator)
    g = torch.Generator().manual_seed(1)
    whole = run(model, Gibbs(), torch.zeros(4, 6), draws=10, generator=g)
    g = torch.Generator().manual_seed(1)
    first = run(model, Gibbs(), torch.zeros(4, 6), draws=6, generator=g)
    rest = run(model, Gibbs(), first.state.x, draws=4, generator=g)
    assert torch.equal(torch.cat([first.x, rest.x], 1), whole.x)


def test_draws_of_a_sampler_follow_the_model(generator: torch.Generator) -> None:
    """One draw from each of many chains, so that draws are independent."""
    model = RBM(3, 2, scale=1.0, generator=generator).double()
    W = model.W.detach().numpy()
    x, h = (np.array(list(product([0.0, 1.0], repeat=n))) for n in (3, 2))
    log_phi = logsumexp(x @ W @ h.T, axis=1)
    p = np.exp(log_phi - logsumexp(log_phi))
    for sampler in (None, Gibbs(2), Tempering(Gibbs(), betas=(0.5, 1.0))):
        drawn = sample(model, 8_000, sampler=sampler, burn_in=30, generator=generator)
        observed = torch.tensor(numbers(drawn)).bincount(minlength=8).numpy()
        assert drawn.shape == (8_000, 3)
        assert ((observed - 8_000 * p) ** 2 / (8_000 * p)).sum() < chi2.isf(FAMILY / 3, 7)


def test_sample_starts_where_it_is_told(generator: torch.Generator) -> None:
    start = torch.ones(5, 6)
    drawn = sample(
        wide(generator), 5, sampler=Counter(), burn_in=0, x=torch.zeros(5, 6), generator=generator
    )  # type: ignore[arg-type]
    assert numbers(drawn) == [1] * 5
    with torch.no_grad():
        model = wide(generator)
        model.b.fill_(40.0)
    assert torch.equal(sample(model, 5, burn_in=1, x=start, generator=generator), start)


def test_sample_is_a_function_of_its_generator(generator: torch.Generator) -> None:
    model = wide(generator)
    first, again, other = (
        partita.sample(model, 9, burn_in=3, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


class Coins(DirectedModel):
    support = Binary(2)

    def settings(self) -> dict[str, Any]:
        return {}

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        return torch.ones(n, 2)


def test_a_directed_model_draws_for_itself(generator: torch.Generator) -> None:
    assert torch.equal(sample(Coins(), 4, generator=generator), torch.ones(4, 2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda m, g: run(m, Gibbs(), ZEROS, draws=0, generator=g),
            r"run: draws must be a whole number of at least 1; got 0\.",
        ),
        (
            lambda m, g: run(m, Gibbs(), ZEROS, draws=1, thin=0, generator=g),
            r"run: thin must be a whole number of at least 1; got 0\.",
        ),
        (
            lambda m, g: run(m, Gibbs(), ZEROS, draws=1, burn_in=-1, generator=g),
            r"run: burn_in must be .* of at least 0; got -1\.",
        ),
        (
            lambda m, g: run(m, Gibbs(), ZEROS[:, :5], draws=1, generator=g),
            r"run: x must have shape \(\*, 6\) to match Binary\(D=6\)",
        ),
        (
            lambda m, g: run(m, Gibbs(), ZEROS + 0.5, draws=1, generator=g),
            r"run: x must hold only 0 and 1; got 0\.5 in column 0\.",
        ),
        (
            lambda m, g: sample(m, 0, generator=g),
            r"sample: n must be a whole number of at least 1; got 0\.",
        ),
        (
            lambda m, g: sample(m, 1, burn_in=-1, generator=g),
            r"sample: burn_in must be a whole number of at least 0; got -1\.",
        ),
        (
            lambda m, g: sample(m, 3, x=ZEROS, generator=g),
            r"sample: x must have n = 3 rows, one for each chain; got 2\.",
        ),
    ],
)
def test_bad_settings(call, words: str, generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=words):
        call(wide(generator), generator)


# the diagnosis


def test_independent_chains_look_mixed(generator: torch.Generator) -> None:
    report = summarize_chains(torch.randn(4, 1000, 3, generator=generator))
    assert report.mixed
    assert 0.999 < report.rhat < 1.01
    assert 3000 < report.ess_bulk < 5500  # of 4,000 independent draws
    assert 2500 < report.ess_tail < 5500


def test_autocorrelated_chains_have_the_ess_of_theory(generator: torch.Generator) -> None:
    """x_t = a x_(t-1) + noise has n (1 - a) / (1 + a) effective draws."""
    a, n = 0.8, 5000
    noise = torch.randn(4, n, generator=generator, dtype=torch.float64)
    x = torch.zeros(4, n, dtype=torch.float64)
    x[:, 0] = noise[:, 0] / (1 - a**2) ** 0.5
    for t in range(1, n):
        x[:, t] = a * x[:, t - 1] + noise[:, t]
    report = summarize_chains(x[..., None])
    assert report.ess_bulk == pytest.approx(4 * n * (1 - a) / (1 + a), rel=0.2)
    assert report.mixed


def test_chains_in_different_places_are_not_mixed(generator: torch.Generator) -> None:
    apart = torch.randn(4, 200, 1, generator=generator) + 5 * torch.arange(4.0)[:, None, None]
    report = summarize_chains(apart)
    assert report.rhat > 1.5
    assert not report.mixed
    assert report.ess_bulk < 10
    assert "not mixed, the chains disagree, R-hat" in str(report) and str(report).endswith(
        ": run longer, or temper"
    )


@pytest.mark.parametrize(
    "values",
    [torch.arange(4.0), torch.tensor([0.0, 0.0, 0.0, 1.0])],
    ids=["all apart", "one apart"],
)
def test_chains_that_never_move_are_not_mixed_and_raise_no_warning(values: Tensor) -> None:
    report = summarize_chains(values[:, None, None].expand(4, 50, 1))
    assert not report.mixed
    assert report.rhat > 2


def test_the_worst_summary_counts(generator: torch.Generator) -> None:
    good = torch.randn(4, 200, 1, generator=generator)
    bad = good + 5 * torch.arange(4.0)[:, None, None]
    assert summarize_chains(torch.cat([good, bad], -1)).rhat == pytest.approx(
        summarize_chains(bad).rhat
    )


def test_nothing_moved_nothing_known() -> None:
    report = summarize_chains(torch.ones(4, 50, 2))
    assert np.isnan([report.rhat, report.ess_bulk, report.ess_tail]).all()
    assert not report.mixed


@pytest.mark.parametrize("shape", [(4, 3, 1), (1, 100, 1)], ids=["three draws", "one chain"])
def test_too_little_to_compare_is_not_called_mixed(
    shape: tuple[int, int, int], generator: torch.Generator
) -> None:
    assert not summarize_chains(torch.randn(shape, generator=generator)).mixed


def test_run_reports_stuck_chains(generator: torch.Generator) -> None:
    """Chains that begin in two modes and cannot cross give themselves away by their free energy."""
    model = RBM(4, 1, generator=generator)
    with torch.no_grad():
        model.W.fill_(30.0)
        model.b.fill_(-14.9)
        model.c.fill_(-60.0)
    x = torch.cat([torch.zeros(2, 4), torch.ones(2, 4)])
    stuck = run(
        model,
        Gibbs(),
        x,
        draws=50,
        statistic=lambda rows: rows.sum(-1, keepdim=True),
        generator=generator,
    )
    assert not stuck.report.mixed
    free = run(
        RBM(4, 1, generator=generator), Gibbs(), x, draws=500, burn_in=5, generator=generator
    )
    assert free.report.mixed
    assert free.report.ess_bulk > 1000  # of 2,000
