"""A server that `danseo prompt --launch` starts: it loads for a while, answers, and writes a log."""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

port, behaviour, notes = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
notes.write_text(str(os.getpid()))
print("loading the weights", flush=True)
if behaviour == "broken":
    print("RuntimeError: no memory for the weights", flush=True)
    sys.exit(7)
if behaviour == "silent":
    time.sleep(60)
ready = time.monotonic() + 0.5


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # as llama.cpp does, it lists models while it loads them
        is_loading = self.path == "/health" and time.monotonic() < ready
        self.reply(503 if is_loading else 200, {"data": []})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if behaviour == "slow":
            time.sleep(60)
        if time.monotonic() < ready:
            return self.reply(503, {"error": "loading"})
        self.reply(200, {"choices": [{"message": {"content": '{"label":"정치"}'}, "finish_reason": "stop"}]})

    def reply(self, status: int, document: dict) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
