"""Models made of networks, which a saved run rebuilds from their descriptions."""

from typing import ClassVar, Self

from torch import Generator

from partita.core.protocols import Model, Settings
from partita.nets import build, describe


class Networked(Model):
    """A model whose constructor takes networks, each held in an attribute of the same name."""

    networks: ClassVar[tuple[str, ...]] = ("net",)

    def settings(self) -> Settings:
        made = {name: describe(getattr(self, name)) for name in self.networks}
        return {**super().settings(), **made}

    @classmethod
    def from_settings(cls, settings: Settings, *, generator: Generator) -> Self:
        made = {
            name: build(settings[name], cls.__name__, generator=generator) for name in cls.networks
        }
        return super().from_settings({**settings, **made}, generator=generator)
