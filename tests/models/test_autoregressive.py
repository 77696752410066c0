"""Autoregressive models: probabilities that sum to one, caches that change nothing, draws from what
log_prob says.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

import partita
from partita.datasets import Sequences
from partita.errors import InputError
from partita.models import Autoregressive, MaskedAutoregressive
from partita.models.directed.autoregressive.emissions import Sharpness, draw_categorical
from partita.nets.masked import MaskedMLP

BACKBONES = ("hyena", "h3", "ssm", "attention", "conv", "lstm")
KINDS: dict[str, dict[str, Any]] = {
    "tokens": {"length": 4, "element": "categorical", "states": 3},
    "bits": {"length": 3, "element": "binary", "size": 3},
    "numbers": {"length": 3, "element": "real", "size": 2, "components": 3},
}


def model_of(kind: str, backbone: str, g: torch.Generator, **more: Any) -> Autoregressive:
    options = {"heads": 2} if backbone == "attention" else None
    small: dict[str, Any] = {
        "width": 8,
        "layers": 2,
        "hidden": 6,
        "options": options,
        **KINDS[kind],
        **more,
    }
    return Autoregressive(backbone=backbone, **small, generator=g).double()


def all_states(model: Any) -> Tensor:
    return model.support.states(
        0, round(2**model.support.bits), torch.zeros((), dtype=torch.float64)
    )


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("kind", ["tokens", "bits"])
@torch.no_grad()
def test_probabilities_of_all_short_sequences_sum_to_one(
    kind: str, backbone: str, generator: torch.Generator
) -> None:
    model = model_of(kind, backbone, generator, positions=True)
    assert float(model.log_prob(all_states(model)).exp().sum()) == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("element", ["binary", "categorical"])
@torch.no_grad()
def test_masked_probabilities_sum_to_one(element: str, generator: torch.Generator) -> None:
    model = MaskedAutoregressive(6, element, states=3, widths=(9, 7), generator=generator).double()
    assert float(model.log_prob(all_states(model)).exp().sum()) == pytest.approx(1, abs=1e-10)


@torch.no_grad()
def test_real_densities_integrate_to_one(generator: torch.Generator) -> None:
    masked = MaskedAutoregressive(
        2, "real", components=3, widths=(5,), generator=generator
    ).double()
    sequence = model_of("numbers", "hyena", generator, length=2, size=1)
    sequence.one.shift.fill_(0.5), sequence.one.scale.fill_(2.0)
    # deviations grow with the first value
    first, second = torch.linspace(-15, 15, 201).double(), torch.linspace(-80, 80, 1201).double()
    for model in (masked, sequence):
        p = model.log_prob(torch.cartesian_prod(first, second)).exp().view(201, 1201).numpy()
        assert integrate.simpson(
            integrate.simpson(p, x=second.numpy()), x=first.numpy()
        ) == pytest.approx(1, abs=1e-6)


@torch.no_grad()
def test_a_mask_lets_each_output_see_only_what_is_before_it(generator: torch.Generator) -> None:
    net = MaskedMLP(5, 2, widths=(11, 7), context=3, generator=generator).double()
    x = torch.randn(5, dtype=torch.float64, generator=generator)
    c = torch.randn(3, dtype=torch.float64, generator=generator)
    jacobian: Any = torch.autograd.functional.jacobian(lambda x: net(x, c), x)  # (5, 2, 5)
    seen = jacobian.abs().amax(1) > 0
    assert torch.equal(seen, torch.ones(5, 5, dtype=torch.bool).tril(-1))


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("kind", list(KINDS))
@torch.no_grad()
def test_the_cache_predicts_what_recomputation_predicts(
    kind: str, backbone: str, generator: torch.Generator
) -> None:
    model = model_of(kind, backbone, generator, length=40)
    x = model.draw(3, generator=generator)
    steps = x.unflatten(-1, (40, -1))
    state, u, cached = model.net.start(3, 40), model.first.expand(3, -1), []
    for t in range(40):
        context, state = model.net.step(u, state)
        cached.append(model.one.log_prob(context, steps[:, t]))
        u = model.one.embed(steps[:, t])
    torch.testing.assert_close(torch.stack(cached, 1), model.log_prob_steps(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["tokens", "bits", "masked"])
def test_draws_follow_log_prob(kind: str, generator: torch.Generator) -> None:
    """Chi-square over all states, merged to an expected count of 5; false alarm 1e-4 for each of
    three.
    """
    g = generator
    model: Any = (
        MaskedAutoregressive(5, widths=(8,), generator=g).double()
        if kind == "masked"
        else model_of(kind, "hyena", g, length=2)
    )
    with torch.no_grad():
        states, n = all_states(model), 20_000
        expected = n * model.log_prob(states).exp().numpy()
        x = model.draw(n, generator=g)
    base = round(len(states) ** (1 / model.support.width))
    number = (
        x
        @ torch.tensor([float(base) ** i for i in range(model.support.width)][::-1], dtype=x.dtype)
    ).long()
    counts = np.bincount(number.numpy(), minlength=len(states))
    order = np.argsort(expected)
    few = np.searchsorted(np.cumsum(expected[order]), 5) + 1
    merged = [
        np.r_[values[order[:few]].sum(), values[order[few:]]] for values in (counts, expected)
    ]
    assert stats.chisquare(merged[0], merged[1] * merged[0].sum() / merged[1].sum()).pvalue > 1e-4


def test_real_draws_have_the_mixture_s_distribution(generator: torch.Generator) -> None:
    """Kolmogorov-Smirnov of the first value against the integrated density; false alarm 1e-4."""
    model = model_of("numbers", "conv", generator, length=1, size=1)
    grid = torch.linspace(-15, 15, 20_001, dtype=torch.float64)
    with torch.no_grad():
        cdf = integrate.cumulative_simpson(
            model.log_prob(grid[:, None]).exp().numpy(), x=grid.numpy(), initial=0
        )
        x = model.draw(5000, generator=generator)[:, 0].numpy()
    assert stats.kstest(x, lambda v: np.interp(v, grid.numpy(), cdf)).pvalue > 1e-4


@torch.no_grad()
def test_a_continuation_keeps_its_prefix_and_follows_the_conditional(
    generator: torch.Generator,
) -> None:
    """One step after a prefix, 20,000 draws of three states: four standard errors, false alarm
    below 2e-4.
    """
    model = model_of("tokens", "hyena", generator)
    prefix = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    x = model.extend(prefix.expand(20_000, -1), 1, generator=generator)
    assert torch.equal(x[:, :2], prefix.expand(20_000, -1))
    ends = torch.tensor([[2.0, 0.0, k] for k in range(3)], dtype=torch.float64)
    p = (model.log_prob(ends) - model.log_prob(prefix)).exp()
    share = torch.bincount(x[:, 2].long(), minlength=3) / 20_000
    assert ((share - p).abs() < 4 * (p * (1 - p) / 20_000).sqrt()).all()


def test_temperature_and_top_p_reshape_the_distribution(generator: torch.Generator) -> None:
    """40,000 draws each: five standard errors, false alarm below 1e-5."""
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    for temperature, top_p, expected in (
        (1.0, 1.0, p),
        (2.0, 1.0, p**0.5),
        (1.0, 0.75, p * torch.tensor([1, 1, 0, 0])),
        (0.5, 1.0, p**2),
    ):
        sharpness = Sharpness(temperature, top_p)
        x = draw_categorical(p.log().expand(40_000, -1), sharpness, generator)
        expected = expected / expected.sum()
        share = torch.bincount(x.long(), minlength=4) / 40_000
        assert ((share - expected).abs() <= 5 * (expected * (1 - expected) / 40_000).sqrt()).all()


@torch.no_grad()
def test_rows_that_end_early_have_the_likelihood_of_what_is_there(
    generator: torch.Generator,
) -> None:
    model = model_of("tokens", "attention", generator)
    prefix, states = torch.tensor([1.0, 2.0], dtype=torch.float64), all_states(model)
    beginning = (states[:, :2] == prefix).all(1)
    summed = model.log_prob(states[beginning]).logsumexp(0)
    padded = torch.tensor([[1.0, 2.0, torch.nan, torch.nan]], dtype=torch.float64)
    for found in (
        model.log_prob(padded),
        model.log_prob(padded.nan_to_num(0), torch.tensor([2])),
        model.log_prob(prefix[None]),
    ):
        torch.testing.assert_close(found[0], summed, rtol=0, atol=1e-10)


def test_a_fit_of_sequences_of_different_lengths_learns_their_rule(
    generator: torch.Generator,
) -> None:
    """A token repeats the one two steps before it: log 2 for each of two free steps, and little for
    the others.
    """
    parts = [
        np.tile(generator_row, 8)[: 6 + i % 8]
        for i, generator_row in enumerate(np.random.default_rng(0).integers(0, 2, (200, 2)))
    ]
    rows = Sequences.of(parts)
    model = Autoregressive(
        rows.longest, states=2, backbone="conv", width=16, layers=2, generator=generator
    )
    partita.fit(model, rows, steps=150, validation=rows.take(range(20)), generator=generator)
    q = partita.evaluate(model, rows, generator=generator)
    assert q.kind == "exact" and q.details["steps"] == rows.steps
    assert q.value == pytest.approx(-2 * np.log(2), abs=0.15)
    assert q.details["per_step"] == pytest.approx(q.value * len(rows) / rows.steps)


def test_a_saved_model_is_rebuilt(tmp_path: Any, generator: torch.Generator) -> None:
    rows = Sequences.windows(np.random.default_rng(0).integers(0, 3, 200), 8)
    model = Autoregressive(
        8, states=3, backbone="hyena", width=8, layers=1, options={"order": 3}, generator=generator
    )
    partita.fit(model, rows, steps=3, out=tmp_path / "run", generator=generator)
    again = partita.load(tmp_path / "run").model
    x = rows.tensor()
    torch.testing.assert_close(again.log_prob(x), model.log_prob(x), rtol=0, atol=0)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_no_rows_have_no_likelihoods(backbone: str, generator: torch.Generator) -> None:
    assert model_of("tokens", backbone, generator).log_prob(torch.zeros(0, 4)).shape == (0,)


def test_bad_input_is_named(generator: torch.Generator) -> None:
    model = model_of("tokens", "hyena", generator)
    with pytest.raises(InputError, match=r"x must have from 1 to 4 steps of 1; got shape \(1, 0\)"):
        model.log_prob(torch.zeros(1, 0))
    with pytest.raises(
        InputError,
        match=r"x must have from 1 to 4 steps of 1; got shape \(1, 5\). Cut it into windows",
    ):
        model.log_prob(torch.zeros(1, 5))
    # the last step too, which is never taken in
    for place, wrong in ((1, 3.0), (3, 3.0), (3, -100.0), (2, 0.5)):
        x = torch.zeros(1, 4, dtype=torch.float64)
        x[0, place] = wrong
        with pytest.raises(
            InputError,
            match=rf"hold whole numbers from 0 to 2; got {wrong:g} in step {place}. Build the "
            r"vocabulary",
        ):
            model.log_prob(x)
    with pytest.raises(
        InputError, match=r"prefix must hold whole numbers from 0 to 2; got 3 in step 0"
    ):
        model.extend(torch.tensor([[3.0]]), 2, generator=generator)
    with pytest.raises(
        InputError, match=r"lengths must be 2 whole numbers from 1 to 4, one for each row; got 5"
    ):
        model.log_prob(torch.zeros(2, 4).double(), torch.tensor([1, 5]))
    with pytest.raises(InputError, match=r"x must hold only 0 and 1; got 2 in step 1"):
        model_of("bits", "conv", generator).log_prob(
            torch.tensor([[0.0, 1.0, 0.0, 0.0, 2.0, 0.0]]).double()
        )
    with pytest.raises(
        InputError, match=r"prefix must have shape \(n, l\) with l a multiple of 3; got \(1, 4\)"
    ):
        model_of("bits", "conv", generator).extend(torch.zeros(1, 4), 2, generator=generator)
    with pytest.raises(
        InputError,
        match=r"MaskedAutoregressive: x must hold whole numbers from 0 to 2; got -100 in column 1",
    ):
        MaskedAutoregressive(2, "categorical", states=3, generator=generator).log_prob(
            torch.tensor([[0.0, -100.0]])
        )
    with pytest.raises(InputError, match=r"x must be finite up to the end of each row"):
        model.log_prob(torch.tensor([[0.0, torch.nan, 1.0]]).double())
    with pytest.raises(InputError, match=r"temperature must be a finite number above 0"):
        model.draw(1, temperature=0.0, generator=generator)
    with pytest.raises(InputError, match=r"top_p must be 1 for real values"):
        model_of("numbers", "conv", generator).draw(1, top_p=0.9, generator=generator)
    with pytest.raises(InputError, match=r"mixer must be one of 'hyena'"):
        Autoregressive(4, backbone="gru", generator=generator)
    with pytest.raises(InputError, match=r"must stay within the 4 places that were learned; got 5"):
        model_of("tokens", "hyena", generator, positions=True).extend(
            torch.zeros(1, 2), 3, generator=generator
        )


def test_numbers_past_all_squares_are_named(generator: torch.Generator) -> None:
    """A billion deviations out the density and its gradient are still numbers; where squares
    overflow the value is named.
    """
    model = Autoregressive(3, "real", size=2, components=3, width=8, layers=1, generator=generator)
    far = torch.full((2, 6), 1e9)
    model.log_prob(far).sum().backward()
    assert (
        all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
        and torch.isfinite(model.log_prob(far)).all()
    )
    far[1, 3] = 1e30
    with pytest.raises(
        InputError,
        match=r"x must lie within 4e\+09 deviations of the data .*; got 1e\+30 in step 1",
    ):
        model.log_prob(far)
    assert torch.isfinite(model.double().log_prob(far.double())).all()
