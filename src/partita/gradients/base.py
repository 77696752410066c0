r"""The one interface of all estimators of a gradient of an expectation.

.. math:: \nabla_\varphi E_{q_\varphi(z)}[f(z)] = E_q\big[f(z) \nabla_\varphi \log q_\varphi(z)\big]
          + E_q\big[\nabla_\varphi f(z)\big]
          (theory/gradients.md, eq. 40.2)

An estimator draws z and returns a surrogate for each row: a number whose value is f at the draws
and whose gradient is the estimate. What it learns on the way (baselines, temperatures) is a state
that is handed in and returned.

Letters: B rows, H units of a layer, L layers, C columns of the context.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from partita.core.arguments import Checked
from partita.errors import Unsupported, invalid
from partita.gradients.latents import Ancestral, Chain, Draws, LatentLayer, Relaxable, ancestral

Function = Callable[[Draws], Tensor]
Kind = TypeVar("Kind", bound=Relaxable)


class State(NamedTuple):
    """What an estimator keeps between calls."""

    module: (
        nn.Module
    )  # trained by the loss ``extra``; without parameters where there is nothing to train
    running: Tensor  # averages of earlier draws, (L, number of them); constant where there are none


class Estimate(NamedTuple):
    """One call's result."""

    surrogate: Tensor  # (*): its gradient estimates that of E_q[f], row by row
    state: State
    # (): the loss of the state's module, zero without one; moves nothing else
    extra: Tensor = torch.zeros(())

    @property
    def value(self) -> Tensor:
        """f at the draws, without gradients, ``(*)``; at relaxed draws where the estimator relaxes
        f itself.
        """
        return self.surrogate.detach()


class Noisy(NamedTuple, Generic[Kind]):
    """Draws made of noisy scores, the layers they were made at, and the uniform noise."""

    draws: Draws
    layers: list[Kind]
    noise: Draws


class Target(NamedTuple):
    """What is differentiated, E_q[f(z)] for rows about a context, and the source of draws."""

    q: Chain
    f: Function
    context: Tensor | None
    generator: torch.Generator

    def draw(self, shape: Sequence[int] = ()) -> tuple[Ancestral, Tensor]:
        """Draws of all layers, ``shape`` of them for each row, and f there."""
        drawn = ancestral(self.q, self.generator, shape)
        return drawn, self.values(drawn.draws, drawn.layers[0])

    def noisy(
        self, of_kind: Callable[[LatentLayer], Kind], make: Callable[[Kind, Tensor], Tensor]
    ) -> tuple[Noisy[Kind], Tensor]:
        """Draws that ``make`` makes of the noisy scores of each layer, and f there."""
        draws: Draws = ()
        noise: Draws = ()
        layers: list[Kind] = []
        for conditional in self.q:
            layers.append(of_kind(conditional(draws)))
            noise = (*noise, layers[-1].noise(self.generator))
            draws = (*draws, make(layers[-1], layers[-1].scores(noise[-1])))
        return Noisy(draws, layers, noise), self.values(draws, layers[0])

    def values(self, draws: Draws, first: LatentLayer) -> Tensor:
        """f at draws whose first layer is ``first``, checked: one number for each row."""
        result, rows = self.f(draws), draws[0].shape[: draws[0].dim() - first.event]
        if result.shape != rows:
            allowed = f"return one number for each row, shape {tuple(rows)}"
            got, remedy = f"shape {tuple(result.shape)}", "Sum over units, not over rows."
            raise invalid("gradient estimator", "f", allowed, got, remedy)
        return result

    def context_of(self, before: Draws, like: Tensor) -> Tensor:
        """What a layer's baseline may look at: a constant, the context and the layers before,
        ``(*, 1 + C + ...)``.
        """
        rows = like.shape
        parts = [like.new_ones(*rows, 1)]
        if self.context is not None:
            parts.append(self.context.to(like).expand(*rows, self.context.shape[-1]))
        parts += [z.detach().reshape(*rows, -1) for z in before]
        return torch.cat(parts, -1)


@dataclass(frozen=True)
class Estimator(Checked, ABC):
    """The gradient of E_q[f(z)], and of f itself at draws from q, from a few evaluations of f."""

    relaxes: ClassVar[bool] = False  # needs f, or its slope, between the values that z can take
    surrogate_is_relaxed: ClassVar[bool] = False  # the value is f at relaxed draws, and no bound
    averages: ClassVar[int] = 1  # running numbers of each layer

    @property
    def unbiased(self) -> bool:
        """Whether the mean of the estimates is the gradient."""
        return not self.surrogate_is_relaxed

    @property
    def bound(self) -> int:
        """Draws over which the target averages exp f before its log: 1 is E[f] itself."""
        return 1

    def cost(self, layers: int = 1) -> int:
        """Evaluations of f for each row and estimate."""
        return 1

    def estimate(
        self,
        q: Chain,
        f: Function,
        state: State,
        context: Tensor | None = None,
        *,
        generator: torch.Generator,
    ) -> Estimate:
        """A surrogate for each row.

        Arguments:
            q: The layers, each as a function of those before it.
            f: From draws of all layers to one number for each row, ``(*)``; leading dimensions
                broadcast.
            state: From :meth:`init`, or from the last estimate.
            context: What the rows are about, ``(*, C)``, for baselines that depend on it.
            generator: Source of the draws.
        """
        return self.estimate_of(Target(q, f, context, generator), state)

    @abstractmethod
    def estimate_of(self, target: Target, state: State) -> Estimate:
        """The same of a target."""

    def init(
        self, widths: Sequence[int], context: int = 0, *, like: Tensor, generator: torch.Generator
    ) -> State:
        """The first state for layers of these widths and a context of so many columns."""
        return State(nn.Module(), like.new_zeros(len(widths), self.averages))


def pull(t: Tensor) -> Tensor:
    """A zero that carries the gradient of ``t``."""
    return t - t.detach()


def context_widths(widths: Sequence[int], context: int) -> list[int]:
    """Columns of :meth:`Target.context_of` for each layer."""
    return [1 + context + sum(widths[:i]) for i in range(len(widths))]


def require_kind(owner: str, layer: LatentLayer, kind: type[Kind], instead: str) -> Kind:
    """Return the layer if it is of the kind that an estimator is made for."""
    if not isinstance(layer, kind):
        raise Unsupported(
            f"{owner} cannot run on {type(layer).__name__} latents: it is made for "
            f"{kind.__name__}. Use {instead} instead."
        )
    return layer
