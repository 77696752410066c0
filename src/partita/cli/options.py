"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

# parameters of a fit or a comparison that one which is resumed has from its folder
DESCRIBING = (
    *("model", "models", "objectives", "data", "out", "minutes", "epochs"),
    *("settings", "column", "guard"),
)

# the functions of typer that make parameters are declared to return Any


def file_argument(text: str) -> Any:
    """The file that a verb works on."""
    return typer.Argument(help=text, metavar="DATA")


def table_output(word: str) -> Any:
    """``--out``, the file for a table's results; by default beside it, its name ending in a
    word.
    """
    return typer.Option(
        help=f".csv .parquet .arrow .npy .npz; DATA-{word} beside the file if not given."
    )


Data = Annotated[str | None, file_argument("A name (partita data lists them) or a file.")]
Run = Annotated[
    Path, typer.Argument(help="Folder of a run, as partita fit made it.", metavar="RUN")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
AllowDiverged = Annotated[
    bool,
    typer.Option(
        "--allow-diverged", help="Use a run that diverged, by the last good weights it had."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", min=0, max=2**63 - 1)]
KINDS = (
    "What a column holds: real, binary, count, overdispersed, category, date, constant or ignore; "
    "may be given often, and * stands for any letters."
)
Kinds = Annotated[list[str] | None, typer.Option("--column", help=KINDS, metavar="NAME=KIND")]
SETTINGS = "A setting and its value; may be given often. partita models and partita lab list them."
Settings = Annotated[list[str] | None, typer.Option("--set", help=SETTINGS, metavar="KEY=VALUE")]
SETTING_OF_ONE = (
    "A setting of all, or FAMILY.KEY=VALUE for one; may be given often. partita models lists them."
)
EVALUATORS = (
    "auto; for log Z enumeration, quadrature, sandwich, bridge, ais, smc, reverse-ais, "
    "importance-sampling, nested-sampling; with latent variables iwae-K, latent-ais-T, filter-K, "
    "by K draws or T temperatures."
)
Devices = Annotated[
    int | None, typer.Option(help="Processes on this machine that work together.", min=1)
]
Nodes = Annotated[
    int,
    typer.Option(
        help="Machines: run the command on each, with MASTER_ADDR, MASTER_PORT and NODE_RANK set.",
        min=1,
    ),
]
STRATEGY = "How processes work together; ddp gives each its share of every batch and of the chains."
Strategy = Annotated[str, typer.Option(help=STRATEGY)]
Minutes = Annotated[float | None, typer.Option(help="Time to spend, in place of epochs.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar, only the result.")]
Page = Annotated[bool, typer.Option("--report/--no-report", help="Whether to write report.html.")]


def refuse_beside_resume(context: typer.Context) -> None:
    """Refuse what says what to do, where a fit or a comparison is resumed."""
    given = [
        param.opts[0] if param.opts[0].startswith("-") else str(param.metavar)
        for param in context.command.params
        if param.name in DESCRIBING and context.params[param.name] not in (None, (), [])
    ]
    if given:
        text = f"goes alone; leave out {', '.join(given)}."
        raise typer.BadParameter(text, param_hint="--resume")
