"""A user's CSV as lines of JSON objects, row by row as they come."""

import csv
import json
from collections.abc import Iterator, Sequence

from danseo.data.lines import BadLine, Numbered, decoded
from danseo.errors import DataError


class CsvLines:
    """Rows under a header; a quoted cell may hold line ends, so a row may take several lines."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.separator = ","
        self.begun: list[str] = []
        self.start = 0
        self.quotes = 0
        self.count = 0

    def rows(self, group: Sequence[Numbered]) -> Iterator[Numbered | BadLine]:
        """The rows that are whole by now, each as a JSON object under the number of its first line."""
        for number, line in group:
            try:
                text = decoded(line, number).rstrip("\r")
            except DataError as error:
                yield BadLine(number, str(error))
                continue
            if not self.begun:
                self.start = number
            self.begun.append(text)
            self.quotes += text.count('"')
            if self.quotes % 2 == 0:
                yield from self._row("\n".join(self.begun))
                self.begun, self.quotes = [], 0

    def _row(self, text: str) -> Iterator[Numbered | BadLine]:
        if not text.strip():
            return
        if not self.columns:
            self._head(text)
            return
        self.count += 1
        cells = next(csv.reader([text], delimiter=self.separator))
        if len(cells) != len(self.columns):
            yield BadLine(self.start, f"line {self.start}: {len(cells)} cells under {len(self.columns)} columns")
            return
        found = {column: _value(cell) for column, cell in zip(self.columns, cells, strict=True)}
        if not {"guid", "id"} & found.keys():
            found["guid"] = str(self.count)  # as a task file numbers the same rows
        yield self.start, json.dumps(found, ensure_ascii=False).encode()

    def _head(self, text: str) -> None:
        counts = {separator: text.count(separator) for separator in (",", "\t", ";")}
        self.separator = max(counts, key=lambda separator: counts[separator])
        columns = [cell.strip() for cell in next(csv.reader([text], delimiter=self.separator))]
        if len(set(columns)) < len(columns) or not all(columns):
            raise DataError(f"line {self.start}: the header names a column twice or not at all; mend it")
        self.columns = columns

    def rest(self) -> list[BadLine]:
        """A row whose quotation never ends."""
        return [BadLine(self.start, f"line {self.start}: a quotation mark is never closed")] if self.begun else []


def _value(cell: str) -> object:
    """The text of a cell; an object or a list of texts or objects where it is one in JSON."""
    if cell.startswith(("{", "[{", '["')):
        try:
            return json.loads(cell)
        except ValueError:
            return cell
    return cell
