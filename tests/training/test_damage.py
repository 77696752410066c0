"""Every file of a run, flipped, cut or overwritten at random places: the fit ends as it would have,
or is refused.

``CASES=400`` makes as many damages of each file in place of a few.
"""

import json
import os
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.training.small_fits import Killed, killed_at, same, scenario, timeless

from partita.errors import PartitaError, PartitaWarning
from partita.training import checkpoint, loop
from partita.training.session import Session

CASES = int(os.environ.get("CASES", "12"))
LAST, PREVIOUS = "checkpoints/last.safetensors", "checkpoints/last.previous.safetensors"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A whole run, and one that was killed on its way, with two saves."""
    place = tmp_path_factory.mktemp("damage")
    scenario("pcd", place / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "SAVE_SECONDS", -1.0)
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(Session, "advance", killed_at(110))
        with pytest.raises(Killed):
            scenario("pcd", place / "killed")
    return place / "whole", place / "killed"


def damage(path: Path, chance: random.Random) -> str:
    """One bit, one byte, sixty-four bytes, all that follows, or a byte too many."""
    raw, how = bytearray(path.read_bytes()), chance.choice(["bit", "byte", "zeros", "cut", "more"])
    k = chance.randrange(len(raw))
    if how == "bit":
        raw[k] ^= 1 << chance.randrange(8)
    elif how == "byte":
        raw[k] ^= chance.randrange(1, 256)
    elif how == "zeros":
        raw[k : k + 64] = bytes(len(raw[k : k + 64]))
    elif how == "cut":
        raw = raw[:k]
    else:
        raw.insert(k, chance.randrange(256))
    path.write_bytes(raw)
    return f"{how} at {k}"


def ended(folder: Path) -> dict[str, Any]:
    """All that a fit leaves; what it says of its records goes with them."""
    last, model = (
        checkpoint.load_tree(folder / "checkpoints" / f"{name}.safetensors")
        for name in ("last", "model")
    )
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {
        "last": last,
        "model": model,
        "records": [last.pop("records"), timeless([json.loads(line) for line in lines])],
    }


@pytest.mark.parametrize(
    "names",
    [("config.json",), ("metrics.jsonl",), (LAST,), (PREVIOUS,), (LAST, PREVIOUS)],
    ids=" and ".join,
)
def test_a_damaged_file_is_noticed(
    names: tuple[str, ...], runs: tuple[Path, Path], tmp_path: Path
) -> None:
    whole, chance = ended(runs[0]), random.Random(" ".join(names))
    for case in range(CASES):
        folder = shutil.copytree(runs[1], tmp_path / f"{case}")
        where = [f"{name}: {damage(folder / name, chance)}" for name in names]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PartitaWarning)
            try:
                scenario("pcd", folder, resume=True)
            except PartitaError:
                assert names in [("config.json",), (LAST, PREVIOUS)], where
                continue
        made = ended(folder)
        assert same(made["last"], whole["last"]) and same(made["model"], whole["model"]), where
        assert caught or names != (LAST,), where
        assert caught or made["records"] == whole["records"], where
        assert names != (LAST, PREVIOUS), where
