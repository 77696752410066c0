"""Probabilistic PCA, factor analysis and mixtures of them as families."""

from functools import partial

import torch

from partita.core.arguments import check_count, check_real
from partita.core.protocols import Capability, Settings
from partita.families.base import FAMILIES, Family, Made, Setting
from partita.families.mixture import COUNT, counted
from partita.families.scales import asks_for_own_scales
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
    latent: int | str, rows: Rows, most: int, owner: str, parameter: str
) -> tuple[int, str | None]:
    """Latent dimensions and the prior on them: as given and none, or for ``"auto"`` many and ARD,
    which takes away what is too much.
    """
    if isinstance(latent, str) and latent == "auto":
        return min(most, rows.width - 1, max(1, len(rows) - 1)), "ard"
    return check_count(owner, parameter, latent), None


def _ppca(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    latent, prior = dimensions(
        settings["n_components"], rows, AUTO_DIMENSIONS, "ppca", "n_components"
    )
    noise, floor = settings["noise"], settings["reg_covar"]
    model = PPCA(rows.width, latent, noise=noise, prior=prior, floor=floor, generator=generator)
    n, width = len(rows), rows.width
    small = width <= SOLVED or (n <= SOLVED and n * width <= SOLVED_CELLS)
    closed = small and Capability.CLOSED_FORM in model.capabilities and rows.complete()
    return model, ClosedForm() if closed else EM()


def _mixture_ppca(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
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

    return counted(make, rows, settings, generator)


def factor_kind(rows: Rows, settings: Settings, owner: str, parameter: str) -> Kind:
    """Factor analysis is the same in any units of its columns; one noise variance for all asks in
    which units they share it.
    """
    floor = check_real(owner, "reg_covar", settings["reg_covar"], 0.0, open_low=True)
    if settings["noise"] == "diagonal" or settings["scale"] == "columns":
        return "real"
    latent, prior = dimensions(settings[parameter], rows, AUTO_DIMENSIONS, owner, parameter)
    tried = [latent] if prior is None else range(latent + 1)
    own = settings["scale"] == "auto" and asks_for_own_scales(rows, tried, floor)
    return "real" if own else "scaled"


SHARED = {
    "noise": Setting(
        "isotropic", "isotropic (probabilistic PCA) or diagonal (factor analysis)", tuple(NOISES)
    ),
    "scale": Setting(
        "auto",
        "of isotropic noise: common to all columns, of each of the columns, or auto: which has the "
        "smaller BIC",
        ("auto", "common", "columns"),
    ),
    "reg_covar": Setting(1e-6, "smallest noise variance, in the units of the encoded columns"),
}
FAMILIES.register(
    Family(
        "mixture-ppca",
        "mixture of probabilistic PCAs or factor analyzers, by EM; missing values allowed",
        {
            "n_components": Setting(10, "number of components; auto compares fits by their BIC"),
            "n_latent": Setting(
                "auto", "dimensions of each; auto lets a prior take away what is too much"
            ),
            **COUNT,
            **SHARED,
        },
        _mixture_ppca,
        partial(factor_kind, owner="mixture-ppca", parameter="n_latent"),
        missing=True,
    )
)
FAMILIES.register(
    Family(
        "ppca",
        "probabilistic PCA or factor analysis, in closed form or by EM; missing values allowed",
        {
            "n_components": Setting(
                "auto", "dimensions; auto lets a prior take away what is too much"
            ),
            **SHARED,
        },
        _ppca,
        partial(factor_kind, owner="ppca", parameter="n_components"),
        missing=True,
        names={"latent": "n_components"},
    )
)
