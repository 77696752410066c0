r"""What bridge sampling, the harmonic mean, importance sampling and tests of the chains say of log
Z together, and the verdict on it.

The value is (theory/evidence.md, eq. 60.10); every finding that lowers its verdict is one sentence
of ``details["finding"]``.

Letters: C chains.
"""

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from partita.core.quantity import Quantity, Verdict, worst
from partita.diagnostics.chains import ChainReport
from partita.diagnostics.weights import KHAT_TIGHT, WeightReport, verdict_on_ess
from partita.evaluators.partition.bridge import (
    DRIFT_LOOSE,
    DRIFT_TIGHT,
    OVERLAP_LOOSE,
    OVERLAP_TIGHT,
    SE_LOOSE,
    SE_TIGHT,
)
from partita.evaluators.partition.chains.bridge_sampling import BridgeEstimate, student
from partita.evaluators.partition.chains.harmonic import HarmonicEstimate
from partita.evaluators.partition.chains.same_density import FALSE_ALARM, Probability
from partita.evaluators.partition.replicas import agree, over_both

METHOD = "bridge sampling from chains"
MANY = 1000  # draws below which the verdict is "loose" at best
WITNESS_LEVEL = 0.999  # of the intervals within which estimates must agree


class Evidence(NamedTuple):
    """All that is known about log Z from chains."""

    halves: tuple[BridgeEstimate, BridgeEstimate]
    harmonic: tuple[HarmonicEstimate, HarmonicEstimate]
    importance: WeightReport
    chains: ChainReport
    same: Probability
    zeros: int  # draws with no density
    draws: int
    single: bool  # whether one chain is read as stretches


class Mean(NamedTuple):
    """The mean of two halves, its standard error and the degrees of freedom of that."""

    value: float
    se: float
    degrees: float

    def quantity(self, level: float, method: str, wider: float = 0.0) -> Quantity:
        """The estimate with its interval."""
        half = student(self.se, self.degrees, level) + wider
        value = self.value
        return Quantity(
            value, value - half, value + half, level=level, kind="estimate", method=method
        )


@dataclass
class Findings:
    """The verdict so far, and why it is no better."""

    verdict: Verdict = "tight"
    sentences: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict, sentence: str) -> None:
        """One more finding; nothing where it does not lower trust."""
        if verdict != "tight":
            self.verdict = worst(self.verdict, verdict)
            self.sentences.append(sentence)


def mean_of_bridges(halves: tuple[BridgeEstimate, BridgeEstimate]) -> Mean:
    """(60.10). Each half is the draws of one estimate and the proposal of the other, so that what
    the draws err by may be the same in both; the proposals' own draws are independent.
    """
    a, b = halves
    draws, proposed = a.se_draws + b.se_draws, math.hypot(a.se_proposed, b.se_proposed)
    se = 0.5 * math.hypot(draws, proposed)
    return Mean(0.5 * (a.log_z + b.log_z), se, a.degrees + b.degrees)


def mean_of_harmonics(halves: tuple[HarmonicEstimate, HarmonicEstimate]) -> Mean:
    """The mean of two harmonic means, which are all but independent."""
    a, b = halves
    return Mean(0.5 * (a.log_z + b.log_z), 0.5 * math.hypot(a.se, b.se), a.degrees + b.degrees)


def judged(evidence: Evidence, level: float) -> Quantity:
    """log Z with an interval and a verdict."""
    mean = mean_of_bridges(evidence.halves)
    if not math.isfinite(mean.value):
        return _nothing(evidence, level)
    findings = Findings()
    _about_chains(evidence, findings)
    _about_the_bridge(evidence, mean, findings)
    q = _over_what_differs(evidence, mean.quantity(level, METHOD))
    q = _beside_witnesses(evidence, mean, q, findings)
    numbers = {
        "se": mean.se,
        "overlap": min(half.overlap for half in evidence.halves),
        "halves": abs(evidence.halves[0].log_z - evidence.halves[1].log_z),
        "components": max(half.proposal.size for half in evidence.halves),
        "harmonic": mean_of_harmonics(evidence.harmonic).value,
        "harmonic_se": mean_of_harmonics(evidence.harmonic).se,
        "harmonic_reliable": all(half.reliable for half in evidence.harmonic),
        "importance": evidence.importance.log_mean,
        "rhat": evidence.chains.rhat,
        "ess": evidence.chains.ess,
        "probability_of_moves": evidence.same.moves,
        "probability_of_slopes": evidence.same.slopes,
        "draws": evidence.draws,
        "finding": " ".join(findings.sentences),
    }
    return replace(q, verdict=worst(q.verdict, findings.verdict), details=numbers)


def _nothing(evidence: Evidence, level: float) -> Quantity:
    """Where no draw of a proposal has a density: the harmonic mean, and nothing to trust."""
    value = mean_of_harmonics(evidence.harmonic).value
    value = value if math.isfinite(value) else 0.0
    finding = "No proposal that was fitted to the draws fell where the density is."
    return Quantity(
        value,
        -math.inf,
        math.inf,
        level=level,
        kind="estimate",
        method=METHOD,
        verdict="do not publish",
        details={"finding": finding, "rhat": evidence.chains.rhat, "draws": evidence.draws},
    )


def _about_chains(evidence: Evidence, findings: Findings) -> None:
    report, same = evidence.chains, evidence.same
    findings.add(report.verdict, f"The chains are {report.finding}.")
    if evidence.single:
        findings.add(
            "loose",
            "One chain was read as four stretches: chains from different starts would show more.",
        )
    if evidence.draws < MANY:
        findings.add("loose", f"{evidence.draws} draws are few: {MANY} would do.")
    if evidence.zeros:
        share = f"{evidence.zeros} of {evidence.draws} draws"
        findings.add(
            "do not publish", f"The chains are not from this density: it is zero at {share}."
        )
    elif not same.passed:
        test = "Metropolis moves" if same.moves < FALSE_ALARM else "Stein's identities"
        p = min(same)
        findings.add(
            "do not publish",
            f"The chains are not from this density, or have not reached it: {test} give draws of "
            f"it a probability of {p:.1g} to look like these.",
        )


def _about_the_bridge(evidence: Evidence, mean: Mean, findings: Findings) -> None:
    a, b = evidence.halves
    overlap = min(a.overlap, b.overlap)
    findings.add(
        _graded(-overlap, -OVERLAP_TIGHT, -OVERLAP_LOOSE),
        f"Target and proposal overlap by {overlap:.2g} only.",
    )
    drift = abs(a.log_z - b.log_z) / max(math.hypot(a.se, b.se), 1e-12)
    # in units of a normal error, for few draws know theirs badly
    drift /= student(1.0, min(a.degrees, b.degrees), 0.95) / 1.96
    findings.add(
        _graded(drift, DRIFT_TIGHT + 1, DRIFT_LOOSE + 1),
        f"The halves of the chains differ by {drift:.1f} standard errors.",
    )
    findings.add(_graded(mean.se, SE_TIGHT, SE_LOOSE), f"The standard error is {mean.se:.2g} nats.")


def _over_what_differs(evidence: Evidence, q: Quantity) -> Quantity:
    """The interval that reaches to every chain's own estimate where chains have not mixed."""
    if evidence.chains.mixed:
        return q
    ends = [float(end) for half in evidence.halves for end in half.by_chain.aminmax()]
    return replace(q, low=min(q.low, *ends), high=max(q.high, *ends))


def _beside_witnesses(evidence: Evidence, mean: Mean, q: Quantity, findings: Findings) -> Quantity:
    """The quantity after the harmonic mean and importance sampling were heard."""
    own = mean.quantity(WITNESS_LEVEL, METHOD)
    unsound = findings.verdict == "do not publish"
    harmonic = mean_of_harmonics(evidence.harmonic)
    if all(half.reliable for half in evidence.harmonic):
        other = harmonic.quantity(WITNESS_LEVEL, "learned harmonic mean")
        q = _heard(q, own, other, findings, unsound)
    else:
        findings.add("loose", "The learned harmonic mean beside it has no error to be trusted.")
    weights = evidence.importance
    sound = verdict_on_ess(weights.ess, weights.n) == "tight" and not weights.khat > KHAT_TIGHT
    if sound:
        other = Mean(weights.log_mean, weights.se, weights.ess).quantity(
            WITNESS_LEVEL, "importance sampling"
        )
        q = _heard(q, own, other, findings, unsound)
    return q


def _heard(
    q: Quantity, own: Quantity, other: Quantity, findings: Findings, unsound: bool
) -> Quantity:
    """The interval over both where they contradict each other, or where chains are not sound."""
    if agree(own, other):
        return over_both(q, other) if unsound else q
    findings.add(
        "do not publish",
        f"The {other.method} gives {other.value:.3f}, which contradicts {own.value:.3f}.",
    )
    return over_both(q, other)


def _graded(value: float, tight: float, loose: float) -> Verdict:
    if value <= tight:
        return "tight"
    return "loose" if value <= loose else "do not publish"
