"""The tools of the folder ``benchmarks``, which is no package: its files import one another by
name.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
