"""What clients are told to connect to, for every broker of a route.

    remotingAdvertisedAddress     host:port by which clients reach this proxy from outside
    remotingAccessAddr            Apache's key: the host alone, with the port that the proxy listens on
    remotingBrokerPorts           broker-a:8091;broker-b:8092: further ports, each for one broker

Without any of them it is the address that the client itself came to, as its connection or a PROXY header tells it.
"""

from __future__ import annotations

from msgspec.structs import replace

from arrowmq.proxy.config import ProxyConfig
from arrowmq.remoting.address import format_address, parse_address
from arrowmq.remoting.connection import Connection
from arrowmq.remoting.greeting import SERVER_ADDRESS, SERVER_PORT
from arrowmq.wire.bodies import TopicRouteData


class ToldAddress:
    def __init__(self, config: ProxyConfig, ports: dict[str, int]) -> None:
        self._advertised = (
            parse_address(config.remoting_advertised_address) if config.remoting_advertised_address else None
        )
        self._host = config.remoting_access_addr
        self._ports = ports

    def for_all(self, client: Connection, port: int) -> tuple[str, int]:
        """For brokers without a port of their own; `port` is what this proxy listens on."""
        if self._advertised is not None:
            return self._advertised
        if self._host:
            return self._host, port
        told = client.attributes.get(SERVER_ADDRESS)
        if told is not None:
            return str(told), int(client.attributes[SERVER_PORT])
        return client.local[0], port

    def rewrite(self, route: TopicRouteData, client: Connection, port: int) -> TopicRouteData:
        """The same route, with this proxy in the place of every broker."""
        host, main = self.for_all(client, port)
        brokers = []
        for broker in route.broker_datas:
            address = format_address(host, self._ports.get(broker.broker_name, main))
            addresses = dict.fromkeys(broker.broker_addrs, address)
            brokers.append(replace(broker, broker_addrs=addresses))
        return replace(route, broker_datas=brokers)
