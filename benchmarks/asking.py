"""The few requests that a measurement itself makes, written to the socket as they are.

They do not go through `arrowmq.wire`: a measurement must not depend on the code that it measures.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import time
from typing import Any

UPDATE_AND_CREATE_TOPIC, GET_MAX_OFFSET, GET_ROUTE = 17, 30, 105
SEND_MESSAGE_V2, PULL_MESSAGE, QUERY_CONSUMER_OFFSET = 310, 11, 14


class Asker:
    """One connection that asks one thing at a time."""

    def __init__(self, address: str, timeout_s: float = 10) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._numbers = itertools.count(1)

    def ask(self, code: int, body: bytes = b"", /, **fields: object) -> tuple[int, dict[str, Any], bytes]:
        """The code, the header and the body of the answer."""
        header = json.dumps(
            {
                "code": code,
                "flag": 0,
                "language": "JAVA",
                "opaque": next(self._numbers),
                "serializeTypeCurrentRPC": "JSON",
                "version": 479,
                "extFields": {name: str(value) for name, value in fields.items()},
            },
            separators=(",", ":"),
        ).encode()
        self.socket.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
        (length,) = struct.unpack(">I", self._exactly(4))
        answer = self._exactly(length)
        (word,) = struct.unpack_from(">I", answer)
        end = 4 + (word & 0xFFFFFF)
        said = json.loads(answer[4:end])
        return int(said["code"]), said, answer[end:]

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
        return bytes(data)

    def create_topic(self, topic: str, queues: int) -> None:
        code, said, _ = self.ask(
            UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=queues,
            writeQueueNums=queues,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
        )
        if code:
            raise RuntimeError(f"creating {topic}: {said.get('remark')}")

    def stored(self, topic: str, queues: int) -> int:
        """How many messages the topic's queues have taken so far."""
        return sum(self.stored_in(topic, queue) for queue in range(queues))

    def stored_in(self, topic: str, queue: int) -> int:
        _, said, _ = self.ask(GET_MAX_OFFSET, topic=topic, queueId=queue)
        return int(said["extFields"]["offset"])

    def consumed(self, group: str, topic: str, queues: int) -> int:
        """How many messages of the topic the group has acknowledged."""
        total = 0
        for queue in range(queues):
            code, said, _ = self.ask(QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=queue)
            total += int(said["extFields"]["offset"]) if code == 0 else 0
        return total

    def send(self, topic: str, body: bytes) -> int:
        fields = {"a": "asker", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": time.time_ns() // 1_000_000}
        code, _, _ = self.ask(SEND_MESSAGE_V2, body, **fields, h=0, i="WAIT\x01true\x02", j=0, k="false", m="false")
        return code

    def pull(self, topic: str, offset: int) -> bytes:
        _, _, body = self.ask(
            PULL_MESSAGE,
            consumerGroup="asker",
            topic=topic,
            queueId=0,
            queueOffset=offset,
            maxMsgNums=32,
            sysFlag=4,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
            expressionType="TAG",
        )
        return body

    def close(self) -> None:
        self.socket.close()
