"""The 32 x 32 Ising torus at three temperatures: log Z by annealing and the energy of chains beside
Kaufman's finite-size formula.
"""

import time

import torch

from harness import show
from partita.evaluators import AIS
from partita.models import Ising, torus
from partita.models.energy.kaufman import torus_energy, torus_log_z
from partita.samplers import Gibbs

SIDE, CHAINS, BURN_IN, DRAWS = 32, 512, 200, 300


def run() -> None:
    """Print estimate, truth and their distance in standard errors."""
    for coupling in (0.3, 0.4, 0.5):
        g = torch.Generator().manual_seed(1)
        model = Ising(SIDE * SIDE, edges=torus(SIDE, SIDE), couplings=coupling, generator=g)
        started = time.perf_counter()
        q = AIS(temperatures=6000, chains=64)(model, generator=g)
        truth = float(torus_log_z(SIDE, SIDE, coupling))
        show(
            f"log Z at K = {coupling}",
            annealing=q.value,
            kaufman=truth,
            standard_errors_off=(q.value - truth) / q.details["se"],
            se=q.details["se"],
            verdict=q.verdict,
            seconds=time.perf_counter() - started,
        )
        means = chain_energies(model, g)
        truth, se = torus_energy(SIDE, SIDE, coupling), float(means.std()) / CHAINS**0.5
        show(
            f"energy at K = {coupling}",
            chains=float(means.mean()),
            kaufman=truth,
            standard_errors_off=(float(means.mean()) - truth) / se,
            se=se,
        )


@torch.no_grad()
def chain_energies(model: Ising, generator: torch.Generator) -> torch.Tensor:
    """Mean energy of each of many short chains that start ordered: rare excursions make few long
    ones look surer than they are.
    """
    sampler = Gibbs(5, "colors")
    state = sampler.init(model, torch.ones(CHAINS, SIDE * SIDE), generator=generator)
    total = torch.zeros(CHAINS, dtype=torch.float64)
    for step in range(BURN_IN + DRAWS):
        state, _ = sampler.step(model, state, generator=generator)
        total += model.free_energy(state.x).double() * (step >= BURN_IN)
    return total / DRAWS


if __name__ == "__main__":
    run()
