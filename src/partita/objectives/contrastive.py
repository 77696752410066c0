r"""Prototypical contrastive learning: two views of a row belong together, and so do a row and the
prototypes of its clusters.

.. math:: \ell = -\log \frac{e^{q \cdot k / \tau}}{e^{q \cdot k / \tau} + \sum_{i} e^{q \cdot k_i /
          \tau}}
          - \frac1M \sum_{m=1}^{M} \log \frac{e^{q \cdot c^m_s / \phi^m_s}}{\sum_j e^{q \cdot c^m_j
          / \phi^m_j}}
          (theory/contrastive.md, eq. 51.2, 51.3)

The first term is InfoNCE against a queue of keys from a slowly moving copy of the encoder; the
second needs clusters, which an E-step finds between epochs. Without prototypes, or during the
warm-up, InfoNCE is all. Li et al. (2021), Prototypical contrastive learning of unsupervised
representations; He et al. (2020), Momentum contrast.

Letters: B batch, N rows, E dimensions, Q queue, q query, k key, c prototype, s own cluster, M
granularities, tau temperature, phi its counterpart for a cluster.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from partita.core import capability
from partita.core.arguments import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    check_counts,
    check_role,
)
from partita.core.protocols import Batch, Data, Losses, Objective, unwrapped
from partita.errors import PartitaWarning, invalid
from partita.models.encoder import Encoder
from partita.objectives.augmentations import VectorMoves
from partita.objectives.prototypes import Prototypes, find_prototypes, no_prototypes
from partita.runtime.seeds import stretches

ROWS_AT_ONCE = 4096
Augment = Callable[[Tensor, torch.Generator], Tensor]
VECTORS = VectorMoves()


class ContrastState(NamedTuple):
    """The slow copy of the encoder, the queue of its keys with the rows they came from, the
    clusters, and the epochs gone by.
    """

    slow: dict[str, Tensor]
    queue: Tensor  # (Q, E)
    rows: Tensor  # (Q,), -1 where there is none yet
    prototypes: tuple[Prototypes, ...]
    epochs: Tensor


@dataclass(frozen=True)
class PCL(Objective[ContrastState]):
    """ProtoNCE, or InfoNCE where ``clusters`` is empty.

    Arguments:
        clusters: Numbers of prototypes, one for each granularity; more than there are rows become
            as many as there are.
        augment: Makes a view of rows, ``(x, generator) -> x``.
        queue: Keys Q that are kept; at most one for each row.
        momentum: By which the slow copy stays itself at each update.
        temperature: tau.
        alpha: In the concentration, against small clusters.
        warm_up: Epochs of InfoNCE before the first E-step.
        every: Epochs between two E-steps.
    """

    in_nats = False

    clusters: tuple[int, ...] = (10, 20, 40)
    augment: Augment = VECTORS
    queue: PositiveInt = 1024
    momentum: Share = 0.99
    temperature: PositiveFloat = 0.2
    alpha: PositiveFloat = 10.0
    warm_up: NonNegativeInt = 5
    every: PositiveInt = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.clusters, tuple | list):
            allowed = "be numbers of prototypes side by side, such as (10, 20, 40)"
            raise invalid("PCL", "clusters", allowed, repr(self.clusters))
        check_counts("PCL", "clusters", self.clusters, 2)
        check_role("PCL", "augment", self.augment, ("__call__",), "VectorMoves()")

    def init(self, model: Encoder, data: Data, *, generator: torch.Generator) -> ContrastState:
        capability.require("PCL", model)
        if max(self.clusters, default=0) > len(data):
            warnings.warn(
                f"PCL: clusters must be at most the number of rows, {len(data)}; got "
                f"{max(self.clusters)}. One for each row are made.",
                PartitaWarning,
                stacklevel=2,
            )
        slow = {name: value.detach().clone() for name, value in model.state_dict().items()}
        size, like = min(self.queue, len(data)), model.like
        queue = like.new_zeros(size, model.embedding)
        rows = torch.full((size,), -1, dtype=torch.long, device=like.device)
        blank = tuple(no_prototypes(k, len(data), queue) for k in self.clusters)
        return ContrastState(slow, queue, rows, blank, torch.zeros((), dtype=torch.long))

    def losses(
        self, model: Encoder, batch: Batch, state: ContrastState, *, generator: torch.Generator
    ) -> Losses[ContrastState]:
        if len(batch.x) < 2:
            allowed = "hold at least two rows, for a row is contrasted with others"
            raise invalid("PCL", "a batch", allowed, len(batch.x), "Raise batch_size.")
        bare = unwrapped(model)
        slow = momentum_average(state.slow, bare, self.momentum)
        one, other = (self.augment(batch.x, generator) for _ in range(2))
        q, k = model(one), keys(bare, slow, other)
        index = (torch.arange(len(q)) if batch.row is None else batch.row).to(q.device)
        contrast = info_nce(
            q, k, state.queue, self.temperature, state.rows == index[:, None], state.rows < 0
        )
        grouped = proto_nce(q, state.prototypes, index)
        loss = batch.mean(contrast + grouped)
        queue = torch.cat([k, state.queue])[: len(state.queue)]
        rows = torch.cat([index, state.rows])[: len(state.rows)]
        numbers = {
            "info_nce": contrast.mean(),
            "proto_nce": grouped.mean(),
            "alignment": alignment(q, k),
            "uniformity": uniformity(q),
            "e_steps": q.new_tensor(float(self._e_steps(int(state.epochs)))),
        }
        following = state._replace(slow=slow, queue=queue, rows=rows)
        return {"model": loss}, following, {name: v.detach() for name, v in numbers.items()}

    def epoch(
        self, model: Encoder, data: Data, state: ContrastState, *, generator: torch.Generator
    ) -> ContrastState:
        """The E-step, every few epochs after the warm-up: clusters of what the slow copy makes of
        all rows.
        """
        gone = state.epochs + 1
        if self._e_steps(int(gone)) == self._e_steps(int(state.epochs)):
            return state._replace(epochs=gone)
        v = embed(model, data, state.slow, generator=generator)
        found = tuple(
            find_prototypes(v, k, self.temperature, self.alpha, generator=generator)
            for k in self.clusters
        )
        return state._replace(prototypes=found, epochs=gone)

    def _e_steps(self, epochs: int) -> int:
        """E-steps up to the end of so many epochs; the first is at the end of the warm-up, and
        there is none before the first epoch.
        """
        first = max(1, self.warm_up)
        if not self.clusters or epochs < first:
            return 0
        return (epochs - first) // self.every + 1


def info_nce(
    q: Tensor,
    k: Tensor,
    queue: Tensor,
    temperature: float,
    same: Tensor | None = None,
    absent: Tensor | None = None,
) -> Tensor:
    """-log of the share of the right key among itself and the queue, ``(B, E), (B, E), (Q, E) ->
    (B)``; keys carry no gradient.

    ``same`` (B, Q) marks keys that came from the query's own row and ``absent`` (Q,) places not
    filled yet; neither is a negative.
    """
    k, negative = k.detach(), q @ queue.detach().mT / temperature
    for mask in (same, absent):
        negative = negative if mask is None else negative.masked_fill(mask, -torch.inf)
    positive = (q * k).sum(-1, keepdim=True) / temperature
    return torch.logsumexp(torch.cat([positive, negative], 1), 1) - positive[:, 0]


def proto_nce(q: Tensor, prototypes: tuple[Prototypes, ...], index: Tensor) -> Tensor:
    """-log of the share of the own prototype among all, averaged over granularities, ``(B, E) ->
    (B)``; zero before the first E-step.
    """
    ready = [p for p in prototypes if int(p.member[0]) >= 0]
    if not ready:
        return q.new_zeros(len(q))
    terms = [
        functional.cross_entropy(
            (q @ p.centers.mT / p.phi).masked_fill(p.phi.isinf(), -torch.inf),
            p.member[index],
            reduction="none",
        )
        for p in ready
    ]
    return torch.stack(terms).mean(0)


@torch.no_grad()
def momentum_average(slow: dict[str, Tensor], model: Encoder, momentum: float) -> dict[str, Tensor]:
    """The slow copy after an update: momentum times itself and the rest the model
    (theory/contrastive.md, eq. 51.5).

    Whole numbers, such as a layer's count of batches, are the model's.
    """
    own = model.state_dict()
    return {
        name: torch.lerp(own[name], v, momentum) if v.is_floating_point() else own[name].clone()
        for name, v in slow.items()
    }


@torch.no_grad()
def keys(model: Encoder, slow: dict[str, Tensor], x: Tensor) -> Tensor:
    """Embeddings by the slow copy, without gradients."""
    return functional_call(model, slow, (x,))


@torch.no_grad()
def embed(
    model: Encoder, data: Data, slow: dict[str, Tensor] | None = None, *, generator: torch.Generator
) -> Tensor:
    """Embeddings of all rows, (N, E), some at a time; by the slow copy if it is given."""
    rows = (
        data.batch(index, generator=generator).x.to(model.like)
        for index in stretches(len(data), ROWS_AT_ONCE)
    )
    return torch.cat([model(x) if slow is None else keys(model, slow, x) for x in rows])


def alignment(q: Tensor, k: Tensor) -> Tensor:
    """Mean squared distance between two views of a row: the smaller, the closer (Wang and Isola
    2020).
    """
    return (q - k).square().sum(-1).mean()


def uniformity(v: Tensor) -> Tensor:
    """log of the mean of exp(-2 |v_i - v_j|^2) over pairs: the smaller, the more evenly the sphere
    is used; zero for one row.
    """
    if len(v) < 2:
        return v.new_zeros(())
    pairs = torch.pdist(v).square()
    return torch.logsumexp(-2 * pairs, 0) - torch.log(v.new_tensor(len(pairs)))
