"""A real HTTP server that behaves like SGLang's: it starts slowly, answers, drifts, or talks nonsense."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NEW = {
    "spec_accept_length": 3.5,
    "spec_accept_rate": 0.5,
    "spec_verify_ct": 4,
    "spec_num_correct_drafts": 10,
    "spec_num_proposed_drafts": 20,
    "spec_correct_drafts_histogram": [1, 0, 1, 2],
}
OLD = {"spec_verify_ct": 4, "spec_accepted_drafts": 10, "spec_accept_histogram": [1, 0, 1, 2]}
METRICS = """# HELP x
sglang:spec_accept_length{model_name="m"} 3.25
sglang:token_usage 0.1
sglang:spec_num_steps NaN
"""


@dataclass
class Behaviour:
    """What the server does. ``raw``: bytes for a path instead of an answer; ``status``: HTTP status of a path."""

    ready_after: int = 0  # questions that it answers with 503
    texts: list[str] = field(default_factory=lambda: ["The ocean is wide."])
    meta: dict[str, Any] = field(default_factory=lambda: dict(NEW))
    ids: bool = True
    raw: dict[str, bytes] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)
    version: str = "0.5.12"
    delay: float = 0.0  # seconds before an answer
    key: str | None = None  # that it asks for
    asked: list[dict[str, Any]] = field(default_factory=list)
    dies_after: int | None = None  # answers: it hangs up on every later request
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def _answer(behaviour: Behaviour, path: str, body: dict[str, Any]) -> Any:
    text = behaviour.texts[len(behaviour.asked) % len(behaviour.texts)]
    behaviour.asked.append({"path": path, **body})
    meta = {**behaviour.meta, "completion_tokens": 14}
    if path == "/generate":
        ids = [ord(c) for c in text] if behaviour.ids else None
        meta["finish_reason"] = {"type": "length"}
        return {"text": text, "output_ids": ids, "meta_info": meta}
    choice = {"message": {"content": text}, "finish_reason": "stop", "meta_info": meta}
    return {"choices": [choice], "usage": {"completion_tokens": 14}}


FIXED = {
    "/v1/models": {"data": [{"id": "tiny"}]},
    "/server_info": {"internal_states": [{"avg_spec_accept_length": 3.1}]},
}


class Quiet(ThreadingHTTPServer):
    """Says nothing about clients that hang up."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def serve(behaviour: Behaviour) -> Iterator[str]:
    """Yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/health":
                behaviour.ready_after -= 1
                self._send(b"", 503 if behaviour.ready_after >= 0 else 200)
            elif self.path == "/metrics":
                self._send(METRICS.encode())
            else:
                known = FIXED.get(self.path)
                if self.path == "/server_info":
                    known = {**FIXED[self.path], "version": behaviour.version}
                self._send(json.dumps(known).encode(), 200 if known else 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with behaviour.lock:
                found = _answer(behaviour, self.path, body)
                dead = behaviour.dies_after is not None
                dead = dead and len(behaviour.asked) > behaviour.dies_after
                behaviour.in_flight += 1
                behaviour.most_in_flight = max(behaviour.most_in_flight, behaviour.in_flight)
            if dead:
                self.close_connection = True
                return
            time.sleep(behaviour.delay)
            with behaviour.lock:
                behaviour.in_flight -= 1
            self._send(json.dumps(found).encode())

        def _send(self, data: bytes, status: int = 200) -> None:
            if behaviour.key and self.headers["Authorization"] != f"Bearer {behaviour.key}":
                data, status = b"no key", 401
            data = behaviour.raw.get(self.path, data)
            self.send_response(behaviour.status.get(self.path, status))
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
