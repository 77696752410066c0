"""What a score means, in plain words: for the terminal and for the page."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from partita.core.quantity import Quantity
from partita.experiment.leaderboard import Line
from partita.training.budget import OUT_OF_TIME

KIND_IN_WORDS = {
    "exact": "Exact: computed without sampling; only rounding is left.",
    "estimate": "An estimate: the interval holds the true value with the probability shown, as far "
    "as the verdict allows.",
    "lower": "A lower bound in expectation: the true value is at least this, up to the interval.",
    "upper": "An upper bound in expectation: it flatters the model; the sandwich gives both sides.",
    "none": "This model has no likelihood; the number is a distance between these rows and its "
    "draws, zero on average where they agree.",
}
DIRECTION_IN_WORDS = {
    "low": " If it errs, it errs low.",
    "high": " If it errs, it errs high: it flatters the model.",
    "none": "",
}
VERDICT_IN_WORDS = {
    "tight": "publish it with its interval",
    "loose": "publish it with its interval, or compute longer for a shorter one",
    "do not publish": "the computation did not settle; compute longer or try another evaluator",
}
EXACT_IN_WORDS = "publish it; it has no interval"

# of the details of a score, with their labels
DIAGNOSTICS = {
    "ess": "effective sample size",
    "ess_reverse": "effective sample size, reverse",
    "khat": "Pareto k-hat",
    "khat_reverse": "Pareto k-hat, reverse",
    "gap": "gap, upper minus lower side",
    "gap_of_search": "gap on rows whose posterior was sought",
    "overlap": "overlap",
    "rhat": "R-hat",
    "round_trips": "round trips of the ladders",
    "ess_of_rows": "effective draws of a row, median",
    "chains": "chains",
    "temperatures": "temperatures",
    "beyond": "witnesses beyond the forward side",
    "added": "nats that they may add",
    "per_step": "log-likelihood per step",
    "steps": "steps",
    "p_value": "p-value by permutation",
    "coverage": "coverage of these rows by draws",
}
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def meaning(q: Quantity) -> str:
    """What kind of number this is, in plain words.

    >>> meaning(Quantity(-1.0))
    'Exact: computed without sampling; only rounding is left.'
    """
    direction = "" if q.kind in ("exact", "upper") else DIRECTION_IN_WORDS[q.direction]
    return KIND_IN_WORDS[q.kind] + direction


def verdict(q: Quantity) -> str:
    """The verdict with what to do about it."""
    exact = q.kind == "exact" and q.verdict == "tight"
    return f"{q.verdict}: {EXACT_IN_WORDS if exact else VERDICT_IN_WORDS[q.verdict]}"


def interval(q: Quantity, digits: int = 3) -> str:
    """The interval with its level; nothing for an exact number."""
    if q.kind == "exact":
        return ""
    half = max(q.high - q.value, q.value - q.low)
    ends = f"[{q.low:.{digits}f}, {q.high:.{digits}f}]"
    return f"{f'± {half:.0e}' if half < 0.5 * 10**-digits else ends} ({percent(q.level)})"


def diagnostics(q: Quantity, without: Collection[str] = ()) -> list[list[str]]:
    """The diagnostics of a score, a label and a number each.

    >>> diagnostics(Quantity(1.0, details={"chains": 64, "rhat": 1.01}), without=["rhat"])
    [['chains', '64']]
    """
    return [
        [label, f"{q.details[name]:.4g}"]
        for name, label in DIAGNOSTICS.items()
        if isinstance(q.details.get(name), int | float) and name not in without
    ]


def findings(
    q: Quantity, bits: Quantity | None = None, without: Collection[str] = ()
) -> list[list[str]]:
    """What else is known of a score: bits per dimension where they are given, log Z, the use of
    latent dimensions, whether chains mixed, and diagnostics; a label and a text each.
    """
    rows = [] if bits is None else [["bits per dimension", _with_interval(bits, 4)]]
    if isinstance(log_z := q.details.get("log_z"), Quantity):
        rows.append(["log Z", _with_interval(log_z)])
    if use := latent_use_in_words(q):
        rows.append(["latent dimensions", use])
    if "mixing" in q.details:
        rows.append(["chains are", q.details["mixing"]])
    return rows + diagnostics(q, without)


def _with_interval(q: Quantity, digits: int = 3) -> str:
    return f"{q.value:.{digits}f} {interval(q, digits)}".rstrip()


def one_in(nats: float) -> str:
    """A mass in nats as a chance, in words that stay readable.

    >>> one_in(-math.log(2000)), one_in(-100.0)
    ('one in 2,000', 'one in 2.7 × 10⁴³')
    """
    whole, rest = divmod(-nats / math.log(10), 1)
    if whole < 7:
        return f"one in {round(math.exp(-nats)):,}"
    return f"one in {10**rest:.1f} × {power(10, whole)}"


def power(base: int, exponent: float) -> str:
    """A power as it is written.

    >>> power(2, 64)
    '2⁶⁴'
    """
    return f"{base}{f'{exponent:.0f}'.translate(RAISED)}"


def short_number(value: float) -> str:
    """Four digits of a number, with commas rather than powers of ten while it is of a size to be
    read.

    >>> short_number(19214.7), short_number(0.12345), short_number(3.0), short_number(-2.5e12)
    ('19,210', '0.1235', '3', '-2.5e+12')
    """
    return f"{float(f'{value:.4g}'):,.10g}" if abs(value) < 1e9 else f"{value:.4g}"


def percent(share: float) -> str:
    """A share as it is read.

    >>> percent(0.95), percent(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * share:.4g} %"


def cut_short(lines: Sequence[Line]) -> str:
    """Candidates whose fits had no time for all of their steps, with how many they took, or whose
    searches ended early.

    >>> cut_short(
    ...     [
    ...         {"name": "rbm", "steps": 1200, "stopped": "finished"},
    ...         {"name": "mixture", "steps": 30, "stopped": "converged"},
    ...     ]
    ... )
    'Cut short by the clock, and perhaps better with more minutes: rbm (1,200 steps), mixture ...'
    """
    candidates = ", ".join(f"{line['name']} ({_cut(line)})" for line in lines)
    return f"Cut short by the clock, and perhaps better with more minutes: {candidates}."


def _cut(line: Line) -> str:
    """What the time budget cut short: the steps of a fit, or its search."""
    steps, stopped = line.get("steps", 0), line.get("stopped", "finished")
    if stopped == OUT_OF_TIME:
        planned = line.get("planned_steps", 0)
        return f"{steps:,} of {planned:,} steps, which took longer than planned"
    return f"{steps:,} step{'s' * (steps != 1)}" if stopped == "finished" else "its search"


def fitted_models(lines: Sequence[Line]) -> str:
    """The model that was fitted under each name, once where all are alike; empty where none was.

    >>> fitted_models(
    ...     [
    ...         {"name": "mixture", "model": "Mixture(3, 13, gaussian full)"},
    ...         {"name": "gan", "problem": "diverged"},
    ...     ]
    ... )
    'Models: mixture is Mixture(3, 13, gaussian full).'
    >>> fitted_models([{"name": name, "model": "RBM(64, 64)"} for name in ("cd", "pcd")])
    'Models: all are RBM(64, 64).'
    """
    named = {line["name"]: model for line in lines if (model := line.get("model"))}
    if len(named) > 1 and len({*named.values()}) == 1:
        return f"Models: all are {next(iter(named.values()))}."
    models = "; ".join(f"{name} is {model}" for name, model in named.items())
    return f"Models: {models}." if models else ""


def reasons_in_short(reasons: Mapping[str, str]) -> Iterator[str]:
    """Families that do not take part and why, those of one reason together.

    >>> gaps = "values are missing"
    >>> list(reasons_in_short({"flow": gaps, "rbm": "it takes no words", "gan": gaps}))
    ['Left out flow, gan, each because values are missing.', 'Left out rbm: it takes no words.']
    """
    together: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        together.setdefault(str(reason), []).append(name)
    for reason, names in together.items():
        because = ": " if len(names) == 1 else ", each because "
        yield f"Left out {', '.join(names)}{because}{reason}."


def latent_use_in_words(q: Quantity) -> str:
    """How many latent dimensions carry anything about the rows, and how much; empty for models that
    have none.
    """
    kl = q.details.get("kl_per_dimension")
    if kl is None:
        return ""
    from partita.models.directed.latent import ACTIVE, FEW

    active, total, most = q.details["active_units"], float(kl.sum()), float(kl.max())
    each = " a step" if "per_step" in q.details else ""
    collapsed = ""
    if active <= FEW * len(kl):
        collapsed = ". The posterior has collapsed: the model hardly uses them"
    return (
        f"{active} of {len(kl)} carry more than {ACTIVE:g} nats{each}: {total:.3g} in all, the "
        f"most {most:.3g}{collapsed}"
    )
