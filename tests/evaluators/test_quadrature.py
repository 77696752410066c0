"""Quadrature against closed forms, scipy and enumeration; and the annealing evaluators against
quadrature on real supports.
"""

import math
from typing import Any

import pytest
import torch
from scipy.integrate import dblquad
from torch import Tensor, nn

import partita
from partita.core import capability
from partita.core.protocols import Batch, EnergyModel
from partita.core.support import Real
from partita.errors import Diverged, InputError, Unsupported
from partita.evaluators import AIS, Bridge, Enumeration, Quadrature, ReverseAIS, Sandwich
from partita.evaluators.partition.bridge import ladder_quantity
from partita.evaluators.partition.ladders import Seen
from partita.evaluators.partition.reverse_ais import exact_draws
from partita.integration.quadrature import Box, cells, log_integral
from partita.models import RBM, LatentEnergy, NeuralEnergy
from partita.models.energy.units import GaussianReference
from partita.nets import MLP
from partita.objectives import ExactLikelihood
from partita.samplers import HMC, MALA, Alternating, Langevin
from partita.tables import as_rows


class Peaks(EnergyModel):
    """A mixture of normal densities of width s with weights w, so that Z is known: the sum of the
    weights.
    """

    def __init__(self, centers: Tensor, s: float, w: Tensor) -> None:
        super().__init__()
        self.support, self.s = Real(centers.shape[1]), s
        self.centers, self.w = nn.Parameter(centers.double()), nn.Parameter(w.double())
        self.register_anchors(centers.shape[1], self.centers)

    def free_energy(self, x: Tensor) -> Tensor:
        squares = (x[..., None, :] - self.centers).square().sum(-1) / (2 * self.s**2)
        return -torch.logsumexp(self.w.log() - squares, -1) + 0.5 * self.support.width * math.log(
            2 * math.pi * self.s**2
        )

    def reference(self) -> GaussianReference:
        return GaussianReference(
            self.centers.new_zeros(self.support.width),
            torch.eye(self.support.width, dtype=torch.float64),
        )

    def initialize(self, data: Any, *, generator: torch.Generator) -> None: ...

    def settings(self) -> dict[str, Any]:
        return {}


def peaks(width: int, s: float = 0.3, far: float = 2.0) -> Peaks:
    g = torch.Generator().manual_seed(width)
    return Peaks(far * torch.randn(4, width, generator=g), s, torch.tensor([1.0, 2.0, 0.5, 3.0]))


def latent(scale: float = 1.5, seed: int = 3) -> LatentEnergy:
    g = torch.Generator().manual_seed(seed)
    model = LatentEnergy(MLP(2, 6, widths=(8,), generator=g), 2, 5, 6, generator=g)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(scale)
    return model


def neural(scale: float = 2.0, seed: int = 4) -> NeuralEnergy:
    model = NeuralEnergy(
        MLP(2, 1, widths=(8,), generator=torch.Generator().manual_seed(seed)), Real(2)
    )
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(scale)
    return model


@pytest.mark.parametrize("width", [1, 2, 3])
def test_mixtures_have_the_sum_of_their_weights(width: int) -> None:
    for s, far in ((0.3, 2.0), (2.0, 1.0), (0.2, 6.0)):
        q = Quadrature()(peaks(width, s, far))
        assert (
            q.kind == "estimate" and q.verdict == "tight" and abs(q.value - math.log(6.5)) < 1e-6
        ), (s, far)
        assert q.details["error"] <= 1e-6 and q.low <= math.log(6.5) <= q.high and q.width < 1e-5


def test_scipy_integrates_the_same(generator: torch.Generator) -> None:
    model = neural().double()

    def density(u: float, v: float) -> float:
        return math.exp(-float(model(torch.tensor([u, v], dtype=torch.float64))))

    with torch.no_grad():
        z = dblquad(density, -7, 7, -7, 7, epsabs=1e-8, epsrel=1e-8)[0]
    assert abs(Quadrature()(model).value - math.log(z)) < 1e-7


@pytest.mark.parametrize("width", [1, 2, 3])
def test_enumeration_of_hidden_units_gives_the_same(width: int, generator: torch.Generator) -> None:
    model = RBM(width, 4, visible_units="gaussian", scale=1.5, generator=generator)
    assert abs(Quadrature()(model).value - Enumeration()(model).value) < 1e-9


def test_a_narrow_peak_at_a_remembered_row_is_not_missed() -> None:
    """Seven cells of the first grid apart from anything the reference draws, and far narrower than
    a cell.
    """
    model = Peaks(torch.tensor([[0.0, 0.0], [30.0, 17.0]]), 0.05, torch.tensor([1.0, 9.0]))
    model.anchors.copy_(model.centers.detach().repeat(64, 1))
    model.anchored.fill_(True)
    q = Quadrature()(model)
    assert abs(q.value - math.log(10.0)) < 1e-6 and q.verdict == "tight"


@pytest.mark.parametrize("s", [0.05, 1e-4])
@pytest.mark.parametrize(
    "center", [[300.0], [30.0, 17.0], [30.0, 17.0, -4.0]], ids=["1-D", "2-D", "3-D"]
)
def test_a_far_narrow_peak_is_found_downhill(center: list[float], s: float) -> None:
    """Nothing is known but a reference that never draws there; the boxes are halved around what is
    found.
    """
    q = Quadrature()(
        Peaks(torch.tensor([[0.0] * len(center), center]), s, torch.tensor([1.0, 9.0]))
    )
    assert abs(q.value - math.log(10.0)) < 1e-6
    # no training rows are known, but all of space was searched
    assert q.verdict == "tight" and q.details["unseen"] < 1e-3


def test_a_needle_in_a_wide_hill_is_resolved() -> None:
    class Needle(Peaks):
        def free_energy(self, x: Tensor) -> Tensor:
            squares = (x[..., None, :] - self.centers).square().sum(-1)
            wide, thin = (
                -squares[..., i] / (2 * s**2) - math.log(2 * math.pi * s**2)
                for i, s in enumerate((1.0, self.s))
            )
            return -torch.logaddexp(wide, math.log(9) + thin)

    model = Needle(torch.tensor([[0.0, 0.0], [2.3, 1.7]]), 0.01, torch.ones(2))
    model.anchors.copy_(model.centers.detach().repeat(64, 1))
    model.anchored.fill_(True)
    q = Quadrature()(model)
    assert abs(q.value - math.log(10.0)) < 1e-6 and q.verdict == "tight"


def test_what_does_not_converge_is_an_estimate_that_says_so() -> None:
    class Step(Peaks):
        def free_energy(self, x: Tensor) -> Tensor:
            return torch.where((x.square().sum(-1) < 1.7), 0.0, 50.0) + 0 * super().free_energy(x)

    q = Quadrature(tolerance=1e-9)(Step(torch.zeros(1, 2), 1.0, torch.ones(1)))
    assert (
        q.kind == "estimate"
        and q.low < math.log(math.pi * 1.7) < q.high
        and q.verdict in ("tight", "loose")
    )


def test_a_density_that_does_not_fall_off_is_named() -> None:
    class Flat(Peaks):
        def free_energy(self, x: Tensor) -> Tensor:
            return 0 * super().free_energy(x)

    with pytest.raises(
        Diverged,
        match=r"quadrature: exp\(-F\) must fall to exp\(-36\) of its top within a box around the "
        r"data; it does not within one of side .* If it falls like a power of the distance, use "
        r"Sandwich; else Z is infinite",
    ):
        Quadrature()(Flat(torch.zeros(1, 2), 1.0, torch.ones(1)))

    class NotANumber(Peaks):
        def free_energy(self, x: Tensor) -> Tensor:
            return super().free_energy(x) + (x[..., 0] - 3).sqrt()

    with pytest.raises(
        Diverged,
        match=r"quadrature: the free energy must be a number everywhere; got nan or minus infinity",
    ):
        Quadrature()(NotANumber(torch.zeros(1, 2), 1.0, torch.ones(1)))


def test_only_few_real_coordinates_are_integrated(generator: torch.Generator) -> None:
    wide = NeuralEnergy(MLP(4, 1, generator=generator), Real(4))
    with pytest.raises(
        Unsupported,
        match=r"Quadrature cannot run on NeuralEnergy\(4\): it does not live on at most 3 real "
        r"coordinates",
    ):
        Quadrature()(wide)
    with pytest.raises(Unsupported, match=r"Quadrature cannot run on RBM\(2, 3\)"):
        Quadrature()(RBM(2, 3, generator=generator))
    with pytest.raises(
        InputError, match=r"Quadrature: tolerance must be a finite number above 0; got 0"
    ):
        Quadrature(0)


def test_defaults_integrate_in_the_plane_and_sampled_beyond(generator: torch.Generator) -> None:
    plane, wide = neural(), NeuralEnergy(MLP(4, 1, generator=generator), Real(4))
    space = NeuralEnergy(MLP(3, 1, generator=generator), Real(3))
    assert isinstance(capability.default("partition", plane), Quadrature) and isinstance(
        capability.default("partition", space), Quadrature
    )
    assert isinstance(capability.default("partition", wide), Sandwich)
    assert isinstance(capability.default("objective", plane), ExactLikelihood)
    assert not isinstance(capability.default("objective", space), ExactLikelihood)
    assert capability.default("sampler", wide) == MALA()
    q = partita.evaluate(plane, torch.zeros(3, 2), generator=generator)
    assert q.kind == "estimate" and q.verdict == "tight" and q.width < 1e-5
    torch.testing.assert_close(
        q.value,
        float(-plane.double()(torch.zeros(1, 2).double()).detach()) - Quadrature()(plane).value,
    )


def test_a_shifted_grid_is_unbiased_and_differentiable() -> None:
    """Averaged over shifts a coarse sum is the integral; its gradient is that of a fine one."""
    model = peaks(2)
    box = Box(
        torch.full((2,), -9.0, dtype=torch.float64), torch.full((2,), 9.0, dtype=torch.float64)
    )
    shifts = torch.cat(list(cells(Box(torch.zeros(2).double(), torch.ones(2).double()), 8)))
    with torch.no_grad():
        sums = torch.stack([log_integral(model, box, 24, shift) for shift in shifts])
    assert float(sums.std()) > 0.01  # coarse enough to differ
    assert abs(float(torch.logsumexp(sums, 0)) - math.log(64) - math.log(6.5)) < 1e-9
    gradients = [torch.autograd.grad(log_integral(model, box, n), model.w)[0] for n in (200, 400)]
    torch.testing.assert_close(
        gradients[1], torch.full((4,), 1 / 6.5, dtype=torch.float64), rtol=1e-9, atol=0
    )
    # 400 x 400 points go through the checkpoint
    torch.testing.assert_close(gradients[0], gradients[1])


# of the intervals below, so that a false alarm of one cell has about this probability
LEVEL = 1 - 1e-4
CELLS = {
    "AIS": AIS(temperatures=150, chains=80, level=LEVEL, adaptive=False),
    "AIS, HMC": AIS(
        temperatures=80, chains=80, kernel=HMC(leapfrogs=3), level=LEVEL, adaptive=False
    ),
    "reverse AIS": ReverseAIS(temperatures=150, chains=80, level=LEVEL, adaptive=False),
    "sandwich": Sandwich(temperatures=120, chains=80, level=LEVEL, adaptive=False),
    "sandwich, HMC": Sandwich(
        temperatures=60, chains=80, kernel=HMC(leapfrogs=3), level=LEVEL, adaptive=False
    ),
    "bridge": Bridge(temperatures=12, chains=24, draws=80, burn_in=60, level=LEVEL),
}
MODELS = {
    "latent": latent,
    "neural": neural,
    "gaussian RBM": lambda: RBM(
        2, 5, visible_units="gaussian", scale=0.8, generator=torch.Generator().manual_seed(1)
    ),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cell", CELLS)
def test_every_evaluator_covers_the_quadrature_or_says_not_to_trust_it(
    cell: str, model: str, generator: torch.Generator
) -> None:
    made = MODELS[model]()
    truth, q = Quadrature()(made), CELLS[cell](made, generator=generator)
    assert truth.verdict == "tight" and truth.width < 1e-5
    assert q.low <= truth.value <= q.high or not q.trusted
    assert q.trusted  # these models are easy
    assert q.width < 0.8


def steep(seed: int) -> LatentEnergy:
    """Valleys hundreds of nats deep and far from the reference, between which no chain passes."""
    g = torch.Generator().manual_seed(seed)
    model = LatentEnergy(MLP(2, 6, widths=(8,), generator=g), 2, 5, 6, generator=g)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3)
        model.W.normal_(generator=g).mul_(3)
        model.c.normal_(generator=g).mul_(3)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["AIS", "reverse AIS", "sandwich", "bridge"])
def test_what_misses_a_deep_valley_says_not_to_trust_it(
    cell: str, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two such models, at the level of the cells above; on both the bridge was many nats off at the
    first attempt. Ways down and ladders are shorter than usual, which makes none of them surer.
    """
    monkeypatch.setattr("partita.evaluators.partition.annealing.MOST_TEMPERATURES", 1000)
    monkeypatch.setattr("partita.evaluators.partition.replicas.MOST", 40_000)
    for seed in (0, 4):
        truth, q = Quadrature()(steep(seed)), CELLS[cell](steep(seed), generator=generator)
        assert truth.verdict == "tight" and truth.width < 1e-5
        assert not q.trusted or q.low <= truth.value <= q.high, seed


def test_a_ladder_that_has_not_settled_is_not_trusted() -> None:
    """Each sign alone: a drift between the halves, a rung that has not mixed, an error of more than
    a nat.
    """
    g = torch.Generator().manual_seed(0)
    calm = torch.randn(3, 16, 200, generator=g).double() * 0.1
    traveled, kinds = torch.ones(4, 16, dtype=torch.long), torch.zeros(1, 16, dtype=torch.bool)
    seen = Seen(
        calm,
        -calm,
        torch.randn(4, 16, 200, generator=g).double(),
        traveled,
        kinds,
        torch.zeros(1, 16, 2),
    )
    assert ladder_quantity(seen, 0.0, 0.95).verdict == "tight"
    drifting = torch.cat([calm[..., :100], calm[..., 100:] + 0.2], -1)
    assert (
        ladder_quantity(seen._replace(up=drifting, down=-drifting), 0.0, 0.95).verdict
        == "do not publish"
    )
    apart = seen.energies.clone()
    apart[1] += 2 * torch.randn(16, 1, generator=g).double()  # a rung below the top
    assert ladder_quantity(seen._replace(energies=apart), 0.0, 0.95).verdict == "do not publish"
    wide = calm + 8 * torch.randn(1, 16, 1, generator=g).double()
    q = ladder_quantity(seen._replace(up=wide, down=-wide), 0.0, 0.95)
    assert q.details["se"] > 1 and q.verdict == "do not publish"


def test_gibbs_in_h_anneals_as_well(generator: torch.Generator) -> None:
    model = latent()
    q = Sandwich(temperatures=120, chains=80, kernel=Alternating(MALA()), level=LEVEL)(
        model, generator=generator
    )
    assert q.low <= Quadrature()(model).value <= q.high and q.trusted


def test_kernels_that_would_bias_the_weights_are_refused(generator: torch.Generator) -> None:
    for evaluator in (
        AIS(kernel=Langevin()),
        Sandwich(kernel=Langevin()),
        Bridge(kernel=Langevin()),
    ):
        with pytest.raises(
            Unsupported,
            match=r"needs a kernel that leaves its target invariant, and Langevin does not\. Use "
            r"MALA\(\)",
        ):
            evaluator(latent(), generator=generator)


def test_a_bridge_between_two_models_gives_the_difference_of_their_log_z(
    generator: torch.Generator,
) -> None:
    """False-alarm rate 1e-4 each: two real models of different families, and two binary
    machines.
    """
    bridge = Bridge(temperatures=10, chains=24, draws=80, burn_in=60, level=LEVEL)
    a, b = latent(), neural()
    q = bridge.ratio(a, b, generator=generator)
    assert (
        q.low <= Quadrature()(a).value - Quadrature()(b).value <= q.high
        and q.trusted
        and q.width < 0.5
    )
    c, d = (RBM(8, 4, scale=scale, generator=generator) for scale in (0.5, 1.0))
    q = bridge.ratio(c, d, generator=generator)
    assert q.low <= Enumeration()(c).value - Enumeration()(d).value <= q.high and q.trusted
    with pytest.raises(
        InputError,
        match=r"Bridge\.ratio: both models must live on one support; got Real\(D=2\) and "
        r"Binary\(D=8\)\.",
    ):
        bridge.ratio(a, c, generator=generator)


def test_exact_draws_of_float32_models_are_weighed_in_float64(generator: torch.Generator) -> None:
    """Energies near 2e7 differ by less than float32 resolves; the frequencies still come out,
    false-alarm rate 1e-6.
    """
    model = RBM(2, 1, generator=generator)
    with torch.no_grad():
        model.W.zero_()
        model.c.fill_(2e7)
        model.b.copy_(torch.tensor([1.0, -1.0]))
    x = exact_draws(model, 20_000, generator=generator)
    assert x.dtype is torch.float32
    p = torch.sigmoid(model.b.detach())
    assert ((x.mean(0) - p).abs() < 5 * (p * (1 - p) / 20_000).sqrt()).all()


def test_exact_likelihood_is_deterministic_except_on_networks(generator: torch.Generator) -> None:
    """The grid of a network is shifted at random, so L-BFGS refuses it; a wide Gaussian machine
    keeps its grid, and L-BFGS serves.
    """
    x = torch.randn(50, 2, generator=generator)
    objective = ExactLikelihood()
    machine = RBM(2, 24, visible_units="gaussian", generator=generator)
    for model, same in ((machine, True), (neural(), False)):
        state = objective.init(model, as_rows(x), generator=generator)
        a, b = (
            objective.losses(model, Batch(x), state, generator=generator)[0]["model"].item()
            for _ in range(2)
        )
        assert (a == b) is same is objective.deterministic_on(model)
    words = (
        r"fit: optimizer='lbfgs' must go with .* not random; got ExactLikelihood, random on "
        r"NeuralEnergy\(2\),"
    )
    with pytest.raises(InputError, match=words):
        partita.fit(neural(), x, objective, optimizer="lbfgs", generator=generator)
    assert (
        partita.fit(machine, x, objective, steps=2, generator=generator).config["fit"]["optimizer"]
        == "lbfgs"
    )


def test_exact_likelihood_learns_in_the_plane(generator: torch.Generator) -> None:
    """Two clusters: within 0.15 nats of the likelihood that the data's own density gives them."""
    sign = torch.randint(2, (2000, 1), generator=generator) * 2.0 - 1
    data = sign * torch.tensor([1.0, 0.4]) + 0.3 * torch.randn(2000, 2, generator=generator)
    squares = ((data[:, None] - torch.tensor([[1.0, 0.4], [-1.0, -0.4]])) / 0.3).square().sum(-1)
    best = float((torch.logsumexp(-0.5 * squares, -1) - math.log(4 * math.pi * 0.09)).mean())
    model = NeuralEnergy(MLP(2, 1, widths=(32, 32), gain=2.4, generator=generator), Real(2))
    run = partita.fit(model, data, steps=200, learning_rate=0.02, generator=generator)
    assert run.config["objective"]["part"] == "ExactLikelihood"
    q = partita.evaluate(model, data, generator=generator)
    assert q.trusted and best - 0.15 < q.value < best + 0.1
