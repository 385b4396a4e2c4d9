"""A stub Hub on 127.0.0.1, and an environment that knows no other."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY")


@contextmanager
def serve(respond):
    """Yield the address of a server; respond(path, headers) returns status, headers, content and bytes to cut."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, headers, content, *cut = respond(self.path, self.headers)
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content[: len(content) - sum(cut)])

        do_HEAD = do_GET

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def set_endpoint(monkeypatch, url):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
