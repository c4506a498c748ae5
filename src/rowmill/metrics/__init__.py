"""Events of a run -> those who are told of them beside its event file, as `[telemetry]` says.

Promises: nothing is imported and nothing listens where the job asks for nothing.
Knows nothing of: runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rowmill.events import Listener, Note
from rowmill.telemetry_config import TelemetryConfig

__all__ = ["listening"]


@contextlib.contextmanager
def listening(config: TelemetryConfig, listen: Listener | None) -> Iterator[Listener | None]:
    """A listener that tells `listen`, and all whom the job names.

    Raises:
        ConfigError: a port or a library cannot be had.
    """
    if config.metrics_port is None and not config.log and not config.otlp:
        yield listen
        return
    from rowmill.metrics.families import Seen
    from rowmill.metrics.log import logged
    from rowmill.metrics.opentelemetry import pushed
    from rowmill.metrics.prometheus import served

    seen = Seen()
    listeners: list[Listener] = [seen, *([listen] if listen is not None else [])]

    def hear(event: object) -> None:
        for one in listeners:
            one(event)

    with contextlib.ExitStack() as stack:
        if config.log:
            listeners.append(stack.enter_context(logged(config.log)))
        if config.otlp:
            listeners.append(stack.enter_context(pushed(seen, config.otlp)))
        if config.metrics_port is not None:
            page = served(
                seen,
                config.metrics_host,
                config.metrics_port,
                lambda text: hear(Note(text=text)),
            )
            stack.enter_context(page)
        yield hear
