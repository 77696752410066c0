"""Draws of Markov chains that another program made, as one tensor with names.

What holds them is known by what it offers, never by its type, so that nothing need be installed:
arrays; ArviZ InferenceData, xarray DataTree and Dataset (PyMC returns them); emcee samplers and
backends; CmdStanPy fits; frames of pandas and polars; dicts of arrays.

Letters: C chains, n draws of each, D coordinates.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core.arguments import check_count
from partita.core.batched import Layout
from partita.errors import InputError, invalid

CHAIN = (".chain", "chain", "chain__")
DRAW = (".iteration", "iteration", "iter__", ".draw", "draw", "draw__")
BURN_IN = 5.0  # autocorrelation times of an ensemble that are left out, and at most half of it
HELD = (
    "be draws such as an array (chains, draws, D) or (draws, D), a dict of arrays (chains, draws, "
    "...), a frame, an ArviZ InferenceData, an emcee sampler or a CmdStanPy fit"
)


class SavedChains(NamedTuple):
    """Draws of chains."""

    values: Tensor  # (C, n, D), float64
    layout: Layout | None  # of variables that have names
    source: str  # what held them
    dropped: int = 0  # draws of each chain that were left out as burn-in

    def coordinate(self, i: int) -> str:
        """The name of a coordinate."""
        return self.layout.coordinates()[i] if self.layout is not None else f"coordinate {i}"


def read_chains(draws: object, *, burn_in: int | None = None, owner: str = "log_z") -> SavedChains:
    """Chains from whatever holds them.

    Arguments:
        draws: See the module. Rows ``(n, D)`` are one chain.
        burn_in: Draws of each chain to leave out. Unless given, five autocorrelation times of an
            emcee sampler, which keeps its burn-in, and none of others.
        owner: What errors speak for.
    """
    if burn_in is not None:
        check_count(owner, "burn_in", burn_in, least=0)
    chains = _held(draws, owner)
    n = chains.values.shape[1]
    if burn_in is None:
        burn_in = _ensemble_burn_in(chains.values) if chains.source == "emcee" else 0
    if burn_in >= n:
        raise invalid(owner, "burn_in", f"be less than the {n} draws of a chain", burn_in)
    values = chains.values[:, burn_in:]
    bad = (~torch.isfinite(values)).nonzero()
    if len(bad):
        c, i, d = bad[0].tolist()
        got = f"{float(values[c, i, d])} at draw {i + burn_in} of chain {c}"
        remedy = "Take out draws that are missing."
        raise invalid(owner, f"{chains.coordinate(d)} of the draws", "be finite", got, remedy)
    return chains._replace(values=values, dropped=burn_in)


def _held(draws: Any, owner: str) -> SavedChains:
    if isinstance(draws, Mapping) and not hasattr(draws, "data_vars"):
        posterior = draws.get("posterior")
        if posterior is not None and hasattr(posterior, "data_vars"):
            return _of_dataset(posterior, owner)
        return _of_variables({str(name): draws[name] for name in draws}, "a dict", owner)
    posterior = getattr(draws, "posterior", None)
    if hasattr(posterior, "data_vars"):
        return _of_dataset(posterior, owner)
    if hasattr(draws, "data_vars"):
        return _of_dataset(draws, owner)
    if callable(getattr(draws, "get_chain", None)):
        return _of_ensemble(draws, owner)
    if callable(getattr(draws, "stan_variables", None)):
        return _of_stan(draws, owner)
    if hasattr(draws, "columns") and hasattr(draws, "__getitem__"):
        return _of_frame(draws, owner)
    if isinstance(draws, Tensor | np.ndarray | list | tuple) or hasattr(draws, "__array__"):
        return _of_array(draws, owner)
    raise invalid(owner, "draws", HELD, f"an object of type {type(draws).__name__}")


def _numbers(values: object, what: str, owner: str) -> np.ndarray:
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu().numpy()
        array = np.asarray(values)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise invalid(owner, what, "be a full array of numbers", type(values).__name__) from None
    if array.dtype.kind not in "biuf":
        raise invalid(owner, what, "hold real numbers", f"an array of dtype {array.dtype}")
    return array.astype(np.float64)


def _made(array: np.ndarray, layout: Layout | None, source: str, owner: str) -> SavedChains:
    C, n, D = array.shape
    if not C or not n or not D:
        got = f"shape {array.shape}"
        raise invalid(owner, "draws", "hold a chain with a draw of a coordinate", got)
    return SavedChains(torch.as_tensor(np.ascontiguousarray(array)), layout, source)


def _of_array(draws: object, owner: str) -> SavedChains:
    array = _numbers(draws, "draws", owner)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3:
        raise invalid(owner, "draws", HELD, f"an array of shape {array.shape}")
    return _made(array, None, "an array", owner)


def _of_variables(variables: dict[str, object], source: str, owner: str) -> SavedChains:
    """Variables ``(C, n, *shape)`` by name; one of shape ``(n,)`` is a number in one chain."""
    if not variables:
        raise invalid(owner, "draws", "hold a variable", "none")
    arrays = {name: _numbers(v, f"draws[{name!r}]", owner) for name, v in variables.items()}
    if all(array.ndim == 1 for array in arrays.values()):
        arrays = {name: array[None] for name, array in arrays.items()}
    first = next(iter(arrays))
    for name, array in arrays.items():
        if array.ndim < 2 or array.shape[:2] != arrays[first].shape[:2]:
            allowed = f"have shape (chains, draws, ...) as draws[{first!r}] does"
            got = f"shape {array.shape} beside {arrays[first].shape}"
            raise invalid(owner, f"draws[{name!r}]", allowed, got)
    layout = Layout(tuple(arrays), tuple(array.shape[2:] for array in arrays.values()))
    flat = [array.reshape(*array.shape[:2], -1) for array in arrays.values()]
    return _made(np.concatenate(flat, -1), layout, source, owner)


def _of_dataset(dataset: Any, owner: str) -> SavedChains:
    """The variables of an xarray Dataset, in its order."""
    variables: dict[str, object] = {}
    for name in dataset.data_vars:
        held = dataset[name]
        missing = [axis for axis in ("chain", "draw") if axis not in held.dims]
        if missing:
            got = f"dimensions {tuple(held.dims)}"
            parameter = f"the variable {str(name)!r} of the draws"
            raise invalid(owner, parameter, "have dimensions chain and draw", got)
        variables[str(name)] = held.transpose("chain", "draw", ...).values
    return _of_variables(variables, "InferenceData", owner)


def _of_ensemble(sampler: Any, owner: str) -> SavedChains:
    """An emcee sampler or backend: ``(n, C, D)`` from ``get_chain``."""
    try:
        array = _numbers(sampler.get_chain(), "draws.get_chain()", owner)
    except InputError:
        raise
    except Exception as error:  # a backend in which nothing is stored raises AttributeError
        got = f"{type(error).__name__} ({' '.join(str(error).split())[:120]})"
        raise invalid(owner, "draws.get_chain()", "give stored draws", got) from error
    if array.ndim != 3:
        allowed = "have shape (steps, walkers, D)"
        raise invalid(owner, "draws.get_chain()", allowed, f"shape {array.shape}")
    return _made(array.swapaxes(0, 1), None, "emcee", owner)


def _of_stan(fit: Any, owner: str) -> SavedChains:
    """A CmdStanPy fit: variables ``(C n, *shape)``, one chain after the other."""
    chains = int(getattr(fit, "chains", 1))
    variables: dict[str, object] = {}
    for name, values in fit.stan_variables().items():
        array = _numbers(values, f"draws.stan_variables()[{name!r}]", owner)
        if len(array) % chains:
            allowed = f"have as many draws of each of {chains} chains"
            raise invalid(owner, f"draws.stan_variables()[{name!r}]", allowed, len(array))
        variables[str(name)] = array.reshape(chains, -1, *array.shape[1:])
    return _of_variables(variables, "CmdStanPy", owner)


def _of_frame(frame: Any, owner: str) -> SavedChains:
    """A frame with a column for each coordinate, and one that numbers chains if there are any.

    Columns whose names end in two underscores are what Stan reports of its sampler.
    """
    names = [str(name) for name in frame.columns]
    keys = dict(zip(names, frame.columns, strict=True))
    chain = next((name for name in CHAIN if name in keys), None)
    order = next((name for name in DRAW if name in keys), None)
    left_out = {*CHAIN, *DRAW}
    kept = [name for name in names if name not in left_out and not name.endswith("__")]
    if not kept:
        raise invalid(owner, "draws", "have a column for each coordinate", f"columns {names}")
    columns = [_numbers(frame[keys[name]], f"column {name!r} of the draws", owner) for name in kept]
    table = np.stack(columns, -1)
    number = np.zeros(len(table)) if chain is None else np.asarray(frame[keys[chain]])
    if order is not None:
        position = _numbers(frame[keys[order]], f"column {order!r} of the draws", owner)
        rank = np.lexsort((position, number))
        table, number = table[rank], number[rank]
    parts = [table[number == one] for one in np.unique(number)]
    lengths = {len(part) for part in parts}
    if len(lengths) > 1:
        got = f"between {min(lengths)} and {max(lengths)}"
        raise invalid(owner, "draws", "have as many draws of every chain", got)
    layout = Layout(tuple(kept), ((),) * len(kept))
    return _made(np.stack(parts) if parts else table[None], layout, "a frame", owner)


def _ensemble_burn_in(values: Tensor) -> int:
    """Some autocorrelation times of the slowest coordinate, at most half of the draws."""
    from arviz_stats.base.array import array_stats

    n = values.shape[1]
    if n < 8:
        return 0
    table = values[:, n // 2 :].movedim(-1, 0).numpy()  # of what is past any burn-in
    table = table[np.ptp(table, axis=(1, 2)) > 0]
    if not len(table) or not np.isfinite(table).all():
        return n // 2
    least = float(np.asarray(array_stats.ess(table, method="mean")).min())
    return min(n // 2, math.ceil(BURN_IN * table[0].size / max(1.0, least)))
