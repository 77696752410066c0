"""Whose words a problem with a table is told in: those of the command line, or those of a call in
Python.
"""


class Voice(str):
    """The owner of a sentence, and what it calls the table, what was fitted, and a column that is
    to be read otherwise.

    >>> voice = Voice("fit")
    >>> f"{voice}: {voice.data} may be read with {voice.reading('age', 'count')}."
    "fit: DATA may be read with --column 'age'=count."
    """

    data, fitted, columns = "DATA", "run", "--column"

    def reading(self, name: str, kind: str) -> str:
        """How a column is said to be of a kind."""
        return f"--column {name!r}={kind}"


class PythonVoice(Voice):
    """The same in a call.

    >>> PythonVoice("fit").reading("age", "count")
    "columns={'age': 'count'}"
    """

    data, fitted, columns = "X", "fit", "columns"

    def reading(self, name: str, kind: str) -> str:
        """How a column is said to be of a kind."""
        return f"columns={{{name!r}: {kind!r}}}"
