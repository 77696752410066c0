"""Data sets by name in the folder that ``$PARTITA_DATA`` names, and MNIST from OpenML where that
lacks it.
"""

import os
import zipfile
from pathlib import Path

import numpy as np

from partita.errors import DataError
from partita.tables.arrays import NUMERIC, Splits
from partita.tables.npy import headers, name_splits

NOTES = {
    "mnist": "28 x 28 handwritten digits, gray levels 0 to 255 (CC BY-SA 3.0)",
    "binarized_mnist": "28 x 28 handwritten digits, one fixed binary sample (CC BY-SA 3.0)",
}
SHAPES = {"binarized_mnist": (28, 28), "debd/ocr_letters": (16, 8)}  # images that are stored flat
MNIST_TRAIN = 60_000


def root() -> Path | None:
    """The folder, if the variable is set and the folder is there."""
    value = os.environ.get("PARTITA_DATA", "")
    return Path(value) if value and Path(value).is_dir() else None


def path_of(name: str) -> Path | None:
    """The .npz of a name: ``FOLDER/FILE``, or ``FOLDER`` when the file has the folder's name."""
    base = root()
    if base is None or not name:
        return None
    paths = (base / f"{name}.npz", base / name / f"{Path(name).name}.npz")
    return next((path for path in paths if path.is_file()), None)


def entries() -> list[tuple[str, str]]:
    """(name, rows x columns) of every array set in the folder, from headers alone."""
    base = root()
    paths = [] if base is None else sorted(base.rglob("*.npz"))
    return [entry for path in paths for entry in _entries(path, _name(path, base))]


def mnist_from_openml() -> Splits:
    """MNIST through scikit-learn, which keeps a copy in its cache."""
    from sklearn.datasets import fetch_openml

    remedy = (
        "Connect to the network, or set PARTITA_DATA to a folder that holds mnist/mnist.npz with "
        "x_train and x_test."
    )
    try:
        found = fetch_openml("mnist_784", version=1, as_frame=False, return_X_y=True, n_retries=0)
    except OSError as error:
        raise DataError(
            f"load: 'mnist' must come from $PARTITA_DATA or OpenML; got neither ({error}). {remedy}"
        ) from error
    except ImportError as error:
        raise DataError(
            "load: 'mnist' from OpenML needs pandas to be read. Install it with: pip install "
            "'partita[frames]'"
        ) from error
    pixels = np.asarray(found[0]).astype(np.uint8).reshape(-1, 28, 28)
    return Splits(pixels[:MNIST_TRAIN], test=pixels[MNIST_TRAIN:])


def _name(path: Path, base: Path | None) -> str:
    name = path.relative_to(base or path.parent).with_suffix("").as_posix()
    folder, _, file = name.rpartition("/")
    return folder if file == folder.rpartition("/")[2] and folder else name


def _entries(path: Path, name: str) -> list[tuple[str, str]]:
    try:
        found = headers(path)
    except (OSError, ValueError, zipfile.BadZipFile):
        return [(name, "cannot be read")]
    chosen = name_splits(found)
    if chosen:
        return [(name, _size([found[array][0] for array in chosen.values()]))]
    return [
        (f"{name}:{array}", _size([shape]))
        for array, (shape, dtype) in found.items()
        if _is_table(shape, dtype)
    ]


def _is_table(shape: tuple[int, ...], dtype: np.dtype) -> bool:
    return dtype.kind in NUMERIC and (len(shape) > 1 or (len(shape) == 1 and dtype.kind == "f"))


def _size(shapes: list[tuple[int, ...]]) -> str:
    return f"{'/'.join(str(shape[0]) for shape in shapes)} x {np.prod(shapes[0][1:], dtype=int)}"
