"""The Hugging Face Hub: find a model in seconds, before torch is loaded, and download files."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, NetworkError, suggest
from danseo.language import _
from danseo.timeouts import Result, get_timeout, read_timeout, run_with_timeout

BUNDLED_MODEL_FOLDER = Path(__file__).parent / "models" / "bundled_model"
BUNDLED_MODELS = ("mini",)
"""Models that come with danseo, by the names of their folders."""
SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
OFFLINE_HINT = (
    "use the bundled model mini or a local folder, or fill the cache on a machine with a network and set "
    "HF_HUB_OFFLINE=1"
)
PORTAL = "a web page arrived instead; log in to the network first, then run the same command again"
_SECONDS = 4.0  # the library itself tries for 20
_PAGES = (b"<!doctype html", b"<html")
"""The environment variable that --timeout sets, in seconds; child processes inherit it."""
"""Bytes that count as progress."""


def find_offline_switch() -> str | None:
    """Return the environment variable that forbids to contact the Hub, if one is set."""
    return next((name for name in SWITCHES if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")), None)


def find_model_folder(model: str) -> Path | None:
    """Return the folder of a bundled or local model; None for a Hub id."""
    folder = BUNDLED_MODEL_FOLDER / model if model in BUNDLED_MODELS else Path(model)
    return folder if folder.is_dir() else None


def split_model_name(name: str) -> tuple[str, str | None]:
    """Split a Hub id and its revision: klue/roberta-base@v1; a folder has none."""
    if find_model_folder(name) or "@" not in name:
        return name, None
    source, _, revision = name.rpartition("@")
    return source, revision


def resolve_model(model: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a model and the options of from_pretrained; refuse one that is not available."""
    name, revision = split_model_name(model)
    options: dict[str, Any] = {"revision": revision or "main", "local_files_only": False}
    if folder := find_model_folder(name):
        return str(folder), options
    if Path(name).is_file():
        raise DanseoError(_("model {name} is a file; name a checkpoint folder").format(name=name))
    check_spelling(name, BUNDLED_MODELS)
    check_folder_of_runs(name)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise DanseoError(
            _("model {name}: no such folder, and no Hub id either (those look like klue/roberta-base)").format(
                name=name
            )
        )
    if switch := find_offline_switch():
        if not is_cached(name, options["revision"]):
            raise NetworkError(
                _(
                    "model {name}: no such folder, and {switch} is set but the cache of the Hub does not have it;"
                    " use the bundled model mini or a local folder, or fill the cache on a machine with a network"
                ).format(name=name, switch=switch)
            )
        return name, options
    options["local_files_only"] = not _is_on_hub(name, options["revision"], get_endpoint())
    return name, options


def check_folder_of_runs(name: str) -> None:
    """Refuse a missing path in a folder of runs (runs/nothing) before the Hub is contacted."""
    parent = Path(name).parent
    if name.startswith("runs/") and not parent.exists():
        raise DanseoError(
            _("{name}: no such folder; there is no folder {parent} here").format(name=name, parent=parent)
        )
    if "/" not in name or not parent.is_dir():
        return
    patterns = [f"{folder}{file}" for folder in ("", "*/") for file in ("config.toml", "identity.txt")]
    if parent.name != "runs" and not any(any(parent.glob(pattern)) for pattern in patterns):
        return
    runs = sorted(path.name for path in parent.iterdir() if path.is_dir() and not path.name.startswith("."))
    near = get_close_matches(Path(name).name, runs, 1)
    if near:
        hint = _("did you mean {path}?").format(path=parent / near[0])
    else:
        hint = _("{folder} has {runs}").format(folder=parent, runs=", ".join(runs[:3]) or _("no runs"))
    raise DanseoError(_("{name}: no such folder; {hint}").format(name=name, hint=hint))


def check_spelling(model: str, known: Iterable[str]) -> None:
    """Refuse a misspelt known name before the Hub is contacted; ids with an owner are not checked."""
    if "/" not in model and (hint := suggest(model, known, 0.7)):
        raise DanseoError(_("no model named {model!r}; {hint}").format(model=model, hint=hint))


def is_cached(name: str, revision: str) -> bool:
    """Return whether the local cache of the Hub has the model."""
    import huggingface_hub

    hub: Any = huggingface_hub
    return isinstance(hub.try_to_load_from_cache(name, "config.json", revision=revision), str)


@cache
def _is_on_hub(name: str, revision: str, endpoint: str | None) -> bool:
    """Return whether the Hub has the model; False if the Hub cannot be reached and the cache has it."""
    import huggingface_hub

    hub: Any = huggingface_hub
    try:
        url = hub.hf_hub_url(name, "config.json", revision=revision, endpoint=endpoint)
    except ValueError:
        raise DanseoError(f"model {name}: no such folder, and no Hub id either") from None
    try:
        response = request_headers(url)
    except NetworkError as error:
        if is_cached(name, revision):
            return False
        raise NetworkError(f"model {name}: no such folder, and {error}; {OFFLINE_HINT}") from None
    _check_response(name, revision, response)
    return True


def get_endpoint() -> str | None:
    """Return the address of a Hub other than the default."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def get_session() -> tuple[Any, dict[str, str]]:
    """Return the session and headers of huggingface_hub, which use proxies and tokens."""
    import huggingface_hub.utils

    hub: Any = huggingface_hub  # its utils are not typed as public
    return hub.utils.get_session(), hub.utils.build_hf_headers(library_name="danseo")


def load_from_hub(name: str, load: Callable[[], Result]) -> Result:
    """Return the result of a load with a time limit; remove web pages from the cache."""
    if Path(name).is_dir():
        return load()
    try:
        return run_with_timeout(load, lambda: count_cached_bytes(name), f"model {name}")
    except NetworkError as error:
        raise NetworkError(f"{error}; {OFFLINE_HINT}") from None
    except Exception:
        if page := _remove_web_pages(name):
            raise NetworkError(f"model {name}: for {page}, {PORTAL}") from None
        raise


def count_cached_bytes(name: str, repo_type: str = "models") -> int:
    """Return the size of a repository in the Hub's cache, incomplete files included."""
    total = 0
    for path in (_get_cache_folder(name, repo_type) / "blobs").glob("*"):
        with suppress(OSError):  # renamed just now
            total += path.stat().st_size
    return total


def _get_cache_folder(name: str, repo_type: str = "models") -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"{repo_type}--{name.replace('/', '--')}"


def _remove_web_pages(name: str) -> str | None:
    """Remove web pages that a network sent instead of files; return the name of one."""
    removed = None
    for path in sorted((_get_cache_folder(name) / "snapshots").glob("*/*")):
        with suppress(OSError):
            with path.open("rb") as file:
                is_page = file.read(64).lstrip().lower().startswith(_PAGES)
            if is_page:
                path.resolve().unlink(missing_ok=True)
                path.unlink(missing_ok=True)
                removed = path.name
    return removed


def download(url: str) -> tuple[Any, bytes]:
    """Return the last response of an address, and its content."""
    received: list[bytes] = []

    def get() -> Any:
        client, headers = get_session()
        if not hasattr(client, "stream"):  # requests, which older versions of huggingface_hub use
            answer = client.get(url, headers=headers, timeout=get_timeout(), stream=True)
            received.extend(answer.iter_content(1 << 16))
            return answer
        with client.stream("GET", url, headers=headers, timeout=get_timeout()) as answer:
            for part in answer.iter_bytes():
                received.append(part)  # one by one, because they are counted while they arrive
        return answer

    response = run_with_timeout(get, lambda: sum(map(len, received)), url)
    return response, b"".join(received)


def fetch_file(url: str, *, hint: str = "name local files", missing_ok: bool = False) -> bytes:
    """Return the content of a file on the Hub; nothing for a missing file with missing_ok.

    hf_hub_download always retries a refused connection for 23 s; so only the address, headers and session of its
    library are used, which respect HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE.
    """
    try:
        response, content = download(url)
    except Exception as error:  # as in request_headers()
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
    """Refuse a response that is no file, or an incomplete one."""
    status: int = response.status_code
    if status != 200:
        remedy = _REMEDIES.get(status, f"the Hub does not work; later {_AGAIN}").format(hint=hint)
        raise NetworkError(f"{url}: status {status}, {remedy}")
    headers: dict[str, str] = {}
    for answer in (*response.history, response):  # the Hub sends size and hash with its redirection to the storage
        headers |= {key.lower(): value for key, value in answer.headers.items()}
    size = headers.get("x-linked-size") or ("" if "content-encoding" in headers else headers.get("content-length", ""))
    if size.isdigit() and int(size) != len(content):
        raise NetworkError(f"{url} ended after {len(content)} of {size} bytes; {_AGAIN}")
    sha256 = headers.get("x-linked-etag", "").strip('"')
    if len(sha256) == 64 and sha256 != hashlib.sha256(content).hexdigest():
        raise NetworkError(f"{url} arrived corrupted (its hash is not the Hub's); {_AGAIN}")


def request_headers(url: str) -> Any:
    """Return the response of an address to a HEAD request; raise NetworkError after a few seconds."""
    results: list[Any] = []
    seconds = read_timeout() or _SECONDS

    def send() -> None:
        try:
            client, headers = get_session()
            results.append(client.head(url, headers=headers, timeout=seconds))
        except Exception as error:  # versions of huggingface_hub use different HTTP libraries with their own errors
            results.append(error)

    thread = threading.Thread(target=send, daemon=True)  # a name lookup may take longer than any timeout
    thread.start()
    thread.join(seconds)
    if results and not isinstance(results[0], Exception):
        return results[0]
    reason = " ".join(str(results[0]).split())[:80] if results else f"no answer in {seconds:.3g} s"
    raise NetworkError(f"the Hub ({'/'.join(url.split('/')[:3])}) cannot be reached: {reason}")


def _check_response(name: str, revision: str, response: Any) -> None:
    """Refuse a model that the Hub does not have or does not allow."""
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    if code == "RevisionNotFound":
        raise DanseoError(f"model {name} has no revision {revision!r} on the Hub; its page lists them")
    if code == "EntryNotFound":
        raise DanseoError(f"model {name} has no config.json on the Hub, so danseo cannot load it; name another model")
    if code == "GatedRepo":
        raise DanseoError(
            _("model {name} is gated: accept its terms on its page of the Hub, and set HF_TOKEN").format(name=name)
        )
    if code == "RepoNotFound":
        raise DanseoError(
            _("model {name}: no such folder, and no such model on the Hub; if it is private, set HF_TOKEN").format(
                name=name
            )
        )
    if status == 200 and "html" in response.headers.get("Content-Type", ""):
        raise NetworkError(f"model {name}: no such folder, and for its config.json {PORTAL}")
    if status >= 400 and status not in (405, 501):  # some mirrors do not support HEAD requests
        raise NetworkError(f"model {name}: no such folder, and the Hub answers with status {status}; {OFFLINE_HINT}")
