"""Probabilistic PCA, factor analysis and mixtures of them as families."""

from functools import partial
from typing import Any

import torch

from partita.core.checks import check_choice, check_count, check_real
from partita.core.protocols import Capability, Model, Update
from partita.families.base import Family, Setting
from partita.families.mixture import MOST_COMPONENTS, RESTARTS, chosen_count
from partita.families.scales import SCALES, asks_for_own_scales
from partita.models import PPCA, MixturePPCA
from partita.models.directed.ppca import NOISES
from partita.objectives import EM, ClosedForm
from partita.tables import Rows
from partita.tables.encoding import Kind

AUTO_DIMENSIONS = 30  # that ARD starts from, if the columns are more
SOLVED = 2000  # columns, or rows, up to which the matrix of the closed form is cheap
SOLVED_CELLS = 1 << 26  # of a wide table, which the closed form holds in memory
AUTO_DIMENSIONS_MIXED = 12  # the same for each component of a mixture


def dimensions(
    latent: Any, rows: Rows, most: int, owner: str, parameter: str
) -> tuple[int, str | None]:
    """Latent dimensions and the prior on them: as given and none, or for ``"auto"`` many and ARD,
    which takes away what is too much.
    """
    if latent == "auto":
        return min(most, rows.width - 1, max(1, len(rows) - 1)), "ard"
    return check_count(owner, parameter, latent), None


def _ppca(rows: Rows, settings: dict[str, Any], generator: torch.Generator) -> tuple[Model, Update]:
    latent, prior = dimensions(
        settings["n_components"], rows, AUTO_DIMENSIONS, "ppca", "n_components"
    )
    model = PPCA(
        rows.width,
        latent,
        noise=settings["noise"],
        prior=prior,
        floor=settings["reg_covar"],
        generator=generator,
    )
    n, width = len(rows), rows.width
    small = width <= SOLVED or (n <= SOLVED and n * width <= SOLVED_CELLS)
    return (
        model,
        ClosedForm()
        if small and Capability.CLOSED_FORM in model.capabilities and rows.complete()
        else EM(),
    )


def _mixture_ppca(
    rows: Rows, settings: dict[str, Any], generator: torch.Generator
) -> tuple[Model, Update]:
    latent, prior = dimensions(
        settings["n_latent"], rows, AUTO_DIMENSIONS_MIXED, "mixture-ppca", "n_latent"
    )

    def make(components: int) -> MixturePPCA:
        return MixturePPCA(
            components,
            rows.width,
            latent,
            noise=settings["noise"],
            prior=prior,
            floor=settings["reg_covar"],
            generator=generator,
        )

    restarts = settings["n_init"]
    count = chosen_count(
        settings["n_components"], make, rows, settings["max_components"], restarts, generator
    )
    return make(count), EM(restarts)


def factor_kind(rows: Rows, settings: dict[str, Any], owner: str, parameter: str) -> Kind:
    """Factor analysis is the same in any units of its columns; one noise variance for all asks in
    which units they share it.
    """
    check_choice(owner, "noise", settings["noise"], NOISES)
    check_choice(owner, "scale", settings["scale"], SCALES)
    check_real(owner, "reg_covar", settings["reg_covar"], 0.0, open_low=True)
    if settings["noise"] == "diagonal" or settings["scale"] == "columns":
        return "real"
    latent, prior = dimensions(settings[parameter], rows, AUTO_DIMENSIONS, owner, parameter)
    tried = [latent] if prior is None else range(latent + 1)
    return (
        "real"
        if settings["scale"] == "auto" and asks_for_own_scales(rows, tried, settings["reg_covar"])
        else "scaled"
    )


SHARED = {
    "noise": Setting("isotropic", "isotropic (probabilistic PCA) or diagonal (factor analysis)"),
    "scale": Setting(
        "auto",
        "of isotropic noise: common to all columns, of each of the columns, or auto: which has the "
        "smaller BIC",
    ),
    "reg_covar": Setting(1e-6, "smallest noise variance, in the units of the encoded columns"),
}
MIXED = Family(
    "mixture-ppca",
    "mixture of probabilistic PCAs or factor analyzers, by EM; missing values allowed",
    {
        "n_components": Setting(10, "number of components; auto compares fits by their BIC"),
        "n_latent": Setting(
            "auto", "dimensions of each; auto lets a prior take away what is too much"
        ),
        "max_components": Setting(MOST_COMPONENTS, "the largest number that auto tries"),
        "n_init": Setting(RESTARTS, "k-means++ starts of which the best goes on"),
        **SHARED,
    },
    _mixture_ppca,
    partial(factor_kind, owner="mixture-ppca", parameter="n_latent"),
    lambda g: {"MixturePPCA": MixturePPCA(2, 3, 1, generator=g)},
    missing=True,
)
FAMILY = Family(
    "ppca",
    "probabilistic PCA or factor analysis, in closed form or by EM; missing values allowed",
    {
        "n_components": Setting("auto", "dimensions; auto lets a prior take away what is too much"),
        **SHARED,
    },
    _ppca,
    partial(factor_kind, owner="ppca", parameter="n_components"),
    lambda g: {"PPCA": PPCA(3, 1, generator=g)},
    missing=True,
)
