"""Bodies that describe topics: their configuration, and the mapping of static topics."""

# ruff: noqa: RUF012 - msgspec gives every object its own copy of an empty default

from __future__ import annotations

from msgspec import field

from arrowmq.wire.bodies.declare import Body, DataVersion


class TopicConfig(Body, kw_only=True):
    attributes: dict[str, str] = {}
    order: bool = False
    perm: int = 6
    read_queue_nums: int = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: int = 0
    write_queue_nums: int = 16


class LogicQueueMappingItem(Body, kw_only=True):
    bname: str | None = None
    end_offset: int = -1
    gen: int = 0
    logic_offset: int = 0
    queue_id: int = 0
    start_offset: int = 0
    time_of_end: int = -1
    time_of_start: int = -1


class TopicQueueMappingInfo(Body, kw_only=True):
    bname: str | None = None
    curr_id_map: dict[int, int] = {}
    dirty: bool = False
    epoch: int = 0
    scope: str | None = None
    topic: str | None = None
    total_queues: int = 0


class TopicQueueMappingDetail(TopicQueueMappingInfo, kw_only=True):
    hosted_queues: dict[int, list[LogicQueueMappingItem]] | None = None


class TopicConfigAndQueueMapping(TopicConfig, kw_only=True):
    """Answer to GET_TOPIC_CONFIG; ordinary topics have no mapping."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicConfigSerializeWrapper(Body, kw_only=True):
    """A broker's topics: inside a registration, and as answer to GET_ALL_TOPIC_CONFIG."""

    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion | None = None
    topic_config_table: dict[str, TopicConfig] = {}
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = None
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None


class CreateTopicListBody(Body, kw_only=True):
    topic_config_list: list[TopicConfig] = []
