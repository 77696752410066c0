"""How families of energy models name the objectives they are fitted by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from partita.core import capability
from partita.core.protocols import Objective
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


@dataclass(frozen=True)
class Named:
    """An objective by name: the row of the capability table it is, and how settings become it."""

    part: str
    # of a family's settings and the model, which may be None
    make: Callable[[dict[str, Any], Any], Objective]


def _pcd(settings: dict[str, Any], sampler: Any = None, **more: Any) -> PCD:
    return PCD(
        sampler,
        **{
            "chains": settings["n_chains"],
            "steps": settings["n_steps"],
            "centered": settings.get("centered"),
            **more,
        },
    )


def _tempered(settings: dict[str, Any], model: Any) -> PCD:
    return _pcd(
        settings, Tempering(Gibbs() if model is None else capability.default("sampler", model))
    )


def _replay(settings: dict[str, Any], model: Any) -> PCD:
    return _pcd(
        settings, chains=BUFFER * settings["n_chains"], active=settings["n_chains"], restart=RESTART
    )


def _score_matching(kind: Any) -> Named:
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


def named_objective(settings: dict[str, Any], model: Any = None) -> Objective:
    """The objective that a family's settings ask for; tempering goes around the model's own sampler
    where the model is given.
    """
    return NAMED[settings["objective"]].make(settings, model)
