"""New rows from a saved run, with a diagnosis of the chains they come from, and continuations of
sequences.
"""

from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.arguments import check_count
from partita.core.protocols import DirectedModel, EnergyModel
from partita.datasets.text import Alphabet
from partita.diagnostics import ChainReport
from partita.errors import invalid
from partita.experiment.saved import SavedRun, draw_rows, free_path, text_alphabet
from partita.models import VRNN, Autoregressive
from partita.runtime.files import replacing, write_whole
from partita.samplers.run import run as run_chains
from partita.tables.encoding import CUT
from partita.tables.write import check_ending, plain_columns, write_columns

DIAGNOSED = 64  # chains that are followed further to see whether they mixed
FOLLOWED = 100  # steps


class Synthesis(NamedTuple):
    """Drawn rows in the units of the table, and the diagnosis of their chains; none where draws are
    exact.
    """

    x: np.ndarray  # (n, D)
    chains: ChainReport | None


class Request(NamedTuple):
    """How a sequence is continued.

    Arguments:
        prompt: Text that comes first.
        length: Steps to draw; up to the model's length where None.
        temperature: Of each step; 1 draws from the model.
        top_p: Share of the mass that each step keeps.
    """

    prompt: str | None = None
    length: int | None = None
    temperature: float | None = None
    top_p: float | None = None


class Continuation(NamedTuple):
    """Drawn sequences.

    Arguments:
        x: (n, steps, numbers in a step), the prompt included.
        texts: The same as text, where steps are tokens of text.
        temperature, top_p: Of each step.
        window: Steps that the model was fitted to.
    """

    x: np.ndarray
    texts: list[str] | None
    temperature: float
    top_p: float
    window: int

    @property
    def exact(self) -> bool:
        """Whether these are draws from the model itself."""
        return self.temperature == self.top_p == 1.0

    @property
    def steps(self) -> int:
        return self.x.shape[1]


def synthesize(saved: SavedRun, n: int, burn_in: int | None = None, *, seed: int = 0) -> Synthesis:
    """``n`` new rows: exact where the model can, else the ends of chains of ``burn_in`` steps."""
    check_count("sample", "-n", n)
    model = cast("EnergyModel | DirectedModel", saved.run.model)
    generator = rng.keyed(seed, 3)
    if burn_in is not None and isinstance(model, DirectedModel):
        allowed = "go with a model that chains draw from"
        remedy = "Leave it out: its draws are exact."
        raise invalid("sample", "--burn-in", allowed, model.title(), remedy)
    z = draw_rows(model, n, burn_in, generator)
    x = saved.encoding.decode(z.double().numpy())
    few_states = burn_in is None and capability.smallest_bits(model) <= capability.CHEAP_BITS
    if few_states or not isinstance(model, EnergyModel):
        return Synthesis(x, None)
    sampler = capability.default("sampler", model)
    followed = run_chains(model, sampler, z[:DIAGNOSED], draws=FOLLOWED, generator=generator)
    return Synthesis(x, followed.report)


def sample_path(saved: SavedRun, out: Path | None) -> Path:
    """Where drawn rows are written: to ``out``, else to the first free ``samples-N`` of the run."""
    if out is not None:
        return check_ending(out, "sample")
    named = saved.encoding.labels or saved.data.columns or saved.encoding.kind == "mixed"
    return _free_sample(saved, ".csv" if named else ".npz")


def write_rows(saved: SavedRun, x: np.ndarray, path: Path) -> int:
    """Write drawn rows with the columns of the run's own table, where those are known; real values
    are clipped to its limits. Returns how many were.
    """
    schema, names = saved.data.table_schema, saved.data.columns
    clipped = 0
    if schema is not None and saved.encoding.kind not in CUT:
        clipped = sum(int(one.beyond(x[:, i]).sum()) for i, one in enumerate(schema.used))
        columns, x = schema.carried(x)
    else:
        columns = plain_columns(names, x, saved.encoding.labels)
    check_ending(path, "sample", columns)
    small = x.astype(np.int8) if np.isin(x, (-1, 0, 1)).all() else x
    write_columns(path, columns, small, header=bool(names))
    return clipped


def sequence_model(saved: SavedRun) -> Autoregressive | VRNN:
    """The model of a run, refused where it is not one of sequences."""
    model = saved.run.model
    if not isinstance(model, Autoregressive | VRNN):
        options = "--prompt, --length, --temperature and --top-p"
        raise invalid("sample", options, "go with a model of sequences", model.title())
    return model


def continue_sequences(saved: SavedRun, n: int, request: Request, *, seed: int = 0) -> Continuation:
    """``n`` sequences that begin with the prompt of a request."""
    check_count("sample", "-n", n)
    model, alphabet = sequence_model(saved), text_alphabet(saved.run.config)
    prefix = _prefix(model, alphabet, request.prompt, n)
    size, window = model.support.width // model.length, model.length
    known = prefix.shape[1] // size
    if request.length is None:
        length = max(1, window - known)
    else:
        length = check_count("sample", "--length", request.length)
    temperature = 1.0 if request.temperature is None else request.temperature
    top_p = 1.0 if request.top_p is None else request.top_p
    generator = rng.keyed(seed, 3)
    if isinstance(model, Autoregressive):
        x = model.extend(prefix, length, temperature=temperature, top_p=top_p, generator=generator)
    elif temperature == top_p == 1.0:
        x = model.extend(prefix, length, generator=generator)
    else:
        allowed = "be left out with latent variables"
        raise invalid("sample", "--temperature and --top-p", allowed, model.title())
    rows = x.numpy()
    texts = None if alphabet is None else [alphabet.decode(row) for row in rows]
    return Continuation(rows.reshape(n, known + length, -1), texts, temperature, top_p, window)


def _prefix(
    model: Autoregressive | VRNN, alphabet: Alphabet | None, prompt: str | None, n: int
) -> Tensor:
    """The prompt as ``n`` equal rows of steps."""
    if not prompt:
        return model.like.new_zeros(n, 0)
    if alphabet is None:
        remedy = "Call model.extend in Python with a prefix of numbers."
        raise invalid("sample", "--prompt", "go with a model of text", model.title(), remedy)
    tokens = alphabet.encode(prompt, "sample --prompt").astype(np.float32)
    return torch.from_numpy(tokens).expand(n, -1)


def write_sequences(saved: SavedRun, drawn: Continuation, out: Path | None) -> Path:
    """Write text as text, numbers as an archive of one array x."""
    ending = ".npz" if drawn.texts is None else ".txt"
    path = _free_sample(saved, ending) if out is None else out
    if path.suffix.lower() not in (".npz", ending):
        endings = " or ".join(dict.fromkeys((ending, ".npz")))
        raise invalid("sample", "--out", f"end in {endings}", str(path))
    if path.suffix.lower() == ".txt":
        write_whole(path, "\n\n".join(drawn.texts or []) + "\n")
    else:
        with replacing(path) as beside, beside.open("wb") as stream:
            np.savez_compressed(stream, x=drawn.x)
    return path


def _free_sample(saved: SavedRun, ending: str) -> Path:
    assert saved.run.folder is not None
    return free_path(saved.run.folder / "samples", ending)
