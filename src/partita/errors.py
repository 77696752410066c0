"""The errors a user meets: one sentence each, with the owner, the parameter, what is allowed, what
came and what to do.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from typing import NamedTuple, Self


class Argument(NamedTuple):
    """An argument that a sentence names, with a value for one key of it.

    It reads as a keyword in Python; the command line shows its own option instead.

    >>> print(Argument("columns", "age", "count"))
    columns={'age': 'count'}
    >>> print(Argument("tokens", value="bytes"))
    tokens='bytes'
    """

    name: str
    key: str | None = None
    value: str | float | None = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        held = f"{{{self.key!r}: {self.value!r}}}"
        return f"{self.name}={self.value!r}" if self.key is None else f"{self.name}={held}"


class Parameter(Argument):
    """The name of a value that was refused; the command line shows the option that gave it, if one
    of the command's did.
    """


class PartName(Argument):
    """A part of the library that a sentence names as a value of an argument.

    It reads as its class in Python; the command line shows the option that chooses it.

    >>> print(PartName("evaluator", value="Sandwich"))
    Sandwich
    """

    def __str__(self) -> str:
        return str(self.value)


Words = str | Argument | tuple[str | Argument, ...]


@dataclass(frozen=True)
class Facts:
    """What is wrong with a value that was handed in.

    Arguments:
        owner: What refuses it.
        parameter: Its name.
        allowed: What it must do.
        got: What it is.
        remedy: How to go on.
    """

    owner: str
    parameter: Words
    allowed: str
    got: str
    remedy: Words = ""

    def parts(self) -> tuple[str | Argument, ...]:
        """``owner: parameter must allowed; got this. Remedy.``"""
        end = (" ", *_listed(self.remedy)) if self.remedy else ()
        name = self.parameter
        if isinstance(name, str) and name.isidentifier():
            name = Parameter(name)
        rest = f" must {self.allowed}; got {self.got}."
        return (f"{self.owner}: ", *_listed(name), rest, *end)


class Sentence(Exception):
    """What errors and warnings say, made of parts: text, each :class:`Argument` that it names, and
    the :class:`Facts` about a value.

    >>> error = Sentence("Read it with ", Argument("columns", "age", "count"), ".")
    >>> print(error)
    Read it with columns={'age': 'count'}.
    >>> print(error.rendered(lambda argument: f"--column {argument.key}={argument.value}"))
    Read it with --column age=count.
    """

    def __str__(self) -> str:
        return self.rendered(str)

    def rendered(self, shown: Callable[[Argument], str]) -> str:
        """The sentence, with every argument in it as ``shown`` writes it."""
        parts = (part.parts() if isinstance(part, Facts) else (part,) for part in self.args)
        return "".join(
            shown(part) if isinstance(part, Argument) else str(part)
            for part in chain.from_iterable(parts)
        )


class PartitaError(Sentence):
    """Base of every error that partita raises on purpose; the command line prints it without a
    traceback.
    """

    @classmethod
    def about(
        cls, owner: str, parameter: Words, allowed: str, got: object, remedy: Words = ""
    ) -> Self:
        """The error about a value that was handed in, in the one template.

        >>> error = InputError.about("RBM", "hidden", "be at least 1", 0)
        >>> print(error)
        RBM: hidden must be at least 1; got 0.
        >>> error.facts.parameter, error.facts.got
        ('hidden', '0')
        """
        return cls(Facts(owner, parameter, allowed, str(got), remedy))

    @property
    def facts(self) -> Facts | None:
        """What is wrong with a value; None where the error is about something else."""
        return next((part for part in self.args if isinstance(part, Facts)), None)


class InputError(PartitaError, ValueError):
    """A value handed in is not allowed."""


class WrongType(InputError, TypeError):
    """A value handed in is of a type that is not allowed."""


class DataError(PartitaError, ValueError):
    """A data set cannot be found, read or used."""


class UnreadableColumns(DataError):
    """Columns of a table hold what no kind can take; ``problems`` says what, by name."""

    problems: Mapping[str, str] = {}


class RunError(PartitaError, RuntimeError):
    """A run folder cannot be read, or belongs to something else."""


class Diverged(PartitaError, ArithmeticError):
    """A number stopped being finite; the message names the term and the remedy."""


class Unsupported(PartitaError, TypeError):
    """A combination of model and method that cannot work; the message gives the reason and the
    nearest one that does.
    """


class TooLarge(PartitaError, MemoryError):
    """More memory is needed than there is, or than a file can account for."""


class OutOfBudget(PartitaError, TimeoutError):
    """A method needs more minutes or evaluations than it was given."""


class PartitaWarning(Sentence, UserWarning):
    """Something a user should know about work that goes on."""


invalid = InputError.about  # wrong input
unusable = DataError.about  # data that cannot be read or used


def one_line(value: object) -> str:
    """A value as Python writes it, on one line.

    >>> one_line(["a", {}])
    "['a', {}]"
    """
    return " ".join(repr(value).split())


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A question with the known name that is closest, if one is close.

    >>> did_you_mean("digit", ["digits", "moons"])
    "Did you mean 'digits'?"
    """
    close = get_close_matches(name, list(known), 1, 0.5)
    return f"Did you mean {close[0]!r}?" if close else otherwise


def _listed(words: Words) -> tuple[str | Argument, ...]:
    return (words,) if isinstance(words, str | Argument) else words
