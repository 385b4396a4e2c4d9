"""What models are called: short, and different where they are different."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_UNTELLING = re.compile(r"(model|best|last|latest|final|checkpoint|step|epoch)?[-_]?\d*", re.IGNORECASE)
_HASH = re.compile("([a-z]+:)?[0-9a-f]{16}")
_LONGEST = 60


def model_name(model: str) -> str:
    """klue/roberta-base is roberta-base; pre/checkpoint-100 has its parent's name too."""
    prefix, rest = prefixed(model)
    if prefix:
        return f"{prefix}:{model_name(rest)}"
    parts = _parts(model)
    return "/".join(parts[-2 if _UNTELLING.fullmatch(parts[-1]) else -1 :])


def folder_name(model: str) -> str:
    """The part of a run directory's name that tells the model; a relative folder is seen from the root."""
    prefix, rest = prefixed(model)
    if prefix:
        return f"{prefix}-{folder_name(rest)}"
    folder = Path(model)
    if not folder.is_dir():
        return model.replace("/", "-").replace("@", "-").replace(":", "-")
    name = model_name(str(folder.resolve())).replace("/", "-")
    return re.sub("--+", "-", name)[:_LONGEST].strip("-")


def prefixed(model: str) -> tuple[str, str]:
    """The sort of a model that its name begins with, as in llm:FOLDER, and the rest; "" where there is none."""
    found = re.fullmatch(r"([a-z]+):(.+)", model)
    return (found[1], found[2]) if found else ("", model)


def told_apart(models: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Identity -> name, of identity -> short name and path: as many folders as it takes, else some of the identity."""
    names = {path: name for name, path in models.values()}
    for depth in range(2, 1 + max(map(len, map(_parts, names)), default=0)):
        for path in _not_unique(names):
            names[path] = "/".join(_parts(path)[-depth:])
    found = {identity: names[path] for identity, (_, path) in models.items()}
    hashed = _not_unique({identity: name for identity, name in found.items() if _HASH.fullmatch(identity)})
    return found | {identity: f"{found[identity]} ({prefixed(identity)[1][:6]})" for identity in hashed}


def _not_unique(names: Mapping[str, str]) -> list[str]:
    """Those whose name somebody else has too."""
    counts = Counter(names.values())
    return [key for key, name in names.items() if counts[name] > 1]


def _parts(model: str) -> list[str]:
    """The folders of a path, without the model/ that every run has; or the owner and the name of a Hub id."""
    hub = re.fullmatch(r"([^/.~@][^/@]*/)?([^/@]+@.+)", model)  # whose revision may have slashes of its own
    parts = [part.strip("/") for part in (hub.groups("") if hub else model.split("/")) if part not in ("", ".")]
    while len(parts) > 1 and parts[-1] == "model":
        parts.pop()
    return parts or [model]
