"""Associative recall: pairs of a key and its value, then one of the keys; the model must give its
value. Two layers, width 64.
"""

import itertools
import sys
import time

import torch
from torch import Tensor

from harness import show
from partita.core.rng import permutation
from partita.models import Autoregressive

VOCABULARIES, LENGTHS, FULL = (10, 20), (128, 256, 512), (2048,)
BACKBONES = ("hyena", "attention", "ssm")
STEPS, BATCH, RATE, ENOUGH = 4000, 32, 2e-3, 0.995
# seconds of one cell up to a length, more in proportion past it, after which it is left where it
# stands
LIMIT, USUAL = 300.0, 512


def draw(n: int, L: int, V: int, generator: torch.Generator) -> Tensor:
    """Rows key value key value ... key value, ``(n, L)``: V / 2 keys, each bound to a value at
    random in each row.
    """
    half, pairs = V // 2, L // 2
    bound = torch.stack([permutation(half, generator) for _ in range(n)]) + half
    keys = torch.randint(half, (n, pairs), generator=generator)
    # the last key has been seen
    keys[:, -1] = keys[torch.arange(n), torch.randint(pairs - 1, (n,), generator=generator)]
    return torch.stack([keys, bound.gather(1, keys)], -1).flatten(1).float()


def train(
    backbone: str, L: int, V: int, steps: int, generator: torch.Generator
) -> tuple[float, int, float]:
    """Share of right last values on fresh rows, steps, seconds; all values of a row are learned,
    until the last ones are right.
    """
    options = {"hyena": {"filter": {"longest": float(L)}}, "ssm": {"longest": float(L)}}.get(
        backbone
    )
    model = Autoregressive(
        L,
        states=V,
        backbone=backbone,
        width=64,
        layers=2,
        expand=2,
        options=options,
        generator=generator,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    started = time.perf_counter()
    limit = LIMIT * max(1.0, L / USUAL)
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, step / 100) * (1 - 0.9 * step / steps)
        optimizer.zero_grad()
        (-model.log_prob_steps(draw(BATCH, L, V, generator))[:, 1::2].mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 250 == 0:
            enough = right(model, L, V, 256, generator) >= ENOUGH
            if enough or time.perf_counter() - started > limit:
                break
    return right(model, L, V, 1000, generator), step, time.perf_counter() - started


@torch.no_grad()
def right(model: Autoregressive, L: int, V: int, n: int, generator: torch.Generator) -> float:
    """How often the likeliest last token is the value bound to the last key."""
    found = 0
    for rows in draw(n, L, V, generator).split(64):
        logits = model.one.out(model.contexts(rows.unsqueeze(-1))[:, -1])  # type: ignore[operator]
        found += int((logits.argmax(-1) == rows[:, -1]).sum())
    return found / n


def run(
    lengths: tuple[int, ...] = LENGTHS, backbones: tuple[str, ...] = BACKBONES, steps: int = STEPS
) -> None:
    """A table of shares and seconds."""
    for backbone in backbones:
        for V, L in itertools.product(VOCABULARIES, lengths):
            share, made, seconds = train(backbone, L, V, steps, torch.Generator().manual_seed(0))
            show(f"{backbone}, vocabulary {V}, L {L}", right=share, steps=made, seconds=seconds)
    show("target", hyena="at least 0.99")


if __name__ == "__main__":
    run(
        LENGTHS + FULL if "full" in sys.argv else LENGTHS,
        tuple(name for name in BACKBONES if name in sys.argv) or BACKBONES,
    )
