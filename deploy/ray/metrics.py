"""The metrics of several replicas on one page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


def render(collected: Mapping[str, Iterable[Metric]]) -> bytes:
    """Metrics in Prometheus' text format, with the label `replica`.

    Args:
        collected: the metrics of each replica, by its id.
    """
    registry = CollectorRegistry()
    registry.register(_Replicas(collected))
    return generate_latest(registry)


class _Replicas(Collector):
    def __init__(self, collected: Mapping[str, Iterable[Metric]]) -> None:
        self._collected = collected

    def collect(self) -> Iterator[Metric]:
        """Each metric once, with the samples of all replicas."""
        families: dict[str, Metric] = {}
        for replica, metrics in self._collected.items():
            for one in metrics:
                family = families.setdefault(
                    one.name, Metric(one.name, one.documentation, one.type)
                )
                for sample in one.samples:
                    labels = {**sample.labels, "replica": replica}
                    family.add_sample(sample.name, labels, sample.value)
        yield from families.values()
