"""Dirichlet process mixtures as a family."""

import torch

from partita.core.arguments import check_real
from partita.core.protocols import Settings
from partita.errors import Argument, invalid
from partita.families.base import FAMILIES, Family, Made, Setting
from partita.models import DPMixture
from partita.models.directed.dirichlet_process.priors import LARGEST
from partita.objectives import CollapsedGibbs, InstantiatedGibbs
from partita.tables import Rows
from partita.tables.encoding import Kind, infer_kind

SAMPLERS = {"collapsed": CollapsedGibbs, "instantiated": InstantiatedGibbs}
MANY = 20_000  # rows above which auto draws weights and parameters instead of integrating them out
# of which the clusters of all kept draws have covariances: a few thousand of them take some
# gigabytes
MOST_COLUMNS = 512
PRIOR = ("known_scale", "prior_mean", "prior_scale")


def _dpmm(rows: Rows, settings: Settings, generator: torch.Generator) -> Made:
    if (concentration := settings["weight_concentration_prior"]) is not None:
        check_real("dpmm", "weight_concentration_prior", concentration, 0, LARGEST, open_low=True)
    kernel, sampler = settings["kernel"], settings["sampler"]
    if kernel == "auto":
        kernel = "gaussian" if infer_kind(rows) == "real" else "bernoulli"
    if sampler == "auto":
        sampler = "collapsed" if len(rows) <= MANY else "instantiated"
    if kernel == "gaussian" and settings["known_scale"] is None and rows.width > MOST_COLUMNS:
        allowed = (
            f"be given for more than {MOST_COLUMNS} columns, where each cluster would need a "
            "covariance"
        )
        remedy = ("As in ", Argument("known_scale", value=0.5), ".")
        raise invalid("dpmm", "known_scale", allowed, f"none for {rows.width}", remedy)
    given = {name: settings[name] for name in PRIOR}
    model = DPMixture(rows.width, kernel, alpha=concentration, **given, generator=generator)
    return model, SAMPLERS[sampler](settings["n_chains"], settings["n_moves"], settings["n_keep"])


def _kind(rows: Rows, settings: Settings) -> Kind:
    """Coins take zeros and ones, multinomials counts, Gaussians standardized columns, or raw ones
    where a scale is known.
    """
    kernel = settings["kernel"]
    if kernel == "multinomial":
        return "count"
    held = infer_kind(rows)
    if kernel == "bernoulli" or (kernel == "auto" and held != "real"):
        return "spin" if held == "spin" else "binary"
    return "real" if all(settings[name] is None for name in PRIOR) else "raw"


FAMILIES.register(
    Family(
        "dpmm",
        "Dirichlet process mixture: as many clusters as the data ask for, by Gibbs sampling",
        {
            "kernel": Setting(
                "auto",
                "gaussian, bernoulli, multinomial (counts), or auto: bernoulli for binary data, "
                "gaussian otherwise",
                ("auto", "gaussian", "bernoulli", "multinomial"),
            ),
            "weight_concentration_prior": Setting(
                None, "concentration alpha; none gives it a Gamma(1, 1) prior and draws it along"
            ),
            "known_scale": Setting(
                None,
                "standard deviation within clusters, where it is known; none learns covariances",
            ),
            "prior_mean": Setting(None, "mean of the clusters' means; none takes the data's"),
            "prior_scale": Setting(
                None,
                "standard deviation of the clusters' means, with known_scale; none takes the "
                "data's",
            ),
            "sampler": Setting(
                "auto",
                f"collapsed, instantiated, or auto: collapsed up to {MANY} rows",
                ("auto", *SAMPLERS),
            ),
            "n_chains": Setting(2, "Markov chains, each from a start of its own"),
            "n_moves": Setting(10, "split or merge proposals after each sweep"),
            "n_keep": Setting(100, "most sweeps whose draws are kept"),
        },
        _dpmm,
        _kind,
    )
)
