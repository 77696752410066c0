"""What the guard met along the fit: divergences, dead units, stuck chains, collapsed posteriors,
and what was done about each.
"""

from collections.abc import Iterator

from partita.report.blocks import Block, Table, Text
from partita.report.context import Subject
from partita.training import Run

SHOWN = 100  # a fit that met more has its metrics.jsonl


def events(subject: Subject) -> Iterator[Block]:
    """Nothing where the fit went smoothly."""
    rows = event_rows(subject.run)
    if not rows:
        return
    back = sum(done.startswith("went back") for _, _, done in rows)
    times = "once" if back == 1 else f"{back} times"
    if back:
        yield Text(
            f"The guard took the fit back {times} to where it was well, to go on with half the "
            "learning rate."
        )
    else:
        yield Text("The guard met something that a reader should know.")
    caption = "Dotted lines in the learning curves are at these steps."
    if len(rows) > SHOWN:
        caption = f"The first {SHOWN} of {len(rows)}."
    yield Table(rows[:SHOWN], ("step", "what was found", "what was done"), caption)


def event_rows(run: Run) -> list[tuple[str, str, str]]:
    """Step, what was found and what was done, of each event in the records."""
    return [
        (f"{record['step']:,}", str(record["event"]), str(record.get("done", "")))
        for record in run.history
        if "event" in record
    ]
