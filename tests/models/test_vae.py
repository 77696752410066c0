"""The variational autoencoder against closed forms: PPCA, quadrature, torch's divergences; its
bounds, gradients and complaints.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from tests.pressing import interrupted_after
from torch import Tensor, nn

import partita
from partita.core import rng
from partita.core.protocols import Batch
from partita.divergences import normal_kl
from partita.errors import InputError, Unsupported
from partita.evaluators import IWAE, simulated_bounds
from partita.models import PPCA, VAE, MaskedAutoregressive
from partita.models.directed.latent import kl_between, kl_from_standard
from partita.nets import MLP
from partita.objectives import ELBO, ClosedForm, IWAEBound

D, M, N = 6, 2, 300


def number(value: Tensor) -> float:
    return value.detach().item()


@pytest.fixture(scope="module")
def table() -> Tensor:
    g = torch.Generator().manual_seed(0)
    loadings = torch.randn(M, D, generator=g, dtype=torch.float64)
    return (
        torch.randn(N, M, generator=g, dtype=torch.float64) @ loadings
        + 0.5 * torch.randn(N, D, generator=g, dtype=torch.float64)
        + 1
    )


@pytest.fixture(scope="module")
def ppca(table: Tensor) -> PPCA:
    g = torch.Generator().manual_seed(0)
    model = PPCA(D, M, generator=g)
    partita.fit(model, table, ClosedForm(), generator=g)
    return model


def layer(net: Any) -> Any:
    """The one layer of a network without hidden ones."""
    return net.layers[0]


def linear_vae(generator: torch.Generator) -> VAE:
    return VAE(
        D, M, likelihood="gaussian", variance="shared", widths=(), generator=generator
    ).double()


@torch.no_grad()
def as_vae(ppca: PPCA) -> VAE:
    """The same model with the exact posterior as its encoder: diagonal, because the
    maximum-likelihood loadings are orthogonal.
    """
    model, part = linear_vae(torch.Generator()), ppca.component
    V, noise, mean = part.loadings[0], part.log_noise.flatten()[0].exp(), part.location[0]
    precision = torch.eye(M, dtype=V.dtype) + V.T @ V / noise
    encoder, decoder = layer(model.encoder), layer(model.decoder)
    decoder.weight.copy_(V)
    decoder.bias.copy_(mean)
    model.output.log_scale.fill_(0.5 * noise.log())  # type: ignore[union-attr]
    gain = torch.linalg.solve(precision, V.T) / noise
    encoder.weight.copy_(torch.cat([gain, torch.zeros_like(gain)]))
    encoder.bias.copy_(torch.cat([-gain @ mean, -0.5 * precision.diagonal().log()]))
    return model


def test_with_the_exact_posterior_every_weight_is_ppcas_likelihood(
    ppca: PPCA, table: Tensor, generator: torch.Generator
) -> None:
    log_w = as_vae(ppca).log_weights(table, 5, generator=generator)
    torch.testing.assert_close(log_w, ppca.log_prob(table).expand(5, -1), atol=1e-9, rtol=0)


def test_elbo_at_the_optimum_is_ppcas_likelihood(
    ppca: PPCA, table: Tensor, generator: torch.Generator
) -> None:
    """log w does not vary there, so that its mean is the bound itself; the form with the divergence
    agrees within 4.5 standard errors.
    """
    model, truth = as_vae(ppca), number(ppca.log_prob(table).mean())
    assert number(model.log_weights(table, 2, generator=generator).mean()) == pytest.approx(
        truth, abs=1e-9
    )
    fit, kl = model.elbo_terms(table.repeat(100, 1), generator=generator)
    bound = (fit - kl.sum(-1)).view(100, N).mean(1)
    assert number((bound.mean() - truth).abs() / (bound.std() / 10)) < 4.5


def test_no_parameter_of_the_optimum_has_a_slope(
    ppca: PPCA, table: Tensor, generator: torch.Generator
) -> None:
    """Gradients of the mean over 2,000 draws vanish within six standard errors of the draws (72
    z-scores, false alarm below 1e-6).
    """
    model = as_vae(ppca)
    slopes = []
    for _ in range(40):
        fit, kl = model.elbo_terms(table.repeat(50, 1), generator=generator)
        grads = torch.autograd.grad((fit - kl.sum(-1)).mean(), list(model.parameters()))
        slopes.append(torch.cat([grad.flatten() for grad in grads]))
    slope = torch.stack(slopes)
    z = slope.mean(0) / (slope.std(0) / math.sqrt(40)).clamp_min(1e-12)
    assert z.abs().max() < 6


def test_a_fit_comes_to_ppcas_likelihood_from_below(
    ppca: PPCA, table: Tensor, generator: torch.Generator
) -> None:
    model = linear_vae(generator)
    options: dict[str, Any] = {
        "steps": 800,
        "batch_size": 0,
        "optimizer": "adam",
        "learning_rate": 0.05,
        "schedule": "cosine",
    }
    partita.fit(model, table, ELBO(), **options, average=0.1, generator=generator)
    gap = ppca.log_prob(table) - model.log_weights(table, 400, generator=generator).mean(0)
    assert -1e-4 < number(gap.mean()) < 1e-3  # the error of these draws is below 1e-4
    assert model.active_units() == M and not model.fit_warnings()


def test_the_bound_grows_with_k_and_stays_below_the_likelihood(
    ppca: PPCA, table: Tensor, generator: torch.Generator
) -> None:
    """With a wrong encoder. Means over 300 rows x 400 repeats: neighboring k are 20 standard errors
    apart.
    """
    model = as_vae(ppca)
    with torch.no_grad():
        layer(model.encoder).bias.add_(torch.tensor([0.3, -0.2, 0.3, 0.2], dtype=torch.float64))
    rows = table[:50].repeat(400, 1)
    bounds = [
        number(
            (
                torch.logsumexp(model.log_weights(rows, k, generator=generator), 0) - math.log(k)
            ).mean()
        )
        for k in (1, 4, 16, 64)
    ]
    truth = number(ppca.log_prob(table[:50]).mean())
    assert bounds == sorted(bounds) and bounds[0] < truth - 0.1
    assert -2e-3 < truth - bounds[-1] < 0.15 * (truth - bounds[0])


@pytest.mark.parametrize("k", [1, 2, 7])
def test_with_the_exact_posterior_both_sides_are_the_likelihood_itself(ppca: PPCA, k: int) -> None:
    """Every weight is p(x), the known draw's too: any other count of them than k and k + 1 would
    show.
    """
    model = as_vae(ppca)
    rows = as_vae(ppca).draw_joint(20, generator=torch.Generator().manual_seed(5))[0]
    for side in simulated_bounds(model, 20, k, generator=torch.Generator().manual_seed(5)):
        torch.testing.assert_close(
            side.details["rows"], ppca.log_prob(rows).detach(), atol=1e-9, rtol=0
        )
    q = partita.evaluate(model, rows, generator=torch.Generator().manual_seed(6))
    assert q.verdict == "tight" and q.width < 1e-6


def test_both_sides_of_simulated_rows_enclose_their_likelihood(
    ppca: PPCA, generator: torch.Generator
) -> None:
    """On the same rows the lower side is below and the upper above; with k the gap closes. Errors
    of the means are about 0.01.
    """
    model = as_vae(ppca)
    with torch.no_grad():
        layer(model.encoder).bias.add_(torch.tensor([0.3, -0.2, 0.3, 0.2], dtype=torch.float64))
    gaps = []
    for k in (1, 4, 32):
        seed = torch.Generator().manual_seed(5)
        truth = number(
            ppca.log_prob(
                model.draw_joint(4000, generator=torch.Generator().manual_seed(5))[0]
            ).mean()
        )
        low, high = simulated_bounds(model, 4000, k, generator=seed)
        assert (
            low.kind == "lower"
            and high.kind == "upper"
            and low.value < truth + 0.03
            and high.value > truth - 0.03
        )
        gaps.append(high.value - low.value)
    assert gaps[0] > gaps[1] > gaps[2] > -0.03


def test_the_interval_of_the_evaluator_covers_its_own_mean(ppca: PPCA, table: Tensor) -> None:
    """Of 40 intervals at 95 % at least 33 hold the mean of all (fewer has probability 0.001)."""
    model = as_vae(ppca)
    with torch.no_grad():
        layer(model.encoder).bias[2:].add_(0.4)
    scores = [
        partita.evaluate(model, table[:40], evaluator=IWAE(64), generator=rng.keyed(i))
        for i in range(40)
    ]
    center = sum(q.value for q in scores) / 40
    assert sum(q.low < center < q.high for q in scores) >= 33
    assert (
        scores[0].kind == "lower"
        and scores[0].direction == "low"
        and scores[0].details["active_units"] == M
    )


@pytest.mark.parametrize("k", [1, 5])
def test_doubly_reparameterized_gradients_are_those_of_the_bound(
    k: int, generator: torch.Generator
) -> None:
    """Means over 3,000 batches of 20 rows agree within 5.5 joint standard errors in all 57
    parameters (false alarm 2e-6).
    """
    model = VAE(4, 1, widths=(3,), generator=generator).double()
    x = model.draw(20, generator=generator)
    batch, found = Batch(x.repeat(50, 1)), {}
    for gradient in ("plain", "doubly"):
        objective, each = IWAEBound(k, gradient), []
        for _ in range(60):
            losses, *_ = objective.losses(
                model, batch, objective.init(model, None, generator=generator), generator=generator
            )  # type: ignore[arg-type]
            grads = torch.autograd.grad(losses["model"], list(model.parameters()))
            each.append(torch.cat([grad.flatten() for grad in grads]))
        found[gradient] = torch.stack(each)
    mean, variance = (
        {name: getattr(each, what)(0) for name, each in found.items()} for what in ("mean", "var")
    )
    z = (mean["plain"] - mean["doubly"]) / (
        (variance["plain"] + variance["doubly"]) / 60
    ).sqrt().clamp_min(1e-12)
    assert z.abs().max() < 5.5
    encoder = sum(p.numel() for p in model.encoder.parameters())
    if k > 1:
        assert variance["doubly"][:encoder].sum() < variance["plain"][:encoder].sum()


def test_doubly_reparameterized_gradients_pass_a_wrapper_that_copies_what_it_hands_out(
    generator: torch.Generator,
) -> None:
    """As wrappers for several processes, or for another precision, may do."""

    class Copies:
        def __init__(self, module: VAE) -> None:
            self.module = module

        def doubly_weighted(self, *inputs: Any, **more: Any) -> Tensor:
            return self.module.doubly_weighted(*inputs, **more).clone()

    model = VAE(4, 2, widths=(3,), generator=generator)
    batch, slopes = Batch(model.draw(10, generator=generator)), []
    for each in (model, Copies(model)):
        seed = torch.Generator().manual_seed(1)
        losses, *_ = IWAEBound(3, "doubly").losses(each, batch, None, generator=seed)  # type: ignore[arg-type]
        slopes.append(torch.autograd.grad(losses["model"], list(model.parameters())))
    torch.testing.assert_close(*slopes)


def test_the_doubly_reparameterized_loss_is_minus_the_bound(generator: torch.Generator) -> None:
    model = VAE(4, 2, widths=(3,), generator=generator)
    batch = Batch(model.draw(10, generator=generator))
    losses, _, numbers = IWAEBound(3, "doubly").losses(model, batch, None, generator=generator)  # type: ignore[arg-type]
    assert number(losses["model"]) == pytest.approx(-number(numbers["bound"]), abs=1e-5)


def test_one_latent_dimension_against_quadrature(generator: torch.Generator) -> None:
    """p(x) of all 16 binary rows by a fine grid over z: sums to one, and IWAE with many draws
    agrees to 0.01.
    """
    model = VAE(4, 1, widths=(5,), activation="tanh", generator=generator).double()
    with torch.no_grad():
        for p in model.decoder.parameters():
            p.mul_(3)
    states = model.support.states(0, 16, torch.zeros((), dtype=torch.float64))
    z = torch.linspace(-9, 9, 4001, dtype=torch.float64)[:, None, None]
    log_p = torch.logsumexp(model.log_joint(states, z), 0) + math.log(18 / 4000)
    assert number(log_p.exp().sum()) == pytest.approx(1, abs=1e-8)
    rows = partita.evaluate(model, states, evaluator=IWAE(20_000), generator=generator).details[
        "rows"
    ]
    torch.testing.assert_close(rows, log_p.detach(), atol=0.02, rtol=0)


def test_divergences_against_torch_ours_and_draws(generator: torch.Generator) -> None:
    a, b, c, d = (torch.randn(7, 3, generator=generator, dtype=torch.float64) for _ in range(4))
    normal = torch.distributions.Normal
    truth = torch.distributions.kl_divergence(normal(a, b.exp()), normal(c, d.exp()))
    torch.testing.assert_close(kl_between(a, b, c, d), truth)
    torch.testing.assert_close(kl_from_standard(a, b).sum(-1), normal_kl(a, 2 * b))
    z = a[0] + b[0].exp() * torch.randn(200_000, 3, generator=generator, dtype=torch.float64)
    gaps = normal(a[0], b[0].exp()).log_prob(z) - normal(c[0], d[0].exp()).log_prob(z)
    error = gaps.std(0) / math.sqrt(len(z))
    assert ((gaps.mean(0) - truth[0]).abs() < 4.5 * error).all()  # 3 z-scores, false alarm 2e-5


@pytest.mark.parametrize(
    ("likelihood", "states"), [("bernoulli", None), ("categorical", 3), ("gaussian", None)]
)
def test_every_likelihood_fits_draws_and_comes_back_from_settings(
    likelihood: str, states: int | None, generator: torch.Generator
) -> None:
    model = VAE(4, 2, likelihood=likelihood, states=states, widths=(8,), generator=generator)
    x = model.draw(60, generator=generator)
    model.support.check(x, "test")
    partita.fit(model, x, epochs=2, generator=generator)
    again = VAE.from_settings(model.settings(), generator=generator)
    again.load_state_dict(model.state_dict())
    seeds = [torch.Generator().manual_seed(3) for _ in range(2)]
    torch.testing.assert_close(
        again.log_weights(x, 2, generator=seeds[0]), model.log_weights(x, 2, generator=seeds[1])
    )
    if likelihood != "gaussian":
        states_of = model.support.states(0, round(2**model.support.bits), torch.zeros(()))
        z = torch.randn(3, 1, 2, generator=generator)
        torch.testing.assert_close(model.log_likelihood(states_of, z).exp().sum(-1), torch.ones(3))


@pytest.mark.parametrize("variance", ["column", "shared", "row"])
def test_gaussian_columns_are_densities_in_their_own_units(
    variance: str, generator: torch.Generator
) -> None:
    model = VAE(
        2, 1, likelihood="gaussian", variance=variance, widths=(4,), generator=generator
    ).double()
    x = torch.randn(50, 2, generator=generator, dtype=torch.float64) * torch.tensor([10.0, 0.1]) + 5
    model.initialize(partita.tables.as_rows(x), generator=generator)
    z = torch.randn(1, 1, generator=generator, dtype=torch.float64)
    given: Any = model.output.distribution(model.decoder(z))
    law: Any = stats.norm(given.mean.detach().numpy(), given.stddev.detach().numpy())
    truth = law.logpdf(x.numpy()).sum(-1)
    torch.testing.assert_close(model.log_likelihood(x, z).detach(), torch.from_numpy(truth))


def test_convolutions_for_images(generator: torch.Generator) -> None:
    model = VAE(64, 3, image=(8, 8), channels=(4, 8), generator=generator)
    x = model.draw(30, generator=generator)
    run = partita.fit(model, x, steps=3, generator=generator)
    assert (
        run.steps == 3
        and type(model.encoder).__name__ == "ConvNet"
        and type(model.decoder).__name__ == "ConvDecoder"
    )
    assert (
        VAE.from_settings(model.settings(), generator=generator).title()
        == "VAE(64, 3 latent, bernoulli)"
    )
    gray = VAE(
        64, 3, likelihood="categorical", states=4, image=(8, 8), channels=(4,), generator=generator
    )
    assert gray.log_weights(gray.draw(5, generator=generator), 2, generator=generator).shape == (
        2,
        5,
    )


def test_collapse_is_said_with_numbers(generator: torch.Generator) -> None:
    x = (torch.rand(200, 6, generator=generator) < 0.5).float()  # nothing to encode
    model = VAE(6, 3, widths=(8,), generator=generator)
    with pytest.warns(
        UserWarning,
        match="posterior has collapsed: 0 of 3 latent dimensions carry more than 0.01 nats "
        ".*beta_warm_up",
    ):
        run = partita.fit(
            model, x, ELBO(beta=4.0), steps=250, learning_rate=0.02, generator=generator
        )
    assert run.series("active_units")[-1][1] == 0 and run.series("kl")[-1][1] < 0.03
    assert "carried" in dict(model.named_buffers())


def test_beta_and_warm_up_weigh_the_divergence(generator: torch.Generator) -> None:
    model = VAE(4, 2, widths=(3,), generator=generator)
    batch = Batch(model.draw(10, generator=generator))
    for beta, updates, factor in ((1.0, 0, 1.0), (3.0, 0, 3.0), (2.0, 4, 0.5)):
        objective = ELBO(beta, updates)
        losses, state, numbers = objective.losses(
            model, batch, objective.init(model, None, generator=generator), generator=generator
        )  # type: ignore[arg-type]
        expected = -(numbers["elbo"] + numbers["kl"]) + factor * numbers["kl"]
        assert (
            number(losses["model"]) == pytest.approx(number(expected), abs=1e-4) and state.made == 1
        )


def test_missing_columns_do_not_depend_on_the_encoder(
    ppca: PPCA, table: Tensor, generator: torch.Generator
) -> None:
    """With a wrong one proposals are refused more often, and the mean is the same: 25 means of a
    row have an error of 0.02 together.
    """
    model, x = as_vae(ppca), table[:4].index_fill(1, torch.tensor([1, 2]), torch.nan)
    with torch.no_grad():
        layer(model.encoder).bias.add_(0.3)  # of means and log deviations
    filled = model.fill(x.repeat(25, 1), "mean", generator=generator).view(25, 4, D).mean(0)
    torch.testing.assert_close(filled, ppca.fill(x, "mean", generator=generator), atol=0.09, rtol=0)


def test_missing_columns_are_drawn_from_their_posterior(
    ppca: PPCA, table: Tensor, generator: torch.Generator
) -> None:
    """Posterior means of a linear model have a closed form. The chains' error is below 0.03; 0.12
    is four of them.
    """
    model, x = as_vae(ppca), table[:20].clone()
    x[:, 1:3] = torch.nan
    x[3] = table[3]
    filled = model.fill(x, "mean", generator=generator)
    truth = ppca.fill(x, "mean", generator=generator)
    torch.testing.assert_close(filled, truth, atol=0.12, rtol=0)
    assert torch.equal(filled[3], table[3])
    drawn, truth = (
        each.fill(x[:1].expand(500, -1), "draw", generator=generator)[:, 1:3]
        for each in (model, ppca)
    )
    ratio = drawn.std(0) / truth.std(0)
    # each deviation has an error of 3 %: four and a half joint ones
    assert (ratio > 0.82).all() and (ratio < 1.22).all()


def test_wrong_parts_and_values_are_named(generator: torch.Generator) -> None:
    with pytest.raises(
        InputError, match=r"VAE: decoder must map \(2, 2\) to \(2, 4\); got \(2, 3\)"
    ):
        VAE(4, 2, decoder=MLP(2, 3, generator=generator), generator=generator)
    with pytest.raises(
        InputError, match=r"VAE: encoder must map \(2, 4\) to \(2, 4\); got an error"
    ):
        VAE(4, 2, encoder=nn.Linear(5, 4), generator=generator)
    with pytest.raises(
        InputError,
        match=r"VAE: encoder must map \(2, 4\) to \(2, 4\); got an error \('tuple' object has no",
    ):
        VAE(4, 2, encoder=nn.LSTM(4, 4), generator=generator)
    with pytest.raises(InputError, match="states must be given for a categorical likelihood"):
        VAE(4, 2, states=3, generator=generator)
    model = VAE(4, 2, widths=(3,), generator=generator)
    with pytest.raises(InputError, match="evaluate: x must be finite; got nan at row 0, column 1"):
        partita.evaluate(model, torch.tensor([[0.0, torch.nan, 1.0, 1.0]]), generator=generator)
    with pytest.raises(InputError, match=r"fit: x must hold only 0 and 1; got 0.5 in column 2"):
        partita.fit(model, torch.tensor([[0.0, 0.0, 0.5, 1.0]] * 3), generator=generator)
    with pytest.raises(
        Unsupported, match=r"ELBO cannot run on MaskedAutoregressive.*Use ExactLikelihood instead"
    ):
        partita.fit(
            MaskedAutoregressive(4, generator=generator),
            torch.zeros(3, 4),
            ELBO(),
            generator=generator,
        )
    with pytest.raises(InputError, match="IWAE: k must be a whole number of at least 2"):
        IWAE(1)
    with pytest.raises(InputError, match=r"VAE: x must have shape \(\*, 4\)"):
        model.log_weights(torch.zeros(2, 5), 3, generator=generator)


def test_a_users_own_modules_fit_and_are_refused_by_name_when_loaded(
    tmp_path: Any, generator: torch.Generator
) -> None:
    encoder, decoder = nn.Linear(4, 4), nn.Linear(2, 4)
    model = VAE(4, 2, encoder=encoder, decoder=decoder, generator=generator)
    partita.fit(
        model, torch.eye(4).repeat(5, 1), steps=3, out=tmp_path / "run", generator=generator
    )
    with pytest.raises(
        partita.errors.RunError, match="a module of your own, which is code and is never saved"
    ):
        partita.load(tmp_path / "run")
    again = VAE(4, 2, encoder=nn.Linear(4, 4), decoder=nn.Linear(2, 4), generator=generator)
    partita.load(tmp_path / "run", model=again)
    torch.testing.assert_close(again.decoder.weight, model.decoder.weight)


def test_trying_a_users_module_moves_nothing_in_it(generator: torch.Generator) -> None:
    encoder = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    VAE(4, 2, encoder=encoder, generator=generator)
    assert encoder[1].num_batches_tracked == 0 and encoder.training


def test_an_interrupted_fit_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """The weight of the divergence, which rises by the update, and what the dimensions carried go
    on from where they were.
    """
    x = (torch.rand(40, 5, generator=torch.Generator().manual_seed(0)) < 0.4).float()

    def fitted(name: str, resume: bool = False) -> Any:
        g = torch.Generator().manual_seed(1)
        model = VAE(5, 2, widths=(6,), generator=g)
        return partita.fit(
            model,
            x,
            ELBO(beta_warm_up=12),
            steps=10,
            batch_size=8,
            out=tmp_path / name,
            resume=resume,
            generator=g,
        )

    whole = fitted("whole")
    assert interrupted_after(4, lambda: fitted("parted")).stopped == "interrupted"
    resumed = fitted("parted", resume=True).model.state_dict()
    assert all(
        torch.equal(value, resumed[name]) for name, value in whole.model.state_dict().items()
    )
