"""``python -m partita``: the command line, as torchrun starts it."""

from partita.cli import main

main()
