"""Belief nets against sums over all states of their bits."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import partita
from partita.errors import InputError, Unsupported
from partita.evaluators import IWAE
from partita.evaluators.importance import simulated_bounds
from partita.gradients import ESTIMATORS
from partita.gradients.latents import log_prob
from partita.models import RBM, SigmoidBelief
from partita.objectives import ELBO, DiscreteELBO, IWAEBound
from partita.training import PartitaWarning, checkpoint
from partita.training.session import Session

HIDDEN = [(4,), (3, 2)]


def made(
    hidden: tuple[int, ...], generator: torch.Generator, spread: float = 3.0, **settings: Any
) -> SigmoidBelief:
    """A small net in float64 whose weights are far from zero."""
    model = SigmoidBelief(5, hidden, generator=generator, **settings).double()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(spread)
        model.prior.normal_(generator=generator)
    return model


def states(count: int) -> Tensor:
    return (torch.arange(2**count)[:, None] >> torch.arange(count)).remainder(2).double()


def exact_elbo(model: SigmoidBelief, x: Tensor) -> Tensor:
    """The evidence bound by a sum over all states."""
    z = states(model.latent)[:, None]
    log_q = model.posterior(x).log_prob(z)
    return (log_q.exp() * (model.log_joint(x, z) - log_q)).sum(0)


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("widths", [(), (6,)], ids=["linear", "perceptron"])
def test_masses_sum_to_one(
    hidden: tuple[int, ...], widths: tuple[int, ...], generator: torch.Generator
) -> None:
    model = made(hidden, generator, widths=widths)
    with torch.no_grad():
        torch.testing.assert_close(
            torch.logsumexp(model.log_prob(states(5)), 0),
            torch.zeros(()).double(),
            atol=1e-12,
            rtol=0,
        )
        q = model.posterior(states(5)[:3]).log_prob(states(model.latent)[:, None])
        torch.testing.assert_close(
            torch.logsumexp(q, 0), torch.zeros(3).double(), atol=1e-12, rtol=0
        )


@pytest.mark.parametrize("hidden", HIDDEN)
def test_draws_have_the_model_s_law(hidden: tuple[int, ...], generator: torch.Generator) -> None:
    """A chi-squared statistic with 31 degrees of freedom passes 75 by chance once in 50,000."""
    model = made(hidden, generator)
    n = 40_000
    index = (model.draw(n, generator=generator) @ (2.0 ** torch.arange(5)).double()).long()
    with torch.no_grad():
        p = model.log_prob(states(5)).exp()
    assert ((torch.bincount(index, minlength=32) - n * p).square() / (n * p)).sum() < 75


@pytest.mark.parametrize("hidden", HIDDEN)
def test_weights_average_to_the_likelihood(
    hidden: tuple[int, ...], generator: torch.Generator
) -> None:
    """E[w] = p(x) within 4.5 standard errors, and the bounds lie below: two in 10,000 by chance."""
    model, x = made(hidden, generator, spread=1.5), states(5)[::7]
    with torch.no_grad():
        ratio = (model.log_weights(x, 50_000, generator=generator) - model.log_prob(x)).exp()
    assert (((ratio.mean(0) - 1) / (ratio.std(0) / 50_000**0.5)).abs() < 4.5).all()
    one, many = (IWAE(k)(model, x.repeat(200, 1), generator=generator) for k in (2, 64))
    with torch.no_grad():
        exact, bound = float(model.log_prob(x).mean()), float(exact_elbo(model, x).mean())
    assert bound < one.value < many.value < exact + 0.01
    assert one.kind == "lower"


@pytest.mark.parametrize("hidden", HIDDEN)
def test_both_sides_enclose_the_truth_on_the_model_s_own_rows(
    hidden: tuple[int, ...], generator: torch.Generator
) -> None:
    """Minus the entropy, which is the mean log-likelihood of its own draws, lies between, up to 4.5
    standard errors.
    """
    model = made(hidden, generator)
    with torch.no_grad():
        log_p = model.log_prob(states(5))
    low, high = simulated_bounds(model, 4000, 4, generator=generator)
    truth = float(log_p.exp() @ log_p)
    assert low.value < high.value
    assert low.value < truth + 4.5 * low.se_data and high.value > truth - 4.5 * high.se_data


def test_few_bits_are_scored_exactly(generator: torch.Generator) -> None:
    few = SigmoidBelief(5, (4, 3), generator=generator)
    many = SigmoidBelief(5, (11,), generator=generator)
    x = few.draw(20, generator=generator)
    assert (
        partita.evaluate(few, x, generator=generator).kind,
        partita.evaluate(many, x, generator=generator).kind,
    ) == ("exact", "lower")


@pytest.mark.parametrize("name", ["nvil", "rebar", "leave-one-out", "disarm", "muprop"])
def test_gradients_of_the_bound(name: str, generator: torch.Generator) -> None:
    """Two layers, two rows, 49 gradients: Student's t of sixty batches passes 5.4 by chance once in
    800,000; NVIL gives the direction.
    """
    model = made((2, 2), generator, spread=1.0)
    x = states(5)[[6, 21]]
    parameters = list(model.parameters())
    exact = torch.cat(
        [g.flatten() for g in torch.autograd.grad(exact_elbo(model, x).mean(), parameters)]
    )
    estimator = DiscreteELBO(name).made()
    state = estimator.init(model.hidden, 5, like=model.prior, generator=generator)
    seen = []
    for _ in range(60):
        estimate = model.estimate(x.repeat(500, 1), estimator, state, generator=generator)
        seen.append(
            torch.cat(
                [g.flatten() for g in torch.autograd.grad(estimate.surrogate.mean(), parameters)]
            )
        )
        state = estimate.state
    mean, se = torch.stack(seen).mean(0), torch.stack(seen).std(0) / 60**0.5
    fixed = se == 0  # where a gradient does not depend on the draws
    torch.testing.assert_close(mean[fixed], exact[fixed])
    if estimator.unbiased:
        assert ((mean - exact).abs() / se)[~fixed].max() < 5.4
    assert torch.cosine_similarity(mean, exact, 0) > 0.99


def test_the_gradient_of_the_bound_of_several_draws(generator: torch.Generator) -> None:
    """VIMCO with two draws against a sum over all pairs of states: here the gradient of -log q
    counts, as it does not in the ELBO's.
    """
    model, x = made((3,), generator, spread=1.0), states(5)[[6, 21]]
    parameters, z = list(model.parameters()), states(3)[:, None]
    log_q = model.posterior(x).log_prob(z)
    log_w = model.log_joint(x, z) - log_q
    pairs = torch.logaddexp(log_w[:, None], log_w[None]) - math.log(2)
    bound = ((log_q[:, None] + log_q[None]).exp() * pairs).sum((0, 1)).mean()
    exact = torch.cat([g.flatten() for g in torch.autograd.grad(bound, parameters)])
    estimator, seen = DiscreteELBO("vimco", samples=2).made(), []
    state = estimator.init(model.hidden, 5, like=model.prior, generator=generator)
    for _ in range(60):
        estimate = model.estimate(x.repeat(500, 1), estimator, state, generator=generator)
        seen.append(
            torch.cat(
                [g.flatten() for g in torch.autograd.grad(estimate.surrogate.mean(), parameters)]
            )
        )
    mean, se = torch.stack(seen).mean(0), torch.stack(seen).std(0) / 60**0.5
    # 41 of Student's t with 59 degrees of freedom: five in 100,000 by chance
    assert ((mean - exact).abs() / se).max() < 5.4


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_every_estimator_learns(name: str, generator: torch.Generator) -> None:
    x = torch.eye(4).repeat_interleave(3, 1).repeat(25, 1)
    model = SigmoidBelief(12, (4,), generator=generator)
    partita.fit(
        model,
        x,
        DiscreteELBO(name),
        steps=150,
        batch_size=50,
        learning_rate=0.03,
        generator=generator,
    )
    with torch.no_grad():
        # coins at the base rates have -6.75, four sorts of row log 4
        assert model.log_prob(x).mean() > -4.5


def test_the_held_proposal_is_the_proposal(generator: torch.Generator) -> None:
    model = made((3, 2), generator)
    q = model.proposal(states(5)[:4])
    draws = (
        torch.rand(4, 3, generator=generator).double().requires_grad_(),
        torch.rand(4, 2, generator=generator).double(),
    )
    held = log_prob(model.held(q), draws)
    torch.testing.assert_close(held, log_prob(q, draws))
    held.sum().backward()
    assert draws[0].grad is not None and all(p.grad is None for p in model.parameters())


def test_filling_in_follows_the_conditional(generator: torch.Generator) -> None:
    """The mean of chains, within 0.02 of the exact conditional: about five of its errors."""
    model = made((3,), generator)
    x = torch.tensor([[1.0, 0.0, torch.nan, 1.0, torch.nan]]).double()
    full = states(2)
    trials = torch.stack(
        [torch.tensor([1.0, 0.0, float(a), 1.0, float(b)]).double() for a, b in full]
    )
    with torch.no_grad():
        p = torch.softmax(model.log_prob(trials), 0)
    found = model.fill(x.repeat(60, 1), "mean", generator=generator).mean(0)
    torch.testing.assert_close(found[[2, 4]], p @ full, atol=0.02, rtol=0)


def test_real_and_categorical_columns(generator: torch.Generator) -> None:
    x = torch.randn(60, 3, generator=generator) + 5
    real = SigmoidBelief(3, (4,), likelihood="gaussian", generator=generator)
    partita.fit(real, x, DiscreteELBO("disarm"), steps=20, generator=generator)
    q = partita.evaluate(real, x, generator=generator)
    assert q.kind == "exact" and q.value < 0
    words = torch.randint(3, (60, 3), generator=generator).float()
    several = SigmoidBelief(3, (4,), likelihood="categorical", states=3, generator=generator)
    partita.fit(several, words, DiscreteELBO("rebar"), steps=20, generator=generator)
    with torch.no_grad():
        all_words = torch.cartesian_prod(*[torch.arange(3.0)] * 3)
        torch.testing.assert_close(
            several.log_prob(all_words).exp().sum(), torch.ones(()), atol=1e-4, rtol=0
        )


@pytest.mark.parametrize("name", ["relax", "nvil", "muprop", "disarm"])
def test_a_resumed_fit_is_the_same_bit_for_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Baselines, temperatures and averages of the estimator are saved with the run."""
    options: dict[str, Any] = {
        "steps": 12,
        "optimizer": "adam",
        "learning_rate": 0.02,
        "batch_size": 3,
        "average": 0.3,
    }

    def run(out: Path, **more: Any) -> Any:
        g = torch.Generator().manual_seed(2)
        return partita.fit(
            SigmoidBelief(6, (4, 3), generator=g),
            torch.eye(6),
            DiscreteELBO(name),
            out=out,
            generator=g,
            **options,
            **more,
        )

    whole, advance = run(tmp_path / "whole"), Session.advance

    def stops_at_5(self: Session) -> Any:
        if self.step == 5:
            checkpoint.save_tree(
                tmp_path / "parts" / "checkpoints" / "last.safetensors", self.tree()
            )
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(Session, "advance", stops_at_5)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts")
    monkeypatch.setattr(Session, "advance", advance)
    again = run(tmp_path / "parts", resume=True)
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[key]), key
    assert torch.equal(partita.load(tmp_path / "parts").model.prior, whole.model.prior)


def test_collapse_is_reported(generator: torch.Generator) -> None:
    """A proposal that is the prior whatever x is carries nothing: the fit says so, and the score
    shows it unit by unit.
    """
    x = (torch.rand(40, 4, generator=generator) < 0.5).float()
    model = SigmoidBelief(4, (8, 4), generator=generator)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    with pytest.warns(
        PartitaWarning,
        match=r"the posterior has collapsed: 0 of 12 units carry more than 0.01 nats",
    ):
        partita.fit(
            model, x, DiscreteELBO("disarm"), steps=5, learning_rate=1e-5, generator=generator
        )
    q = partita.evaluate(model, x, generator=generator)
    assert q.details["active_units"] == 0 and q.details["kl_per_dimension"].shape == (12,)


def test_wrong_input_is_named(generator: torch.Generator) -> None:
    model, x = SigmoidBelief(4, (3,), generator=generator), torch.eye(4)
    with pytest.raises(
        Unsupported,
        match=r"^ELBO cannot run on SigmoidBelief\(4, 3 bits\): .* Use DiscreteELBO or Exact",
    ):
        partita.fit(model, x, ELBO(), steps=1, generator=generator)
    with pytest.raises(
        Unsupported,
        match=r"IWAEBound cannot run on SigmoidBelief\(4, 20 bits\).*Use DiscreteELBO instead",
    ):
        partita.fit(
            SigmoidBelief(4, (20,), generator=generator),
            x,
            IWAEBound(),
            steps=1,
            generator=generator,
        )
    with pytest.raises(Unsupported, match=r"DiscreteELBO cannot run on RBM\(4, 3\)"):
        partita.fit(RBM(4, 3, generator=generator), x, DiscreteELBO(), steps=1, generator=generator)
    with pytest.raises(InputError, match=r"x must have shape \(\*, 4\) to match SigmoidBelief"):
        model.proposal(torch.zeros(2, 5))
    with pytest.raises(InputError, match="hidden must be a whole number of at least 1"):
        SigmoidBelief(4, (3, 0), generator=generator)
    with pytest.raises(
        InputError, match="the number of hidden layers must be a whole number of at least 1"
    ):
        SigmoidBelief(4, (), generator=generator)
    with pytest.raises(InputError, match="only 0 and 1"):
        partita.fit(model, x + 1, DiscreteELBO(), steps=1, generator=generator)
    with pytest.raises(InputError, match="nan"):
        partita.fit(
            model, torch.where(x > 0, torch.nan, x), DiscreteELBO(), steps=1, generator=generator
        )
    with pytest.raises(InputError, match="samples must be a whole number of at least 2"):
        DiscreteELBO("vimco", samples=1)
