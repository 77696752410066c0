"""What all tests share: a seeded generator, one thread per worker when they run side by side, and
no matrix tiles.

Some virtual machines announce Intel's matrix tiles (AMX) and then refuse them: torch's bfloat16
products end there with an illegal instruction. oneDNN reads the variable when torch is imported.
"""

import gc
import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow tests first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: "slow" not in item.keywords)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look through it."""
    gc.freeze()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20)
