"""The command line with several processes: one voice, one run, a loss that is named and can be
mended, two hosts.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import partita
from partita.cli import launch
from partita.training import checkpoint

pytestmark = pytest.mark.slow
ALONE = {
    name: value
    for name, value in os.environ.items()
    if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
} | {"OMP_NUM_THREADS": "1"}
FIT = [
    sys.executable,
    "-m",
    "partita",
    "fit",
    "rbm",
    "bars-and-stripes",
    "--no-report",
    "--devices",
    "2",
]


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=ALONE, capture_output=True, text=True, timeout=200, check=False
    )


def test_two_processes_make_one_run_and_speak_with_one_voice(tmp_path: Path) -> None:
    done = ran([*FIT, "--epochs", "5", "--out", "run"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Saved in run") == 1
    saved = checkpoint.load_tree(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert len(saved["processes"]) == 2 and partita.load(tmp_path / "run").stopped == "finished"


def test_wrong_input_is_reported_once(tmp_path: Path) -> None:
    done = ran([*FIT, "--set", "n_chains=127", "--epochs", "1"], tmp_path)
    assert done.returncode == 1
    assert (
        done.stderr
        == "Error: PCD: chains must be a multiple of the 2 processes; got 127. The next one is "
        "chains=128.\n"
    )


ONE_FAILS = """
import sys
from partita.cli import main
from partita.runtime import processes
from partita.errors import DataError
from partita.training.session import Session
advance = Session.advance
def fails(self):
    if self.step == 3 and processes.current().rank == 1:
        raise DataError("batch: row 7 must be readable here; got none. Restore the file.")
    return advance(self)
Session.advance = fails
main()
"""


def test_an_error_of_one_process_is_reported_by_rank_0(tmp_path: Path) -> None:
    (tmp_path / "one_fails.py").write_text(ONE_FAILS)
    done = ran(
        [sys.executable, "one_fails.py", *FIT[3:], "--epochs", "50", "--out", "run"], tmp_path
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        "Error: fit: process 1 of 2 ended: batch: row 7 must be readable here; got none. Restore "
        "the file. "
        "The last save is in run. Go on with: partita fit --resume run"
    ]
    assert (
        len(
            checkpoint.load_tree(tmp_path / "run" / "checkpoints" / "last.safetensors")["processes"]
        )
        == 2
    )


@pytest.mark.parametrize("lost", ["leader", "follower"])
def test_a_lost_process_ends_the_run_with_a_sentence_and_leaves_it_resumable(
    lost: str, tmp_path: Path
) -> None:
    running = subprocess.Popen(
        [*FIT, "--epochs", "1000000", "--out", "run"],
        cwd=tmp_path,
        env=ALONE,
        stderr=subprocess.PIPE,
        text=True,
    )
    saved, until = tmp_path / "run" / "checkpoints" / "last.safetensors", time.monotonic() + 120
    while not (tmp_path / "run" / "config.json").exists() and time.monotonic() < until:
        time.sleep(0.2)
    follower = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()[0]
    os.kill(running.pid if lost == "leader" else int(follower), signal.SIGKILL)
    printed = running.communicate(timeout=60)[1]  # until both have closed what they write to
    assert running.returncode == (-signal.SIGKILL if lost == "leader" else 1)
    assert (
        printed.startswith("Error: fit: a process of several was lost") and printed.count("\n") == 1
    )
    assert printed.endswith("The last save is in run. Go on with: partita fit --resume run\n")
    assert len(checkpoint.load_tree(saved)["processes"]) == 2


def first_started(running: subprocess.Popen[str]) -> int:
    """The number of the first process that one has started, as soon as there is one."""
    listed, until = Path(f"/proc/{running.pid}/task/{running.pid}/children"), time.monotonic() + 60
    while not (started := listed.read_text().split()) and time.monotonic() < until:
        time.sleep(0.02)
    return int(started[0])


def wait_until_it_imports(process: int) -> None:
    """Return once a process has loaded torch's libraries, after it has learned to heed Ctrl-C."""
    mapped, until = Path(f"/proc/{process}/maps"), time.monotonic() + 60
    while "libtorch" not in mapped.read_text() and time.monotonic() < until:
        time.sleep(0.02)


@pytest.mark.parametrize("lost", ["leader", "follower"])
def test_a_process_that_is_lost_before_they_meet_ends_all(lost: str, tmp_path: Path) -> None:
    running = subprocess.Popen(
        [*FIT, "--out", "run"], cwd=tmp_path, env=ALONE, stderr=subprocess.PIPE, text=True
    )
    follower = first_started(running)
    os.kill(running.pid if lost == "leader" else follower, signal.SIGKILL)
    printed = running.communicate(timeout=60)[1]  # when both have closed what they write to
    assert running.returncode == (-signal.SIGKILL if lost == "leader" else 1)
    assert printed == ("" if lost == "leader" else f"{launch.LOST}\n")
    assert not (tmp_path / "run").exists()


def test_ctrl_c_that_a_follower_met_before_they_meet_is_no_loss(tmp_path: Path) -> None:
    def heeding() -> None:
        # a shell ignores it for what runs in the background, and so does what that starts
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "preexec_fn": heeding}
    running = subprocess.Popen([*FIT, "--out", "run"], cwd=tmp_path, env=ALONE, **pipes)
    follower = first_started(running)
    wait_until_it_imports(follower)
    os.kill(follower, signal.SIGINT)
    assert "lost" not in running.communicate(timeout=60)[1]
    assert running.returncode == 130 and not (tmp_path / "run").exists()


def test_torchrun_starts_it_too(tmp_path: Path) -> None:
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "-m",
        "partita",
    ]
    done = ran(
        [
            *launcher,
            "fit",
            "maxent",
            "bars-and-stripes",
            "--no-report",
            "--epochs",
            "3",
            "--out",
            "run",
        ],
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Saved in run") == 1


def can_make_hosts() -> bool:
    tried = (
        subprocess.run(["ip", "netns", "list"], capture_output=True, check=False)
        if shutil.which("ip")
        else None
    )
    return os.geteuid() == 0 and tried is not None and tried.returncode == 0


@pytest.mark.skipif(
    not can_make_hosts(),
    reason="needs root and the ip command to make two hosts in network namespaces",
)
def test_two_hosts_fit_one_model(tmp_path: Path) -> None:
    """Each host is a network namespace with an address of its own, joined by a virtual cable."""
    names, addresses = ("partita-a", "partita-b"), ("10.77.0.1", "10.77.0.2")
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(
            [
                "ip",
                "link",
                "add",
                "cable-a",
                "netns",
                names[0],
                "type",
                "veth",
                "peer",
                "name",
                "cable-b",
                "netns",
                names[1],
            ],
            check=True,
        )
        for name, cable, address in zip(names, ("cable-a", "cable-b"), addresses, strict=True):
            inside = ["ip", "netns", "exec", name, "ip"]
            subprocess.run([*inside, "addr", "add", f"{address}/24", "dev", cable], check=True)
            for device in (cable, "lo"):
                subprocess.run([*inside, "link", "set", device, "up"], check=True)
        command = [
            sys.executable,
            "-m",
            "partita",
            "fit",
            "rbm",
            "bars-and-stripes",
            "--no-report",
            "--nodes",
            "2",
            "--epochs",
            "4",
            "--out",
            "run",
        ]
        meeting = {**ALONE, "MASTER_ADDR": addresses[0], "MASTER_PORT": "29555"}
        running = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *command],
                cwd=tmp_path,
                env={
                    **meeting,
                    "NODE_RANK": str(rank),
                    "GLOO_SOCKET_IFNAME": f"cable-{'ab'[rank]}",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank, name in enumerate(names)
        ]
        printed = [process.communicate(timeout=200)[0] for process in running]
        assert [process.returncode for process in running] == [0, 0], "\n".join(printed)
        assert "Saved in run" in printed[0] and "Saved in run" not in printed[1]
        assert (
            len(
                checkpoint.load_tree(tmp_path / "run" / "checkpoints" / "last.safetensors")[
                    "processes"
                ]
            )
            == 2
        )
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
