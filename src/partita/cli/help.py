"""How ``--help`` looks: verbs in the order in which they are used, and no value behind an option
that takes none.
"""

from typing import Any

from typer.core import TyperGroup

ORDER = (
    "fit",
    "evaluate",
    "sample",
    "compare",
    "report",
    "impute",
    "anomalies",
    "cluster",
    "schema",
    "models",
    "data",
    "lab",
)


class Helpful(TyperGroup):
    """A group of commands whose help reads well."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def get_params(self, ctx: Any) -> list[Any]:
        return _bare(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _bare(command.get_params(ctx))
        return command


def _bare(params: list[Any]) -> list[Any]:
    """Flags without a type, which would look like a value to give."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params
