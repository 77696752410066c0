r"""The variational autoencoder: a decoder network from normal latent variables to columns, and an
encoder that guesses them back.

.. math:: p(x) = \int p(x \mid z)\, N(z; 0, I)\, dz, \qquad q(z \mid x) = N\big(z;\, \mu(x),
          \mathrm{diag}\, \sigma^2(x)\big)
          (theory/latent_variables.md, eq. 41.2)

Letters: B rows, D columns, M latent dimensions, k draws for each row, K states.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.distributions import Distribution

from partita.core import rng
from partita.core.arguments import PositiveInt, Sizes, check_count, check_width
from partita.core.protocols import Capability, Settings
from partita.core.registry import MODELS
from partita.errors import invalid
from partita.models.directed.latent import (
    Decoded,
    GaussianLatents,
    LogTerms,
    diagonal_normal,
    draw_normal,
    kl_from_standard,
    normal_log_prob,
    standard_log_prob,
)
from partita.models.directed.outputs import MixedOutput, Output, make_output
from partita.models.networked import Networked, check_maps
from partita.nets import MLP, ConvDecoder, ConvNet
from partita.nets.base import Activation
from partita.tables.schema import Law, Laws

SIDE_BY_SIDE = "Means and log deviations side by side."
AS_MANY = "As many numbers as the likelihood takes."


@MODELS.register
class VAE(Networked, Decoded, GaussianLatents):
    """p(x | z) and q(z | x) from two networks; ``log_weights`` and ``elbo_terms`` carry gradients
    to both.

    Arguments:
        visible: D.
        latent: M.
        likelihood: ``"bernoulli"``, ``"gaussian"``, ``"categorical"`` (with ``states``), or
            ``"mixed"`` with the ``laws`` of the columns, of which some may be missing.
        variance: Of Gaussian columns, learned: one for each ``"column"``, one ``"shared"`` by all,
            or for each ``"row"`` by the decoder.
        widths, activation: Of both networks, where none is given.
        image: (height, width) of a row: convolutions in place of perceptrons, with ``channels``
            from the image inwards.
        encoder: A network of :mod:`partita.nets`, or any module from what it sees of x to 2 M
            numbers: means and log deviations.
        decoder: The same from M numbers to what the likelihood takes: D log-odds or means, 2 D with
            ``variance="row"``, K D logits.
        generator: Source of the first weights.

    >>> g = torch.Generator().manual_seed(0)
    >>> model = VAE(12, 2, widths=(8,), generator=g)
    >>> x = model.draw(5, generator=g)
    >>> model.log_weights(x, 3, generator=g).shape, model.posterior(x).mean.shape
    (torch.Size([3, 5]), torch.Size([5, 2]))
    """

    examples = {
        "VAE, binary": {"visible": 20, "latent": 4, "widths": (16,)},
        "VAE, real": {"visible": 6, "latent": 2, "likelihood": "gaussian", "widths": (16,)},
        "VAE, mixed columns": {
            "visible": 3,
            "latent": 2,
            "likelihood": "mixed",
            "laws": ("real", "count", 3),
            "widths": (16,),
        },
    }
    capabilities = GaussianLatents.capabilities | {Capability.DOUBLY, Capability.LATENT_ENERGY}
    forward_methods = ("doubly_weighted",)
    networks = ("encoder", "decoder")
    unsaved = ("widths", "activation", "image", "channels")

    def __init__(
        self,
        visible: int,
        latent: PositiveInt,
        *,
        likelihood: str = "bernoulli",
        states: int | None = None,
        laws: Laws | None = None,
        variance: str = "column",
        widths: Sizes = (200, 200),
        activation: Activation = "tanh",
        image: Sequence[int] | None = None,
        channels: Sizes = (16, 32),
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.watch_latents(latent, generator.device)
        if isinstance(likelihood, str) and likelihood == "mixed":
            self.output: Output = MixedOutput(
                _check_laws(laws, visible), variance, device=generator.device
            )
            self.capabilities = self.capabilities | {Capability.MISSING}
        else:
            self.output = make_output(
                "VAE", likelihood, visible, states, variance, generator.device
            )
        self.support = self.output.support
        if encoder is None or decoder is None:
            made = self._networks(generator)
            encoder = made[0] if encoder is None else encoder
            decoder = made[1] if decoder is None else decoder
        self.encoder, self.decoder = encoder, decoder
        inputs, outputs = self.output.inputs, self.output.outputs
        check_maps("VAE", "encoder", encoder, inputs, 2 * latent, self.like, SIDE_BY_SIDE)
        check_maps("VAE", "decoder", decoder, latent, outputs, self.like, AS_MANY)

    def _networks(self, generator: Generator) -> tuple[nn.Module, nn.Module]:
        """Perceptrons, or convolutions where rows are images; the decoder mirrors the encoder."""
        made, output, M = self.arguments, self.output, self.latent
        image, widths, channels = made["image"], made["widths"], made["channels"]
        more: Settings = {"generator": generator}
        if image is None:
            more["activation"] = made["activation"]
            encoder = MLP(output.inputs, 2 * M, widths=widths, **more)
            return encoder, MLP(M, output.outputs, widths=widths[::-1], **more)
        depth = output.inputs // output.support.width
        encoder = ConvNet(image, 2 * M, depth=depth, channels=channels, **more)
        return encoder, ConvDecoder(M, image, depth=output.blocks, channels=channels[::-1], **more)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log deviations of q(z | x), ``(*, D) -> (*, M), (*, M)``."""
        check_width("VAE", "x", x, self.support.width, self.title())
        mean, log_scale = self.encoder(self.output.encode(x)).chunk(2, -1)
        return mean, log_scale

    def decode(self, z: Tensor) -> Tensor:
        return self.decoder(z)

    def posterior(self, x: Tensor) -> Distribution:
        return diagonal_normal(*self.encode(x))

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x | z), ``(*, D), (*, M) -> (*)``."""
        return self.output.log_prob(self.decoder(z), x).sum(-1)

    def log_joint(self, x: Tensor, z: Tensor) -> Tensor:
        return self.log_likelihood(x, z) + standard_log_prob(z)

    def log_terms(self, x: Tensor, z: Tensor) -> LogTerms:
        return LogTerms(
            self.log_likelihood(x, z), standard_log_prob(z), normal_log_prob(z, *self.encode(x))
        )

    @torch.no_grad()
    def draw_prior(self, x: Tensor, k: int, *, generator: Generator) -> Tensor:
        return rng.normal((k, len(x), self.latent), self.like, generator)

    def elbo_terms(self, x: Tensor, *, generator: Generator) -> tuple[Tensor, Tensor]:
        """log p(x | z) at one draw of z, ``(B,)``, and KL(q(z | x) || p(z)) of each dimension,
        exact, ``(B, M)``.
        """
        mean, log_scale = self.encode(x)
        z = draw_normal(mean, log_scale, generator)
        kl = kl_from_standard(mean, log_scale)
        self.watch(kl.mean(0))
        return self.log_likelihood(x, z), kl

    def log_weights(self, x: Tensor, k: int, *, generator: Generator) -> Tensor:
        z, mean, log_scale = self._watched_draws(x, k, generator)
        return self.log_joint(x, z) - normal_log_prob(z, mean, log_scale)

    def doubly_weighted(self, x: Tensor, k: int, *, generator: Generator) -> Tensor:
        """Log weights ``(k, B)`` that the encoder moves through the draws alone, each by its share
        of the weight once more (eq. 41.8).
        """
        z, mean, log_scale = self._watched_draws(x, k, generator)
        log_w = self.log_joint(x, z) - normal_log_prob(z, mean.detach(), log_scale.detach())
        if z.requires_grad:
            share = torch.softmax(log_w.detach(), 0)[..., None]
            z.register_hook(lambda slope: slope * share)
        return log_w

    def _watched_draws(
        self, x: Tensor, k: int, generator: Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """``k`` draws of z, and means and log deviations of what they are drawn from."""
        mean, log_scale = self.encode(x)
        self.watch(kl_from_standard(mean, log_scale).flatten(0, -2).mean(0))
        return draw_normal(mean, log_scale, generator, k), mean, log_scale

    @torch.no_grad()
    def kl_per_dimension(self, x: Tensor) -> Tensor:
        """KL(q(z | x) || p(z)) of each dimension, ``(*, D) -> (*, M)``."""
        return kl_from_standard(*self.encode(x))

    @torch.no_grad()
    def draw_joint(self, n: int, *, generator: Generator) -> tuple[Tensor, Tensor]:
        z = rng.normal((check_count("draw", "n", n), self.latent), self.like, generator)
        return rng.draw(self.output.distribution(self.decoder(z)), generator), z

    def title(self) -> str:
        return f"VAE({self.support.width}, {self.latent} latent, {self.arguments['likelihood']})"


def _check_laws(laws: Sequence[Law] | None, visible: int) -> Sequence[Law]:
    if laws is None or len(laws) != visible:
        raise invalid(
            "VAE", "laws", f"say what each of {visible} columns holds for likelihood='mixed'", laws
        )
    return laws
