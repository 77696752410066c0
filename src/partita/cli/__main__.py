"""``python -m partita.cli``: the command line without its script."""

from partita.cli import main

main()
