"""The command line, ``partita``; nothing heavy is imported before a command needs it."""

import sys


def main() -> None:
    """Run the command line: exit code 0 is fine, 1 an error of partita in one sentence, 2 wrong usage, 130 Ctrl-C."""
    try:
        from partita.cli.app import app
    except KeyboardInterrupt:  # before there are commands, which say so themselves
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    app(prog_name="partita")
