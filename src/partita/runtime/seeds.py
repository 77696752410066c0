"""Seeds: generators made from numbers, and numbers drawn from generators."""

import torch


def seed(generator: torch.Generator) -> int:
    """A fresh seed for what keeps its own state: a numba kernel, a scikit-learn model, a child
    generator.
    """
    return int(torch.randint(2**31 - 1, (), generator=generator, device=generator.device))


def keyed(key: int, *path: int) -> torch.Generator:
    """A CPU generator that depends only on its numbers, so that any part of a run can be drawn
    again by itself.
    """
    mixed = key
    for number in path:
        # int() because NumPy's integers overflow
        mixed = (mixed * 6364136223846793005 + int(number) + 1442695040888963407) % 2**63
    return torch.Generator().manual_seed(mixed)
