"""`[telemetry]`: who is told how a run stands, beside its own event file.

Knows nothing of: who listens, the rest of the job.
"""

from __future__ import annotations

from pydantic import Field, field_validator

from rowmill.part import Part


class TelemetryConfig(Part):
    """`[telemetry]`: how a run stands, for Prometheus, OpenTelemetry and log readers."""

    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """Serve `/metrics` for Prometheus on this port while the run goes; 0: any free one, which is told. None: not served."""
    metrics_host: str = "127.0.0.1"
    """Address that it is served on; `0.0.0.0` lets others ask, as in a pod. Nobody is asked for a password."""
    log: str = ""
    """File that gets one JSON object a line: tasks as they begin and end, the engine, notes, the summary; `-` is
    standard error. Empty: none."""
    otlp: str = ""
    """Root of an OpenTelemetry collector that takes OTLP over HTTP, as `http://127.0.0.1:4318`: metrics every 15 s, and a
    span for each task. Empty: none."""

    @field_validator("otlp")
    @classmethod
    def _otlp_is_http(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            msg = "is no root of an HTTP server, as `http://127.0.0.1:4318`"
            raise ValueError(msg)
        return value.rstrip("/")
