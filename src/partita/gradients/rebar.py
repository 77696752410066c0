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

from partita.core.checks import check_count, check_real
from partita.gradients.base import (
    Estimate,
    Estimator,
    Function,
    State,
    context_of,
    context_widths,
    pull,
    require_kind,
    values,
)
from partita.gradients.latents import Chain, Draws, Relaxable
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
        self.log_temperature = nn.Parameter(
            torch.full((len(widths),), temperature, device=device).log()
        )
        self.nets = nn.ModuleList()
        for width, context in zip(widths, contexts, strict=True) if hidden else ():
            size = width + context
            net = MLP(size, 1, widths=(hidden,), activation="tanh", generator=generator)
            self.nets.append(net)

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

    def estimate(
        self,
        q: Chain,
        f: Function,
        state: State,
        context: Tensor | None = None,
        *,
        generator: torch.Generator,
    ) -> Estimate:
        draws, layers, noise = self._drawn(q, generator)
        value = values(f, draws, layers[0])
        known, surrogate, size = value.detach(), value, value.new_zeros(())
        # inside its wrapper, through which only slopes go back, below
        control = cast(Control, getattr(state.module, "module", state.module))
        for i, layer in enumerate(layers):
            gradient = self._gradient(
                i, layer, q, f, draws, noise, control, known, context, generator
            )
            surrogate = surrogate + pull(layer.total(gradient.detach() * layer.logits))
            size = size + layer.total(gradient.square()).mean()
        return Estimate(surrogate, known, self._extra(state.module, size), state)

    def _drawn(self, q: Chain, generator: torch.Generator) -> tuple[Draws, list[Relaxable], Draws]:
        """Hard draws of all layers, the layers, and the uniform noise behind them."""
        draws, layers, noise = (), [], ()
        for conditional in q:
            owner, found = type(self).__name__, conditional(draws)
            layer = require_kind(owner, found, Relaxable, "Reparameterization")
            u = layer.noise(generator)
            layers.append(layer)
            noise = (*noise, u)
            draws = (*draws, layer.harden(layer.scores(u)).detach())
        return draws, layers, noise

    def _gradient(
        self,
        i: int,
        layer: Relaxable,
        q: Chain,
        f: Function,
        draws: Draws,
        noise: Draws,
        control: Control,
        known: Tensor,
        context: Tensor | None,
        generator: torch.Generator,
    ) -> Tensor:
        """g of one layer in its logits, ``(*, H)``, differentiable in the control's parameters
        where they are learned.
        """
        leaf, tau = layer.leaf(), control.log_temperature[i].exp()
        conditional = leaf.conditional_scores(draws[i], layer.noise(generator))
        s = torch.stack([leaf.scores(noise[i]), conditional])  # both at once: (2, *, H)
        before = tuple(z.expand(2, *z.shape) for z in draws[:i])
        tail = relaxed_tail(
            q, (*before, leaf.soften(s, tau)), tuple(u.expand(2, *u.shape) for u in noise), tau
        )
        about = context_of(context, before, known.expand(2, *known.shape))
        free, held = control.scale[i] * f(tail) + control.free(i, about, s)
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

    temperature: float = 0.5
    learn: bool = True

    def __post_init__(self) -> None:
        check_real("Rebar", "temperature", self.temperature, 0.0, open_low=True)


@dataclass(frozen=True)
class Relax(Relaxed):
    """c is f at relaxed draws plus a network of the noisy scores and the context, all learned.

    Arguments:
        temperature: tau to start from.
        hidden: Units of the network's one hidden layer.
        learn: Whether scale, temperature and network are trained.
    """

    temperature: float = 0.5
    hidden: int = 32
    learn: bool = True

    def __post_init__(self) -> None:
        check_real("Relax", "temperature", self.temperature, 0.0, open_low=True)
        check_count("Relax", "hidden", self.hidden)
