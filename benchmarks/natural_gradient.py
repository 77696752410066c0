"""RBM and maximum entropy by natural gradient: exact log-likelihood by updates and seconds, beside
SGD, Adam, L-BFGS; K-FAC's gap.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

import partita
from harness import show
from partita.core import Binary
from partita.datasets import load
from partita.models import RBM, MaxEnt
from partita.objectives import ExactLikelihood
from partita.optim.natural_gradient import KroneckerMetric, PredictiveMetric
from spikes_maxent import halves

QUICK = True
DATA = "spikes_maxent"
RATES = {"sgd": (0.1, 0.5, 2.0), "adam": (0.01, 0.05, 0.2)}  # the best of these is shown


def fitted(
    make: Callable[[torch.Generator], Any], x: Tensor, optimizer: str, **options: Any
) -> tuple[list[tuple[float, float]], float]:
    """(seconds, log-likelihood) by update, and the exact log-likelihood at the end, nats a row."""
    g = torch.Generator().manual_seed(0)
    model = make(g)
    options = {"schedule": "constant", "average": 0.0, "batch_size": 0, **options}
    run = partita.fit(model, x, ExactLikelihood(), optimizer=optimizer, generator=g, **options)
    trace = [
        (record["seconds"], record["log_likelihood"])
        for record in run.history
        if "log_likelihood" in record
    ]
    return trace, partita.evaluate(model, x, generator=g).value


def race(
    name: str,
    make: Callable[[torch.Generator], Any],
    x: Tensor,
    steps: int,
    natural_steps: int,
    **options: Any,
) -> None:
    """Every optimizer from the same start; then how many updates and seconds each needs to come
    within 0.01 nats of the best.
    """
    tried: dict[str, list[tuple[float, float]]] = {}
    ends = {}
    started = time.perf_counter()
    tried["natural"], ends["natural"] = fitted(make, x, "natural", steps=natural_steps, **options)
    tried["lbfgs"], ends["lbfgs"] = fitted(make, x, "lbfgs", steps=natural_steps, **options)
    for optimizer, rates in RATES.items():
        found = {
            rate: fitted(make, x, optimizer, steps=steps, learning_rate=rate, **options)
            for rate in rates
        }
        best = max(found, key=lambda rate: found[rate][1])
        tried[optimizer], ends[optimizer] = found[best]
    goal = max(ends.values()) - 0.01
    for optimizer, trace in tried.items():
        reached = next(
            ((i, seconds) for i, (seconds, value) in enumerate(trace) if value >= goal), None
        )
        each = steps // len(trace) if optimizer in RATES else 1
        show(
            f"{name}, {optimizer}",
            updates=len(trace) * each,
            seconds=trace[-1][0],
            log_likelihood=ends[optimizer],
            updates_to_goal="not reached" if reached is None else (reached[0] + 1) * each,
            seconds_to_goal="not reached" if reached is None else reached[1],
            curve=curve(trace),
        )
    show(name, goal=goal, seconds_in_all=time.perf_counter() - started)


def curve(trace: list[tuple[float, float]], points: int = 6) -> str:
    """Log-likelihood against seconds, at a few updates from the first to the last."""
    some = {round(i * (len(trace) - 1) / (points - 1)) for i in range(points)}
    return ", ".join(f"{trace[i][1]:.3f} at {trace[i][0]:.2g} s" for i in sorted(some))


def gap(net: nn.Module, x: Tensor, predict: Callable[[Tensor], Distribution]) -> float:
    """Relative distance in Frobenius norm of the Kronecker-factored matrix from the exact Fisher
    matrix.
    """
    parameters = list(net.parameters())
    exact = PredictiveMetric(lambda: predict(net(x)), parameters)
    truth = torch.stack(
        [
            exact.product(row)
            for row in torch.eye(sum(p.numel() for p in parameters), dtype=x.dtype)
        ],
        1,
    )
    return float((KroneckerMetric(net, x, predict).matrix() - truth).norm() / truth.norm())


def kronecker_gaps() -> None:
    """Where K-FAC is exact and how far it is off elsewhere."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 6, generator=g).double()
    images = torch.randn(32, 2, 6, 6, generator=g).double()

    def normal(out: Tensor) -> Distribution:
        return Independent(Normal(out.flatten(1), 1.0), 1)

    def softmax(out: Tensor) -> Distribution:
        return Categorical(logits=out)

    def drawn(net: nn.Module) -> nn.Module:
        for p in net.double().parameters():
            p.data.copy_(torch.randn(p.shape, generator=g) / max(1, p[0].numel()) ** 0.5)
        return net

    depthwise = nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Tanh(), nn.Conv2d(2, 2, 3, groups=2))
    show(
        "K-FAC, relative gap to the exact Fisher",
        linear_gaussian=gap(drawn(nn.Linear(6, 4)), x, normal),
        linear_softmax=gap(drawn(nn.Linear(6, 4)), x, softmax),
        two_layers_gaussian=gap(
            drawn(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))), x, normal
        ),
        two_layers_softmax=gap(
            drawn(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))), x, softmax
        ),
        two_depthwise_gaussian=gap(drawn(depthwise), images, normal),
    )


def run() -> None:
    """Print updates, seconds and exact log-likelihoods."""
    kronecker_gaps()
    bars = load("bars-and-stripes").train.tensor().float()
    race(
        "RBM(16, 10) on bars-and-stripes",
        lambda g: RBM(16, 10, scale=0.1, generator=g),
        bars,
        1000,
        40,
    )
    train, _ = halves("spikes15")
    race(
        "pairwise maxent, 15 neurons",
        lambda g: MaxEnt("pairwise", Binary(15), generator=g),
        train[:20_000],
        100,
        12,
        l2=1e-5,
    )


if __name__ == "__main__":
    run()
