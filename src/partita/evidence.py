"""The front door: any unnormalized density in, log Z with an honest interval and draws out.

>>> import torch, partita
>>> from partita.core import Real
>>> q = partita.log_z(lambda x: -0.5 * (x**2).sum(-1), Real(2))
>>> abs(q.value - torch.tensor(2 * torch.pi).log()) < 1e-3, q.trusted, q.draws.shape
(tensor(True), True, torch.Size([1000, 2]))
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from partita.core import capability, rng
from partita.core.arguments import check_count, check_real
from partita.core.batched import Batched
from partita.core.enumeration import probabilities
from partita.core.protocols import DirectedModel, EnergyModel, PartitionEvaluator
from partita.core.quantity import Quantity
from partita.core.support import Real, Support
from partita.errors import OutOfBudget, Unsupported, invalid, one_line
from partita.evaluators.partition.chains.from_chains import from_chains
from partita.evaluators.partition.locate import located
from partita.evaluators.partition.portfolio import Portfolio
from partita.models.energy.coordinates import Prior
from partita.models.energy.target import Budget, Target
from partita.runtime import deadline
from partita.samplers import sample

KINDS = "Real(5), Interval(3, 0, 1), Binary(60), Spin(60), Categorical(20, 5)"
DRAWS = 1000


@dataclass(frozen=True)
class Evidence(Quantity):
    """log Z with the draws that came with it."""

    @property
    def draws(self) -> Tensor:
        """Equally weighted draws in the caller's coordinates, ``(n, D)``."""
        return self.details["draws"]

    def report(self, path: str | Path) -> Path:
        """Write a page about the number, with what was tried, that opens from disk."""
        from partita.report.evidence import write

        return write(self, Path(path))


class LogZ:
    """log Z of a function, a function under a prior, or a model; :meth:`from_chains` for chains
    that exist already. It is called as ``partita.log_z(...)``.
    """

    def __call__(
        self,
        log_density: Callable[..., object] | EnergyModel,
        support: Support | None = None,
        *,
        prior: Sequence[object] | None = None,
        rows: Any = None,
        evaluator: PartitionEvaluator | None = None,
        minutes: float | None = None,
        evaluations: int | None = None,
        n_draws: int = DRAWS,
        generator: int | torch.Generator = 0,
    ) -> Evidence:
        r"""log of the integral, or the sum, of exp(log_density) over the support; with a prior, of
        the evidence.

        Arguments:
            log_density: Of a batch ``(n, D)`` or of one row ``(D,)``, in torch, NumPy or plain
                Python; with a ``prior`` the log-likelihood; or an energy model.
            support: Where x lives, such as ``Real(5)``, ``Interval(3, 0, 1)``, ``Binary(60)``.
            prior: One distribution for each coordinate, of ``torch.distributions`` or
                ``scipy.stats``, in place of a support.
            rows: States that show where the mass is, ``(N, D)``; without any, log Z is never called
                tight.
            evaluator: One method, in place of the portfolio of all.
            minutes: After which no more of a function is evaluated.
            evaluations: Of a function, after which it ends.
            n_draws: Equally weighted draws to keep.
            generator: A seed or a generator.
        """
        check_count("log_z", "n_draws", n_draws)
        g = _generator(generator)
        model = (
            _own(log_density, support, prior)
            if isinstance(log_density, EnergyModel | DirectedModel)
            else _target(log_density, support, prior, minutes, evaluations)
        )
        model = _remembering(model, rows)
        method = Portfolio() if evaluator is None else evaluator
        try:
            if isinstance(model, Target):
                model = _begun(model, g)
            q = method(model, generator=g)
        except OutOfBudget as error:
            raise OutOfBudget(f"{error} No method came to its end; give more of both.") from None
        return _evidence(q, model, n_draws, g)

    def from_chains(
        self,
        draws: object,
        log_density: Callable[..., object],
        *,
        level: float = 0.95,
        generator: int | torch.Generator = 0,
    ) -> Evidence:
        """log Z from chains that exist already, by bridge sampling; arguments as for
        :func:`partita.evaluators.partition.chains.from_chains.from_chains`.
        """
        return _as_evidence(
            from_chains(draws, log_density, level=level, generator=_generator(generator))
        )


log_z = LogZ()


def _generator(value: int | torch.Generator) -> torch.Generator:
    if isinstance(value, torch.Generator):
        return value
    return torch.Generator().manual_seed(check_count("log_z", "generator", value, 0))


def _own(model: nn.Module, support: object, prior: object) -> EnergyModel:
    """A model of ours, which knows where it lives."""
    if isinstance(model, DirectedModel):
        raise Unsupported(
            f"log_z: {model.title()} is normalized, so its log Z is 0. Score rows with "
            "partita.evaluate."
        )
    assert isinstance(model, EnergyModel)
    for name, value in (("support", support), ("prior", prior)):
        if value is not None:
            raise invalid("log_z", name, f"be left out for {model.title()}", one_line(value))
    return model


def _target(
    log_density: object,
    support: Support | None,
    prior: Sequence[object] | None,
    minutes: float | None,
    evaluations: int | None,
) -> Target:
    """A function with a support or a prior."""
    if (support is None) == (prior is None):
        got = "neither" if support is None else "both"
        remedy = "As in log_z(f, Real(5)) or log_z(f, prior=[Normal(0, 1), Uniform(0, 5)])."
        raise invalid("log_z", "support or prior", "be given, one of them", got, remedy)
    if support is not None and not isinstance(support, Support):
        raise invalid("log_z", "support", f"be one such as {KINDS}", one_line(support))
    known = None if prior is None else Prior("log_z", prior)
    lives = Real(known.width) if support is None and known is not None else support
    assert lives is not None
    moment = math.inf
    if minutes is not None:
        moment = deadline.now() + 60 * check_real("log_z", "minutes", minutes, 0, open_low=True)
    if evaluations is not None:
        check_count("log_z", "evaluations", evaluations, 1000)
    budget = Budget(math.inf if evaluations is None else evaluations, moment)
    f = Batched(log_density, lives.width)  # type: ignore[arg-type]
    return Target(f, lives, known, budget)


def _remembering(model: EnergyModel, rows: Any) -> EnergyModel:
    if rows is None:
        return model
    if isinstance(model, Target):
        x = torch.as_tensor(rows, dtype=torch.float64)
        model.outer_support.check(x, "log_z", "rows")
        return model.remembering(model.inner(x), "log_z")
    return model.remembering(rows, "log_z")


def _begun(target: Target, g: torch.Generator) -> Target:
    """The target with a reference: the prior, base rates of rows, or a normal around its mass."""
    target.free_energy(target.reference().draw(8, generator=g))  # how to call the function
    if target.prior is not None or target.coordinates is None:
        return target
    return located(target, g)


def _evidence(q: Quantity, model: EnergyModel, n: int, g: torch.Generator) -> Evidence:
    """The quantity with draws in the caller's coordinates, and what it cost."""
    draws = q.details.get("draws")
    draws = _drawn(model, n, g) if draws is None else draws
    if len(draws) > n:
        draws = draws[rng.permutation(len(draws), g)[:n]]
    details: dict[str, Any] = {**q.details}
    if isinstance(model, Target):
        draws = model.outer(draws)
        details |= {
            "evaluations": model.log_density.calls,
            "called": model.log_density.how,
            "nans": model.log_density.nans,
        }
    return _as_evidence(replace(q, details={**details, "draws": draws}))


def _drawn(model: EnergyModel, n: int, g: torch.Generator) -> Tensor:
    """Draws where a method kept none: exact ones of states that can be listed, else chains."""
    if capability.smallest_bits(model) <= capability.EXACT_BITS:
        side = min(model.sides(), key=lambda side: side.support.bits)
        if side.name == "visible":
            p = probabilities(side, model.like)
            index = rng.categorical(p.log(), g, n)
            return side.support.state_at(index, model.like)
    if isinstance(model, Target) and isinstance(model.support, Real):
        return capability.part_named("ImportanceSampling")()(model, generator=g).details["draws"]
    return sample(model, n, generator=g)


def _as_evidence(q: Quantity) -> Evidence:
    return Evidence(**{item.name: getattr(q, item.name) for item in fields(q)})
