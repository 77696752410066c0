"""One epoch of the VAE 784-200-200-50 on gray images, drawn anew in every batch, against a bare
PyTorch loop of the same arithmetic.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness import show, side_by_side
from partita.models import VAE
from partita.objectives import ELBO
from partita.tables import Rows
from partita.training.session import start_session
from partita.training.settings import Settings

QUICK = True
ROWS, BATCH, ROUNDS = 3000, 100, 9


def gray_images(generator: torch.Generator) -> Tensor:
    """Bytes, most of them dark, as those of handwritten digits."""
    bright = torch.rand(ROWS, 784, generator=generator) < 0.2
    return torch.randint(0, 256, (ROWS, 784), generator=generator, dtype=torch.uint8) * bright


def bare_epoch(gray: Tensor, generator: torch.Generator) -> Callable[[], None]:
    """What one would write by hand: binarize, encode, draw, decode, the bound, Adam with a falling
    rate, a running average.
    """
    encoder = nn.Sequential(
        nn.Linear(784, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 100)
    )
    decoder = nn.Sequential(
        nn.Linear(50, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 784)
    )
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    average = [p.detach().clone() for p in parameters]
    done = 0
    mean = gray.float().mean(0) / 255
    base = ((mean * ROWS + 0.5) / (ROWS + 1)).logit()

    def epoch() -> None:
        nonlocal done
        for index in torch.randperm(ROWS, generator=generator).split(BATCH):
            x = torch.bernoulli(gray[index].float() / 255, generator=generator)
            mu, log_sigma = encoder(x - mean).chunk(2, -1)
            z = mu + log_sigma.exp() * torch.randn(mu.shape, generator=generator)
            kl = (0.5 * (mu.square() + torch.exp(2 * log_sigma) - 1) - log_sigma).sum(-1)
            fit = functional.binary_cross_entropy_with_logits(
                decoder(z) + base, x, reduction="none"
            ).sum(-1)
            loss = (fit + kl).mean()
            optimizer.zero_grad()
            loss.backward()
            done += 1
            optimizer.param_groups[0]["lr"] = 1e-3 * (
                1 + math.cos(math.pi * min(1.0, done / 10_000))
            )
            optimizer.step()
            if done % 10 == 0:
                with torch.no_grad():
                    for kept, p in zip(average, parameters, strict=True):
                        kept.lerp_(p, 0.02)

    return epoch


def run() -> None:
    """Print seconds of an epoch and their ratio."""
    g = torch.Generator().manual_seed(0)
    gray = gray_images(g)
    settings = Settings(
        steps=10_000, batch_size=BATCH, optimizer="adam", learning_rate=2e-3, schedule="cosine"
    )
    session = start_session(
        VAE(784, 50, generator=g),
        Rows(gray.numpy(), binarize="dynamic"),
        ELBO(),
        settings,
        generator=g,
    )

    def epoch() -> None:
        for _ in range(ROWS // BATCH):
            session.advance()

    own, bare, ratio = side_by_side(epoch, bare_epoch(gray, g), rounds=ROUNDS, warm_up=1)
    show(
        f"an epoch of {ROWS} images, VAE 784-200-200-50, batch {BATCH}",
        seconds=own,
        bare=bare,
        ratio=ratio,
        target="at most 1.3",
    )


if __name__ == "__main__":
    run()
