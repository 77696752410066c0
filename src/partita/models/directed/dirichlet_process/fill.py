r"""Missing values of a row given the observed ones, averaged over the posterior of the partition.

.. math:: p(x_m \mid x_o, \text{data}) = \sum_{sk} r_{sk}(x_o)\, p(x_m \mid x_o, \text{cluster }
          sk), \qquad
          r_{sk} \propto \frac{n_{sk}}{n + \alpha_s}\, p(x_o \mid \text{cluster } sk)
          (theory/dirichlet.md, eq. 20.21)

A new cluster takes part with alpha in place of its count. The predictive of a Gaussian cluster is a
multivariate t, whose margins and conditionals are t again; the columns of other clusters are
independent.

Letters: N rows, D columns, P clusters of the draws that are used, o observed, m missing.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor
from torch.distributions import Chi2

from partita.core import rng
from partita.models.directed.components.missing import patterns
from partita.models.directed.dirichlet_process.kernels import Clusters, Gaussian, Kernel

if TYPE_CHECKING:
    from partita.models.directed.dirichlet_process.mixture import DPMixture

DRAWS = 40  # posterior draws that are averaged, spread over those kept
NUMBERS = 1 << 22  # rows x clusters x columns (x columns) at once


class Participants(NamedTuple):
    """The clusters that take part, with the logarithms of their weights."""

    clusters: Clusters
    log_weight: Tensor  # (P,)


def taking_part(model: "DPMixture") -> Participants:
    """Clusters of some of the draws, and for each of these draws a new one."""
    owner, alphas, rows = model.owner, model.alphas.flatten(), model.partitions.shape[-1]
    chosen = torch.unique(
        torch.linspace(0, len(alphas) - 1, DRAWS, device=owner.device).round().long()
    )
    mine, alpha = torch.isin(owner, chosen), alphas[chosen]
    clusters = model.clusters(mine)
    pool = Clusters(*map(torch.cat, zip(clusters, model.kernel.nothing(), strict=True)))
    old = clusters.count.log() - (rows + alphas[owner[mine]]).log()
    # all draws share the prior's predictive
    new = torch.logsumexp(alpha.log() - (rows + alpha).log(), 0)
    return Participants(pool, torch.cat([old, new[None]]))


def filled(
    kernel: Kernel, mixed: Participants, x: Tensor, how: str, *, generator: Generator
) -> Tensor:
    """Rows with NaN replaced by the ``"mean"``, the ``"mode"`` (zeros and ones) or one ``"draw"``,
    ``(N, D)``.
    """
    width = kernel.width**2 if isinstance(kernel, Gaussian) else kernel.width
    out, missing = x.clone(), x.isnan().any(1).nonzero()[:, 0]
    for index in missing.split(max(1, NUMBERS // (len(mixed.log_weight) * width))):
        if isinstance(kernel, Gaussian):
            out[index] = _t_filled(kernel, mixed, x[index], how, generator)
        else:
            out[index] = _columns_filled(kernel, mixed, x[index], how, generator)
    return out


def _columns_filled(
    kernel: Kernel, mixed: Participants, x: Tensor, how: str, generator: Generator
) -> Tensor:
    """Where columns are independent given the cluster."""
    law, seen = kernel.predictive(mixed.clusters), ~x.isnan()
    observed = torch.where(seen, x, 0.0)[:, None]
    # (N, P)
    score = mixed.log_weight + torch.where(seen[:, None], law.log_prob(observed), 0.0).sum(-1)
    if how == "draw":
        found = rng.draw(law.expand((len(x), *law.batch_shape)), generator)[
            torch.arange(len(x)), rng.categories(score, generator)
        ]
    else:
        found = score.softmax(-1) @ law.mean
        found = (found > 0.5).to(x) if how == "mode" else found
    return torch.where(seen, x, found)


def _t_filled(
    kernel: Gaussian, mixed: Participants, x: Tensor, how: str, generator: Generator
) -> Tensor:
    """Where the predictive is a multivariate t."""
    kappa, nu, m, L = kernel.posterior(mixed.clusters)
    df = nu + 1 - kernel.width
    scale = L @ L.mT * ((kappa + 1) / (kappa * df))[:, None, None]
    found, seen = patterns(x, scale), ~x.isnan()
    off = torch.where(seen[:, None], x[:, None] - m, 0.0)  # (N, P, D)
    factor = found.factor[found.of_row]
    gain = found.gain[found.of_row]
    d = seen.sum(-1, keepdim=True).to(x)
    # (N, P)
    square = (
        torch.linalg.solve_triangular(factor, off[..., None], upper=False).square().sum((-2, -1))
    )
    score = (
        torch.lgamma((df + d) / 2)
        - torch.lgamma(df / 2)
        - d / 2 * (df * torch.pi).log()
        - (df + d) / 2 * torch.log1p(square / df)
    )
    score = mixed.log_weight + score - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    mean = m + (gain @ off[..., None])[..., 0]
    if how != "draw":
        return torch.where(seen, x, torch.einsum("np,npd->nd", score.softmax(-1), mean))
    row, pick = torch.arange(len(x), device=x.device), rng.categories(score, generator)
    grown, rest = (df[pick] + d[:, 0]), found.covariance[found.of_row, pick]
    # the identity where a value was observed
    root = torch.linalg.cholesky(rest + torch.diag_embed(seen.to(x)))
    size = ((df[pick] + square[row, pick]) / rng.draw(Chi2(grown), generator)).sqrt()
    noise = (root @ rng.normal((*x.shape, 1), x, generator))[..., 0]
    return torch.where(seen, x, mean[row, pick] + size[:, None] * noise)
