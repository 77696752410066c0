"""Prototypical contrastive learning as a scikit-learn transformer that also clusters."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from partita.core import rng
from partita.core.arguments import PositiveInt, at_least, check_choice, check_counts, check_path
from partita.errors import Diverged, PartitaWarning, invalid
from partita.estimators._density import Features, as_generator
from partita.estimators._parameters import FitParameters, check_types, parameters
from partita.estimators._saved import SavedEstimator, start_over
from partita.estimators._validation import by_scikit_learn, checked, values_of
from partita.models import Encoder
from partita.objectives.augmentations import ImageMoves, SequenceMoves, VectorMoves
from partita.objectives.contrastive import PCL, embed, uniformity
from partita.objectives.prototypes import find_prototypes
from partita.runtime.files import JsonObject
from partita.tables import Rows
from partita.training import fit


@parameters
class PrototypeEncoder(Features, FitParameters, SavedEstimator):
    """Embeddings on the unit sphere in which views of a row, and rows of a cluster, lie together;
    no labels are needed.

    Arguments:
        n_components: Dimensions of the embedding.
        n_prototypes: Numbers of clusters, one for each granularity; ``predict`` uses the first.
            None learns by InfoNCE alone, and clusters into 10 at the end.
        shape: (height, width) of images, (length,) of sequences, channel after channel in a row:
            convolutions; None for vectors.
        augmentation: A function ``(x, generator) -> x`` on float tensors (rows, columns);
            ``"auto"`` goes by ``shape``.
        hidden: Units of the perceptron's layers, or channels of the convolutions; None leaves the
            choice.
        queue, momentum, temperature, warm_up, e_step_every: As in :class:`partita.objectives.PCL`;
            ``warm_up`` None is a quarter of all epochs, and one epoch where ``max_minutes`` decides
            how many there are.
        learning_rate, epochs, batch_size: Of Adam; None leaves the rate to the recipe.
        max_minutes: Time to spend, in place of epochs.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.Encoder`.
        run_: What the fit recorded: both terms of the loss over M-steps, alignment and uniformity.
        prototypes_: By granularity, the prototypes (k, E), empty clusters left out.
        concentration_: By granularity, phi of every prototype.
        labels_: Cluster of every training row, at the first granularity.
        ami_: By granularity, adjusted mutual information with ``y``, where labels were given to
            ``fit``; they are used for nothing else.
        uniformity_: Of the training rows' embeddings.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> model = PrototypeEncoder(n_components=3, n_prototypes=(4,), epochs=2, random_state=0).fit(X)
    >>> model.transform(X).shape, model.predict(X).shape
    ((60, 3), (60,))
    """

    encodes = False

    n_components: int = 32
    n_prototypes: int | Sequence[int] | None = (10, 20, 40)
    _: KW_ONLY
    shape: Annotated[Sequence[int], check_counts] | None = None
    augmentation: str | Callable[[Tensor, torch.Generator], Tensor] = "auto"
    hidden: Annotated[Sequence[int], check_counts] | None = None
    queue: int = 1024
    momentum: float = 0.99
    temperature: float = 0.2
    warm_up: int | None = None
    e_step_every: int = 1
    learning_rate: float | None = None
    epochs: PositiveInt = 40
    batch_size: Annotated[int, at_least(2)] = 128

    def fit(self, X: object, y: object = None) -> Self:
        """Learn from the rows of X; ``y`` (labels), if it is given, only measures the clusters that
        were found.
        """
        start_over(self)
        generator = as_generator(self.random_state)
        self._check_parameters()
        table = checked(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        self._center, self._scale = self._standardization(table)
        rows = Rows(self._prepared(table))
        self.run_ = fit(
            self._encoder(rows.width, generator),
            rows,
            self._objective(),
            learning_rate=self.learning_rate,
            batch_size=min(self.batch_size, len(rows)),
            epochs=self.epochs if self.max_minutes is None else None,
            minutes=self.max_minutes,
            progress=self.verbose,
            guard="rollback",
            generator=generator,
        )
        self.model_, self._n_features_out = self.run_.model, self.n_components
        self._find_clusters(embed(self.model_, rows, generator=generator), y, generator)
        return self

    def transform(self, X: object) -> np.ndarray:
        """Unit vectors, (n, n_components)."""
        return self._embedded(X).double().numpy()

    def predict(self, X: object) -> np.ndarray:
        """The nearest prototype of every row, at the first granularity."""
        return (self.transform(X) @ self.prototypes_[0].T).argmax(1)

    def knn_score(self, X: object, y: object, n_neighbors: int = 5, cv: int = 5) -> float:
        """Cross-validated accuracy of nearest neighbors in the embedding."""
        from sklearn.neighbors import KNeighborsClassifier

        return self._probe(KNeighborsClassifier(n_neighbors), X, y, cv)

    def probe_score(self, X: object, y: object, cv: int = 5) -> float:
        """Cross-validated accuracy of a linear classifier on the embedding."""
        from sklearn.linear_model import LogisticRegression

        return self._probe(LogisticRegression(C=100.0, max_iter=2000), X, y, cv)

    def report(self, path: str | Path, X: object, y: object = None) -> Path:
        """A page with a map of the embedding, colored by ``y`` or by cluster, the trace of the fit,
        and the concentrations.
        """
        from partita.estimators._prototype_page import write_encoder_page

        check_is_fitted(self, "model_")
        v, color = self.transform(X), self.predict(X) if y is None else np.asarray(y)
        owner = "PrototypeEncoder.report"
        if color.shape != (len(v),):
            allowed = f"hold one value for each of the {len(v)} rows"
            raise invalid(owner, "y", allowed, f"shape {color.shape}")
        return write_encoder_page(self, check_path(owner, "path", path, "a page"), v, color)

    def _kept(self) -> JsonObject:
        """What is saved beside the encoder."""
        found = zip(self.prototypes_, self.concentration_, strict=True)
        return {
            "standardization": [torch.from_numpy(self._center), torch.from_numpy(self._scale)],
            "clusters": [
                [torch.from_numpy(centers), torch.from_numpy(phi)] for centers, phi in found
            ],
            "labels": torch.from_numpy(self.labels_),
            "ami": list(map(list, self.ami_.items())),
            "uniformity": self.uniformity_,
        }

    def _restore(self, kept: JsonObject) -> None:
        """Take back what was saved."""
        self._center, self._scale = (value.numpy() for value in kept["standardization"])
        self.prototypes_, self.concentration_ = (
            [pair[i].numpy() for pair in kept["clusters"]] for i in range(2)
        )
        self.labels_, self.uniformity_ = kept["labels"].numpy(), kept["uniformity"]
        self.ami_ = {int(k): value for k, value in kept["ami"]}
        self._n_features_out, self.n_features_in_ = self.n_components, len(self._center)
        # what does not belong together is found here and not later
        self.predict(self._center[None])

    def _find_clusters(self, v: Tensor, y: object, generator: torch.Generator) -> None:
        """The last E-step, on the embeddings of the fitted encoder itself, and what there is to say
        about it.
        """
        found = [
            find_prototypes(v, k, self.temperature, 10.0, generator=generator)
            for k in self._granularities() or (10,)
        ]
        kept = [p.phi.isfinite() for p in found]
        if not all(bool(keep.any()) for keep in kept):
            raise Diverged(
                "PrototypeEncoder: concentrations must be finite; got none that is. Lower "
                "temperature."
            )
        self._say_what_is_empty(kept)
        pairs = list(zip(found, kept, strict=True))
        self.prototypes_ = [p.centers[keep].double().numpy() for p, keep in pairs]
        self.concentration_ = [p.phi[keep].double().numpy() for p, keep in pairs]
        self.labels_ = (v.double().numpy() @ self.prototypes_[0].T).argmax(1)
        self.uniformity_ = float(uniformity(v[rng.permutation(len(v), generator)[:1000]]))
        self.ami_ = {}
        labels = np.asarray([] if y is None else values_of(y))
        if labels.shape == (len(v),) and type_of_target(labels) in ("binary", "multiclass"):
            from sklearn.metrics import adjusted_mutual_info_score

            self.ami_ = {
                len(p.centers): float(adjusted_mutual_info_score(labels, p.member.numpy()))
                for p in found
            }

    def _say_what_is_empty(self, kept: list[Tensor]) -> None:
        for keep in kept:
            if not keep.all():
                text = (
                    f"PrototypeEncoder: {len(keep)} prototypes were requested and "
                    f"{int(keep.sum())} have rows; the others are left out."
                )
                warnings.warn(f"{text} Use a smaller n_prototypes.", PartitaWarning, stacklevel=4)

    def _embedded(self, X: object) -> Tensor:
        check_is_fitted(self, "model_")
        table = checked(self, X, dtype=[np.float64, np.float32], reset=False)
        return embed(self.model_, Rows(self._prepared(table)), generator=torch.Generator())

    def _probe(self, classifier: ClassifierMixin, X: object, y: object, cv: int) -> float:
        from sklearn.model_selection import cross_val_score
        from sklearn.utils.validation import column_or_1d

        v = self.transform(X)
        with by_scikit_learn("PrototypeEncoder"):
            labels = column_or_1d(np.asarray(y))
            how: dict[str, Any] = {"cv": cv, "error_score": "raise"}
            return float(cross_val_score(classifier, v, labels, **how).mean())

    def _standardization(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Columns of vectors are standardized one by one; images and sequences keep their scale,
        which the encoder sets as a whole.
        """
        if self.shape is not None:
            return np.zeros(X.shape[1]), np.ones(X.shape[1])
        spread = X.std(0)
        return X.mean(0), np.where(spread > 0, spread, 1.0)

    def _prepared(self, X: object) -> np.ndarray:
        return ((np.asarray(X) - self._center) / self._scale).astype(np.float32)

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        check_types(self)
        if self.shape is not None and len(self.shape) not in (1, 2):
            raise invalid(owner, "shape", "be (length,) or (height, width)", tuple(self.shape))

    def _encoder(self, width: int, generator: torch.Generator) -> Encoder:
        sizes: dict[str, Any] = {}
        if self.hidden is not None:
            sizes = {"widths" if self.shape is None else "channels": tuple(self.hidden)}
        elif self.shape is not None and min(self.shape) < 4:
            sizes = {"channels": (32,)}
        return Encoder(width, self.n_components, shape=self.shape, generator=generator, **sizes)

    def _objective(self) -> PCL:
        warm_up = self.warm_up
        if warm_up is None:
            warm_up = max(1, self.epochs // 4) if self.max_minutes is None else 1
        return PCL(
            self._granularities(),
            self._augment(),
            self.queue,
            self.momentum,
            self.temperature,
            warm_up=warm_up,
            every=self.e_step_every,
        )

    def _granularities(self) -> tuple[int, ...]:
        if self.n_prototypes is None:
            return ()
        one = isinstance(self.n_prototypes, int | np.integer)
        given = (self.n_prototypes,) if one else self.n_prototypes
        return check_counts("PrototypeEncoder", "n_prototypes", given)

    def _augment(self) -> Callable[[Tensor, torch.Generator], Tensor]:
        if callable(self.augmentation):
            return self.augmentation
        check_choice("PrototypeEncoder", "augmentation", self.augmentation, ("auto",))
        if self.shape is None:
            return VectorMoves()
        sizes = tuple(self.shape)
        return ImageMoves((sizes[0], sizes[1])) if len(sizes) == 2 else SequenceMoves((sizes[0],))
