"""Opening CSV tables that anybody wrote."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wattkeeper_predictor.errors import InvalidInput

_MOST_CHARACTERS = 1 << 30  # of one field: some hold a list of all requests


@contextmanager
def open_table(path: Path, delimiter: str = ",") -> Iterator[csv.DictReader[str]]:
    """The rows of a table with a header, for as long as the context lasts.

    A byte order mark is passed over, as spreadsheets write it. Raises ``InvalidInput`` naming the file if
    it isn't text in UTF-8 or no table.
    """
    csv.field_size_limit(_MOST_CHARACTERS)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield csv.DictReader(file, delimiter=delimiter)
    except UnicodeDecodeError as broken:
        where = f"{broken.reason} at byte {broken.start}"
        raise InvalidInput(path.name, f"isn't text in UTF-8 ({where}); save it as that") from broken
    except csv.Error as broken:
        raise InvalidInput(path.name, f"isn't a table ({broken}); mend the file") from broken
