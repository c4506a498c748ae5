"""Metrics -> a page that Prometheus reads.

Promises: served on the loopback unless the job says otherwise; a page is made when it is asked for.
Knows nothing of: what metrics mean.
Memory: one page. Threads: one that listens, one a request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rowmill.errors import ConfigError, MissingExtra
from rowmill.metrics.families import Family, Seen

Tell = Callable[[str], None]


@contextlib.contextmanager
def served(seen: Seen, host: str, port: int, tell: Tell) -> Iterator[None]:
    """Serve `/metrics` for as long as the context lasts.

    Raises:
        ConfigError: the port cannot be had.
        MissingExtra: the library is missing.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        from prometheus_client.registry import Collector
    except ImportError as error:
        raise MissingExtra(what="`prometheus-client`", extra="prometheus") from error

    def metric_of(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
        kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        names = [name for name, _ in family.points[0][0]]
        metric = kind(family.name, family.says, labels=names)
        for labels, value in family.points:
            metric.add_metric([text for _, text in labels], value)
        return metric

    class Page(Collector):
        """Collects what was seen."""

        def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
            """See `Collector`."""
            return map(metric_of, seen.families())

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Page())
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        reason = f"`telemetry.metrics_port` = {port} cannot be served on `{host}`: {error.strerror}; name another, or 0"
        raise ConfigError(reason=reason) from error
    try:
        tell(f"metrics: http://{host}:{server.server_address[1]}/metrics")
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
