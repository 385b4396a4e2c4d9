"""Read the rows of a user's file as a stream (CSV, TSV, JSON, parquet, CoNLL), and fetch such a file from the Hub."""

import csv
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from danseo import hub
from danseo.errors import DataError, NetworkError
from danseo.files import cache_root, open_text, parse_json, quote, write_atomically
from danseo.language import _
from danseo.rows import Row, read_parquet
from danseo.tasks.custom.annotations import AnnotationStats, Layout, merge_annotations, read_brat
from danseo.tasktypes.description import TaskDescription

_MAX_FIELD = 1 << 24  # characters


def get_suffix(path: Path) -> str:
    """Return the suffix that names the format: .tsv of ratings.tsv.gz."""
    return Path(path.name.removesuffix(".gz")).suffix.casefold()


def read_table(path: Path, description: TaskDescription, stats: AnnotationStats | None = None) -> Iterator[Row]:
    """Yield the records of a file; in the export of an annotation tool, all annotations of a text are one record."""
    if not description.format:
        return read_plain_table(path, description)
    keeps_rejected = description.format == "prodigy" and description.label == "answer"
    text = "" if description.format == "brat" else description.text
    layout = Layout(description.format, text, description.offsets, keep_rejected=keeps_rejected)
    if description.format == "brat":
        return read_brat(path, layout)
    return merge_annotations(read_plain_table(path, description), layout, stats)


def read_plain_table(path: Path, description: TaskDescription) -> Iterator[Row]:
    """Yield every record of a file unchanged."""
    suffix, remedy = get_suffix(path), _("correct the column names in {name}.toml").format(name=description.name)
    if suffix == ".parquet":
        records: Iterator[tuple[int, Any]] = enumerate(read_parquet(path), 1)
        word = "row"
    elif suffix == ".json":
        records, word = _read_json(path, description), "row"
    else:
        records, word = (
            (_read_json_lines if suffix in (".jsonl", ".ndjson") else _read_separated)(path, description),
            "line",
        )
    for number, values in records:
        where = f"{path}, {word} {number}"
        if not isinstance(values, dict):
            raise DataError(f"{where}: should be an object with named fields, not {quote(values)}")
        yield Row(values, where, f"it has {', '.join(list(map(str, values))[:12])}; {remedy}")


def open_data_file(path: Path, description: TaskDescription) -> AbstractContextManager[TextIO]:
    """Open a data file as text; its encoding is detected unless the task file names another than UTF-8."""
    is_default = description.encoding.casefold() in ("utf-8", "utf8")
    return open_text(path, "" if is_default else description.encoding)


def _read_separated(path: Path, description: TaskDescription) -> Iterator[tuple[int, dict[str, Any]]]:
    separator = description.separator or ("," if get_suffix(path) == ".csv" else "\t")
    quotes = description.quotes if description.quotes is not None else separator != "\t"
    csv.field_size_limit(min(_MAX_FIELD, sys.maxsize))
    with open_data_file(path, description) as text:
        lines = csv.reader(
            text, delimiter=separator, quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE, strict=quotes
        )
        yield from _name_columns(_number_rows(lines, path), path, description)


def _number_rows(lines: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with their first line number: quoted fields may contain line breaks."""
    start = 1
    try:
        for fields in lines:
            yield start, fields
            start = lines.line_num + 1
    except csv.Error as error:
        problem = "a quotation mark is never closed" if "end of data" in str(error) else str(error)
        remedy = "correct the quotes, or write quotes = false in the task file"
        raise DataError(f"{path}, line {start}: {problem}; {remedy}") from None


def _name_columns(
    rows: Iterator[tuple[int, list[str]]], path: Path, description: TaskDescription
) -> Iterator[tuple[int, dict[str, Any]]]:
    names: list[str] | None = None
    for number, fields in rows:
        if not any(field.strip() for field in fields):
            continue
        if names is None:
            names = fields if description.header else [str(position) for position in range(1, len(fields) + 1)]
            if len(set(names)) < len(names):
                raise DataError(f"{path}, line 1: two columns have the same name; rename one, or write header = false")
            if description.header:
                continue
        if len(fields) != len(names):
            remedy = _("correct the line, or separator or quotes in the task file")
            raise DataError(
                _("{path}, line {number}: {n} fields instead of {expected}; {remedy}").format(
                    path=path, number=number, n=len(fields), expected=len(names), remedy=remedy
                )
            )
        yield number, dict(zip(names, fields, strict=True))


def _read_json_lines(path: Path, description: TaskDescription) -> Iterator[tuple[int, Any]]:
    with open_data_file(path, description) as text:
        for number, line in enumerate(text, 1):
            if line.strip():
                yield number, parse_json(line, path, number, "correct the line")


def _read_json(path: Path, description: TaskDescription) -> Iterator[tuple[int, Any]]:
    """Yield the objects of a list, or of the first list in an object, such as data."""
    with open_data_file(path, description) as text:
        try:
            document = json.load(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"{path}: not JSON ({quote(str(error))}); for JSON lines name the file .jsonl") from None
    if isinstance(document, dict):
        document = next((value for value in document.values() if isinstance(value, list)), document)
    if not isinstance(document, list):
        raise DataError(f"{path}: expected a list of objects; write one object per line and name the file .jsonl")
    yield from enumerate(document, 1)


def read_conll(
    path: Path, description: TaskDescription
) -> Iterator[tuple[int, list[str], list[tuple[int, list[str]]]]]:
    """Yield the sentences of a CoNLL file: first line number, comments, numbered lines of fields."""
    comments: list[str] = []
    lines: list[tuple[int, list[str]]] = []
    with open_data_file(path, description) as text:
        for number, line in enumerate(text, 1):
            line = line.rstrip("\r\n")
            if not line.strip() or line.startswith("-DOCSTART-"):
                if lines:
                    yield lines[0][0], comments, lines
                comments, lines = [], []
            elif not lines and line.startswith("#") and "\t" not in line:
                comments.append(line)
            else:
                lines.append((number, line.split("\t") if "\t" in line else line.split(" ")))
    if lines:
        yield lines[0][0], comments, lines


_ID = re.compile(r"(?P<name>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?(:(?P<part>[^:@]+))?")
_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".conllu", ".conll", ".txt")
_SPLITS = {"train": ("train",), "dev": ("validation", "valid", "val", "dev", "test")}
_CONVERTED = "refs/convert/parquet"  # where the Hub keeps every public dataset as parquet
_NO_CONFIG = ("data", "default")


@dataclass(frozen=True)
class HubData:
    """A dataset of the Hub, or a part of it."""

    name: str
    revision: str = "main"
    part: str = ""

    @property
    def file(self) -> str:
        """The file, if the part names one."""
        return self.part if _get_suffix(self.part) else ""

    @property
    def config(self) -> str:
        named = "" if self.file else self.part.partition("/")[0]
        return "" if named in _NO_CONFIG else named

    @property
    def split(self) -> str:
        return "" if self.file else self.part.partition("/")[2]


def parse_hub_name(name: str) -> HubData | None:
    """Return the dataset that a name means on the Hub; None if it can only be a file."""
    match = _ID.fullmatch(name)
    if not match or (_get_suffix(name) and not match["part"]):
        return None
    return HubData(match["name"], match["revision"] or "main", match["part"] or "")


def fetch_hub_file(data: HubData, role: str) -> Path:
    """Return the cached file of train or dev; fetch it if it is not cached."""
    cache = cache_root() / "hub" / f"{data.name.replace('/', '--')}@{data.revision.replace('/', '-')}"
    stem = (data.part or role).replace("/", "--")
    if cached := next((path for path in (cache / f"{stem}{s}" for s in ("", *_SUFFIXES)) if path.is_file()), None):
        return cached
    if switch := hub.find_offline_switch():
        raise NetworkError(f"{data.name}: {switch} is set, so nothing is fetched; unset it, or name local files")
    revision, files = data.revision, [data.file] if data.file else _list_split(data, role, data.revision)
    if not files:
        revision, files = _CONVERTED, _list_split(data, role, _CONVERTED)
    if not files:
        wanted = data.split or " or ".join(_SPLITS[role])
        raise DataError(f"{data.name}: the dataset has no file of {wanted}; name one: {data.name}:path/of/file.csv")
    contents = [hub.fetch_file(_url(data.name, file, revision)) for file in files]
    target = cache / (stem if data.file else f"{stem}{_get_suffix(files[0])}")
    write_atomically(target, contents[0] if len(contents) == 1 else _join_shards(contents, data.name))
    return target


def _get_suffix(name: str) -> str:
    plain = name.casefold().removesuffix(".gz")
    return next((suffix for suffix in _SUFFIXES if plain.endswith(suffix)), "")


def _url(name: str, file: str, revision: str) -> str:
    import huggingface_hub

    url: str = huggingface_hub.hf_hub_url(
        name, file, repo_type="dataset", revision=revision, endpoint=hub.get_endpoint()
    )
    return url


def _list_split(data: HubData, role: str, revision: str) -> list[str]:
    """Return the files of a split in order: the shards of one table, or one file."""
    files = _list_files(data.name, revision)
    for split in (data.split,) if data.split else _SPLITS[role]:
        if matches := [file for file in files if split in re.split(r"[/_.\-]+", file.casefold())]:
            return _select_table(_select_config(matches, data, split), data)
    return files if role == "train" and not data.part and len(files) == 1 else []


def _list_files(name: str, revision: str) -> list[str]:
    from huggingface_hub import constants

    address = f"{hub.get_endpoint() or constants.ENDPOINT}/api/datasets/{name}/revision/{revision.replace('/', '%2F')}"
    content = hub.fetch_file(address, missing_ok=revision == _CONVERTED)
    try:
        document: Any = json.loads(content or b'{"siblings": []}')
        names = sorted(entry["rfilename"] for entry in document["siblings"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise NetworkError(f"{address}: not the list of a dataset's files; check HF_ENDPOINT") from None
    return [file for file in names if _get_suffix(file)]


def _select_config(files: Sequence[str], data: HubData, split: str) -> list[str]:
    """Return the files of the named config, or of the only one."""
    configs: dict[str, list[str]] = {}
    for file in files:
        folders = [part for part in file.split("/")[:-1] if part.casefold() != split]
        configs.setdefault(next((part for part in folders if part not in _NO_CONFIG), ""), []).append(file)
    if data.config and data.config not in configs:
        known = ", ".join(sorted(filter(None, configs))[:20]) or "none"
        raise DataError(f"{data.name}: no config {quote(data.config)} has {split}; it has {known}")
    if not data.config and len(configs) > 1:
        names = sorted(filter(None, configs))
        raise DataError(f"{data.name} has the configs {', '.join(names[:20])}; name one: {data.name}:{names[0]}")
    return configs[data.config] if data.config else next(iter(configs.values()))


def _select_table(files: Sequence[str], data: HubData) -> list[str]:
    """Return the files in the format that comes first in _SUFFIXES."""
    suffix = min((_get_suffix(file) for file in files), key=_SUFFIXES.index)
    table = [file for file in files if _get_suffix(file) == suffix]
    if len(table) > 1 and suffix != ".parquet":
        raise DataError(f"{data.name} has several files ({', '.join(table[:5])}); name one: {data.name}:{table[0]}")
    return table


def _join_shards(contents: Sequence[bytes], name: str) -> bytes:
    """Return the shards of a parquet table as one file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    joined = io.BytesIO()
    try:
        tables = [pq.read_table(pa.BufferReader(content)) for content in contents]
        pq.write_table(pa.concat_tables(tables), joined)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{name}: its parquet files are not one table ({quote(str(error), 120)}); name one of them"
        ) from None
    return joined.getvalue()
