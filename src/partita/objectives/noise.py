r"""Noise to contrast data with: anything with exact log-probabilities and draws, made to look
alike.

.. math:: \log p_n(u), \qquad y \sim p_n, \qquad p_n(x) > 0 \text{ wherever there are data}
          (theory/objectives.md, section 6.1)

Letters: n draws, D visible.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from partita.core import rng
from partita.core.arguments import check_width
from partita.core.protocols import Data, EnergyModel, Model, Reference
from partita.divergences.kl import log_prob_anywhere
from partita.errors import InputError, invalid
from partita.runtime.seeds import stretches

ROWS_AT_ONCE = 8192
PROBED = 64  # draws looked at before a fit


@runtime_checkable
class Noise(Protocol):
    """A distribution with exact log-probabilities and draws."""

    def log_prob(self, x: Tensor) -> Tensor: ...

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor: ...


Contrast = Noise | Distribution | None  # what may be given as noise; None is the model's reference


@dataclass(frozen=True)
class ReferenceNoise:
    """A model's own reference, fitted to the data's base rates."""

    reference: Reference

    def log_prob(self, x: Tensor) -> Tensor:
        return -self.reference.free_energy(x) - self.reference.log_z

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        return self.reference.draw(n, generator=generator)


@dataclass(frozen=True)
class DistributionNoise:
    """A ``torch.distributions`` object over rows; ``log_prob`` is minus infinity outside its
    support, with no exception.
    """

    distribution: Distribution

    def log_prob(self, x: Tensor) -> Tensor:
        return log_prob_anywhere(self.distribution, x).to(x)

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        rows = self.distribution
        return rng.draw(rows.base_dist if isinstance(rows, Independent) else rows, generator, (n,))


def as_noise(noise: Contrast, model: EnergyModel) -> Noise:
    """What was given, or the model's reference, with ``log_prob`` and ``draw`` over rows of the
    model's width.
    """
    if noise is None:
        return ReferenceNoise(model.reference())
    if isinstance(noise, Distribution):
        return DistributionNoise(_over_rows(noise, model.support.width))
    if isinstance(noise, Noise):
        return noise
    allowed = "have log_prob and exact draws, as a torch distribution or a model with log_prob has"
    raise invalid("NCE", "noise", allowed, noise_title(noise))


def _over_rows(noise: Distribution, width: int) -> Distribution:
    """One distribution over rows: a single coordinate is repeated, independent ones are taken
    together.
    """
    if noise.event_shape == () and noise.batch_shape in ((), (1,), (width,)):
        return Independent(noise.expand(torch.Size((width,))), 1)
    if noise.batch_shape == () and noise.event_shape == (width,):
        return noise
    got = f"batch shape {tuple(noise.batch_shape)} and event shape {tuple(noise.event_shape)}"
    raise invalid("NCE", "noise", f"be a distribution of rows of {width} columns", got)


@torch.no_grad()
def check_noise(
    noise: Contrast, model: EnergyModel, data: Data, *, generator: torch.Generator
) -> None:
    """Refuse noise of another kind than the data, whose draws leave the model's support, or that
    cannot reach every row.
    """
    name, ready = noise_title(noise), as_noise(noise, model)
    if _discrete(noise, model) != model.support.discrete:
        here, there = ("masses", "densities") if model.support.discrete else ("densities", "masses")
        allowed = f"have {here}, as {model.title()} has"
        raise invalid("NCE", "noise", allowed, f"{name}, which has {there}")
    draws = ready.draw(PROBED, generator=rng.child(generator))
    check_width("NCE", "draws of noise", draws, model.support.width, model.title())
    try:
        model.support.check(draws, "NCE", "draws of noise")
    except InputError as error:
        raise InputError(f"{error} The noise was {name}.") from None
    for index in stretches(len(data), ROWS_AT_ONCE):
        x = data.batch(index, generator=rng.child(generator)).x.to(model.like)
        check_covers(ready.log_prob(x), name, int(index[0]))


def check_covers(log_prob: Tensor, name: str, start: int = 0) -> None:
    """Every row has a positive probability under the noise; elsewhere the contrast is infinite and
    teaches nothing.
    """
    bad = (~torch.isfinite(log_prob)).nonzero().flatten()
    if len(bad):
        value, row = float(log_prob[bad[0]]), start + int(bad[0])
        got = f"{name}, whose log-probability is {value:g} at row {row}"
        remedy = "Choose wider noise, or leave it out."
        raise invalid("NCE", "noise", "have a support that covers the data", got, remedy)


def _discrete(noise: Contrast, model: EnergyModel) -> bool:
    """Whether probabilities of the noise are masses; the model's own kind where the noise does not
    say.
    """
    if isinstance(noise, Distribution):
        with suppress(NotImplementedError):  # some distributions of torch declare no support
            return bool(noise.support and noise.support.is_discrete)
    elif isinstance(noise, Model):
        return noise.support.discrete
    return model.support.discrete


def noise_title(noise: Contrast) -> str:
    """The noise in a word, for messages."""
    if noise is None:
        return "the model's reference"
    return noise.title() if isinstance(noise, Model) else type(noise).__name__
