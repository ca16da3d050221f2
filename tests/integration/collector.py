"""An OpenTelemetry collector in this process: OTLP over HTTP, kept in memory."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collector", "Event", "Span"]


@dataclass(frozen=True)
class Span:
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    attributes: dict[str, Any]
    #: 0 unset, 1 ok, 2 error.
    status: int
    words: str
    start: int
    end: int

    @property
    def job(self) -> Any:
        return self.attributes.get("messaging.message.id")


@dataclass(frozen=True)
class Event:
    name: str
    trace: str
    attributes: dict[str, Any]


class Collector:
    """Listens on a free port until it is closed."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.events: list[Event] = []
        #: All bytes that arrived.
        self.raw = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector._take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """In silence."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> list[Span]:
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start)

    def of(self, job: str, operation: str = "run") -> list[Span]:
        """The spans of a job, as they began."""
        found = [
            span for span in self.spans if span.job == job and span.attributes["messaging.operation.name"] == operation
        ]
        return sorted(found, key=lambda span: span.start)

    def _take(self, path: str, body: bytes) -> None:
        self.raw += body
        if path.endswith("/v1/traces"):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.spans.extend(_span(span) for scope in resource.scope_spans for span in scope.spans)
        else:
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.events.extend(
                    Event(record.event_name, record.trace_id.hex(), _attributes(record.attributes))
                    for scope in logs.scope_logs
                    for record in scope.log_records
                )


def _span(span: Any) -> Span:
    return Span(
        span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
        tuple(link.span_id.hex() for link in span.links), _attributes(span.attributes), span.status.code,
        f"{span.status.message} {[str(event) for event in span.events]}", span.start_time_unix_nano, span.end_time_unix_nano,
    )  # fmt: skip


def _attributes(found: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in found}
