"""The command line, ``partita``; nothing heavy is imported before a command needs it."""


def main() -> None:
    """Run the command line: exit code 0 is fine, 1 an error of partita in one sentence, 2 wrong usage, 130 Ctrl-C."""
    from partita.cli.app import app

    app(prog_name="partita")
