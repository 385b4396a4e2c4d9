"""Short and unique names of models."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_UNTELLING = re.compile(r"(model|best|last|latest|final|checkpoint|step|epoch)?[-_]?\d*", re.IGNORECASE)
_HASH = re.compile("([a-z]+:)?[0-9a-f]{16}")
_LONGEST = 60


def shorten_model(model: str) -> str:
    """Return the short name: roberta-base for klue/roberta-base; pre/checkpoint-100 keeps its parent."""
    prefix, rest = split_prefix(model)
    if prefix:
        return f"{prefix}:{shorten_model(rest)}"
    parts = _split_path(model)
    return "/".join(parts[-2 if _UNTELLING.fullmatch(parts[-1]) else -1 :])


def make_folder_name(model: str) -> str:
    """Return the model's part of the name of a run directory; a relative folder is resolved first."""
    prefix, rest = split_prefix(model)
    if prefix:
        return f"{prefix}-{make_folder_name(rest)}"
    folder = Path(model)
    if not folder.is_dir():
        return model.replace("/", "-").replace("@", "-").replace(":", "-")
    name = shorten_model(str(folder.resolve())).replace("/", "-")
    return re.sub("--+", "-", name)[:_LONGEST].strip("-")


def split_prefix(model: str) -> tuple[str, str]:
    """Split the family prefix, as in llm:FOLDER, from the rest; "" if there is none."""
    found = re.fullmatch(r"([a-z]+):(.+)", model)
    return (found[1], found[2]) if found else ("", model)


def make_names_unique(models: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return identity -> unique name: with parent folders, or with a part of the hash."""
    names = {path: name for name, path in models.values()}
    for depth in range(2, 1 + max(map(len, map(_split_path, names)), default=0)):
        for path in _find_repeated(names):
            names[path] = "/".join(_split_path(path)[-depth:])
    found = {identity: names[path] for identity, (_, path) in models.items()}
    hashed = _find_repeated({identity: name for identity, name in found.items() if _HASH.fullmatch(identity)})
    return found | {identity: f"{found[identity]} ({split_prefix(identity)[1][:6]})" for identity in hashed}


def _find_repeated(names: Mapping[str, str]) -> list[str]:
    counts = Counter(names.values())
    return [key for key, name in names.items() if counts[name] > 1]


def _split_path(model: str) -> list[str]:
    """Return the folders of a path without model/, or the owner and the name of a Hub id."""
    hub = re.fullmatch(r"([^/.~@][^/@]*/)?([^/@]+@.+)", model)  # a revision may contain slashes
    parts = [part.strip("/") for part in (hub.groups("") if hub else model.split("/")) if part not in ("", ".")]
    while len(parts) > 1 and parts[-1] == "model":
        parts.pop()
    return parts or [model]
