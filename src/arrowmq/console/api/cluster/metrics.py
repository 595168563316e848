"""Metrics: what each broker tells of its running, and where Prometheus reads the rest."""

from __future__ import annotations

from arrowmq.console.api.cluster.settings import SettingsQuery, address_of, config_of
from arrowmq.console.api.declare import Call, Struct, endpoint


class ExporterRow(Struct, kw_only=True):
    broker: str
    address: str
    #: Where its metrics are, or None where it exports none
    url: str | None
    exporter: str


class Runtime(Struct, kw_only=True):
    broker: str
    address: str
    values: dict[str, str]
    rows: list[ExporterRow]


@endpoint("GET", "/api/metrics", tag="metrics")
async def metrics(call: Call, query: SettingsQuery) -> Runtime:
    """All that one broker tells of its running, and every broker's page for Prometheus."""
    snapshot = await call.console.gatherer.fresh()
    broker, address = await address_of(call, query.broker)
    text = query.q.lower()
    values = await call.kept(("runtime", address), 2.0, lambda admin: admin.broker_runtime(address))
    rows = []
    for row in snapshot.brokers:
        if row.problem is not None:
            continue
        config = await config_of(call, row.address)
        exporter = config.get("metricsExporterType", "DISABLE")
        port = config.get("metricsPromExporterPort", "5557")
        host = config.get("metricsPromExporterHost", "") or row.address.rpartition(":")[0]
        host = row.address.rpartition(":")[0] if host in ("0.0.0.0", "::") else host
        is_prom = exporter.upper() in ("PROM", "3")
        url = f"http://{host}:{port}/metrics" if is_prom and port.isdigit() else None
        rows.append(ExporterRow(broker=row.broker, address=row.address, url=url, exporter=exporter))
    shown = {key: value for key, value in sorted(values.items()) if text in f"{key} {value}".lower()}
    return Runtime(broker=broker, address=address, values=shown, rows=rows)
