"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(help="Folder of a run, as partita fit made it.", metavar="RUN")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", min=0, max=2**63 - 1)]
KINDS = "What a column holds: real, binary, count, category or ignore; may be given often, and * stands for any letters."
Kinds = Annotated[list[str] | None, typer.Option("--column", help=KINDS, metavar="NAME=KIND")]
