"""Typed changes of valid files, archives and requests, for tests and bench/attack.py.

Each function starts from a valid object, changes one part of it and writes a valid container again. It returns the
new content and a description of the change. The same `random.Random` seed gives the same change.
"""

import datetime
import io
import json
import math
import random
import struct
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any

SECRET = "s3cr3t-5f2c-not-for-output"
"""Content of files outside a folder, and the API key: no command may print or store it."""
_DEEP = 99_999


class Raw(str):
    """JSON or TOML text that Python's own writers refuse."""


ODD_VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "zero": 0,
    "minus one": -1,
    "fraction": 0.5,
    "nan": math.nan,
    "infinity": -math.inf,
    "1e400": Raw("1e400"),
    "huge integer": 10**30,
    "400 digits": Raw("9" * 400),
    "5000 digits": Raw("9" * 5000),
    "empty text": "",
    "NUL": "a\0b",
    "control characters": "\x1b]0;title\x07\x1b[2Jx\r\nsecond line",
    "lone surrogate": "\ud800",
    "overlong": "긴" * 70_000,
    "markup": "<script>alert(1)</script>",
    "path outside": "../../outside/secret.txt",
    "absolute path": "/etc/passwd",
    "empty list": [],
    "empty object": {},
    "nested list": [[["가"]]],
    "mixed list": ["가", 1, None],
    "deep nesting": Raw("[" * _DEEP + "]" * _DEEP),
    "less deep nesting": Raw("[" * 700 + "]" * 700),
    "deep objects": Raw('{"a":' * 700 + "1" + "}" * 700),
}


def typed_changes(value: Any) -> dict[str, Any]:
    """Return changes that depend on the type of the old value, by name."""
    if isinstance(value, dict) and value:
        first = next(iter(value))
        text = dump_json(value)
        return {
            "repeated key": Raw(f"{text[:-1]}, {json.dumps(first)}: {dump_json(value[first])}}}"),
            "unknown key": {**value, "zzz": 1},
            "key with NUL": {**value, "\0": 1},
            "overlong key": {**value, "k" * 70_000: 1},
            "as pairs": [list(pair) for pair in value.items()],
        }
    if isinstance(value, list) and value:
        changes = {"first item": value[0], "repeated": value * 2, "reversed": value[::-1], "shortened": value[:-1]}
        return changes | {"10000 items": (value * 10_000)[:10_000]}
    if isinstance(value, bool) or value is None:
        return {"negated": not value, "as text": str(value)}
    if isinstance(value, int | float):
        return {"as text": str(value), "negative": -value - 1, "forged": value + 1, "times 1e9": value * 10**9}
    if isinstance(value, str):
        return {
            "as list": [value],
            "upper case": value.upper(),
            "forged": value + "x",
            "NUL at the end": value + "\0",
            "surrogate at the end": value + "\udc00",
            "line break": value + "\n" + value,
            "right-to-left": "\u202e" + value,
            "as number": len(value),
        }
    return {}


def change_document(document: Any, rng: random.Random) -> tuple[Any, str]:
    """Change one value of a document of dicts and lists: another type, an odd value, missing, renamed or repeated."""
    parents: list[tuple[Any, Any]] = []
    value = document
    while isinstance(value, dict | list) and value and rng.random() < (0.97 if not parents else 0.85):
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        parents.append((value, key))
        value = value[key]
    where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for _, key in parents) or "."
    changes: dict[str, Any] = {**ODD_VALUES, **typed_changes(value)}
    names = [*changes, *typed_changes(value), *(["missing", "renamed", "exchanged"] if parents else [])]
    name = rng.choice(names)
    what = f"{where[:120]}: {name}"
    if not parents:
        return changes[name], what
    container, key = parents[-1]
    changed: Any = dict(container) if isinstance(container, dict) else list(container)
    if name == "missing":
        del changed[key]
    elif name == "renamed" and isinstance(changed, dict):
        changed[f"{key} "] = changed.pop(key)
    elif name in ("renamed", "exchanged"):
        other = rng.choice(list(changed)) if isinstance(changed, dict) else rng.randrange(len(changed))
        changed[key], changed[other] = changed[other], changed[key]
    else:
        changed[key] = changes[name]
    for container, key in reversed(parents[:-1]):
        outer: Any = dict(container) if isinstance(container, dict) else list(container)
        outer[key] = changed
        changed = outer
    return changed, what


# Text formats


def dump_json(document: Any, indent: int | None = None) -> str:
    """Write JSON, with unchanged `Raw` parts."""
    raw: list[str] = []

    def without_raw(value: Any) -> Any:
        if isinstance(value, Raw):
            raw.append(value)
            return f"@raw {len(raw) - 1}@"
        if isinstance(value, dict):
            return {key: without_raw(item) for key, item in value.items()}
        return [without_raw(item) for item in value] if isinstance(value, list | tuple) else value

    text = json.dumps(without_raw(document), ensure_ascii=False, indent=indent)
    for number, part in enumerate(raw):
        text = text.replace(f'"@raw {number}@"', part)
    return text.replace("\ud800", r"\ud800").replace("\udc00", r"\udc00")


def dump_toml(document: Any) -> str:
    """Write TOML with one line per key; what TOML lacks becomes the nearest thing it has."""
    if not isinstance(document, dict):
        return f"value = {_toml_value(document)}\n"
    return "".join(f"{json.dumps(str(key))} = {_toml_value(value)}\n" for key, value in document.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, datetime.date | datetime.time):
        return "1979-05-27" if value is None else value.isoformat()
    return json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")


def change_json(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Change one value of a JSON file, or of one line of a JSON-lines file."""
    try:
        document, what = change_document(json.loads(content), rng)
        return _encode(dump_json(document, indent=1 if b"\n" in content.strip() else None)), what
    except ValueError:
        lines = [line for line in content.split(b"\n") if line.strip()]
    number = rng.randrange(len(lines))
    document, what = change_document(json.loads(lines[number]), rng)
    lines[number] = _encode(dump_json(document))
    return b"\n".join(lines) + b"\n", f"line {number + 1} {what}"


def change_toml(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Change one value of a TOML file."""
    import tomllib

    document, what = change_document(tomllib.loads(content.decode()), rng)
    return _encode(dump_toml(document)), what


def change_table(content: bytes, rng: random.Random, separator: str | None = None) -> tuple[bytes, str]:
    """Change one cell, row or column name of a CSV or TSV file."""
    lines = content.decode().split("\n")
    separator = separator or ("\t" if "\t" in content.decode() else ",")
    rows = [number for number, line in enumerate(lines) if separator in line]
    row = rng.choice([rows[0], rng.choice(rows)])
    cells: Any = lines[row].split(separator)
    cells, what = change_document(cells, rng)
    cells = cells if isinstance(cells, list) else [cells]
    plain = [cell if isinstance(cell, str) else dump_json(cell) for cell in cells]
    lines[row] = separator.join(cell.replace(_LONG_RAW, "[[") for cell in plain)
    return _encode("\n".join(lines)), f"row {row + 1} {what}"


_LONG_RAW = "[" * _DEEP


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# Tensors and arrays


def change_safetensors(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Change the header of a safetensors file, its length, or the numbers behind it."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    name, how = rng.choice(names), rng.randrange(8)
    entry = header[name]
    if how == 0:
        start, end = entry["data_offsets"]
        raw = {"F32": b"\x00\x00\xc0\x7f", "I64": b"\xff" * 8}.get(entry["dtype"], b"\xff\x7f")
        filled = (raw * (end - start))[: end - start]
        return content[: 8 + length + start] + filled + content[8 + length + end :], f"{name}: not a number"
    if how == 1:
        sizes = {"2**63": 2**63, "2**40": 2**40, "0": 0, "one more": length + 1, "1 GB": 10**9}
        size = rng.choice(list(sizes))
        return struct.pack("<Q", sizes[size]) + content[8:], f"header length {size}"
    if how == 2:
        entry["shape"] = rng.choice(([10**12], [2**62, 4], [], [-1], [0], [*entry["shape"], 1], entry["shape"][::-1]))
        what = f"{name}: shape {entry['shape']}"
    elif how == 3:
        entry["dtype"] = rng.choice(("F64", "I8", "BOOL", "F8_E4M3", "nonsense", "U64"))
        what = f"{name}: dtype {entry['dtype']}"
    elif how == 4:
        entry["data_offsets"] = rng.choice(([0, 4], [0, 2**60], [-4, 0], [len(data), len(data) * 2], [8, 4]))
        what = f"{name}: data_offsets {entry['data_offsets']}"
    elif how == 5:
        header["z" * 5000 if rng.random() < 0.5 else name + ".copy"] = header.pop(name)
        what = f"{name}: renamed"
    else:
        header, what = change_document(header, rng)
    text = _encode(dump_json(header))
    return struct.pack("<Q", len(text)) + text + data, what


def change_npz(content: bytes, rng: random.Random, tripwire: Path | None = None) -> tuple[bytes, str]:
    """Change one array of an npz file: its type, shape, numbers, name or header; or pickle an object into it."""
    import numpy as np

    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = dict(archive)
    name = rng.choice(list(arrays))
    array, entries = arrays[name], {key: _npy(value) for key, value in arrays.items()}
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (%s), }"
    changes: dict[str, Callable[[], bytes]] = {
        "not a number": lambda: _npy(np.full(array.shape, np.nan)),
        "infinite": lambda: _npy(np.full(array.shape, np.inf)),
        "as text": lambda: _npy(array.astype(str)),
        "as bytes": lambda: _npy(np.zeros(array.shape, "V8")),
        "complex": lambda: _npy(np.ones(array.shape, complex)),
        "dates": lambda: _npy(np.full(array.shape, 10**17, "datetime64[s]")),
        "empty": lambda: _npy(array.reshape(-1)[:0]),
        "one more dimension": lambda: _npy(array[None]),
        "shortened": lambda: _npy(array[:-1] if array.ndim else array),
        "negative": lambda: _npy(-np.ones(array.shape, int)),
        "2**62 items": lambda: _npy_header(header % "4611686018427387904,"),
        "1e11 items": lambda: _npy_header(header % "100000000000,"),
        "negative shape": lambda: _npy_header(header % "-5,"),
        "deep header": lambda: _npy_header("(" * 5000 + ")" * 5000),
        "pickle": lambda: _pickled_array(tripwire),
    }
    how = rng.choice([*changes, "missing", "renamed"])
    if how in changes:
        entries[name] = changes[how]()
    else:
        removed = entries.pop(name)
        entries |= {"../" + name: removed} if how == "renamed" else {}
    return write_zip({f"{key}.npy": value for key, value in entries.items()}), f"{name}: {how}"


def _npy(array: Any) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _npy_header(text: str) -> bytes:
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text) + 1) + text.encode() + b"\n" + bytes(64)


class _Touch:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def pickled(tripwire: Path | None) -> bytes:
    """Return a pickle that creates the tripwire file when it is loaded."""
    import pickle

    return pickle.dumps(_Touch(str(tripwire or "/nonexistent/tripwire")))


def _pickled_array(tripwire: Path | None) -> bytes:
    return _npy_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }")[:-64] + pickled(tripwire)


# Archives


def write_zip(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Write a zip; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = method
            archive.writestr(entry, content, compresslevel=1)
    return buffer.getvalue()


def change_bundle(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Change a bundle: a value of one file with the hashes made right again, or the zip around the files."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    if rng.random() < 0.25:
        return _change_zip(content, files, rng)
    name = rng.choice([*files, "manifest.json", "scores.json"])
    files[name], what = change_content(name, files[name], rng)
    if name != "manifest.json":
        manifest = json.loads(files["manifest.json"])
        manifest["files"] = {each: sha256(files[each]).hexdigest() for each in files if each != "manifest.json"}
        files["manifest.json"] = json.dumps(manifest, ensure_ascii=False).encode()
    return write_zip(files), f"{name} {what}"


def _change_zip(content: bytes, files: dict[str, bytes], rng: random.Random) -> tuple[bytes, str]:
    name = rng.choice(list(files))
    names = ("../evil.txt", "/tmp/evil.txt", "a" * 60_000, "a\\b", "", "predictions/", "\u202e.txt", name + " ")
    other, flipped = rng.choice(names), rng.randrange(len(content))
    directory = content.rindex(b"PK\x01\x02")  # the last entry of the central directory

    def patch(offset: int, value: bytes) -> bytes:
        return content[: directory + offset] + value + content[directory + offset + len(value) :]

    changes: dict[str, Callable[[], bytes]] = {
        f"extra file {other[:20]!r}": lambda: write_zip({**files, other: b"x"}),
        f"{name} renamed {other[:20]!r}": lambda: write_zip({(other if k == name else k): v for k, v in files.items()}),
        f"{name} missing": lambda: write_zip({key: value for key, value in files.items() if key != name}),
        "bzip2": lambda: write_zip(files, zipfile.ZIP_BZIP2),
        "lzma": lambda: write_zip(files, zipfile.ZIP_LZMA),
        "stored": lambda: write_zip(files, zipfile.ZIP_STORED),
        f"{name} padded by 100 MB": lambda: write_zip({**files, name: files[name] + b"\n" * 100_000_000}),
        "unknown method": lambda: patch(10, struct.pack("<H", 99)),
        "method lzma in name only": lambda: patch(10, struct.pack("<H", 14)),
        "encrypted flag": lambda: patch(8, struct.pack("<H", 1)),
        "wrong CRC": lambda: patch(16, b"abcd"),
        "smaller size stated": lambda: patch(24, struct.pack("<I", 1)),
        "4 GB size stated": lambda: patch(24, b"\xfe\xff\xff\xff"),
        "compressed size stated": lambda: patch(20, struct.pack("<I", 10**9)),
        "offset outside": lambda: patch(42, struct.pack("<I", 10**9)),
        "cut off": lambda: content[: rng.randrange(len(content))],
        "bytes before": lambda: b"#!/bin/sh\n" * 50 + content,
        "flipped byte": lambda: content[:flipped] + bytes([content[flipped] ^ 4]) + content[flipped + 1 :],
    }
    what = rng.choice(list(changes))
    return changes[what](), f"zip: {what}"


# Parquet


def change_parquet(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Change one column of a parquet file: its type, values or name; or the note of the Hub's libraries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(io.BytesIO(content)).read(use_threads=False)
    count, number = table.num_rows, rng.randrange(table.num_columns)
    name = table.column_names[number]
    values = table.column(number).to_pylist()
    deep: Any = pa.int8()
    for _ in range(150):
        deep = pa.list_(deep)
    largest = 2**31 - 1
    columns: dict[str, Callable[[], Any]] = {
        "date32 out of range": lambda: pa.array([largest] * count, pa.int32()).cast(pa.date32()),
        "date64 out of range": lambda: pa.array([2**62 // 86400000 * 86400000] * count, pa.int64()).cast(pa.date64()),
        "timestamp out of range": lambda: pa.array([2**62] * count, pa.timestamp("us")),
        "timestamp of an unknown zone": lambda: pa.array([0] * count, pa.timestamp("us", "No/Where")),
        "nanoseconds": lambda: pa.array([1] * count, pa.timestamp("ns")),
        "time": lambda: pa.array([1] * count, pa.time64("ns")),
        "duration": lambda: pa.array([2**62] * count, pa.duration("ms")),
        "decimal": lambda: pa.array([10**37] * count, pa.decimal256(76, 2)),
        "not a number": lambda: pa.array([math.nan] * count),
        "negative": lambda: pa.array([-1] * count),
        "2**64 - 1": lambda: pa.array([2**64 - 1] * count, pa.uint64()),
        "true": lambda: pa.array([True] * count),
        "nulls": lambda: pa.nulls(count),
        "one null": lambda: pa.array([None, *values[1:]], table.schema.field(number).type),
        "bytes": lambda: pa.array([b"\xff\xfe"] * count, pa.binary()),
        "invalid UTF-8": lambda: pa.array([b"\xff\xfe"] * count, pa.binary()).view(pa.string()),
        "NUL": lambda: pa.array(["a\0b"] * count),
        "control characters": lambda: pa.array(["\x1b[2J\r\n"] * count),
        "overlong": lambda: pa.array(["긴" * 300_000] * count),
        "large text": lambda: pa.array([str(value) for value in values], pa.large_string()),
        "dictionary": lambda: pa.array([str(value) for value in values]).dictionary_encode(),
        "empty lists": lambda: pa.array([[]] * count, pa.list_(pa.string())),
        "object": lambda: pa.array([{"a": 1}] * count),
        "map": lambda: pa.array([[("a", 1)]] * count, pa.map_(pa.string(), pa.int64())),
        "150 nested lists": lambda: pa.nulls(count, deep),
        "in a list": lambda: pa.array([[value] for value in values]),
    }
    how = rng.choice([*columns, "missing", "renamed", "repeated", "no rows", "note", "note", "other compression"])
    metadata = table.schema.metadata or {}
    if how in columns:
        table = table.set_column(number, name, columns[how]())
    elif how == "missing":
        table = table.remove_column(number)
    elif how == "renamed":
        names = list(table.column_names)
        names[number] = rng.choice(("", "a\0b", "n" * 70_000, name.upper(), "\x1b[2J"))
        table = table.rename_columns(names)
    elif how == "repeated":
        table = table.append_column(name, table.column(number))
    elif how == "no rows":
        table = table.slice(0, 0)
    elif how == "note":
        label = {"feature": {"names": ["가", "나"], "_type": "ClassLabel"}, "_type": "Sequence"}
        feature = rng.choice((label, label["feature"], {"dtype": "string", "_type": "Value"}))
        note, what = change_document({"info": {"features": {name: feature}}}, rng)
        table = table.replace_schema_metadata({**metadata, b"huggingface": _encode(dump_json(note))})
        how = f"note {what}"
    buffer = io.BytesIO()
    compression = rng.choice(("zstd", "gzip", "brotli", "lz4")) if how == "other compression" else "snappy"
    pq.write_table(table, buffer, compression=compression)
    return buffer.getvalue(), f"column {name}: {how}"


# Files of a folder


def change_content(name: str, content: bytes, rng: random.Random, tripwire: Path | None = None) -> tuple[bytes, str]:
    """Change a file by its type, which its name states."""
    suffix = PurePath(name).suffix
    if suffix == ".npz":
        return change_npz(content, rng, tripwire)
    if change := CHANGES.get(suffix):
        return change(content, rng)
    texts = {key: value for key, value in ODD_VALUES.items() if isinstance(value, str)}
    how = rng.choice(list(texts))
    return _encode(texts[how]), f"content: {how}"


CHANGES = {
    **dict.fromkeys((".json", ".jsonl"), change_json),
    **dict.fromkeys((".csv", ".tsv"), change_table),
    ".toml": change_toml,
    ".safetensors": change_safetensors,
    ".parquet": change_parquet,
    ".zip": change_bundle,
}


def change_folder(folder: Path, outside: Path, rng: random.Random, links: float = 0.15) -> str:
    """Change one file of a folder in place, or (with probability `links`) link it to a file outside."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    groups = sorted({path.parent for path in paths})
    group = rng.choice(groups)
    path = rng.choice([path for path in paths if path.parent == group])
    name = path.relative_to(folder).as_posix()
    content = path.read_bytes()
    if rng.random() < links:
        target = outside / f"secret{path.suffix}"
        target.write_bytes(_with_secret(path.suffix, content))
        path.unlink()
        path.symlink_to(target)
        return f"{name}: link that leaves the folder"
    changed, what = change_content(name, content, rng, outside / "tripwire")
    path.write_bytes(changed)
    return f"{name} {what}"


def _with_secret(suffix: str, content: bytes) -> bytes:
    """Return the same document with the secret in each of its texts, or the secret alone."""

    def marked(value: Any, depth: int = 0) -> Any:
        if isinstance(value, dict):
            return {key: marked(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [marked(item, depth + 1) for item in value]
        return f"{value} {SECRET}" if isinstance(value, str) and depth > 1 else value

    try:
        if suffix == ".json":
            return dump_json(marked(json.loads(content), 1)).encode()
        if suffix == ".jsonl":
            return b"\n".join(dump_json(marked(json.loads(line), 1)).encode() for line in content.splitlines())
    except ValueError:
        pass
    return content + f"\n# {SECRET}\n".encode() if suffix == ".toml" else f"{SECRET}\n".encode()


# HTTP


ODD_METHODS = ("HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "get", "X" * 9000, "POST", "GET")
ODD_TARGETS = (
    "/..%2f..%2fetc/passwd", "/%00", "/%ff%fe", "/" + "a" * 60_000, "//", "/%2e%2e/", "*", "/\x7f",
    "http://evil.example/",
)  # fmt: skip
ODD_QUERIES = (
    "9" * 5000, "-1", "0", "1e9", "٣", "²", "%00", "%ff", "%ed%a0%80", "a" * 50_000, "", "nan", "[]", "..%2f..",
)  # fmt: skip
ODD_HEADERS = (
    ("Host", "evil.example"), ("Host", ""), ("Host", "HOST\0"), ("Host", "[::1"), ("Host", "HOST:99999"),
    ("Content-Type", "text/plain"), ("Content-Type", "application/json; charset=zz"), ("Content-Type", ""),
    ("Origin", "http://evil.example"), ("Cookie", "a=b; " * 5000), ("Authorization", "Bearer " + "é" * 50),
    ("If-None-Match", "*" * 9000), ("Upgrade", "websocket"), ("Connection", "upgrade, close"),
    ("Expect", "100-continue"), ("X-" + "a" * 9000, "1"), ("Range", "bytes=0-0"),
    ("Accept-Encoding", "\xff\xfe"), ("X-Forwarded-For", "\x01"),
)  # fmt: skip
ODD_LENGTHS = ("0", "-1", "9" * 30, "1e3", "abc", "1, 2", str(10**9), "+5", "")
ODD_CHUNKS = (b"ffffffffffffffff\r\nx", b"-1\r\nx\r\n", b"zz\r\n", b"5;" + b"a" * 70_000 + b"\r\nhello\r\n0\r\n\r\n")
ODD_TEXTS = ("\u0301" * 100_000, "가" * 300_000, "\u1112\u1161" * 50_000, " " * 900_000, "9" * 900_000)
ODD_BODIES = (*(json.dumps(text, ensure_ascii=False).encode() for text in ODD_TEXTS), b"", b"\xff\xfe", b"[" * 500_000)
ODD_BODIES += (b'"', bytes(100))


def change_request(
    method: str, target: str, headers: list[tuple[str, str]], body: bytes, rng: random.Random
) -> tuple[bytes, str]:
    """Change one part of an HTTP request and write it as bytes: method, target, query, headers, length or body."""
    how = rng.choice(("method", "target", "query", "header", "length", "body", "body", "body", "encoding"))
    headers, length, what = list(headers), None, ""
    if how == "method":
        method = what = rng.choice(ODD_METHODS)
    elif how == "target":
        changed = (target + end for end in ("/", "%0d%0aX: y", ".json", "%ed%a0%80"))
        target = rng.choice((*ODD_TARGETS, *changed, target.upper()))
        what = target[:40]
    elif how == "query":
        key = rng.choice(("page", "q", "task", "run", "tags", "text", "token", "%00", ""))
        value = rng.choice(ODD_QUERIES)
        query = rng.choice((f"{key}={value}", f"{key}={value}&{key}={value}", f"{key}" * 3))
        target, what = f"{target}{'&' if '?' in target else '?'}{query}", f"{key}={value[:20]}"
    elif how == "header":
        name, value = rng.choice(ODD_HEADERS)
        value = value.replace("HOST", dict(headers).get("Host", "127.0.0.1"))
        count = rng.choice((1, 1, 2, 3000))
        headers = [*[each for each in headers if each[0] != name], *[(name, value)] * count]
        what = f"{count} × {name[:20]}: {value[:20]!r}"
    elif how == "length":
        length = what = rng.choice((str(len(body) + 10), *ODD_LENGTHS))
    elif how == "encoding":
        body = rng.choice((b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), *ODD_CHUNKS))
        headers, length, what = [*headers, ("Transfer-Encoding", "chunked")], "none", repr(body[:20])
    elif body:
        document, what = change_document(json.loads(body), rng)
        body = _encode(dump_json(document))
    if how == "body" and (not body or rng.random() < 0.15):
        body = rng.choice(ODD_BODIES)
        what = repr(body[:20].decode(errors="replace"))
    if length != "none" and (body or length):
        headers.append(("Content-Length", str(len(body)) if length is None else length))
    head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    return head.encode("latin-1", "replace") + body, f"{how}: {what}"
