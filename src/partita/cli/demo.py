"""``python -m partita.cli.demo``: nine families on the built-in digits within five minutes, one
leaderboard, one page.
"""

from pathlib import Path

import torch
import typer

from partita.cli.compare import carry_out
from partita.experiment.compare_settings import CompareSettings
from partita.experiment.saved import free_path

DATA = "digits"
MODELS = ["mixture", "dpmm", "ising", "boltzmann", "rbm", "autoregressive", "conv", "vae", "belief"]
SETTINGS = ["boltzmann.n_hidden=4", "conv.width=32", "conv.n_layers=2"]
MINUTES = 3.5  # the page with draws of all takes its time too


def run_demo() -> None:
    """Fit, score, print the leaderboard and where the page is."""
    torch.set_num_threads(1)  # the models are small: more threads would wait for one another
    typer.echo(
        "Handwritten digits as 8 x 8 binary pixels, by several families of models; Ctrl-C saves "
        "what is done.\n"
    )
    folder = free_path(Path("runs") / "demo")
    carry_out(CompareSettings(DATA, list(MODELS), list(SETTINGS), MINUTES), folder)
    typer.echo(
        f"Next: open that page in a browser\n      partita sample {folder / 'rbm'} -n 64\n      "
        "partita compare your.csv"
    )


if __name__ == "__main__":
    try:
        run_demo()
    except typer.Exit as stop:  # Ctrl-C, after the message about what was saved
        raise SystemExit(stop.exit_code) from None
