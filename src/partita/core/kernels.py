"""What the users of a Markov kernel do with the state of its chains when the target or the place of
the chains changes.

A kernel that remembers energies, gradients or step sizes offers ``place(model, state, x)`` (the
same chains at ``x`` under ``model``) and ``reopen(state)`` (the model has learned, so the warm-up
goes on). One that remembers only x needs neither. A kernel whose step sizes can be tuned along a
path and then frozen offers ``tuned(model, generator=...)``.
"""

from typing import Any

import torch
from torch import Tensor

from partita.core.protocols import EnergyModel, Field, Sampler


def placed(
    kernel: Sampler,
    model: EnergyModel,
    state: Any,
    x: Tensor,
    field: Field | None = None,
    *,
    generator: torch.Generator,
) -> Any:
    """The state of chains at ``x`` under ``model``: what was learned about step sizes stays, what
    depends on the target is new.
    """
    if hasattr(kernel, "place"):
        return kernel.place(model, state, x)  # type: ignore[attr-defined]
    if hasattr(state, "field"):
        return state._replace(x=x, field=field)
    return kernel.init(model, x, generator=generator)


def refreshed(
    kernel: Sampler,
    model: EnergyModel,
    state: Any,
    x: Tensor | None = None,
    *,
    generator: torch.Generator,
) -> Any:
    """The state after the parameters of ``model`` have changed; at ``x``, if the chains begin
    elsewhere.
    """
    if x is not None or hasattr(kernel, "place"):
        state = placed(kernel, model, state, state.x if x is None else x, generator=generator)
    return kernel.reopen(state) if hasattr(kernel, "reopen") else state  # type: ignore[attr-defined]


def tuned(kernel: Sampler, model: EnergyModel, *, generator: torch.Generator) -> Sampler:
    """The kernel with step sizes fixed at every temperature by a pilot run; itself where it has
    none to tune.
    """
    return kernel.tuned(model, generator=generator) if hasattr(kernel, "tuned") else kernel  # type: ignore[attr-defined]
