"""How families of energy models name the objectives they are fitted by."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from partita.core import capability
from partita.core.protocols import EnergyModel, Objective, Sampler, Settings
from partita.families.base import Setting
from partita.objectives import (
    CD,
    NCE,
    PCD,
    ExactLikelihood,
    PseudoLikelihood,
    RatioMatching,
    ScoreMatching,
)
from partita.samplers import Gibbs, Tempering

BUFFER = 10  # chains of a replay buffer for each one that moves
RESTART = 0.05  # share of those that begin again at the reference
AUTO_EXACT_BITS = 16  # a support of at most 2^16 states is summed at every step of a fit by default


@dataclass(frozen=True)
class Named:
    """An objective by name: the row of the capability table it is, and how settings become it."""

    part: str
    make: Callable[[Settings, EnergyModel | None], Objective]


def _pcd(settings: Settings, sampler: Sampler | None = None) -> PCD:
    steps, centered = settings["n_steps"], settings.get("centered")
    return PCD(sampler, chains=settings["n_chains"], steps=steps, centered=centered)


def _tempered(settings: Settings, model: EnergyModel | None) -> PCD:
    kernel = Gibbs() if model is None else capability.default("sampler", model)
    return _pcd(settings, Tempering(kernel))


def _replay(settings: Settings, model: EnergyModel | None) -> PCD:
    active = settings["n_chains"]
    return replace(_pcd(settings), chains=BUFFER * active, active=active, restart=RESTART)


def _score_matching(kind: Literal["exact", "sliced", "denoising"]) -> Named:
    return Named(
        "ScoreMatching", lambda settings, _: ScoreMatching(kind, sigma=settings.get("sigma", 0.1))
    )


NAMED: dict[str, Named] = {
    "pcd": Named("PCD", lambda settings, _: _pcd(settings)),
    "cd": Named(
        "CD", lambda settings, _: CD(steps=settings["n_steps"], centered=settings.get("centered"))
    ),
    "exact": Named("ExactLikelihood", lambda *_: ExactLikelihood()),
    "tempered": Named("PCD", _tempered),
    "replay": Named("PCD", _replay),
    "nce": Named("NCE", lambda settings, _: NCE(ratio=settings.get("noise_ratio", 10))),
    "pseudo-likelihood": Named("PseudoLikelihood", lambda *_: PseudoLikelihood()),
    "ratio-matching": Named("RatioMatching", lambda *_: RatioMatching()),
    "score-matching": _score_matching("exact"),
    "sliced-score-matching": _score_matching("sliced"),
    "denoising-score-matching": _score_matching("denoising"),
}
OBJECTIVES = tuple(NAMED)

CHAINS = {
    "n_chains": Setting(
        256,
        "Markov chains of the negative phase (pcd, tempered), or those of ten times as many that "
        "move (replay)",
    ),
    "n_steps": Setting(1, "sampler steps between two updates, as in CD-k and PCD-k"),
    "noise_ratio": Setting(10, "rows of noise for each row of data (nce)"),
    "sigma": Setting(
        0.1, "deviation of the noise added to standardized columns (denoising-score-matching)"
    ),
}


def objective_setting(default: str, meaning: str) -> Setting:
    """The setting that names an objective; ``"auto"`` is a choice where it is the default."""
    return Setting(default, meaning, (*dict.fromkeys((default, *OBJECTIVES)),))


def few_states(model: EnergyModel) -> bool:
    """Whether Z is a sum over at most 2^16 states."""
    return capability.smallest_bits(model) <= AUTO_EXACT_BITS


def named_objective(
    settings: Settings,
    model: EnergyModel | None = None,
    cheap: Callable[[EnergyModel], bool] = few_states,
) -> Objective:
    """The objective that a family's settings ask for, where ``"auto"`` is the likelihood itself if
    that is ``cheap``, else PCD; tempering goes around the model's own sampler where the model is
    given.
    """
    name = settings["objective"]
    if name == "auto":
        name = "exact" if model is not None and cheap(model) else "pcd"
    return NAMED[name].make(settings, model)


PAIRS = {  # settings of pairwise models
    "edges": Setting(
        None, "pairs of columns that are coupled, as [[0, 1], [1, 2]]; none couples all pairs"
    ),
    "objective": objective_setting(
        "auto",
        "exact, pcd, cd, tempered, pseudo-likelihood, ratio-matching, nce, or auto: exact up to "
        "2^16 states, else pcd",
    ),
    **CHAINS,
}
