"""What the fakes of object stores have in common: a service on the loopback interface.

Each request is atomic. A fake can be told to lose its answers, which the client's library then asks
for again, and to fail.
"""

import abc
import http.server
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

NAMES_A_PAGE = 2


@dataclass
class FakeBucket:
    """What a bucket holds: content and version by name, and when some of the objects were written.

    All others were written in 1970.
    """

    settings: dict[str, Any]
    rights: set[str]
    objects: dict[str, tuple[bytes, Any]] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    def time_of(self, name: str) -> str:
        return self.written.get(name, "1970-01-01T00:00:00.000Z")

    def page(self, prefix: str, after: str) -> tuple[list[str], bool]:
        """One page of a listing, and whether there are more."""
        names = sorted(name for name in self.objects if name.startswith(prefix) and name > after)
        return names[:NAMES_A_PAGE], len(names) > NAMES_A_PAGE


class Answer(Exception):  # noqa: N818 - not an error: how a handler ends early
    """A status other than success, or an error in spite of it."""

    def __init__(self, status: int, code: str = "") -> None:
        super().__init__(status)
        self.status = status
        self.code = code


class FakeStorage(abc.ABC):
    """A service; use as a context manager.

    Args:
        before: called with each request's method and path, before it is carried out; may wait, or
            raise Answer.
        loses: whether the answer to a request is lost, after it was carried out.
    """

    def __init__(self) -> None:
        self.buckets: dict[str, FakeBucket] = {}
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.loses: Callable[[str, str], bool] = lambda method, path: False
        self.lock = threading.Lock()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def names(self, bucket: str = "releases") -> list[str]:
        """The names of a bucket's objects."""
        return sorted(self.buckets[bucket].objects)

    def put(self, name: str, data: bytes, bucket: str = "releases") -> None:
        """Writes an object past the API."""
        self.buckets[bucket].objects[name] = (data, self.version_of(data))

    @abc.abstractmethod
    def version_of(self, data: bytes) -> Any:
        """The version of an object that is written now."""

    @abc.abstractmethod
    def answer(
        self, method: str, path: str, query: dict[str, str], headers: Any, body: bytes
    ) -> tuple[dict[str, str], bytes]:
        """Carries a request out; returns headers and the body of the answer."""

    @abc.abstractmethod
    def error(self, ended: Answer) -> bytes:
        """The body of an answer that is an error."""


def _handler(service: FakeStorage) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet: no wait for its acknowledgement

        def handle_expect_100(self) -> bool:
            is_expected = super().handle_expect_100()
            self.wfile.flush()
            return is_expected

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path, _, text = self.path.partition("?")
            pairs = urllib.parse.parse_qs(text, keep_blank_values=True)
            query = {name: "\n".join(values) for name, values in pairs.items()}
            status, headers = 200, {}
            try:
                service.before(self.command, path)
                with service.lock:
                    service.requests.append((self.command, path))
                    headers, answer = service.answer(self.command, path, query, self.headers, body)
            except Answer as ended:
                status, answer = ended.status, service.error(ended)
            if service.loses(self.command, path):
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def skip_waits(monkeypatch: Any) -> list[float]:
    """Leaves out waits of this thread; returns how long they would have been."""
    waits: list[float] = []
    mine, sleep = threading.get_ident(), time.sleep

    def wait(seconds: float) -> None:
        if threading.get_ident() == mine:
            waits.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr("time.sleep", wait)
    return waits
