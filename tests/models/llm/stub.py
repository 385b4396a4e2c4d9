"""A server on loopback that speaks OpenAI's chat completions, well or badly."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = dict | tuple[int, dict, str | bytes] | Callable[[BaseHTTPRequestHandler], None] | None
"""A chat completion; a status, headers and body; a function that writes anything; or None for a cut connection."""


def make_completion(text: str, finish: str = "stop", **message) -> dict:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
    return {"choices": [{"message": {"content": text, **message}, "finish_reason": finish}], "usage": usage}


@contextmanager
def serving(answer: Callable[[dict, int], Answer], *, enforces: bool = True, name: str = "stub"):
    """The server's URL and the bodies that came in; `answer` gets a body and how often it came before.

    A server with the name llama.cpp holds replies to a grammar, and fills JSON of a schema with blanks.
    """
    bodies: list[dict] = []
    seen: dict[str, int] = {}
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def version_string(self) -> str:
            return name

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
            if "zq7319" in body.get("grammar", ""):
                return self.reply(make_completion('{"word":"zq7319"}'))
            if "word" in schema.get("properties", {}) and name == "llama.cpp":
                return self.reply(make_completion("{" + " \t" * 20, "length"))
            if "word" in schema.get("properties", {}):
                return self.reply(make_completion('{"word":"zq7319"}' if enforces else '{"word":"서울"}'))
            with lock:
                bodies.append(body | {"authorization": self.headers.get("authorization")})
                key = json.dumps(body["messages"], ensure_ascii=False)
                seen[key] = seen.get(key, 0) + 1
                before = seen[key] - 1
            self.reply(answer(body, before))

        def reply(self, found: Answer) -> None:
            if found is None:
                self.connection.close()
                return
            if callable(found):
                with suppress(OSError):  # the caller has left
                    found(self)
                return
            status, headers, text = found if isinstance(found, tuple) else (200, {}, json.dumps(found))
            content = text.encode() if isinstance(text, str) else text
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()


def slowly(seconds: float) -> None:
    time.sleep(seconds)
