"""The broker: what a RocketMQ client may ask of it, one capability a package.

In: typed requests from `remoting`, time from a `Clock`, messages to and from a `MessageStore`.
Out: answers, notices to clients, registrations with NameServers, and the tables in `config/*.json`.
Only `ports.py` knows of sockets; `broker.Broker` puts the parts together, and `services.py` names them.
"""

from arrowmq.broker.broker import Broker
from arrowmq.broker.settings.config import BrokerConfig

__all__ = ["Broker", "BrokerConfig"]
