"""HTTP to one server: http and https alone, every call with limits of time and size, and one that can be given up.

Redirects are not followed. What goes wrong leaves here as :class:`ServerError`, with the address first.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from engine.trace.errors import FieldProblem
from engine.trace.json_codec import parse_json

MAX_BYTES = 8 << 20  # of one answer
CONNECT = 5.0  # seconds
TICK = 0.1  # seconds from one look at who waits to the next

Tick = Callable[[], None]  # called while a call goes on; raising gives it up


class ServerError(OSError):
    """The server cannot be reached, or answers otherwise than expected. ``status``: of HTTP, None without an answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    scheme: str
    host: str
    port: int | None
    path: str  # before every endpoint, without "/" at its end

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def address_of(url: str) -> Address:
    """The base of ``http://host:port`` or ``http://host:port/v1``. Raises ``ValueError`` for anything else."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ValueError(f"server {url!r}: {error}") from None
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    printable = all(c.isprintable() and c != " " for c in url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or not printable:
        raise ValueError(f"server: expected http://host:port or https://host:port, found {url!r}")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Address(parts.scheme, parts.hostname, port, path)


class Client:
    """Calls of one server, one at a time. ``timeout``: seconds of one call; ``key``: that it asks for (a bearer token).

    Raises ``ValueError`` for a key that no header can hold.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout: float = 120.0,
        tick: Tick = lambda: None,
        key: str | None = None,
    ):
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ValueError("key: expected printable ASCII, found other characters in it")
        self.address, self.timeout, self._tick = address, timeout, tick
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def get(self, path: str, *, timeout: float | None = None) -> bytes:
        """Body of an answer with status 200. Raises ``ServerError``."""
        return self._call("GET", path, None, timeout or self.timeout)

    def post(self, path: str, body: Any) -> Any:
        """The JSON that answers JSON. Raises ``ServerError``."""
        return self.parsed(path, self._call("POST", path, json.dumps(body).encode(), self.timeout))

    def parsed(self, path: str, data: bytes) -> Any:
        """An answer as JSON. Raises ``ServerError``."""
        try:
            return parse_json(data.decode("utf-8"), MAX_BYTES)
        except FieldProblem as problem:
            found = f"expected {problem.expected}, found {problem.found}"
        except (ValueError, RecursionError) as error:
            found = f"expected JSON, found {str(error)[:80]}"
        raise ServerError(f"{self.address}{path}: {found}", 200)

    def _call(self, method: str, path: str, body: bytes | None, timeout: float) -> bytes:
        """In a thread of its own, so that whoever waits can give it up while the server thinks."""
        call = _Call(self.address, method, path, body, timeout, self._headers)
        deadline = time.monotonic() + timeout
        thread = threading.Thread(target=call.run, name="server call", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(TICK)
                self._tick()
                if thread.is_alive() and time.monotonic() > deadline:
                    raise ServerError(f"{self.address}{path}: no whole answer within {timeout:g} s")
        finally:
            call.close()
        if call.error is not None:
            raise call.error
        return call.body


class _Call:
    def __init__(
        self,
        address: Address,
        method: str,
        path: str,
        body: bytes | None,
        timeout: float,
        headers: dict[str, str],
    ):
        kind = (
            http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        )
        self._connection = kind(address.host, address.port, timeout=min(timeout, CONNECT))
        self._where, self._method, self._path = f"{address}{path}", method, f"{address.path}{path}"
        self._data, self._timeout, self._headers = body, timeout, headers
        self._socket: socket.socket | None = None  # the connection forgets the one of a last answer
        self.body = b""
        self.error: ServerError | None = None

    def run(self) -> None:
        """Body of the thread; never raises."""
        try:
            self.body = self._answer()
        except ServerError as error:
            self.error = error
        except TimeoutError:
            connected = self._socket is not None
            what = "whole answer" if connected else "connection"
            waited = self._timeout if connected else min(self._timeout, CONNECT)
            self.error = ServerError(f"{self._where}: no {what} within {waited:g} s")
        except Exception as error:
            words = str(error) or type(error).__name__
            self.error = ServerError(f"{self._where}: {words[:200]}")

    def close(self) -> None:
        """End the connection, whatever goes on in it; a thread that reads from it ends too."""
        with suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(Exception):
            self._connection.close()

    def _answer(self) -> bytes:
        connection = self._connection
        connection.connect()
        self._socket = connection.sock
        self._socket.settimeout(self._timeout)
        kind = {"Content-Type": "application/json"} if self._data is not None else {}
        headers = {**kind, **self._headers}
        connection.request(self._method, self._path, self._data, headers)
        response = connection.getresponse()
        body = response.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise ServerError(f"{self._where}: expected at most {MAX_BYTES} bytes, found more")
        if response.status != 200:
            words = body[:200].decode("utf-8", "replace").strip().replace("\n", " ")
            said = f": {words}" if words else ""
            raise ServerError(
                f"{self._where}: expected HTTP 200, found {response.status}{said}", response.status
            )
        return body
