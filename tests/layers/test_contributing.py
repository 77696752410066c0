"""CONTRIBUTING.md's recipe, taken literally: its blocks make a package outside partita, and the
same model inside a copy of it; nothing else is edited.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = re.compile(r"^##+ [^`\n]*`(?P<path>\S+)`$|^```\w+\n(?P<code>.*?)^```$", re.M | re.S)
HOUSE = {
    "coins/model.py": "models/energy/coins.py",
    "coins/family.py": "families/coins.py",
    "coins/estimator.py": "estimators/coins.py",
}
IN_A_PACKAGE = """
import sys, warnings
from typer.testing import CliRunner
from partita.cli.app import app

def call(*words):
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout

fit = ("fit", "{family}", "bars-and-stripes", "--epochs", "2", "--no-report", "--quiet", "--out")
call(*(word.format(family="rbm") for word in fit), "plain")
assert "coins" not in sys.modules  # plugins wait until a name is none of partita's
call(*(word.format(family="coins") for word in fit), "run")
assert "estimate" in call("evaluate", "run") or "exact" in call("evaluate", "run")
call("sample", "run", "-n", "3", "--out", "drawn.csv")
assert "coins: independent coins" in call("models")
"""
FROM_PYTHON = """
from importlib import import_module
import numpy as np, partita, torch
from partita import estimators, models
from partita.core.capability import PARTS
from partita.core.registry import example_models
from partita.families import FAMILIES
from tests.grid import test_grid as grid

Coins, CoinsDensity = models.Coins, estimators.CoinsDensity
for path, values in grid.PILOTS.items():
    vars(import_module(f"partita.{path}")).update(values)
cells = [("Coins", part) for part in PARTS]
cells += [(label, "OneSite") for label in example_models() if "OneSite" in PARTS]
for cell in cells:
    grid.test_a_cell_runs_or_says_why_not(*cell)

g = torch.Generator().manual_seed(0)
x = (torch.rand(200, 5, generator=g) < 0.3).float()
run = partita.fit(Coins(5, generator=g), x, out="fitted", generator=g)
again = partita.load("fitted").model
assert type(again) is Coins and torch.equal(again.b, run.model.b)
assert partita.evaluate(again, x, generator=g).kind == "exact"
fitted = CoinsDensity(random_state=0).fit(x.numpy())
fitted.save("estimator")
kept = estimators.load("estimator")
assert type(kept) is CoinsDensity and kept.score(x.numpy()) == fitted.score(x.numpy())
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    cut = CoinsDensity(random_state=0).fit(np.random.default_rng(0).normal(size=(50, 3)))
assert cut.encoding_.kind == "median" and "cut at their medians" in str(said[0].message)
print(len(cells), "OneSite" in PARTS)
"""
SAVED_WITH_A_PLUGIN = """
objective = PCD(PARTS["OneSite"].kind(), chains=8)
partita.fit(Coins(5, generator=g), x, objective, steps=2, out="chains", generator=g)
from partita.core.registry import build_part
assert build_part(partita.load("chains").config["objective"]) == objective
"""


def recipe() -> dict[str, str]:
    """The files of CONTRIBUTING.md: the first block below each heading that ends in a path."""
    files, path = {}, ""
    for part in PARTS.finditer((ROOT / "CONTRIBUTING.md").read_text()):
        path = part["path"] or path
        if part["code"]:
            files.setdefault(path, part["code"])
    return files


def written(path: str) -> bool:
    """Whether a file is one of the package's."""
    return path.startswith(("coins/", "tests/"))


def run(code: str, folder: Path, *places: Path) -> str:
    """What a fresh Python prints that finds modules in some places."""
    paths = os.pathsep.join(map(str, [*places, ROOT / "src", ROOT]))
    (folder / "script.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package of the recipe, installed as pip would."""
    files = recipe()
    for path in filter(written, files):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(files[path])
    project = tomllib.loads(files["pyproject.toml"])["project"]
    info = tmp_path / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in project["entry-points"].items()
        )
    )
    return tmp_path


def test_the_recipe_has_its_files() -> None:
    others = {"coins/sampler.py", "coins/__init__.py", "tests/test_coins.py"}
    assert {*HOUSE, *others} == set(filter(written, recipe()))


def test_a_package_of_ones_own_runs_through_grid_fits_and_commands(package: Path) -> None:
    test = recipe()["tests/test_coins.py"] + "\ntest_coins_have_the_entropy_of_their_columns()\n"
    code = IN_A_PACKAGE + FROM_PYTHON + "from partita.objectives import PCD\n"
    printed = run(code + SAVED_WITH_A_PLUGIN + test, package, package).split()
    assert int(printed[-2]) > 70 and printed[-1] == "True"
    # where the package is not installed its name says nothing, and nothing is imported for it
    elsewhere = package / "elsewhere"
    elsewhere.mkdir()
    unknown = "import partita\ntry: partita.load('../fitted')\nexcept Exception as e: print(e)"
    assert "load: model must be one of Autoregressive, " in run(unknown, elsewhere)


def test_a_model_of_partita_is_the_same_files_and_no_other(tmp_path: Path) -> None:
    house = tmp_path / "src" / "partita"
    shutil.copytree(ROOT / "src" / "partita", house, ignore=shutil.ignore_patterns("__pycache__"))
    for path, place in HOUSE.items():
        code = recipe()[path].replace("coins.model", "partita.models.energy.coins")
        (house / place).write_text(code)
    printed = run(IN_A_PACKAGE + FROM_PYTHON, tmp_path, house.parent).split()
    assert int(printed[-2]) > 30 and printed[-1] == "False"
