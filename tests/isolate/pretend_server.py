"""A server to be started as a command: it answers like SGLang, at once, always the same, and misbehaves when told to.

What it does is JSON in the variable PRETEND; see :class:`Behaviour`. It needs the standard library alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STEPS = Path(__file__).parents[2] / "fixtures" / "example.jsonl"


@dataclass
class Behaviour:
    """What it does. ``diary``: a file that it writes every start and answer into."""

    only: str = ""  # "plain" or a budget: the server that does what follows; empty: each
    faulty: bool = False  # with speculation, where budget + 1 is not 8
    parts_at: int = 3  # token at which wrong texts part
    margin: float = 4.0  # of that token
    random: bool = False  # a prompt that is asked again has another text from token 5
    crash: bool = False  # while it loads
    slow: float = 0.0  # seconds until it is ready
    pace: float = 0.0  # seconds of an answer
    hang: str = ""  # prompts with these words are never answered
    die: str = ""  # prompts with these words end it
    together: int = 1  # requests that must be there at the same time, or none is answered
    child: bool = False  # starts a process that does not heed SIGTERM
    refuse_logprobs: bool = True  # with speculation, as DFLASH does
    tap: str = ""  # folder that it writes steps into
    faulty_steps: bool = False
    diary: str = ""


class Pretend:
    """State of the server."""

    def __init__(self, name: str, graphs: bool, behaviour: Behaviour) -> None:
        self.name, self.graphs, self.behaviour = name, graphs, behaviour
        self.ready = time.monotonic() + behaviour.slow
        self.lock, self.step = threading.Lock(), 0
        self.seen: dict[str, int] = {}
        self.barrier = threading.Barrier(behaviour.together)

    @property
    def plain(self) -> bool:
        return self.name == "plain"

    def note(self, **what: object) -> None:
        if self.behaviour.diary:
            with open(self.behaviour.diary, "a") as file:
                file.write(json.dumps({"name": self.name, "pid": os.getpid(), **what}) + "\n")

    def end(self, status: int) -> None:
        self.note(end=True)
        os._exit(status)

    def answer(self, body: dict) -> tuple[int, dict]:
        prompt, sampling = body["text"], body["sampling_params"]
        if self.behaviour.hang and self.behaviour.hang in prompt:
            time.sleep(600)
        if self.behaviour.die and self.behaviour.die in prompt and "warm" not in body["rid"]:
            print("illegal memory access", flush=True)
            self.end(7)
        if body.get("return_logprob") and not self.plain and self.behaviour.refuse_logprobs:
            return 400, {"error": "speculative decoding does not support return_logprob yet."}
        if self.behaviour.together > 1:
            self.barrier.wait(20)
        time.sleep(self.behaviour.pace)
        with self.lock:
            return 200, self._said(prompt, sampling, body)

    def _said(self, prompt: str, sampling: dict, body: dict) -> dict:
        count, warm = sampling["max_new_tokens"], "warm" in body["rid"]
        self.note(rid=body["rid"], prompt=prompt, **sampling)
        seed = f"{self.name} {sampling.get('sampling_seed')}" if sampling["temperature"] else ""
        ids = [zlib.crc32(f"{prompt} {seed} {k}".encode()) % 1000 for k in range(count)]
        if not self.plain and self.behaviour.faulty and int(self.name) != 7:
            ids[self.behaviour.parts_at :] = [7] * len(ids[self.behaviour.parts_at :])
        if not warm:
            self.seen[prompt] = self.seen.get(prompt, 0) + 1
            if self.behaviour.random and self.seen[prompt] % 2 == 0:
                ids[5:] = [self.seen[prompt]] * len(ids[5:])
        meta: dict = {"id": body["rid"], "completion_tokens": count}
        if not self.plain:
            meta |= {"spec_verify_ct": max(1, count // 4), "spec_accept_length": 4.0}
            self._tap(body["rid"])
        if body.get("return_logprob"):
            places = [
                self.behaviour.margin if k == self.behaviour.parts_at else 5.0 for k in range(count)
            ]
            meta["output_token_logprobs"] = [[-0.1, i, None] for i in ids]
            meta["output_top_logprobs"] = [
                [[-0.1, i, None], [-0.1 - places[k], i + 1, None]] for k, i in enumerate(ids)
            ]
        return {"text": " ".join(map(str, ids)), "output_ids": ids, "meta_info": meta}

    def _tap(self, rid: str) -> None:
        if not self.behaviour.tap:
            return
        folder = Path(self.behaviour.tap)
        for line in STEPS.read_text().splitlines():
            step = json.loads(line)
            step["step"], self.step = self.step, self.step + 1
            step["requests"][0]["rid"] = rid
            if self.behaviour.faulty_steps:
                step["inputs"]["positions"][1] += 1
            with open(folder / "rank0.00000.jsonl", "a") as file:
                file.write(json.dumps(step) + "\n")


def handler(pretend: Pretend) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._send(200 if time.monotonic() >= pretend.ready else 503, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(*pretend.answer(body))

        def _send(self, status: int, found: dict) -> None:
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--budget", type=int, default=0)
    parser.add_argument("--topk", type=int, default=0)
    parser.add_argument("--disable-cuda-graph", action="store_true")
    parser.add_argument("--plain", action="store_true")
    asked = parser.parse_args()
    name = "plain" if asked.plain else str(asked.budget)
    told = json.loads(os.environ.get("PRETEND", "{}"))
    keep = {"diary", "tap", "refuse_logprobs"}
    if told.get("only", name) != name:
        told = {key: value for key, value in told.items() if key in keep}
    behaviour = Behaviour(**told)
    pretend = Pretend(name, not asked.disable_cuda_graph, behaviour)
    signal.signal(signal.SIGTERM, lambda *_: pretend.end(0))
    pretend.note(start=True, topk=asked.topk, graphs=pretend.graphs, port=asked.port)
    print("loading weights", flush=True)
    if behaviour.crash:
        print("CUDA out of memory", flush=True)
        pretend.end(3)
    if behaviour.child:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
        pretend.note(child=child.pid)
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer(("127.0.0.1", asked.port), handler(pretend)).serve_forever(0.05)


if __name__ == "__main__":
    main()
