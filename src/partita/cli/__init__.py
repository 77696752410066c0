"""The command line, ``partita``; nothing heavy is imported before a command needs it."""

import signal
import sys
import threading

# set by Ctrl-C: a library that is being imported may swallow the exception
INTERRUPTED = threading.Event()


def main() -> None:
    """Run the command line: exit code 0 is fine, 1 an error of partita in one sentence, 2 wrong
    usage, 130 Ctrl-C.
    """
    # not where Ctrl-C is ignored, as under nohup
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from partita.cli.app import app
    except KeyboardInterrupt:  # before there are commands, which say so themselves
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    app(prog_name="partita")


def _interrupt(number: int, frame: object) -> None:
    INTERRUPTED.set()
    raise KeyboardInterrupt
