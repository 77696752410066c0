r"""Missing values of a table, filled in from what its rows do hold; observed cells stay untouched.

Observed coordinates are held, missing ones drawn from p(missing | observed): by clamped Gibbs
sampling,

.. math:: x_M \sim p(x_M \mid h),\; h \sim p(h \mid x_M, x_O) \qquad\text{or}\qquad p(x_i \mid
          x_{\setminus i}), \; i \in M

or exactly where what is missing from a row has few states, however they depend on one another:
there chains may not mix.

A file is filled in chunks, so that it need not fit into memory. Where a chunk ends depends on the
number of columns alone, and each chunk has its own random numbers: the result depends on the seed
and on the rows, not on the machine or the file format.

Letters: N rows, R chains per row, D columns, m missing values of a row, K values of each, S = K^m
states of them.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from partita.core import rng
from partita.core.arguments import check_choice
from partita.core.capability import reason_against, require
from partita.core.protocols import Capability, EnergyModel, Model, in_double
from partita.errors import invalid
from partita.experiment.imputation_gradient import gradient_posterior
from partita.experiment.input_table import InputTable, destination, in_file_order, read_input
from partita.experiment.saved import SavedRun, open_run
from partita.tables import Encoding
from partita.tables.arrays import row_ranges
from partita.tables.copies import write_filled
from partita.tables.encoding import CUT
from partita.tables.files import TABLES
from partita.tables.on_disk import gather_rows
from partita.tables.schema import Labels
from partita.tables.write import check_ending, plain_columns, write_columns

CHAINS = 8  # per row, where they are averaged; one draw takes one
BURN_IN = 100
KEPT = 100
CELLS = 1 << 22  # rows x chains x columns at once
FEW_STATES = 1 << 10  # of what is missing from a row, up to which they are summed


# (model, rows, whether to draw, chains per row, generator) -> what fill makes of the missing values
Posterior = Callable[[EnergyModel, Tensor, bool, int, torch.Generator], Tensor]


@runtime_checkable
class _Filler(Protocol):
    """A model with its own way to fill in missing values."""

    def fill(self, x: Tensor, how: str = ..., *, generator: torch.Generator) -> Tensor: ...


class _Conditionals(Protocol):
    """A model whose visible and hidden units are independent given the others."""

    def hidden_given_visible(self, x: Tensor) -> Distribution: ...

    def visible_given_hidden(self, h: Tensor) -> Distribution: ...


class FilledFile(NamedTuple):
    """Where a file without its gaps was written, and how many there were."""

    path: Path
    model: Model
    rows: int
    values: int  # all cells of the table
    filled: int  # those that were missing


def impute_file(
    folder: Path,
    source: Path,
    out: Path | None = None,
    how: str = "auto",
    *,
    seed: int = 0,
    allow_diverged: bool = False,
) -> FilledFile:
    """Write a file with its missing values filled in by a saved run; columns keep their names,
    types and order.
    """
    saved = open_run(folder, allow_diverged=allow_diverged)
    path = destination(source, out, "impute", "imputed")
    table = read_input(saved, source, "impute")
    if out is not None and table.schema is not None:
        check_ending(path, "impute", table.schema.used)
    filled, missing = impute_table(saved, table, how, seed)
    _write(table, path, filled, saved.encoding.labels)
    return FilledFile(path, saved.run.model, len(filled), filled.size, missing)


def impute_table(saved: SavedRun, table: InputTable, how: str, seed: int) -> tuple[np.ndarray, int]:
    """A table with its gaps filled, columns in the file's order, in memory or on disk; and how many
    gaps there were.
    """
    model, encoding = saved.run.model, saved.encoding
    missing, back = 0, np.argsort(table.order)

    def filled() -> Iterator[np.ndarray]:
        nonlocal missing
        for number, (part, x) in enumerate(table.chunks()):
            missing += int(np.isnan(x).sum())
            generator = rng.keyed(seed, 4, *([number] if number else []))
            whole = impute_encoded(
                model, encoding, x, how, "impute", first=part.start, generator=generator
            )
            yield whole[:, back]

    dtype = table.table.dtype if table.table.dtype.kind == "f" else np.dtype(float)
    return gather_rows(filled(), table.shape, dtype), missing


def imputation_method(model: Model) -> str:
    """How a model fills in missing values, as an adverbial phrase."""
    if Capability.LATENT in model.capabilities:
        return "by chains of its posterior"
    if Capability.MISSING in model.capabilities:
        return "exactly"
    if Capability.POSTERIOR_DRAWS in model.capabilities:
        return "on average over its posterior draws"
    return "by clamped sampling"


def _write(table: InputTable, path: Path, filled: np.ndarray, labels: Labels) -> None:
    if table.schema is None:
        columns = plain_columns(table.names, filled, labels)
        write_columns(path, columns, filled, header=table.names is not None)
    elif path.suffix.lower() in TABLES:
        write_filled(table.path, path, table.schema, filled)
    else:
        columns = table.schema.used
        order = in_file_order(table, columns)
        parts = (filled[part][:, order] for part in row_ranges(*table.shape))
        ordered = gather_rows(parts, table.shape, filled.dtype)
        header = table.names is not None
        write_columns(path, [columns[i] for i in order], ordered, header=header)


def impute_encoded(
    model: Model,
    encoding: Encoding,
    x: np.ndarray,
    how: str,
    owner: str,
    *,
    first: int = 0,
    generator: torch.Generator,
) -> np.ndarray:
    """A table with its NaN filled, in its own units: in the model's own way where it has one, else
    by clamped sampling.

    ``first`` is the number of its first row in the table that it is a chunk of, for error messages.
    """
    if not isinstance(model, _Filler | EnergyModel):
        allowed = "be of a family that can fill in what is missing"
        raise invalid(owner, "the model", allowed, model.title(), "A mixture or a VAE can.")
    check_how(model, encoding, how, owner)
    z = torch.from_numpy(encoding.encode(encoding.check(x, owner, first)))
    if how == "auto" and encoding.kind == "mixed":
        how = "likely"
    elif how == "auto":
        how = "mode" if model.support.discrete else "mean"
    if isinstance(model, _Filler):
        if not z.isnan().any():  # as of a chunk without gaps
            return x.copy()
        filled = model.fill(z, how, generator=generator)
    else:
        filled = fill(model, z, how, generator=generator)
    return np.where(np.isnan(x), encoding.decode(filled.double().cpu().numpy()), x)


def check_how(model: Model, encoding: Encoding, how: str, owner: str) -> None:
    """Refuse encodings that cannot be filled in, and ways that do not go with the encoding."""
    check_choice(owner, "how", how, ("auto", "mean", "mode", "draw"))
    if encoding.kind in CUT:
        quantiles = encoding.kind == "quantile"
        held, where = ("categories", "quantiles") if quantiles else ("binary", "median")
        allowed = f"be {held}, for real columns were cut at their {where} and cannot be drawn back"
        raise invalid(owner, "X", allowed, "real columns", "Cut X yourself before fit.")
    if encoding.kind == "mixed" and how not in ("auto", "draw"):
        allowed = (
            "be 'auto' (the mean of real columns, the most probable value of others) or 'draw' "
            "for mixed columns"
        )
        raise invalid(owner, "how", allowed, repr(how))
    if encoding.kind == "category" and how == "mean":
        raise invalid(
            owner, "how", "be 'mode' or 'draw' for categories, which have no mean", repr(how)
        )
    if how == "mode" and not model.support.discrete:
        raise invalid(owner, "how", "be 'mean' or 'draw' for real columns", repr(how))


@torch.no_grad()
def fill(model: EnergyModel, z: Tensor, how: str = "auto", *, generator: torch.Generator) -> Tensor:
    """``z`` with its NaN replaced by the mean, the mode or a draw of what is missing given what is
    not, ``(N, D)``.
    """
    posterior: Posterior = _posterior
    if reason_against("Gibbs", model) is not None and reason_against("MALA", model) is None:
        posterior = gradient_posterior
    else:
        require("Gibbs", model)
    if not z.isnan().any():
        return z
    model, discrete = in_double(model), model.support.discrete
    values = model.support.values() if discrete else torch.ones(1)
    filled = _by_states(model, z.double(), how == "draw", posterior, generator)
    if how == "mode" or (how == "auto" and discrete):
        filled = values.double()[filled.argmax(-1)]
    elif how != "draw":
        filled = filled @ values.double()
    return torch.where(z.isnan(), filled, z.double())


def _by_states(
    model: EnergyModel, z: Tensor, one_draw: bool, posterior: Posterior, generator: torch.Generator
) -> Tensor:
    """What :func:`_posterior` gives of all rows: exactly where the missing values of a row have few
    states, by chains for the others.
    """
    K, count = len(model.support.values()) if model.support.discrete else 0, z.isnan().sum(1)
    # missing values whose states are few
    most = int(math.log(FEW_STATES, K) + 1e-9) if K > 1 else -1
    parts = [
        (rows, _summed(model, z[rows], one_draw, generator))
        for m in range(most + 1)
        if (rows := count == m).any()
    ]
    if (many := count > most).any():
        chains = 1 if one_draw else CHAINS
        step = max(1, CELLS // (chains * z.shape[1] * max(1, K)))
        found = [
            posterior(model, part, one_draw, chains, generator) for part in z[many].split(step)
        ]
        parts.append((many, torch.cat(found)))
    filled = z.new_empty(len(z), *parts[0][1].shape[1:])
    for rows, part in parts:
        filled[rows] = part
    return filled


def _summed(model: EnergyModel, z: Tensor, one_draw: bool, generator: torch.Generator) -> Tensor:
    """As :func:`_posterior`, from the energies of all states of what is missing, as many values
    from every row.
    """
    values, m = model.support.values().to(z), int(z[0].isnan().sum())
    states = torch.cartesian_prod(*[values] * m).view(-1, m) if m else z.new_empty(1, 0)
    places, found = z.isnan().nonzero()[:, 1].view(len(z), 1, m), []
    step = max(1, CELLS // (len(states) * z.shape[1]))
    for part, place in zip(z.split(step), places.split(step), strict=True):
        x = part.nan_to_num()[:, None].repeat(1, len(states), 1)
        x.scatter_(2, place.expand(-1, len(states), -1), states.expand(len(part), -1, -1))
        p = torch.softmax(-model(x), 1)
        if one_draw:
            u = rng.uniform((len(part), 1), p, generator)
            found.append(x[torch.arange(len(part)), (u > p.cumsum(1)[:, :-1]).sum(1)])
        else:
            shares = [(p[..., None] * (x == value)).sum(1) for value in values]
            found.append(torch.stack(shares, -1))
    return torch.cat(found)


def _posterior(
    model: EnergyModel, z: Tensor, one_draw: bool, chains: int, generator: torch.Generator
) -> Tensor:
    """The last state of the first chain, ``(N, D)``, or the average of the chains' conditionals,
    which has less noise than their states: probabilities of every value, ``(N, D, K)``, on a
    discrete support, else means, ``(N, D, 1)``.
    """
    known = z.expand(chains, *z.shape)
    missing = known.isnan()
    start = model.reference().draw(chains * len(z), generator=generator).view_as(known).to(z)
    x = torch.where(missing, start, known)
    in_blocks = Capability.CONDITIONALS in model.capabilities
    sweep = clamped_block_sweep if in_blocks else clamped_site_sweep
    for _ in range(BURN_IN):
        x, _ = sweep(model, x, missing, generator)
    if one_draw:
        return x[0]
    total = torch.zeros((), dtype=x.dtype)
    for _ in range(KEPT):
        x, conditional = sweep(model, x, missing, generator)
        total = total + conditional.mean(0)
    return total / KEPT


def clamped_block_sweep(
    model: EnergyModel, x: Tensor, missing: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Hidden units given x, then the missing visible ones given h; returns the state, and
    probabilities or means of the conditionals.
    """
    units = cast(_Conditionals, model)
    h = rng.draw(units.hidden_given_visible(x), generator)
    conditional = units.visible_given_hidden(h)
    drawn = torch.where(missing, rng.draw(conditional, generator), x)
    if isinstance(conditional, Categorical):
        return drawn, conditional.probs
    mean = conditional.mean
    return drawn, torch.stack([1 - mean, mean], -1) if model.support.discrete else mean[..., None]


def clamped_site_sweep(
    model: EnergyModel, x: Tensor, missing: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The missing coordinates one after the other, each from its conditional; returns the state and
    the conditionals.
    """
    x, values = x.clone(), model.support.values().to(x)
    seen = x.new_zeros(*x.shape, len(values))
    for i in missing.flatten(0, -2).any(0).nonzero().flatten().tolist():
        p = torch.softmax(-model.site_energies(x, i, values), 0).movedim(0, -1)
        u = rng.uniform((*p.shape[:-1], 1), p, generator)
        drawn = values[(u > p.cumsum(-1)[..., :-1]).sum(-1)]
        x[..., i] = torch.where(missing[..., i], drawn, x[..., i])
        seen[..., i, :] = p
    return x, seen
