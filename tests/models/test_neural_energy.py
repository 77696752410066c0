"""A network as an energy: on real, binary, spin and categorical supports, against sums and
integrals written out.
"""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import partita
from partita.core.support import Binary, Categorical, Count, Real, Spin, Support
from partita.errors import InputError, RunError, Unsupported
from partita.evaluators import Enumeration, Quadrature
from partita.models import NeuralEnergy, Potts
from partita.nets import MLP
from partita.objectives import ExactLikelihood
from partita.samplers import Gibbs
from partita.tables import as_rows

FINITE = pytest.mark.parametrize("support", [Binary(3), Spin(3), Categorical(3, 3)], ids=str)
VALUES = {Binary: (0.0, 1.0), Spin: (-1.0, 1.0), Categorical: (0.0, 1.0, 2.0)}


def neural(support: Support, scale: float = 2.0) -> NeuralEnergy:
    g = torch.Generator().manual_seed(8)
    inputs = support.D * support.K if isinstance(support, Categorical) else support.width
    model = NeuralEnergy(MLP(inputs, 1, widths=(8,), generator=g), support).double()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(scale)
    return model


def states(support: Support) -> Tensor:
    return torch.tensor(
        list(product(VALUES[type(support)], repeat=support.width)), dtype=torch.float64
    )


@FINITE
@torch.no_grad()
def test_a_finite_energy_is_the_networks(support: Support) -> None:
    model, x = neural(support), states(support)
    seen = (
        nn.functional.one_hot(x.long(), 3).flatten(1).double()
        if isinstance(support, Categorical)
        else x
    )
    own = model.net(seen)[:, 0]
    torch.testing.assert_close(model.free_energy(x), own)
    assert abs(Enumeration()(model).value - float(torch.logsumexp(-own, 0))) < 1e-12


@FINITE
@torch.no_grad()
def test_a_finite_path_fades_the_reference(support: Support, generator: torch.Generator) -> None:
    model, x = neural(support), states(support)
    model.initialize(
        as_rows(x[torch.randint(len(x), (50,), generator=generator)]), generator=generator
    )
    reference = model.reference()
    assert abs(float(torch.logsumexp(-reference.free_energy(x), 0) - reference.log_z)) < 1e-12
    by_hand = 0.7 * reference.free_energy(x) + 0.3 * model.free_energy(x)
    torch.testing.assert_close(model.annealed(0.3).free_energy(x), by_hand)


@torch.no_grad()
def test_a_real_energy_is_the_networks_and_the_references(generator: torch.Generator) -> None:
    model = neural(Real(2))
    x = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(model.free_energy(x), model.net(x)[:, 0] + 0.5 * x.square().sum(-1))
    model.initialize(as_rows(3 * x + 1), generator=generator)
    assert not torch.allclose(model.free_energy(x), model.net(x)[:, 0] + 0.5 * x.square().sum(-1))
    torch.testing.assert_close(
        model.annealed(0.4).free_energy(x),
        model.reference().free_energy(x) + 0.4 * model.net(x)[:, 0],
    )
    torch.testing.assert_close(
        model.free_energies(x, torch.tensor([0.4], dtype=torch.float64))[0],
        model.annealed(0.4).free_energy(x),
    )


@torch.no_grad()
def test_without_a_network_z_is_the_references(generator: torch.Generator) -> None:
    model = neural(Real(2), scale=0.0)
    model.initialize(as_rows(torch.randn(50, 2, generator=generator) * 3), generator=generator)
    assert abs(Quadrature()(model).value - float(model.reference().log_z)) < 1e-6


def test_likelihood_of_one_coordinate_is_what_scipy_integrates(generator: torch.Generator) -> None:
    from scipy.integrate import quad

    model = neural(Real(1))
    with torch.no_grad():
        z, _ = quad(
            lambda t: math.exp(-float(model(torch.tensor([t], dtype=torch.float64)))),
            -12,
            12,
            epsabs=1e-12,
            epsrel=1e-12,
        )
    q = partita.evaluate(
        model, torch.tensor([[0.3], [-1.0]], dtype=torch.float64), generator=generator
    )
    assert q.kind == "estimate" and "quadrature" in q.method
    truth = float(
        -model(torch.tensor([[0.3], [-1.0]], dtype=torch.float64)).detach().mean()
    ) - math.log(z)
    assert abs(q.value - truth) < 1e-9


@FINITE
def test_gibbs_and_exact_learning_run_on_finite_supports(
    support: Support, generator: torch.Generator
) -> None:
    model, x = neural(support, 1.0).float(), states(support).float()
    data = x[torch.randint(2, (200,), generator=generator)]  # two of the states
    before = partita.evaluate(model, data, generator=generator)
    partita.fit(model, data, ExactLikelihood(), steps=60, generator=generator)
    after = partita.evaluate(model, data, generator=generator)
    assert before.kind == after.kind == "exact" and after.value > before.value + 0.5
    draws = partita.sample(model, 50, sampler=Gibbs(), burn_in=5, generator=generator)
    support.check(draws, "test")


def test_other_supports_and_shapes_are_refused(generator: torch.Generator) -> None:
    with pytest.raises(
        Unsupported,
        match=r"NeuralEnergy cannot live on Count\(D=2\): it needs one of Real, Binary, Spin, "
        r"Categorical\.",
    ):
        NeuralEnergy(MLP(2, 1, generator=generator), Count(2))
    with pytest.raises(
        InputError,
        match=r"NeuralEnergy: net must map \(N, 2\) to \(N,\) or \(N, 1\); got \(32, 2\) to \(32, "
        r"3\)\.",
    ):
        NeuralEnergy(MLP(2, 3, generator=generator), Real(2))
    with pytest.raises(
        InputError, match=r"NeuralEnergy: net must have parameters to learn; got Tanh"
    ):
        NeuralEnergy(nn.Tanh(), Real(2))
    with pytest.raises(
        InputError, match=r"NeuralEnergy: covariance must be one of 'full', 'diagonal'; got 'round'"
    ):
        NeuralEnergy(MLP(2, 1, generator=generator), Real(2), covariance="round")
    with pytest.raises(InputError, match=r"hold whole numbers from 0 to 2; got 3 in column 1"):
        partita.evaluate(
            neural(Categorical(3, 3)), torch.tensor([[0.0, 3.0, 1.0]]), generator=generator
        )


class Quadratic(nn.Module):
    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a))

    def forward(self, x: Tensor) -> Tensor:
        return self.a * x.square().sum(-1)


def test_a_network_that_falls_too_fast_is_refused() -> None:
    words = (
        r"NeuralEnergy: net must not lower the energy faster than x'x raises it, else Z is "
        r"infinite; "
    )
    with pytest.raises(InputError, match=words + r"got an energy that falls like -\|x\|\^2\."):
        NeuralEnergy(Quadratic(-1.0), Real(2))


@pytest.mark.parametrize("a", [1.0, -0.375, 1e4])
def test_a_network_that_rises_is_welcome(a: float) -> None:
    """F = (a + 1/2) x'x, whose Z is known; it may fall too, as long as the reference rises
    faster.
    """
    q = Quadrature()(NeuralEnergy(Quadratic(a), Real(2)))
    assert (
        q.low <= math.log(math.pi / (a + 0.5)) <= q.high and q.verdict == "tight" and q.width < 1e-4
    )


@pytest.mark.parametrize("support", [Real(2), Binary(3), Spin(3), Categorical(3, 3)], ids=str)
def test_a_saved_run_rebuilds_its_network(
    support: Support, tmp_path: Any, generator: torch.Generator
) -> None:
    model = neural(support).float()
    x = torch.randn(40, 2, generator=generator) if support == Real(2) else states(support).float()
    partita.fit(model, x, ExactLikelihood(), steps=2, out=tmp_path / "run", generator=generator)
    loaded: Any = partita.load(tmp_path / "run").model
    assert loaded.support == support
    torch.testing.assert_close(loaded(x), model(x), rtol=0, atol=0)


def test_a_module_of_the_users_own_is_handed_over(
    tmp_path: Any, generator: torch.Generator
) -> None:
    model, other = (NeuralEnergy(nn.Linear(2, 1), Real(2)) for _ in range(2))
    x = torch.randn(40, 2, generator=generator)
    partita.fit(model, x, ExactLikelihood(), steps=2, out=tmp_path / "run", generator=generator)
    with pytest.raises(
        RunError,
        match=r"load: the network of NeuralEnergy must be one of MLP.*; got a module of your own",
    ):
        partita.load(tmp_path / "run")
    partita.load(tmp_path / "run", model=other)
    torch.testing.assert_close(other(x), model(x), rtol=0, atol=0)


def test_networks_that_cannot_take_the_rows_are_named(generator: torch.Generator) -> None:
    for support, columns in ((Real(2), 2), (Binary(2), 2), (Categorical(2, 3), 2)):
        words = (
            rf"NeuralEnergy: net must take rows of {columns} columns; got an error for "
            r".*shapes cannot be multiplied.*first layer\."
        )
        with pytest.raises(InputError, match=words):
            NeuralEnergy(MLP(5, 1, generator=generator), support)
    with pytest.raises(
        InputError, match=r"NeuralEnergy: net must be a torch\.nn\.Module; got function\."
    ):
        NeuralEnergy(lambda x: x.sum(-1), Real(2))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [3.0, -1.0, 0.5])
def test_categories_out_of_range_are_named(value: float, generator: torch.Generator) -> None:
    """In a Potts model the wrong entry would be another site's."""
    x = torch.tensor([[0.0, 1.0], [value, 1.0]])
    neural = NeuralEnergy(MLP(6, 1, generator=generator), Categorical(2, 3))
    potts = Potts(2, 3, generator=generator)
    for call in (neural.free_energy, potts.free_energy, potts.conditional_logits):
        with pytest.raises(
            InputError,
            match=rf": x must hold whole numbers from 0 to 2; got {value:g} at row 1, column 0\.",
        ):
            call(x)
