"""Flows of the plane beside zuko's: 2,000 Adam steps of 256 rows, the same sizes, rows and
schedule, paired over three seeds.

Run it where zuko is installed. ``SEEDS=1`` in the environment makes it a third as long.
"""

import math
import os
import time
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

import partita
from harness import leave_out, show
from partita.datasets import load
from partita.models import Flow
from partita.tables.encoding import Encoding

STEPS, BATCH, RATE, WIDTHS = 2000, 256, 1e-3, (64, 64)
SETS = {"8gaussians": -2.839, "checkerboard": -3.466}
LAYERS = {"affine": 8, "spline": 6}
# as many parameters within a twentieth: its spline layers move both columns each
ZUKO_LAYERS = {"affine": 8, "spline": 5}
SEEDS = int(os.environ.get("SEEDS", "3"))


def own(coupling: str, train: Tensor, seed: int) -> Any:
    """partita's flow after the same steps; returns its log_prob."""
    g = torch.Generator().manual_seed(seed)
    flow = Flow(2, LAYERS[coupling], coupling, widths=WIDTHS, generator=g)
    partita.fit(
        flow,
        train,
        steps=STEPS,
        batch_size=BATCH,
        learning_rate=RATE,
        optimizer="adam",
        schedule="cosine",
        generator=g,
    )
    return flow.log_prob, sum(p.numel() for p in flow.parameters())


def zuko_flow(coupling: str, train: Tensor, seed: int) -> Any:
    """zuko's RealNVP with as many couplings, or its autoregressive spline flow of the same size."""
    import zuko

    torch.manual_seed(seed)
    make = zuko.flows.RealNVP if coupling == "affine" else zuko.flows.NSF
    flow = make(2, transforms=ZUKO_LAYERS[coupling], hidden_features=WIDTHS)
    optimizer = torch.optim.Adam(flow.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        batch = train[torch.randint(len(train), (BATCH,))]
        optimizer.zero_grad()
        (-flow().log_prob(batch).mean()).backward()
        optimizer.step()
        schedule.step()
    return lambda x: flow().log_prob(x), sum(p.numel() for p in flow.parameters())


def run() -> None:
    """Print test log-likelihoods in the units of the data, and the paired difference with its
    standard error over seeds.
    """
    if find_spec("zuko") is None:
        leave_out("zuko", "not installed here")
    for name, ceiling in SETS.items():
        data = load(name)
        encoding = Encoding.fit(data.train, "real")
        train, test = (
            torch.from_numpy(encoding.encode(rows.tensor().numpy())).float()
            for rows in (data.train, data.test)
        )
        for coupling in LAYERS:
            differences = [
                compare(
                    f"{coupling} flow, {name}", coupling, train, test, encoding.log_jacobian, seed
                )
                for seed in range(SEEDS)
            ]
            if None not in differences:
                d = torch.tensor(differences, dtype=torch.float64)
                se = float(d.std()) / math.sqrt(SEEDS) if SEEDS > 1 else math.nan
                show(
                    f"{coupling} flow, {name}",
                    ahead_of_zuko_by=float(d.mean()),
                    se=se,
                    ceiling=ceiling,
                    target="0 within the error",
                )


def compare(
    title: str, coupling: str, train: Tensor, test: Tensor, log_jacobian: float, seed: int
) -> float | None:
    """Both on one seed; how far partita is ahead, in nats."""
    scores: dict[str, float] = {}
    for who, make in {"partita": own, **({"zuko": zuko_flow} if find_spec("zuko") else {})}.items():
        started = time.perf_counter()
        log_prob, size = make(coupling, train, seed)
        spent = time.perf_counter() - started
        with torch.no_grad():
            scores[who] = float(log_prob(test).mean()) + log_jacobian
        show(f"{title}, {who}", seed=seed, test_nats=scores[who], parameters=size, seconds=spent)
    return scores["partita"] - scores["zuko"] if "zuko" in scores else None


if __name__ == "__main__":
    run()
