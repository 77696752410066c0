"""partita fits, samples and honestly scores probability models whose normalizer or posterior is
intractable.

>>> import torch, partita
>>> from partita.models import RBM
>>> from partita.objectives import PCD
>>> from partita.samplers import Gibbs
>>> g = torch.Generator().manual_seed(0)
>>> x = (torch.rand(500, 8, generator=g) < 0.3).float()
>>> model = RBM(visible=8, hidden=4, generator=g)
>>> run = partita.fit(model, x, PCD(Gibbs(), chains=64, steps=1), epochs=2, generator=g)
>>> partita.evaluate(model, x, generator=g).kind
'exact'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partita.core.quantity import Quantity
    from partita.evaluators import evaluate
    from partita.evidence import log_z
    from partita.samplers import sample
    from partita.training import fit, load

__version__ = "0.1.0"
__all__ = ["Quantity", "evaluate", "fit", "load", "log_z", "sample"]

# Imported when first used, so that `import partita` costs nothing and `partita --help` does not
# wait for torch.
_LAZY = {
    "Quantity": "core",
    "fit": "training",
    "load": "training",
    "sample": "samplers",
    "evaluate": "evaluators",
    "log_z": "evidence",
}
_SUBPACKAGES = (
    "bayes",
    "core",
    "datasets",
    "diagnostics",
    "divergences",
    "estimators",
    "evaluators",
    "experiment",
    "families",
    "gradients",
    "models",
    "nets",
    "objectives",
    "optim",
    "probes",
    "samplers",
    "tables",
    "training",
)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"partita.{_LAZY[name]}"), name)
    if name in _SUBPACKAGES:
        return import_module(f"partita.{name}")
    raise AttributeError(f"module 'partita' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES])
