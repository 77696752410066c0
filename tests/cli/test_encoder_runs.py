"""A folder with an encoder, which is no density: every command that needs one says so."""

from typing import Any

import numpy as np
import pytest

from partita.estimators import PrototypeEncoder


@pytest.mark.parametrize(
    "command", [("evaluate", "rows.npy"), ("report",), ("sample",), ("anomalies", "rows.npy")]
)
def test_an_encoder_is_no_density(command: tuple[str, ...], call: Any) -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    np.save("rows.npy", X)
    PrototypeEncoder(3, (2,), hidden=(4,), epochs=1, random_state=0).fit(X).save("encoder")
    printed = call(command[0], "encoder", *command[1:])
    assert printed.exit_code == 1 and "which embeds rows and scores none" in " ".join(
        printed.output.split()
    )
