r"""The two halves of the likelihood gradient of every energy model.

.. math:: \nabla_\theta \frac1N \sum_i \log p(x_i)
          = \underbrace{E_{\mathrm{data}}[\nabla_\theta \log \phi]}_{\text{positive phase}}
          - \underbrace{E_{\mathrm{model}}[\nabla_\theta \log \phi]}_{\text{negative phase}},
          \qquad \log \phi = -F          (theory/energy.md, eq. 1.2)
"""

import torch
from torch import Tensor

from partita.core.capability import require_need
from partita.core.enumeration import log_partition, state_chunks
from partita.core.protocols import EnergyModel
from partita.errors import invalid

Phase = dict[str, Tensor]


def positive_phase(model: EnergyModel, x: Tensor, weight: Tensor | None = None) -> Phase:
    """E_data[grad log phi] by parameter name; hidden units are averaged over h given x.

    >>> from partita.models import RBM
    >>> phase = positive_phase(
    ...     RBM(2, 1, generator=torch.Generator().manual_seed(0)),
    ...     torch.tensor([[1.0, 0.0], [1.0, 1.0]]),
    ... )
    >>> phase["b"].tolist()
    [1.0, 0.5]
    """
    return _mean_gradient(model, x, weight)


def negative_phase(
    model: EnergyModel, draws: Tensor | None = None, *, exact: bool = False
) -> Phase:
    """E_model[grad log phi] by parameter name, from draws ``(n, D)`` or, with ``exact=True``,
    summed over all states.
    """
    if exact == (draws is not None):
        got = f"draws={draws is not None}, exact={exact}"
        raise invalid("negative_phase", "draws", "be given, or exact=True, and not both", got)
    return _exact(model) if draws is None else _mean_gradient(model, draws, None)


def _mean_gradient(model: EnergyModel, x: Tensor, weight: Tensor | None) -> Phase:
    if not isinstance(x, Tensor):
        remedy = "Call torch.as_tensor on an array, or .tensor() on the rows of a data set."
        raise invalid("a phase", "x", "be a tensor of rows", type(x).__name__, remedy)
    log_phi = -model(x)
    mean = log_phi.mean() if weight is None else (weight * log_phi).sum() / weight.sum()
    return _gradients(model, mean)


def _exact(model: EnergyModel) -> Phase:
    """Each chunk of states weighed by its probability; the cheaper side of the model is summed."""
    require_need("enumerable", "negative_phase(exact=True)", model, "Give it draws.")
    side = min(model.sides(), key=lambda side: side.support.bits)
    with torch.no_grad():
        log_z = log_partition(side, model.like)
    total: Phase = {}
    for states in state_chunks(side, model.like):
        log_phi = -side.free_energy(states)
        p = torch.exp(log_phi.detach() - log_z)
        for name, gradient in _gradients(model, (p * log_phi).sum()).items():
            total[name] = total[name] + gradient if name in total else gradient
    return total


def _gradients(model: EnergyModel, value: Tensor) -> Phase:
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(
        value, list(named.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(named, gradients, strict=True))
