"""Dropout leaves out its share, keeps the mean, and is nowhere but where a model learns."""

from pathlib import Path
from typing import Any

import pytest
import torch

import partita
from partita.errors import InputError, PartitaError
from partita.models import Autoregressive
from partita.nets.base import Dropout, dropping
from partita.training.run import Run

N = 200_000


def small(dropout: float, seed: int = 0) -> Autoregressive:
    return Autoregressive(
        4,
        states=2,
        backbone="lstm",
        width=8,
        layers=1,
        dropout=dropout,
        generator=torch.Generator().manual_seed(seed),
    )


def fitted(out: Path | None = None, **options: Any) -> Run:
    x = torch.randint(0, 2, (40, 4), generator=torch.Generator().manual_seed(1)).float()
    return partita.fit(
        small(0.3),
        x,
        out=out,
        **{"steps": 12, "batch_size": 10, "generator": torch.Generator().manual_seed(2), **options},
    )


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_the_share_is_left_out_and_the_mean_stays(share: float, generator: torch.Generator) -> None:
    """Within 4.5 deviations: a false alarm in 1 of 150,000 seeds."""
    with dropping(generator):
        seen = Dropout(share)(torch.ones(N, dtype=torch.float64))
    assert set(seen.unique().tolist()) <= {0.0, 1 / (1 - share)}
    assert abs((seen == 0).double().mean().item() - share) <= 4.5 * (share * (1 - share) / N) ** 0.5
    assert abs(seen.mean().item() - 1) <= 4.5 * (share / (1 - share) / N) ** 0.5


def test_likelihoods_are_exact_and_the_same_whether_or_not_a_model_learned_with_it() -> None:
    """Outside of a loss the network is whole; inside, it is drawn anew each time."""
    model, plain = small(0.5), small(0.0)
    states = model.support.states(0, 16, torch.zeros(()))
    assert torch.equal(model.log_prob(states), plain.log_prob(states))
    assert model.log_prob(states).exp().sum().item() == pytest.approx(1, abs=1e-5)
    with dropping(torch.Generator().manual_seed(0)):
        first, second = model.log_prob(states), model.log_prob(states)
        assert torch.equal(plain.log_prob(states), plain.log_prob(states))
    assert not torch.equal(first, second)


def test_a_loss_that_fails_leaves_nothing_dropping() -> None:
    with pytest.raises(ZeroDivisionError), dropping(torch.Generator()):
        _ = 1 / 0
    assert torch.equal(Dropout(0.5)(torch.ones(9)), torch.ones(9))


def test_a_fit_with_it_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted(tmp_path / "whole")
    advance = partita.training.session.Session.advance

    def stops(self: Any) -> Any:
        if self.step == 5:
            raise KeyboardInterrupt
        return advance(self)

    with monkeypatch.context() as patch:
        patch.setattr(partita.training.session.Session, "advance", stops)
        patch.setattr(partita.training.loop, "SAVE_SECONDS", -1.0)
        with pytest.raises(KeyboardInterrupt):
            fitted(tmp_path / "run")
    resumed = fitted(tmp_path / "run", resume=True)
    assert all(
        torch.equal(value, resumed.model.state_dict()[name])
        for name, value in whole.model.state_dict().items()
    )
    assert partita.load(tmp_path / "run").model.settings()["dropout"] == 0.3


def test_a_loss_that_is_random_is_not_for_lbfgs() -> None:
    with pytest.raises(PartitaError, match="optimizer='lbfgs'"):
        fitted(optimizer="lbfgs", batch_size=0)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), "half"])
def test_another_share_is_named(share: Any) -> None:
    with pytest.raises(InputError, match=r"SequenceNet: dropout must .*; got"):
        small(share)
