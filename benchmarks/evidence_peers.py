"""Other codes that give an evidence, each asked as its own pages say, with its defaults.

Each takes a function of rows in the unit cube or in the prior's coordinates, and answers with a
value and the standard error that it states. None is a dependency: each is imported where it runs.
"""

import io
import math
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributions import Exponential, HalfCauchy, Normal, Uniform

from evidence_targets import Known

LEAST = -1e100  # what a likelihood of zero is to codes that want numbers


class Stated(NamedTuple):
    """A value of log Z and the standard error stated for it."""

    value: float
    error: float


@dataclass
class Counted:
    """A target as functions of NumPy arrays, which counts the rows that it evaluated."""

    known: Known
    calls: int = field(default=0)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """The log-likelihood of rows ``(n, D)``, or of one row ``(D,)``."""
        rows = torch.as_tensor(np.atleast_2d(np.asarray(x, dtype=np.float64)))
        self.calls += len(rows)
        values = torch.nan_to_num(self.known.log_density(rows), nan=LEAST, neginf=LEAST).numpy()
        return values if np.ndim(x) > 1 else values[0]

    def from_cube(self, u: np.ndarray) -> np.ndarray:
        """The coordinates of points of the unit cube, ``(*, D)``."""
        assert self.known.prior is not None
        u = np.clip(u, 1e-15, 1 - 1e-15)
        columns = [
            prior.icdf(torch.as_tensor(u[..., i])).numpy()
            for i, prior in enumerate(self.known.prior)
        ]
        return np.stack(columns, -1)


def dynesty(target: Counted, seed: int) -> Stated:
    from dynesty import NestedSampler

    sampler = NestedSampler(
        target.log_density,
        target.from_cube,
        target.known.width,
        rstate=np.random.default_rng(seed),
    )
    sampler.run_nested(print_progress=False)
    return Stated(float(sampler.results.logz[-1]), float(sampler.results.logzerr[-1]))


def nautilus(target: Counted, seed: int) -> Stated:
    """It states no error; its pages give one over the root of the effective number of draws."""
    from nautilus import Sampler

    sampler = Sampler(
        target.from_cube,
        target.log_density,
        n_dim=target.known.width,
        vectorized=True,
        pass_dict=False,
        seed=seed,
    )
    sampler.run(verbose=False)
    return Stated(float(sampler.log_z), 1 / math.sqrt(float(sampler.n_eff)))


def ultranest(target: Counted, seed: int) -> Stated:
    import logging

    from ultranest import ReactiveNestedSampler

    logging.getLogger("ultranest").setLevel(logging.ERROR)
    np.random.seed(seed)  # it takes no generator
    names = [f"x{i}" for i in range(target.known.width)]
    sampler = ReactiveNestedSampler(
        names, target.log_density, target.from_cube, vectorized=True, log_dir=None
    )
    result = sampler.run(show_status=False, viz_callback=None)
    return Stated(float(result["logz"]), float(result["logzerr"]))


def pocomc(target: Counted, seed: int) -> Stated:
    from pocomc import Prior, Sampler
    from scipy import stats

    def frozen(prior: Any) -> Any:
        if isinstance(prior, Uniform):
            return stats.uniform(float(prior.low), float(prior.high - prior.low))
        if isinstance(prior, Normal):
            return stats.norm(float(prior.loc), float(prior.scale))
        if isinstance(prior, Exponential):
            return stats.expon(0, 1 / float(prior.rate))
        assert isinstance(prior, HalfCauchy)
        return stats.halfcauchy(0, float(prior.scale))

    assert target.known.prior is not None
    prior = Prior([frozen(one) for one in target.known.prior])
    sampler = Sampler(prior, target.log_density, vectorize=True, random_state=seed)
    sampler.run(progress=False)
    value, error = sampler.evidence()
    return Stated(float(value), float(error))


def blackjax(target: Counted, seed: int, live: int = 500) -> Stated:
    """Nested slice sampling in the coordinates of standard normal numbers, as its book runs it."""
    import jax
    import jax.numpy as jnp
    from blackjax import nss
    from blackjax.ns.utils import finalise, log_weights

    jax.config.update("jax_enable_x64", True)
    width = target.known.width

    def outside(u: np.ndarray) -> np.ndarray:
        rows = np.asarray(u, dtype=np.float64).reshape(-1, width)
        return target.log_density(target.from_cube(rows)).reshape(np.shape(u)[:-1])

    def log_likelihood(z: Any) -> Any:
        shape = jax.ShapeDtypeStruct(z.shape[:-1], jnp.float64)
        u = jax.scipy.stats.norm.cdf(z)
        return jax.pure_callback(outside, shape, u, vmap_method="broadcast_all")

    key, first = jax.random.split(jax.random.key(seed))
    sampler: Any = nss(
        logprior_fn=lambda z: jax.scipy.stats.norm.logpdf(z).sum(),
        loglikelihood_fn=log_likelihood,
        num_delete=live // 10,
        num_inner_steps=max(5, 2 * width),
    )
    state = jax.jit(sampler.init)(jax.random.normal(first, (live, width)))
    step, dead = jax.jit(sampler.step), []
    while not state.integrator.logZ_live - state.integrator.logZ < -3:
        key, own = jax.random.split(key)
        state, info = step(own, state)
        dead.append(info)
    log_w = log_weights(key, finalise(state, dead, update_info=False))
    log_z = jax.scipy.special.logsumexp(log_w, axis=0)
    return Stated(float(log_z.mean()), float(log_z.std()))


PEERS: dict[str, Callable[[Counted, int], Stated]] = {
    "dynesty": dynesty,
    "nautilus": nautilus,
    "ultranest": ultranest,
    "pocomc": pocomc,
    "blackjax": blackjax,
}


def quietly(peer: Callable[[Counted, int], Stated], target: Counted, seed: int) -> Stated:
    """What it states, without its own output."""
    with redirect_stdout(io.StringIO()):
        return peer(target, seed)
