"""Negative binomials in mixtures, as outputs and one column after the other: masses of one, the
moments they should have, and an EM that rises.
"""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import partita
from partita.core import rng
from partita.models import Mixture
from partita.models.directed.autoregressive.emissions import (
    PLAIN,
    MixedAutoregressive,
    NegativeBinomialMixtureEmission,
    negative_binomial_log_prob,
)
from partita.models.directed.components.discrete import SIZES, NegativeBinomialComponent
from partita.models.directed.outputs import NegativeBinomialOutput
from partita.objectives import EM

LAWS = ("overdispersed", "real", 3)


@pytest.fixture
def g() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def counts(n: int, seed: int = 0) -> np.ndarray:
    """Two sorts of counts, one of them spread widely."""
    g = np.random.default_rng(seed)
    return np.where(
        g.random(n) < 0.5, g.negative_binomial(0.5, 0.5 / 3000.5, n), g.poisson(20.0, n)
    )


def component(means: list[float], sizes: list[float]) -> NegativeBinomialComponent:
    made = NegativeBinomialComponent(len(means), 1, device=torch.device("cpu"))
    with torch.no_grad():
        made.log_mean.copy_(torch.tensor(means).double().log()[:, None])
        made.log_size.copy_(torch.tensor(sizes).double().log()[:, None])
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masses_are_those_of_scipy(dtype: torch.dtype) -> None:
    """Also of large counts in single precision, where large terms cancel."""
    x = torch.tensor([0.0, 1.0, 7.0, 3e5], dtype=dtype)
    for mean, size in ((3.0, 0.5), (5000.0, 0.25), (40.0, 1000.0)):
        truth = stats.nbinom(size, size / (size + mean)).logpmf(x.numpy())
        made = component([mean], [2.0 ** round(np.log2(size))])
        m, r = torch.tensor([mean, size], dtype=dtype).log()
        torch.testing.assert_close(
            negative_binomial_log_prob(m, r, x),
            torch.tensor(truth, dtype=dtype),
            rtol=1e-5,
            atol=1e-5,
        )
        scores, _ = made.scores(x[:, None].double(), made.ready())
        on_list = float(made.log_size.exp())
        truth = stats.nbinom(on_list, on_list / (on_list + mean)).logpmf(x.numpy())
        np.testing.assert_allclose(scores[0].detach(), truth, rtol=1e-6, atol=1e-6)


def test_the_m_step_is_the_best_of_the_list() -> None:
    x = torch.from_numpy(counts(500))[:, None].double()
    x[::7] = float("nan")
    made, r = component([1.0, 1.0], [1.0, 1.0]), torch.rand(2, 500, dtype=torch.float64)
    made.maximize(made.statistics(r, made.scores(x, made.ready())[1]))
    seen = ~x[:, 0].isnan().numpy()
    there, weight = x[:, 0].numpy()[seen], r.numpy()[:, seen]
    for k in range(2):
        mean = float(weight[k] @ there / weight[k].sum())
        gains = [weight[k] @ stats.nbinom(s, s / (s + mean)).logpmf(there) for s in SIZES.numpy()]
        assert made.mean()[k].item() == pytest.approx(mean)
        assert made.log_size.exp()[k].item() == pytest.approx(SIZES[int(np.argmax(gains))].item())


def test_em_never_falls_and_finds_both_sorts(g: torch.Generator) -> None:
    x = torch.from_numpy(counts(3000))[:, None].double()
    model = Mixture(2, 1, "mixed", laws=("overdispersed",), generator=g)
    run = partita.fit(model, x, EM(), epochs=60, tolerance=0.0, generator=g)
    seen = [model.log_prob(x).mean().item()]
    for _ in range(5):
        model.m_step(model.e_step(x))
        seen.append(model.log_prob(x).mean().item())
    assert min(np.diff(seen)) > -1e-9 and run.stopped != "diverged"
    poisson = Mixture(2, 1, "mixed", laws=("count",), generator=g)
    partita.fit(poisson, x, EM(), epochs=60, generator=g)
    truth = 0.5 * stats.nbinom(0.5, 0.5 / 3000.5).pmf(x) + 0.5 * stats.poisson(20.0).pmf(x)
    assert (
        abs(seen[-1] - np.log(truth).mean()) < 0.05 and seen[-1] > poisson.log_prob(x).mean() + 50
    )
    found = model.component.blocks[0].mean()  # type: ignore[index, operator]
    mean = sorted(found.flatten().tolist())
    assert mean[0] == pytest.approx(20, rel=0.05) and mean[1] == pytest.approx(3000, rel=0.2)


@pytest.mark.parametrize("where", ["mixture", "output", "emission"])
def test_draws_have_the_moments_of_the_law(where: str, g: torch.Generator) -> None:
    """Mean and variance within six standard errors: false alarms below one in a hundred million."""
    n, mean, size = 40_000, 30.0, 2.0
    if where == "mixture":
        first = torch.zeros(n, dtype=torch.long)
        x: Tensor = component([mean], [size]).draw(first, generator=g)[:, 0]
    elif where == "output":
        out = NegativeBinomialOutput(1, device=torch.device("cpu"))
        out.initialize(torch.tensor([mean]), torch.tensor([mean + mean**2 / size]), n)
        law = out.distribution(torch.zeros(n, 1))
        x = rng.draw(law, g)[:, 0]
        assert torch.allclose(law.mean, torch.tensor(mean))
    else:
        emission = NegativeBinomialMixtureEmission(1)
        numbers = emission.start(torch.tensor(mean), torch.tensor(mean + mean**2 / size).sqrt(), n)
        x = emission.draw(numbers.expand(n, -1), PLAIN, g)
    variance = mean + mean**2 / size
    assert abs(x.double().mean() - mean) < 6 * (variance / n) ** 0.5
    law = stats.nbinom(size, size / (size + mean))
    kurtosis = float(law.stats(moments="k"))
    assert abs(x.double().var() - variance) < 6 * variance * ((kurtosis + 2) / n) ** 0.5


@pytest.mark.parametrize("family", ["mixture", "vae", "autoregressive"])
def test_wide_counts_are_learned_by_every_family_that_takes_mixed_columns(family: str) -> None:
    """A table whose Poisson score is thousands of nats a row: no fit dies at its first step."""
    import pandas as pd

    from partita.estimators import AutoregressiveDensity, MixtureDensity, VAEDensity

    frame = pd.DataFrame({"assets": counts(400), "w": ["a", "b"] * 200, "x": np.arange(400) / 9})
    density = {
        "mixture": lambda: MixtureDensity(2, "mixed", random_state=0),
        "vae": lambda: VAEDensity(2, support="mixed", epochs=30, random_state=0),
        "autoregressive": lambda: AutoregressiveDensity(support="mixed", epochs=30, random_state=0),
    }[family]().fit(frame)
    assert density.schema_.columns[0].kind == "overdispersed"
    assert -20 < density.score(frame) < -5
    drawn = density.sample(300)
    assert (drawn["assets"] >= 0).all() and drawn["assets"].dtype == frame["assets"].dtype


def test_columns_one_after_the_other_are_normalized(g: torch.Generator) -> None:
    model = MixedAutoregressive(("overdispersed", 2), widths=(8,), generator=g)
    x = torch.cartesian_prod(torch.arange(4000.0), torch.arange(2.0))
    assert model.log_prob(x).double().exp().sum().item() == pytest.approx(1.0, abs=1e-4)
    assert Mixture(2, 3, "mixed", laws=LAWS, generator=g).support.discrete is False
