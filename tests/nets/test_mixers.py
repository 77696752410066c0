"""The views agree: matrix with its gates held = all steps at once = step by step = Jacobian with
respect to v; and all are causal.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from partita.errors import InputError
from partita.models.networked import build, describe
from partita.nets import H3, LSTM, Attention, CausalConv, DenseSSM, DiagonalSSM, Hyena, SequenceNet
from partita.nets.mixer import MatrixMixer, Mixer

LENGTHS = (1, 2, 7, 64, 100, 1000)
D = 4


MATRICES: dict[str, Callable[..., MatrixMixer]] = {
    **{f"hyena {order}": partial(Hyena, D, order) for order in (1, 2, 3, 4)},
    "dense ssm": partial(DenseSSM, D, 6),
    "diagonal ssm": partial(DiagonalSSM, D, 6),
    "mixing ssm": partial(DiagonalSSM, D, 6, rule="bilinear", mix=True),
    "h3": partial(H3, D, 6),
    "attention": partial(Attention, D, 2),
}
OPTIONS = {"attention": {"heads": 2}}
ALL: dict[str, Callable[..., Any]] = {
    **MATRICES,
    "lstm": partial(LSTM, D),
    "conv": partial(CausalConv, D, 3, 2),
    **{
        f"net of {name}": partial(SequenceNet, D, 2, name, options=OPTIONS.get(name))
        for name in ("hyena", "h3", "ssm", "attention", "conv", "lstm")
    },
}


def inputs(L: int, generator: torch.Generator) -> Tensor:
    return torch.randn(2 if L < 1000 else 1, L, D, dtype=torch.float64, generator=generator)


def steps_of(mixer: Any, u: Tensor) -> Tensor:
    state, ys = mixer.start(len(u), u.shape[1]), []
    for t in range(u.shape[1]):
        y, state = mixer.step(u[:, t], state)
        ys.append(y)
    return torch.stack(ys, 1)


@pytest.mark.parametrize("L", LENGTHS)
@pytest.mark.parametrize("name", MATRICES)
@torch.no_grad()
def test_matrix_is_the_operator(name: str, L: int, generator: torch.Generator) -> None:
    mixer, u = MATRICES[name](generator=generator).double(), inputs(L, generator)
    v, _ = mixer.project(u)
    by_matrix = mixer.out((mixer.dense(u) @ v.unsqueeze(-1)).squeeze(-1).mT)
    torch.testing.assert_close(mixer(u), by_matrix, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "L"), [(name, L) for name in ALL for L in LENGTHS if L < 1000 or "net of" not in name]
)
@torch.no_grad()
def test_step_by_step_is_all_at_once(name: str, L: int, generator: torch.Generator) -> None:
    mixer, u = ALL[name](generator=generator).double(), inputs(L, generator)
    torch.testing.assert_close(steps_of(mixer, u), mixer(u), rtol=0, atol=1e-10)


@pytest.mark.parametrize("L", [1, 2, 7, 64])
@pytest.mark.parametrize("name", MATRICES)
def test_matrix_is_the_jacobian_with_respect_to_v(
    name: str, L: int, generator: torch.Generator
) -> None:
    mixer, u = MATRICES[name](generator=generator).double(), inputs(L, generator)[:1]
    v, gates = mixer.project(u)
    # (D, L, D, L)
    jacobian = torch.autograd.functional.jacobian(lambda v: mixer.operate(v, gates)[0], v.detach())[
        :, :, 0
    ]
    own = torch.stack([jacobian[d, :, d] for d in range(D)])
    torch.testing.assert_close(own, mixer.dense(u)[0].detach(), rtol=0, atol=1e-10)
    for d in range(D):
        # channels do not mix inside the operator
        assert jacobian[d][:, [c for c in range(D) if c != d]].abs().max() < 1e-12


@pytest.mark.parametrize("L", [100, 1000])
@pytest.mark.parametrize("name", MATRICES)
def test_matrix_is_the_jacobian_at_random_directions_of_long_inputs(
    name: str, L: int, generator: torch.Generator
) -> None:
    mixer, u = MATRICES[name](generator=generator).double(), inputs(L, generator)[:1]
    v, gates = (
        x.detach() if isinstance(x, Tensor) else tuple(y.detach() for y in x)
        for x in mixer.project(u)
    )
    direction = torch.randn(v.shape, dtype=v.dtype, generator=generator)
    _, pulled = torch.autograd.functional.vjp(lambda v: mixer.operate(v, gates), v, direction)
    expected = (mixer.dense(u).mT @ direction.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(pulled, expected.detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_nothing_depends_on_the_future(name: str, generator: torch.Generator) -> None:
    mixer, u = ALL[name](generator=generator).double(), inputs(60, generator)
    changed = u.clone()
    changed[:, 31:] += torch.randn(2, 29, D, dtype=u.dtype, generator=generator)
    before, after = mixer(u), mixer(changed)
    torch.testing.assert_close(before[:, :31], after[:, :31], rtol=0, atol=1e-10)
    assert (before[:, 31:] - after[:, 31:]).abs().amax((0, 2)).min() > 1e-6


@pytest.mark.parametrize("name", [*MATRICES, "lstm", "conv", "net of hyena"])
def test_networks_are_rebuilt_from_json(name: str, generator: torch.Generator) -> None:
    mixer, u = ALL[name](generator=generator), inputs(9, generator).float()
    again = build(describe(mixer), "test", generator=generator)
    again.load_state_dict(mixer.state_dict())
    torch.testing.assert_close(again(u), mixer(u), rtol=0, atol=0)


@pytest.mark.parametrize("name", MATRICES)
@torch.no_grad()
def test_bfloat16_follows_float32(name: str, generator: torch.Generator) -> None:
    mixer, u = MATRICES[name](generator=generator), inputs(100, generator).float()
    full, half = mixer(u), mixer.bfloat16()(u.bfloat16())
    assert half.dtype == torch.bfloat16
    assert (half.float() - full).abs().max() < 0.05 * full.abs().max()
    torch.testing.assert_close(
        steps_of(mixer, u[:, :9].bfloat16()).float(), half[:, :9].float(), rtol=0.05, atol=0.05
    )


def test_bad_input_is_named(generator: torch.Generator) -> None:
    op = Hyena(D, 2, max_length=10, generator=generator)
    with pytest.raises(
        InputError,
        match=r"Hyena: u must have at most max_length = 10 steps; got 11. Give a larger max_length",
    ):
        op(torch.zeros(1, 11, D))
    with pytest.raises(
        InputError, match=r"u must have shape \(B, L, 4\) with L of at least 1; got \(1, 0, 4\)"
    ):
        op(torch.zeros(1, 0, D))
    state = op.start(1, 1)
    _, state = op.step(torch.zeros(1, D), state)
    with pytest.raises(InputError, match=r"step must be called at most 1 times after start; got 2"):
        op.step(torch.zeros(1, D), state)
    with pytest.raises(
        InputError, match=r"Hyena: order must be a whole number of at least 1; got 0"
    ):
        Hyena(D, 0, generator=generator)
    with pytest.raises(InputError, match=r"ImplicitFilter: encoding must be odd.*got 4"):
        Hyena(D, 2, filter={"encoding": 4}, generator=generator)
    with pytest.raises(InputError, match=r"width must be a multiple of 2 heads = 8; got 12"):
        Attention(12, 4, generator=generator)
    with pytest.raises(
        InputError, match=r"options must be settings of the conv mixer; got \{'order': 2\}"
    ):
        SequenceNet(4, 1, "conv", options={"order": 2}, generator=generator)


def test_every_mixer_is_a_mixer() -> None:
    assert all(
        isinstance(make(generator=torch.Generator()), Mixer | SequenceNet) for make in ALL.values()
    )
