"""The brokers of one name, as the NameServers know them: whose acknowledgement counts, and who is there.

Apache's master takes whoever sends eight bytes to its HA port for a slave. Here a connection counts if it comes from
the host of a registered slave, and from each host at most as many as are registered there: those first that said which
slave they are (`hello`), then the oldest. Slaves that cannot be seen in a NameServer are named in `haSlaveAddresses`.
While users are on, only those count that proved who they are, and the named ones.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from arrowmq.broker.role import MASTER_ID
from arrowmq.remoting.address import AddressError, parse_address
from arrowmq.remoting.errors import RemotingError
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import GetBrokerMemberGroupBody
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import GetBrokerMemberGroup

if TYPE_CHECKING:
    from arrowmq.broker.settings.config import BrokerConfig
    from arrowmq.remoting.client import RemotingClient
    from arrowmq.replica.feed import Feed

log = logging.getLogger(__name__)

ASK_TIMEOUT_S = 3.0


class Members:
    def __init__(self, config: BrokerConfig, remoting: RemotingClient) -> None:
        self._config = config
        self._remoting = remoting
        self.addresses: dict[int, str] = {}  # by broker id, as the NameServer that answered last has them

    async def refresh(self) -> dict[int, str] | None:
        """Ask the NameServers, one after the other; None if none of them answered, and what was known stays."""
        header = GetBrokerMemberGroup(
            cluster_name=self._config.broker_cluster_name, broker_name=self._config.broker_name
        )
        for address in self._config.namesrv_addresses:
            command = Command.request(RequestCode.GET_BROKER_MEMBER_GROUP, header)
            try:
                answer = await self._remoting.invoke(address, command, ASK_TIMEOUT_S)
                if answer.code != ResponseCode.SUCCESS:
                    continue
                group = fastjson.loads(answer.body, type=GetBrokerMemberGroupBody).broker_member_group
            except (RemotingError, WireError, OSError) as failure:
                log.debug("NameServer %s does not name the members of this broker: %s", address, failure)
                continue
            self.addresses = {} if group is None else dict(group.broker_addrs)
            return self.addresses
        return None

    @property
    def alive(self) -> int:
        """How many brokers of this name there are, this one included."""
        return max(1, len(self.addresses))

    def slave_hosts(self) -> Counter[str]:
        """How many slaves may come from each host."""
        hosts: Counter[str] = Counter()
        for broker_id, address in self.addresses.items():
            if broker_id != MASTER_ID:
                hosts[_host(address)] += 1
        return hosts + self._named()

    def _named(self) -> Counter[str]:
        names = self._config.ha_slave_addresses.replace(";", ",").split(",")
        return Counter(_host(name.strip()) for name in names if name.strip())

    def is_named(self, host: str) -> bool:
        return host in self._named()

    def count(self, feeds: Iterable[Feed], *, needs_proof: bool = False) -> list[Feed]:
        """Mark the feeds that count, and return them, the oldest first."""
        feeds = list(feeds)
        left = self._named() if needs_proof else self.slave_hosts()
        known: set[int] = set()
        for feed in feeds:
            broker_id = feed.greeting.broker_id
            feed.is_member = False
            if broker_id is None or broker_id <= MASTER_ID or broker_id in known or not feed.session.is_begun:
                continue
            if needs_proof or left[feed.host] > 0:
                feed.is_member = True
                known.add(broker_id)
                left[feed.host] -= 1
        for feed in feeds:
            if feed.greeting.broker_id is None and feed.session.is_begun and left[feed.host] > 0:
                feed.is_member = True
                left[feed.host] -= 1
        return [feed for feed in feeds if feed.is_member]


def _host(address: str) -> str:
    try:
        return parse_address(address)[0]
    except AddressError:
        return address
