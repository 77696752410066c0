"""Checkpoints: nested values as one safetensors file, with the structure as JSON in its header.
Never pickle.

A file is whole or absent, whenever a run is killed (``runtime/files.py``); by a checksum in
the header a later change is noticed. ``training/run.py`` has the contents of a run's files,
``training/run.py`` the times at which they are written.
"""

import contextlib
import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from partita.core.protocols import Model
from partita.errors import PartitaError, PartitaWarning, RunError, TooLarge
from partita.runtime.files import Json, inside, parse, replacing
from partita.runtime.memory_limit import check_room, ran_out
from partita.tables.arrays import aligned

Tree: TypeAlias = Any  # dicts, lists, tuples, tensors, numbers, strings, None

# errors by which a value that is not as it should be shows
MALFORMED = (TypeError, ValueError, AttributeError, RuntimeError)


def save_tree(path: Path, tree: Tree, *, keep_previous: bool = False) -> None:
    """Write a nested value; the file before it may stay, under the name that :func:`previous`
    gives.
    """
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(_pack(tree, "", tensors))
    metadata = {"partita": skeleton, "checksum": _checksum(skeleton, tensors)}
    with replacing(path, previous(path) if keep_previous else None) as beside:
        try:
            save_file(tensors, beside, metadata=metadata)
        except SafetensorError as error:
            raise _of_the_system(error) from None


def previous(path: Path) -> Path:
    """Where the checkpoint before the last one is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def load_or_previous(path: Path) -> tuple[Tree, str]:
    """The last checkpoint; where it is damaged or absent, the one before it, with a warning, which
    is returned too.
    """
    try:
        return load_tree(path), ""
    except (RunError, TooLarge) as error:
        if not previous(path).exists():
            raise
        tree, warning = load_tree(previous(path)), f"{error} The save before it is used."
        warnings.warn(warning, PartitaWarning, stacklevel=3)
        return tree, warning


def load_tree(path: Path) -> Tree:
    """Read a nested value; tuples come back as lists. Nothing outside the run's folder, which is
    one up, is read.
    """
    inside(path.parent.parent, path.parent.name, path.name)
    try:
        check_room("load", str(path), path.stat().st_size, "Restore the file as partita wrote it.")
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: aligned(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        # files of earlier versions have none
        if header.get("checksum", whole := _checksum(header["partita"], tensors)) != whole:
            raise ValueError("its checksum differs")
        return _unpack(parse(header["partita"]), tensors)
    except FileNotFoundError:
        raise RunError(
            f"load: {path.name} must exist in {path.parent}; found none. The run was stopped "
            "before its first save."
        ) from None
    # RuntimeError is also endless nesting
    except (SafetensorError, OSError, LookupError, *MALFORMED) as error:
        raise RunError(
            f"load: {path} must be a whole partita checkpoint; got a damaged or foreign file "
            f"({reason(error)})."
        ) from None


def count_numbers(path: Path) -> int:
    """How many numbers a checkpoint holds by its header, for which the file must have room; 0 where
    it is damaged or absent.
    """
    inside(path.parent.parent, path.parent.name, path.name)
    try:
        with safe_open(path, framework="pt") as file:
            slices = (file.get_slice(name) for name in file.keys())  # noqa: SIM118
            return sum(prod(part.get_shape()) for part in slices)
    except (SafetensorError, OSError):
        return 0


def reason(error: Exception) -> str:
    """The type and the first line of an error, to be quoted in a sentence."""
    return f"{type(error).__name__}: {error}".split("\n")[0]


def _checksum(skeleton: str, tensors: dict[str, Tensor]) -> str:
    """Of the structure and of every tensor's bytes, in the order of their names."""
    total = hashlib.blake2b(skeleton.encode(), digest_size=16)
    for name in sorted(tensors):
        flat = tensors[name].cpu().reshape(-1)
        if not flat.is_contiguous() or flat.stride() != (1,):
            flat = flat.clone(memory_format=torch.contiguous_format)
        if len(flat):
            total.update(flat.view(torch.uint8).numpy().data)
    return total.hexdigest()


def _of_the_system(error: SafetensorError) -> Exception:
    """The error of the system, such as a full disk, that the library reports as text; another one
    as it is.
    """
    found = re.search(r"os error (\d+)", str(error))
    return error if found is None else OSError(int(found[1]), os.strerror(int(found[1])))


def expect(tree: Tree, path: Path, *names: str) -> None:
    """Refuse a whole file that holds something else."""
    if not isinstance(tree, dict) or any(name not in tree for name in names):
        raise RunError(
            f"load: {path} must hold {', '.join(names)}; got a file of another sort. Restore the "
            "one that `partita fit` made."
        )


@contextlib.contextmanager
def refusing(expected: str) -> Iterator[None]:
    """Refuse, in one sentence, a file whose parts do not go together inside the block."""
    try:
        yield
    except (LookupError, ArithmeticError, *MALFORMED) as error:
        if isinstance(error, PartitaError) or ran_out(error):
            raise
        raise RunError(f"load: {expected}; got another ({reason(error)}).") from error


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy saved weights into a model; another model's are refused in one sentence."""
    wrong = [
        str(name)
        for name, value in weights.items()
        if not isinstance(name, str) or not isinstance(value, Tensor)
    ]
    if isinstance(model, Model) and not wrong:
        model.resize_buffers(weights)
    found = {name: value.shape for name, value in weights.items() if isinstance(value, Tensor)}
    own = model.state_dict()
    wrong += [name for name, value in own.items() if found.get(name) != value.shape]
    wrong += [str(name) for name in weights if name not in own]
    if wrong:
        title = model.title() if isinstance(model, Model) else type(model).__name__
        raise RunError(
            f"load: the checkpoint must hold the weights of {title}; got other names or shapes for "
            f"{', '.join(sorted(set(wrong)))}. It belongs to another model."
        )
    model.load_state_dict(weights)


def plain(tree: Tree) -> Tree:
    """A nested value with every module in it as the dict of its weights."""
    if isinstance(tree, nn.Module):
        return dict(tree.state_dict())
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(value) for value in tree] if isinstance(tree, list | tuple) else tree


def rebuild(template: Tree, saved: Tree, *, sizes: bool = False) -> Tree:
    """``saved`` in the shape of ``template``: lists become the template's tuples and named tuples,
    tensors move to its device.

    Modules stay the objects that an optimizer knows, and take the saved weights. Tensors have as
    many dimensions as the template's, and the same ``sizes`` if those cannot differ.
    """
    if isinstance(template, Tensor):
        if (
            not isinstance(saved, Tensor)
            or saved.dtype != template.dtype
            or saved.dim() != template.dim()
            or (sizes and saved.shape != template.shape)
        ):
            raise ValueError("a tensor of another sort")
        return saved.to(template.device)
    if isinstance(template, nn.Module):
        template.load_state_dict(saved)
        return template
    if isinstance(template, dict):
        return {key: rebuild(value, saved[key], sizes=sizes) for key, value in template.items()}
    if isinstance(template, tuple):
        parts = [rebuild(t, s, sizes=sizes) for t, s in zip(template, saved, strict=True)]
        return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)
    return saved


def _pack(tree: Tree, name: str, tensors: dict[str, Tensor]) -> Json:
    if isinstance(tree, Tensor):
        label = f"{len(tensors)}{name}"  # numbered, so that no two can share a name
        tensors[label] = tree.detach().contiguous().clone()
        return {"tensor": label}
    if isinstance(tree, dict):
        parts = ((_key(key), value) for key, value in tree.items())
        return {"dict": [[key, _pack(value, f"{name}/{key}", tensors)] for key, value in parts]}
    if isinstance(tree, list | tuple):
        return {"list": [_pack(value, f"{name}/{i}", tensors) for i, value in enumerate(tree)]}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    raise TypeError(
        "a checkpoint holds tensors, numbers, strings and their lists and dicts; got "
        f"{type(tree).__name__} at {name}"
    )


def _key(key: object) -> str | int:
    if not isinstance(key, str | int):
        raise TypeError(f"a checkpoint's keys are strings or whole numbers; got {key!r}")
    return key


def _unpack(skeleton: Json, tensors: dict[str, Tensor]) -> Tree:
    (kind, content), *_ = skeleton.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {_key(key): _unpack(value, tensors) for key, value in content}
    if kind == "list":
        return [_unpack(value, tensors) for value in content]
    return content
