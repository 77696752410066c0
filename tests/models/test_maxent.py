"""Maximum-entropy models against sums written out over all states, with and without hidden
variables, in float64.
"""

import math
from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import chi2
from torch import Tensor, nn

from partita.core.enumeration import log_partition
from partita.core.support import Binary, Categorical, Count, Product, Real, Spin, Support
from partita.errors import InputError, RunError, Unsupported
from partita.models import MaxEnt
from partita.models.energy import Independent, KPairwise, Pairwise
from partita.objectives import negative_phase, positive_phase
from partita.tables import as_rows

FALSE_ALARM = 1e-4  # of the chi-squared test, at its fixed seed


class Neighbors(nn.Module):
    """x_i x_(i+1) with a weight of its own, to see that a module's parameters are the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x[..., :-1] * x[..., 1:]


def parity(x: Tensor) -> Tensor:
    return torch.cos(math.pi * x.sum(-1))


# a model's features, and the same written for one row as a NumPy vector
VISIBLE: list[tuple[str, Any, Support, tuple[float, ...], Callable[[np.ndarray], list[float]]]] = [
    (
        "function",
        lambda x: torch.stack([x[..., 0] * x[..., 2], x.sum(-1) ** 2], -1),
        Binary(3),
        (0, 1),
        lambda x: [x[0] * x[2], x.sum() ** 2],
    ),
    ("one number", parity, Binary(3), (0, 1), lambda x: [math.cos(math.pi * x.sum())]),
    ("module", Neighbors(), Spin(3), (-1, 1), lambda x: [2 * x[0] * x[1], 2 * x[1] * x[2]]),
    (
        "list",
        [parity, Neighbors(), lambda x: x],
        Spin(3),
        (-1, 1),
        lambda x: [math.cos(math.pi * x.sum()), 2 * x[0] * x[1], 2 * x[1] * x[2], *x],
    ),
    (
        "categorical",
        lambda x: torch.stack([x[..., 0], (x[..., 1] == 2).to(x.dtype)], -1),
        Categorical(2, 3),
        (0, 1, 2),
        lambda x: [x[0], float(x[1] == 2)],
    ),
    ("independent", "independent", Binary(4), (0, 1), lambda x: [*x]),
    (
        "pairwise",
        "pairwise",
        Binary(4),
        (0, 1),
        lambda x: [*x, *(x[i] * x[j] for i, j in combinations(range(4), 2))],
    ),
    (
        "k-pairwise",
        "k-pairwise",
        Binary(3),
        (0, 1),
        lambda x: [
            *x,
            *(x[i] * x[j] for i, j in combinations(range(3), 2)),
            *(float(x.sum() == k) for k in range(4)),
        ],
    ),
]
CASES = pytest.mark.parametrize(
    ("features", "support", "values", "by_hand"),
    [c[1:] for c in VISIBLE],
    ids=[c[0] for c in VISIBLE],
)


def randomized(model: MaxEnt, seed: int = 5) -> MaxEnt:
    g = torch.Generator().manual_seed(seed)
    model = model.double()
    with torch.no_grad():
        model.theta.copy_(0.8 * torch.randn(model.theta.shape, generator=g, dtype=torch.float64))
        model.reference_logits.copy_(
            torch.randn(model.reference_logits.shape, generator=g, dtype=torch.float64)
        )
    return model


def build(features: Any, support: Support, **more: Any) -> MaxEnt:
    return randomized(MaxEnt(features, support, generator=torch.Generator().manual_seed(0), **more))


def states(values: tuple[float, ...], width: int) -> np.ndarray:
    return np.array(list(product(values, repeat=width)), dtype=float)


@CASES
def test_free_energy_is_minus_theta_phi(
    features: Any, support: Support, values: tuple, by_hand: Callable
) -> None:
    model, x = build(features, support), states(values, support.width)
    phi = np.array([by_hand(row) for row in x])
    assert model.theta.shape == (phi.shape[1],)
    np.testing.assert_allclose(
        model(torch.tensor(x)).detach().numpy(), -phi @ model.theta.detach().numpy(), atol=1e-12
    )
    np.testing.assert_allclose(
        model.expected_features(torch.tensor(x)).detach().numpy(), phi, atol=1e-12
    )


@CASES
def test_the_gradient_is_a_difference_of_moments(
    features: Any, support: Support, values: tuple, by_hand: Callable
) -> None:
    model, x = build(features, support), states(values, support.width)
    phi = np.array([by_hand(row) for row in x])
    p = np.exp(phi @ model.theta.detach().numpy())
    p /= p.sum()
    data = np.random.default_rng(1).integers(0, len(x), 11)
    positive = positive_phase(model, torch.tensor(x[data]))
    negative = negative_phase(model, exact=True)
    np.testing.assert_allclose(positive["theta"].numpy(), phi[data].mean(0), atol=1e-12)
    np.testing.assert_allclose(negative["theta"].numpy(), p @ phi, atol=1e-12)


@CASES
@pytest.mark.parametrize("beta", [0.0, 0.35, 1.0])
def test_annealing_mixes_the_energies(
    features: Any, support: Support, values: tuple, by_hand: Callable, beta: float
) -> None:
    model, x = build(features, support), states(values, support.width)
    phi = np.array([by_hand(row) for row in x])
    logits = model.reference_logits.numpy()
    start = -np.array([sum(logits[i, values.index(v)] for i, v in enumerate(row)) for row in x])
    expected = (1 - beta) * start - beta * phi @ model.theta.detach().numpy()
    np.testing.assert_allclose(
        model.annealed(beta).free_energy(torch.tensor(x)).detach().numpy(), expected, atol=1e-12
    )
    twice = model.annealed(0.5).annealed(beta).free_energy(torch.tensor(x))
    np.testing.assert_allclose(
        twice.detach().numpy(),
        (1 - beta / 2) * start - beta / 2 * phi @ model.theta.detach().numpy(),
        atol=1e-12,
    )
    together = model.free_energies(torch.tensor(x), torch.tensor([beta, 1.0], dtype=torch.float64))
    np.testing.assert_allclose(together[0].detach().numpy(), expected, atol=1e-12)
    assert float(model.reference().log_z) == pytest.approx(logsumexp(-start), abs=1e-12)


@CASES
def test_log_partition_is_the_sum_over_states(
    features: Any, support: Support, values: tuple, by_hand: Callable
) -> None:
    model, x = build(features, support), states(values, support.width)
    expected = logsumexp([np.dot(by_hand(row), model.theta.detach().numpy()) for row in x])
    (side,) = model.sides()
    assert log_partition(side, model.theta).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("make", [Independent, Pairwise, KPairwise])
@pytest.mark.parametrize("shape", [(), (6,), (2, 5)])
def test_a_named_feature_module_multiplies_as_it_lists(
    make: type[nn.Module], shape: tuple[int, ...]
) -> None:
    g = torch.Generator().manual_seed(6)
    features = make(4)
    x = torch.randint(0, 2, (*shape, 4), generator=g).double()
    phi = features(x)
    theta = torch.randn(phi.shape[-1], generator=g, dtype=torch.float64)
    if hasattr(features, "dot"):
        torch.testing.assert_close(features.dot(x, theta), phi @ theta, atol=1e-12, rtol=0)
    else:
        assert torch.equal(phi, x)


@pytest.mark.parametrize("make", [Independent, Pairwise, KPairwise])
def test_a_named_feature_module_starts_at_independence(make: type[nn.Module]) -> None:
    """The first theta makes the model the product of its base rates."""
    mean = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    features, x = make(3), torch.tensor(states((0, 1), 3))
    p = torch.softmax(features(x) @ features.start(mean), 0)
    expected = (x * mean + (1 - x) * (1 - mean)).prod(1)
    torch.testing.assert_close(p, expected, atol=1e-12, rtol=0)


def test_base_rates_make_the_reference(generator: torch.Generator) -> None:
    data = np.array([[0, 1, 2], [0, 1, 1], [0, 2, 1], [0, 1, 0], [0, 1, 0]], dtype=float)
    model = MaxEnt(lambda x: x, Categorical(3, 3), generator=generator).double()
    model.initialize(as_rows(data, [1, 1, 1, 1, 2.0]), generator=generator)
    count = np.array(
        [[(data[:, d] == k) @ np.array([1, 1, 1, 1, 2.0]) for k in range(3)] for d in range(3)]
    )
    # weights are scaled to five rows; half a count for each value
    expected = (count / 6 * 5 + 0.5) / 6.5
    # normalized, so that log Z is zero
    np.testing.assert_allclose(model.reference_logits.exp().numpy(), expected, atol=1e-12)
    assert (model.theta == 0).all()


def test_named_features_on_binary_data_start_at_the_base_rates(generator: torch.Generator) -> None:
    model = MaxEnt("pairwise", Binary(2), generator=generator).double()
    model.initialize(as_rows(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])), generator=generator)
    rates = np.array([3.5, 1.5]) / 4
    np.testing.assert_allclose(
        model.theta.detach().numpy(), [*np.log(rates / (1 - rates)), 0.0], atol=1e-12
    )


def test_the_reference_draws_from_itself(generator: torch.Generator) -> None:
    model, n = build(lambda x: x, Categorical(2, 3)), 20_000
    x = model.reference().draw(n, generator=generator)
    p = torch.softmax(model.reference_logits, -1)
    joint = (p[0][:, None] * p[1]).flatten()
    count = (x @ torch.tensor([3.0, 1.0]).double()).long().bincount(minlength=9)
    assert ((count - n * joint) ** 2 / (n * joint)).sum().item() < chi2.isf(FALSE_ALARM, 8)


# with hidden variables: phi(x, h) and its twin for one pair of rows


def joint_features(x: Tensor, h: Tensor) -> Tensor:
    return torch.stack(
        [
            x[..., 0] * h[..., 0],
            x[..., 1] * h[..., 1],
            h[..., 0] * h[..., 1],
            x.sum(-1) * h.sum(-1),
        ],
        -1,
    )


def joint_by_hand(x: np.ndarray, h: np.ndarray) -> list[float]:
    return [x[0] * h[0], x[1] * h[1], h[0] * h[1], x.sum() * h.sum()]


HIDDEN = pytest.mark.parametrize(
    ("support", "values", "hidden", "hidden_values"),
    [(Binary(3), (0, 1), Binary(2), (0, 1)), (Spin(2), (-1, 1), Categorical(2, 3), (0, 1, 2))],
    ids=str,
)


def table(
    values: tuple, width: int, hidden_values: tuple
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All x, all h, and phi of every pair, (X, S, K)."""
    x, h = states(values, width), states(hidden_values, 2)
    return x, h, np.array([[joint_by_hand(row, g) for g in h] for row in x])


@HIDDEN
def test_hidden_variables_are_summed_out(
    support: Support, values: tuple, hidden: Support, hidden_values: tuple
) -> None:
    model = build(joint_features, support, hidden=hidden)
    x, h, phi = table(values, support.width, hidden_values)
    exponent = phi @ model.theta.detach().numpy()
    t = torch.tensor(x)
    np.testing.assert_allclose(model(t).detach().numpy(), -logsumexp(exponent, 1), atol=1e-12)
    given = np.exp(exponent - logsumexp(exponent, 1, keepdims=True))
    np.testing.assert_allclose(
        model.hidden_given_visible_probs(t).detach().numpy(), given, atol=1e-12
    )
    np.testing.assert_allclose(
        model.expected_features(t).detach().numpy(), np.einsum("xs,xsk->xk", given, phi), atol=1e-12
    )
    pairs = model.energy(t[:, None].expand(-1, len(h), -1), torch.tensor(h).expand(len(x), -1, -1))
    np.testing.assert_allclose(pairs.detach().numpy(), -exponent, atol=1e-12)


@HIDDEN
def test_the_gradient_with_hidden_variables(
    support: Support, values: tuple, hidden: Support, hidden_values: tuple
) -> None:
    """E_data E_(h given x)[phi] - E_(x, h)[phi], both written out."""
    model = build(joint_features, support, hidden=hidden)
    x, _, phi = table(values, support.width, hidden_values)
    weight = np.exp(phi @ model.theta.detach().numpy())
    given = weight / weight.sum(1, keepdims=True)
    data = np.random.default_rng(1).integers(0, len(x), 7)
    positive = np.einsum("xs,xsk->xk", given, phi)[data].mean(0)
    negative = np.einsum("xs,xsk->k", weight / weight.sum(), phi)
    np.testing.assert_allclose(
        positive_phase(model, torch.tensor(x[data]))["theta"].numpy(), positive, atol=1e-12
    )
    np.testing.assert_allclose(
        negative_phase(model, exact=True)["theta"].numpy(), negative, atol=1e-12
    )


@HIDDEN
@pytest.mark.parametrize("beta", [0.0, 0.35, 1.0])
def test_the_joint_is_annealed(
    support: Support, values: tuple, hidden: Support, hidden_values: tuple, beta: float
) -> None:
    """exp(-F_beta(x)) = reference(x)^(1 - beta) sum over h of exp(beta theta phi(x, h)), the
    reference uniform over h.
    """
    model = build(joint_features, support, hidden=hidden)
    x, h, phi = table(values, support.width, hidden_values)
    logits = model.reference_logits.numpy()
    start = np.array([sum(logits[i, values.index(v)] for i, v in enumerate(row)) for row in x])
    expected = -(1 - beta) * start - logsumexp(beta * phi @ model.theta.detach().numpy(), 1)
    np.testing.assert_allclose(
        model.annealed(beta).free_energy(torch.tensor(x)).detach().numpy(), expected, atol=1e-12
    )
    if beta == 0:
        np.testing.assert_allclose(
            model.reference().free_energy(torch.tensor(x)).numpy(), expected, atol=1e-12
        )
        assert float(model.reference().log_z) == pytest.approx(logsumexp(-expected), abs=1e-12)
        assert len(h) > 1


@CASES
@pytest.mark.parametrize("beta", [None, 0.35, 1.0])
def test_energies_of_one_site_give_its_conditional(
    features: Any, support: Support, values: tuple, by_hand: Callable, beta: float | None
) -> None:
    """p(x_i = v given the others) by Bayes' rule from the written-out distribution; energies may
    differ by what x_i does not change.
    """
    model, x = build(features, support), states(values, support.width)
    theta, logits = model.theta.detach().numpy(), model.reference_logits.numpy()

    def log_phi(row: np.ndarray) -> float:
        own = np.dot(by_hand(row), theta)
        start = sum(logits[i, values.index(v)] for i, v in enumerate(row))
        return own if beta is None else beta * own + (1 - beta) * start

    at = model if beta is None else model.annealed(beta)
    listed = torch.tensor(values, dtype=torch.float64)
    for i in range(support.width):
        got = torch.softmax(-at.site_energies(torch.tensor(x), i, listed), 0).detach().numpy()
        trials = np.array(
            [
                [log_phi(np.where(np.arange(support.width) == i, v, row)) for row in x]
                for v in values
            ]
        )
        np.testing.assert_allclose(got, np.exp(trials - logsumexp(trials, 0)), atol=1e-12)


# where the optimum is not finite


def said(model: MaxEnt, x: list[list[float]], weight: list[float] | None = None) -> list[str]:
    return model.data_warnings(as_rows(np.array(x), weight), generator=torch.Generator())


def test_data_inside_the_hull_need_no_penalty() -> None:
    every = states((0, 1), 3).tolist()
    for features in ("independent", "pairwise", "k-pairwise"):
        assert said(build(features, Binary(3)), every * 2) == []


def test_a_feature_that_never_varies_has_no_finite_parameter() -> None:
    # x_0, x_0 x_1 and x_0 x_2 are always zero
    column = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    (warning,) = said(build("pairwise", Binary(3)), column)
    assert warning.startswith(
        "3 of 6 features never vary in the data (the first is number 0), so their parameters have "
        "no finite optimum"
    )
    assert "l2=1e-3" in warning
    (warning,) = said(build("independent", Binary(3)), column)
    assert warning.startswith("1 of 3 features never vary")


def test_averages_on_the_edge_of_the_hull_have_no_finite_optimum() -> None:
    """Without the state 00 every feature varies, yet 1 - x_0 - x_1 + x_0 x_1 is zero throughout."""
    three = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    (warning,) = said(build("pairwise", Binary(2)), three)
    assert warning.startswith(
        "the data's feature averages lie on the edge of what any distribution can have, so the "
        "optimum is not finite"
    )
    assert said(build("independent", Binary(2)), three) == []  # means of 2/3 are inside
    assert said(build("pairwise", Binary(2)), [*three, [0.0, 0.0]]) == []
    # a row without weight is no row
    assert len(said(build("pairwise", Binary(2)), [*three, [0.0, 0.0]], [1.0, 1.0, 1.0, 0.0])) == 1


def test_a_constant_feature_of_the_support_is_not_the_datas_fault() -> None:
    assert (
        said(
            build(lambda x: torch.stack([torch.ones_like(x[..., 0]), x[..., 0]], -1), Binary(2)),
            [[0.0, 1.0], [1.0, 0.0]],
        )
        == []
    )


def test_leading_dimensions_are_batch() -> None:
    x = torch.tensor(states((0, 1), 3))
    for model in (
        build("k-pairwise", Binary(3)),
        build([parity, lambda x: x], Binary(3)),
        build(joint_features, Binary(3), hidden=Binary(2)),
    ):
        torch.testing.assert_close(model(x.view(2, 4, 3)).flatten(), model(x))
        assert model(x[0]).shape == ()


def test_a_modules_own_parameters_learn_too() -> None:
    model = build(Neighbors(), Spin(3))
    assert {name for name, _ in model.named_parameters()} == {"theta", "features.gain"}
    listed = build([Neighbors(), lambda x: x], Spin(3))
    assert len(list(listed.parameters())) == 2


def test_named_features_are_rebuilt_from_settings_and_functions_are_not(
    generator: torch.Generator,
) -> None:
    model = build("k-pairwise", Binary(3))
    again = MaxEnt.from_settings(model.settings(), generator=generator).double()
    again.load_state_dict(model.state_dict())
    x = torch.tensor(states((0, 1), 3))
    assert torch.equal(model(x), again(x))
    assert model.title() == "MaxEnt(k-pairwise, 3)"
    with pytest.raises(
        RunError,
        match=r"load: features must be named ones.*got functions, which are code and are never "
        r"saved\. Build the MaxEnt",
    ):
        MaxEnt.from_settings(build(parity, Binary(3)).settings(), generator=generator)


@pytest.mark.parametrize(
    ("features", "support", "more", "error", "words"),
    [
        (
            "triplets",
            Binary(3),
            {},
            InputError,
            r"MaxEnt: features must be a function, .* pairwise, k-pairwise; got 'triplets'\.",
        ),
        (
            [],
            Binary(3),
            {},
            InputError,
            r"MaxEnt: features must be a function, .* k-pairwise; got \[\]\.",
        ),
        (
            lambda x: x.sum(),
            Binary(3),
            {},
            InputError,
            r"MaxEnt: features must map \(\*, D\) to \(\*, K\) or \(\*\); got \(2, 3\) to \(1",
        ),
        (
            len,
            Binary(3),
            {},
            InputError,
            r"MaxEnt: features must map .*; got one that fails \(AttributeError: .*\)\.",
        ),
        (
            lambda x: x[0],
            Binary(3),
            {},
            InputError,
            r"MaxEnt: features must map \(\*, D\) to \(\*, K\) or \(\*\); got \(2, 3\) to",
        ),
        (
            lambda x: x,
            Real(3),
            {},
            Unsupported,
            r"MaxEnt cannot live on Real\(D=3\): .*finitely many values.* Binary",
        ),
        (lambda x: x, Count(3), {}, Unsupported, r"MaxEnt cannot live on Count\(D=3\)"),
        (
            lambda x: x,
            Product((Binary(1), Categorical(1, 3))),
            {},
            Unsupported,
            r"MaxEnt cannot live on Product",
        ),
        (
            joint_features,
            Binary(3),
            {"hidden": Binary(13)},
            InputError,
            r"MaxEnt: hidden must have at most 12 bits, .*; got 13 bits\.",
        ),
        (
            joint_features,
            Binary(3),
            {"hidden": Real(1)},
            InputError,
            r"MaxEnt: hidden must have at most 12 bits, .*; got inf bits\.",
        ),
        (
            "pairwise",
            Binary(3),
            {"hidden": Binary(1)},
            InputError,
            r"MaxEnt: features must be functions of \(x, h\) .*; got 'pairwise'\.",
        ),
    ],
)
def test_bad_settings(
    features: Any,
    support: Support,
    more: dict,
    error: type[Exception],
    words: str,
    generator: torch.Generator,
) -> None:
    with pytest.raises(error, match=words):
        MaxEnt(features, support, **more, generator=generator)


def test_another_width_is_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"MaxEnt\.free_energy: x must have shape \(\*, 3\) to match Binary\(D=3\); got \(5, "
        r"4\)\.",
    ):
        build("pairwise", Binary(3))(torch.zeros(5, 4, dtype=torch.float64))


def test_a_function_that_holds_a_tensor_of_another_dtype_is_named(
    generator: torch.Generator,
) -> None:
    held = torch.randn(4, 3, generator=generator)
    model = MaxEnt(lambda x: x @ held, Binary(4), generator=generator)
    with pytest.raises(
        InputError, match=r"MaxEnt: features must follow the dtype of x, .* Write A\.to\(x\)"
    ):
        model.double().free_energy(torch.zeros(2, 4, dtype=torch.float64))


def test_wide_supports_can_be_built_and_k_pairwise_needs_ones(generator: torch.Generator) -> None:
    assert len(MaxEnt("pairwise", Binary(100), generator=generator).theta) == 5050
    with pytest.raises(Unsupported, match=r"MaxEnt\('k-pairwise'\) cannot live on Spin\(D=4\)"):
        MaxEnt("k-pairwise", Spin(4), generator=generator)
