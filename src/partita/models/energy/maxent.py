r"""The maximum-entropy model of given feature averages, with or without hidden variables.

.. math:: p(x) = \frac1Z \exp\big(\theta \cdot \phi(x)\big), \qquad
          p(x) = \frac1Z \sum_h \exp\big(\theta \cdot \phi(x, h)\big)
          (theory/energy.md, eq. 3.1, 3.4)

The likelihood gradient is a difference of averages, E_data[phi] - E_model[phi]; at the optimum they
agree.

Letters: N data, D visible, H hidden, K features, S hidden states.
"""

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Generator, Tensor, nn

from partita.core.arguments import check_width
from partita.core.protocols import Data, Field, Settings
from partita.core.registry import MODELS
from partita.core.support import Binary, Support
from partita.errors import InputError, RunError, Unsupported, invalid, one_line
from partita.models.energy.features import Feature, as_features
from partita.models.energy.paths import FromProduct
from partita.models.energy.units import MOMENT_ROWS
from partita.runtime.seeds import stretches

HULL_BITS = 10  # of a support whose states are few enough for a linear program
FEATURE_CELLS = 1 << 24  # rows x features looked at together
LEAST_SHARE = 1e-9  # of a state's probability, relative to uniform, below which it counts as zero
HIDDEN_BITS = 12  # hidden states are summed for every row, so there must be few


@MODELS.register
class MaxEnt(FromProduct):
    """theta . phi(x) for any features phi.

    Arguments:
        features: A module or function from ``(*, D)`` to ``(*, K)`` or ``(*)``, a list of them, or
            one of ``"independent"``, ``"pairwise"``, ``"k-pairwise"``. With hidden variables it is
            called as ``features(x, h)``.
        support: Where x lives; discrete, every coordinate with the same values.
        hidden: Support of h, at most 12 bits; summed out exactly.
        generator: Kept for the common signature; theta starts at zero.

    >>> model = MaxEnt("pairwise", Binary(3), generator=torch.Generator())
    >>> model.theta.shape
    torch.Size([6])
    """

    examples = {
        "MaxEnt, few columns": {"features": "pairwise", "support": Binary(6)},
        "MaxEnt, many columns": {"features": "pairwise", "support": Binary(24)},
    }

    def __init__(
        self,
        features: str | Feature | Sequence[Feature],
        support: Support,
        *,
        hidden: Support | None = None,
        generator: Generator,
    ) -> None:
        super().__init__()
        for name, value in (("support", support), ("hidden", hidden)):
            if not isinstance(value, Support) and not (name == "hidden" and value is None):
                raise invalid("MaxEnt", name, "be a support such as Binary(3)", one_line(value))
        if not support.countable_sites:
            raise Unsupported(
                f"MaxEnt cannot live on {support}: its coordinates must have finitely many values, "
                "as those of Binary have."
            )
        if hidden is not None and hidden.bits > HIDDEN_BITS:
            allowed = f"have at most {HIDDEN_BITS} bits, for its states are summed at every row"
            raise invalid("MaxEnt", "hidden", allowed, f"{hidden.bits:g} bits")
        if hidden is not None and isinstance(features, str):
            raise invalid(
                "MaxEnt",
                "features",
                "be functions of (x, h) when there are hidden variables",
                repr(features),
            )
        if (
            isinstance(features, str)
            and features == "k-pairwise"
            and not isinstance(support, Binary)
        ):
            raise Unsupported(
                f"MaxEnt('k-pairwise') cannot live on {support}: it counts ones. Use Binary, or "
                "'pairwise'."
            )
        self.name = features if isinstance(features, str) else None
        self.support, self.hidden = support, hidden
        self.features = as_features(features, support.width)
        example = support.states(0, 2, torch.zeros((), device=generator.device))
        self.theta = nn.Parameter(torch.zeros(self._width(example), device=generator.device))
        self.register_product(self.theta)

    def free_energy(self, x: Tensor) -> Tensor:
        """F(x) = -theta . phi(x), or -logsumexp over h of theta . phi(x, h), ``(*, D) -> (*)``."""
        check_width("MaxEnt.free_energy", "x", x, self.support.width, str(self.support))
        return -torch.logsumexp(self._exponents(x), -1)

    def field(self, x: Tensor) -> Field:
        return Field(x, self._exponents(x))

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        assert field.input is not None
        start = self.reference().free_energy(field.x) + self.hidden_nats
        return (1 - beta) * start - torch.logsumexp(beta[..., None] * field.input, -1)

    def site_logits(self, x: Tensor, i: int) -> Tensor | None:
        slope = self._offered("slope")
        if slope is None:
            return None
        return slope(x, i, self.theta)[..., None] * self.support.values().to(x)

    def own_logits(self, x: Tensor) -> Tensor | None:
        slopes = self._offered("slopes")
        if slopes is None:
            return None
        return slopes(x, self.theta)[..., None] * self.support.values().to(x)

    def energy(self, x: Tensor, h: Tensor) -> Tensor:
        """E(x, h) = -theta . phi(x, h)."""
        return -(self.features(x, h) @ self.theta)

    def expected_features(self, x: Tensor) -> Tensor:
        """phi(x), or its average over h given x, ``(*, D) -> (*, K)``: the gradient of -F with
        respect to theta.
        """
        phi = self._phi(x)
        if self.hidden is None:
            return phi
        return torch.softmax(phi @ self.theta, -1)[..., None, :].matmul(phi).squeeze(-2)

    def hidden_given_visible_probs(self, x: Tensor) -> Tensor:
        """p(h | x) of every hidden state in the order of ``hidden.states``, ``(*, D) -> (*,
        S)``.
        """
        return torch.softmax(self._exponents(x), -1)

    @property
    def hidden_nats(self) -> float:
        return 0.0 if self.hidden is None else self.hidden.bits * math.log(2)

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        self.fit_product(data, min(len(data), MOMENT_ROWS), generator)
        start = getattr(self.features, "start", None)
        if start is not None and isinstance(self.support, Binary):
            self.theta.copy_(start(torch.softmax(self.reference_logits, -1)[:, 1]))

    @torch.no_grad()
    def data_warnings(self, data: Data, *, generator: Generator) -> list[str]:
        if self.hidden is not None:
            return []
        few = self.support.bits <= HULL_BITS
        states = (
            self.support.states(0, round(2**self.support.bits), self.theta)
            if few
            else self._random_states(generator)
        )
        low, high, mean = self._feature_summary(data, generator)
        # alike in all of the data, but not on other states
        stuck = ((low == high) & (self._phi(states) != low).any(0)).nonzero().flatten()
        if len(stuck):
            return [
                f"{len(stuck)} of {len(self.theta)} features never vary in the data (the first is "
                f"number {int(stuck[0])}), so their parameters have no finite optimum; give a "
                "penalty, such as l2=1e-3."
            ]
        if few and not inside_hull(self._phi(states), mean):
            return [
                "the data's feature averages lie on the edge of what any distribution can have, so "
                "the optimum is not finite; "
                "give a penalty, such as l2=1e-3."
            ]
        return []

    def _feature_summary(self, data: Data, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Least, greatest and weighted mean value of every feature over the data, some rows at a
        time.
        """
        size = max(1, FEATURE_CELLS // len(self.theta))
        total = torch.zeros_like(self.theta, dtype=torch.float64)
        low, high = torch.full_like(self.theta, torch.inf), torch.full_like(self.theta, -torch.inf)
        for index in stretches(len(data), size):
            batch = data.batch(index, generator=generator)
            phi = self._phi(batch.x.to(self.theta))
            weight = torch.ones(len(phi)) if batch.weight is None else batch.weight
            low, high = torch.minimum(low, phi.amin(0)), torch.maximum(high, phi.amax(0))
            total += weight.to(total) @ phi.double()
        return low, high, total / len(data)

    def settings(self) -> Settings:
        rebuildable = (
            self.name is not None and self.hidden is None and isinstance(self.support, Binary)
        )
        return (
            {"features": self.name, "visible": self.support.width}
            if rebuildable
            else {"features": None}
        )

    @classmethod
    def from_settings(cls, settings: Settings, *, generator: Generator) -> Self:
        if settings.get("features") is None:
            raise RunError(
                "load: features must be named ones, such as 'pairwise'; got functions, which are "
                "code and are never saved. "
                "Build the MaxEnt yourself and hand it over as load(path, model=...)."
            )
        return cls(settings["features"], Binary(settings["visible"]), generator=generator)

    def title(self) -> str:
        return f"MaxEnt({self.name or 'features'}, {self.support.width})"

    def _exponents(self, x: Tensor) -> Tensor:
        """theta . phi(x, h) for every h, ``(*, S)``; one column where there is no h."""
        dot = self._offered("dot")
        found = self._phi(x) @ self.theta if dot is None else dot(x, self.theta)
        return found[..., None] if self.hidden is None else found

    def _offered(self, method: str) -> Feature | None:
        """What a feature module offers beside phi itself, for models without hidden variables."""
        return getattr(self.features, method, None) if self.hidden is None else None

    def _phi(self, x: Tensor) -> Tensor:
        """phi(x) ``(*, K)``, or phi(x, h) for every h ``(*, S, K)``."""
        if self.hidden is None:
            value = self._call_features(x)
            return value[..., None] if value.dim() < x.dim() else value
        h = self.hidden.states(0, round(2**self.hidden.bits), x)
        return self._call_features(
            x[..., None, :].expand(*x.shape[:-1], len(h), -1), h.expand(*x.shape[:-1], -1, -1)
        )

    def _call_features(self, *arguments: Tensor) -> Tensor:
        try:
            return self.features(*arguments)
        except RuntimeError as error:
            if "dtype" not in str(error):
                raise
            raise invalid(
                "MaxEnt",
                "features",
                "follow the dtype of x, for log Z is summed in float64",
                str(error).split("\n")[0],
                "Write A.to(x) where a function holds a tensor A.",
            ) from None

    def _width(self, example: Tensor) -> int:
        try:
            with torch.no_grad():
                phi = self._phi(example)
        except InputError:
            raise
        except Exception as error:  # whatever a function says that is no function of rows
            reason = f"{type(error).__name__}: {error}".split("\n")[0]
            raise invalid(
                "MaxEnt", "features", "map (*, D) to (*, K) or (*)", f"one that fails ({reason})"
            ) from error
        if phi.shape[: example.dim() - 1] != example.shape[:-1]:
            raise invalid(
                "MaxEnt",
                "features",
                "map (*, D) to (*, K) or (*)",
                f"{tuple(example.shape)} to {tuple(phi.shape)}",
            )
        return phi.shape[-1]

    def _random_states(self, generator: Generator) -> Tensor:
        values = self.support.values().to(self.theta)
        index = torch.randint(len(values), (256, self.support.width), generator=generator)
        return values[index.to(values.device)]


def inside_hull(features: Tensor, mean: Tensor) -> bool:
    r"""Whether ``mean`` (K,) is in the relative interior of the convex hull of ``features`` (S, K),
    so that the optimum is finite: by a linear program.

    .. math:: \max_{p, t} t \quad\text{such that}\quad \sum_x p_x \phi(x) = m, \; \sum_x p_x = 1, \;
              p_x \ge t          (theory/energy.md, eq. 3.3)

    The averages m are there exactly if the largest t is positive: then some distribution that gives
    every state a positive probability has them.
    """
    from scipy.optimize import linprog  # a third of a second that no other model needs

    phi, m = features.double().cpu().numpy(), mean.double().cpu().numpy()
    n = len(phi)
    columns = np.vstack([phi.T, np.ones(n)])  # with p = q + t, q >= 0
    # t in units of the uniform probability 1 / n
    equal = np.hstack([columns, columns.sum(1, keepdims=True) / n])
    solution = linprog(
        np.r_[np.zeros(n), -1.0], A_eq=equal, b_eq=np.r_[m, 1.0], bounds=[(0, None)] * (n + 1)
    )
    return bool(solution.status == 0 and -solution.fun > LEAST_SHARE)
