"""Prototypical contrastive learning: hand computations, limits, gradients, and sizes that do not
fit.
"""

import copy
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import partita
import partita.objectives.prototypes as prototypes_module
from partita.errors import InputError, PartitaWarning, Unsupported
from partita.models import RBM, Encoder
from partita.objectives import PCL
from partita.objectives.augmentations import ImageMoves, SequenceMoves, VectorMoves
from partita.objectives.contrastive import (
    alignment,
    embed,
    info_nce,
    momentum_average,
    proto_nce,
    uniformity,
)
from partita.objectives.prototypes import (
    Prototypes,
    concentration,
    find_prototypes,
    spherical_k_means,
)
from partita.tables import as_rows
from partita.training.session import start_session
from partita.training.settings import resolve_settings


def unit(*shape: int, generator: torch.Generator) -> Tensor:
    return functional.normalize(
        torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1
    )


def prototypes(generator: torch.Generator, n: int = 6) -> Prototypes:
    member = torch.arange(n) % 3
    return Prototypes(
        unit(3, 4, generator=generator), torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64), member
    )


def blobs(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    label = torch.arange(n) % 3
    centers = 4 * torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    return centers[label] + 0.3 * torch.randn(n, 4, generator=generator), label


def test_info_nce_is_the_cross_entropy_of_the_right_key(generator: torch.Generator) -> None:
    q, k, queue = (unit(n, 4, generator=generator) for n in (5, 5, 7))
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.mT], 1) / 0.3
    expected = functional.cross_entropy(logits, torch.zeros(5, dtype=torch.long), reduction="none")
    torch.testing.assert_close(info_nce(q, k, queue, 0.3), expected)
    same = torch.zeros(5, 7, dtype=torch.bool)
    same[0, 1:] = True
    by_hand = -math.log(1 / (1 + math.exp((q[0] @ queue[0] - q[0] @ k[0]) / 0.3)))
    assert float(info_nce(q, k, queue, 0.3, same)[0]) == pytest.approx(by_hand)
    # nothing to tell apart
    assert not info_nce(q, k, queue, 0.3, absent=torch.ones(7, dtype=torch.bool)).any()


def test_proto_nce_by_hand_and_without_prototypes(generator: torch.Generator) -> None:
    q, found = unit(2, 4, generator=generator), prototypes(generator)
    index = torch.tensor([4, 2])
    scores = [
        [math.exp(float(q[b] @ found.centers[j] / found.phi[j])) for j in range(3)]
        for b in range(2)
    ]
    expected = [-math.log(scores[0][1] / sum(scores[0])), -math.log(scores[1][2] / sum(scores[1]))]
    assert proto_nce(q, (found,), index).tolist() == pytest.approx(expected)
    other = prototypes(generator)
    both = (proto_nce(q, (found,), index) + proto_nce(q, (other,), index)) / 2
    torch.testing.assert_close(proto_nce(q, (found, other), index), both)
    assert not proto_nce(q, (), index).any()
    # an empty cluster is nobody's rival
    empty = found._replace(phi=found.phi.index_fill(0, torch.tensor([0]), torch.inf))
    assert float(proto_nce(q, (empty,), index)[0]) == pytest.approx(
        -math.log(scores[0][1] / (scores[0][1] + scores[0][2]))
    )


def test_gradients_and_keys_without(generator: torch.Generator) -> None:
    q = unit(3, 4, generator=generator).requires_grad_()
    k, queue = unit(3, 4, generator=generator).requires_grad_(), unit(5, 4, generator=generator)
    found = prototypes(generator)
    assert torch.autograd.gradcheck(
        lambda q: info_nce(q, k, queue, 0.3) + proto_nce(q, (found,), torch.arange(3)), (q,)
    )
    info_nce(q, k, queue, 0.3).sum().backward()
    assert k.grad is None and q.grad is not None


def test_concentration_by_hand() -> None:
    v = torch.tensor(
        [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.0, 1.0], [0.8, 0.6], [0.0, -1.0]],
        dtype=torch.float64,
    )
    centers = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [-1.0, 0.0]], dtype=torch.float64)
    member = torch.tensor([0, 0, 1, 1, 1, 2])
    first = (0 + math.sqrt(0.8)) / (2 * math.log(12))
    second = (0 + 0 + math.sqrt(0.64 + 0.16)) / (3 * math.log(13))
    low, high = np.quantile([first, second], [0.1, 0.9])
    raw = [high, low, high]  # held between quantiles; a cluster of one takes the largest
    expected = [0.2 * r / np.mean(raw) for r in raw]
    found = concentration(v, centers, member, 0.2).tolist()
    assert found[:3] == pytest.approx(expected) and found[3] == math.inf


def test_spherical_k_means_recovers_directions(generator: torch.Generator) -> None:
    truth = torch.arange(300) % 4
    points = functional.normalize(
        torch.eye(4, dtype=torch.float64)[truth] + 0.1 * torch.randn(300, 4, generator=generator),
        dim=1,
    ).numpy()
    centers, member = spherical_k_means(points, 4, 0)
    np.testing.assert_allclose(np.linalg.norm(centers, axis=1), 1)
    assert len({(int(a), int(b)) for a, b in zip(member, truth, strict=True)}) == 4
    assert (member == (points @ centers.T).argmax(1)).all()
    means = np.stack([points[member == j].sum(0) for j in range(4)])
    # a fixed point
    np.testing.assert_allclose(centers, means / np.linalg.norm(means, axis=1, keepdims=True))


def test_more_prototypes_than_rows_and_equal_rows(generator: torch.Generator) -> None:
    v = unit(3, 4, generator=generator).repeat(4, 1)
    found = find_prototypes(v, 50, 0.2, 10.0, generator=generator)
    assert found.centers.shape == (12, 4) and int(found.phi.isfinite().sum()) == 3
    assert (found.member < 3).all() and torch.isfinite(
        proto_nce(v, (found,), torch.arange(12))
    ).all()


@pytest.mark.parametrize("start", ["_by_scikit_learn", "_by_faiss"])
def test_spherical_k_means_by_either_library(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit centers, each the direction of its points, every point with its nearest, all clouds
    found, the same for the same seed.
    """
    if start == "_by_faiss":
        pytest.importorskip("faiss")
    monkeypatch.setattr(prototypes_module, "_start", getattr(prototypes_module, start))
    draw = np.random.default_rng(0)
    label = np.repeat(np.arange(3), [300, 200, 40])
    points = np.eye(4)[label] + 0.1 * draw.standard_normal((540, 4))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    centers, member = spherical_k_means(points, 3, seed=2**31 + 5)
    again = spherical_k_means(points, 3, seed=2**31 + 5)
    assert np.array_equal(centers, again[0]) and np.array_equal(member, again[1])
    assert len({(a, b) for a, b in zip(member, label, strict=True)}) == 3
    np.testing.assert_array_equal(member, (points @ centers.T).argmax(1))
    for c in range(3):
        total = points[member == c].sum(0)
        np.testing.assert_allclose(centers[c], total / np.linalg.norm(total), atol=1e-12)


def test_k_means_that_ran_out_of_rounds_still_ends_on_the_sphere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prototypes_module, "ROUNDS", 1)
    points = np.random.default_rng(0).standard_normal((500, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says that it has not converged
        centers, member = spherical_k_means(points, 20, seed=0)
    np.testing.assert_allclose(np.linalg.norm(centers, axis=1), 1)
    np.testing.assert_array_equal(member, (points @ centers.T).argmax(1))


def test_counts_in_the_slow_copy_are_the_models() -> None:
    net = torch.nn.BatchNorm1d(3)
    slow = {name: value.clone() for name, value in net.state_dict().items()}
    net(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)))
    after = momentum_average(slow, net, 0.5)
    assert int(after["num_batches_tracked"]) == 1
    torch.testing.assert_close(after["running_mean"], net.running_mean / 2)  # type: ignore[operator]


def test_the_slow_copy_moves_by_the_rest_of_the_momentum(generator: torch.Generator) -> None:
    model = Encoder(4, 3, widths=(5,), generator=generator)
    slow = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    for name, value in momentum_average(slow, model, 0.9).items():
        torch.testing.assert_close(value, 0.1 * model.state_dict()[name])


def test_alignment_and_uniformity(generator: torch.Generator) -> None:
    v = unit(6, 3, generator=generator)
    pairs = [float((v[i] - v[j]).square().sum()) for i in range(6) for j in range(i)]
    assert float(uniformity(v)) == pytest.approx(math.log(np.mean(np.exp(-2 * np.array(pairs)))))
    assert float(alignment(v, v)) == 0 and float(alignment(v, -v)) == pytest.approx(4)
    assert float(uniformity(v[:1])) == 0


@pytest.mark.parametrize("moves", [VectorMoves(), ImageMoves((8, 8)), SequenceMoves((32,))])
def test_views_keep_shape_and_follow_the_generator(moves: Any, generator: torch.Generator) -> None:
    x = torch.randn(10, 64, generator=generator)
    one, again, other = (moves(x, torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    assert one.shape == x.shape and torch.equal(one, again) and not torch.equal(one, other)
    assert torch.isfinite(moves(x[:1], generator)).all()


def test_views_without_moves_are_the_rows() -> None:
    x, g = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)), torch.Generator()
    still = ImageMoves((8, 8), turn=0, zoom=0, shear=0, move=0, erase=0)
    torch.testing.assert_close(still(x, g), x, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        SequenceMoves((64,), keep=1.0, gain=0.0, noise=0.0)(x, g), x, atol=1e-5, rtol=1e-5
    )
    assert torch.equal(VectorMoves(0.0, 0.0)(x, g), x)


def session(objective: PCL, x: Tensor, batch_size: int = 20) -> Any:
    g = torch.Generator().manual_seed(0)
    model = Encoder(x.shape[1], 3, widths=(16,), generator=g)
    settings = resolve_settings(model, objective, len(x), {"epochs": 6, "batch_size": batch_size})
    return start_session(model, as_rows(x, None, "fit"), objective, settings, generator=g)


def test_warm_up_then_clusters_and_the_resume_is_bit_for_bit(generator: torch.Generator) -> None:
    x, _ = blobs(60, generator)
    run, resumed = (session(PCL((3, 5), warm_up=2, queue=30), x) for _ in range(2))
    records = [run.advance() for _ in range(6)]  # two epochs of three batches
    assert all(record["proto_nce"] == 0 for record in records)
    resumed.restore(copy.deepcopy(run.tree()))
    assert [r.advance()["proto_nce"] > 0 for r in (run, resumed)] == [True, True]
    for _ in range(5):
        run.advance(), resumed.advance()
    assert all(
        torch.equal(a, b)
        for a, b in zip(run.bare.parameters(), resumed.bare.parameters(), strict=True)
    )
    assert [len(p.centers) for p in run.state.prototypes] == [3, 5] and int(
        run.state.rows.min()
    ) >= 0


def test_without_clusters_the_loss_is_info_nce(generator: torch.Generator) -> None:
    x, _ = blobs(60, generator)
    plain = session(PCL((), queue=30), x)
    for _ in range(9):
        record = plain.advance()
        assert (
            record["model"] == pytest.approx(record["info_nce"], abs=1e-6)
            and record["proto_nce"] == 0
        )


@pytest.mark.parametrize("batch_size", [2, 7, 500])
def test_sizes_that_do_not_fit(batch_size: int, generator: torch.Generator) -> None:
    """A queue, a batch and k larger than the data."""
    x, _ = blobs(9, generator)
    with pytest.warns(
        PartitaWarning,
        match="clusters must be at most the number of rows, 9; got 50. One for each row",
    ):
        run = session(PCL((50,), queue=10_000, warm_up=1), x, batch_size)
    for _ in range(12):
        record = run.advance()
        assert all(math.isfinite(value) for value in record.values())


def test_blobs_are_found_without_labels(generator: torch.Generator) -> None:
    """Three clouds far apart: after training, clusters are the clouds (fixed seed)."""
    x, label = blobs(150, generator)
    model = Encoder(4, 3, widths=(32,), generator=generator)
    partita.fit(
        model, x, PCL((3, 6), queue=100, warm_up=3), epochs=15, batch_size=30, generator=generator
    )
    v = embed(model, as_rows(x, None, "fit"), generator=generator)
    found = find_prototypes(v, 3, 0.2, 10.0, generator=generator)
    assert len({(int(a), int(b)) for a, b in zip(found.member, label, strict=True)}) == 3


def test_a_batch_of_one_is_named(generator: torch.Generator) -> None:
    x, _ = blobs(9, generator)
    with pytest.raises(
        InputError, match=r"a batch must hold at least two rows.*got 1\. Raise batch_size"
    ):
        session(PCL((2,)), x, 1).advance()


def test_wrong_input_is_named(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match="clusters must be a whole number of at least 2"):
        PCL((1,))
    with pytest.raises(InputError, match="temperature must be"):
        PCL(temperature=0.0)
    with pytest.raises(InputError, match="clusters must be numbers of prototypes side by side"):
        PCL(10)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="erase must lie in"):
        ImageMoves((8, 8), erase=1.5)
    with pytest.raises(InputError, match=r"shape must be \(height, width\)"):
        ImageMoves((8,))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="keep must lie in"):
        SequenceMoves((8,), keep=0.0)
    with pytest.raises(Unsupported, match="it is a density and no encoder"):
        partita.fit(
            RBM(4, 2, generator=generator), torch.ones(8, 4), PCL(), epochs=1, generator=generator
        )
    with pytest.raises(InputError, match="shape must divide"):
        Encoder(10, 2, shape=(3, 3), generator=generator)


def test_a_saved_encoder_is_the_same(tmp_path: Any, generator: torch.Generator) -> None:
    x, _ = blobs(40, generator)
    model = Encoder(4, 3, widths=(8,), generator=generator)
    partita.fit(
        model,
        x,
        PCL((3,), warm_up=1),
        epochs=2,
        batch_size=20,
        out=tmp_path / "run",
        generator=generator,
    )
    assert torch.equal(partita.load(tmp_path / "run").model(x), model(x))


def test_copies_that_rounding_tells_apart_are_one_point(generator: torch.Generator) -> None:
    v = functional.normalize(torch.randn(4, 6, dtype=torch.float64, generator=generator), dim=-1)
    copies = v.repeat(5, 1) + 1e-7 * torch.rand(20, 6, dtype=torch.float64, generator=generator)
    found = find_prototypes(copies, 10, 0.2, 10.0, generator=generator)
    assert int(found.phi.isfinite().sum()) == 4
