"""Fetch data of custom tasks from the Hub: owner/dataset[@revision][:config/split or :file]; it is cached."""

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo import hub
from danseo.errors import DataError, NetworkError
from danseo.files import cache_root, quote, write_atomically

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
