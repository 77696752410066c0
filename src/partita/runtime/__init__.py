"""What an operating system makes necessary: files, memory, time, processes, compiled code. It knows
nothing of models.
"""

PLUGINS = "partita.plugins"  # the group of entry points, each a module that registers what it has
