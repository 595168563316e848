"""The blocking admin: every call of `arrowmq.Admin` under its name."""

from __future__ import annotations

from collections.abc import Callable

from arrowmq.client import admin as client
from arrowmq.sync.facade import Facade, arguments_of, blocking, iterating


class Admin(Facade[client.Admin]):
    __doc__ = client.Admin.__doc__

    @arguments_of(client.Admin)
    def __init__(self, make: Callable[[], client.Admin]) -> None:
        self._begin(make)

    # -- topics

    create_topic = blocking(client.Admin.create_topic)
    delete_topic = blocking(client.Admin.delete_topic)
    topics = blocking(client.Admin.topics)
    topic_config = blocking(client.Admin.topic_config)
    topic_configs = blocking(client.Admin.topic_configs)
    topic_stats = blocking(client.Admin.topic_stats)
    topic_stats_at = blocking(client.Admin.topic_stats_at)
    groups_of_topic = blocking(client.Admin.groups_of_topic)

    # -- groups and offsets

    create_group = blocking(client.Admin.create_group)
    delete_group = blocking(client.Admin.delete_group)
    groups = blocking(client.Admin.groups)
    group_config = blocking(client.Admin.group_config)
    group_configs = blocking(client.Admin.group_configs)
    in_flight = blocking(client.Admin.in_flight)
    consumers = blocking(client.Admin.consumers)
    producers = blocking(client.Admin.producers)
    running_info = blocking(client.Admin.running_info)
    consume_directly = blocking(client.Admin.consume_directly)
    consume_stats = blocking(client.Admin.consume_stats)
    progress_of_groups = blocking(client.Admin.progress_of_groups)
    lag = blocking(client.Admin.lag)
    committed = blocking(client.Admin.committed)
    set_offset = blocking(client.Admin.set_offset)
    reset_offsets = blocking(client.Admin.reset_offsets)
    plan_reset = blocking(client.Admin.plan_reset)
    apply_reset = blocking(client.Admin.apply_reset)
    clone_offsets = blocking(client.Admin.clone_offsets)

    # -- messages

    message_by_id = blocking(client.Admin.message_by_id)
    message_by_offset_id = blocking(client.Admin.message_by_offset_id)
    messages_by_key = blocking(client.Admin.messages_by_key)
    messages_at = blocking(client.Admin.messages_at)
    indexed_at = blocking(client.Admin.indexed_at)
    queue_entries = blocking(client.Admin.queue_entries)
    dead_letters = blocking(client.Admin.dead_letters)
    resend_dead_letter = blocking(client.Admin.resend_dead_letter)
    read = iterating(client.Admin.read)

    # -- users and rights

    create_user = blocking(client.Admin.create_user)
    update_user = blocking(client.Admin.update_user)
    delete_user = blocking(client.Admin.delete_user)
    user = blocking(client.Admin.user)
    users = blocking(client.Admin.users)
    give_rights = blocking(client.Admin.give_rights)
    give_acl = blocking(client.Admin.give_acl)
    take_rights = blocking(client.Admin.take_rights)
    rights = blocking(client.Admin.rights)
    all_rights = blocking(client.Admin.all_rights)

    # -- masters and slaves

    ha_status = blocking(client.Admin.ha_status)
    epochs = blocking(client.Admin.epochs)
    sync_state = blocking(client.Admin.sync_state)
    controller_leader = blocking(client.Admin.controller_leader)
    controlled_set = blocking(client.Admin.controlled_set)
    elect_master = blocking(client.Admin.elect_master)
    switch_master = blocking(client.Admin.switch_master)

    # -- servers

    cluster_info = blocking(client.Admin.cluster_info)
    masters = blocking(client.Admin.masters)
    targets = blocking(client.Admin.targets)
    route = blocking(client.Admin.route)
    route_data = blocking(client.Admin.route_data)
    broker_runtime = blocking(client.Admin.broker_runtime)
    broker_config = blocking(client.Admin.broker_config)
    update_broker_config = blocking(client.Admin.update_broker_config)
    namesrv_config = blocking(client.Admin.namesrv_config)
    set_write_permission = blocking(client.Admin.set_write_permission)
    consumers_at = blocking(client.Admin.consumers_at)
    producers_at = blocking(client.Admin.producers_at)
    kv_put = blocking(client.Admin.kv_put)
    kv_list = blocking(client.Admin.kv_list)
    kv_delete = blocking(client.Admin.kv_delete)
    call = blocking(client.Admin.call)
    call_body = blocking(client.Admin.call_body)
