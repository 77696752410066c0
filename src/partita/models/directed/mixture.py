r"""Finite mixtures: densities, responsibilities, the E and M steps, draws and imputation that all
share, and those with Gaussian, Bernoulli, categorical or Poisson components, or with a kind of its
own for each column.

.. math:: p(x) = \sum_k \pi_k\, p_k(x), \qquad r_{nk} = \frac{\pi_k\, p_k(x_n)}{\sum_l \pi_l\,
          p_l(x_n)}, \qquad
          \pi_k = \frac1N \sum_n r_{nk}          (theory/mixtures.md, eq. 10.3)

Missing values (NaN) are integrated out exactly: every density is that of what was observed.

EM begins at k-means++ centers of some rows (Arthur and Vassilvitskii 2007), a few rounds of
k-means, and softened clusters.

Letters: N data, B rows, D columns, K components, r responsibilities (K, B).
"""

import warnings
from collections.abc import Iterator
from typing import Annotated, Generic, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor, nn

from partita.core import rng
from partita.core.arguments import PositiveFloat, PositiveInt, check_width, one_of
from partita.core.protocols import Capability, Data, DirectedModel, Settings
from partita.core.registry import MODELS
from partita.errors import invalid
from partita.models.directed.components.base import Component, ProductComponent, Statistics
from partita.models.directed.components.diagonal import DiagonalGaussian
from partita.models.directed.components.discrete import (
    BernoulliComponent,
    CategoricalComponent,
    NegativeBinomialComponent,
    PoissonComponent,
)
from partita.models.directed.components.gaussian import FullGaussian
from partita.tables.schema import Law, Laws, kinds_in_words, places

# numbers in the work on one block of rows: more leave the cache, and make new pages at every block
CELLS = 1 << 18
# the same where matrices are made for each row, and calls cost more than the cache gains
MISSING_CELLS = 1 << 21
START_ROWS = 20_000  # that a start reads
START_ROUNDS = 10
SOFT = 0.1  # share of every cluster that is spread over all rows
EMPTY = 1e-8  # share of the data below which a component counts as empty


Part = TypeVar("Part", bound=Component)

COMPONENTS = ("gaussian", "bernoulli", "categorical", "poisson", "mixed")
LAWS: dict[str, Law] = {"gaussian": "real", "bernoulli": "binary", "poisson": "count"}
DISCRETE: dict[Law, type[BernoulliComponent | PoissonComponent | NegativeBinomialComponent]] = {
    "binary": BernoulliComponent,
    "count": PoissonComponent,
    "overdispersed": NegativeBinomialComponent,
}
COVARIANCES = ("full", "tied", "diagonal", "spherical")


class Mixing(DirectedModel, Generic[Part]):
    """K weighted components; ``logits`` (K,) are the unnormalized log weights."""

    capabilities = frozenset({Capability.LOG_PROB, Capability.MISSING, Capability.EM})
    component: Part
    logits: nn.Parameter

    def hold(self, component: Part, device: torch.device) -> None:
        """Take the components in, with equal weights."""
        self.component, self.support = component, component.support
        self.logits = nn.Parameter(torch.zeros(component.count, dtype=torch.float64, device=device))

    @property
    def components(self) -> int:
        """K."""
        return len(self.logits)

    def log_weights(self) -> Tensor:
        """log pi, ``(K,)``."""
        return torch.log_softmax(self.logits, 0)

    def log_joint(self, x: Tensor) -> Tensor:
        """log pi_k p_k(x), ``(B, D) -> (K, B)``."""
        check_width(f"{type(self).__name__}.log_prob", "x", x, self.support.width, self.title())
        blocks, ready = list(self._blocks(x)), self.component.ready()
        found = [self.component.scores(x[block].to(self.logits), ready)[0] for block in blocks]
        scores = torch.cat(found, 1)
        indices = [block for block in blocks if isinstance(block, Tensor)]
        if indices:  # complete and incomplete rows were taken apart
            scores = scores[:, torch.cat(indices).argsort()]
        return scores + self.log_weights()[:, None]

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x) of the observed values, exact, ``(*, D) -> (*)``; zero where none was
        observed.
        """
        return torch.logsumexp(self.log_joint(x.reshape(-1, x.shape[-1])), 0).view(x.shape[:-1])

    def responsibilities(self, x: Tensor) -> Tensor:
        """p(component | x), ``(B, D) -> (B, K)``."""
        return torch.softmax(self.log_joint(x), 0).mT

    def draw(self, n: int, *, generator: Generator) -> Tensor:
        """``n`` exact draws, ``(n, D)``."""
        index = rng.categorical(self.logits.detach(), generator, n)
        return self.component.draw(index, generator=generator).detach()

    @torch.no_grad()
    def e_step(self, x: Tensor, weight: Tensor | None = None) -> Statistics:
        """Expected sufficient statistics of weighted rows; those of several chunks add up
        (theory/mixtures.md, eq. 10.2).
        """
        total: Statistics = {}
        ready, log_weights = self.component.ready(averaged=True), self.log_weights()[:, None]
        for index in self._blocks(x):
            rows = x[index].to(self.logits)
            scores, kept = self.component.scores(rows, ready)
            r, log_p = normalized(scores.add_(log_weights))
            w = None if weight is None else weight[index].to(r)
            r = r if w is None else r.mul_(w)
            found = {"mass": r.sum(1), "log_likelihood": log_p.sum() if w is None else w @ log_p}
            total = added(total, {**self.component.statistics(r, kept), **found})
        return total

    @torch.no_grad()
    def m_step(self, statistics: Statistics) -> None:
        """The parameters that make the expected log-likelihood largest."""
        mass = statistics["mass"]
        self.logits.copy_((mass / mass.sum()).clamp_min(torch.finfo(mass.dtype).tiny).log())
        self.component.maximize(statistics)

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        """Clusters of a k-means++ start, each mixed with a tenth of everything so that none begins
        singular.
        """
        if self.components > len(data):
            raise invalid(
                type(self).__name__,
                "components",
                f"be at most the number of rows, {len(data)}",
                self.components,
            )
        self.component.spread(
            data.mean().to(self.logits), data.variance().to(self.logits), generator
        )
        self.logits.zero_()
        if self.components > 1:
            x, weight, r = _hard_start(self.component, data, generator)
            r = r.to(self.logits)
            self.m_step(self._given(x, r if weight is None else r * weight.to(self.logits)))

    @torch.no_grad()
    def fill(self, x: Tensor, how: str = "mean", *, generator: Generator) -> Tensor:
        """Rows with NaN replaced, ``(B, D)``.

        Arguments:
            how: ``"mean"`` of the posterior, its ``"mode"`` (discrete columns), one ``"draw"``, or
                ``"likely"`` for mixed columns: the mean of real ones and the mode of the others.
        """
        out = x.clone().to(self.logits)
        for index in self._blocks(x):
            part = out[index]
            if part.isnan().any():
                out[index] = self._filled(part, how, generator)
        return out

    def resize_buffers(self, weights: dict[str, Tensor]) -> None:
        self.component.resize_buffers(
            {name.removeprefix("component."): value for name, value in weights.items()}
        )

    def log_prior(self) -> Tensor | float:
        """The log prior of the parameters, which is maximized with the likelihood; zero where there
        is none.
        """
        return self.component.prior()

    def freedom(self) -> int:
        """Number of free parameters, weights included."""
        return self.component.freedom() + self.components - 1

    def fit_warnings(self) -> list[str]:
        """What had to be held back to keep the parameters proper, one sentence each."""
        empty = int((self.log_weights() < torch.tensor(EMPTY).log()).sum())
        alone = [f"{empty} of {self.components} components are empty; use fewer."] if empty else []
        return [*alone, *self.component.fit_warnings()]

    def _given(self, x: Tensor, r: Tensor) -> Statistics:
        """Statistics under responsibilities that are given, (K, B)."""
        total: Statistics = {}
        ready = self.component.ready()
        for index in self._blocks(x):
            _, kept = self.component.scores(x[index].to(self.logits), ready)
            part = r[:, index]
            total = added(total, {**self.component.statistics(part, kept), "mass": part.sum(1)})
        return total

    def _filled(self, x: Tensor, how: str, generator: Generator) -> Tensor:
        r, _ = normalized(self.log_joint(x))
        if how == "draw":
            edges = r.cumsum(0)
            index = (rng.uniform((x.shape[0],), x, generator) > edges[:-1]).sum(0)
            return self.component.fill_draw(x, index, generator=generator)
        if how in ("likely", "mode"):
            return self.component.fill_likely(x, r)
        return torch.einsum("kb,kbd->bd", r, self.component.fill_mean(x))

    def _blocks(self, x: Tensor) -> Iterator[slice] | Iterator[Tensor]:
        """Rows, some at a time; where values are missing the complete rows first, then the others,
        which cost more.
        """
        component = self.component
        size = max(component.together, CELLS // component.cells(False))
        size_missing = max(1, MISSING_CELLS // component.cells(True))
        if not x.sum().isnan():
            return (slice(start, start + size) for start in range(0, max(1, len(x)), size))
        missing = x.isnan().any(1)
        return (
            index
            for rows, n in ((~missing, size), (missing, size_missing))
            for index in rows.nonzero()[:, 0].split(n)
            if len(index)
        )


def normalized(joint: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax and logsumexp over the first dimension at once, ``(K, B) -> (K, B), (B,)``; ``joint``
    is used up.
    """
    top = joint.amax(0)
    r = joint.sub_(top).exp_()
    total = r.sum(0)
    return r.div_(total), top + total.log()


def added(total: Statistics, more: Statistics) -> Statistics:
    """Sums of two sets of statistics."""
    return {name: total[name] + value for name, value in more.items()} if total else more


def _some_rows(data: Data, generator: Generator) -> tuple[Tensor, Tensor | None]:
    """All rows, or a random ``START_ROWS`` of them, with their weights."""
    n = len(data)
    index = torch.arange(n)
    if n > START_ROWS:
        index = rng.permutation(n, generator)[:START_ROWS].cpu().sort().values
    batch = data.batch(index, generator=generator)
    return batch.x, batch.weight


def _hard_start(
    component: Component, data: Data, generator: Generator
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Rows, their weights, and responsibilities ``(K, B)`` of a clustering of them."""
    x, weight = _some_rows(data, generator)
    mean = data.mean().to(x)
    points = component.embed(torch.where(x.isnan(), mean, x)).double().cpu().numpy()
    heavy = None if weight is None else weight.double().cpu().numpy()
    labels = _clusters(points, heavy, component.count, rng.seed(generator))
    hard = nn.functional.one_hot(labels, component.count).mT.to(x)
    return x, weight, (1 - SOFT) * hard + SOFT / component.count


def _clusters(points: np.ndarray, weight: np.ndarray | None, count: int, seed: int) -> Tensor:
    """Labels of points after k-means++ and a few rounds of k-means."""
    from sklearn.cluster import KMeans, kmeans_plusplus
    from sklearn.exceptions import ConvergenceWarning

    centers, _ = kmeans_plusplus(points, count, sample_weight=weight, random_state=seed)
    rounds = KMeans(
        count,
        random_state=seed,
        init=centers,  # type: ignore[arg-type]
        n_init=1,  # type: ignore[arg-type]
        max_iter=START_ROUNDS,
    )
    with warnings.catch_warnings():  # fewer distinct rows than clusters are no harm to a start
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = rounds.fit(points, sample_weight=weight)
    return torch.from_numpy(found.labels_).long()


@MODELS.register
class Mixture(Mixing[Component]):
    """K components of one family, in float64; fitted by :class:`partita.objectives.EM`.

    Arguments:
        components: K.
        visible: Number of columns D.
        component: ``"gaussian"``, ``"bernoulli"``, ``"categorical"``, ``"poisson"``, or ``"mixed"``
            with the ``laws`` of the columns: ``"real"`` (together a Gaussian), ``"binary"``,
            ``"count"``, ``"overdispersed"``, or a number of states.
        covariance: Of Gaussian components: ``"full"``, ``"tied"`` (one for all), ``"diagonal"`` or
            ``"spherical"``.
        states: Number of states of categorical columns.
        floor: The smallest eigenvalue that a covariance may have; one that is held there is
            reported by the fit.
        generator: Tells the device; a mixture starts with all components alike, and ``initialize``
            parts them.

    >>> g = torch.Generator().manual_seed(0)
    >>> model = Mixture(2, 3, generator=g)
    >>> x = torch.tensor([[0.0, float("nan"), 0.0]])
    >>> round(model.log_prob(x).item(), 4)  # the two observed values of a standard normal
    -1.8379
    """

    examples = {
        "Mixture of Gaussians": {"components": 2, "visible": 2},
        "Mixture of Bernoullis": {"components": 2, "visible": 2, "component": "bernoulli"},
        "Mixture, mixed columns": {
            "components": 2,
            "visible": 3,
            "component": "mixed",
            "laws": ("real", "count", 3),
        },
    }

    def __init__(
        self,
        components: PositiveInt,
        visible: PositiveInt,
        component: Annotated[str, one_of(*COMPONENTS)] = "gaussian",
        covariance: Annotated[str, one_of(*COVARIANCES)] = "full",
        *,
        states: PositiveInt | None = None,
        laws: Laws | None = None,
        floor: PositiveFloat = 1e-6,
        generator: Generator,
    ) -> None:
        super().__init__()
        if (component == "categorical") != (states is not None):
            raise invalid(
                "Mixture",
                "states",
                "be given for categorical components, and only for them",
                states,
            )
        if (component == "mixed") != (laws is not None) or (
            laws is not None and len(laws) != visible
        ):
            got = laws if laws is None else f"{len(laws)} for component={component!r}"
            raise invalid(
                "Mixture",
                "laws",
                f"be given for component='mixed', and only for it, one for each of {visible} "
                "columns",
                got,
            )
        device = generator.device
        if laws is not None:
            blocks = {law: self._block(law, len(at), device) for law, at in places(laws).items()}
            self.hold(ProductComponent(components, laws, blocks), device)
        else:
            law = LAWS[component] if states is None else states
            self.hold(self._block(law, visible, device), device)

    def _block(self, law: Law, width: int, device: torch.device) -> Component:
        """The components of columns that all have one law."""
        made = self.arguments
        count, covariance = made["components"], made["covariance"]
        if isinstance(law, int):
            return CategoricalComponent(count, width, law, device=device)
        if law != "real":
            return DISCRETE[law](count, width, device=device)
        more: Settings = {"floor": made["floor"], "device": device}
        if covariance in ("full", "tied"):
            return FullGaussian(count, width, tied=covariance == "tied", **more)
        return DiagonalGaussian(count, width, spherical=covariance == "spherical", **more)

    def settings(self) -> Settings:
        made = super().settings()
        if made["component"] == "gaussian" or "real" in made.get("laws", ()):
            return made
        return {name: made[name] for name in made if name not in ("covariance", "floor")}

    def title(self) -> str:
        made = self.settings()
        law = " ".join(made[name] for name in ("component", "covariance") if name in made)
        law = f"mixed: {kinds_in_words(made['laws'])}" if "laws" in made else law
        return f"Mixture({self.components}, {self.support.width}, {law})"
