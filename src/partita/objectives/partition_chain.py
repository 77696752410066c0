r"""What the samplers of a Dirichlet process mixture share: chains of partitions, alpha, and the
draws that are kept.

.. math:: -\frac1n \big[ \log p(z \mid \alpha) + \log p(x \mid z) \big]
          (theory/dirichlet.md, eq. 20.5)

is the ``loss`` they record: a trace, not something that falls to a limit.

Letters: n rows, D columns, C chains, S kept sweeps.
"""

import sys
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import PositiveInt, at_least, check_count
from partita.core.protocols import Data, Update
from partita.errors import Diverged, RunError
from partita.models.directed.dirichlet_process import (
    DPMixture,
    draw_concentration,
    log_partition_prior,
)
from partita.models.directed.dirichlet_process.kernels import (
    INDEFINITE,
    ClusterMoments,
    Clusters,
    Kernel,
    Target,
)
from partita.models.directed.dirichlet_process.mixture import GROWING, check_partitions

LEARN = 1000  # rows from which a split or merge proposal learns its two sides
LABELS = 10_000_000  # of all kept partitions together, or those of four sweeps


class PartitionState(NamedTuple):
    """Where the chains are."""

    z: Tensor  # (C, n) labels, int32
    alpha: Tensor  # (C,)
    clusters: tuple[Clusters, ...]  # what each chain's clusters hold
    sweep: Tensor  # sweeps made
    stride: Tensor  # every so many sweeps a draw is kept


@dataclass(frozen=True)
class PartitionChain(Update[PartitionState]):
    """An Update whose steps are sweeps over the posterior of partitions.

    Arguments:
        chains: Number of chains C, from different starts, so that R-hat can see what has not mixed.
        moves: Split or merge proposals after each sweep.
        keep: Most sweeps whose draws are kept, spread evenly over the second half of the run,
            however long it gets.
        start: ``"pieces"`` joins small pieces of the data, others in every chain, while that raises
            the joint probability; ``"one"`` begins with all rows in one cluster.
    """

    chains: PositiveInt = 2
    moves: int = 10
    keep: Annotated[int, at_least(2)] = 100
    start: Literal["pieces", "one"] = "pieces"
    converges = False
    largest: ClassVar[int] = sys.maxsize  # rows of a cluster whose predictive is needed
    # sweeps, of whose second half every chain has the four draws that an interval takes
    fewest = 8
    fewest_moves: ClassVar[int] = 0  # below which a chain could not reach every partition

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(type(self).__name__, "moves", self.moves, self.fewest_moves)

    @abstractmethod
    def advance(
        self, problem: "PartitionProblem", chains: "ChainArrays", *, generator: torch.Generator
    ) -> list[ClusterMoments]:
        """One sweep of every chain over its labels, in place; returns the clusters of each."""

    def init(self, model: DPMixture, data: Data, *, generator: torch.Generator) -> PartitionState:
        capability.require(type(self).__name__, model)
        x = _rows(data, generator)
        alpha = model.alpha_shape / model.alpha_rate if model.alpha is None else model.alpha
        z = torch.zeros(self.chains, len(x), dtype=torch.int32)
        if self.start == "pieces":
            from partita.models.directed.dirichlet_process.starts import first_partition

            with definite():
                found = [
                    first_partition(model.kernel, x, alpha, rng.seed(generator))
                    for _ in range(self.chains)
                ]
            z = torch.stack([torch.from_numpy(labels) for labels in found])
        clusters = tuple(_as_clusters(gather(model.kernel, x, labels.numpy())) for labels in z)
        return PartitionState(
            z,
            torch.full((self.chains,), alpha, dtype=torch.float64),
            clusters,
            torch.tensor(0),
            torch.tensor(1),
        )

    def update(
        self, model: DPMixture, data: Data, state: PartitionState, *, generator: torch.Generator
    ) -> tuple[PartitionState, dict[str, Tensor]]:
        problem = PartitionProblem.of(model, _rows(data, generator), self.largest)
        z = state.z.numpy().copy()
        held = [ClusterMoments(*(part.numpy() for part in one)) for one in state.clusters]
        # two for every chain's numba kernels
        seeds = torch.randint(
            2**31 - 1, (self.chains, 2), generator=generator, device=generator.device
        )
        arrays = ChainArrays(z, state.alpha.tolist(), held, seeds.cpu().numpy())
        with definite():
            found = self.advance(problem, arrays, generator=generator)
        counts = torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(count) for count, *_ in found], batch_first=True
        )
        clusters, alpha = (counts > 0).sum(-1), state.alpha
        evidence = [problem.log_evidence(one) for one in found]
        joint = log_partition_prior(counts, alpha) + torch.tensor(evidence, dtype=torch.float64)
        loss = -(joint.mean() + problem.log_base) / len(data)
        if model.alpha is None:
            alpha = draw_concentration(
                alpha, clusters, len(data), model.alpha_shape, model.alpha_rate, generator=generator
            )
        state = state._replace(
            z=torch.from_numpy(z),
            alpha=alpha,
            clusters=tuple(map(_as_clusters, found)),
            sweep=state.sweep + 1,
        )
        room = min(self.keep, max(4, LABELS // z.size))
        state = state._replace(stride=keep_draw(model, state, room))
        return state, {"loss": loss, "clusters": clusters.double().mean(), "alpha": alpha.mean()}

    def check(self, model: DPMixture, data: Data, state: PartitionState) -> None:
        """Raise unless chains that a file held are of these rows and of the model's draws: machine
        code takes them as they are.
        """
        rows = len(data)
        shape, kept = (self.chains, rows), model.partitions.shape[1:]
        clusters, owner = _joined(state)
        fits = (
            state.z.shape == shape
            and (not model.draws or kept == shape)
            and clusters.mean.shape[1:] == model.mean.shape[1:]
            and clusters.scatter.shape[1:] == model.scatter.shape[1:]
            and int(state.stride) >= 1
        )
        if not fits:
            raise RunError(
                f"load: chains must be {self.chains} of {rows} rows; got others. Restore the file "
                "as partita wrote it."
            )
        check_partitions(state.z, state.alpha, owner, clusters)


@contextmanager
def definite() -> Iterator[None]:
    """Report a pivot of zero that machine code meets inside as a scatter that is not definite."""
    try:
        yield
    except ZeroDivisionError:
        raise Diverged(INDEFINITE) from None


class ChainArrays(NamedTuple):
    """The chains of one update, as numba reads them."""

    z: np.ndarray  # (C, n), changed in place
    alpha: list[float]
    clusters: list[ClusterMoments]
    seeds: np.ndarray  # (C, 2)


class PartitionProblem(NamedTuple):
    """A kernel, its prior and the rows, as numba reads them."""

    kernel: Kernel
    target: Target
    log_base: float

    @classmethod
    def of(cls, model: DPMixture, x: np.ndarray, most: int) -> "PartitionProblem":
        """With constants for clusters of at most ``most`` rows."""
        from partita.models.directed.dirichlet_process.incremental import constants

        kernel, prior = model.kernel, model.prior.numpy()
        table = constants(kernel.code, prior, x.shape[1], min(len(x), most))
        log_base = float(kernel.log_base(torch.from_numpy(x)).sum())
        return cls(kernel, Target(kernel.code, prior, table, x), log_base)

    def log_evidence(self, clusters: ClusterMoments) -> float:
        """log p(x | partition) without the base terms."""
        from partita.models.directed.dirichlet_process.collapsed import log_evidence

        return log_evidence(self.target, clusters)

    def split_or_merge(
        self, z: np.ndarray, clusters: ClusterMoments, alpha: float, moves: int, seed: int
    ) -> ClusterMoments:
        """The clusters after so many proposals, which change the labels in place."""
        from partita.models.directed.dirichlet_process.split_merge import split_or_merge

        return split_or_merge(self.target, z, clusters, alpha, moves, LEARN, seed)[0]


def keep_draw(model: DPMixture, state: PartitionState, room: int) -> Tensor:
    """Keep this sweep's draws in the model where its number is a multiple of the stride; returns
    the next stride.

    Draws of the first half of the run are dropped as it goes on; where more than ``room`` are left,
    every other one is, and the stride doubles: what is kept is spread evenly over the second half,
    whether or not one knew when the run would end.
    """
    sweep, stride, chains = int(state.sweep), int(state.stride), len(state.alpha)
    if sweep % stride:
        return state.stride
    kept = 2 * model.sweeps > sweep
    if int(kept.sum()) + 1 > room:
        stride *= 2
        kept &= model.sweeps % stride == 0
    fresh = _draws_of(state, int(kept.sum())) if sweep % stride == 0 else {}
    old = _chosen(model, kept, chains)
    for name in GROWING:
        # before the first draw the shapes are not yet known
        parts = [old[name]] if len(kept) else []
        parts += [fresh[name].to(getattr(model, name))] if fresh else []
        setattr(model, name, torch.cat(parts))
    return torch.tensor(stride)


def _draws_of(state: PartitionState, before: int) -> dict[str, Tensor]:
    """This sweep's draws, as they follow on ``before`` sweeps."""
    clusters, owner = _joined(state)
    return {
        "sweeps": state.sweep[None],
        "alphas": state.alpha[None],
        "partitions": state.z[None],
        "owner": owner + len(state.alpha) * before,
        **clusters._asdict(),
    }


def _joined(state: PartitionState) -> tuple[Clusters, Tensor]:
    """The clusters of all chains, and the chain of each."""
    counts = torch.tensor([len(chain.count) for chain in state.clusters])
    clusters = Clusters(*map(torch.cat, zip(*state.clusters, strict=True)))
    return clusters, torch.arange(len(counts)).repeat_interleave(counts)


def _chosen(model: DPMixture, kept: Tensor, chains: int) -> dict[str, Tensor]:
    """The draws of some of the kept sweeps, with their clusters."""
    if kept.all():
        return {name: getattr(model, name) for name in GROWING}
    mine, number = kept[model.owner // chains], torch.cumsum(kept, 0) - 1
    owner = model.owner[mine]
    by_sweep = {name: getattr(model, name)[kept] for name in ("sweeps", "alphas", "partitions")}
    by_cluster = {name: getattr(model, name)[mine] for name in Clusters._fields}
    return {**by_sweep, **by_cluster, "owner": number[owner // chains] * chains + owner % chains}


def gather(kernel: Kernel, x: np.ndarray, z: np.ndarray) -> ClusterMoments:
    """What the clusters of a partition hold."""
    from partita.models.directed.dirichlet_process.collapsed import accumulate

    return accumulate(x, z, int(z.max()) + 1, kernel.scatters)


def _rows(data: Data, generator: torch.Generator) -> np.ndarray:
    return np.ascontiguousarray(
        data.batch(torch.arange(len(data)), generator=generator).x.cpu().double().numpy()
    )


def _as_clusters(found: ClusterMoments) -> Clusters:
    return Clusters(*map(torch.from_numpy, found))
