"""What is known by name: models, families and estimators, each registered once where it is written;
and parts of the capability table as JSON and back.

A saved run names its model and its parts. Only registered names are ever looked up, so that reading
a run executes no code of its own. A package outside partita registers what it has when it is
imported; under the entry point ``partita.plugins`` it is found by the command line and by ``load``:

.. code-block:: toml

    [project.entry-points."partita.plugins"]
    coins = "coins"
"""

import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from operator import attrgetter
from typing import Any, TypeVar, cast

import torch
from torch.distributions import Distribution

from partita.core.capability import PARTS, Part, part_named
from partita.core.protocols import Capability, Model, Settings
from partita.errors import PartitaError, PartitaWarning, RunError, invalid
from partita.runtime import PLUGINS
from partita.runtime.files import Json

OTHER = "The run was made by another version of partita."
Thing = TypeVar("Thing")
Same = TypeVar("Same")  # whose type a decorator leaves as it is


@cache
def load_plugins() -> None:
    """Import every installed plugin, once; one that cannot be imported is a warning."""
    for plugin in entry_points(group=PLUGINS):
        try:
            plugin.load()
        except Exception as error:  # whatever a module of others raises
            text = f"plugin {plugin.name!r} ({plugin.value}) cannot be imported: {error}"
            warnings.warn(text, PartitaWarning, stacklevel=2)


@cache
def load_package(name: str) -> None:
    """Import every module of a package, so that what they register is known."""
    package = import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        import_module(module.name)


class Registry(Mapping[str, Thing]):
    """What a package of partita, and installed plugins, registered, in alphabetical order.

    The package is imported when a name is first looked up, plugins when it is none of the
    package's.

    >>> MODELS["RBM"].__name__
    'RBM'

    Arguments:
        package: Whose modules register things of this sort.
        name_of: The name of a thing.
        home_of: The module that it is written in.
    """

    def __init__(
        self,
        package: str,
        name_of: Callable[[Thing], str] = attrgetter("__name__"),
        home_of: Callable[[Thing], str] = attrgetter("__module__"),
    ) -> None:
        self.package, self.name_of, self.home_of = package, name_of, home_of
        self._known: dict[str, Thing] = {}

    def register(self, thing: Same) -> Same:
        """Make a thing known by its name, as a class decorator or a call; it is returned as it is.

        Its own module may do so again, as a cell of a notebook does.
        """
        known = cast("Thing", thing)
        name, home = self.name_of(known), self.home_of(known)
        if name in self._known and self.home_of(self._known[name]) != home:
            got = f"one of {self.home_of(self._known[name])}"
            raise invalid(home, f"the name {name!r}", "be new, to be registered", got)
        self._known[name] = known
        return thing

    def __getitem__(self, name: str) -> Thing:
        for look_further in (lambda: load_package(self.package), load_plugins):
            if name in self._known:
                break
            look_further()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        load_package(self.package)
        load_plugins()
        return iter(sorted(self._known, key=str.lower))

    def __len__(self) -> int:
        return len(list(iter(self)))


MODELS: Registry[type[Model]] = Registry("partita.models")


def model_named(name: str) -> type[Model]:
    """The class behind a model's name in a saved run."""
    if not isinstance(name, str) or name not in MODELS:
        remedy = "Build it yourself and hand it over: load(path, model=...)."
        raise RunError.about("load", "model", f"be one of {', '.join(MODELS)}", repr(name), remedy)
    return MODELS[name]


def example_arguments(model: type[Model], generator: torch.Generator) -> dict[str, Settings]:
    """All arguments of each of a model's examples."""
    randomness = {"generator": generator}
    of_all = randomness if "generator" in signature(model).parameters else {}
    return {
        label: {
            name: value(**randomness) if isinstance(value, partial) else value
            for name, value in example.items()
        }
        | of_all
        for label, example in model.examples.items()
    }


def example_models() -> dict[str, Model]:
    """One density of each sort, for the capability grid: what enumerates and what does not,
    discrete and real.
    """
    g = torch.Generator().manual_seed(0)
    return {
        label: kind(**arguments)
        for kind in MODELS.values()
        if Capability.EMBEDS not in kind.capabilities
        for label, arguments in example_arguments(kind, g).items()
    }


PRIORS = (
    "Normal",
    "Laplace",
    "Cauchy",
    "StudentT",
    "Gamma",
    "Beta",
    "Uniform",
    "HalfNormal",
    "LogNormal",
    "Exponential",
)


def describe_part(part: object) -> Json:
    """A part of the table as JSON: its name and settings, parts and priors inside it too; other
    objects by their name alone.
    """
    if is_dataclass(part) and not isinstance(part, type):
        return {
            "part": type(part).__name__,
            **{f.name: describe_part(getattr(part, f.name)) for f in fields(part)},
        }
    if isinstance(part, tuple | list):
        return [describe_part(inner) for inner in part]
    if isinstance(part, Mapping):
        return {"table": {str(name): describe_part(inner) for name, inner in part.items()}}
    if isinstance(part, Distribution) and type(part).__name__ in PRIORS:
        by = {name: getattr(part, name) for name in part.arg_constraints}
        return {
            "law": type(part).__name__,
            "by": {name: [value.tolist(), str(value.dtype)] for name, value in by.items()},
        }
    if part is None or isinstance(part, bool | int | float | str):
        return part
    return {"not saved": repr(part)}


def build_part(description: Json) -> Any:
    """The part that :func:`describe_part` described; nothing but the table's own classes is ever
    called.
    """
    if not isinstance(description, dict):
        return tuple(description) if isinstance(description, list) else description
    if "not saved" in description:
        raise RunError(
            f"load: {description['not saved']} is an object of the caller's, and only its name was "
            "saved. Hand it over again, in Python: partita.fit(..., resume=True)."
        )
    if isinstance(description.get("table"), dict):
        return {name: build_part(inner) for name, inner in description["table"].items()}
    if "law" in description:
        return _build_prior(description)
    name = description.get("part")
    if not isinstance(name, str) or (name not in PARTS and _plugin_part(name) is None):
        raise RunError.about("load", "part", f"be one of {', '.join(PARTS)}", repr(name), OTHER)
    settings = {key: build_part(value) for key, value in description.items() if key != "part"}
    try:
        return part_named(name)(**settings)
    except PartitaError:
        raise
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RunError(f"load: {name} has no such settings ({error}). {OTHER}") from None


def _plugin_part(name: str) -> Part | None:
    load_plugins()
    return PARTS.get(name)


def _build_prior(description: dict[str, Json]) -> Distribution:
    """One of the listed priors."""
    name = description["law"]
    if name not in PRIORS:
        remedy = "Hand it over again, in Python."
        raise RunError.about(
            "load", "a prior", f"be one of {', '.join(PRIORS)}", repr(name), remedy
        )
    law = getattr(torch.distributions, name)
    dtypes = {str(dtype): dtype for dtype in (torch.float32, torch.float64)}
    try:
        by = description["by"].items()
        return law(**{name: torch.tensor(v, dtype=dtypes[dtype]) for name, (v, dtype) in by})
    except (TypeError, ValueError, OverflowError, KeyError, AttributeError) as error:
        raise RunError(
            f"load: {name} has no such settings ({error}). Hand the prior over again, in Python."
        ) from None
