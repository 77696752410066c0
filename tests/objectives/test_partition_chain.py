"""The samplers of the Dirichlet process mixture as updates of a fit: resumed bit for bit, draws
kept, out of one cluster.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import partita
from partita.diagnostics.partitions import enumerate_posterior
from partita.errors import InputError, Unsupported
from partita.models import RBM, DPMixture
from partita.models.directed.dirichlet_process import log_partition_prior, priors
from partita.objectives import CollapsedGibbs, InstantiatedGibbs
from partita.tables import as_rows

SAMPLERS = [CollapsedGibbs, InstantiatedGibbs]


@pytest.fixture
def clouds(generator: torch.Generator) -> torch.Tensor:
    """Five round clouds of 60 rows far apart."""
    centers = torch.tensor([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0], [12.0, 12.0], [30.0, 30.0]])
    return (centers[:, None] + torch.randn(5, 60, 2, generator=generator)).flatten(0, 1)


def fitted(sampler: type, x: torch.Tensor, steps: int, seed: int = 0, **more: object) -> DPMixture:
    g = torch.Generator().manual_seed(seed)
    model = DPMixture(x.shape[1], generator=g)
    partita.fit(model, x, sampler(), steps=steps, generator=g, **more)
    return model


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_resuming_continues_bit_for_bit(
    sampler: type, clouds: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = fitted(sampler, clouds, 24, out=tmp_path / "straight")
    original, calls = sampler.update, 0

    def interrupted(self: object, *args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 11:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(partita.training.loop, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(sampler, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted(sampler, clouds, 24, out=tmp_path / "broken")
    monkeypatch.setattr(sampler, "update", original)
    again = fitted(sampler, clouds, 24, seed=9, out=tmp_path / "broken", resume=True)
    loaded = partita.load(tmp_path / "broken").model
    for name, value in straight.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
        assert torch.equal(value, loaded.state_dict()[name]), name
    histories = [
        partita.load(tmp_path / folder).series("loss") for folder in ("straight", "broken")
    ]
    assert histories[0] == histories[1] and len(histories[0]) == 24


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_threads_do_not_change_the_draws(sampler: type, clouds: torch.Tensor) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = fitted(sampler, clouds, 6)
        torch.set_num_threads(2)
        two = fitted(sampler, clouds, 6)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one.partitions, two.partitions)
    assert torch.equal(one.scatter, two.scatter)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_it_leaves_one_cluster_under_a_vague_prior(
    sampler: type, clouds: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of two chains started from one cluster find the five clouds, with a prior worth a ten
    thousandth of a row.
    """
    monkeypatch.setattr(priors, "KAPPA", 1e-4)
    g = torch.Generator().manual_seed(3)
    for seed in range(2):
        model = DPMixture(2, alpha=0.1, generator=g.manual_seed(seed))
        partita.fit(model, clouds, sampler(chains=1, start="one"), steps=60, generator=g)
        labels = model.partitions[-1, 0].view(5, 60)
        own = [int(row.mode().values) for row in labels]
        assert len(set(own)) == 5
        assert all((row == k).float().mean() > 0.95 for row, k in zip(labels, own, strict=True))


def test_what_is_kept_is_spread_over_the_second_half(generator: torch.Generator) -> None:
    x, objective = as_rows(torch.randn(6, 1, generator=generator)), CollapsedGibbs(chains=3, keep=8)
    model = DPMixture(1, generator=generator)
    model.initialize(x, generator=generator)
    state = objective.init(model, x, generator=generator)
    for sweep in range(1, 101):
        state, _ = objective.update(model, x, state, generator=generator)
        kept, stride = model.sweeps.tolist(), int(state.stride)
        assert len(kept) <= 8 and all(
            2 * number > sweep and number % stride == 0 for number in kept
        )
        assert len(kept) >= 4 or sweep < 8
        assert model.partitions.shape == (len(kept), 3, 6)
        assert torch.bincount(model.owner, weights=model.count).tolist() == [6.0] * (3 * len(kept))
    for draw, labels in enumerate(model.partitions.flatten(0, 1)):
        mine = model.owner == draw
        assert torch.equal(torch.bincount(labels).double(), model.count[mine])
        means = torch.stack(
            [x.tensor()[labels == k].double().mean(0) for k in range(int(mine.sum()))]
        )
        torch.testing.assert_close(means, model.mean[mine], rtol=1e-12, atol=1e-12)


def test_more_alpha_makes_more_clusters_and_a_wider_base_fewer() -> None:
    """The two effects that the notes name, exactly, on eight rows of known scale."""
    x = np.array([-2.0, -1.7, -0.2, 0.1, 0.3, 1.6, 2.1, 2.4])

    def expected(alpha: float, spread: float) -> float:
        def evidence(rows: np.ndarray) -> float:
            n = len(rows)
            covariance = 0.3 * np.eye(n) + spread
            return float(
                -0.5
                * (
                    n * np.log(2 * np.pi)
                    + np.linalg.slogdet(covariance)[1]
                    + x[rows] @ np.linalg.solve(covariance, x[rows])
                )
            )

        p = enumerate_posterior(
            len(x), partial(log_partition_prior, alpha=alpha), evidence
        ).cluster_count_probs
        return float(p @ np.arange(len(p)))

    by_alpha = [expected(alpha, 4.0) for alpha in (0.1, 1.0, 10.0)]
    by_spread = [expected(1.0, spread) for spread in (4.0, 100.0, 1e4)]
    assert by_alpha == sorted(by_alpha)
    assert by_spread == sorted(by_spread, reverse=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: CollapsedGibbs(chains=0),
            "CollapsedGibbs: chains must be a whole number of at least 1; got 0",
        ),
        (
            lambda: InstantiatedGibbs(moves=0),
            "InstantiatedGibbs: moves must be a whole number of at least 1; got 0",
        ),
        (
            lambda: CollapsedGibbs(keep=1),
            "CollapsedGibbs: keep must be a whole number of at least 2; got 1",
        ),
    ],
)
def test_wrong_settings_are_named(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


def test_other_models_and_other_data_are_refused(generator: torch.Generator) -> None:
    x = torch.zeros(5, 2)
    with pytest.raises(Unsupported, match="CollapsedGibbs cannot run on RBM"):
        partita.fit(
            RBM(2, 2, generator=generator), x, CollapsedGibbs(), steps=2, generator=generator
        )
    with pytest.raises(InputError, match="vary to have a density"):
        partita.fit(DPMixture(2, generator=generator), x, steps=2, generator=generator)
    with pytest.raises(
        InputError, match=r"fit: x must hold counts 0, 1, 2, \.\.\.; got 0.5 in column 1"
    ):
        partita.fit(
            DPMixture(2, "multinomial", generator=generator),
            torch.tensor([[1.0, 0.5], [1.0, 2.0]]),
            steps=2,
            generator=generator,
        )
    with pytest.raises(InputError, match="prior_scale must be given where a column does not vary"):
        partita.fit(
            DPMixture(2, known_scale=1.0, generator=generator), x, steps=2, generator=generator
        )


def test_outliers_do_not_spoil_the_downdates(generator: torch.Generator) -> None:
    """A row 1e8 away joins and leaves: the recorded loss is that of the partition computed
    afresh.
    """
    x = torch.cat(
        [
            torch.randn(30, 2, generator=generator, dtype=torch.float64),
            torch.full((1, 2), 1e8, dtype=torch.float64),
        ]
    )
    model = DPMixture(2, generator=generator)
    run = partita.fit(model, x, CollapsedGibbs(), steps=40, generator=generator)
    assert all(np.isfinite(value) for _, value in run.series("loss"))
    labels = model.partitions[-1, 0]
    assert int((labels == labels[-1]).sum()) == 1
