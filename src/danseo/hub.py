"""The Hub: whether it can be reached and has a model, known in seconds and before torch is loaded."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, NetworkError
from danseo.patience import Answer, patience, told, watched

BOX = Path(__file__).with_name("box")
IN_THE_BOX = ("mini",)
"""Models that come with danseo, by the names of their folders in the box."""
SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
WAYS = (
    "take -m mini, which is here, name a local folder, or fill the cache where there is a network and set "
    "HF_HUB_OFFLINE=1"
)
PORTAL = "a web page came instead; log in to the network first, then run the same command again"
_SECONDS = 4.0  # the library itself tries for 20
_PAGES = (b"<!doctype html", b"<html")


def offline_switch() -> str | None:
    """The variable that forbids to ask the Hub, where one is set."""
    return next((name for name in SWITCHES if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")), None)


def folder_of(model: str) -> Path | None:
    """The folder that a model's name means: one in the box or the user's own; None for an id of the Hub."""
    folder = BOX / model if model in IN_THE_BOX else Path(model)
    return folder if folder.is_dir() else None


def split_model_name(name: str) -> tuple[str, str | None]:
    """A Hub id and its revision: klue/roberta-base@v1; a folder has none."""
    if folder_of(name) or "@" not in name:
        return name, None
    source, _, revision = name.rpartition("@")
    return source, revision


def pretrained(model: str) -> tuple[str, dict[str, Any]]:
    """The name of a model and what from_pretrained needs to know of it; a model that cannot be had is one line."""
    name, revision = split_model_name(model)
    options: dict[str, Any] = {"revision": revision or "main", "local_files_only": False}
    if folder := folder_of(name):
        return str(folder), options
    if Path(name).is_file():
        raise DanseoError(f"model {name} is a file; name a checkpoint folder")
    check_spelling(name, IN_THE_BOX)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise DanseoError(f"model {name}: no such folder, and no Hub id either (those look like klue/roberta-base)")
    if switch := offline_switch():
        if not is_cached(name, options["revision"]):
            raise NetworkError(
                f"model {name}: no such folder, and {switch} is set but the cache of the Hub does not hold it; take "
                "-m mini, which is here, name a local folder, or fill the cache where there is a network"
            )
        return name, options
    options["local_files_only"] = not _is_there(name, options["revision"], endpoint() or "")
    return name, options


def check_spelling(model: str, known: Iterable[str]) -> None:
    """Refuse a name that nearly is a known one, before the Hub is asked for it; ids with an owner are left alone."""
    if "/" not in model and (near := get_close_matches(model, known, 1, cutoff=0.7)):
        raise DanseoError(f"no model named {model!r}; did you mean {near[0]!r}?")


def is_cached(name: str, revision: str) -> bool:
    """Whether the Hub's cache on this machine holds the model."""
    import huggingface_hub

    hub: Any = huggingface_hub
    return isinstance(hub.try_to_load_from_cache(name, "config.json", revision=revision), str)


@cache
def _is_there(name: str, revision: str, where: str) -> bool:
    """Whether the Hub has the model; False where the Hub is away and only the cache has it."""
    import huggingface_hub

    hub: Any = huggingface_hub
    try:
        url = hub.hf_hub_url(name, "config.json", revision=revision, endpoint=where or None)
    except ValueError:
        raise DanseoError(f"model {name}: no such folder, and no Hub id either") from None
    try:
        response = reach(url)
    except NetworkError as error:
        if is_cached(name, revision):
            return False
        raise NetworkError(f"model {name}: no such folder, and {error}; {WAYS}") from None
    _check_answer(name, revision, response)
    return True


def endpoint() -> str | None:
    """The address of another Hub than the usual one."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def session() -> tuple[Any, dict[str, str]]:
    """The Hub library's own session and headers, which honour proxies, tokens and the like."""
    import huggingface_hub.utils

    hub: Any = huggingface_hub  # its utils are not typed as public
    return hub.utils.get_session(), hub.utils.build_hf_headers(library_name="danseo")


def from_hub(name: str, load: Callable[[], Answer]) -> Answer:
    """What a load gives: what comes from the Hub has to come on, and no web page stays in the cache as a model."""
    if Path(name).is_dir():
        return load()
    try:
        return watched(load, lambda: cached_bytes(name), f"model {name}")
    except NetworkError as error:
        raise NetworkError(f"{error}; {WAYS}") from None
    except Exception:
        if page := _drop_pages(name):
            raise NetworkError(f"model {name}: for {page}, {PORTAL}") from None
        raise


def cached_bytes(name: str, kind: str = "models") -> int:
    """What the Hub's cache holds of a repository by now, half-fetched files too."""
    total = 0
    for path in (_cache_of(name, kind) / "blobs").glob("*"):
        with suppress(OSError):  # renamed just now
            total += path.stat().st_size
    return total


def _cache_of(name: str, kind: str = "models") -> Path:
    """Where the Hub's library keeps a repository."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"{kind}--{name.replace('/', '--')}"


def _drop_pages(name: str) -> str | None:
    """Remove web pages that a network put in the place of files; the name of one."""
    dropped = None
    for path in sorted((_cache_of(name) / "snapshots").glob("*/*")):
        with suppress(OSError):
            with path.open("rb") as file:
                is_page = file.read(64).lstrip().lower().startswith(_PAGES)
            if is_page:
                path.resolve().unlink(missing_ok=True)
                path.unlink(missing_ok=True)
                dropped = path.name
    return dropped


def download(url: str) -> tuple[Any, bytes]:
    """The last answer of an address, and its content."""
    received: list[bytes] = []

    def get() -> Any:
        client, headers = session()
        if not hasattr(client, "stream"):  # requests, which older versions of the library are made with
            answer = client.get(url, headers=headers, timeout=patience(), stream=True)
            received.extend(answer.iter_content(1 << 16))
            return answer
        with client.stream("GET", url, headers=headers, timeout=patience()) as answer:
            for part in answer.iter_bytes():
                received.append(part)  # one by one, as they are counted meanwhile
        return answer

    response = watched(get, lambda: sum(map(len, received)), url)
    return response, b"".join(received)


def fetched(url: str, *, hint: str = "name files of yours", missing_ok: bool = False) -> bytes:
    """The content of a file on the Hub; with missing_ok nothing where there is none.

    hf_hub_download retries a refused connection for 23 s and cannot be told not to; so only the address, headers and
    session of its library are used, which honour HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE.
    """
    try:
        response, content = download(url)
    except Exception as error:  # as in reach()
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise NetworkError(f"{url} could not be fetched: {reason!r}; check the network, then {_AGAIN}") from None
    if response.status_code == 404 and missing_ok:
        return b""
    _check_content(response, content, url, hint)
    return content


_AGAIN = "run the same command again (finished files are kept)"
_REMEDIES = {
    401: "access is refused; set HF_TOKEN to a valid token, or unset it",
    403: "access is refused; set HF_TOKEN to a token that may read it, or unset it",
    404: "there is no such file; check HF_ENDPOINT, or {hint}",
}


def _check_content(response: Any, content: bytes, url: str, hint: str) -> None:
    """Refuse an answer that is no file, or only a part of it."""
    status: int = response.status_code
    if status != 200:
        remedy = _REMEDIES.get(status, f"the Hub is in trouble; later {_AGAIN}").format(hint=hint)
        raise NetworkError(f"{url}: status {status}, {remedy}")
    headers: dict[str, str] = {}
    for answer in (*response.history, response):  # the Hub sends size and hash with its redirection to the storage
        headers |= {key.lower(): value for key, value in answer.headers.items()}
    size = headers.get("x-linked-size") or ("" if "content-encoding" in headers else headers.get("content-length", ""))
    if size.isdigit() and int(size) != len(content):
        raise NetworkError(f"{url} broke off after {len(content)} of {size} bytes; {_AGAIN}")
    sha256 = headers.get("x-linked-etag", "").strip('"')
    if len(sha256) == 64 and sha256 != hashlib.sha256(content).hexdigest():
        raise NetworkError(f"{url} arrived damaged (its hash is not the Hub's); {_AGAIN}")


def reach(url: str) -> Any:
    """The headers of an address; an error after a few seconds, whatever keeps the answer away."""
    found: list[Any] = []
    seconds = told() or _SECONDS

    def ask() -> None:
        try:
            client, headers = session()
            found.append(client.head(url, headers=headers, timeout=seconds))
        except Exception as error:  # the Hub library has changed its HTTP library twice, and each has its own errors
            found.append(error)

    thread = threading.Thread(target=ask, daemon=True)  # names may take longer to look up than any timeout
    thread.start()
    thread.join(seconds)
    if found and not isinstance(found[0], Exception):
        return found[0]
    reason = " ".join(str(found[0]).split())[:80] if found else f"no answer in {seconds:.3g} s"
    raise NetworkError(f"the Hub ({'/'.join(url.split('/')[:3])}) cannot be reached: {reason}")


def _check_answer(name: str, revision: str, response: Any) -> None:
    """Refuse a model that the Hub does not have, or does not give."""
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    if code == "RevisionNotFound":
        raise DanseoError(f"model {name} has no revision {revision!r} on the Hub; its page lists them")
    if code == "EntryNotFound":
        raise DanseoError(f"model {name} has no config.json on the Hub, so danseo cannot load it")
    if code == "GatedRepo":
        raise DanseoError(f"model {name} is gated: accept its terms on its page of the Hub, and set HF_TOKEN")
    if code == "RepoNotFound":
        raise DanseoError(f"model {name}: no such folder, and no such model on the Hub; if it is private, set HF_TOKEN")
    if status == 200 and "html" in response.headers.get("Content-Type", ""):
        raise NetworkError(f"model {name}: no such folder, and for its config.json {PORTAL}")
    if status >= 400 and status not in (405, 501):  # some mirrors do not know how to give headers alone
        raise NetworkError(f"model {name}: no such folder, and the Hub answers with status {status}; {WAYS}")
