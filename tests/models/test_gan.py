"""The generator: draws, gradients through it, how it is saved."""

from typing import Any

import pytest
import torch
from torch import nn

import partita
from partita.errors import InputError, RunError, Unsupported
from partita.models import GAN
from partita.objectives import Adversarial, ExactLikelihood


def test_draws_are_the_network_at_normal_noise(generator: torch.Generator) -> None:
    model = GAN(3, 2, widths=(8,), generator=generator)
    state = generator.get_state()
    x = model.draw(6, generator=generator)
    generator.set_state(state)
    assert torch.equal(x, model(torch.randn(6, 2, generator=generator))) and not x.requires_grad
    assert model(torch.zeros(4, 2)).requires_grad and partita.sample(
        model, 5, generator=generator
    ).shape == (5, 3)


def test_it_has_no_likelihood(generator: torch.Generator) -> None:
    model, x = GAN(2, generator=generator), torch.randn(50, 2, generator=generator)
    with pytest.raises(
        Unsupported,
        match=r"ExactLikelihood cannot run on GAN\(2, 8 latent\): it has no exact log_prob",
    ):
        partita.fit(model, x, ExactLikelihood(), steps=1, generator=generator)
    assert not hasattr(model, "log_prob")


def test_a_run_rebuilds_its_network(tmp_path: Any, generator: torch.Generator) -> None:
    model, x = GAN(2, 3, widths=(8,), generator=generator), torch.randn(64, 2, generator=generator)
    partita.fit(
        model, x, Adversarial(critic=(8,)), steps=4, out=tmp_path / "run", generator=generator
    )
    again = partita.load(tmp_path / "run").model
    z = torch.randn(5, 3, generator=generator)
    assert torch.equal(again(z), model(z))


def test_a_module_of_the_users_own_is_never_saved_as_code(
    tmp_path: Any, generator: torch.Generator
) -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    model, x = GAN(2, 2, net=net, generator=generator), torch.randn(64, 2, generator=generator)
    partita.fit(
        model, x, Adversarial(critic=(8,)), steps=2, out=tmp_path / "run", generator=generator
    )
    with pytest.raises(
        RunError, match=r"the network of GAN must be one of MLP.*load\(path, model=\.\.\.\)"
    ):
        partita.load(tmp_path / "run")
    assert partita.load(tmp_path / "run", model=model).model is model


def test_trying_a_module_moves_nothing_in_it(generator: torch.Generator) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    GAN(2, 3, net=net, generator=generator)
    assert net[1].num_batches_tracked == 0 and net.training


def test_wrong_networks(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"net must map \(2, 3\) to \(2, 2\); got \(2, 5\)"):
        GAN(2, 3, net=nn.Linear(3, 5), generator=generator)
    with pytest.raises(InputError, match=r"latent must be a whole number of at least 1; got 0"):
        GAN(2, 0, generator=generator)
