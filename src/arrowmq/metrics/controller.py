"""The metric families of a controller: Apache's names for what Apache's has, and who is master of which set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from arrowmq.metrics.labelled import LabelledFamilies
from arrowmq.wire.codes import ResponseCode, request_name

if TYPE_CHECKING:
    from arrowmq.controller.controller import Controller
    from arrowmq.metrics.loop_watch import LoopWatch

FOLLOWER, LEADER = 2, 3  # of Apache's roles of a Raft node; ours is never a candidate: etcd decides


class ControllerFamilies:
    """A collector as prometheus_client knows it: `collect()` gives the families."""

    def __init__(self, controller: Controller, loop_watch: LoopWatch | None = None) -> None:
        self.controller = controller
        self.loop_watch = loop_watch
        peer = controller.peer()
        labels = {"address": peer.address, "group": controller.config.controller_d_leger_group, "peer_id": peer.name}
        self.labelled = LabelledFamilies(labels)

    def collect(self) -> Iterator[Metric]:
        controller, labelled = self.controller, self.labelled
        role = LEADER if controller.decider.is_leading else FOLLOWER
        yield labelled.one("role", "3 of the controller that leads, 2 of the others", role)
        yield from self._brokers()
        yield from self._requests()
        elections = labelled.counter("election", "Elections, by result", "election_result")
        for result, count in sorted(controller.failover.elections.items()):
            labelled.add(elections, count, result)
        yield elections
        yield from self._sets()
        if self.loop_watch is not None:
            longest_s = self.loop_watch.take_longest_s()
            about = "Longest standstill of the event loop since the last look"
            yield labelled.one("arrowmq_loop_pause_seconds", about, longest_s)

    def _brokers(self) -> Iterator[Metric]:
        alive = self.labelled.gauge("active_broker_num", "Brokers whose lease runs", "cluster", "broker_set")
        for (cluster, name), count in sorted(
            Counter((member.cluster, member.name) for member in self.controller.liveness).items()
        ):
            self.labelled.add(alive, count, cluster, name)
        yield alive

    def _requests(self) -> Iterator[Metric]:
        labels = ("request_type", "request_handle_status")
        counted: Counter[tuple[str, str]] = Counter()
        for answered, times in self.controller.answer_times.times.items():
            status = "success" if answered.response_code == ResponseCode.SUCCESS else "failed"
            counted[request_name(answered.request_code), status] += times.count
        family = self.labelled.counter("request", "Requests answered", *labels)
        for values, count in sorted(counted.items()):
            self.labelled.add(family, count, *values)
        yield family

    def _sets(self) -> Iterator[Metric]:
        labels, labelled = ("cluster", "broker_set"), self.labelled
        has_master = labelled.gauge("arrowmq_set_has_master", "1 where a set of brokers has a master", *labels)
        epoch = labelled.gauge("arrowmq_set_epoch", "Elections of a set so far", *labels)
        replicas = labelled.gauge("arrowmq_set_replicas", "Brokers of a set", *labels)
        in_sync = labelled.gauge("arrowmq_set_in_sync", "Members of its sync state set", *labels)
        for name, broker_set in sorted(self.controller.decider.all().items()):
            for family, value in (
                (has_master, int(broker_set.master_id is not None)),
                (epoch, broker_set.master_epoch),
                (replicas, len(broker_set.replicas)),
                (in_sync, len(broker_set.sync_state_set)),
            ):
                labelled.add(family, value, broker_set.cluster, name)
        yield from (has_master, epoch, replicas, in_sync)
