"""Adversarial learning: each loss moves its own weights, turns, values at known critics, the audit,
resume, learning itself.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import partita
from partita.core.protocols import Batch
from partita.divergences.transport import wasserstein
from partita.errors import InputError, Unsupported
from partita.models import GAN, RBM
from partita.nets.lipschitz import lipschitz_bound
from partita.objectives import Adversarial
from partita.tables import as_rows

BY_DIVERGENCE = [
    "kl",
    "reverse-kl",
    "total-variation",
    "jensen-shannon",
    "hellinger",
    "pearson",
    "alpha-0.5",
]
LOSSES = ["wasserstein", "minimax", "non-saturating", *BY_DIVERGENCE]


def start(
    objective: Adversarial, generator: torch.Generator, n: int = 64
) -> tuple[GAN, Any, Batch]:
    model = GAN(2, 3, widths=(16,), generator=generator)
    x = torch.randn(n, 2, generator=generator) * 0.5 + 1
    return model, objective.init(model, as_rows(x), generator=generator), Batch(x)


def gradients(loss: Tensor, module: nn.Module) -> list[Tensor | None]:
    return list(
        torch.autograd.grad(loss, list(module.parameters()), allow_unused=True, retain_graph=True)
    )


@pytest.mark.parametrize("lipschitz", ["penalty", "spectral", "clip"])
@pytest.mark.parametrize("loss", LOSSES)
def test_each_loss_moves_its_own_weights_only(
    loss: str, lipschitz: str, generator: torch.Generator
) -> None:
    objective = Adversarial(loss, lipschitz, critic=(16,), audit_every=0)
    model, state, batch = start(objective, generator)
    losses, _, _ = objective.losses(model, batch, state, generator=generator)
    assert set(losses) == {"model", "critic"} and all(
        math.isfinite(value.item()) for value in losses.values()
    )
    assert all(g is None for g in gradients(losses["model"], state.module))
    assert all(g is None for g in gradients(losses["critic"], model))
    assert any(
        g is not None and g.abs().max() > 0 for g in gradients(losses["critic"], state.module)
    )
    assert any(g is not None and g.abs().max() > 0 for g in gradients(losses["model"], model))
    assert all(p.requires_grad for p in state.module.parameters())


def test_turns(generator: torch.Generator) -> None:
    objective = Adversarial(critic=(8,), critic_steps=3, audit_every=0)
    model, state, batch = start(objective, generator)
    seen = []
    for _ in range(6):
        losses, state, _ = objective.losses(model, batch, state, generator=generator)
        seen.append("model" in losses)
    assert seen == [False, False, True, False, False, True]
    before = [p.detach().clone() for p in model.parameters()]
    # two turns of the critic alone
    partita.fit(model, batch.x, objective, steps=2, batch_size=32, average=0.0, generator=generator)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    partita.fit(model, batch.x, objective, steps=3, batch_size=32, average=0.0, generator=generator)
    assert not all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class Fixed(nn.Module):
    """A critic that says a x_0 + b."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.tensor(a)), nn.Parameter(torch.tensor(b))

    def forward(self, x: Tensor) -> Tensor:
        return self.a * x[:, :1] + self.b


def test_values_at_a_critic_that_knows_nothing(generator: torch.Generator) -> None:
    """A constant log ratio of zero: the minimax value is -2 log 2, every f-divergence's bound
    zero.
    """
    for loss, value in (("minimax", -2 * math.log(2)), *((name, 0.0) for name in LOSSES[3:])):
        objective = Adversarial(loss, "none", critic=Fixed(0.0, 0.0), audit_every=0)
        model, state, batch = start(objective, generator)
        _, _, info = objective.losses(model, batch, state, generator=generator)
        assert info["critic_value"].item() == pytest.approx(value, abs=1e-6)


def test_signs_are_those_of_a_minimax(generator: torch.Generator) -> None:
    """The critic says x_0, and data lie to the right of draws: the critic gains by steepness, the
    generator by moving right.
    """
    for loss in ("wasserstein", "non-saturating", "minimax", "jensen-shannon", "kl"):
        critic = Fixed(1.0, -2.0)
        objective = Adversarial(
            loss,
            "penalty" if loss == "wasserstein" else "none",
            critic=critic,
            strength=0.0,
            audit_every=0,
        )
        model, state, batch = start(objective, generator)
        batch = Batch(batch.x + 3)
        losses, _, _ = objective.losses(model, batch, state, generator=generator)
        assert torch.autograd.grad(losses["critic"], critic.a, retain_graph=True)[0] < 0
        last = model.net.layers[-1].bias  # type: ignore[union-attr]
        assert torch.autograd.grad(losses["model"], last)[0][0] < 0


def test_sample_weights_count(generator: torch.Generator) -> None:
    objective = Adversarial("wasserstein", critic=Fixed(1.0, 0.0), audit_every=0)
    model, state, batch = start(objective, generator)
    weight = torch.zeros(64)
    weight[0] = 64.0
    state_of = generator.get_state()
    _, _, plain = objective.losses(
        model, Batch(batch.x[:1].expand(64, -1)), state, generator=generator
    )
    generator.set_state(state_of)
    _, _, weighted = objective.losses(
        model, batch._replace(weight=weight), state, generator=generator
    )
    assert weighted["critic_value"].item() == pytest.approx(plain["critic_value"].item(), abs=1e-5)


@pytest.mark.parametrize("lipschitz", ["penalty", "spectral", "clip"])
def test_the_audit_keeps_a_critic_honest(lipschitz: str, generator: torch.Generator) -> None:
    """What a critic claims, over its certified slope, is never above the exact distance of the same
    batch.
    """
    x = torch.randn(512, 2, generator=generator) + 2
    model = GAN(2, 3, widths=(16,), generator=generator)
    objective = Adversarial(
        "wasserstein",
        lipschitz,
        critic=(32, 32),
        critic_steps=3,
        strength=1.0,
        clip=0.2,
        audit_every=5,
    )
    run = partita.fit(
        model, x, objective, steps=60, batch_size=64, learning_rate=5e-3, generator=generator
    )
    audits = [record for record in run.history if "wasserstein" in record]
    assert len(audits) > 20
    assert all(record["dual_over_lipschitz"] <= record["wasserstein"] + 1e-6 for record in audits)
    assert all(0 <= record["coverage"] <= 1 for record in audits)
    assert max(record["dual"] for record in audits) > 0
    if lipschitz == "spectral":
        assert all(record["lipschitz"] < 1.05 for record in audits)


def test_the_audit_is_what_it_says(generator: torch.Generator) -> None:
    objective = Adversarial("wasserstein", critic=(16,))
    model, state, batch = start(objective, generator)
    kept = generator.get_state()
    _, following, info = objective.losses(model, batch, state, generator=generator)
    generator.set_state(kept)
    y = model(model.noise(64, generator=generator)).detach()
    critic = state.module
    assert info["wasserstein"].item() == pytest.approx(
        wasserstein(batch.x.double(), y.double()).item(), rel=1e-5
    )
    assert info["lipschitz"].item() == pytest.approx(lipschitz_bound(critic), rel=1e-6)
    assert info["dual"].item() == pytest.approx(
        (critic(batch.x).mean() - critic(y).mean()).item(), abs=1e-5
    )
    assert torch.equal(
        following.audited, torch.stack([info[name] for name in info if name != "critic_value"])
    )


def test_a_critic_without_a_known_slope_is_still_audited(generator: torch.Generator) -> None:
    objective = Adversarial(critic=Fixed(1.0, 0.0))
    model, state, batch = start(objective, generator)
    _, _, info = objective.losses(model, batch, state, generator=generator)
    assert math.isnan(info["lipschitz"]) and math.isfinite(info["wasserstein"])


def test_an_audit_of_a_single_row_and_of_a_flat_critic(generator: torch.Generator) -> None:
    """The exact distance is there; what needs neighbors, or a slope to divide by, is nan and no
    error.
    """
    objective = Adversarial("wasserstein", critic=(8,))
    model, state, batch = start(objective, generator, n=1)
    with torch.no_grad():
        for p in state.module.parameters():
            p.zero_()
    _, _, info = objective.losses(model, batch, state, generator=generator)
    assert math.isfinite(info["wasserstein"]) and info["lipschitz"] == 0
    assert all(math.isnan(info[name]) for name in ("coverage", "mmd2", "dual_over_lipschitz"))


@pytest.mark.parametrize("lipschitz", ["penalty", "spectral"])
def test_a_resumed_run_is_the_same_bit_for_bit(lipschitz: str, tmp_path: Any) -> None:
    """Critic, turn and audit are saved with the run."""

    def fit(out: Any, steps: int, resume: bool = False) -> Tensor:
        g = torch.Generator().manual_seed(3)
        x = torch.randn(96, 2, generator=g)
        model = GAN(2, 2, widths=(8,), generator=g)
        objective = Adversarial(
            "wasserstein", lipschitz, critic=(8,), critic_steps=2, audit_every=3
        )
        partita.fit(
            model,
            x,
            objective,
            steps=steps,
            batch_size=32,
            schedule="constant",
            resume=resume,
            out=out,
            generator=g,
        )
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    whole = fit(tmp_path / "whole", 12)
    from partita.training import checkpoint

    fit(tmp_path / "part", 7)
    saved = checkpoint.load_tree(tmp_path / "part" / "checkpoints" / "last.safetensors")
    checkpoint.save_tree(
        tmp_path / "part" / "checkpoints" / "last.safetensors", {**saved, "total": 12}
    )
    assert torch.equal(fit(tmp_path / "part", 12, resume=True), whole)


def test_draws_come_to_the_data(generator: torch.Generator) -> None:
    """Data lie three units away from the first draws; the exact distance of the audits falls below
    a third.
    """
    x = torch.randn(2000, 1, generator=generator) * 0.5 + 3
    model = GAN(1, 2, widths=(32,), generator=generator)
    run = partita.fit(
        model,
        x,
        Adversarial("wasserstein", critic=(32,), strength=1.0, audit_every=20),
        steps=400,
        batch_size=64,
        learning_rate=3e-3,
        generator=generator,
    )
    distance = [value for _, value in run.series("wasserstein")]
    assert distance[0] > 2 and distance[-1] < distance[0] / 3


def test_wrong_settings(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"divergence must be one of 'kl', .*; got 'wgan'"):
        Adversarial("wgan")
    with pytest.raises(
        InputError,
        match=r"lipschitz must bound the critic's slope for loss='wasserstein'; got 'none'",
    ):
        Adversarial("wasserstein", "none")
    with pytest.raises(
        InputError, match=r"critic_steps must be a whole number of at least 1; got 0"
    ):
        Adversarial(critic_steps=0)
    with pytest.raises(
        Unsupported, match=r"Adversarial cannot run on RBM\(2, 1\): its draws carry no gradients"
    ):
        Adversarial().init(
            RBM(2, 1, generator=generator), as_rows(torch.eye(2)), generator=generator
        )
    objective = Adversarial(critic=nn.Linear(2, 3), audit_every=0)
    model, state, batch = start(objective, generator)
    with pytest.raises(InputError, match=r"critic must give one number for each row"):
        objective.losses(model, batch, state, generator=generator)
