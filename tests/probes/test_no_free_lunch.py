"""Totals agree with the formula and with one another to the last digit; a prior breaks the tie."""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from partita.errors import InputError
from partita.probes.no_free_lunch import no_free_lunch, rough_prior, smooth_prior

LEARNERS: dict[str, Any] = {
    "nearest": KNeighborsClassifier(1),
    "tree": DecisionTreeClassifier(random_state=0),
    "logistic": LogisticRegression(),
    "svm": SVC(),
    "never": lambda X, y, new: np.zeros(len(new)),
    "opposite": lambda X, y, new: 1 - KNeighborsClassifier(1).fit(X, y).predict(new),
}
GRID = np.stack(np.meshgrid(np.arange(3), np.arange(3)), -1).reshape(-1, 2)


@pytest.mark.parametrize("train", [[0], [4, 1], [0, 2, 6, 8], [8, 3, 5]])
def test_every_learner_makes_the_same_number_of_mistakes(train: list[int]) -> None:
    mass = np.arange(1, 10) ** 2
    lunch = no_free_lunch(LEARNERS, GRID, train, mass=mass)
    truth = 2**8 * int(mass.sum() - mass[train].sum())
    assert set(lunch.totals().values()) == {truth} == {lunch.forecast}
    assert set(lunch.errors().values()) == {Fraction(1, 2)}
    # yet they do not make the same ones
    assert len({tuple(found) for found in lunch.mistakes.values()}) > 1


def test_the_count_is_that_of_a_plain_loop() -> None:
    X, D, off = np.arange(5.0)[:, None], [1, 4], [0, 2, 3]
    learner = KNeighborsClassifier(1)
    total, weighted, prior = 0, 0, {}
    for f in product((0, 1), repeat=5):
        y = np.array([f[i] for i in D])
        h = np.full(3, y[0]) if y[0] == y[1] else learner.fit(X[D], y).predict(X[off])
        wrong = sum(int(h[i] != f[x]) for i, x in enumerate(off))
        prior[f] = 4 ** sum(f[i] == f[i + 1] for i in range(4))
        total, weighted = total + wrong, weighted + prior[f] * wrong
    lunch = no_free_lunch({"nearest": learner}, X, D)
    assert lunch.totals()["nearest"] == total == 2**4 * 3
    assert lunch.totals(smooth_prior(lunch))["nearest"] == weighted
    assert lunch.errors(smooth_prior(lunch))["nearest"] == Fraction(
        weighted, 3 * sum(prior.values())
    )


def test_every_target_is_there_once() -> None:
    lunch = no_free_lunch({"never": LEARNERS["never"]}, GRID, [2, 5])
    assert len(np.unique(lunch.targets, axis=0)) == len(lunch.targets) == 2**9


def test_a_prior_breaks_the_tie_and_its_opposite_turns_it_round() -> None:
    lunch = no_free_lunch(LEARNERS, GRID, [0, 2, 6, 8])
    smooth, rough = lunch.errors(smooth_prior(lunch)), lunch.errors(rough_prior(lunch))
    assert smooth["nearest"] < smooth["never"] < smooth["opposite"]
    assert smooth["never"] == Fraction(1, 2)  # zeros and ones are alike to the prior
    assert smooth["nearest"] + smooth["opposite"] == 1
    assert rough["nearest"] != Fraction(1, 2) and rough["nearest"] + rough["opposite"] == 1


def test_priors_are_not_cut_off_at_64_bits() -> None:
    """The corners of a cube in four dimensions: 32 edges, so the two constant targets weigh 4^32
    each.
    """
    corners = np.array(list(product((0, 1), repeat=4)))
    lunch = no_free_lunch(
        {"nearest": LEARNERS["nearest"], "never": LEARNERS["never"]}, corners, [0, 15]
    )
    prior = smooth_prior(lunch)
    edges = [
        (i, j)
        for i in range(16)
        for j in range(i)
        if int(np.abs(corners[i] - corners[j]).sum()) == 1
    ]
    expected = [4 ** sum(int(f[i] == f[j]) for i, j in edges) for f in lunch.targets[:50]]
    assert len(edges) == 32 and prior[:50].tolist() == expected and max(prior) == 4**32
    errors = lunch.errors(prior)
    assert errors["never"] == Fraction(1, 2) and 0 < errors["nearest"] < Fraction(1, 10)
    assert set(lunch.totals().values()) == {lunch.forecast}
    with pytest.raises(InputError, match="base must be a whole number"):
        smooth_prior(lunch, base=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domain": np.arange(17)}, "2 to 16 points"),
        ({"domain": [0.0, 0.0, 1.0]}, "each once"),
        ({"train": [0, 0]}, "train must hold different numbers"),
        ({"train": [0, 1, 2, 3]}, "not all"),
        ({"train": [9]}, "train must hold"),
        ({"domain": np.arange(16), "train": list(range(13))}, "at most 12 points"),
        ({"mass": [0.25] * 4}, "mass must be 4 whole numbers"),
        ({"mass": [2**40] * 4}, "add up to at most"),
        ({"mass": [2**62] * 4}, "add up to at most"),
        ({"learners": {}}, "at least one learner"),
        (
            {"learners": {"odd": lambda X, y, new: np.full(len(new), 2)}},
            "learner 'odd' must return 2 labels",
        ),
    ],
)
def test_wrong_input_is_named(change: dict[str, Any], message: str) -> None:
    arguments = {
        "learners": {"never": LEARNERS["never"]},
        "domain": np.arange(4),
        "train": [0, 1],
        **change,
    }
    with pytest.raises(InputError, match=message):
        no_free_lunch(**arguments)


def test_a_prior_must_fit_the_targets() -> None:
    lunch = no_free_lunch({"never": LEARNERS["never"]}, np.arange(4), [0])
    with pytest.raises(InputError, match="prior must be 16 whole numbers"):
        lunch.totals(np.ones(8, dtype=np.int64))
