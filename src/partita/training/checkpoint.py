"""Checkpoints: nested values as one safetensors file, with the structure as JSON in its header. Never pickle.

A file is written beside its name, forced to the disk and then moved over it, so a run killed at any moment leaves a whole one; a
checksum in the header tells a file that changed since.
"""

import contextlib
import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from partita.core.errors import PartitaWarning, RunError

Tree = Any  # dicts, lists, tuples, tensors, numbers, strings, None


def save(path: Path, tree: Tree, *, keep_previous: bool = False) -> None:
    """Write a nested value; the file before it may stay, under the name that :func:`previous` gives."""
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(_pack(tree, "", tensors))
    beside = path.with_suffix(".part")
    try:
        save_file(tensors, beside, metadata={"partita": skeleton, "checksum": _checksum(skeleton, tensors)})
        _to_disk(beside)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if keep_previous and path.exists():
        os.replace(path, previous(path))
    os.replace(beside, path)
    _to_disk(path.parent)


def previous(path: Path) -> Path:
    """Where the save before the last one is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def load_or_previous(path: Path) -> Tree:
    """The last save; where it is damaged or gone, the one before it, with a warning."""
    try:
        return load(path)
    except RunError as error:
        if not previous(path).exists():
            raise
        tree = load(previous(path))
        warnings.warn(f"{error} The save before it is used.", PartitaWarning, stacklevel=3)
        return tree


def load(path: Path) -> Tree:
    """Read a nested value; tuples come back as lists."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tree = _unpack(json.loads(header["partita"]), file)
            whole = _checksum(header["partita"], {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        if header.get("checksum", whole) != whole:  # files of earlier versions have none
            raise ValueError("its checksum differs")
        return tree
    except FileNotFoundError:
        raise RunError(f"load: {path.name} must exist in {path.parent}; found none. The run was stopped before its first save.") from None
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        raise RunError(f"load: {path} must be a whole partita checkpoint; got a damaged or foreign file ({reason}).") from None


def _checksum(skeleton: str, tensors: dict[str, Tensor]) -> str:
    """Of the structure and of every tensor's bytes, in the order of their names."""
    total = hashlib.blake2b(skeleton.encode(), digest_size=16)
    for name in sorted(tensors):
        flat = tensors[name].cpu().reshape(-1).clone(memory_format=torch.contiguous_format)  # whatever its strides were
        content: Any = flat.view(torch.uint8).numpy() if len(flat) else b""
        total.update(content)
    return total.hexdigest()


def _to_disk(path: Path) -> None:
    """Force a file, or the names in a folder, out of the system's memory; folders cannot be everywhere."""
    with contextlib.suppress(PermissionError, IsADirectoryError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def expect(tree: Tree, path: Path, *names: str) -> None:
    """Refuse a whole file that holds something else."""
    if not isinstance(tree, dict) or any(name not in tree for name in names):
        raise RunError(f"load: {path} must hold {', '.join(names)}; got a file of another sort. Restore the one that `partita fit` made.")


def plain(tree: Tree) -> Tree:
    """A nested value with every module in it as the dict of its weights."""
    if isinstance(tree, nn.Module):
        return dict(tree.state_dict())
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(value) for value in tree] if isinstance(tree, list | tuple) else tree


def rebuild(template: Tree, saved: Tree) -> Tree:
    """``saved`` in the shape of ``template``: lists become the template's tuples and named tuples, tensors move to its device.

    Modules stay the objects that an optimiser knows, and take the saved weights.
    """
    if isinstance(template, Tensor):
        return saved.to(template.device)
    if isinstance(template, nn.Module):
        template.load_state_dict(saved)
        return template
    if isinstance(template, dict):
        return {key: rebuild(value, saved[key]) for key, value in template.items()}
    if isinstance(template, tuple):
        parts = [rebuild(t, s) for t, s in zip(template, saved, strict=True)]
        return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)
    return saved


def _pack(tree: Tree, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        label = f"{len(tensors)}{name}"  # numbered, so that no two can share a name
        tensors[label] = tree.detach().contiguous().clone()
        return {"tensor": label}
    if isinstance(tree, dict):
        return {"dict": [[_key(key), _pack(value, f"{name}/{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        return {"list": [_pack(value, f"{name}/{i}", tensors) for i, value in enumerate(tree)]}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    raise TypeError(f"a checkpoint holds tensors, numbers, strings and their lists and dicts; got {type(tree).__name__} at {name}")


def _key(key: Any) -> str | int:
    if not isinstance(key, str | int):
        raise TypeError(f"a checkpoint's keys are strings or whole numbers; got {key!r}")
    return key


def _unpack(skeleton: Any, file: Any) -> Tree:
    (kind, content), *_ = skeleton.items()
    if kind == "tensor":
        return file.get_tensor(content)
    if kind == "dict":
        return {key: _unpack(value, file) for key, value in content}
    if kind == "list":
        return [_unpack(value, file) for value in content]
    return content


def generator_state(generator: torch.Generator) -> Tensor:
    """The state of a generator as a tensor."""
    return generator.get_state().clone()
