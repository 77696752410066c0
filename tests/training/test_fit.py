"""What is handed to a fit: rows of any type are taken, and what is wrong gets one sentence before
anything is touched.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.small_fits import OBJECTIVES, machine, rows, same

import partita
from partita.errors import DataError, InputError
from partita.models import RBM
from partita.objectives import CD, PCD, ExactLikelihood, negative_phase, positive_phase


@pytest.mark.parametrize("model_type", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "bool", "list", "tensor"])
def test_rows_of_any_type_fit_a_model_of_any_type(kind: str, model_type: torch.dtype) -> None:
    x = rows()
    data: Any = {"list": x.tolist(), "tensor": x.int()}.get(kind)
    data = x.numpy().astype(kind) if data is None else data
    weights = []
    for given in (data, x):
        for name in ("pcd", "exact"):
            model = machine().to(model_type)
            partita.fit(
                model,
                given,
                OBJECTIVES[name],
                sample_weight=np.ones(60),
                steps=3,
                generator=torch.Generator().manual_seed(0),
            )
            assert model.W.dtype == model_type
            weights.append(model.W.detach())
    assert torch.equal(weights[0], weights[2])
    assert torch.equal(weights[1], weights[3])


NAN = np.where(np.eye(4) > 0, np.nan, 0.0)


@pytest.mark.parametrize(
    ("x", "more", "words"),
    [
        (NAN, {}, r"fit: x must .*finite.*"),
        (np.full((5, 4), np.inf), {}, r"fit: x must .*finite.*"),
        (
            np.full((5, 4), 0.5),
            {},
            r"fit: x must hold only 0 and 1; got 0\.5 in column 0\. Cut the values at a threshold",
        ),
        (
            np.zeros((5, 3)),
            {},
            r"fit: x must have shape \(\*, 4\) to match RBM\(4, 3\); got \(5, 3\)\.",
        ),
        (np.zeros((0, 4)), {}, r"fit: x must .*row"),
        (np.zeros((1, 4)), {}, r"fit: x must have at least 2 rows; got 1\."),
        (np.array([["a", "b", "c", "d"]] * 3), {}, r"fit: x must .*"),
        (
            np.zeros((5, 4)),
            {"validation": np.zeros((2, 3))},
            r"fit: validation must have shape \(\*, 4\) to match RBM\(4, 3\); got",
        ),
        (
            np.zeros((5, 4)),
            {"validation": np.full((2, 4), 2.0)},
            r"fit: validation must hold only 0 and 1; got 2 in column 0\.",
        ),
        (
            np.zeros((5, 4)),
            {"sample_weight": [1, 2]},
            r"fit: weight must have shape \(5,\), one number per row; got shape \(2,\)\.",
        ),
        (
            np.zeros((5, 4)),
            {"sample_weight": [1, 2, -1, 0, 0]},
            r"fit: weight must be finite and at least 0; got -1\.0 at row 2\.",
        ),
        (
            np.zeros((5, 4)),
            {"epochs": 1, "steps": 2},
            r"fit: one of epochs, steps and minutes must be given; got epochs and steps\.",
        ),
        (
            np.zeros((5, 4)),
            {"steps": 0},
            r"fit: steps must be a whole number of at least 1; got 0\.",
        ),
        (
            np.zeros((5, 4)),
            {"minutes": 0.0},
            r"fit: minutes must be a finite number above 0; got 0\.0\.",
        ),
        (
            np.zeros((5, 4)),
            {"learning_rate": 0.0},
            r"fit: learning_rate must be a finite number above 0; got 0\.0\.",
        ),
        (
            np.zeros((5, 4)),
            {"learning_rate": math.nan},
            r"fit: learning_rate must be a finite number above 0; got nan\.",
        ),
        (np.zeros((5, 4)), {"momentum": 1.5}, r"fit: momentum must lie in \[0, 1\]; got 1\.5\."),
        (np.zeros((5, 4)), {"average": -0.1}, r"fit: average must lie in \[0, 1\]; got -0\.1\."),
        (
            np.zeros((5, 4)),
            {"l2": -1.0},
            r"fit: l2 must be a finite number of at least 0; got -1\.0\.",
        ),
        (
            np.zeros((5, 4)),
            {"batch_size": -1},
            r"fit: batch_size must be a whole number of at least 0; got -1\.",
        ),
        (
            np.zeros((5, 4)),
            {"optimizer": "adamw"},
            r"fit: optimizer must be one of 'sgd', 'adam', 'lbfgs', 'natural'; got 'adamw'\.",
        ),
        (
            np.zeros((5, 4)),
            {"schedule": "step"},
            r"fit: schedule must be one of 'linear', 'constant', 'cosine'; got 'step'\.",
        ),
        (
            np.zeros((5, 4)),
            {"resume": True},
            r"fit: out must be the folder of the run to resume; got None\.",
        ),
    ],
)
def test_bad_input_gets_one_sentence_and_the_model_stays(
    x: np.ndarray, more: dict, words: str, generator: torch.Generator
) -> None:
    model = machine()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises((InputError, DataError), match=words) as caught:
        partita.fit(model, x, PCD(chains=4), generator=generator, **more)
    assert "\n" not in str(caught.value)
    assert same(dict(model.state_dict()), before)


@pytest.mark.parametrize("objective", [PCD(), CD()], ids=["PCD", "CD"])
def test_lbfgs_refuses_a_random_loss(objective: Any, generator: torch.Generator) -> None:
    words = (
        r"fit: optimizer='lbfgs' must go with ExactLikelihood and batch_size=0, .*; got "
        rf"{type(objective).__name__} and batch_size=0\."
    )
    with pytest.raises(InputError, match=words):
        partita.fit(machine(), rows(), objective, optimizer="lbfgs", generator=generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-8])  # the smaller is below what float32 resolves
@pytest.mark.parametrize("seed", range(4))
def test_lbfgs_has_converged_where_the_gradient_at_the_weights_it_leaves_is_that_of_rounding(
    seed: int, tolerance: float, dtype: torch.dtype
) -> None:
    g = torch.Generator().manual_seed(seed)
    model, x = RBM(4, 2, generator=g).to(dtype), rows().to(dtype)
    run = partita.fit(
        model,
        x,
        ExactLikelihood(),
        steps=500,
        tolerance=tolerance,
        optimizer="lbfgs",
        l2=0.01,
        generator=g,
    )
    assert run.stopped == "converged" and run.steps < 20
    phases = [positive_phase(model, x), negative_phase(model, exact=True)]
    gap = {
        name: phases[0][name] - phases[1][name] - (0.01 * p.detach() if name == "W" else 0.0)
        for name, p in model.named_parameters()
    }
    assert max(float(value.abs().max()) for value in gap.values()) < max(
        2 * tolerance, 10 * torch.finfo(dtype).eps ** 0.5
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lbfgs_has_stalled_where_the_loss_does_not_fall_under_a_large_gradient(
    dtype: torch.dtype,
) -> None:
    """An absolute value has a kink where it is least: the slope beside it stays as large as the
    penalty.
    """
    g = torch.Generator().manual_seed(0)
    model, x = RBM(4, 2, generator=g).to(dtype), rows().to(dtype)
    run = partita.fit(
        model, x, ExactLikelihood(), steps=500, optimizer="lbfgs", l1=0.1, generator=g
    )
    assert run.stopped == "stalled"


def test_lbfgs_refuses_batches(generator: torch.Generator) -> None:
    with pytest.raises(
        InputError, match=r"got ExactLikelihood and batch_size=16\. Use 'sgd' or 'adam'\."
    ):
        partita.fit(
            machine(),
            rows(),
            ExactLikelihood(),
            optimizer="lbfgs",
            batch_size=16,
            generator=generator,
        )


@pytest.mark.parametrize("objective", ["pcd", PCD])
def test_an_objective_is_an_object(objective: Any, generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"fit: objective must be an object such as PCD\(\); got "):
        partita.fit(
            RBM(4, 3, generator=generator), torch.eye(4), objective, steps=1, generator=generator
        )


def test_complex_numbers_are_refused(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"fit: x must hold real numbers; got complex ones\."):
        partita.fit(
            RBM(4, 3, generator=generator),
            torch.eye(4, dtype=torch.complex64),
            steps=1,
            generator=generator,
        )
