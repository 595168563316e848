"""Administration of a cluster: topics, groups, offsets and lag, routes, messages, dead letters, brokers.

async with Admin("localhost:9876") as admin:
    await admin.create_topic("orders", queues=8)
    for queue, lag in (await admin.lag("billing")).items():
        print(queue, lag)

In: questions of a program or of the `arrowmq` command. Out: requests to NameServers and
brokers, and their answers as values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from arrowmq.client.admin.access import AccessAdmin
from arrowmq.client.admin.cluster import ClusterAdmin
from arrowmq.client.admin.controlled import ControlledAdmin
from arrowmq.client.admin.inspect import InspectAdmin
from arrowmq.client.admin.messages import MessageAdmin
from arrowmq.client.admin.offsets import OffsetAdmin
from arrowmq.client.admin.replicas import ReplicaAdmin
from arrowmq.client.admin.topics import TopicAdmin
from arrowmq.client.async_scope import Scope
from arrowmq.client.options import ConnectOptions, Options
from arrowmq.client.session import Session


class Admin(
    TopicAdmin, OffsetAdmin, MessageAdmin, InspectAdmin, AccessAdmin, ControlledAdmin, ReplicaAdmin, ClusterAdmin, Scope
):
    """Asks and tells NameServers and brokers; keeps nothing but its connections."""

    def __init__(self, namesrv: str | Sequence[str] | None = None, **connect: Unpack[ConnectOptions]) -> None:
        options = Options.of(namesrv, connect)
        self.namespace = options.namespace
        self.session = Session(options)

    async def start(self, *, is_patient: bool = False) -> None:
        """`is_patient`: whether a NameServer answers shows with the first call, and each may find another answer."""
        await self.session.start(is_patient=is_patient)

    async def close(self) -> None:
        await self.session.close()
