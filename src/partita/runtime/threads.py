"""Machine code that releases the interpreter, side by side in as many threads as torch may use."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

Result = TypeVar("Result")


def map_in_threads(
    function: Callable[..., Result], tasks: Sequence[tuple[object, ...]]
) -> list[Result]:
    """What a function, which must not call this one again, returns for the arguments of each task.

    >>> map_in_threads(pow, [(2, 3), (3, 2)])
    [8, 9]
    """
    threads = min(torch.get_num_threads(), len(tasks))
    if threads < 2:
        return [function(*task) for task in tasks]
    return list(_pool(threads).map(lambda task: function(*task), tasks))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="partita")
