"""Dirichlet process mixtures as a family."""

from typing import Any

import torch

from partita.core.checks import check_choice, check_real
from partita.core.protocols import Model, Update
from partita.errors import invalid
from partita.families.base import Family, Setting
from partita.models import DPMixture
from partita.objectives import CollapsedGibbs, InstantiatedGibbs
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind

SAMPLERS = {"collapsed": CollapsedGibbs, "instantiated": InstantiatedGibbs}
MANY = 20_000  # rows above which auto draws weights and parameters instead of integrating them out
# of which the clusters of all kept draws have covariances: a few thousand of them take some
# gigabytes
MOST_COLUMNS = 512
GIVEN = ("known_scale", "prior_mean", "prior_scale")


def _dpmm(rows: Rows, settings: dict[str, Any], generator: torch.Generator) -> tuple[Model, Update]:
    check_choice("dpmm", "sampler", settings["sampler"], ("auto", *SAMPLERS))
    if (concentration := settings["weight_concentration_prior"]) is not None:
        check_real("dpmm", "weight_concentration_prior", concentration, 0, open_low=True)
    kernel, sampler = settings["kernel"], settings["sampler"]
    kernel = (
        ("gaussian" if infer_kind(rows) == "real" else "bernoulli") if kernel == "auto" else kernel
    )
    sampler = (
        ("collapsed" if len(rows) <= MANY else "instantiated") if sampler == "auto" else sampler
    )
    if kernel == "gaussian" and settings["known_scale"] is None and rows.width > MOST_COLUMNS:
        allowed = (
            f"be given for more than {MOST_COLUMNS} columns, where each cluster would need a "
            "covariance"
        )
        raise invalid(
            "dpmm", "known_scale", allowed, f"none for {rows.width}", "As in --set known_scale=0.5."
        )
    model = DPMixture(
        rows.width,
        kernel,
        alpha=concentration,
        **{name: settings[name] for name in GIVEN},
        generator=generator,
    )
    return model, SAMPLERS[sampler](settings["n_chains"], settings["n_moves"], settings["n_keep"])


def _dpmm_kind(rows: Rows, settings: dict[str, Any]) -> Kind:
    """Coins take zeros and ones, multinomials counts, Gaussians standardized columns, or raw ones
    where a scale is known.
    """
    check_choice(
        "dpmm", "kernel", settings["kernel"], ("auto", "gaussian", "bernoulli", "multinomial")
    )
    if settings["kernel"] == "multinomial":
        return "count"
    held = infer_kind(rows)
    if settings["kernel"] == "bernoulli" or (settings["kernel"] == "auto" and held != "real"):
        return "spin" if held == "spin" else "binary"
    return "raw" if any(settings[name] is not None for name in GIVEN) else "real"


def _examples(g: torch.Generator) -> dict[str, Model]:
    return {
        "DP mixture of Gaussians": DPMixture(2, generator=g),
        "DP mixture of Bernoullis": DPMixture(2, "bernoulli", generator=g),
    }


FAMILY = Family(
    "dpmm",
    "Dirichlet process mixture: as many clusters as the data ask for, by Gibbs sampling",
    {
        "kernel": Setting(
            "auto",
            "gaussian, bernoulli, multinomial (counts), or auto: bernoulli for binary data, "
            "gaussian otherwise",
        ),
        "weight_concentration_prior": Setting(
            None, "concentration alpha; none gives it a Gamma(1, 1) prior and draws it along"
        ),
        "known_scale": Setting(
            None, "standard deviation within clusters, where it is known; none learns covariances"
        ),
        "prior_mean": Setting(None, "mean of the clusters' means; none takes the data's"),
        "prior_scale": Setting(
            None,
            "standard deviation of the clusters' means, with known_scale; none takes the data's",
        ),
        "sampler": Setting(
            "auto", f"collapsed, instantiated, or auto: collapsed up to {MANY} rows"
        ),
        "n_chains": Setting(2, "Markov chains, each from a start of its own"),
        "n_moves": Setting(10, "split or merge proposals after each sweep"),
        "n_keep": Setting(100, "most sweeps whose draws are kept"),
    },
    _dpmm,
    _dpmm_kind,
    _examples,
)
