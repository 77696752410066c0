r"""Finite mixtures with Gaussian, Bernoulli, categorical or Poisson components, or with a kind of
its own for each column.

.. math:: p(x) = \sum_k \pi_k\, p(x \mid \theta_k)          (theory/mixtures.md, eq. 10.3)

Letters: D columns, K components.
"""

from typing import Annotated

import torch
from torch import Generator

from partita.core.arguments import PositiveFloat, PositiveInt, one_of
from partita.core.protocols import Settings
from partita.core.registry import MODELS
from partita.errors import invalid
from partita.models.directed.components.base import Component
from partita.models.directed.components.diagonal import DiagonalGaussian
from partita.models.directed.components.discrete import (
    BernoulliComponent,
    CategoricalComponent,
    PoissonComponent,
)
from partita.models.directed.components.gaussian import FullGaussian
from partita.models.directed.components.product import ProductComponent
from partita.models.directed.mixing import Mixing
from partita.tables.column_kinds import Law, Laws, kinds_in_words, places

COMPONENTS = ("gaussian", "bernoulli", "categorical", "poisson", "mixed")
LAWS: dict[str, Law] = {"gaussian": "real", "bernoulli": "binary", "poisson": "count"}
COVARIANCES = ("full", "tied", "diagonal", "spherical")


@MODELS.register
class Mixture(Mixing[Component]):
    """K components of one family, in float64; fitted by :class:`partita.objectives.EM`.

    Arguments:
        components: K.
        visible: Number of columns D.
        component: ``"gaussian"``, ``"bernoulli"``, ``"categorical"``, ``"poisson"``, or ``"mixed"``
            with the ``laws`` of the columns: ``"real"`` (together a Gaussian), ``"binary"``,
            ``"count"``, or a number of states.
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
            discrete = BernoulliComponent if law == "binary" else PoissonComponent
            return discrete(count, width, device=device)
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
