"""All that two processes compute, each running this file; what they saw goes to
``OUT/rank-R.pt``. See ``test_processes.py``.
"""

from pathlib import Path
from typing import Any

from tests.gloo import one_of_two
from tests.training import one_message, two_processes


def run(out: Path, fabric: Any) -> dict[str, Any]:
    return {**two_processes.run(out, fabric), "one message": one_message.run(out, fabric)}


if __name__ == "__main__":
    one_of_two(run)
