"""Run chains: burn in, thin, collect, and say whether they mixed."""

from collections.abc import Callable
from typing import Annotated, Generic, NamedTuple

import torch
from torch import Tensor

from partita.core import capability
from partita.core.arguments import (
    NonNegativeInt,
    PositiveInt,
    check_generator,
    check_role,
    check_rows,
    validated,
)
from partita.core.protocols import DirectedModel, EnergyModel, Sampler, Walk, check_kernel
from partita.diagnostics.chains import ChainReport, summarize_chains
from partita.errors import invalid
from partita.runtime import memory_limit


class Draws(NamedTuple, Generic[Walk]):
    """What a run of chains gives."""

    x: Tensor  # (C, n, D)
    state: Walk  # from which the chains can go on
    report: ChainReport
    acceptance: dict[str, float]  # means of the sampler's Info

    def flat(self) -> Tensor:
        """All draws as rows, ``(C n, D)``."""
        return self.x.flatten(0, 1)


@validated
@torch.no_grad()
def run(
    model: EnergyModel,
    sampler: Sampler[Walk],
    x: Annotated[Tensor, check_rows],
    *,
    draws: PositiveInt,
    burn_in: NonNegativeInt = 0,
    thin: PositiveInt = 1,
    statistic: Callable[[Tensor], Tensor] | None = None,
    generator: torch.Generator,
) -> Draws[Walk]:
    """Move the chains that start at ``x`` (C, D) and collect ``draws`` states of each.

    Arguments:
        burn_in: Steps before the first is collected.
        thin: Steps from one collected state to the next.
        statistic: What R-hat and ESS are about, ``(C, D) -> (C, K)``; the free energy by default.
    """
    x = x.to(model.like)
    model.support.check(x, "run")
    summarize = statistic or (lambda rows: model.free_energy(rows)[:, None])
    state = sampler.init(model, x, generator=generator)
    for _ in range(burn_in):
        state, _ = sampler.step(model, state, generator=generator)
    kept, summaries, infos = [], [], []
    for _ in range(draws):
        for _ in range(thin):
            state, info = sampler.step(model, state, generator=generator)
            infos.append(info.numbers())
        kept.append(state.x)
        summaries.append(summarize(state.x))
    report = summarize_chains(torch.stack(summaries, 1))
    means = {
        name: float(torch.stack([info[name].float().mean() for info in infos]).mean())
        for name in infos[0]
    }
    return Draws(torch.stack(kept, 1), state, report, means)


@validated
@memory_limit.named("sample")
def sample(
    model: EnergyModel | DirectedModel,
    n: PositiveInt,
    *,
    sampler: Sampler | None = None,
    burn_in: NonNegativeInt = 1000,
    x: Tensor | None = None,
    generator: torch.Generator,
) -> Tensor:
    """``n`` draws from a model, ``(n, D)``: exact for a directed model, else the ends of ``n``
    chains after ``burn_in`` steps.

    Chains start at draws from the model's reference (or at ``x``). :func:`run` collects longer runs
    and says whether they mixed.
    """
    check_generator("sample", generator)
    if isinstance(model, DirectedModel):
        if type(sampler).__name__ in capability.PARTS:
            # chains need a free energy; a sampler is not passed over in silence
            capability.require(type(sampler).__name__, model)
        return model.draw(n, generator=generator)
    chosen: Sampler = capability.default("sampler", model) if sampler is None else sampler
    check_kernel("sample", "sampler", chosen)
    check_role("sample", "model", model, ("reference",), "RBM(784, 500, ...)")
    if x is None:
        start = model.reference().draw(n, generator=generator)
    else:
        start = _states(x, n).to(model.like)
    return run(model, chosen, start, draws=1, burn_in=burn_in, generator=generator).x[:, 0]


def _states(x: object, n: int) -> Tensor:
    """The states that ``n`` chains start at."""
    try:
        states = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError):
        allowed = "be a tensor of states to start at"
        raise invalid("sample", "x", allowed, type(x).__name__) from None
    if states.dim() == 0 or len(states) != n:
        got = len(states) if states.dim() else "a number"
        raise invalid("sample", "x", f"have n = {n} rows, one for each chain", got)
    return states
