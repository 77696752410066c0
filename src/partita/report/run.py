"""The page about a run: its sections in order, each there only where it has something to say."""

from collections.abc import Callable, Iterator
from pathlib import Path

from partita.errors import PartitaError
from partita.report.blocks import Block, Section, Text
from partita.report.context import Subject
from partita.report.page import write_page
from partita.report.sections import (
    about,
    annealing,
    chains,
    curves,
    density,
    events,
    imputation,
    meaning,
    parts,
    samples,
    score,
)

Maker = Callable[[Subject], Iterator[Block]]

SECTIONS: dict[str, Maker] = {
    "Score": score.likelihood,
    "What the number means": meaning.score_meaning,
    "Learning curves": curves.learning,
    "Events": events.events,
    "Samples beside data": samples.samples,
    "Density": density.density,
    "What the model is made of": parts.parts,
    "Chain diagnostics": chains.chains,
    "Annealing path": annealing.annealing_path,
    "Missing values": imputation.imputation,
    "Data": about.data_card,
    "Configuration": about.configuration,
    "Make it again": about.reproduction,
}


def write_run(subject: Subject, path: Path) -> Path:
    """Write the page about a run."""
    return write_page(path, *titles(subject), sections(subject))


def titles(subject: Subject) -> tuple[str, str]:
    """What stands on top: the family and its data; below, the model and how its fit ended."""
    run, data = subject.run, subject.data.get("name", "data handed over in Python")
    family = (run.config.get("family") or {}).get("name", type(run.model).__name__)
    return (
        f"{family} on {data}",
        f"{run.model.title()}, {run.stopped} after {run.steps:,} steps. Folder {run.folder}.",
    )


def sections(subject: Subject, makers: dict[str, Maker] = SECTIONS) -> list[Section]:
    """Those that have something to say; one that cannot be made says why."""
    made = [Section(title, blocks_of(maker, subject)) for title, maker in makers.items()]
    return [section for section in made if section.blocks]


def blocks_of(maker: Maker, subject: Subject) -> list[Block]:
    """What a maker yields; a part that cannot be made becomes a sentence that says why."""
    blocks: list[Block] = []
    try:
        blocks.extend(maker(subject))
    except PartitaError as error:
        blocks.append(Text(f"This part could not be made: {error}", "warning"))
    return blocks
