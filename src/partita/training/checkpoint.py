"""Checkpoints: nested values as one safetensors file, with the structure as JSON in its header. Never pickle.

A file is written beside its name and then moved over it, so a run killed at any moment leaves a whole one.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from partita.core.errors import RunError

Tree = Any  # dicts, lists, tuples, tensors, numbers, strings, None


def save(path: Path, tree: Tree) -> None:
    """Write a nested value."""
    tensors: dict[str, Tensor] = {}
    skeleton = _pack(tree, "", tensors)
    beside = path.with_suffix(".part")
    save_file(tensors, beside, metadata={"partita": json.dumps(skeleton)})
    os.replace(beside, path)


def load(path: Path) -> Tree:
    """Read a nested value; tuples come back as lists."""
    try:
        with safe_open(path, framework="pt") as file:
            skeleton = json.loads((file.metadata() or {})["partita"])
            return _unpack(skeleton, file)
    except FileNotFoundError:
        raise RunError(f"load: {path.name} must exist in {path.parent}; found none. The run was stopped before its first save.") from None
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        raise RunError(f"load: {path} must be a whole partita checkpoint; got a damaged or foreign file ({reason}).") from None


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
