r"""Sequences, one step after the other: exact likelihoods from a causal network.

.. math:: \log p(x) = \sum_{t=1}^{l} \log p(x_t \mid c_t), \qquad c_t = \mathrm{net}(x_0, \ldots,
          x_{t-1})_t
    (theory/sequences.md, eq. 24.1)

A row that ends early has NaN from there on: what follows is summed out, and its likelihood is that
of what is there.

Letters: B batch, L length, l length of one row, E numbers in a step, K states, W width of the
network.
"""

from typing import Annotated

import torch
from torch import Generator, Tensor, nn

from partita.core import rng
from partita.core.arguments import Flag, PositiveInt, Several, check_count, one_of
from partita.core.protocols import Capability, Data, DirectedModel
from partita.core.registry import MODELS
from partita.core.support import Sequence
from partita.errors import invalid
from partita.models.directed.autoregressive.emissions import Sharpness
from partita.models.directed.autoregressive.steps import BitColumns, RealColumns, Step, Token
from partita.nets.base import Options
from partita.nets.sequence import SequenceNet

CELLS = 1 << 22  # steps x width at once where no gradient is needed
FIRST_ROWS = 512  # of the data, from which biases start


@MODELS.register
class Autoregressive(DirectedModel):
    """A density of sequences with backbone ``"hyena"``, ``"h3"``, ``"ssm"``, ``"attention"``,
    ``"conv"`` or ``"lstm"``.

    Arguments:
        length: L, the longest row.
        element: Of one step: ``"categorical"`` (``states`` tokens), ``"binary"`` (``size`` bits) or
            ``"real"`` (``size`` numbers).
        backbone: What mixes along the sequence.
        width, layers, expand, dropout, options: Of the :class:`partita.nets.SequenceNet`.
        hidden, components: Units, and normals of a mixture, that predict a step of bits or numbers.
        positions: Learn a vector for each place, for rows whose places mean something, as pixels
            do.
        generator: Source of the first weights.

    >>> model = Autoregressive(
    ...     3, states=2, width=8, layers=1, generator=torch.Generator().manual_seed(0)
    ... )
    >>> states = model.support.states(0, 8, torch.zeros(()))
    >>> round(model.log_prob(states).exp().sum().item(), 5)
    1.0
    """

    examples = {
        "Autoregressive, tokens": {"length": 16, "states": 4, "width": 8, "layers": 1},
    }
    capabilities = frozenset({Capability.LOG_PROB, Capability.ENDS})

    def __init__(
        self,
        length: PositiveInt,
        element: Annotated[str, one_of("categorical", "binary", "real")] = "categorical",
        *,
        states: Several = 2,
        size: PositiveInt = 1,
        backbone: str = "hyena",
        width: int = 128,
        layers: int = 4,
        expand: int = 4,
        dropout: float = 0.0,
        options: Options = None,
        hidden: PositiveInt = 128,
        components: PositiveInt = 8,
        positions: Flag = False,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.net = SequenceNet(
            width,
            layers,
            backbone,
            options=options,
            expand=expand,
            dropout=dropout,
            generator=generator,
        )
        self.capabilities = self.capabilities | {Capability.DROPS} if dropout else self.capabilities
        self.one: Step = {
            "categorical": lambda: Token(width, states, generator=generator),
            "binary": lambda: BitColumns(width, size, hidden, generator=generator),
            "real": lambda: RealColumns(width, size, hidden, components, generator=generator),
        }[element]()
        self.support, self.length = Sequence(self.one.element, length), length
        like = torch.empty(0, device=generator.device)
        self.first = nn.Parameter(0.5 * rng.normal((width,), like, generator))
        self.places = (
            nn.Parameter(0.1 * rng.normal((length, width), like, generator)) if positions else None
        )

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.log_prob(x, lengths)

    def log_prob(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """log p(x), exact, ``(*, l E) -> (*)``; rows end where ``lengths``, or trailing NaN,
        say.
        """
        return self.log_prob_steps(x, lengths).sum(-1)

    def log_prob_steps(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """log p(x_t | x_<t) of every step, ``(*, l E) -> (*, l)``; zero beyond the end of a row."""
        steps = self._as_steps(x)
        flat = steps.flatten(0, -3)
        if not len(flat):
            return x.new_zeros(*x.shape[:-1], steps.shape[-2])
        if lengths is None:
            ends = row_ends(flat)
        else:
            ends = check_ends(lengths.to(flat.device).flatten(), flat)
        longest = max(1, int(ends.max()))
        size = len(flat) if torch.is_grad_enabled() else max(1, CELLS // (longest * self.net.width))
        parts = [
            self._terms(*part)
            for part in zip(flat[:, :longest].split(size), ends.split(size), strict=True)
        ]
        terms = nn.functional.pad(torch.cat(parts), (0, steps.shape[-2] - longest))
        return terms.view(*x.shape[:-1], -1)

    def draw(
        self, n: int, *, temperature: float = 1.0, top_p: float = 1.0, generator: Generator
    ) -> Tensor:
        """``n`` independent rows of full length, exact at temperature 1 and top_p 1, ``(n, L
        E)``.
        """
        start = self.first.new_zeros(check_count("draw", "n", n), 0)
        return self.extend(
            start, self.length, temperature=temperature, top_p=top_p, generator=generator
        )

    @torch.no_grad()
    def extend(
        self,
        prefix: Tensor,
        steps: int,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        generator: Generator,
    ) -> Tensor:
        """The prefix and ``steps`` more, ``(n, l E) -> (n, (l + steps) E)``, each from its
        conditional given all before it.

        Arguments:
            temperature: Draw from p^(1/T), renormalized at every step.
            top_p: Keep only the likeliest states that hold this share of the mass.
        """
        sharpness = Sharpness(temperature, top_p)
        sharpness.check("extend", self.support.discrete)
        x = self._prefix(prefix)
        known = 0 if x is None else x.shape[1]
        length = known + check_count("extend", "steps", steps)
        if self.places is not None and length > len(self.places):
            allowed = f"stay within the {len(self.places)} places that were learned"
            raise invalid("extend", "steps", allowed, length)
        state, u = self.net.start(len(prefix), length), self.first.expand(len(prefix), -1)
        rows: list[Tensor] = []
        for t in range(length):
            context, state = self.net.step(u if self.places is None else u + self.places[t], state)
            if x is not None and t < known:
                rows.append(x[:, t])
            else:
                rows.append(self.one.draw(context, sharpness, generator=generator))
            u = self.one.embed(rows[-1])
        return torch.stack(rows, 1).flatten(1)

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        """Biases, and the scale of real values, from the base rates of some training rows."""
        index = rng.permutation(len(data), generator)[:FIRST_ROWS].cpu()
        batch = data.batch(index, generator=generator)
        steps = self._as_steps(batch.x)
        ends = row_ends(steps) if batch.lengths is None else batch.lengths
        there = torch.arange(steps.shape[1]) < ends[:, None]
        self.one.initialize(batch, steps[there])

    def title(self) -> str:
        made = self.arguments
        return (
            f"Autoregressive({made['backbone']}, {made['layers']} x {made['width']}, "
            f"{self.length} steps of {self.one.element})"
        )

    def contexts(self, steps: Tensor) -> Tensor:
        """What the network knows before each step, ``(B, l, E) -> (B, l, W)``."""
        first = self.first.expand(len(steps), 1, -1)
        u = torch.cat([first, self.one.embed(steps[:, :-1])], 1)
        return self.net(u if self.places is None else u + self.places[: u.shape[1]])

    def _terms(self, steps: Tensor, ends: Tensor) -> Tensor:
        there = torch.arange(steps.shape[1], device=steps.device) < ends[:, None]
        steps = self.one.check(steps.where(there.unsqueeze(-1), 0.0))
        return self.one.log_prob(self.contexts(steps), steps) * there

    def _as_steps(self, x: Tensor) -> Tensor:
        """``(*, l E) -> (*, l, E)``, at least one step and at most L."""
        size, L = self.one.element.width, self.length
        if x.dim() == 0 or x.shape[-1] == 0 or x.shape[-1] % size or x.shape[-1] > L * size:
            remedy = "Cut it into windows, or build the model with a larger length."
            raise invalid(
                "Autoregressive",
                "x",
                f"have from 1 to {L} steps of {size}",
                f"shape {tuple(x.shape)}",
                remedy,
            )
        steps = x.unflatten(-1, (-1, size))
        return steps.unsqueeze(0) if steps.dim() == 2 else steps

    def _prefix(self, prefix: Tensor) -> Tensor | None:
        """``(n, l E) -> (n, l, E)``, each step in the support; None where it is empty."""
        size = self.one.element.width
        if prefix.dim() != 2 or prefix.shape[1] % size:
            raise invalid(
                "extend",
                "prefix",
                f"have shape (n, l) with l a multiple of {size}",
                tuple(prefix.shape),
            )
        if not prefix.shape[1]:
            return None
        return self.one.check(prefix.to(self.first).unflatten(-1, (-1, size)), "extend", "prefix")


def check_ends(lengths: Tensor, steps: Tensor) -> Tensor:
    """Return ``lengths`` if they are one number from 1 to L for each row of steps, ``(B, L,
    E)``.
    """
    allowed = f"be {len(steps)} whole numbers from 1 to {steps.shape[1]}, one for each row"
    if lengths.shape != steps.shape[:1]:
        raise invalid("Autoregressive", "lengths", allowed, f"shape {tuple(lengths.shape)}")
    wrong = (lengths < 1) | (lengths > steps.shape[1])
    if wrong.any():
        raise invalid(
            "Autoregressive", "lengths", allowed, int(lengths[wrong][0]), "Leave empty rows out."
        )
    return lengths


def row_ends(steps: Tensor, owner: str = "Autoregressive") -> Tensor:
    """The number of steps before trailing NaN, ``(B, L, E) -> (B,)``; NaN anywhere else is
    refused.
    """
    missing = steps.isnan()
    gone = missing.any(-1)
    ends = steps.shape[1] - gone.sum(1)
    late = torch.arange(steps.shape[1], device=steps.device) >= ends[:, None]
    whole = torch.equal(gone, late) and torch.equal(missing.all(-1), gone)
    if not whole or bool((ends == 0).any()):
        remedy = "Only the end of a row can be left out of a sequence."
        raise invalid(
            owner,
            "x",
            "be finite up to the end of each row",
            "nan before it, or an empty row",
            remedy,
        )
    return ends
