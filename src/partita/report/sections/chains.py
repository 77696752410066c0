"""Did the chains that gave the draws mix? R-hat, effective sample sizes, and their traces."""

from collections.abc import Iterator

import numpy as np
import torch

from partita.diagnostics.chains import RHAT_LOOSE, RHAT_TIGHT
from partita.report import plots
from partita.report.blocks import Block, Figure, Table, Text
from partita.report.context import BURN_IN, Subject

TRACED = 8


@torch.no_grad()
def chains(subject: Subject) -> Iterator[Block]:
    """Nothing where draws are exact."""
    drawn = subject.drawn.chains
    if drawn is None:
        return
    report = drawn.report
    finding = f"In the {report.draws} steps that were watched the chains are {report.finding}."
    care = " Take the draws, and what follows from them, with care: run longer, or temper."
    yield Text(finding) if report.mixed else Text(finding + care, "warning")
    agree = f"at most {RHAT_TIGHT} where chains agree; above {RHAT_LOOSE} they do not"
    bulk, tail = "effective sample size, bulk", "effective sample size, tail"
    rows = [
        ["R-hat of the free energy", f"{report.rhat:.3f}", agree],
        [bulk, f"{report.ess_bulk:.0f}", f"of {report.chains * report.draws} draws"],
        [tail, f"{report.ess_tail:.0f}", "for the ends of the distribution"],
        ["chains", f"{report.chains}", f"{report.draws} draws of each, after {BURN_IN} steps"],
    ]
    acceptance = drawn.acceptance.items()
    yield Table(rows + [[name, f"{rate:.3f}", "mean over all steps"] for name, rate in acceptance])
    energies = subject.model(drawn.x[:TRACED]).double().numpy()
    steps = np.arange(energies.shape[1])
    traces = [
        plots.line(steps, row, color=plots.color(i), mode="lines", opacity=0.8)
        for i, row in enumerate(energies)
    ]
    alt = (
        f"Free energy of {len(traces)} chains along {len(steps)} steps, between "
        f"{energies.min():.1f} and {energies.max():.1f}."
    )
    caption = (
        "Free energy of some chains. Mixed chains cross all the time; a chain that keeps to its "
        "own level is stuck."
    )
    yield Figure(traces, alt, plots.titled_axes("step", "free energy, nats"), caption, 260)
