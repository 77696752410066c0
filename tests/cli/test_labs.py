"""The labs of this folder at small sizes: what they print is what the theory says."""

import json
from typing import Any

import torch

from partita.cli.lab_partition import (
    Timed,
    partition_evaluators,
    partition_figure,
    random_machine,
)


def test_labs_are_listed_in_one_line_each(call: Any) -> None:
    listed = json.loads(call("lab", "--json").stdout)
    assert {"memory", "partition", "no-free-lunch"} <= set(listed)
    assert all(lab["summary"] and "\n" not in lab["summary"] for lab in listed.values())
    assert all(
        f"{key}={value}" in call("lab").output
        for lab in listed.values()
        for key, value in lab["settings"].items()
    )


def test_no_free_lunch_ties_and_a_prior_unties(call: Any) -> None:
    settings = ("--set", "width=3", "--set", "height=2", "--set", "train=2")
    said = json.loads(
        call("lab", "no-free-lunch", *settings, "--json", "--out", "lunch.html").stdout
    )
    assert set(said["totals"].values()) == {said["forecast"]} == {2**5 * 4}
    assert set(said["errors"]["every target alike"].values()) == {0.5}
    assert len(set(said["errors"]["targets that change seldom"].values())) > 1
    assert "lie between 2 and 16" in call("lab", "no-free-lunch", "--set", "width=9").output
    assert (
        "train must be less than 9 points"
        in call("lab", "no-free-lunch", "--set", "train=9").output
    )
    assert "1280" in call("lab", "no-free-lunch", "--out", "table.html").output


def test_the_partition_lab_compares_with_the_truth(call: Any) -> None:
    """Five evaluators; the estimates lie within half a nat of the truth on so smooth a machine (no
    random failure: fixed seed).
    """
    settings = (
        "--set",
        "visible=6",
        "--set",
        "hidden=4",
        "--set",
        "temperatures=60",
        "--set",
        "chains=40",
    )
    said = json.loads(
        call("lab", "partition", *settings, "--seed", "1", "--json", "--out", "z.html").stdout
    )["evaluators"]
    g = torch.Generator().manual_seed(1)
    model = random_machine(6, 4, 1.0, g)
    states = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 6)
    truth = float(torch.logsumexp(-model(states), 0).detach())
    assert (
        said["enumeration"]["kind"] == "exact" and abs(said["enumeration"]["value"] - truth) < 1e-9
    )
    assert set(said) == set(partition_evaluators(60, 40)) and all(
        abs(q["value"] - truth) < 0.5 for q in said.values()
    )
    assert (
        "at most 20" in call("lab", "partition", "--set", "visible=30", "--set", "hidden=30").output
    )


def test_the_figure_shows_every_estimate() -> None:
    g = torch.Generator().manual_seed(0)
    model = random_machine(4, 3, 0.5, g)
    found = {
        name: Timed(evaluator(model, generator=g), 0.1)
        for name, evaluator in partition_evaluators(30, 20).items()
    }
    assert len(partition_figure(found).data) == len(found) - 1
