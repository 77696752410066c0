r"""REBAR and RELAX: the score function with a relaxed f as control variate, whose own gradient
comes back through the draws.

.. math:: g = \big(f(z) - c(\tilde s)\big)\, \nabla_\varphi \log q(z) + \nabla_\varphi c(s) -
          \nabla_\varphi c(\tilde s), \qquad
          z = H(s), \quad \tilde s \sim p(s \mid z)          (theory/gradients.md, eq. 40.16)

REBAR (Tucker et al. 2017) has c(s) = eta f(soften(s, tau)), RELAX (Grathwohl et al. 2018) adds a
network of s to it. Any c keeps g unbiased, so eta, tau and the network are trained to make E[g^2]
small, which is the variance up to a constant.

Letters: B rows, H units of a layer, L layers, eta scale, tau temperature, u and v uniform noise, s
noisy scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from partita.core.arguments import PositiveFloat, PositiveInt
from partita.gradients.base import (
    Estimate,
    Estimator,
    Noisy,
    State,
    Target,
    context_widths,
    pull,
    require_kind,
)
from partita.gradients.latents import LatentLayer, Relaxable, hardened
from partita.gradients.relaxation import relaxed_tail
from partita.nets.mlp import MLP


class Control(nn.Module):
    """What is learned of the control variates: for each layer a scale, a temperature and, with
    ``hidden``, a network.
    """

    def __init__(
        self,
        widths: Sequence[int],
        contexts: Sequence[int],
        temperature: float,
        hidden: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        device = generator.device
        self.scale = nn.Parameter(torch.ones(len(widths), device=device))
        warmth = torch.full((len(widths),), temperature, device=device)
        self.log_temperature = nn.Parameter(warmth.log())
        self.nets = nn.ModuleList(
            MLP(width + context, 1, widths=(hidden,), activation="tanh", generator=generator)
            for width, context in zip(widths, contexts, strict=True)
            if hidden
        )

    def free(self, i: int, context: Tensor, s: Tensor) -> Tensor:
        """The network's part of layer i: a smooth function of s that is zero without networks,
        ``(*)``.
        """
        if not len(self.nets):
            return s.new_zeros(context.shape[:-1])
        squashed = torch.sigmoid(s).reshape(*context.shape[:-1], -1)
        return self.nets[i](torch.cat([context, squashed], -1))[..., 0]

    def forward(self, slopes: Sequence[Tensor]) -> Tensor:
        """A zero that carries these slopes to the parameters; a distributed wrapper all-reduces
        them.
        """
        pairs = zip(self.parameters(), slopes, strict=True)
        return torch.stack([pull(p.flatten() @ slope.flatten()) for p, slope in pairs]).sum()


class Relaxed(Estimator):
    """What REBAR and RELAX share; both evaluate f once at the draws and twice at relaxed ones for
    every layer.
    """

    relaxes = True
    temperature: float
    hidden: int = 0
    learn: bool

    def cost(self, layers: int = 1) -> int:
        return 1 + 2 * layers

    def init(
        self, widths: Sequence[int], context: int = 0, *, like: Tensor, generator: torch.Generator
    ) -> State:
        contexts = context_widths(widths, context)
        module = Control(widths, contexts, self.temperature, self.hidden, generator).to(like)
        return State(module, like.new_zeros(len(widths), self.averages))

    def estimate_of(self, target: Target, state: State) -> Estimate:
        drawn, surrogate = target.noisy(self._relaxable, hardened)
        known, size = surrogate.detach(), surrogate.new_zeros(())
        # inside its wrapper, through which only slopes go back, below
        control = cast(Control, getattr(state.module, "module", state.module))
        for i, layer in enumerate(drawn.layers):
            gradient = self._gradient(i, target, drawn, control, known)
            surrogate = surrogate + pull(layer.total(gradient.detach() * layer.logits))
            size = size + layer.total(gradient.square()).mean()
        return Estimate(surrogate, state, self._extra(state.module, size))

    def _relaxable(self, layer: LatentLayer) -> Relaxable:
        return require_kind(type(self).__name__, layer, Relaxable, "Reparameterization")

    def _gradient(
        self, i: int, target: Target, drawn: Noisy[Relaxable], control: Control, known: Tensor
    ) -> Tensor:
        """g of layer i in its logits, ``(*, H)``, differentiable in the control's parameters where
        they are learned.
        """
        draws, layers, noise = drawn
        leaf, tau = layers[i].leaf(), control.log_temperature[i].exp()
        conditional = leaf.conditional_scores(draws[i], leaf.noise(target.generator))
        s = torch.stack([leaf.scores(noise[i]), conditional])  # both at once: (2, *, H)
        before, twice = (
            tuple(t.expand(2, *t.shape) for t in tensors) for tensors in (draws[:i], noise)
        )
        tail = relaxed_tail(target.q, (*before, leaf.soften(s, tau)), twice, tau)
        about = target.context_of(before, known.expand(2, *known.shape))
        free, held = control.scale[i] * target.f(tail) + control.free(i, about, s)
        (slope,) = torch.autograd.grad((free - held).sum(), leaf.logits, create_graph=self.learn)
        return (known - held)[(..., *[None] * leaf.event)] * leaf.score(draws[i]).detach() + slope

    def _extra(self, control: nn.Module, size: Tensor) -> Tensor:
        """E[g^2], with a gradient in the control's parameters and in nothing else."""
        if not self.learn:
            return size.new_zeros(())
        slopes = torch.autograd.grad(
            size, list(control.parameters()), allow_unused=True, materialize_grads=True
        )
        return size.detach() + control(slopes)


@dataclass(frozen=True)
class Rebar(Relaxed):
    """c is f itself at relaxed draws, with learned scale and temperature.

    Arguments:
        temperature: tau to start from.
        learn: Whether scale and temperature are trained; else they stay at 1 and at
            ``temperature``.
    """

    temperature: PositiveFloat = 0.5
    learn: bool = True


@dataclass(frozen=True)
class Relax(Relaxed):
    """c is f at relaxed draws plus a network of the noisy scores and the context, all learned.

    Arguments:
        temperature: tau to start from.
        hidden: Units of the network's one hidden layer.
        learn: Whether scale, temperature and network are trained.
    """

    temperature: PositiveFloat = 0.5
    hidden: PositiveInt = 32
    learn: bool = True
