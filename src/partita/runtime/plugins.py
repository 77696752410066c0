"""Packages that are installed beside partita and add to it."""

import warnings
from functools import cache
from importlib.metadata import EntryPoints, entry_points

from partita.errors import PartitaWarning

PLUGINS = "partita.plugins"  # the group of entry points, each a module that registers what it has


def installed_plugins() -> EntryPoints:
    """Their entry points; nothing is imported."""
    return entry_points(group=PLUGINS)


@cache
def load_plugins() -> None:
    """Import every installed plugin, once; one that cannot be imported is a warning."""
    for plugin in installed_plugins():
        try:
            plugin.load()
        except Exception as error:  # whatever a module of others raises
            text = f"plugin {plugin.name!r} ({plugin.value}) cannot be imported: {error}"
            warnings.warn(text, PartitaWarning, stacklevel=2)
