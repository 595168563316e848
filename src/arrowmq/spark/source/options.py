"""The options of `format("arrowmq")` for reading, as one object that planner and tasks share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from arrowmq.filter import SQL92, FilterError, compile
from arrowmq.spark.blocking_link import Credentials, LinkTls
from arrowmq.spark.cluster import Cluster, Connection, Route, name_pattern
from arrowmq.spark.options import OptionError, Options
from arrowmq.spark.source.filters import tag_filter
from arrowmq.spark.source.pull import DEFAULT_GROUP, Subscription
from arrowmq.spark.source.ranges import EARLIEST, LATEST, Bounds, Offsets, Position, ending_position, starting_position
from arrowmq.wire.message_queue import MessageQueue

SINK_ONLY = ("producerGroup", "delivery", "rate", "acceptLostRecord", "txnAppId", "txnVersion")


def connection_of(options: Options) -> Connection:
    """How to reach the cluster; shared by source and sink."""
    given = options.required("namesrv", "say where the NameServer is, such as localhost:9876 (several: separated by ;)")
    addresses = tuple(part.strip() for part in given.replace(",", ";").split(";") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise OptionError("namesrv", f"{address!r} is not host:port")
    access_key, secret_key = options.text("accessKey"), options.text("secretKey")
    if (access_key is None) != (secret_key is None):
        raise OptionError("secretKey" if access_key else "accessKey", "is needed with the other of the pair")
    retries = options.number("fetchOffset.numRetries")
    interval_ms = options.number("fetchOffset.retryIntervalMs", 1000, least=1) or 1000
    patience_ms = options.duration_ms("patienceMs", 60_000 if retries is None else retries * interval_ms)
    return Connection(
        namesrv=addresses,
        timeout_s=(options.number("pullTimeoutMs", 10_000, least=1) or 10_000) / 1000,
        patience_s=patience_ms / 1000,
        credentials=Credentials(access_key, secret_key) if access_key and secret_key else None,
        tls=_tls_of(options),
    )


def _tls_of(options: Options) -> LinkTls | None:
    """Files are named as they lie on the executors."""
    ca, certificate, key = (options.text(name) or "" for name in ("tlsCa", "tlsCert", "tlsKey"))
    if key and not certificate:
        raise OptionError("tlsCert", "is needed with tlsKey")
    return LinkTls(ca, certificate, key) if options.truth("tls", default=False) or ca or certificate else None


@dataclass(frozen=True)
class SourceOptions:
    connection: Connection
    topics: tuple[str, ...]
    topic_pattern: str | None
    queues: dict[str, list[str]] | None
    subscription: Subscription
    tags: frozenset[str] | None
    group: str | None
    starting: Position
    ending: Position
    max_rows: int | None
    max_bytes: int | None
    min_rows: int | None
    max_delay_ms: int
    min_partitions: int | None
    columns: tuple[str, ...] | None
    with_properties: bool

    @classmethod
    def parse(cls, given: dict[str, str], *, is_stream: bool, is_kind_known: bool = True) -> SourceOptions:
        """`is_kind_known=False` is for the schema, which Spark asks for before it says whether this is a stream."""
        options = Options(given)
        connection = connection_of(options)
        topics = (options.names("topics") or []) + (options.names("topic") or [])
        pattern = options.text("topicPattern")
        queues = _queue_lists(options)
        said = [name for name, value in (("topic", topics), ("topicPattern", pattern), ("queues", queues)) if value]
        if not said:
            raise OptionError("topic", "say what to read: topic, topics (several, with commas), topicPattern or queues")
        if len(said) > 1:
            raise OptionError(said[1], f"cannot be used together with {said[0]}")
        if pattern is not None:
            name_pattern(pattern)
        tags, sql = options.text("tags"), options.text("sql")
        if tags and sql:
            raise OptionError("sql", "cannot be used together with tags")
        if sql:
            check_sql(sql)
        group = options.text("group")
        columns = options.names("columns")
        found = cls(
            connection=connection,
            topics=tuple(dict.fromkeys(topics or queues or ())),
            topic_pattern=pattern,
            queues=queues,
            subscription=Subscription(
                expression=sql or tags or "*",
                kind="SQL92" if sql else "TAG",
                group=group or DEFAULT_GROUP,
                batch_size=options.number("pullBatchSize", 1024, least=1) or 1024,
                fail_on_data_loss=options.truth("failOnDataLoss", True),
            ),
            tags=tag_filter(tags) if tags else None,
            group=group,
            starting=starting_position(options, default=LATEST if is_stream else EARLIEST),
            ending=ending_position(options),
            max_rows=options.number("maxOffsetsPerTrigger", least=1),
            max_bytes=options.size("maxBytesPerTrigger"),
            min_rows=options.number("minOffsetsPerTrigger", least=1),
            max_delay_ms=options.duration_ms("maxTriggerDelay", 15 * 60_000),
            min_partitions=options.number("minPartitions", least=1),
            columns=None if columns is None else tuple(columns),
            with_properties=options.truth("includeHeaders", True),
        )
        options.finish(*SINK_ONLY)
        if is_kind_known and is_stream and found.ending != Position("endingOffsets", everywhere=LATEST):
            raise OptionError(found.ending.option, "a stream has no end; use it with spark.read")
        return found

    def routes(self, cluster: Cluster, known: Collection[str] = ()) -> list[Route]:
        """The routes of the topics, as they are now. A topic that does not exist is an error, one that is `known` to
        have existed is waited for."""
        topics = self.topics
        if self.topic_pattern is not None:
            topics = tuple(sorted({*known, *cluster.topics_like(self.topic_pattern)}))
        found = []
        for topic in topics:
            route = cluster.known_route(topic) if topic in known else cluster.route(topic)
            if route is None and not cluster.brokers():
                raise OptionError("namesrv", f"no broker is registered with {';'.join(self.connection.namesrv)} now")
            if route is None:
                raise OptionError(
                    "topic", f"topic {topic} does not exist; create it with `arrowmq topic create {topic}`"
                )
            found.append(route)
        return found

    def read_queues(self, cluster: Cluster, known: Collection[str] = ()) -> tuple[list[MessageQueue], dict[str, str]]:
        """The queues to read and the addresses of their brokers."""
        routes = self.routes(cluster, known)
        addresses: dict[str, str] = {}
        queues: list[MessageQueue] = []
        for route in routes:
            addresses.update(route.addresses)
            queues += route.readable if self.queues is None else _chosen(route, self.queues[route.topic])
        return sorted(queues), addresses


def resolve(cluster: Cluster, position: Position, bounds: dict[MessageQueue, Bounds], *, default: int) -> Offsets:
    """Turns a position into an offset for each queue."""
    offsets = {queue: _either(default, held) for queue, held in bounds.items()}
    if position.everywhere is not None:
        return {queue: _either(position.everywhere, held) for queue, held in bounds.items()}
    if position.timestamp_ms is not None:
        return {**offsets, **_by_time(cluster, position, dict.fromkeys(bounds, position.timestamp_ms), bounds)}
    given = position.matching(bounds)
    if position.are_timestamps:
        return {**offsets, **_by_time(cluster, position, given, bounds)}
    for queue, offset in given.items():
        offsets[queue] = _either(offset, bounds[queue]) if offset < 0 else offset
    return offsets


def bounds_of(cluster: Cluster, queues: list[MessageQueue]) -> dict[MessageQueue, Bounds]:
    earliest, latest = cluster.min_offsets(queues), cluster.max_offsets(queues)
    return {queue: Bounds(earliest[queue], max(earliest[queue], latest[queue])) for queue in queues}


def check_sql(expression: str) -> None:
    """Refuses, before any broker is asked, an expression that does not parse."""
    try:
        compile(SQL92, expression)
    except FilterError as wrong:
        raise OptionError("sql", str(wrong)) from None


def _either(rule: int, held: Bounds) -> int:
    return held.earliest if rule == EARLIEST else held.latest


def _by_time(
    cluster: Cluster, position: Position, times: dict[MessageQueue, int], bounds: dict[MessageQueue, Bounds]
) -> Offsets:
    found = cluster.offsets_by_time(times)
    if position.late_timestamp == "error":
        for queue, offset in found.items():
            if offset >= bounds[queue].latest:
                raise OptionError(
                    position.option,
                    f"queue {queue.broker_name}:{queue.queue_id} of topic {queue.topic} has no message stored at "
                    f"{times[queue]} or later; with {position.option.split('OffsetsBy')[0].split('Timestamp')[0]}"
                    "OffsetsByTimestampStrategy=latest it starts at its end",
                )
    return found


def _queue_lists(options: Options) -> dict[str, list[str]] | None:
    """Option `queues`, Kafka's `assign`: {"orders": [0, 1, "broker-a:2"]}."""
    given = options.json_object("queues")
    if given is None:
        return None
    for topic, numbers in given.items():
        if not isinstance(numbers, list) or not numbers:
            raise OptionError("queues", f'topic {topic} needs a list of queues, such as {{"{topic}":[0,1]}}')
    return {topic: [str(number) for number in numbers] for topic, numbers in given.items()}


def _chosen(route: Route, names: list[str]) -> list[MessageQueue]:
    found = []
    for name in names:
        matching = [
            queue for queue in route.readable if name in (str(queue.queue_id), f"{queue.broker_name}:{queue.queue_id}")
        ]
        if not matching:
            raise OptionError("queues", f"topic {route.topic} has no queue {name}")
        found += matching
    return found
