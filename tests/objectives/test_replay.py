"""A replay buffer: persistent chains of which only some move, and some begin again."""

from typing import Any

import pytest
import torch
from torch import Tensor

import partita
from partita.core.protocols import Batch, Chains, Sampler
from partita.models import RBM
from partita.objectives import CD, PCD
from partita.samplers import MALA, Tempering
from partita.tables import as_rows

ROWS = (torch.rand(40, 5, generator=torch.Generator().manual_seed(0)) < 0.4).float()


def machine() -> RBM:
    return RBM(5, 3, scale=1.0, generator=torch.Generator().manual_seed(1))


def test_a_replay_buffer_moves_only_its_active_chains() -> None:
    model, x, g = machine(), ROWS, torch.Generator().manual_seed(3)
    objective = PCD(chains=200, active=20, steps=5)
    state = objective.init(model, as_rows(x), generator=g)
    _, after, _ = objective.losses(model, Batch(x), state, generator=g)
    moved = (after.chains.x != state.chains.x).any(1)
    assert 0 < int(moved.sum()) <= 20
    assert after.chains.x.shape == (200, 5)


def test_restarted_chains_come_from_the_reference() -> None:
    """A reference of ones, chains of zeros, and a kernel that stays: what is one began again. 2,000
    chains, |z| < 4: false alarm 6e-5.
    """

    class Stays(Sampler[Chains]):
        def init(self, model: Any, x: Tensor, *, generator: Any) -> Any:
            return Chains(x)

        def step(self, model: Any, state: Any, *, generator: Any) -> tuple[Any, Any]:
            return state, None

    model, x, g = machine(), ROWS, torch.Generator().manual_seed(3)
    model.reference_natural.fill_(50.0)
    objective = PCD(Stays(), chains=2000, active=2000, restart=0.3)  # type: ignore[arg-type]
    state = objective.init(model, as_rows(x), generator=g)
    state = state._replace(chains=state.chains._replace(x=torch.zeros(2000, 5)))
    _, after, _ = objective.losses(model, Batch(x), state, generator=g)
    share = after.chains.x.mean().item()
    assert after.chains.x.mean(1).unique().tolist() == [0.0, 1.0]  # a chain is begun anew whole
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / 2000) ** 0.5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"active": 0}, r"PCD: active must be a whole number of at least 1; got 0\."),
        ({"active": 300}, r"PCD: active must be at most chains = 256; got 300\."),
        ({"active": 5, "restart": 1.5}, r"PCD: restart must lie in \[0, 1\]; got 1\.5\."),
        ({"restart": 0.1}, r"PCD: restart must go with active, .*; got 0\.1\."),
    ],
)
def test_bad_settings_of_a_replay_buffer(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(partita.errors.InputError, match=words):
        PCD(**settings)


LADDER = Tempering(MALA(), betas=(0.0, 0.5, 1.0))
ADAPTING = {
    "replay": PCD(MALA(), chains=40, active=10, steps=3),
    "replay of ladders": PCD(LADDER, chains=40, active=10, steps=3),
    "cd": CD(MALA(), steps=3),
    "cd by ladders": CD(LADDER, steps=3),
}


@pytest.mark.parametrize("objective", ADAPTING.values(), ids=ADAPTING)
def test_what_a_sampler_learned_about_its_steps_stays(objective: Any) -> None:
    """The chains begin elsewhere at every update; the adaptation of the step size goes on."""
    g = torch.Generator().manual_seed(2)
    model, x = RBM(2, 3, visible_units="gaussian", generator=g), torch.randn(30, 2, generator=g)
    state = objective.init(model, as_rows(x), generator=g)

    def known(state: Any) -> Any:
        last = state.last if isinstance(objective, CD) else state.chains.moved
        return getattr(last, "kernel", last).size

    counts = [int(known(state).steps)]
    for _ in range(3):
        _, state, _ = objective.losses(model, Batch(x), state, generator=g)
        counts.append(int(known(state).steps))
    assert counts == [0, 3, 6, 9]


def test_a_ladder_in_a_buffer_keeps_its_lower_rungs() -> None:
    """Only the top rung begins elsewhere, unless the number of chains is another."""
    g = torch.Generator().manual_seed(2)
    model, x = RBM(2, 3, visible_units="gaussian", generator=g), torch.randn(6, 2, generator=g)
    state = LADDER.init(model, x, generator=g)
    state, _ = LADDER.step(model, state, generator=g)
    elsewhere = LADDER.place(model, state, x + 1, generator=g)
    assert torch.equal(elsewhere.ladder[:-1], state.ladder[:-1]) and torch.equal(elsewhere.x, x + 1)
    assert torch.equal(elsewhere.kernel.size.average, state.kernel.size.average)
    fewer = LADDER.place(model, state, x[:2], generator=g)
    assert fewer.ladder.shape == (3, 2, 2) and torch.equal(fewer.ladder[0], x[:2])


def test_replay_computes_each_energy_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass where the active chains begin and one for each proposal; the loss has two more of
    its own.
    """
    g = torch.Generator().manual_seed(2)
    model, x = RBM(2, 3, visible_units="gaussian", generator=g), torch.randn(30, 2, generator=g)
    objective = PCD(MALA(), chains=40, active=10, steps=3)
    state = objective.init(model, as_rows(x), generator=g)
    calls, own = [], RBM.free_energy
    monkeypatch.setattr(
        RBM, "free_energy", lambda self, *a, **k: (calls.append(1), own(self, *a, **k))[1]
    )
    objective.losses(model, Batch(x), state, generator=g)
    assert len(calls) == 1 + 3 + 2
