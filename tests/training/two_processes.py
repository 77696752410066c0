"""What two processes do together; each runs ``together.py``."""

import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import partita
from partita.core.support import Binary, Real
from partita.datasets import Sequences
from partita.errors import Diverged
from partita.evaluators import AIS, Bridge, Sandwich
from partita.evaluators.partition import annealing
from partita.models import (
    GAN,
    RBM,
    VAE,
    VRNN,
    Autoregressive,
    Encoder,
    Flow,
    MaskedAutoregressive,
    MaxEnt,
    NeuralEnergy,
    SigmoidBelief,
)
from partita.nets import MLP
from partita.objectives import (
    CD,
    ELBO,
    FIVO,
    MAP,
    NCE,
    PCD,
    PCL,
    Adversarial,
    DiscreteELBO,
    ExactLikelihood,
    IWAEBound,
    PseudoLikelihood,
    RatioMatching,
    ScoreMatching,
)
from partita.runtime import processes
from partita.samplers import Gibbs, Tempering
from partita.tables import Rows, as_rows
from partita.training import Settings, checkpoint
from partita.training.session import start_session

Gradient = dict[str, Tensor]

warnings.simplefilter("ignore")
ROWS = 41  # odd, so that the shares differ


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def binary(n: int = ROWS, width: int = 5) -> Tensor:
    return (torch.rand(n, width, generator=seeded(1), dtype=torch.float64) < 0.4).double()


def real(n: int = ROWS, width: int = 2) -> Tensor:
    return torch.randn(n, width, generator=seeded(2), dtype=torch.float64)


def machine(seed: int = 0, scale: float = 0.7) -> RBM:
    model = RBM(5, 3, generator=seeded(seed)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=seeded(seed + 10), dtype=torch.float64))
    return model


def gradients(
    objective: Any,
    model: Any,
    x: Any,
    count: int,
    fabric: Any = None,
    seed: int = 5,
    batch_size: int = 0,
) -> list[Gradient]:
    """The gradients of the first steps, after the exchange; the steps themselves are too small to
    change anything.
    """
    settings = Settings(
        steps=count, optimizer="sgd", learning_rate=1e-300, batch_size=batch_size, initialize=False
    )
    seen = []
    with processes.together(fabric):
        session = start_session(
            model, as_rows(x), objective, settings, fabric=fabric, generator=seeded(seed)
        )
        for _ in range(count):
            session.advance()
            seen.append(
                {
                    name: p.grad.clone()
                    for name, p in session.bare.named_parameters()
                    if p.grad is not None
                }
            )
    return seen


def gradient(objective: Any, model: Any, x: Any, fabric: Any = None, **options: Any) -> Gradient:
    return gradients(objective, model, x, 1, fabric, **options)[0]


EXACT: dict[str, tuple[Callable[[], Any], Callable[[], Any], Any]] = {
    "rbm": (machine, binary, ExactLikelihood()),
    "maxent": (
        lambda: MaxEnt("pairwise", Binary(5), generator=seeded()).double(),
        binary,
        ExactLikelihood(),
    ),
    "weighted": (
        machine,
        lambda: Rows(binary().numpy(), weight=torch.arange(1.0, ROWS + 1)),
        ExactLikelihood(),
    ),
    "pseudo-likelihood": (machine, binary, PseudoLikelihood()),
    "score matching": (
        lambda: NeuralEnergy(MLP(2, 1, widths=(8,), generator=seeded()).double(), Real(2)),
        real,
        ScoreMatching(),
    ),
    "flow": (lambda: Flow(2, 2, widths=(8,), generator=seeded()).double(), real, ExactLikelihood()),
    "masked": (
        lambda: MaskedAutoregressive(5, widths=(16,), generator=seeded()).double(),
        binary,
        ExactLikelihood(),
    ),
}

SAMPLED: dict[str, tuple[Callable[[], Any], Any, int]] = {
    "cd": (machine, CD(Gibbs()), 300),
    "pcd": (machine, PCD(chains=8), 100),
    "nce": (machine, NCE(ratio=3), 100),
    "elbo": (lambda: VAE(5, 2, widths=(4,), generator=seeded()).double(), ELBO(), 100),
    "disarm": (
        lambda: SigmoidBelief(5, (3,), generator=seeded()).double(),
        DiscreteELBO("disarm"),
        100,
    ),
}


def sampled(name: str, fabric: Any = None, seed: int = 0) -> Tensor:
    """Many independent draws of a random gradient, one below the other; chains that go on are begun
    anew for each.
    """
    make, objective, count = SAMPLED[name]
    if isinstance(objective, PCD):
        drawn = [gradient(objective, make(), binary(), fabric, seed=seed + i) for i in range(count)]
    else:
        drawn = gradients(objective, make(), binary(), count, fabric, seed)
    return torch.stack([torch.cat([value.flatten() for value in each.values()]) for each in drawn])


PLAYED = Sequences.of([binary(n, 2).numpy().astype("float32") for n in (7, 3, 5, 7, 4, 6, 2, 7)])
FITS: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "pcd": (machine, binary(), PCD(chains=8)),
    "tempered": (machine, binary(), PCD(Tempering(Gibbs(), betas=(0.0, 0.5, 1.0)), chains=8)),
    "replay": (machine, binary(), PCD(chains=16, active=4, restart=0.2)),
    "prior": (machine, binary(), MAP(PCD(chains=8))),
    "by slopes": (
        lambda: NeuralEnergy(MLP(2, 1, widths=(8,), generator=seeded()).double(), Real(2)),
        real(),
        PCD(chains=8),
    ),
    "contrastive": (
        lambda: Encoder(2, 3, widths=(8,), generator=seeded()).double(),
        real(),
        PCL((), queue=16),
    ),
    "cd": (machine, binary(), CD(Gibbs())),
    "nce": (machine, binary(), NCE(ratio=3)),
    "ratio matching": (machine, binary(), RatioMatching()),
    "sliced": (
        lambda: RBM(2, 3, visible_units="gaussian", generator=seeded()).double(),
        real(),
        ScoreMatching("sliced"),
    ),
    "vae": (lambda: VAE(5, 2, generator=seeded()).double(), binary(), ELBO()),
    "iwae": (lambda: VAE(5, 2, generator=seeded()).double(), binary(), IWAEBound(3)),
    "doubly reparameterized": (
        lambda: VAE(5, 2, generator=seeded()).double(),
        binary(),
        IWAEBound(3, gradient="doubly"),
    ),
    "vrnn": (
        lambda: VRNN(7, size=2, latent=2, hidden=4, features=4, generator=seeded()),
        PLAYED,
        FIVO(2),
    ),
    "sequence": (
        lambda: Autoregressive(
            7, "binary", size=2, width=8, layers=1, hidden=8, generator=seeded()
        ),
        PLAYED,
        ExactLikelihood(),
    ),
    "gan": (
        lambda: GAN(2, widths=(8,), generator=seeded()).double(),
        real(),
        Adversarial(critic=(8,), critic_steps=2),
    ),
    "gan, spectral": (
        lambda: GAN(2, widths=(8,), generator=seeded()).double(),
        real(),
        Adversarial("wasserstein", "spectral", critic=(8,)),
    ),
    **{
        name: (
            lambda: SigmoidBelief(5, (3,), generator=seeded()).double(),
            binary(),
            DiscreteELBO(name),
        )
        for name in ("nvil", "muprop", "rebar", "relax", "vimco", "disarm", "gumbel-softmax")
    },
}


def fitted(name: str, fabric: Any, **options: Any) -> Any:
    make, x, objective = FITS[name]
    options = {
        "steps": 12,
        "batch_size": 8,
        "optimizer": "adam",
        "learning_rate": 0.02,
        "average": 0.3,
        **options,
    }
    return partita.fit(make(), x, objective, fabric=fabric, generator=seeded(3), **options)


def continued(folder: Path, fabric: Any = None) -> dict[str, Tensor]:
    """Six more steps of a run of twelve that was made in two parts: its plan is rewritten as if it
    had been stopped half way.
    """
    path = folder / "checkpoints" / "last.safetensors"
    if fabric is None or fabric.is_global_zero:
        checkpoint.save_tree(path, {**checkpoint.load_tree(path), "total": 12})
    if fabric is not None:
        fabric.barrier()
    run = fitted("tempered", fabric, out=folder, resume=True, schedule="constant", average=0.0)
    return dict(run.model.state_dict())


def resumed_from(path: Path, fabric: Any) -> dict[str, Any]:
    """What a save puts into this process."""
    make, x, objective = FITS["tempered"]
    with processes.together(fabric):
        session = start_session(
            make(),
            as_rows(x),
            objective,
            Settings(steps=6, optimizer="adam", average=0.0),
            fabric=fabric,
            generator=seeded(3),
        )
        session.restore(checkpoint.load_tree(path))
    return {
        "model": dict(session.bare.state_dict()),
        "chains": session.state.chains[0],
        "generator": session.generator.get_state(),
    }


def where_one_diverges(fabric: Any, **options: Any) -> Any:
    """The events of a fit whose sixth update only the second process cannot make; in place of them
    what ended it.
    """
    losses, calls = PCD.losses, []

    def diverges(self: PCD, *inputs: Any, **more: Any) -> Any:
        calls.append(None)
        if len(calls) == 6 and fabric.global_rank == 1:
            raise Diverged("Langevin: chains must stay finite; got nan.")
        return losses(self, *inputs, **more)

    PCD.losses = diverges
    try:
        return [
            record
            for record in fitted("pcd", fabric, validations=6, **options).history
            if "event" in record
        ]
    except Diverged as error:
        return str(error)
    finally:
        PCD.losses = losses


def where_one_cannot_anneal(fabric: Any) -> str:
    anneal = annealing.anneal_here
    annealing.anneal_here = lambda *_, **__: (_ for _ in ()).throw(
        Diverged("a log weight is not finite.")
    )
    if fabric.is_global_zero:
        annealing.anneal_here = anneal
    try:
        return str(
            partita.evaluate(
                machine(), binary(), evaluator=AIS(50, chains=8), fabric=fabric, generator=seeded(8)
            )
        )
    except Diverged as error:
        return str(error)
    finally:
        annealing.anneal_here = anneal


def run(out: Path, fabric: Any) -> dict[str, Any]:
    """Everything that two processes compute, in order; each returns what it saw."""
    seen: dict[str, Any] = {
        "exact": {
            name: gradient(objective, make(), x(), fabric)
            for name, (make, x, objective) in EXACT.items()
        }
    }
    seen["batch"] = gradient(PseudoLikelihood(), machine(), binary(), fabric, batch_size=11)
    seen["fits"] = {}
    for name in FITS:
        run = fitted(name, fabric)
        seen["fits"][name] = (
            dict(run.model.state_dict()),
            [{**record, "seconds": None} for record in run.history],
        )
    seen["sampled"] = {name: sampled(name, fabric) for name in SAMPLED}
    for name, steps in (("whole", 12), ("first", 6)):
        fitted("tempered", fabric, out=out / name, steps=steps, schedule="constant", average=0.0)
    seen["resumed"] = continued(out / "first", fabric)
    if fabric.is_global_zero:
        fitted("tempered", None, out=out / "alone", steps=6, average=0.0)
    fabric.barrier()
    seen["of one"] = resumed_from(out / "alone" / "checkpoints" / "last.safetensors", fabric)
    seen["diverged"] = {
        guard: where_one_diverges(fabric, guard=guard, out=out / guard)
        for guard in ("stop", "rollback")
    }
    seen["annealed"] = where_one_cannot_anneal(fabric)
    with torch.no_grad():
        seen["log_z"] = {
            type(e).__name__: partita.evaluate(
                machine(), binary(), evaluator=e, fabric=fabric, generator=seeded(8)
            )
            for e in (AIS(200, chains=64), Sandwich(200, chains=64), Bridge(chains=64))
        }
    return seen


def enumerated_log_z(model: RBM) -> float:
    states = torch.tensor(list(product([0.0, 1.0], repeat=5)), dtype=torch.float64)
    with torch.no_grad():
        return float(torch.logsumexp(-model(states), 0))
