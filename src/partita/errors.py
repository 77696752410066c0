"""The errors a user meets: one sentence each, with the owner, the parameter, what is allowed, what
came and what to do.
"""


class PartitaError(Exception):
    """Base of every error that partita raises on purpose; the command line prints it without a
    traceback.
    """


class InputError(PartitaError, ValueError):
    """A value handed in is not allowed."""


class WrongType(InputError, TypeError):
    """A value handed in is of a type that is not allowed."""


class DataError(PartitaError, ValueError):
    """A data set cannot be found, read or used."""


class RunError(PartitaError, RuntimeError):
    """A run folder cannot be read, or belongs to something else."""


class Diverged(PartitaError, ArithmeticError):
    """A number stopped being finite; the message names the term and the remedy."""


class Unsupported(PartitaError, TypeError):
    """A combination of model and method that cannot work; the message gives the reason and the
    nearest one that does.
    """


class TooLarge(PartitaError, MemoryError):
    """More memory is asked for than there is, or than a file can account for."""


class PartitaWarning(UserWarning):
    """Something a user should know about work that goes on."""


def invalid(owner: str, parameter: str, allowed: str, got: object, remedy: str = "") -> InputError:
    """The one template for wrong input.

    >>> print(invalid("RBM", "hidden", "be at least 1", 0))
    RBM: hidden must be at least 1; got 0.
    """
    return InputError(sentence(owner, parameter, allowed, got, remedy))


def sentence(owner: str, parameter: str, allowed: str, got: object, remedy: str = "") -> str:
    """``owner: parameter must allowed; got this. Remedy.``"""
    text = f"{owner}: {parameter} must {allowed}; got {got}."
    return f"{text} {remedy}" if remedy else text
