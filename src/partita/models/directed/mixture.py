r"""Finite mixtures with Gaussian, Bernoulli, categorical or Poisson components, or with a kind of
its own for each column.

.. math:: p(x) = \sum_k \pi_k\, p(x \mid \theta_k)          (theory/mixtures.md, eq. 10.3)

Letters: D columns, K components.
"""

from collections.abc import Sequence

import torch

from partita.core.checks import check_choice, check_count, check_real
from partita.core.protocols import Settings
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
from partita.tables.column_kinds import Law, check_laws, kinds_in_words, places

COMPONENTS = ("gaussian", "bernoulli", "categorical", "poisson", "mixed")
COVARIANCES = ("full", "tied", "diagonal", "spherical")


class Mixture(Mixing):
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

    def __init__(
        self,
        components: int,
        visible: int,
        component: str = "gaussian",
        covariance: str = "full",
        *,
        states: int | None = None,
        laws: Sequence[Law] | None = None,
        floor: float = 1e-6,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        check_count("Mixture", "components", components)
        check_count("Mixture", "visible", visible)
        check_choice("Mixture", "component", component, COMPONENTS)
        check_choice("Mixture", "covariance", covariance, COVARIANCES)
        check_real("Mixture", "floor", floor, 0, open_low=True)
        if (component == "categorical") != (states is not None):
            raise invalid(
                "Mixture",
                "states",
                "be given for categorical components, and only for them",
                states,
            )
        laws = None if laws is None else check_laws("Mixture", laws)
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
        if laws is not None:
            made = _mixed(components, laws, covariance, floor, generator.device)
        else:
            made = _component(
                components, visible, component, covariance, states, floor, generator.device
            )
        self.hold(made, generator.device)

    def settings(self) -> Settings:
        return {
            "components": self.components,
            "visible": self.support.width,
            **self.component.settings(),
        }

    def title(self) -> str:
        made = self.component.settings()
        law = " ".join(made[name] for name in ("component", "covariance") if name in made)
        law = f"mixed: {kinds_in_words(made['laws'])}" if "laws" in made else law
        return f"Mixture({self.components}, {self.support.width}, {law})"


def _component(
    count: int,
    visible: int,
    component: str,
    covariance: str,
    states: int | None,
    floor: float,
    device: torch.device,
) -> Component:
    if component == "bernoulli":
        return BernoulliComponent(count, visible, device=device)
    if component == "poisson":
        return PoissonComponent(count, visible, device=device)
    if states is not None:
        return CategoricalComponent(count, visible, states, device=device)
    if covariance in ("full", "tied"):
        return FullGaussian(count, visible, tied=covariance == "tied", floor=floor, device=device)
    return DiagonalGaussian(
        count, visible, spherical=covariance == "spherical", floor=floor, device=device
    )


def _mixed(
    count: int, laws: tuple[Law, ...], covariance: str, floor: float, device: torch.device
) -> ProductComponent:
    named = {"real": "gaussian", "binary": "bernoulli", "count": "poisson"}

    def block(law: Law, width: int) -> Component:
        kind, states = (named[law], None) if isinstance(law, str) else ("categorical", law)
        return _component(count, width, kind, covariance, states, floor, device)

    return ProductComponent(
        count, laws, {law: block(law, len(at)) for law, at in places(laws).items()}
    )
