"""Ising, Boltzmann and Potts models against energies written with loops and sums over all states,
in float64.
"""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch import Tensor

from partita.core.enumeration import log_partition
from partita.core.registry import model_named
from partita.errors import InputError
from partita.models import Boltzmann, Ising, Potts, complete, lattice, torus
from partita.models.energy import graphs
from partita.models.energy.graphs import Graph
from partita.models.energy.kaufman import CRITICAL_COUPLING, torus_energy, torus_log_z
from partita.models.energy.pairwise import PairwiseModel
from partita.models.energy.potts import contact_scores, zero_sum
from partita.tables import as_rows

SOME_EDGES = [[0, 2], [3, 1], [0, 1]]
MAKERS = {
    "ising": lambda g: Ising(4, generator=g),
    "ising on a graph": lambda g: Ising(4, edges=SOME_EDGES, generator=g),
    "boltzmann": lambda g: Boltzmann(4, generator=g),
    "boltzmann with hidden units": lambda g: Boltzmann(4, 3, generator=g),
    "boltzmann on a graph": lambda g: Boltzmann(4, 2, edges=SOME_EDGES, generator=g),
    "potts": lambda g: Potts(4, 3, generator=g),
    "potts on a graph": lambda g: Potts(4, 3, edges=SOME_EDGES, generator=g),
}
EVERY = pytest.mark.parametrize("name", MAKERS)
BETAS = [None, 0.0, 0.35, 1.0]


def make(name: str, scale: float = 0.7) -> PairwiseModel:
    """A model whose every parameter, and whose reference, is away from zero."""
    g = torch.Generator().manual_seed(5)
    model = MAKERS[name](g).double()
    with torch.no_grad():
        for p in [*model.parameters(), model.reference_logits]:
            p.copy_(scale * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def states(model: PairwiseModel) -> np.ndarray:
    return np.array(list(product(model.support.values().tolist(), repeat=4)))


def joint_exponent(model: PairwiseModel, x: np.ndarray, h: tuple[float, ...], beta: float) -> float:
    """-E(x, h) at beta, term by term."""
    P = {name: p.detach().numpy() for name, p in model.named_parameters()}
    place = {v: k for k, v in enumerate(model.support.values().tolist())}
    total = (1 - beta) * sum(model.reference_logits[i, place[x[i]]].item() for i in range(4))
    for i in range(4):
        bias = (
            P["h"][i, int(x[i])]
            if isinstance(model, Potts)
            else P["h" if isinstance(model, Ising) else "b"][i] * x[i]
        )
        total += beta * bias
    for e, (i, j) in enumerate(model.graph.edges.tolist()):
        total += beta * (
            P["J"][e, int(x[i]), int(x[j])] if isinstance(model, Potts) else P["J"][e] * x[i] * x[j]
        )
    pair = 0
    for a in range(len(h)):
        total += beta * h[a] * (P["c"][a] + sum(P["W"][i, a] * x[i] for i in range(4)))
        for b in range(a + 1, len(h)):
            total += beta * P["L"][pair] * h[a] * h[b]
            pair += 1
    return total


def exponent(model: PairwiseModel, x: np.ndarray, beta: float = 1.0) -> float:
    return float(
        logsumexp(
            [
                joint_exponent(model, x, h, beta)
                for h in product([0.0, 1.0], repeat=getattr(model, "hidden", 0))
            ]
        )
    )  # type: ignore[arg-type]


def tensor(x: np.ndarray) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


@EVERY
@pytest.mark.parametrize("beta", BETAS)
def test_free_energy_along_the_path(name: str, beta: float | None) -> None:
    model = make(name)
    expected = [-exponent(model, x, 1.0 if beta is None else beta) for x in states(model)]
    at = model if beta is None else model.annealed(beta)
    np.testing.assert_allclose(at.free_energy(tensor(states(model))).detach(), expected, atol=1e-12)


@EVERY
def test_all_temperatures_at_once_and_a_temperature_for_each_row(name: str) -> None:
    model, betas = make(name), torch.tensor([0.0, 0.35, 1.0], dtype=torch.float64)
    x = states(model)[:6]
    expected = np.array([[-exponent(model, row, b) for row in x] for b in betas.tolist()])
    np.testing.assert_allclose(model.free_energies(tensor(x), betas).detach(), expected, atol=1e-12)
    rows = tensor(x)[:3]
    np.testing.assert_allclose(
        model.annealed(betas).free_energy(rows).detach(), expected[[0, 1, 2], [0, 1, 2]], atol=1e-12
    )


@EVERY
@pytest.mark.parametrize("beta", BETAS)
def test_site_conditionals(name: str, beta: float | None) -> None:
    """All sites in one product, and one site at a time, against ratios of energies."""
    model, values = make(name), make(name).support.values().double()
    x = states(model)[::3]
    expected = np.empty((len(x), 4, len(values)))
    for row, i, k in np.ndindex(*expected.shape):
        changed = x[row].copy()
        changed[i] = values[k].item()
        expected[row, i, k] = exponent(model, changed, 1.0 if beta is None else beta)
    expected = torch.tensor(expected).softmax(-1)
    at = model if beta is None else model.annealed(beta)
    torch.testing.assert_close(
        at.conditional_logits(tensor(x)).softmax(-1).detach(), expected, atol=1e-12, rtol=0
    )
    for i in range(4):
        torch.testing.assert_close(
            (-at.site_energies(tensor(x), i, values)).softmax(0).mT.detach(),
            expected[:, i],
            atol=1e-12,
            rtol=0,
        )


@EVERY
@torch.no_grad()
def test_reference_and_log_z(name: str) -> None:
    model = make(name)
    start = model.annealed(0.0)
    assert float(log_partition(start.sides()[0], model.like)) == pytest.approx(
        float(model.reference().log_z), abs=1e-12
    )
    expected = logsumexp([exponent(model, x) for x in states(model)])
    assert float(log_partition(model.sides()[0], model.like)) == pytest.approx(expected, abs=1e-12)
    draws = model.reference().draw(7, generator=torch.Generator().manual_seed(0))
    model.support.check(draws, "test")


@EVERY
def test_initialize_makes_the_reference_and_the_model_without_couplings_agree_with_base_rates(
    name: str,
) -> None:
    g = torch.Generator().manual_seed(1)
    model = MAKERS[name](g).double()
    values = model.support.values()
    x = values[torch.randint(len(values), (400, 4), generator=g)].double()
    x[:, 0] = values[0]  # never the others: half a count keeps them possible
    model.initialize(as_rows(x), generator=g)
    expected = torch.stack([(x == v).double().sum(0) for v in values], -1) + 0.5
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(torch.softmax(model.reference_logits, -1), expected)
    if not getattr(model, "hidden", 0):
        torch.testing.assert_close(
            torch.softmax(model.conditional_logits(x[:1]), -1)[0].detach(), expected
        )
    assert model.anchor_rows(3) is not None


@EVERY
def test_a_saved_model_is_built_again(name: str) -> None:
    model = make(name)
    again = (
        model_named(type(model).__name__)
        .from_settings(model.settings(), generator=torch.Generator())
        .double()
    )
    again.load_state_dict(model.state_dict())
    x = tensor(states(model))
    assert torch.equal(again(x), model(x))
    assert again.title() == model.title()


def test_joint_energy_and_posterior_of_a_boltzmann_machine() -> None:
    model = make("boltzmann with hidden units")
    assert isinstance(model, Boltzmann)
    hidden = np.array(list(product([0.0, 1.0], repeat=3)))
    for x in states(model)[[0, 5, 11]]:
        expected = np.array([-joint_exponent(model, x, tuple(h), 1.0) for h in hidden])
        np.testing.assert_allclose(
            model.energy(tensor(x).expand(8, -1), tensor(hidden)).detach(), expected, atol=1e-12
        )
        posterior = np.exp(-expected) / np.exp(-expected).sum()
        np.testing.assert_allclose(
            model.hidden_given_visible_probs(tensor(x)).detach(), posterior, atol=1e-12
        )


@pytest.mark.parametrize("name", ["ising on a graph", "boltzmann on a graph"])
def test_sparse_couplings_give_what_dense_ones_give(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = make(name), tensor(states(make(name)))
    dense = model(x), model.conditional_logits(x)
    monkeypatch.setattr(graphs, "DENSE_SITES", 0)
    monkeypatch.setattr(Graph, "dense", property(lambda self: False))
    torch.testing.assert_close(model(x), dense[0])
    torch.testing.assert_close(model.conditional_logits(x), dense[1])


def test_cautions_name_pairs_that_never_occur() -> None:
    g = torch.Generator().manual_seed(2)
    x = torch.randint(2, (300, 4), generator=g).double()
    assert Boltzmann(4, generator=g).data_warnings(as_rows(x), generator=g) == []
    assert Ising(4, generator=g).data_warnings(as_rows(2 * x - 1), generator=g) == []
    x[:, 3] = x[:, 3] * (1 - x[:, 1])  # units 1 and 3 are never on together
    for model, rows in (
        (Boltzmann(4, generator=g), x),
        (Ising(4, generator=g), 2 * x - 1),
        (Potts(4, 2, generator=g), x),
    ):
        (text,) = model.data_warnings(as_rows(rows), generator=g)
        assert text.startswith(
            "1 of 6 pairs of columns never show some pair of values (the first is columns 1 and 3)"
        )
        other = (
            Potts(4, 2, edges=[[0, 1]], generator=g)
            if isinstance(model, Potts)
            else type(model)(4, edges=[[0, 1]], generator=g)
        )
        assert other.data_warnings(as_rows(rows), generator=g) == []
    assert Boltzmann(4, 2, generator=g).data_warnings(as_rows(x), generator=g) == []


def test_graphs() -> None:
    assert complete(3).tolist() == [[0, 1], [0, 2], [1, 2]]
    assert len(torus(5, 6)) == 60 and len(lattice(5, 6)) == 4 * 6 + 5 * 5
    assert len(torus(2, 2)) == 4  # opposite sides of a pair are one bond
    for edges, sites, least in (
        (torus(4, 6), 24, 2),
        (torus(3, 3), 9, 3),
        (lattice(3, 4, 2), 24, 2),
        (complete(5), 5, 5),
    ):
        graph = Graph(sites, edges)
        color = torch.empty(sites, dtype=torch.long)
        for c, members in enumerate(graph.colors):
            color[members] = c
        assert sorted(torch.cat(graph.colors).tolist()) == list(range(sites))
        assert (color[edges[:, 0]] != color[edges[:, 1]]).all()
        assert len(graph.colors) >= least
    assert len(Graph(24, torus(4, 6)).colors) == 2
    alone = Graph(3, torch.empty(0, 2, dtype=torch.long))
    assert len(alone.colors) == 1 and alone.starts.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda g: Ising(0, generator=g),
            r"Ising: visible must be a whole number of at least 1; got 0\.",
        ),
        (
            lambda g: Ising(3, edges=[[0, 3]], generator=g),
            r"Ising: edges must join two different sites of 0 to 2; got \[0, 3\]\.",
        ),
        (
            lambda g: Ising(3, edges=[[0, 1], [1, 0]], generator=g),
            r"Ising: edges must name every pair once; got a pair twice",
        ),
        (
            lambda g: Ising(3, edges=torch.tensor([0, 1]), generator=g),
            r"Ising: edges must be pairs of site numbers, \(E, 2\)",
        ),
        (
            lambda g: Potts(3, 1, generator=g),
            r"Potts: states must be a whole number of at least 2; got 1\.",
        ),
        (
            lambda g: Boltzmann(3, 13, generator=g),
            r"Boltzmann: hidden must be at most 12.*Use an RBM",
        ),
        (
            lambda g: Ising(3, generator=g)(torch.ones(2, 4)),
            r"Ising\.free_energy: x must have shape \(\*, 3\) to match Ising\(3\)",
        ),
        (
            lambda g: torus_log_z(4, 2, 0.3),
            r"torus_log_z: n must be a whole number of at least 3; got 2\.",
        ),
        (
            lambda g: torus_log_z(4, 4, -0.3),
            r"torus_log_z: coupling must be a finite number above 0; got -0\.3",
        ),
    ],
)
def test_bad_settings(call: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        call(torch.Generator())  # type: ignore[operator]


@pytest.mark.parametrize("sides", [(4, 4), (3, 5), (5, 3)], ids=str)
@pytest.mark.parametrize("coupling", [0.15, CRITICAL_COUPLING, 0.7])
def test_kaufman_against_enumeration(sides: tuple[int, int], coupling: float) -> None:
    """log Z and the mean energy of small tori."""
    model = Ising(sides[0] * sides[1], edges=torus(*sides), generator=torch.Generator()).double()
    torch.nn.init.constant_(model.J, coupling)
    x = model.support.states(0, 2 ** (sides[0] * sides[1]), model.J.detach())
    F = model(x).detach()
    log_z = torch.logsumexp(-F, 0)
    assert float(torus_log_z(*sides, coupling)) == pytest.approx(float(log_z), abs=1e-10)
    assert torus_energy(*sides, coupling) == pytest.approx(
        float((torch.exp(-F - log_z) * F).sum()), abs=1e-8
    )


def test_zero_sum_gauge_leaves_the_distribution_and_empties_the_margins() -> None:
    model = make("potts")
    gauged = make("potts")
    assert isinstance(model, Potts) and isinstance(gauged, Potts)
    with torch.no_grad():
        gauged.J.copy_(zero_sum(model.J))
        # what the couplings lose the fields gain
        for e, (i, j) in enumerate(model.graph.edges.tolist()):
            gauged.h[i] += model.J[e].mean(1)
            gauged.h[j] += model.J[e].mean(0)
    x = tensor(states(model))
    torch.testing.assert_close(
        torch.softmax(-gauged(x), 0), torch.softmax(-model(x), 0), atol=1e-12, rtol=0
    )
    assert (
        zero_sum(model.J).mean(-1).abs().max() < 1e-12
        and zero_sum(model.J).mean(-2).abs().max() < 1e-12
    )
    assert (zero_sum(model.J).norm(dim=(1, 2)) < model.J.norm(dim=(1, 2))).all()


def test_contact_scores_find_the_coupled_pair_and_ignore_the_gap() -> None:
    g = torch.Generator().manual_seed(0)
    model = Potts(6, 4, generator=g)
    with torch.no_grad():
        model.J.normal_(0, 0.05, generator=g)
        e = model.graph.edges.tolist().index([1, 4])
        model.J[e] += 2 * torch.eye(4)
        gap = model.graph.edges.tolist().index([0, 5])
        model.J[gap, 0, 0] += 9.0
    assert divmod(int(contact_scores(model).argmax()), 6) == (0, 5)
    zeroed = contact_scores(model, skip=[0])
    assert torch.equal(zeroed, zeroed.mT)
    norms = zero_sum(model.J.detach())[:, 1:, 1:].flatten(1).norm(dim=1)
    matrix = torch.zeros(6, 6)
    matrix[tuple(model.graph.edges.T)] = norms
    matrix = matrix + matrix.T
    mean = matrix.sum(0) / 5
    expected = matrix - torch.outer(mean, mean) / (matrix.sum() / 30)
    torch.testing.assert_close(zeroed, expected.fill_diagonal_(0))
