"""A server of language models as a child process (`danseo prompt --launch`): started, awaited and stopped."""

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from danseo.display.escaping import say
from danseo.errors import DanseoError, NetworkError
from danseo.files import quote
from danseo.launcher import interruptible, world_size
from danseo.models.llm.http_client import HttpClient
from danseo.models.llm.server_backend import check_url, make_headers

PORT = "{port}"
"""Placeholder of the port in a command."""
_POLL_SECONDS, _CALL_SECONDS, _GRACE_SECONDS = 0.2, 5.0, 10.0
_REPLY_BYTES = 1 << 20
_LOG_BYTES, _LOG_CHARACTERS = 4096, 300
"""How much of the end of the log is read, and shown in a message."""


class ServerProcess:
    """A server that start() runs without a shell, and that ends with the `with` block, whatever ends it."""

    def __init__(self, command: str, url: str | None, timeout: float, key_name: str) -> None:
        if world_size() > 1:
            raise DanseoError("--launch starts one server for one process; run danseo prompt without torchrun")
        self.arguments = _split_command(command)
        if not url and not any(PORT in part for part in self.arguments):
            raise DanseoError(f"--launch: the command has no {PORT}; write --port {PORT}, or add --url with its port")
        port = (urlsplit(check_url(url)).port if url else None) or _find_free_port()
        self.url = check_url(url or f"http://127.0.0.1:{port}/v1")
        self.arguments = [part.replace(PORT, str(port)) for part in self.arguments]
        self.timeout, self.was_ready = timeout, False
        self.process: subprocess.Popen[bytes] | None = None
        self.log = Path()
        self._client = HttpClient(make_headers(key_name), _CALL_SECONDS, trust_env=False)
        self._signals = interruptible()

    def __enter__(self) -> Self:
        self._signals.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self.stop()
        finally:
            self._signals.__exit__(*error)

    @property
    def name(self) -> str:
        return Path(self.arguments[0]).name

    def describe(self) -> str:
        """Return the last line of the log, for the progress of start()."""
        return f"starting {self.name}: {quote((self._read_log_lines() or ['…'])[-1], 80)}"

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        if self._get_status(f"{self.url}/models") < 500:
            raise DanseoError(f"--launch: another server already answers at {self.url}; choose another port")
        descriptor, name = tempfile.mkstemp(prefix="danseo-", suffix=".log")
        self.log = Path(name)
        try:
            with os.fdopen(descriptor, "ab") as log:
                self.process = subprocess.Popen(
                    self.arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches danseo alone, which stops the server
                )
        except (OSError, ValueError) as error:
            self.log.unlink()
            why = getattr(error, "strerror", None) or error
            raise DanseoError(
                f"--launch: {quote(self.arguments[0], 80)} cannot be started ({why}); is it installed?"
            ) from None
        until = time.monotonic() + self.timeout
        while not self._is_ready():
            if (code := self.process.poll()) is not None:
                raise DanseoError(f"--launch: {self.name} ended with code {code} before it was ready{self._end_of_log}")
            if time.monotonic() > until:
                why = f"{self.name} is not ready after {self.timeout:g} s; raise --launch-timeout"
                raise DanseoError(f"--launch: {why}{self._end_of_log}")
            time.sleep(_POLL_SECONDS)
        self.was_ready = True

    def stop(self) -> None:
        """Stop the server and its own processes; report if it had ended by itself."""
        process = self.process
        if process is None:
            return
        if (code := process.poll()) is not None and self.was_ready:
            say(f"note: {self.name} ended by itself with code {code}{self._end_of_log}")
        try:
            _signal_group(process, process.terminate, "SIGTERM")
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
        finally:
            _signal_group(process, process.kill, "SIGKILL")
            process.wait()
            self.process = None
            self.log.unlink(missing_ok=True)

    def _is_ready(self) -> bool:
        """Return whether the server answers; llama.cpp lists its models while it still loads them."""
        health = urlsplit(self.url)._replace(path="/health").geturl()
        return self._get_status(f"{self.url}/models") < 500 and self._get_status(health) != 503

    def _get_status(self, url: str) -> int:
        """Return the status of a GET; 599 if there is no answer."""
        try:
            return self._client.get(url, _REPLY_BYTES).status_code
        except NetworkError:
            return 599

    @property
    def _end_of_log(self) -> str:
        lines = " / ".join(self._read_log_lines())
        return f"; the end of its log: {lines[-_LOG_CHARACTERS:]}" if lines else "; its log is empty"

    def _read_log_lines(self) -> list[str]:
        """Return the lines at the end of the log."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return [" ".join(line.split()) for line in lines if line.strip()]


def _split_command(command: str) -> list[str]:
    """Return the program and its arguments."""
    try:
        parts = shlex.split(command)
    except ValueError as error:
        raise DanseoError(f"--launch {quote(command, 80)} is no command ({error}); close its quotes") from None
    if not parts:
        raise DanseoError(f'--launch is empty; write a command such as "vllm serve MODEL --port {PORT}"')
    return parts


def _find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _signal_group(process: "subprocess.Popen[bytes]", single: Callable[[], None], name: str) -> None:
    """Send a signal to the process and to those that it started; on Windows only to itself."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, getattr(signal, name))
        else:
            single()
