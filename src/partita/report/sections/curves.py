"""Learning curves: the score on validation rows, and every number that the fit recorded."""

from collections.abc import Iterator

import numpy as np

from partita.core.protocols import Capability
from partita.report import plots
from partita.report.blocks import Beside, Block, Figure, Folded, Text
from partita.report.context import Subject
from partita.training import Run

NOT_CURVES = ("step", "epoch", "seconds", "validation", "best", "event", "done")
IN_WORDS = {
    "model": "loss",
    "energy_gap": "energy gap: data minus chains",
    "critic": "loss of the critic",
    "log_z": "log Z, carried along by chains of its own",
    "log_z_ess": "effective number of their weights, since they were last resampled",
}
SHOWN = 4  # the others are folded away
CLAIM = {
    "dual_over_lipschitz": "what the critic claims, over its certified slope",
    "wasserstein": "exact Wasserstein-1 of the same batch",
}
BESIDE_CLAIM = ("coverage", "mmd2", "lipschitz", "dual")


def learning(subject: Subject) -> Iterator[Block]:
    """How the fit went."""
    run = subject.run
    distance = subject.score is not None and subject.score.kind == "none"
    if validation := validation_curve(run, distance):
        yield validation
    drawn = NOT_CURVES
    if claim := critic_curve(run):
        yield claim
        yield Beside(
            [curve for name in BESIDE_CLAIM if (curve := recorded_curve(run, name))], least=340
        )
        drawn = (*NOT_CURVES, *CLAIM, *BESIDE_CLAIM)
    names = dict.fromkeys(key for record in run.history for key in record if key not in drawn)
    # two names of one number are one curve
    first = {tuple(run.series(name)): name for name in reversed(names)}.values()
    curves = [curve for name in names if name in first and (curve := recorded_curve(run, name))]
    if curves:
        yield Beside(curves[:SHOWN], least=340)
    if len(curves) > SHOWN:
        yield Folded(
            f"{len(curves) - SHOWN} more numbers that the fit recorded",
            [Beside(curves[SHOWN:], least=340)],
        )
    if not validation and not curves:
        yield Text("The fit was done in one step: there is nothing to draw.")


def validation_curve(run: Run, distance: bool = False) -> Figure | None:
    """Scores of rows that the fit did not learn from, by a quicker evaluator than the final one;
    None where there are none.
    """
    found = finite_series(run, "validation")
    if len(found) < 2:
        return None
    steps, values = zip(*found, strict=True)
    name = "minus the distance" if distance else "log-likelihood, nats per row"
    best = int(np.argmax(values))
    traces = [
        plots.line(steps, values, color=plots.COLORS[2]),
        plots.mark(steps[best], values[best], "best", 11, "star", showlegend=False),
    ]
    ends = f"from {values[0]:.3g} at step {steps[0]} to {values[-1]:.3g} at step {steps[-1]}"
    alt = f"Score of the validation rows {ends}; best {values[best]:.3g}."
    seen: plots.Plot = {"range": visible_range(values)}
    layout = plots.titled_axes("step", name, seen, shapes=event_lines(run))
    caption = "Validation rows along the fit; the star is the highest."
    if Capability.LOG_PROB not in run.model.capabilities:
        caption += " A quicker, coarser computation than the final score."
    return Figure(traces, alt, layout, caption)


def event_lines(run: Run) -> list[plots.Plot]:
    """A dotted line at each step at which the guard met something."""
    steps = dict.fromkeys(record["step"] for record in run.history if "event" in record)
    return [plots.vertical(step, color=plots.MODEL, width=1, dash="dot") for step in steps]


def critic_curve(run: Run) -> Figure | None:
    """A critic beside the truth: no claim of a certified slope of one is above the exact distance;
    None where none was audited.
    """
    found = {name: finite_series(run, name) for name in CLAIM}
    if any(len(series) < 2 for series in found.values()):
        return None
    traces = []
    for name, series in found.items():
        steps, values = zip(*series, strict=True)
        traces.append(plots.line(steps, values, CLAIM[name], plots.color(len(traces))))
    ends = [
        f"{CLAIM[name]} from {series[0][1]:.3g} to {series[-1][1]:.3g}"
        for name, series in found.items()
    ]
    caption = (
        "The audit of the critic: its dual value, divided by its certified Lipschitz constant, is "
        "at most the exact distance."
    )
    return Figure(traces, "; ".join(ends) + ".", plots.titled_axes("step", "distance"), caption)


def finite_series(run: Run, name: str) -> list[tuple[int, float]]:
    """What was recorded under a name, where it is a finite number."""
    return [
        (step, value)
        for step, value in run.series(name)
        if isinstance(value, int | float) and np.isfinite(value)
    ]


def recorded_curve(run: Run, name: str) -> Figure | None:
    """One recorded number along the steps."""
    found = finite_series(run, name)
    if len(found) < 2:
        return None
    steps, values = zip(*found, strict=True)
    title = IN_WORDS.get(name, name.replace("_", " "))
    traces = [plots.line(steps, values, color=plots.COLORS[0])]
    if len(values) > 60:
        traces[0]["opacity"] = 0.35
        traces.append(plots.line(steps, running_mean(np.array(values)), color=plots.COLORS[0]))
    alt = f"{title} along the steps, from {values[0]:.3g} to {values[-1]:.3g}."
    return Figure(
        traces, alt, plots.titled_axes("step", title, shapes=event_lines(run)), height=240
    )


def running_mean(values: np.ndarray) -> np.ndarray:
    """Means over a window of a twentieth of the curve, shorter at its ends.

    >>> running_mean(np.ones(100)).tolist() == [1.0] * 100
    True
    """
    window = np.ones(2 * max(1, len(values) // 40) + 1)
    return np.convolve(values, window, "same") / np.convolve(np.ones_like(values), window, "same")


def visible_range(values: tuple[float, ...] | list[float]) -> list[float] | None:
    """The range worth seeing: the first scores of a fit can lie far below the others.

    >>> visible_range([-1000.0, -11.0, -10.0, -10.0])
    [-13.0, -9.85]
    """
    high = max(values)
    spread = max(high - float(np.median(values)), 0.02 * abs(high), 1e-3)
    low = high - 6 * spread
    return None if min(values) >= low else [low, high + 0.3 * spread]
