"""The console as a whole: what it knows, what it keeps, and whom it asks."""

from __future__ import annotations

import logging
from collections import OrderedDict

from arrowmq.client.admin import Admin
from arrowmq.client.options import ConnectOptions
from arrowmq.client.produce.producer import Producer
from arrowmq.console.cache import Cache
from arrowmq.console.doors.audit import AuditLog
from arrowmq.console.doors.sessions import Sessions, Visitor
from arrowmq.console.jobs.resend import ResendJobs
from arrowmq.console.live.gatherer import Gatherer
from arrowmq.console.live.hub import Hub
from arrowmq.console.options import ConsoleOptions

log = logging.getLogger(__name__)

MOST_USERS = 64
PRODUCER_GROUP = "arrowmq_console"


class Console:
    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self.hub = Hub()
        self.sessions = Sessions(options.token)
        self.audit = AuditLog(options.directory)
        self.cache = Cache()
        self.admin = Admin(options.namesrv, **options.connect)
        self.gatherer = Gatherer(options, self.admin, self.hub)
        self.jobs = ResendJobs(options.directory, self.hub)
        self._admins: OrderedDict[tuple[str, str], Admin] = OrderedDict()
        self._producers: OrderedDict[tuple[str, str] | None, Producer] = OrderedDict()

    async def start(self) -> None:
        await self.admin.start(is_patient=True)
        self.gatherer.start()
        self.jobs.start()

    async def stop(self) -> None:
        self.hub.close()
        await self.jobs.stop()
        await self.gatherer.stop()
        for admin in self._admins.values():
            await admin.close()
        for producer in self._producers.values():
            await producer.close()
        await self.admin.close()

    async def admin_of(self, visitor: Visitor) -> Admin:
        """Who logged in as a user of the brokers acts with that user's rights; everybody else with the console's."""
        credentials = visitor.credentials
        if credentials is None:
            return self.admin
        admin = self._admins.get(credentials)
        if admin is None:
            admin = await self.open_admin(credentials)
            self._admins[credentials] = admin
            if len(self._admins) > MOST_USERS:
                _, oldest = self._admins.popitem(last=False)
                await oldest.close()
        else:
            self._admins.move_to_end(credentials)
        return admin

    async def open_admin(self, credentials: tuple[str, str] | None) -> Admin:
        """Without credentials, one that signs nothing."""
        connect = ConnectOptions(**self.options.connect)
        connect["credentials"] = credentials
        admin = Admin(self.options.namesrv, **connect)
        await admin.start(is_patient=True)
        return admin

    async def producer(self, visitor: Visitor) -> Producer:
        """Made when the first message is sent, not before; a broker's user sends with that user's rights."""
        producer = self._producers.get(visitor.credentials)
        if producer is None:
            connect = ConnectOptions(**self.options.connect)
            if visitor.credentials is not None:
                connect["credentials"] = visitor.credentials
            producer = Producer(self.options.namesrv, group=PRODUCER_GROUP, **connect)
            await producer.start()
            self._producers[visitor.credentials] = producer
            if len(self._producers) > MOST_USERS:
                _, oldest = self._producers.popitem(last=False)
                await oldest.close()
        return producer
