"""Data of a user's own task on the Hub: owner/dataset, then @revision, then :config/split or :file; fetched once."""

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
        """The file, where the part names one."""
        return self.part if _suffix(self.part) else ""

    @property
    def config(self) -> str:
        named = "" if self.file else self.part.partition("/")[0]
        return "" if named in _NO_CONFIG else named

    @property
    def split(self) -> str:
        return "" if self.file else self.part.partition("/")[2]


def hub_data(name: str) -> HubData | None:
    """What a name means on the Hub; None where it can only be a file."""
    found = _ID.fullmatch(name)
    if not found or (_suffix(name) and not found["part"]):
        return None
    return HubData(found["name"], found["revision"] or "main", found["part"] or "")


def hub_file(data: HubData, role: str) -> Path:
    """The file of train or dev, fetched where it is not kept yet."""
    kept = cache_root() / "hub" / f"{data.name.replace('/', '--')}@{data.revision.replace('/', '-')}"
    stem = (data.part or role).replace("/", "--")
    if found := next((path for path in (kept / f"{stem}{s}" for s in ("", *_SUFFIXES)) if path.is_file()), None):
        return found
    if switch := hub.offline_switch():
        raise NetworkError(f"{data.name}: {switch} is set, so nothing is fetched; unset it, or name files of yours")
    revision, files = data.revision, [data.file] if data.file else _files(data, role, data.revision)
    if not files:
        revision, files = _CONVERTED, _files(data, role, _CONVERTED)
    if not files:
        wanted = data.split or " or ".join(_SPLITS[role])
        raise DataError(f"{data.name}: the Hub has no file of {wanted} in it; name one: {data.name}:path/of/file.csv")
    contents = [hub.fetched(_url(data.name, file, revision)) for file in files]
    target = kept / (stem if data.file else f"{stem}{_suffix(files[0])}")
    write_atomically(target, contents[0] if len(contents) == 1 else _joined(contents, data.name))
    return target


def _suffix(name: str) -> str:
    plain = name.casefold().removesuffix(".gz")
    return next((suffix for suffix in _SUFFIXES if plain.endswith(suffix)), "")


def _url(name: str, file: str, revision: str) -> str:
    import huggingface_hub

    made: str = huggingface_hub.hf_hub_url(name, file, repo_type="dataset", revision=revision, endpoint=hub.endpoint())
    return made


def _files(data: HubData, role: str, revision: str) -> list[str]:
    """The files of a split, in their order: the shards of one table, or one file."""
    listed = _listed(data.name, revision)
    for split in (data.split,) if data.split else _SPLITS[role]:
        if found := [file for file in listed if split in re.split(r"[/_.\-]+", file.casefold())]:
            return _one_table(_of_config(found, data, split), data)
    return listed if role == "train" and not data.part and len(listed) == 1 else []


def _listed(name: str, revision: str) -> list[str]:
    from huggingface_hub import constants

    address = f"{hub.endpoint() or constants.ENDPOINT}/api/datasets/{name}/revision/{revision.replace('/', '%2F')}"
    content = hub.fetched(address, missing_ok=revision == _CONVERTED)
    try:
        document: Any = json.loads(content or b'{"siblings": []}')
        names = sorted(entry["rfilename"] for entry in document["siblings"])
    except (ValueError, LookupError, TypeError):
        raise NetworkError(f"{address}: not the list of a dataset's files; check HF_ENDPOINT") from None
    return [file for file in names if _suffix(file)]


def _of_config(files: Sequence[str], data: HubData, split: str) -> list[str]:
    """The files of one config; a dataset that has several needs one named."""
    configs: dict[str, list[str]] = {}
    for file in files:
        folders = [part for part in file.split("/")[:-1] if part.casefold() != split]
        configs.setdefault(next((part for part in folders if part not in _NO_CONFIG), ""), []).append(file)
    if data.config and data.config not in configs:
        known = ", ".join(sorted(filter(None, configs))[:20]) or "none"
        raise DataError(f"{data.name}: no config {quote(data.config)} has {split}; there is {known}")
    if not data.config and len(configs) > 1:
        names = sorted(filter(None, configs))
        raise DataError(f"{data.name} has the configs {', '.join(names[:20])}; name one: {data.name}:{names[0]}")
    return configs[data.config] if data.config else next(iter(configs.values()))


def _one_table(files: Sequence[str], data: HubData) -> list[str]:
    """The files of the best format among them."""
    suffix = min((_suffix(file) for file in files), key=_SUFFIXES.index)
    found = [file for file in files if _suffix(file) == suffix]
    if len(found) > 1 and suffix != ".parquet":
        raise DataError(f"{data.name} has several files ({', '.join(found[:5])}); name one: {data.name}:{found[0]}")
    return found


def _joined(contents: Sequence[bytes], name: str) -> bytes:
    """The shards of a table as one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = io.BytesIO()
    try:
        tables = [pq.read_table(pa.BufferReader(content)) for content in contents]
        pq.write_table(pa.concat_tables(tables), whole)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name}: its parts do not make one table ({quote(str(error), 120)})") from None
    return whole.getvalue()
