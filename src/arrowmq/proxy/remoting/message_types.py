"""Whether a topic takes messages of this kind (`message.type`), as Apache's proxy checks it.

A topic without the attribute takes all kinds here: topics of the 4.x time have none, and brokers take all of theirs.
"""

from __future__ import annotations

from arrowmq.broker.send.message_types import ANY_TYPE, message_type
from arrowmq.clock import Clock
from arrowmq.proxy.backs.cluster import ClusterBack
from arrowmq.proxy.faults import Fault
from arrowmq.remoting.handlers import Refused
from arrowmq.wire.codes import ResponseCode
from arrowmq.wire.properties import TRANSFER_FLAG, parse_properties

ATTRIBUTE = "message.type"
REMEMBERED = 20_000


class MessageTypes:
    def __init__(self, back: ClusterBack, clock: Clock, refresh_s: float) -> None:
        self._back, self._clock, self._refresh_s = back, clock, refresh_s
        #: By topic, until when it is known, and the one type that it takes; empty: all
        self._known: dict[str, tuple[float, str]] = {}

    def is_known(self, topic: str) -> bool:
        known = self._known.get(topic)
        return known is not None and known[0] > self._clock.monotonic()

    async def learn(self, topic: str) -> None:
        try:
            config = await self._back.topic_config(topic)
        except Fault:
            config = None  # the broker decides: a topic may be made by its first message
        attributes = {} if config is None else config.attributes
        expected = (attributes.get(ATTRIBUTE) or attributes.get(f"+{ATTRIBUTE}") or "").upper()
        self._known.pop(topic, None)
        self._known[topic] = self._clock.monotonic() + self._refresh_s, "" if expected in ANY_TYPE else expected
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    def check(self, topic: str, properties_text: str) -> None:
        """Raises `Refused`."""
        expected = self._known[topic][1]
        if not expected:
            return
        properties = parse_properties(properties_text)
        actual = message_type(properties)
        if actual != expected and TRANSFER_FLAG not in properties:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
            )
