"""One fit, from data to a scored run.

``partita fit``, every candidate of ``partita compare`` and every estimator are thin callers: the
same rule holds out a validation set, the same encoding is fitted, the same checkpoint is resumed.
"""

import hashlib
import math
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from partita.core import registry, rng
from partita.core.arguments import check_count
from partita.core.protocols import LikelihoodEvaluator, Model, Objective, PartitionEvaluator, Update
from partita.core.quantity import Quantity
from partita.datasets import Dataset
from partita.errors import PartitaWarning, RunError
from partita.experiment.saved import SCORING, SavedRun
from partita.families import Family
from partita.families.base import check_held_out, cut_warnings
from partita.runtime import deadline
from partita.runtime.files import JsonObject, check_like
from partita.tables import Encoding, Rows
from partita.training import Run, fit, load
from partita.training.budget import FitPlan, affordable
from partita.training.run import build_model, is_begun, read_config, saved_numbers

if TYPE_CHECKING:
    from lightning_fabric import Fabric


VALIDATION_FRACTION = 0.1
MOST_TO_VALIDATE = 20_000  # rows; more tell weights apart no better, and are held in memory
LEAST_TO_VALIDATE = 10  # rows; fewer do not tell which weights are better
ROWS_TO_KNOW = 4096  # of each part, by which data are known again

Split = Literal["train", "valid", "test"]
LEAST_MINUTES = 0.01  # of a fit after a search that took all the time
# the part of a config that a resumed fit needs
RESUMED = {"fit": dict, "steps": int, "objective": dict}


def fingerprint(dataset: Dataset) -> str:
    """A word that other rows would hardly have: of some thousand rows of each part, spread over it.

    >>> fingerprint(Dataset("a", Rows([[1.0, 2.0]]))) == fingerprint(
    ...     Dataset("b", Rows([[1.0, 2.5]]))
    ... )
    False
    """
    digest = hashlib.blake2b(digest_size=8)
    for rows in (dataset.train, dataset.valid, dataset.test):
        if rows is not None:
            some = evenly_spaced(rows, ROWS_TO_KNOW).tensor(rng.keyed(0))
            digest.update(f"{len(rows)} x {rows.width}".encode())
            digest.update(some.contiguous().numpy().tobytes())
    return digest.hexdigest()


def evenly_spaced(rows: Rows, most: int) -> Rows:
    """At most so many rows, spread over all of them."""
    return rows.take(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))


def encoded_parts(
    dataset: Dataset, encoding: Encoding, seed: int, fraction: float = VALIDATION_FRACTION
) -> tuple[Rows, Rows | None]:
    """The encoded training set and validation set.

    The data's own validation set is used where there is one. Else a fraction of the training set is
    held out, at most ``MOST_TO_VALIDATE`` rows, where that makes at least ``LEAST_TO_VALIDATE``.
    """
    check_count("fit", "seed", seed, 0)
    train = encoding.rows(dataset.train)
    if dataset.valid is not None:
        return train, encoding.rows(dataset.valid)
    count = min(MOST_TO_VALIDATE, int(fraction * len(train)))
    if count < LEAST_TO_VALIDATE:
        return train, None
    if len(train) > rng.MOST_LISTED:
        every = len(train) // count
        validation, others = train.one_in(every, rng.keyed(seed, len(train)).initial_seed())
        return others, validation
    order = rng.permutation(len(train), rng.keyed(seed, len(train)))
    return train.take(order[count:].sort().values), train.take(order[:count].sort().values)


@dataclass(frozen=True)
class Experiment:
    """A family, its settings, and the data it is fitted to.

    Arguments:
        dataset: Training set, and a validation set and test set where there are such.
        family: What is fitted.
        settings: Of the family, over its defaults.
        options: Of the fit, as in :class:`partita.training.Settings`.
        generator: Of all randomness; its seed also decides which rows are held out.
        folder: Where the run is written; None writes nothing.
        about: More to record in the run's config.
        fitted_encoding: How columns are encoded, where that is known; None leaves it to the family.
        validation_fraction: Of the training set, held out where the data have no validation set.
        owner: The name that errors speak of.

    >>> from partita.families import FAMILIES
    >>> data = Dataset("coins", Rows(torch.eye(6)))
    >>> g = torch.Generator().manual_seed(0)
    >>> experiment = Experiment(data, FAMILIES["rbm"], {"n_hidden": 2}, {"steps": 3}, g)
    >>> run = experiment.run(experiment.plan())
    >>> run.model.title(), run.steps, experiment.score(run).kind
    ('RBM(6, 2)', 3, 'exact')
    """

    dataset: Dataset
    family: Family
    settings: JsonObject
    options: JsonObject
    generator: torch.Generator
    folder: Path | None = None
    about: JsonObject = field(default_factory=dict)
    fitted_encoding: Encoding | None = None
    validation_fraction: float = VALIDATION_FRACTION
    owner: str = "fit"

    @property
    def seed(self) -> int:
        """Of the generator, as it was made."""
        return self.generator.initial_seed()

    @cached_property
    def encoding(self) -> Encoding:
        """From the columns of the data to those of the model, fitted to the training set."""
        if self.fitted_encoding is not None:
            return self.fitted_encoding
        kind = self.family.encoding_kind(self.dataset.train, self.settings)
        encoding = Encoding.fit(self.dataset.train, kind, self.owner)
        check_held_out(self.dataset, encoding, self.owner)
        return encoding

    @cached_property
    def _parts(self) -> tuple[Rows, Rows | None]:
        return encoded_parts(self.dataset, self.encoding, self.seed, self.validation_fraction)

    @property
    def train(self) -> Rows:
        """Encoded rows that the model is fitted to."""
        return self._parts[0]

    @property
    def validation(self) -> Rows | None:
        """Encoded rows that the best weights are chosen by."""
        return self._parts[1]

    def plan(self) -> FitPlan:
        """A new fit: the model that the family builds, and what the search for it left of the
        minutes.
        """
        minutes, seconds = self.options.get("minutes"), math.inf
        if isinstance(minutes, int | float) and minutes > 0:  # others are refused with the options
            seconds = 60 * minutes
        options = self.options
        with deadline.ending_within(seconds) as limit:
            model, objective = self._build()
            if seconds < math.inf and isinstance(objective, Update):
                left = max(LEAST_MINUTES, round(deadline.left() / 60, 2))
                options = {**options, "minutes": left}
        return FitPlan(model, objective, options, cut_warnings(self.encoding.kind), limit.cuts)

    def plan_within(self, seconds: float) -> FitPlan:
        """A new fit of as many steps as there is time for, the search for a model included."""
        with deadline.ending_within(seconds) as limit:
            model, objective = self._build()
            plan = affordable(
                model, objective, self.train, self.validation, self.options, self.seed
            )
        remarks = [*cut_warnings(self.encoding.kind), *plan.remarks]
        return plan._replace(remarks=remarks, cuts=limit.cuts)

    def plan_to_resume(self) -> FitPlan:
        """The fit that was begun in the folder, with all that was found and fixed then."""
        assert self.folder is not None
        config = read_config(self.folder)
        check_like(config, RESUMED, f"{self.folder / 'config.json'}", whole=True)
        length = {"epochs": None, "minutes": None, "steps": config["steps"]}
        return FitPlan(
            build_model(config, saved_numbers(self.folder)),
            registry.build_part(config["objective"]),
            {**config["fit"], **length, "resume": True},
            config.get("remarks") or [],
            config.get("cuts") or [],
            validated=config.get("validated", True) is True,
        )

    def run(
        self,
        plan: FitPlan,
        *,
        progress: bool = False,
        fabric: "Fabric | None" = None,
        since: float | None = None,
    ) -> Run:
        """Carry out a plan; warnings of the fit are kept in the run."""
        validation = self.validation if plan.validated else None
        about = {**self.about, **self._record(plan)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartitaWarning)
            run = fit(
                plan.model,
                self.train,
                plan.objective,
                validation=validation,
                generator=self.generator,
                out=self.folder,
                about=about,
                log_jacobian=self.encoding.mean_log_jacobian(validation),
                progress=progress,
                fabric=fabric,
                since=since,
                **{"guard": "rollback", **plan.options},
            )
        return replace(run, warnings=[*plan.remarks, *plan.cuts, *run.warnings])

    def finished(self) -> Run | None:
        """The run in the folder, if nothing of it is left to do.

        A damaged one is made again from its last checkpoint, and one that diverged does so again.
        """
        if self.folder is None or not (self.folder / "checkpoints" / "model.safetensors").exists():
            return None
        try:
            run = load(self.folder, allow_diverged=True)
        except RunError as error:
            text = f"{error} It is made again from the last checkpoint."
            warnings.warn(text, PartitaWarning, stacklevel=2)
            return None
        return None if run.stopped in ("interrupted", "diverged") else run

    def begun(self) -> bool:
        """Whether the folder holds a fit that can be resumed."""
        return self.folder is not None and is_begun(self.folder)

    @property
    def scored(self) -> Split:
        """The split that is scored: the test set where there is one."""
        return "train" if self.dataset.test is None else "test"

    def score(
        self, run: Run, evaluator: PartitionEvaluator | LikelihoodEvaluator | None = None
    ) -> Quantity:
        """Mean log-likelihood per row of the scored split, in the units of the data."""
        rows = getattr(self.dataset, self.scored)
        saved = SavedRun(run, self.encoding)
        return saved.score(rows, evaluator, rng.keyed(self.seed, SCORING))

    def _record(self, plan: FitPlan) -> JsonObject:
        """What a run's config says of the experiment, and of a run on disk all that resumes it."""
        record = {
            "seed": self.seed,
            "remarks": [*plan.remarks],
            "cuts": [*plan.cuts],
            "validated": plan.validated,
        }
        if self.folder is not None:
            settings = self.family.resolve(self.settings)
            record["family"] = {"name": self.family.name, "settings": settings}
            record["encoding"] = self.encoding.as_json()
        return record

    def _build(self) -> tuple[Model, Objective | Update]:
        return self.family.build(
            self.train, self.settings, owner=self.owner, generator=self.generator
        )
