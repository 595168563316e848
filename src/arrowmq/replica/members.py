"""The brokers of one name, as the NameServers know them: whose acknowledgement counts, and who is there.

Apache's master takes whoever sends eight bytes to its HA port for a slave. Here a connection counts if it comes from
the host of a registered slave, and from each host at most as many as are registered there, the oldest first. Slaves
that cannot be seen in a NameServer are named in `haSlaveAddresses`.
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
        for named in self._config.ha_slave_addresses.replace(";", ",").split(","):
            if named.strip():
                hosts[_host(named.strip())] += 1
        return hosts

    def count(self, feeds: Iterable[Feed]) -> list[Feed]:
        """Mark the feeds that count, and return them."""
        left = self.slave_hosts()
        counted = []
        for feed in feeds:
            feed.is_member = feed.session.is_begun and left[feed.host] > 0
            if feed.is_member:
                left[feed.host] -= 1
                counted.append(feed)
        return counted


def _host(address: str) -> str:
    try:
        return parse_address(address)[0]
    except AddressError:
        return address
