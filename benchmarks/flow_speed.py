"""``log_prob`` and draws of RealNVP and spline flows beside zuko and nflows: D 8, batch 1000, 8
couplings with two layers of 128 units.

Run it where the peers are installed; those that are not are left out, with a line that says so.
``python benchmarks/flow_speed.py cpu`` measures CPU time on one thread, which leaves out the
waiting on a machine that is shared.
"""

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from harness import leave_out, show, side_by_side
from partita.models import Flow

QUICK = True
D, ROWS, LAYERS, WIDTHS = 8, 1000, 8, (128, 128)
Calls = tuple[Callable[[], Any], Callable[[], Any], int]  # log_prob, draws, parameters


def own(coupling: str, x: Tensor) -> Calls:
    """partita's flow."""
    g = torch.Generator().manual_seed(0)
    # masks alternate, as the peers' do
    flow = Flow(D, LAYERS, coupling, widths=WIDTHS, mixing="none", generator=g)
    return (
        lambda: flow.log_prob(x),
        lambda: flow.draw(ROWS, generator=g),
        sum(p.numel() for p in flow.parameters()),
    )


def zuko_flow(coupling: str, x: Tensor) -> Calls:
    """zuko's RealNVP; for splines its general coupling with the same univariate map."""
    import zuko

    if coupling == "affine":
        flow = zuko.flows.RealNVP(D, transforms=LAYERS, hidden_features=WIDTHS)
    else:
        shapes = [(8,), (8,), (7,)]
        make = zuko.flows.coupling.GeneralCouplingTransform
        parts = [
            make(
                D,
                mask=torch.arange(D) % 2 == i % 2,
                univariate=zuko.transforms.MonotonicRQSTransform,
                shapes=shapes,
                hidden_features=WIDTHS,
            )
            for i in range(LAYERS)
        ]
        base = zuko.lazy.UnconditionalDistribution(
            zuko.distributions.DiagNormal, torch.zeros(D), torch.ones(D), buffer=True
        )
        flow = zuko.lazy.Flow(parts, base)
    return (
        lambda: flow().log_prob(x),
        lambda: flow().sample((ROWS,)),
        sum(p.numel() for p in flow.parameters()),
    )


def nflows_flow(coupling: str, x: Tensor) -> Calls:
    """nflows' couplings of the same sizes."""
    from nflows import distributions, flows, transforms
    from nflows.nn.nets import MLP

    class Net(MLP):
        def forward(self, inputs: Tensor, context: Any = None) -> Tensor:
            return super().forward(inputs)

    def net(inputs: int, outputs: int) -> Any:
        return Net((inputs,), (outputs,), hidden_sizes=list(WIDTHS), activation=torch.relu)

    masks = [(torch.arange(D) + i) % 2 for i in range(LAYERS)]
    kind = (
        transforms.AffineCouplingTransform
        if coupling == "affine"
        else transforms.PiecewiseRationalQuadraticCouplingTransform
    )
    more = {} if coupling == "affine" else {"num_bins": 8, "tails": "linear", "tail_bound": 5.0}
    parts = transforms.CompositeTransform([kind(mask, net, **more) for mask in masks])
    flow = flows.Flow(parts, distributions.StandardNormal([D]))
    return (
        lambda: flow.log_prob(x),
        lambda: flow.sample(ROWS),
        sum(p.numel() for p in flow.parameters()),
    )


PEERS = {"zuko": zuko_flow, "nflows": nflows_flow}


def run(clock: Callable[[], float] = time.perf_counter) -> None:
    """Print medians and ratios, with gradients off."""
    x = torch.randn(ROWS, D, generator=torch.Generator().manual_seed(1))
    for peer, make in PEERS.items():
        if find_spec(peer) is None:
            leave_out(peer, "not installed here")
            continue
        for coupling in ("affine", "spline"):
            ours, theirs = own(coupling, x), make(coupling, x)
            with torch.no_grad():
                for i, what in enumerate(("log_prob", "draws")):
                    a, b, ratio = side_by_side(ours[i], theirs[i], clock=clock)  # type: ignore[arg-type]
                    show(
                        f"{coupling} {what} against {peer}",
                        milliseconds=1e3 * a,
                        theirs=1e3 * b,
                        times_as_fast=1 / ratio,
                        parameters=ours[2],
                        their_parameters=theirs[2],
                        target="at least 1.2 x zuko",
                    )


if __name__ == "__main__":
    if "cpu" in sys.argv:
        torch.set_num_threads(1)
    run(time.process_time if "cpu" in sys.argv else time.perf_counter)
