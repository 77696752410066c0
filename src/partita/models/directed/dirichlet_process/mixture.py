r"""The Dirichlet process mixture, as draws from its posterior.

.. math:: x_i \sim \mathcal K(\theta_i), \quad \theta_i \sim G, \quad G \sim \mathrm{DP}(\alpha, H),
          \qquad
          p(x \mid \text{data}) \approx \frac1S \sum_s \Big[ \sum_k \frac{n_{sk}}{n + \alpha_s} p(x
          \mid \text{cluster } sk)
          + \frac{\alpha_s}{n + \alpha_s} p(x) \Big]          (theory/dirichlet.md, eq. 20.15)

Letters: n rows, D columns, C chains, S kept sweeps, P clusters of all kept draws together.
"""

from typing import Annotated

import torch
from torch import Generator, Tensor

from partita.core import rng
from partita.core.arguments import PositiveFloat, PositiveInt, one_of
from partita.core.protocols import Capability, Data, DirectedModel
from partita.core.registry import MODELS
from partita.diagnostics.chains import ChainReport
from partita.diagnostics.partitions import summarize_partitions
from partita.errors import RunError, Unsupported, invalid
from partita.models.directed.dirichlet_process import priors
from partita.models.directed.dirichlet_process.fill import filled, taking_part
from partita.models.directed.dirichlet_process.kernels import KERNELS, Clusters, Kernel
from partita.models.directed.dirichlet_process.priors import Numbers
from partita.runtime import memory_limit

NUMBERS = 1 << 22  # rows x clusters x columns scored at once
HELD = 3  # times that its samplers hold the rows
STREAMS = "Its samplers hold all rows: fit some of them, or a mixture, which reads them from disk."
GROWING = ("sweeps", "alphas", "partitions", "owner", "count", "mean", "scatter")


@MODELS.register
class DPMixture(DirectedModel):
    """A mixture with as many clusters as the data ask for.

    A fit by :class:`partita.objectives.CollapsedGibbs` or
    :class:`partita.objectives.InstantiatedGibbs` leaves draws of its posterior in it: partitions of
    the training rows, alpha, and what each cluster holds.

    Arguments:
        visible: Number of columns D.
        kernel: ``"gaussian"``, ``"bernoulli"`` or ``"multinomial"`` (counts, given each row's
            total).
        alpha: The concentration; None gives it a Gamma prior and draws it along.
        known_scale: Standard deviation within clusters, of all or of each column, where it is
            known; else Gaussian clusters have covariances of their own under a
            normal-inverse-Wishart prior.
        prior_mean: Mean of the clusters' means; None takes the data's.
        prior_scale: Standard deviation of the clusters' means, with ``known_scale``; None takes the
            data's.
        alpha_shape, alpha_rate: Of the Gamma prior.
        generator: Its device is the model's.

    >>> DPMixture(2, alpha=1.0, generator=torch.Generator()).title()
    'DPMixture(gaussian, 2)'
    """

    examples = {
        "DP mixture of Gaussians": {"visible": 2},
        "DP mixture of Bernoullis": {"visible": 2, "kernel": "bernoulli"},
    }
    capabilities = frozenset({Capability.POSTERIOR_DRAWS})
    prior: Tensor
    sweeps: Tensor  # (S,) numbers of the kept sweeps
    alphas: Tensor  # (S, C)
    partitions: Tensor  # (S, C, n) labels
    owner: Tensor  # (P,) which draw, s C + c, a cluster belongs to, rising
    count: Tensor
    mean: Tensor
    scatter: Tensor

    def __init__(
        self,
        visible: PositiveInt,
        kernel: Annotated[str, one_of("gaussian", "bernoulli", "multinomial")] = "gaussian",
        *,
        alpha: PositiveFloat | None = None,
        known_scale: Numbers | None = None,
        prior_mean: Numbers | None = None,
        prior_scale: Numbers | None = None,
        alpha_shape: PositiveFloat = 1.0,
        alpha_rate: PositiveFloat = 1.0,
        generator: Generator,
    ) -> None:
        super().__init__()
        gamma = {"alpha": alpha or 0.0, "alpha_shape": alpha_shape, "alpha_rate": alpha_rate}
        for name, value in gamma.items():
            priors.check_size(name, value)
        self.visible, self.kernel_name, self.alpha = visible, kernel, alpha
        self.given: dict[str, Numbers | None] = {
            "known_scale": known_scale,
            "prior_mean": prior_mean,
            "prior_scale": prior_scale,
        }
        _check_prior(kernel, self.given, visible)
        self.alpha_shape, self.alpha_rate = alpha_shape, alpha_rate
        self.law = KERNELS["known_scale" if known_scale is not None else kernel]
        self.support = self.law.support(visible)
        square = visible if self.law.scatters else 0
        shapes = {
            torch.float64: {
                "prior": (self.law.prior_size(visible),),
                "alphas": (0, 1),
                "count": (0,),
                "mean": (0, visible),
                "scatter": (0, square, square),
            },
            torch.int64: {"sweeps": (0,), "owner": (0,)},
            torch.int32: {"partitions": (0, 1, 0)},
        }
        for dtype, buffers in shapes.items():
            for name, shape in buffers.items():
                empty = torch.zeros(shape, dtype=dtype, device=generator.device)
                self.register_buffer(name, empty)
        self.register_load_state_dict_post_hook(_check_loaded)

    @property
    def kernel(self) -> Kernel:
        """The conjugate pair at this model's prior."""
        return self.law(self.prior, self.visible)

    @property
    def draws(self) -> int:
        """Posterior draws kept, S C."""
        return self.alphas.numel()

    @property
    def like(self) -> Tensor:
        return self.prior

    def title(self) -> str:
        return f"DPMixture({self.kernel_name}, {self.visible})"

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        """Set the prior from the data's scale, where it is not given, and forget earlier draws."""
        memory_limit.check_room(
            "DPMixture", f"its {len(data)} rows", HELD * 8 * len(data) * self.visible, STREAMS
        )
        x = data.batch(torch.arange(len(data)), generator=generator).x.double().cpu()
        if self.kernel_name == "bernoulli":
            prior = torch.full_like(self.prior, priors.PSEUDO_COUNT)
        elif self.kernel_name == "multinomial":
            prior = priors.multinomial_prior(x, generator)
        elif self.given["known_scale"] is None:
            alpha = self.alpha_shape / self.alpha_rate if self.alpha is None else self.alpha
            prior = priors.gaussian_prior(x, self.given["prior_mean"], alpha=alpha)
        else:
            prior = priors.known_scale_prior(x, **self.given)
        self.prior.copy_(prior)
        self.resize_buffers({name: getattr(self, name)[:0] for name in GROWING})

    def resize_buffers(self, weights: dict[str, Tensor]) -> None:
        """Give the buffers that grow with the draws the shapes of ``weights``."""
        for name in GROWING:
            own, new = getattr(self, name), weights.get(name)
            if new is None or new.dim() != own.dim():
                continue
            if name in ("alphas", "partitions") or new.shape[1:] == own.shape[1:]:
                setattr(self, name, own.new_zeros(new.shape))

    def clusters(self, chosen: Tensor | None = None) -> Clusters:
        """The clusters of all draws, or the chosen ones."""
        every = Clusters(self.count, self.mean, self.scatter)
        return every if chosen is None else Clusters(*(part[chosen] for part in every))

    def log_predictive(self, x: Tensor) -> Tensor:
        """log p(x | draw) of every kept draw, parameters integrated out, ``(N, D) -> (S C, N)``."""
        self._check_draws("log_predictive")
        return torch.cat([self._log_predictive(part) for part in self._parts(x)], -1)

    def responsibilities(self, x: Tensor) -> Tensor:
        """Probability of each cluster of each draw, given that x joins one of that draw's clusters,
        ``(N, D) -> (N, P)``.
        """
        self._check_draws("responsibilities")
        return torch.cat(
            [
                torch.cat([own.softmax(-1) for own in self._joint(part)], -1)
                for part in self._parts(x)
            ]
        )

    def _log_predictive(self, x: Tensor) -> Tensor:
        alpha = self.alphas.flatten()
        new = self.kernel.log_predictive(x, self.kernel.nothing()) + alpha.log()
        old = torch.stack([own.logsumexp(-1) for own in self._joint(x)], -1)
        return (torch.logaddexp(old, new) - (self.partitions.shape[-1] + alpha).log()).T

    def _joint(self, x: Tensor) -> tuple[Tensor, ...]:
        """log n_k + log p(x | cluster k), draw by draw."""
        joint = self.kernel.log_predictive(x, self.clusters()) + self.count.log()
        return joint.split(torch.bincount(self.owner, minlength=self.draws).tolist(), -1)

    def _parts(self, x: Tensor) -> list[Tensor]:
        """Rows, as many at a time as memory allows."""
        return [
            part.to(self.prior)
            for part in x.split(max(1, NUMBERS // max(1, len(self.owner) * self.visible)))
        ]

    @torch.no_grad()
    def draw(self, n: int, *, generator: Generator) -> Tensor:
        """``n`` new rows: a posterior draw each, then a cluster of it or a new one, then a row of
        its predictive.
        """
        self._check_draws("draw")
        n_rows = self.partitions.shape[-1]
        pools = [
            torch.cat(pair) for pair in zip(self.clusters(), self.kernel.nothing(), strict=True)
        ]
        pick = torch.randint(self.draws, (n,), generator=generator, device=self.prior.device)
        u = rng.uniform((n,), self.prior, generator) * (n_rows + self.alphas.flatten()[pick])
        # every draw's counts add up to all rows
        old = torch.searchsorted(self.count.cumsum(0), n_rows * pick + u, right=True)
        chosen = torch.where(u < n_rows, old, len(self.owner))
        return self.kernel.draw(Clusters(*(pool[chosen] for pool in pools)), generator=generator)

    @torch.no_grad()
    def fill(self, x: Tensor, how: str = "mean", *, generator: Generator) -> Tensor:
        """Rows with NaN replaced by the posterior ``"mean"``, the ``"mode"`` (zeros and ones) or
        one ``"draw"``, ``(N, D)``.
        """
        self._check_draws("fill")
        return filled(self.kernel, taking_part(self), x.to(self.prior), how, generator=generator)

    def mixing(self) -> ChainReport:
        """Have the chains mixed, by what no relabeling changes of their partitions?"""
        return summarize_partitions(self.partitions.cpu().numpy())

    def fit_warnings(self) -> list[str]:
        """Why averages over the chains cannot be trusted, in one sentence, as :meth:`mixing` has
        it.
        """
        report = self.mixing()
        if report.mixed or not self.draws:
            return []
        return [
            f"the chains are {report.finding}: averages over the clusters are not yet averages "
            "over the posterior; run more sweeps or chains, or give a prior that says more."
        ]

    def _check_draws(self, owner: str) -> None:
        if not self.draws:
            raise Unsupported(
                f"{self.title()}.{owner} cannot run: no posterior draw is kept yet. Fit it by "
                "CollapsedGibbs first."
            )


def _check_loaded(model: DPMixture, _: object) -> None:
    """What does not belong together is found here, not when rows are put into it."""
    if model.partitions.shape[:2] != model.alphas.shape or len(model.sweeps) != len(model.alphas):
        raise RunError(
            "load: a DPMixture must hold one alpha for each of its draws; got others. Restore the "
            "file."
        )
    labels, alphas = model.partitions.flatten(0, 1), model.alphas.flatten()
    check_partitions(labels, alphas, model.owner, model.clusters())


def _check_prior(kernel: str, given: dict[str, Numbers | None], width: int) -> None:
    """Prior settings go with Gaussian kernels, and the spread of the means with a known scale."""
    for name, value in given.items():
        if value is not None and kernel != "gaussian":
            raise invalid("DPMixture", name, "be None unless kernel='gaussian'", repr(value))
        if value is not None:
            priors.per_column(name, value, width, positive=name != "prior_mean")
    if given["prior_scale"] is not None and given["known_scale"] is None:
        raise invalid(
            "DPMixture",
            "prior_scale",
            "go with known_scale",
            repr(given["prior_scale"]),
            "Give known_scale too.",
        )


def check_partitions(z: Tensor, alphas: Tensor, owner: Tensor, clusters: Clusters) -> None:
    """Raise unless clusters are those that labels make.

    Arguments:
        z: The label of every row in every draw, ``(R, n)``.
        alphas: The concentration of every draw, ``(R,)``.
        owner: The draw that a cluster belongs to, ``(P,)``.
        clusters: What each of them holds.
    """
    alike = len(z) == len(alphas) and len({len(owner), *map(len, clusters)}) == 1
    positive = bool((alphas.isfinite() & (alphas > 0)).all())
    if not alike or not positive or not _numbered(z, owner, clusters.count):
        raise RunError(
            "load: the draws of a DPMixture must be of the clusters saved with them; got others. "
            "Restore the file."
        )


def _numbered(z: Tensor, owner: Tensor, count: Tensor) -> bool:
    """Whether labels are 0, 1, ... in every draw, none without rows, and clusters are counted as
    they are.
    """
    if not z.numel():
        return not len(z) and not len(owner)
    if bool((z < 0).any() or (z >= z.shape[1]).any()):
        return False
    members = [torch.bincount(labels) for labels in z]
    owners = torch.cat([torch.full_like(found, draw) for draw, found in enumerate(members)])
    return (
        torch.equal(owners, owner)
        and torch.equal(torch.cat(members).to(count), count)
        and bool((count > 0).all())
    )
