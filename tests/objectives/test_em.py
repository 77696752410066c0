"""The EM engine: restarts, online averages, streams; what cannot be fitted by it says so."""

import numpy as np
import pytest
import torch
from torch import Tensor

import partita
from partita.errors import InputError, Unsupported
from partita.families.mixture import best, criterion, ladder
from partita.models import PPCA, RBM, Mixture, MixturePPCA
from partita.objectives import EM, OnlineEM
from partita.objectives.em import expected_statistics, negative_log_likelihood
from partita.tables import Rows


def clusters(n: int, centers: int = 4, seed: int = 0) -> Tensor:
    """Clusters on a circle of radius six."""
    g = torch.Generator().manual_seed(seed)
    angle = 2 * torch.pi * torch.randint(centers, (n,), generator=g) / centers
    return 6 * torch.stack([angle.cos(), angle.sin()], 1) + torch.randn(n, 2, generator=g)


def test_the_steps_by_hand_are_the_update(generator: torch.Generator) -> None:
    data = Rows(clusters(200))
    model = Mixture(3, 2, generator=generator)
    model.initialize(data, generator=generator)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    _, info = EM().update(
        model, data, EM().init(model, data, generator=generator), generator=generator
    )
    after = model.component.location.clone()
    model.load_state_dict(start)
    statistics = expected_statistics(model, data, generator=generator)
    assert float(info["loss"]) == pytest.approx(
        -float(model.log_prob(data.tensor()).detach().mean()), abs=1e-12
    )
    assert float(negative_log_likelihood(model, statistics, len(data))) == pytest.approx(
        float(info["loss"])
    )
    model.m_step(statistics)
    torch.testing.assert_close(model.component.location, after)


def test_more_starts_end_no_lower() -> None:
    x = clusters(300, 7, seed=3)

    def likelihood(restarts: int) -> list[float]:
        scores = []
        for seed in range(4):
            g = torch.Generator().manual_seed(seed)
            model = Mixture(7, 2, covariance="spherical", generator=g)
            partita.fit(model, x, EM(restarts), generator=g)
            scores.append(float(model.log_prob(x).detach().mean()))
        return scores

    assert min(likelihood(8)) >= max(likelihood(1)) - 1e-3


@pytest.mark.parametrize("model", ["full", "bernoulli", "ppca", "mixture-ppca"])
def test_online_em_converges_to_where_batch_em_does(model: str, generator: torch.Generator) -> None:
    x = clusters(2000) if model != "bernoulli" else (clusters(2000) > 0).float()
    made = {
        "full": lambda: Mixture(4, 2, generator=generator),
        "bernoulli": lambda: Mixture(2, 2, "bernoulli", generator=generator),
        "ppca": lambda: PPCA(2, 1, generator=generator),
        "mixture-ppca": lambda: MixturePPCA(4, 2, 1, generator=generator),
    }
    batch, online = made[model](), made[model]()
    partita.fit(batch, x, EM(restarts=4), tolerance=1e-9, generator=generator)
    partita.fit(online, x, OnlineEM(batch=100, decay=0.8), epochs=30, generator=generator)
    both = [float(m.log_prob(x).detach().mean()) for m in (batch, online)]
    assert both[1] == pytest.approx(both[0], abs=5e-3)


def test_online_steps_follow_their_formula(generator: torch.Generator) -> None:
    engine, data = OnlineEM(batch=50, decay=0.7, delay=3.0), Rows(clusters(50))
    model = Mixture(2, 2, generator=generator)
    model.initialize(data, generator=generator)
    state = engine.begin(model.e_step(data.tensor()), key=0, updates=4)
    found = model.e_step(data.tensor() + 1)["t"] / 50
    after, _ = engine.step(model, data.tensor() + 1, None, state)
    rate = (4 + 3.0) ** -0.7
    torch.testing.assert_close(
        after.statistics["t"], (1 - rate) * state.statistics["t"] + rate * found
    )
    assert int(after.updates) == 5
    with pytest.raises(InputError, match=r"OnlineEM: decay must lie in \(0.5, 1\]; got 0.5"):
        OnlineEM(decay=0.5)


def test_the_ladder_finds_the_number_of_clusters_by_its_criterion(
    generator: torch.Generator,
) -> None:
    x = clusters(400)
    table = ladder(
        lambda K: Mixture(K, 2, covariance="spherical", generator=generator),
        x,
        range(1, 9),
        generator=generator,
    )
    assert best(table).components == 4
    assert [rung.components for rung in table] == list(range(1, len(table) + 1)) and len(table) < 8
    rung = table[3]
    assert rung.parameters == 4 * 2 + 4 + 3
    assert rung.bic == pytest.approx(-2 * rung.log_likelihood + rung.parameters * np.log(400))
    assert criterion(rung.run.model, x, generator=generator) == pytest.approx(
        (rung.log_likelihood, rung.bic)
    )


def test_free_parameters_are_counted(generator: torch.Generator) -> None:
    def freedom(**settings: object) -> int:
        return Mixture(3, 4, **settings, generator=generator).freedom()  # type: ignore[arg-type]

    assert [freedom(covariance=c) for c in ("full", "tied", "diagonal", "spherical")] == [
        44,
        24,
        26,
        17,
    ]
    assert freedom(component="bernoulli") == freedom(component="poisson") == 14
    assert freedom(component="categorical", states=5) == 3 * 4 * 4 + 2
    assert PPCA(6, 2, generator=generator).freedom() == 6 + 1 + 12 - 1
    assert (
        MixturePPCA(2, 6, 2, noise="diagonal", generator=generator).freedom()
        == 2 * (6 + 6 + 12 - 1) + 1
    )


def test_a_model_without_the_steps_says_so(generator: torch.Generator) -> None:
    with pytest.raises(
        Unsupported,
        match=r"EM cannot run on RBM\(4, 2\): it names no E and M steps. Use ExactLikelihood "
        r"instead",
    ):
        partita.fit(RBM(4, 2, generator=generator), torch.zeros(5, 4), EM(), generator=generator)
