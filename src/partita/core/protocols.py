r"""The roles: what a model, a sampler, an objective and an evaluator are to one another.

An energy model is

.. math:: p(x) = e^{-F(x)} / Z, \qquad Z = \sum_x e^{-F(x)}          (theory/energy.md, eq. 1.1)

with F cheap and Z not. Its path from the reference (beta = 0) to itself (beta = 1) is part of the
model, because with hidden units the joint is annealed, and because every temperature can be had
from one matrix product (``field``).

Letters: N data, B batch, C chains, T temperatures, D visible, H hidden.
"""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import wraps
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

import numpy as np
import torch
from torch import Tensor, nn

from partita.core.arguments import Checked, check_generator, check_real, check_role, checks_of
from partita.core.enumeration import Side
from partita.core.quantity import Quantity
from partita.core.support import Support
from partita.errors import invalid
from partita.runtime import memory_limit


class Capability(StrEnum):
    """What a model can do beyond its role; the capability table decides by it what runs on what."""

    LOG_PROB = "log_prob"  # ``log_prob(x)``, (*, D) -> (*), is exact and normalized
    MISSING = "missing"  # NaN in x is a missing value; the rest is scored
    ENDS = "ends"  # rows may end early, as NaN from there on or as ``log_prob(x, lengths)``
    DROPS = "drops"  # some activations are dropped at random during training
    INVERTIBLE = "invertible"  # x is a differentiable, invertible function of noise
    CONDITIONALS = "conditionals"  # p(x | h) and p(h | x) factorize
    CENTERING = "centering"  # the gradient has a centered form
    FIELD = "field"  # energies at every temperature follow from one matrix product
    PAIRS = "pairs"  # the energy is a sum over sites and pairs of sites
    JOINT = "joint"  # hidden units have a joint energy with x and can be drawn given x
    NETWORK = "network"  # the energy is a neural network of x
    CLOSED_FORM = "closed_form"  # maximum likelihood has a closed form
    EM = "em"  # E and M steps are defined
    POSTERIOR_DRAWS = "posterior_draws"  # the posterior is kept as draws
    GENERATES = "generates"  # draws carry gradients back to the parameters
    EMBEDS = "embeds"  # an encoder of rows, not a density
    LATENT = "latent"  # latent variables with a proposal for their posterior
    REPARAMETERIZED = "reparameterized"  # latent draws carry gradients to their proposal
    DISCRETE_LATENTS = "discrete_latents"  # latent variables are discrete
    DOUBLY = "doubly"  # the proposal is one normal for all latent variables at once
    FILTERS = "filters"  # latent variables come step by step along a sequence
    LATENT_ENERGY = "latent_energy"  # real latent variables with a known prior


Module = TypeVar("Module", bound=nn.Module)
Settings: TypeAlias = dict[str, Any]  # constructor arguments as JSON
ANCHORS = 128  # rows of training data that a fitted model remembers


class Batch(NamedTuple):
    """What the loop hands over; most models read ``x`` alone."""

    x: Tensor  # (B, D)
    weight: Tensor | None = None  # (B,), mean one over the data
    mask: Tensor | None = None  # (B, D), true where observed
    lengths: Tensor | None = None  # (B,), for sequences
    row: Tensor | None = None  # (B,), numbers of the rows in the data

    def mean(self, values: Tensor) -> Tensor:
        """Mean over the batch; weights have mean one over the data, so that it stays unbiased."""
        return values.mean() if self.weight is None else (self.weight * values).mean()


class Field(NamedTuple):
    """What a model computes from x once: from it follow the free energies at all temperatures and
    the next conditional.
    """

    x: Tensor
    input: Tensor | None = None  # for an RBM x W + c, (*, H)


class Neighbors(NamedTuple):
    """Energies of a ladder's states: F on their own rungs, and by how much it is more there than
    on the rung above and on the rung below; with the field there, where all rungs share it.
    """

    own: Tensor  # (T, C)
    up: Tensor  # (T - 1, C)
    down: Tensor  # (T - 1, C)
    field: Field | None = None


@runtime_checkable
class Data(Protocol):
    """Rows to learn from, in memory or not."""

    @property
    def width(self) -> int: ...

    def __len__(self) -> int: ...

    def batch(self, index: Tensor, *, generator: torch.Generator) -> Batch: ...

    def mean(self) -> Tensor: ...  # weighted column means, float64

    def variance(self) -> Tensor: ...


class Reference(Protocol):
    """A distribution with known log Z and exact draws, where annealing starts."""

    @property
    def log_z(self) -> Tensor: ...

    def free_energy(self, x: Tensor) -> Tensor: ...

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor: ...


class Built(nn.Module):
    """A module whose constructor takes sizes and a ``generator``: before any number is made, an
    error names an argument that its signature does not allow
    (:mod:`partita.core.arguments`), a generator that is none and sizes that exceed the memory.
    """

    arguments: Settings  # of the constructor, defaults too, but for the generator
    unsaved: ClassVar[tuple[str, ...]] = ()  # those that only the first weights depend on

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = _checked(cls.__init__)

    def settings(self) -> Settings:
        """Constructor arguments as JSON, those that are None left out, from which a saved run is
        rebuilt without executing code.
        """
        return {
            name: _as_json(value)
            for name, value in self.arguments.items()
            if value is not None and name not in self.unsaved
        }


def _as_json(value: object) -> object:
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _checked(build: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(build)
    checks = [
        (name, check)
        for name, annotation in build.__annotations__.items()
        for check in checks_of(annotation)
    ]

    @wraps(build)
    def built(self: Built, *sizes: object, **settings: object) -> None:
        owner = type(self).__name__
        try:
            bound = signature.bind(self, *sizes, **settings)
        except TypeError:
            return build(self, *sizes, **settings)  # which says what is missing, or too much
        bound.apply_defaults()
        given = bound.arguments
        if "generator" in given:
            check_generator(owner, given["generator"])
        for name, check in checks:
            found = check(owner, name, given[name])
            given[name] = given[name] if found is None else found  # perhaps in another form
        if type(self).__init__ is built:
            self.arguments = {
                name: value for name, value in given.items() if name not in ("self", "generator")
            }
        with memory_limit.named(owner), memory_limit.within_machine(owner):
            build(*bound.args, **bound.kwargs)

    return built


class Model(Built, ABC):
    """What the loop, the runs and the messages need of any model, energy or directed."""

    support: Support
    # parameters that L1 and L2 act on; None is all
    penalized: ClassVar[tuple[str, ...] | None] = None
    # other methods that gradients flow through, beside those of the base classes
    forward_methods: ClassVar[tuple[str, ...]] = ()
    capabilities: frozenset[Capability] = frozenset()  # what core.capability may rely on
    # arguments of small ones, by a label: one of each sort that the capability grid tells apart; a
    # network is a partial, still without its generator
    examples: ClassVar[Mapping[str, Settings]] = {}

    @classmethod
    def from_settings(cls, settings: Settings, *, generator: torch.Generator) -> Self:
        """The model that :meth:`settings` describes, with fresh parameters."""
        return cls(**settings, generator=generator)

    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        """Set what has a good start from training data: a reference, biases, scales; nothing by
        default.
        """

    def resize_buffers(self, weights: dict[str, Tensor]) -> None:
        """Before saved weights are taken in: resize buffers whose length the data decided; nothing
        by default.
        """

    def title(self) -> str:
        """The model with its sizes, for messages."""
        return type(self).__name__

    def data_warnings(self, data: Data, *, generator: torch.Generator) -> list[str]:
        """What makes the maximum-likelihood fit of these data ill-posed without a penalty, one
        sentence each.
        """
        return []

    def fit_warnings(self) -> list[str]:
        """What a fit had to hold back to keep the parameters proper, each in one sentence; nothing
        by default.
        """
        return []

    @property
    def like(self) -> Tensor:
        """A tensor whose device and dtype new tensors copy."""
        return next(iter(self.parameters()))


class EnergyModel(Model):
    """p(x) = exp(-F(x)) / Z with Z unknown; ``forward`` is ``free_energy``, so that gradients cross
    processes.
    """

    forward_methods = ("conditional_logits",)
    begins_exactly: ClassVar[bool] = True  # whether the reference can be drawn from
    differentiable: bool = True  # whether F has a gradient that autograd finds
    beta: Tensor | float = 1.0  # place on the way from the reference (0) to the model (1)
    # weights by name that the model had while it was trained, earliest first, where they were kept
    trajectory: tuple[Mapping[str, Tensor], ...] = ()
    anchors: Tensor
    anchored: Tensor

    @abstractmethod
    def free_energy(self, x: Tensor) -> Tensor:
        """F(x), ``(*, D) -> (*)``."""

    @abstractmethod
    def reference(self) -> Reference:
        """The beta = 0 end of the path."""

    @abstractmethod
    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        """Set the reference, and parameters that have a good start, from the base rates of training
        data.
        """

    def register_anchors(self, width: int, like: Tensor) -> None:
        """Make room for rows of training data, which say where the modes are; none are known until
        :meth:`set_anchors`.
        """
        self.register_buffer("anchors", like.detach().new_zeros(ANCHORS, width))
        self.register_buffer("anchored", torch.tensor(False, device=like.device))

    @torch.no_grad()
    def set_anchors(self, data: Data, *, generator: torch.Generator) -> None:
        """Remember random rows of training data, from which annealing and ladders start as well as
        from the reference.
        """
        index = torch.randint(len(data), (ANCHORS,), generator=generator, device=generator.device)
        self.anchors.copy_(data.batch(index.cpu(), generator=generator).x)
        self.anchored.fill_(True)

    def remembering(self, rows: Tensor | None, owner: str) -> "EnergyModel":
        """A view that knows these rows in place of those of its training data; itself where there
        are none.
        """
        if rows is None:
            return self
        try:
            rows = torch.as_tensor(rows)
        except (TypeError, ValueError, RuntimeError):
            got = f"a {type(rows).__name__} that is none"
            raise invalid(owner, "rows", "be a table of numbers", got) from None
        if rows.is_complex():
            raise invalid(owner, "rows", "be real numbers", str(rows.dtype))
        rows = rows.to(self.like)
        if rows.dim() != 2 or not len(rows):
            allowed = f"have shape (N, {self.support.width}) with N of at least 1"
            raise invalid(owner, "rows", allowed, tuple(rows.shape))
        rows = self.support.check(rows, owner, "rows")
        # of which the first are used, whatever theirs was
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        return self.viewed(anchors=rows[order], anchored=torch.tensor(True))

    def anchor_rows(self, n: int) -> Tensor | None:
        """``n`` of the remembered rows, repeated if need be; None where there are none."""
        if "anchors" not in self._buffers or not self.anchored:
            return None
        # of a file they may be anything
        anchors = self.support.check(self.anchors, self.title(), "anchors")
        return anchors[torch.arange(n, device=anchors.device) % len(anchors)]

    def forward(self, x: Tensor, field: Field | None = None) -> Tensor:
        if field is None:
            return self.free_energy(x)
        return self.free_energy(x, field=field)  # type: ignore[call-arg]

    def sides(self) -> list[Side]:
        """The ways to write Z as a finite sum: over x here; over h too where x given h is
        tractable.
        """
        if self.support.bits == float("inf"):
            return []
        return [Side("visible", self.support, self.free_energy)]

    def field(self, x: Tensor) -> Field:
        """The work at x that all temperatures share."""
        return Field(x)

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        """F at inverse temperature ``beta``, which broadcasts against the batch dimensions of the
        field.
        """
        return (1 - beta) * self.reference().free_energy(field.x) + beta * self.free_energy(field.x)

    def free_energies(self, x: Tensor, betas: Tensor, field: Field | None = None) -> Tensor:
        """F at every temperature, ``(*, D), (T,) -> (T, *)``, from one product; ``field`` where
        it is known already.
        """
        field = self.field(x) if field is None else field
        return self.energy_along(field, betas.reshape(-1, *[1] * (x.dim() - 1)))

    def neighbors(self, ladder: Tensor, betas: Tensor) -> Neighbors:
        """Energies of the states of all rungs, ``(T, C, D)``, there and on the rungs beside."""
        field, b = self.field(ladder), betas[:, None]
        beside = torch.stack([b, b.roll(-1, 0), b.roll(1, 0)])
        own, above, below = self.energy_along(field, beside)
        return Neighbors(own, (own - above)[:-1], (own - below)[1:], field)

    def rungs(self, betas: Tensor) -> "list[EnergyModel]":
        """What moves the rungs of a ladder ``(T, C, D)``: one model for all of them, or one for
        each.
        """
        return [self.annealed(betas[:, None])]

    def slope(self, x: Tensor, beta: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
        """F and dF/dx, ``(*, D) -> (*), (*, D)``, where the model knows a quicker way than a
        backward pass; None by default.
        """
        return None

    def site_energies(
        self, x: Tensor, i: int, values: Tensor, beta: Tensor | None = None
    ) -> Tensor:
        """F, up to a constant of each row, with coordinate ``i`` set to each value, ``(*, D), (K,)
        -> (K, *)``.
        """
        trials = x.expand(len(values), *x.shape).clone()
        trials[..., i] = values.view(-1, *[1] * (x.dim() - 1))
        if beta is None:
            return self.free_energy(trials)
        return self.energy_along(self.field(trials), beta)

    def conditional_logits(self, x: Tensor, beta: Tensor | None = None) -> Tensor:
        """log p(x_i = v | the others) up to a constant of each site, for all sites and values,
        ``(*, D) -> (*, D, K)``.
        """
        values = self.support.values().to(x)
        sites = [self.site_energies(x, i, values, beta) for i in range(x.shape[-1])]
        return -torch.stack([energies.movedim(0, -1) for energies in sites], -2)

    def center(self, mu: Tensor) -> None:
        """Rewrite the gradients into their centered form, at column means ``mu`` (D,); for models
        with :attr:`Capability.CENTERING`.
        """
        raise NotImplementedError(f"{self.title()} has no centered gradient")

    def begun_at(self, table: Tensor) -> "EnergyModel":
        """A view whose path begins at a product of each chain: log-probabilities ``(C, D, K)``, or
        means and variances ``(C, D, 2)``.
        """
        return self.viewed(reference_logits=table)

    def landmarks(self, n: int) -> Tensor | None:
        """At most ``n`` states that the parameters point to, where chains that seek modes begin;
        None where they point nowhere.

        By default the states whose coordinates are all alike.
        """
        if not self.support.countable_sites:
            return None
        values = self.support.values().to(self.like)[:n]
        return values[:, None].expand(-1, self.support.width).clone()

    def viewed(self, **buffers: Tensor) -> Self:
        """A shallow copy with other buffers."""
        view = copy.copy(self)
        object.__setattr__(view, "_buffers", {**self._buffers, **buffers})
        return view

    def given_component(
        self, x: Tensor, beta: Tensor | None = None, *, generator: torch.Generator
    ) -> "EnergyModel":
        """The model, at ``beta``, given the component of a mixed reference that each chain at ``x``
        belongs to, which is drawn.
        """
        return self if beta is None else self.annealed(beta)

    def annealed(self, beta: Tensor | float) -> "EnergyModel":
        """The model at ``beta``, a number or a tensor that broadcasts against batch dimensions;
        composes.
        """
        if not isinstance(beta, Tensor):
            check_real("annealed", "beta", beta, 0.0)
        from partita.core.annealed import Annealed  # which is itself an energy model

        return Annealed(self, beta)


class DirectedModel(Model):
    """p(x) = sum or integral of p(x|z) p(z), drawn top-down.

    ``forward`` is ``log_prob``, where there is one, so that gradients cross processes.
    """

    @abstractmethod
    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        """``n`` independent exact draws, ``(n, D)``."""

    def forward(self, x: Tensor, /, *more: Any, **named: Any) -> Tensor:
        return self.log_prob(x)  # type: ignore[operator]


class ChainState(Protocol):
    """The state of a Markov kernel: at least where its chains are."""

    @property
    def x(self) -> Tensor: ...  # (*, C, D)


class StepInfo(Protocol):
    """What one step of a Markov kernel did."""

    def numbers(self) -> dict[str, Tensor]: ...


class Chains(NamedTuple):
    """The state of a kernel that remembers x alone, with the model's field at x if it is known."""

    x: Tensor  # (*, C, D)
    field: Field | None = None


State = TypeVar("State")
Learned: TypeAlias = Any  # a model with what its objective needs, as the capability table says
# losses by name, whose sum is minimized, the next state, and numbers to record
Losses: TypeAlias = tuple[dict[str, Tensor], State, dict[str, Tensor]]
Walk = TypeVar("Walk", bound=ChainState)


class Sampler(Checked, ABC, Generic[Walk]):
    """A Markov kernel on an explicit state.

    ``kernel_on`` is ``"x"``, or ``"ladder"`` if it moves all temperatures at once. A kernel that
    ``remembers`` more than x, such as step sizes, overrides :meth:`place` and :meth:`reopen`; one
    whose step sizes can be tuned along a path overrides :meth:`tuned`.
    """

    kernel_on: ClassVar[Literal["x", "ladder"]] = "x"
    invariant: ClassVar[bool] = True  # whether it leaves the target exactly unchanged
    remembers: ClassVar[bool] = False  # whether its state holds more than can be had from x
    independent: ClassVar[bool] = True  # whether chains of a batch never see one another

    @abstractmethod
    def init(self, model: EnergyModel, x: Tensor, *, generator: torch.Generator) -> Walk:
        """The state of chains that start at ``x``, ``(*, C, D)``."""

    @abstractmethod
    def step(
        self, model: EnergyModel, state: Walk, *, generator: torch.Generator
    ) -> tuple[Walk, StepInfo]:
        """The next state, and what the step did."""

    def place(
        self,
        model: EnergyModel,
        state: Walk,
        x: Tensor,
        field: Field | None = None,
        *,
        generator: torch.Generator,
    ) -> Walk:
        """The chains at ``x`` under ``model``: what was learned about step sizes stays, what
        depends on the target is new. ``field`` is the model's at ``x``, where it is known.
        """
        return self.init(model, x, generator=generator)

    def reopen(self, state: Walk) -> Walk:
        """The state with its warm-up resumed, because the model has changed."""
        return state

    def refresh(self, model: EnergyModel, state: Walk, *, generator: torch.Generator) -> Walk:
        """The state after the parameters of ``model`` have changed."""
        return self.reopen(state)

    def tuned(self, model: EnergyModel, *, generator: torch.Generator) -> Self:
        """The kernel with step sizes fixed at every temperature by a pilot run; itself where there
        is nothing to tune.
        """
        return self

    def suited_to(self, model: EnergyModel, x: Tensor) -> Self:
        """The tuned kernel with steps that also suit chains at ``x``, ``(N, D)``; itself where
        there is nothing to suit.
        """
        return self


def check_kernel(owner: str, parameter: str, value: object) -> None:
    """An object that moves chains."""
    check_role(owner, parameter, value, ("step",), "Gibbs()")
    if not isinstance(value, Sampler):
        raise invalid(
            owner,
            parameter,
            "be a partita.core.Sampler",
            f"a {type(value).__name__}, which is none",
        )


class Objective(Checked, ABC, Generic[State]):
    """What a gradient learner minimizes.

    ``deterministic`` losses, functions of the batch alone, may be minimized by L-BFGS; losses
    ``in_nats`` are small where a fit goes well.
    """

    deterministic: ClassVar[bool] = False
    in_nats: ClassVar[bool] = True

    @abstractmethod
    def init(self, model: Learned, data: Data, *, generator: torch.Generator) -> State:
        """Chains, queues; ``state.module``, if there is one, holds trainable extras."""

    @abstractmethod
    def losses(
        self, model: Learned, batch: Batch, state: State, *, generator: torch.Generator
    ) -> Losses[State]:
        """Losses by name, whose sum is minimized, the next state, and numbers to record.

        Gradients flow through ``model(x)``; in data-parallel training ``model`` is a wrapper, and
        :func:`unwrapped` is the model inside.
        """

    def deterministic_on(self, model: Learned) -> bool:
        """Whether the loss of this model is a function of the batch alone."""
        return self.deterministic

    def shared(self, processes: int) -> Self:
        """What one of several processes does where they share the rows; chains are shared too."""
        return self

    def precondition(self, model: Learned, state: State) -> None:
        """Rewrite the gradients in place after the backward pass; nothing by default."""

    def epoch(
        self, model: Learned, data: Data, state: State, *, generator: torch.Generator
    ) -> State:
        """The state between two epochs, unchanged by default."""
        return state


class Update(Checked, ABC, Generic[State]):
    """EM, coordinate ascent, Gibbs: closed-form steps without an optimizer.

    ``converges`` says that the recorded ``loss`` falls to a limit, so that a fit may stop where it
    no longer does.
    """

    converges: ClassVar[bool] = True
    fewest: ClassVar[int] = 1  # updates that a fit makes at least, whatever its budget

    @abstractmethod
    def init(self, model: Learned, data: Data, *, generator: torch.Generator) -> State:
        """The state before the first update."""

    @abstractmethod
    def update(
        self, model: Learned, data: Data, state: State, *, generator: torch.Generator
    ) -> tuple[State, dict[str, Tensor]]:
        """Change the model in place; the next state, and numbers to record."""

    def check(self, model: Learned, data: Data, state: State) -> None:
        """Raise where a state read from a file does not fit the model and the data."""


class PartitionEvaluator(Protocol):
    """log Z as a Quantity."""

    def __call__(self, model: EnergyModel, *, generator: torch.Generator) -> Quantity: ...


class LikelihoodEvaluator(Protocol):
    """log p(x), mean over rows, as a Quantity."""

    def __call__(self, model: Learned, x: Tensor, *, generator: torch.Generator) -> Quantity: ...


def unwrapped(model: Module) -> Module:
    """The model inside a wrapper for data-parallel training: what samples, while gradients flow
    through the wrapper's forward.
    """
    return getattr(model, "module", model)  # Fabric and torch name it so


def in_double(model: Module) -> Module:
    """A copy in float64, for numbers that are published."""
    return copy.deepcopy(model).double()
