"""Fits of four binary columns that take a fraction of a second: their parts, how to kill one, and
when two are the same.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import partita
from partita.models import RBM
from partita.objectives import CD, PCD, ExactLikelihood
from partita.samplers import Gibbs, Tempering
from partita.training import checkpoint
from partita.training.session import Session

STEPS = 120
OBJECTIVES = {
    "exact": ExactLikelihood(),
    "cd": CD(Gibbs(), steps=2),
    "pcd": PCD(Gibbs(), chains=10),
    "tempered": PCD(Tempering(Gibbs(), betas=(0.0, 0.5, 1.0)), chains=6, steps=2),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "exact": {"steps": 12},
    "cd": {"steps": STEPS, "optimizer": "adam", "learning_rate": 0.01, "schedule": "cosine"},
    "pcd": {
        "steps": STEPS,
        "batch_size": 16,
        "momentum": 0.5,
        "average": 0.3,
        "trajectory": 6,
        "track": 8,
    },
    "tempered": {"steps": STEPS, "batch_size": 25, "average": 0.2, "l2": 1e-3},
}


def rows(n: int = 60, width: int = 4, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """Zeros and ones with correlated columns."""
    g = torch.Generator().manual_seed(seed)
    cause = torch.rand(n, 1, generator=g)
    return (torch.rand(n, width, generator=g) < 0.2 + 0.6 * cause).to(dtype)


def machine(seed: int = 0, hidden: int = 3) -> RBM:
    return RBM(4, hidden, scale=0.3, generator=torch.Generator().manual_seed(seed))


def scenario(name: str, out: Path | None = None, resume: bool = False, **more: Any) -> Any:
    """One fit with validation, averages and chains, a function of its name alone."""
    g = torch.Generator().manual_seed(7)
    return partita.fit(
        machine(),
        rows(),
        OBJECTIVES[name],
        validation=rows(20, seed=2),
        out=out,
        resume=resume,
        generator=g,
        **{**OPTIONS[name], **more},
    )


class Killed(BaseException):
    """Ends a fit at once, wherever it is."""


def killed_at(step: int, scale: float = 1.0) -> Any:
    """An advance that ends the fit at a step, when its learning rate is so much of what it was."""
    advance = Session.advance

    def stopped(self: Session) -> Any:
        if self.step == step and self.rate_scale == scale:
            raise Killed
        return advance(self)

    return stopped


def die_at(step: int, *, while_saving: bool = False) -> None:
    """From now on this process kills itself after so many updates, or in the middle of its next
    save after them.
    """
    advance, save_file = Session.advance, checkpoint.save_file
    count = 0

    def counted(self: Session) -> dict[str, float]:
        nonlocal count
        record = advance(self)
        count += 1
        if count >= step and not while_saving:
            os.kill(os.getpid(), signal.SIGKILL)
        return record

    def cut(tensors: dict, path: Path, metadata: dict) -> None:
        save_file(tensors, path, metadata=metadata)
        if count >= step:
            Path(path).write_bytes(Path(path).read_bytes()[:100])
            os.kill(os.getpid(), signal.SIGKILL)

    Session.advance = counted  # type: ignore[method-assign]
    if while_saving:
        checkpoint.save_file = cut


def same(a: Any, b: Any) -> bool:
    """Equal in every bit."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def timeless(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def assert_identical(folder: Path, reference: Path) -> None:
    """Weights to use, last and averaged; chains, optimizer, generator; metrics without their clock;
    config.
    """
    for file in ("last.safetensors", "model.safetensors"):
        saved, expected = (
            checkpoint.load_tree(f / "checkpoints" / file) for f in (folder, reference)
        )
        assert same(saved, expected), [
            key for key in expected if not same(saved.get(key), expected[key])
        ]
    metrics = [
        [json.loads(line) for line in (f / "metrics.jsonl").read_text().splitlines()]
        for f in (folder, reference)
    ]
    assert timeless(metrics[0]) == timeless(metrics[1])
    configs = [json.loads((f / "config.json").read_text()) for f in (folder, reference)]
    assert configs[0] == configs[1]
