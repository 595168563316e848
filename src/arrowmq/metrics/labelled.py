"""Metric families with the labels that every metric of a broker has.

RocketMQ's documentation, and boards made for its first 5.x releases, name metrics without their unit
(`rocketmq_rpc_latency`); the exporter of later releases adds it (`rocketmq_rpc_latency_milliseconds`). A family with a
unit is therefore shown under both names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.samples import Sample

from arrowmq.distribution import Distribution

MILLISECONDS, SECONDS, BYTES = "milliseconds", "seconds", "bytes"


class LabelledFamilies:
    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = dict(labels)

    def with_labels(self, **labels: str) -> LabelledFamilies:
        return LabelledFamilies({**self.labels, **labels})

    def gauge(self, name: str, about: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, about, labels=[*self.labels, *labels])

    def counter(self, name: str, about: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(name, about, labels=[*self.labels, *labels])

    def histogram(self, name: str, about: str, *labels: str) -> HistogramMetricFamily:
        return HistogramMetricFamily(name, about, labels=[*self.labels, *labels])

    def add(self, family: GaugeMetricFamily | CounterMetricFamily, value: float, *labels: str) -> None:
        family.add_metric([*self.labels.values(), *labels], value)

    def add_all(self, family: HistogramMetricFamily, values: Distribution, *labels: str) -> None:
        buckets: list[tuple[str, float]] = [(_bound(bound), count) for bound, count in values.cumulated()]
        family.add_metric([*self.labels.values(), *labels], buckets, values.total)

    def one(self, name: str, about: str, value: float) -> Metric:
        family = self.gauge(name, about)
        self.add(family, value)
        return family


def in_unit(family: Metric, unit: str) -> Iterator[Metric]:
    """The family, and the same under the name with its unit."""
    yield family
    if not family.name.endswith(unit):
        named = Metric(f"{family.name}_{unit}", family.documentation, family.type)
        named.samples = [_renamed(sample, family.name, named.name) for sample in family.samples]
        yield named


def _bound(value: float) -> str:
    return "+Inf" if value == math.inf else str(value)


def _renamed(sample: Sample, before: str, after: str) -> Sample:
    return sample._replace(name=after + sample.name.removeprefix(before))
