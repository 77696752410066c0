"""Langevin, MALA and HMC: invariance on an asymmetric target, balance, reversibility, order,
adaptation, and named failures.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from scipy.stats import chi2, norm
from tests.samplers.targets import Bent, Truth
from torch import Tensor, nn

import partita
from partita.core.protocols import EnergyModel
from partita.core.support import Real
from partita.errors import Diverged, InputError, Unsupported
from partita.models import RBM, LatentEnergy, NeuralEnergy
from partita.models.energy.units import GaussianReference
from partita.nets import MLP
from partita.objectives import CD, PCD
from partita.samplers import HMC, MALA, Alternating, Gibbs, Langevin, Tempering, run
from partita.samplers.gradient import energy_and_gradient, leapfrog
from partita.training import checkpoint

# false-alarm rate of all chi-squared tests of one function together, at their fixed seeds
RATE = 1e-4
CHAINS = 20_000


def latent(seed: int = 2, scale: float = 1.5) -> LatentEnergy:
    g = torch.Generator().manual_seed(seed)
    model = LatentEnergy(MLP(2, 4, widths=(8,), generator=g), 2, 5, 4, generator=g).double()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(scale)
        model.W.mul_(10)  # far from a normal distribution, where fits start
        model.b.copy_(torch.tensor([0.8, -0.5]))
    return model


def moved(
    model: EnergyModel, sampler: Any, x: Tensor, steps: int, generator: torch.Generator
) -> Any:
    state = sampler.init(model, x, generator=generator)
    for _ in range(steps):
        state, info = sampler.step(model, state, generator=generator)
    return state, info


FIXED = {
    "MALA": MALA(0.8, warm_up=0),
    "HMC": HMC(0.6, warm_up=0, leapfrogs=4),
    "Alternating MALA": Alternating(MALA(0.8, warm_up=0)),
    "Alternating HMC": Alternating(HMC(0.6, warm_up=0, leapfrogs=3)),
}


@pytest.mark.parametrize("name", FIXED)
def test_the_target_is_kept_and_reached(name: str, generator: torch.Generator) -> None:
    """From exact draws after 3 steps, and from one far point after 150, for a bent density and a
    latent energy: 2 tests a target.
    """
    for model in [latent()] if name.startswith("Alternating") else [Bent(), latent()]:
        truth = Truth(model)
        state, info = moved(model, FIXED[name], truth.draw(CHAINS, generator), 3, generator)
        assert truth.distance(state.x) < truth.limit(RATE / 4, CHAINS)
        share = float(info.accepted.double().mean())
        assert 0.3 < share < 0.99  # proposals are both accepted and rejected
        far = torch.tensor([-1.5, 1.5], dtype=torch.float64).expand(4000, 2)
        once, _ = moved(model, FIXED[name], far, 1, generator)
        assert truth.distance(once.x) > 2 * truth.limit(RATE / 4, 4000)
        state, _ = moved(model, FIXED[name], far, 150, generator)
        assert truth.distance(state.x) < truth.limit(RATE / 4, 4000)


def test_wrong_signs_would_be_seen(generator: torch.Generator) -> None:
    """The chi-squared test has the power to see a flipped coordinate or a step without
    rejection.
    """
    model = Bent()
    truth = Truth(model)
    x = truth.draw(CHAINS, generator)
    assert truth.distance(-x) > 100 * truth.limit(RATE, CHAINS)
    assert truth.distance(x.flip(-1)) > 100 * truth.limit(RATE, CHAINS)
    # MALA's proposal at the same step size, never rejected
    state, _ = moved(model, Langevin(0.8), x, 3, generator)
    assert truth.distance(state.x) > 5 * truth.limit(RATE, CHAINS)


@pytest.mark.parametrize(
    "sampler",
    [MALA(0.8, warm_up=0), HMC(0.45, warm_up=0, leapfrogs=3), Alternating(MALA(0.8, warm_up=0))],
    ids=str,
)
def test_each_rung_and_each_chain_may_have_its_own_temperature(
    sampler: Any, generator: torch.Generator
) -> None:
    model, betas, n = latent(), [0.0, 0.4, 1.0], 6000
    truths = [Truth(model.annealed(beta)) for beta in betas]
    ladder = torch.stack([truth.draw(n, generator) for truth in truths])
    levels = torch.tensor(betas, dtype=torch.float64)
    rungs, _ = moved(model.annealed(levels[:, None]), sampler, ladder, 2, generator)
    chains, _ = moved(
        model.annealed(levels.repeat_interleave(n)), sampler, ladder.flatten(0, 1), 2, generator
    )
    for t, truth in enumerate(truths):
        assert truth.distance(rungs.x[t]) < truth.limit(RATE / 6, n)
        assert truth.distance(chains.x.view(3, n, 2)[t]) < truth.limit(RATE / 6, n)
    assert truths[2].distance(rungs.x[0]) > 500  # the temperatures are far from one another


def test_unadjusted_langevin_has_its_known_bias_on_a_normal_target(
    generator: torch.Generator,
) -> None:
    r"""Var = s^2 / (1 - eps^2 / (4 s^2)) (eq. 31.2); 60,000 independent chains at stationarity,
    false-alarm rate 1e-4 for four tests.
    """

    class Normal(Bent):
        def free_energy(self, x: Tensor) -> Tensor:
            return 0.5 * ((x - 0.5) / deviations).square().sum(-1)

    deviations, epsilon, n = torch.tensor([1.0, 0.6], dtype=torch.float64), 0.7, 60_000
    model = Normal()
    biased = deviations.square() / (1 - epsilon**2 / (4 * deviations.square()))
    x = 0.5 + biased.sqrt() * torch.randn(n, 2, generator=generator, dtype=torch.float64)

    y = moved(model, Langevin(epsilon), x, 3, generator)[0].x
    z = (y.mean(0) - 0.5) / (biased / n).sqrt()
    assert (z.abs() < norm.isf(1e-4 / 8)).all()
    ratio = (y - 0.5).square().sum(0) / biased
    assert (ratio > chi2.isf(1 - 1e-4 / 8, n)).all() and (ratio < chi2.isf(1e-4 / 8, n)).all()
    assert ((y - 0.5).square().mean(0) / deviations.square() > 1.1).all()  # the bias is there


def test_mala_is_in_detailed_balance() -> None:
    """The leapfrog's total energy difference is the log of p(x') q(x | x') / (p(x) q(x' | x)), with
    q written out.
    """
    model, epsilon = Bent(), 0.6
    g = torch.Generator().manual_seed(3)
    x, momentum = (torch.randn(50, 2, generator=g, dtype=torch.float64) for _ in range(2))
    energy, gradient = energy_and_gradient("test", model, x)
    size = torch.tensor([epsilon], dtype=torch.float64)
    y, end, energy_y, gradient_y = leapfrog("test", model, x, momentum, gradient, size, 1)
    log_accept = energy - energy_y + 0.5 * (momentum.square() - end.square()).sum(-1)

    def log_q(to: Tensor, at: Tensor, slope: Tensor) -> Tensor:
        return -(to - at + 0.5 * epsilon**2 * slope).square().sum(-1) / (2 * epsilon**2)

    torch.testing.assert_close(y, x - 0.5 * epsilon**2 * gradient + epsilon * momentum)
    torch.testing.assert_close(
        log_accept,
        energy - energy_y + log_q(x, y, gradient_y) - log_q(y, x, gradient),
        rtol=0,
        atol=1e-11,
    )


def test_hmc_is_reversible_keeps_volume_and_conserves_energy_to_second_order() -> None:
    model = Bent()
    g = torch.Generator().manual_seed(4)
    x, p = (torch.randn(20, 2, generator=g, dtype=torch.float64) for _ in range(2))

    def trajectory(
        x: Tensor, p: Tensor, epsilon: float, steps: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        energy, gradient = energy_and_gradient("test", model, x)
        size = torch.tensor([epsilon], dtype=torch.float64)
        y, q, after, _ = leapfrog("test", model, x, p, gradient, size, steps)
        return y, q, after + 0.5 * q.square().sum(-1) - energy - 0.5 * p.square().sum(-1)

    y, q, _ = trajectory(x, p, 0.1, 20)
    back, reverse, _ = trajectory(y, -q, 0.1, 20)
    torch.testing.assert_close(back, x, rtol=0, atol=1e-10)
    torch.testing.assert_close(-reverse, p, rtol=0, atol=1e-10)
    errors = [float(trajectory(x, p, 1.0 / steps, steps)[2].abs().mean()) for steps in (16, 32, 64)]
    for coarse, fine in pairwise(errors):
        assert 3.5 < coarse / fine < 4.5
    delta = 1e-5
    start = torch.tensor([0.3, -0.4, 0.8, 0.2], dtype=torch.float64)
    shifts = torch.cat(
        [
            start + delta * torch.eye(4, dtype=torch.float64),
            start - delta * torch.eye(4, dtype=torch.float64),
        ]
    )
    ends = torch.cat(trajectory(shifts[:, :2], shifts[:, 2:], 0.2, 5)[:2], -1)
    jacobian = (ends[:4] - ends[4:]) / (2 * delta)
    assert abs(abs(float(torch.linalg.det(jacobian))) - 1) < 1e-7


def test_jitter_ends_the_to_and_fro_of_half_periods(generator: torch.Generator) -> None:
    """Four steps of 0.6 last half a period of this target: without jitter 150 of them are not
    enough, with it they are.
    """
    model, n = latent(), 2000
    truth, far = Truth(model), torch.tensor([-1.5, 1.5], dtype=torch.float64).expand(n, 2)
    stiff, varied = (
        moved(model, HMC(0.6, warm_up=0, leapfrogs=4, jitter=share), far, 150, generator)[0].x
        for share in (0.0, 0.2)
    )
    assert truth.distance(stiff) > 10 * truth.limit(RATE / 2, n)
    assert truth.distance(varied) < truth.limit(RATE / 2, n)


@pytest.mark.parametrize(
    "sampler", [MALA(5.0), MALA(1e-3), HMC(3.0, leapfrogs=3), HMC(1e-3, leapfrogs=3)], ids=str
)
def test_the_warm_up_finds_the_declared_acceptance_and_then_stops(
    sampler: Any, generator: torch.Generator
) -> None:
    """From step sizes far too large and far too small; the mean over 200 steps of 500 chains,
    within 0.05.
    """
    model = Bent()
    state, _ = moved(model, sampler, Truth(model).draw(500, generator), sampler.warm_up, generator)
    sizes, seen = [], []
    for _ in range(200):
        state, info = sampler.step(model, state, generator=generator)
        sizes.append(info.size)
        seen.append(info.numbers()["acceptance"].mean())
    jitter = getattr(sampler, "jitter", 0.0)
    within = torch.stack(sizes) / state.size.average.exp()
    # nothing is adapted any more
    assert float(within.min()) >= 1 - jitter - 1e-9 and float(within.max()) <= 1 + jitter + 1e-9
    assert abs(float(torch.stack(seen).mean()) - sampler.acceptance) < 0.05
    assert int(state.size.steps) == sampler.warm_up
    learned = sampler.refresh(model, state, generator=generator)
    # a model that learns goes on with the warm-up
    assert int(learned.size.steps) == sampler.warm_up // 2
    assert torch.equal(learned.size.average, state.size.average)


def test_each_rung_finds_a_step_size_of_its_own(generator: torch.Generator) -> None:
    """A wide normal reference wants longer steps than a narrow target."""
    model = latent()
    with torch.no_grad():
        model.reference_whitening.copy_(torch.eye(2, dtype=torch.float64) / 5)
    ladder = Tempering(MALA(), betas=(0.0, 0.3, 1.0))
    state = ladder.init(model, model.reference().draw(64, generator=generator), generator=generator)
    for _ in range(250):
        state, info = ladder.step(model, state, generator=generator)
    sizes = state.kernel.size.average.exp().flatten()
    assert float(sizes[0]) > 3 * float(sizes[-1])
    torch.testing.assert_close(state.kernel.energy.shape, (3, 64))
    assert 0.3 < float(info.numbers()["acceptance"].mean()) < 0.9


def test_tuned_kernels_are_frozen_along_the_path(generator: torch.Generator) -> None:
    model = latent()
    with torch.no_grad():
        model.reference_whitening.copy_(torch.eye(2, dtype=torch.float64) / 5)
    for kernel in (MALA(), HMC(leapfrogs=3), Alternating(MALA())):
        fixed: Any = kernel.tuned(model, generator=generator)
        inner = fixed.kernel if isinstance(fixed, Alternating) else fixed
        assert inner.warm_up == 0 and inner.schedule is not None
        assert inner.schedule[1][0] > 3 * inner.schedule[1][-1]
        assert fixed.tuned(model, generator=generator) is fixed
        x = model.reference().draw(200, generator=generator)
        for beta, size in ((0.0, inner.schedule[1][0]), (1.0, inner.schedule[1][-1])):
            state = fixed.init(model.annealed(beta), x, generator=generator)
            _, info = fixed.step(model.annealed(beta), state, generator=generator)
            assert float(info.size.mean()) == pytest.approx(
                size, rel=0.05 if isinstance(kernel, HMC) else 1e-5
            )
    # as told
    assert replace(MALA(), warm_up=0).tuned(model, generator=generator) == MALA(warm_up=0)


def test_nothing_is_computed_twice(generator: torch.Generator) -> None:
    """One forward pass for a step of MALA or Langevin, L for HMC, none for what the state already
    knows.
    """
    model, calls = Bent(), 0
    inner = model.free_energy

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return inner(x)

    model.free_energy = counted  # type: ignore[method-assign]
    x = model.reference().draw(10, generator=generator)
    samplers: list[tuple[Any, int]] = [(MALA(), 1), (HMC(leapfrogs=7), 7), (Langevin(), 1)]
    for sampler, passes in samplers:
        state = sampler.init(model, x, generator=generator)
        calls = 0
        for _ in range(5):
            state, _ = sampler.step(model, state, generator=generator)
        assert calls == 5 * passes
        if not isinstance(sampler, Langevin):
            energy, gradient = energy_and_gradient("test", model, state.x)
            torch.testing.assert_close(
                (state.energy, state.gradient), (energy, gradient), rtol=0, atol=0
            )


def test_the_state_is_a_value_that_can_be_saved(tmp_path: Any) -> None:
    model = latent()
    x = torch.zeros(6, 2, dtype=torch.float64)
    for sampler in (
        MALA(),
        HMC(leapfrogs=2),
        Alternating(),
        Langevin(),
        Tempering(MALA(), betas=(0.5, 1.0)),
    ):
        first, again, other = (
            moved(model, sampler, x, 4, torch.Generator().manual_seed(seed))[0]
            for seed in (1, 1, 2)
        )
        assert torch.equal(first.x, again.x) and not torch.equal(first.x, other.x)
        checkpoint.save_tree(tmp_path / "state.safetensors", {"state": first})
        loaded = checkpoint.rebuild(
            first, checkpoint.load_tree(tmp_path / "state.safetensors")["state"]
        )
        g = [torch.Generator().manual_seed(5) for _ in range(2)]
        assert torch.equal(
            sampler.step(model, first, generator=g[0])[0].x,
            sampler.step(model, loaded, generator=g[1])[0].x,
        )
        assert not first.x.requires_grad
    assert (x == 0).all()


class Strange(EnergyModel):
    """An energy that is wrong in a chosen way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.support, self.how = Real(2), how
        self.a = nn.Parameter(torch.ones(2))

    def free_energy(self, x: Tensor) -> Tensor:
        energies = {
            "nan": lambda: (x[..., 0] - 10).sqrt(),
            "shape": lambda: x.square(),
            "detached": lambda: x.detach().square().sum(-1),
            "steep": lambda: 1e6 * x.square().sum(-1),
            "nan nearby": lambda: (1e-9 - x.abs().amax(-1)).log(),
        }
        return energies[self.how]()

    def reference(self) -> GaussianReference:
        return GaussianReference(torch.zeros(2), torch.eye(2))

    def initialize(self, data: Any, *, generator: torch.Generator) -> None: ...

    def settings(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("sampler", [MALA(), HMC(), Langevin()], ids=lambda s: type(s).__name__)
def test_wrong_energies_are_named(sampler: Any, generator: torch.Generator) -> None:
    x, name = torch.zeros(4, 2), type(sampler).__name__
    with pytest.raises(
        Diverged,
        match=rf"{name}: the energy of Strange must be finite where chains begin; got nan in chain "
        r"0",
    ):
        sampler.init(Strange("nan"), x, generator=generator)
    with pytest.raises(
        InputError,
        match=rf"{name}: the free energy of Strange must have shape \(4,\), one number for each "
        r"row; got",
    ):
        sampler.init(Strange("shape"), x, generator=generator)
    with pytest.raises(
        InputError,
        match=rf"{name}: the free energy of Strange must be differentiable in x; got a value "
        r"without",
    ):
        sampler.init(Strange("detached"), x, generator=generator)


def test_a_step_size_that_explodes_is_named(generator: torch.Generator) -> None:
    """At once, where the first step downhill climbs beyond reason, or when the chains are gone."""
    words = (
        r"Langevin: chains on Strange must stay finite; got a first step downhill that "
        r"climbs by \S+ nats at step_size=0\.5\. Lower"
    )
    with pytest.raises(Diverged, match=words):
        run(Strange("steep"), Langevin(0.5), torch.ones(4, 2), draws=20, generator=generator)
    model = NeuralEnergy(MLP(2, 1, generator=generator), Real(2))
    words = (
        r"Langevin: chains on NeuralEnergy\(2\) must stay finite; got nan or infinity at "
        r"step_size=3\. Lower step_size, .* to 0\.3"
    )
    with pytest.raises(Diverged, match=words):
        run(model, Langevin(3.0), torch.ones(4, 2), draws=200, generator=generator)


def test_zero_acceptance_is_named(generator: torch.Generator) -> None:
    words = (
        r"at least one proposal in \d+ steps of 40 chains on Strange must be accepted; got "
        r"none at step size 0\.5"
    )
    with pytest.raises(
        Diverged, match=rf"MALA: {words}\. Lower step_size, or let warm_up=200 find it\."
    ):
        run(
            Strange("steep"),
            MALA(0.5, warm_up=0),
            torch.ones(40, 2),
            draws=200,
            generator=generator,
        )
    with pytest.raises(
        Diverged, match=rf"HMC: {words} \(100% of the last proposals had no finite energy\)"
    ):
        run(
            Strange("nan nearby"),
            HMC(0.5, warm_up=0, jitter=0.0),
            torch.zeros(40, 2),
            draws=200,
            generator=generator,
        )
    # the warm-up finds a step that works
    partita.sample(Strange("steep"), 40, sampler=MALA(0.5), burn_in=200, generator=generator)


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match=r"MALA: step_size must be a finite number above 0; got 0"):
        MALA(0)
    with pytest.raises(
        InputError, match=r"HMC: leapfrogs must be a whole number of at least 1; got 0"
    ):
        HMC(leapfrogs=0)
    with pytest.raises(InputError, match=r"HMC: jitter must lie in \[0, 0\.99\]; got 1"):
        HMC(jitter=1.0)
    with pytest.raises(InputError, match=r"HMC: acceptance must lie between 0 and 1; got 1"):
        HMC(acceptance=1)
    with pytest.raises(
        InputError, match=r"Alternating: kernel must be MALA\(\) or HMC\(\); got Gibbs"
    ):
        Alternating(Gibbs())  # type: ignore[arg-type]


def test_cells_that_cannot_work_say_why(generator: torch.Generator) -> None:
    binary, x = RBM(4, 3, generator=generator), torch.zeros(5, 4)
    for sampler in (MALA(), HMC(), Langevin()):
        with pytest.raises(
            Unsupported,
            match=r"cannot run on RBM\(4, 3\): its coordinates are not all real.*Use Gibbs instead",
        ):
            sampler.init(binary, x, generator=generator)
    neural = NeuralEnergy(MLP(2, 1, generator=generator), Real(2))
    with pytest.raises(
        Unsupported,
        match=r"Alternating cannot run on NeuralEnergy\(2\): it has no hidden units whose "
        r"conditional",
    ):
        Alternating().init(neural, torch.zeros(5, 2), generator=generator)


ANY = [
    MALA(),
    HMC(leapfrogs=3),
    Langevin(0.3),
    Tempering(MALA(), betas=(0.3, 1.0)),
    Alternating(),
    None,
]


@pytest.mark.parametrize("sampler", ANY, ids=str)
def test_cd_and_pcd_take_every_sampler(sampler: Any, generator: torch.Generator) -> None:
    """The mean of the chains follows the mean of the data: b of a latent energy must rise towards 2
    x the data's mean.
    """
    data = 0.5 * torch.randn(400, 2, generator=generator) + torch.tensor([1.0, -1.0])
    for objective in (CD(sampler, steps=2), PCD(sampler, chains=32, steps=2)):
        model = LatentEnergy(MLP(2, 3, generator=generator), 2, 4, 3, generator=generator)
        before = partita.evaluate(model, data, generator=generator).value
        partita.fit(
            model,
            data,
            objective,
            steps=60,
            learning_rate=0.02,
            initialize=False,
            generator=generator,
        )
        assert partita.evaluate(model, data, generator=generator).value > before + 0.3


def test_gaussian_machines_take_gradient_samplers_too(generator: torch.Generator) -> None:
    """The same marginal by Gibbs and by MALA: means of 4,000 chains, false-alarm rate below
    1e-5.
    """
    model = RBM(2, 3, visible_units="gaussian", scale=1.0, generator=generator).double()
    x = model.reference().draw(4000, generator=generator)
    by_gibbs, by_gradient = (
        run(model, s, x, draws=1, burn_in=200, generator=generator).x[:, 0]
        for s in (Gibbs(), MALA())
    )
    error = ((by_gibbs.var(0) + by_gradient.var(0)) / 4000).sqrt()
    assert ((by_gibbs.mean(0) - by_gradient.mean(0)).abs() < 5 * error).all()
