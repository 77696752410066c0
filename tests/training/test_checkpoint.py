"""Checkpoints: what goes in comes out, a damaged or foreign file says so, and reading one never
runs code.
"""

import json
import os
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

import partita
from partita.core.support import Binary
from partita.errors import RunError
from partita.models import RBM, MaxEnt
from partita.objectives import PCD
from partita.samplers import Gibbs, Tempering
from partita.training import checkpoint, run

NUMBERS = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False))
LEAVES = st.one_of(
    st.none(), NUMBERS, st.text(max_size=5), st.builds(torch.tensor, st.floats(-9, 9))
)
KEYS = st.one_of(st.text("a/.1", max_size=3), st.integers(0, 2))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """Equal in kind and value, tuples and lists alike, tensors bit for bit."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return (
            isinstance(a, Tensor)
            and isinstance(b, Tensor)
            and a.dtype == b.dtype
            and torch.equal(a, b)
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return (
            isinstance(b, list | tuple)
            and len(a) == len(b)
            and all(same(x, y) for x, y in zip(a, b, strict=True))
        )
    return type(a) is type(b) and a == b


@settings(deadline=None, max_examples=40)
@given(tree=TREES)
def test_any_tree_survives(tree: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("tree") / "tree.safetensors"
    checkpoint.save_tree(path, tree)
    assert same(checkpoint.load_tree(path), tree)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.uint8,
        torch.int64,
        torch.bool,
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)], ids=str)
def test_any_tensor_survives(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    tensor = torch.arange(6)[: max(1, int(torch.tensor(shape).prod()))].to(dtype)
    tensor = (
        tensor[0]
        if shape == ()
        else torch.zeros(shape, dtype=dtype)
        if 0 in shape
        else tensor.reshape(shape)
    )
    checkpoint.save_tree(tmp_path / "x.safetensors", {"t": tensor})
    assert same(checkpoint.load_tree(tmp_path / "x.safetensors"), {"t": tensor})


def test_views_transposes_and_shared_memory_survive(tmp_path: Path) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    tree = {"t": x.T, "slice": x[:, 1], "x": x, "again": x, "expanded": torch.ones(1).expand(5)}
    checkpoint.save_tree(tmp_path / "x.safetensors", tree)
    assert same(checkpoint.load_tree(tmp_path / "x.safetensors"), tree)


def test_what_is_read_lies_in_memory_as_new_tensors_do(tmp_path: Path) -> None:
    """Products of numbers that lie otherwise are rounded otherwise by some processors, and a fit
    would not go on bit for bit.
    """
    checkpoint.save_tree(tmp_path / "x.safetensors", [torch.rand(n) for n in range(1, 20)])
    assert {x.data_ptr() % 64 for x in checkpoint.load_tree(tmp_path / "x.safetensors")} == {
        torch.empty(1).data_ptr() % 64
    }


def test_names_that_look_alike_do_not_collide(tmp_path: Path) -> None:
    tree = {
        "a": {"b": torch.tensor(1.0)},
        "a/b": torch.tensor(2.0),
        1: torch.tensor(3.0),
        "1": torch.tensor(4.0),
        "c": [torch.tensor(5.0)],
        "c/0": torch.tensor(6.0),
    }
    checkpoint.save_tree(tmp_path / "x.safetensors", tree)
    assert same(checkpoint.load_tree(tmp_path / "x.safetensors"), tree)


def test_optimizers_survive_with_their_history(tmp_path: Path, generator: torch.Generator) -> None:
    """One step after loading equals one step without."""
    for make in (
        lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.1),
        lambda p: torch.optim.LBFGS(p, lr=1.0, max_iter=3, line_search_fn="strong_wolfe"),
    ):
        ends = []
        for reload in (False, True):
            p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
            optimizer = make([p])

            def closure(p: Tensor = p, optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
                optimizer.zero_grad()
                loss = (p - torch.tensor([0.3, 0.1, 0.2])).pow(4).sum() + (p[0] * p[1]).square()
                loss.backward()
                return loss

            for step in range(6):
                optimizer.step(closure)
                if reload and step == 2:
                    checkpoint.save_tree(tmp_path / "o.safetensors", optimizer.state_dict())
                    optimizer.load_state_dict(checkpoint.load_tree(tmp_path / "o.safetensors"))
            ends.append(p.detach().clone())
        assert torch.isfinite(ends[0]).all()
        assert torch.equal(*ends)


class Chains(NamedTuple):
    x: Tensor
    extra: Any


def test_rebuild_gives_the_template_its_shape() -> None:
    template = {"state": Chains(torch.zeros(2), (torch.zeros(1), 3)), "none": None}
    saved = {"state": [torch.ones(2), [torch.full((1,), 2.0), 4]], "none": None}
    rebuilt = checkpoint.rebuild(template, saved)
    assert type(rebuilt["state"]) is Chains
    assert type(rebuilt["state"].extra) is tuple
    assert same(rebuilt, {"state": (torch.ones(2), (torch.full((1,), 2.0), 4)), "none": None})


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"f": print}, r"got builtin_function_or_method at /f"),
        ({(1, 2): 3}, r"keys are strings or whole numbers; got \(1, 2\)"),
    ],
)
def test_what_is_no_value_is_not_saved(tree: dict, words: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=words):
        checkpoint.save_tree(tmp_path / "x.safetensors", tree)
    assert list(tmp_path.iterdir()) == []


# files that are not what they should be


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_a_cut_file_is_called_damaged(share: float, tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    checkpoint.save_tree(path, {"x": torch.randn(100), "y": [torch.ones(3)]})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        RunError,
        match=r"load: .*last\.safetensors must be a whole partita checkpoint; got a damaged or "
        r"foreign file \(",
    ):
        checkpoint.load_tree(path)


class Malicious:
    """Unpickling this makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def foreign(kind: str, path: Path) -> None:
    """Write a file of another sort."""
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Malicious(path.parent / "executed")))
    elif kind == "torch":
        torch.save({"x": Malicious(path.parent / "executed")}, path)
    elif kind == "text":
        path.write_text("not a checkpoint")
    elif kind == "safetensors":
        save_file({"x": torch.zeros(2)}, path)
    elif kind == "directory":
        path.mkdir()
    else:
        save_file({"x": torch.zeros(2)}, path, metadata={"partita": kind})


KINDS = [
    "pickle",
    "torch",
    "text",
    "safetensors",
    "directory",
    "",
    "not json",
    "[]",
    "3",
    "{}",
    '{"tensor": "nowhere"}',
    '{"dict": 5}',
    '{"dict": [5]}',
    '{"list": [[]]}',
    '{"tensor": []}',
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_file_is_refused_and_nothing_of_it_is_run(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    foreign(kind, path)
    refused = (
        r"must be a file; got a folder"
        if kind == "directory"
        else r"must be a whole partita checkpoint; got a damaged or foreign"
    )
    with pytest.raises(RunError, match=refused):
        checkpoint.load_tree(path)
    assert not (tmp_path / "executed").exists()


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        RunError,
        match=r"load: last\.safetensors must exist in .*; found none\. The run was stopped before "
        r"its first save\.",
    ):
        checkpoint.load_tree(tmp_path / "last.safetensors")


def test_a_save_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.safetensors"
    checkpoint.save_tree(path, {"x": torch.ones(3)})

    def full(tensors: dict, name: Path, metadata: dict) -> None:
        Path(name).write_bytes(b"half a fi")
        raise OSError("no space left")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save_tree(path, {"x": torch.zeros(3)})
    assert same(checkpoint.load_tree(path), {"x": torch.ones(3)})


def test_the_old_file_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.safetensors"
    checkpoint.save_tree(path, 1)
    seen = []
    replace = os.replace

    def look(source: Path, target: Path) -> None:
        seen.append((checkpoint.load_tree(Path(source)), checkpoint.load_tree(Path(target))))
        replace(source, target)

    monkeypatch.setattr("partita.training.checkpoint.os.replace", look)
    checkpoint.save_tree(path, 2)
    assert seen == [(2, 1)]
    assert checkpoint.load_tree(path) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["last.safetensors"]


# whole runs

TEMPERED = PCD(Tempering(Gibbs(), betas=(0.5, 1.0)), chains=5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    g = torch.Generator().manual_seed(0)
    x = (torch.rand(40, 4, generator=g) < 0.4).float()
    partita.fit(
        RBM(4, 3, generator=g),
        x,
        TEMPERED,
        steps=25,
        average=0.5,
        out=tmp_path / "run",
        generator=g,
    )
    return tmp_path / "run"


@pytest.mark.parametrize("weights", ["use", "last", "average"])
def test_a_run_comes_back_with_the_chosen_weights(weights: str, folder: Path) -> None:
    saved = checkpoint.load_tree(folder / "checkpoints" / "model.safetensors")["weights"]
    loaded = partita.load(folder, weights=weights)
    assert same(dict(loaded.model.state_dict()), saved[weights])
    assert loaded.steps == 25
    assert loaded.stopped == "finished"
    assert not same(saved["last"], saved["average"])
    assert same(saved["use"], saved["average"])  # nothing was validated


def test_other_weights_are_refused(folder: Path) -> None:
    with pytest.raises(
        RunError, match=r"load: weights must be one of use, last, average; got 'best'\."
    ):
        partita.load(folder, weights="best")


@pytest.mark.parametrize("visible", [5, 4])
def test_the_weights_of_another_model_are_refused(
    visible: int, folder: Path, generator: torch.Generator
) -> None:
    other = RBM(visible, 3 if visible == 5 else 2, generator=generator)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    names = "W, anchors, b, reference_natural" if visible == 5 else "W, c"
    with pytest.raises(
        RunError,
        match=rf"load: the checkpoint must hold the weights of RBM\({visible}, \d\); got other "
        rf"names or shapes for {names}\. It belongs",
    ):
        partita.load(folder, model=other)
    assert same(dict(other.state_dict()), before)


def test_a_model_of_another_kind_is_refused_when_resumed(
    folder: Path, generator: torch.Generator
) -> None:
    x = torch.ones(40, 4)
    before = (folder / "checkpoints" / "last.safetensors").read_bytes()
    with pytest.raises(
        RunError,
        match=r"the checkpoint must hold the weights of MaxEnt\(pairwise, 4\); got other names or "
        r"shapes for W, b, c, .*theta\. It belongs",
    ):
        partita.fit(
            MaxEnt("pairwise", Binary(4), generator=generator),
            x,
            TEMPERED,
            steps=1,
            optimizer="sgd",
            out=folder,
            resume=True,
            generator=generator,
        )
    assert (folder / "checkpoints" / "last.safetensors").read_bytes() == before


def edited(folder: Path, **changes: Any) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            {"name": "os.system", "dtype": "float32"},
            r"load: model must be one of Autoregressive, .*RBM, .*; got 'os\.system'\.",
        ),
        (
            {"name": "__import__('os').mkdir('executed')", "dtype": "float32"},
            r"load: model must be one of Autoregressive, .*RBM, .*; got ",
        ),
        (
            {"name": "RBM", "dtype": "load", "visible": 4, "hidden": 3},
            r"load: the model's dtype must be one of float32, .*; got 'load'\.",
        ),
        (
            {"name": "RBM", "visible": 4, "hidden": 3},
            r"load: the model's dtype must be one of float32, .*; got None\.",
        ),
        (
            {"name": "RBM", "dtype": "float32", "visible": 4},
            r"load: config\.json must hold the settings of RBM; got others \(",
        ),
        (
            {"name": "RBM", "dtype": "float32", "visible": 4, "hidden": 0},
            r"settings of RBM; got others \(InputError: RBM: hidden",
        ),
        (
            {"name": "RBM", "dtype": "float32", "visible": 4, "hidden": 3, "code": "x"},
            r"must hold the settings of RBM; got others \(",
        ),
        (
            {"name": "MaxEnt", "dtype": "float32", "features": None},
            r"load: features must be named ones",
        ),
    ],
)
def test_a_config_that_asks_for_code_or_nonsense_is_refused(
    model: dict, words: str, folder: Path
) -> None:
    with pytest.raises(RunError, match=words):
        partita.load(edited(folder, model=model))
    assert not Path("executed").exists()


def test_a_pickle_in_place_of_the_weights_is_never_run(folder: Path) -> None:
    foreign("torch", folder / "checkpoints" / "model.safetensors")
    with pytest.raises(
        RunError, match=r"must be a whole partita checkpoint; got a damaged or foreign file"
    ):
        partita.load(folder)
    assert not (folder / "checkpoints" / "executed").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r"load: .*config\.json must be JSON; got a damaged file\."),
        ("\xff\xfe", r"load: .*config\.json must be JSON; got a damaged file\."),
        (
            "[1]",
            r"load: .*config\.json must have format 2; got no object\. It was made by another "
            r"version of partita\.",
        ),
        ('{"format": 99, "model": {"name": "RBM"}}', r"must have format 2; got 99\."),
        ('{"format": 2}', r"must name a model; got none"),
    ],
)
def test_a_damaged_config_is_refused(text: str, words: str, folder: Path) -> None:
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RunError, match=words):
        partita.load(folder)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl"])
def test_a_text_larger_than_any_run_writes_is_not_read(name: str, folder: Path) -> None:
    """Both files are mostly holes, which cost no disk but would fill the memory."""
    os.truncate(folder / name, 1 << 40)
    with pytest.raises(RunError, match=rf"load: .*{name} must have at most \d+ MiB; got more\."):
        partita.load(folder)


def test_a_structure_larger_than_any_run_writes_is_not_parsed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partita.runtime.files.MOST_JSON", 100)
    with pytest.raises(RunError, match="too long a text"):
        checkpoint.load_tree(folder / "checkpoints" / "model.safetensors")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RunError,
        match=r"load: RUN must be a folder with a config\.json, as `partita fit` makes; found none "
        r"in ",
    ):
        partita.load(tmp_path / "nothing")


def test_the_config_is_written_whole_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder / "config.json").read_text()

    def refuse(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no space left"):
        run.write_config(folder, {"format": 2})
    assert (folder / "config.json").read_text() == before


def test_functions_are_never_saved_and_the_model_can_be_handed_over(
    tmp_path: Path, generator: torch.Generator
) -> None:
    def make() -> MaxEnt:
        return MaxEnt(lambda x: x[..., :2], Binary(3), generator=torch.Generator())

    x = (torch.rand(30, 3, generator=generator) < 0.4).float()
    fitted = partita.fit(make(), x, steps=3, out=tmp_path / "run", generator=generator).model
    with pytest.raises(
        RunError, match=r"load: features must be named ones, .*load\(path, model=\.\.\.\)"
    ):
        partita.load(tmp_path / "run")
    assert same(
        dict(partita.load(tmp_path / "run", model=make()).model.state_dict()),
        dict(fitted.state_dict()),
    )
