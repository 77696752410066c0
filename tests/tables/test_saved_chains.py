"""Chains from whatever holds them, by stand-ins with the documented interface of each library."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from partita.errors import InputError
from partita.tables.saved_chains import read_chains

G = np.random.default_rng(0)
MU, B = G.normal(size=(3, 20)), G.normal(size=(3, 20, 2))
ALL = np.concatenate([MU[..., None], B], -1)


@dataclass
class Variable:
    """xarray.DataArray: dims, values, transpose."""

    values: np.ndarray
    dims: tuple[str, ...]

    def transpose(self, *dims: object) -> "Variable":
        assert dims == ("chain", "draw", ...)
        first = [self.dims.index(name) for name in ("chain", "draw")]
        order = first + [i for i in range(len(self.dims)) if i not in first]
        return Variable(self.values.transpose(order), tuple(self.dims[i] for i in order))


class Dataset:
    """xarray.Dataset: data_vars and items by name."""

    def __init__(self, **variables: Variable) -> None:
        self.data_vars = variables

    def __getitem__(self, name: str) -> Variable:
        return self.data_vars[name]


class InferenceData:
    """arviz.InferenceData and xarray.DataTree: a group by attribute."""

    def __init__(self, posterior: Dataset) -> None:
        self.posterior = posterior


class Ensemble:
    """emcee.EnsembleSampler and its backends: ``(steps, walkers, D)``."""

    def __init__(self, chain: np.ndarray) -> None:
        self.chain = chain

    def get_chain(self) -> np.ndarray:
        return self.chain


class StanFit:
    """cmdstanpy.CmdStanMCMC: variables with one chain after the other."""

    chains = 3

    def stan_variables(self) -> dict[str, np.ndarray]:
        return {"mu": MU.reshape(60), "b": B.reshape(60, 2)}


def dataset() -> Dataset:
    return Dataset(
        mu=Variable(MU, ("chain", "draw")),
        b=Variable(B.transpose(2, 1, 0), ("b_dim_0", "draw", "chain")),
    )


def frame() -> pd.DataFrame:
    """As Stan's draws in a frame, shuffled."""
    made = pd.DataFrame(ALL.reshape(60, 3), columns=["mu", "b[1]", "b[2]"])
    made.insert(0, ".chain", np.repeat([1, 2, 3], 20))
    made.insert(1, ".iteration", np.tile(np.arange(20), 3))
    made["lp__"] = 0.0
    return made.sample(frac=1.0, random_state=0)


HOLDERS = {
    "array": lambda: ALL,
    "tensor": lambda: torch.as_tensor(ALL),
    "list": lambda: ALL.tolist(),
    "dict": lambda: {"mu": MU, "b": torch.as_tensor(B)},
    "InferenceData": lambda: InferenceData(dataset()),
    "mapping of groups": lambda: {"posterior": dataset()},
    "dataset": dataset,
    "stan": StanFit,
    "pandas": frame,
    "polars": lambda: pl.DataFrame({name: frame()[name].to_numpy() for name in frame()}),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_every_holder_gives_the_same_chains(name: str) -> None:
    saved = read_chains(HOLDERS[name]())
    np.testing.assert_array_equal(saved.values.numpy(), ALL)
    if name not in ("array", "tensor", "list"):
        assert saved.layout is not None
        assert saved.layout.coordinates()[0] == "mu"
        assert math.prod(saved.layout.shapes[0]) == 1


def test_rows_and_numbers_are_one_chain() -> None:
    assert read_chains(ALL[0]).values.shape == (1, 20, 3)
    assert read_chains(MU[0]).values.shape == (1, 20, 1)
    assert read_chains({"mu": MU[0], "tau": MU[1]}).values.shape == (1, 20, 2)


def test_an_ensemble_loses_its_burn_in() -> None:
    """Walkers of autocorrelation time 19 from far away: about 5 x 19 of 1,000 steps are left out.

    The estimated time is within half and twice the true one by far (some 800 effective draws).
    """
    g = np.random.default_rng(1)
    x = np.empty((1000, 16, 2))
    x[0] = 20.0
    for t in range(1, 1000):
        x[t] = 0.9 * x[t - 1] + g.normal(size=(16, 2)) * math.sqrt(1 - 0.81)
    saved = read_chains(Ensemble(x))
    assert 47 < saved.dropped < 190
    assert saved.values.shape == (16, 1000 - saved.dropped, 2)
    assert float(saved.values.abs().max()) < 6
    assert read_chains(Ensemble(x), burn_in=10).values.shape == (16, 990, 2)


@pytest.mark.parametrize(
    ("draws", "said"),
    [
        ("posterior.nc", "draws must be draws such as an array"),
        (np.zeros((2, 2, 2, 2)), r"shape \(2, 2, 2, 2\)"),
        (np.array([["a", "b"]]), "hold real numbers"),
        ([[1.0, 2.0], [3.0]], "be a full array of numbers"),
        (np.zeros((0, 3)), "hold a chain with a draw"),
        ({}, "hold a variable; got none"),
        ({"mu": MU, "b": B[:, :5]}, r"draws\['b'\] must have shape .* as draws\['mu'\] does"),
        (Dataset(mu=Variable(MU, ("sample", "draw"))), "have dimensions chain and draw"),
        (Ensemble(MU), r"have shape \(steps, walkers, D\)"),
        (frame().iloc[:50], "as many draws of every chain"),
        (frame()[[".chain", "lp__"]], "have a column for each coordinate"),
        (
            {"mu": np.where(np.arange(20) == 7, np.nan, MU)},
            "mu of the draws must be finite; .*draw 7",
        ),
    ],
)
def test_what_are_no_chains_is_refused_in_a_sentence(draws: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_chains(draws)


def test_burn_in_leaves_something() -> None:
    with pytest.raises(InputError, match="burn_in must be less than the 20 draws of a chain"):
        read_chains(ALL, burn_in=20)
