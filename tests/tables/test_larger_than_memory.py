"""``partita fit``, ``evaluate`` and ``impute`` on tables that do not fit the address space, and
what they hold as rows become more.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/status").exists(), reason="reads the size of a process from /proc"
    ),
]
MIB = 1 << 20
COLUMNS = 16
GROUP = 16384  # rows
# of the table, and of what it is filled into
ENDINGS = {".parquet": ".arrow", ".arrow": ".npy", ".npy": ".parquet"}

SCRIPT = """
import json, resource, sys
import torch
torch.set_num_threads(1)
from typer.testing import CliRunner
from partita.cli.app import app
from partita.tables import arrays, arrow, on_disk
from partita.evaluators import likelihood

def status(name):
    lines = open("/proc/self/status")
    return int(next(line for line in lines if line.startswith(name)).split()[1]) << 10

def call(words):
    done = CliRunner().invoke(app, words)
    if done.exit_code:
        raise SystemExit(done.output + repr(done.exception))
    return done.output

on_disk.IN_MEMORY = likelihood.CELLS_AT_ONCE = arrow.CHUNK = arrays.CHUNK = 1 << 18
room, before, after = json.loads(sys.argv[1])
for words in before:
    call(words)
held, most = status("VmHWM"), status("VmSize") + room
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(json.dumps([list(map(call, after)), status("VmHWM") - held]))
"""


def commands(run: Path, path: Path, ending: str, page: bool) -> list[list[str]]:
    return [
        [
            "fit",
            "ppca",
            str(path),
            "--set",
            "n_components=3",
            "--epochs",
            "2",
            "--out",
            str(run),
            "--json",
            *([] if page else ["--no-report"]),
        ],
        ["evaluate", str(run), str(path), "--json"],
        ["impute", str(run), str(path), "--out", f"{run}{ending}", "--json"],
    ]


def piece(seed: int = 0) -> pa.Table:
    """Rows of few factors, one in fifty of them with gaps."""
    g = np.random.default_rng(seed)
    x = np.round(
        g.normal(size=(GROUP, 3)) @ g.normal(size=(3, COLUMNS))
        + 0.3 * g.normal(size=(GROUP, COLUMNS)),
        2,
    )
    x[::50, ::5] = np.nan
    return pa.table({f"c{i}": pa.array(column, from_pandas=True) for i, column in enumerate(x.T)})


def save(path: Path, size: int) -> Path:
    """A table of ``size`` bytes of float64, of one piece again and again."""
    one, count = piece(), size // (8 * COLUMNS * GROUP)
    if path.suffix == ".npy":
        x = np.lib.format.open_memmap(
            path, mode="w+", dtype=np.float64, shape=(count * GROUP, COLUMNS)
        )
        x.reshape(count, GROUP, COLUMNS)[:] = one.to_pandas().to_numpy()
        return path
    options = (
        {} if path.suffix == ".parquet" else {"options": pa.ipc.IpcWriteOptions(compression="lz4")}
    )
    make: Any = pq.ParquetWriter if path.suffix == ".parquet" else pa.ipc.new_file
    with make(str(path), one.schema, **options) as out:
        for _ in range(count):
            out.write_table(one)
    return path


def test_what_exceeds_the_address_space_is_fitted_scored_and_filled_in_a_quarter_of_it(
    tmp_path: Path,
) -> None:
    """After tables of 12 MiB, 36 are left to a process for ones of 48, and what it holds may grow
    by half of what they do.
    """
    asked: dict[str, list[Any]] = {"few": [], "many": []}
    for ending, out in ENDINGS.items():
        for name, size in (("few", 12), ("many", 48)):
            path = save(tmp_path / f"{name}{ending}", size * MIB)
            asked[name] += commands(
                tmp_path / f"{name}{ending[1:]}", path, out, page=ending == ".parquet"
            )
    words = json.dumps([36 * MIB, asked["few"], asked["many"]])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, words],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},  # compiling takes memory of its own
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told, growth = json.loads(done.stdout.splitlines()[-1])
    rows, scores = 48 * MIB // (8 * COLUMNS), []
    for fitted, scored, filled in zip(*[iter(map(json.loads, told))] * 3, strict=True):
        assert (
            fitted["log_likelihood"]["value"] == pytest.approx(scored["value"], abs=1e-9)
            and scored["n"] == rows // 5
        )
        assert (
            filled["rows"] == rows
            and filled["filled"] == rows // GROUP * piece().to_pandas().isna().sum().sum()
        )
        scores.append(scored["value"])
    assert scores == pytest.approx([scores[0]] * len(ENDINGS), abs=1e-9)
    assert growth < 18 * MIB, growth
