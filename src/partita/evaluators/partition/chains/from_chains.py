r"""log Z from chains that somebody already has: bridge sampling, with the learned harmonic mean and
importance sampling beside it.

.. math:: \log \hat Z = \tfrac12 \big(\Delta_{A \mid B} + \Delta_{B \mid A}\big)
          (theory/evidence.md, eq. 60.10)

Each half of every chain is bridged (60.6) to a proposal that was fitted to the other half. What is
trusted: chains that have mixed, from this very density as far as tests can tell, whose estimates
agree. Modes that no chain visited cannot be seen.

Letters: C chains, n draws of each, D coordinates.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from partita.core.arguments import check_generator, check_level
from partita.core.batched import Batched, LogDensity
from partita.core.quantity import Quantity
from partita.diagnostics.chains import summarize_chains
from partita.diagnostics.weights import summarize_weights
from partita.errors import invalid
from partita.evaluators.partition.chains.bridge_sampling import bridge
from partita.evaluators.partition.chains.chain_evidence import Evidence, judged
from partita.evaluators.partition.chains.harmonic import harmonic_mean
from partita.evaluators.partition.chains.same_density import same_density
from partita.tables.saved_chains import SavedChains, read_chains

OWNER = "log_z.from_chains"
LEAST, LEAST_EACH = 50, 4  # draws in all; and for each coordinate
STRETCHES = 4  # that one chain is read as
MOST, MOST_BY_LOOP = 20_000, 4000  # draws that are used; others are thinned
FAR, LOOKS = 6.0, 4  # deviations by which a coordinate is moved, from so many draws
SINGULAR = 1e-10  # smallest eigenvalue of the correlations


def from_chains(
    draws: object,
    log_density: LogDensity,
    *,
    level: float = 0.95,
    burn_in: int | None = None,
    generator: torch.Generator,
) -> Quantity:
    """log of the integral of exp(log_density), from draws of Markov chains that have it as their
    target.

    Arguments:
        draws: An array ``(chains, draws, D)`` or ``(draws, D)``, a dict of arrays, a frame, an
            ArviZ InferenceData, an emcee sampler or a CmdStanPy fit
            (:mod:`partita.tables.saved_chains`).
        log_density: The unnormalized log density in the coordinates of the draws, of a batch or one
            row, or of a dict of variables where draws have names (:mod:`partita.core.batched`).
        level: With which the interval covers.
        burn_in: Draws of each chain to leave out; unless given, found for an emcee sampler and none
            elsewhere.
        generator: Source of the proposals.
    """
    check_level(OWNER, level)
    check_generator(OWNER, generator)
    saved = read_chains(draws, burn_in=burn_in, owner=OWNER)
    _check_draws(saved)
    target = Batched(log_density, saved.values.shape[-1], layout=saved.layout, owner=OWNER)
    single = len(saved.values) == 1
    x = _stretched(saved.values) if single else saved.values
    target(x[0, :LOOKS])
    x = _thinned(x, MOST if target.batched else MOST_BY_LOOP)
    log_f = target(x.flatten(0, 1)).view(x.shape[:2])
    _check_density(log_f, x, target, saved)
    evidence = _gathered(x, log_f, target, single, generator)
    q = judged(evidence, level)
    about = {
        "evaluations": target.calls,
        "nan": target.nans,
        "how": target.how,
        "source": saved.source,
        "burn_in": saved.dropped,
        "chains": evidence.chains,
    }
    return replace(q, details={**q.details, **about})


def _check_draws(saved: SavedChains) -> None:
    C, n, D = saved.values.shape
    least = max(LEAST, LEAST_EACH * (D + 1))
    if C * n < least or n < 2 * STRETCHES:
        allowed = f"hold at least {least} draws of {D} coordinate{'s' if D > 1 else ''}"
        allowed += f", {2 * STRETCHES} of each chain"
        got = f"{C * n} in {C} chain{'s' if C > 1 else ''}"
        raise invalid(OWNER, "draws", allowed, got, "Run the chains for longer.")
    flat = saved.values.flatten(0, 1)
    spread = flat.std(0)
    still = (spread <= 1e-12 * flat.abs().amax(0)).nonzero().flatten().tolist()
    if still:
        got = f"one value throughout {saved.coordinate(still[0])}"
        raise invalid(OWNER, "draws", "vary in every coordinate", got, "Take it out.")
    values, axes = torch.linalg.eigh(torch.corrcoef(flat.mT).reshape(D, D))
    if float(values[0]) < SINGULAR:
        tied = axes[:, 0].abs().topk(min(2, D)).indices.tolist()
        got = " and ".join(saved.coordinate(i) for i in tied) + " that follow from one another"
        remedy = "Leave out variables that are computed from others."
        raise invalid(OWNER, "draws", "have coordinates that vary freely", got, remedy)


def _check_density(log_f: Tensor, x: Tensor, target: Batched, saved: SavedChains) -> None:
    """Some draw has a density, and it depends on every coordinate."""
    if not bool((log_f > -math.inf).any()):
        what = "NaN" if target.nans >= log_f.numel() else "minus infinity"
        remedy = "Check the order and the units of the coordinates."
        allowed = "be finite at draws of its own chains"
        raise invalid(OWNER, "log_density", allowed, f"{what} at all {log_f.numel()}", remedy)
    D, flat, height = x.shape[-1], x.flatten(0, 1), log_f.flatten()
    rows = (height > -math.inf).nonzero().flatten()
    rows = rows[torch.linspace(0, len(rows) - 1, LOOKS).round().long()]
    sign = 1.0 - 2 * (torch.arange(LOOKS) % 2).double()
    shift = FAR * sign[:, None, None] * torch.diag(flat.std(0))
    moved = target((flat[rows][:, None] + shift).flatten(0, 1)).view(LOOKS, D)
    # a constant is one that rounding cannot tell from it
    same = ((moved - height[rows][:, None]).abs() <= 1e-12 * (1 + height[rows].abs())[:, None]).all(
        0
    )
    if bool(same.any()):
        name = "any coordinate" if bool(same.all()) else saved.coordinate(int(same.nonzero()[0]))
        remedy = (
            "Leave variables that it does not read out of the draws: it has no integral over them."
        )
        allowed = "depend on every coordinate of the draws"
        raise invalid(
            OWNER, "log_density", allowed, f"one that does not change with {name}", remedy
        )


def _stretched(x: Tensor) -> Tensor:
    """One chain as stretches, ``(1, n, D)`` to ``(4, n // 4, D)``."""
    n = x.shape[1] - x.shape[1] % STRETCHES
    return x[0, x.shape[1] - n :].view(STRETCHES, n // STRETCHES, -1)


def _thinned(x: Tensor, most: int) -> Tensor:
    """Every few draws of each chain, the last of them included."""
    every = math.ceil(x.shape[0] * x.shape[1] / most)
    return x.flip(1)[:, ::every].flip(1)


def _gathered(
    x: Tensor, log_f: Tensor, target: Batched, single: bool, generator: torch.Generator
) -> Evidence:
    none = log_f == -math.inf
    # draws that have no density condemn the chains; what is left is computed for the interval
    log_f = torch.where(none, log_f[~none].min(), log_f)
    half = x.shape[1] // 2
    parts = ((x[:, :half], log_f[:, :half]), (x[:, -half:], log_f[:, -half:]))
    bridges, harmonics = [], []
    for (other, _), (own, height) in (parts, parts[::-1]):
        found = bridge(other, own, height, target, generator=generator)
        bridges.append(found)
        harmonics.append(harmonic_mean(found.proposal, own, height, target, generator=generator))
    log_w = torch.cat([one.log_w for one in bridges])
    bounded = bool((log_w == -math.inf).any())
    return Evidence(
        (bridges[0], bridges[1]),
        (harmonics[0], harmonics[1]),
        summarize_weights(log_w),
        summarize_chains(torch.cat([x, log_f[..., None]], -1)),
        same_density(x, log_f, target, bounded=bounded, generator=generator),
        int(none.sum()),
        log_f.numel(),
        single,
    )
