"""A hand around RocketMQ's own Python client of the 5.x line; see the README of tests/interop. Runs in an environment
of its own, in which nothing but that client is installed."""

import json
import os
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

OUT, sys.stdout = sys.stdout, sys.stderr
RESOLUTIONS = {
    "commit": TransactionResolution.COMMIT,
    "rollback": TransactionResolution.ROLLBACK,
    "unknown": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}


def text(value):
    return value.decode() if isinstance(value, bytes) else value


TLS = sys.argv[2:] == ["tls"]
CHECKED = []


class Checker(TransactionChecker):
    def check(self, message):
        properties = message.properties
        CHECKED.append(text(message.body))
        return RESOLUTIONS[properties.get("outcome", "unknown")]


class Listener(MessageListener):
    def __init__(self, failures, work_ms):
        self.failures, self.work_ms, self.consumed, self.lock = failures, work_ms, [], threading.Lock()

    def consume(self, message):
        body = text(message.body)
        if self.work_ms:
            time.sleep(self.work_ms / 1000)
        with self.lock:
            self.consumed.append(shown(message))
            if self.failures.get(body, 0) > 0:
                self.failures[body] -= 1
                return ConsumeResult.FAILURE
        return ConsumeResult.SUCCESS


def shown(message):
    return {
        "id": message.message_id,
        "topic": message.topic,
        "body": text(message.body),
        "tag": message.tag,
        "keys": sorted(message.keys or []),
        "properties": dict(message.properties or {}),
        "group": message.message_group,
        "attempt": message.delivery_attempt,
        "at": int(time.time() * 1000),
    }


class Hand:
    def __init__(self, endpoints):
        self.endpoints = endpoints
        self.producers, self.consumers, self.messages, self.listeners = {}, {}, {}, {}
        self.lock = threading.Lock()

    def config(self):
        user = Credentials(os.environ.get("HAND_ACCESS_KEY"), os.environ.get("HAND_SECRET_KEY"))
        return ClientConfiguration(self.endpoints, user, request_timeout=10)

    def producer(self, topic, checked=False):
        with self.lock:
            key = (topic, checked)
            if key not in self.producers:
                checker = Checker() if checked else None
                producer = Producer(self.config(), (topic,), checker=checker, tls_enable=TLS)
                producer.startup()
                self.producers[key] = producer
            return self.producers[key]

    def message(self, values):
        message = Message()
        message.topic = values["topic"]
        message.body = values["body"].encode()
        if values.get("tag"):
            message.tag = values["tag"]
        for key in values.get("keys") or ():
            message.keys = key  # its setter adds
        if values.get("message_group"):
            message.message_group = values["message_group"]
        if values.get("delay_ms"):
            message.delivery_timestamp = int(time.time() + values["delay_ms"] / 1000)
        for name, value in (values.get("properties") or {}).items():
            message.add_property(name, value)
        return message

    def send(self, values):
        receipt = self.producer(values["topic"]).send(self.message(values))
        return {"id": receipt.message_id, "recall": getattr(receipt, "recall_handle", None)}

    def send_many(self, values):
        producer = self.producer(values["topic"])
        return [producer.send(self.message({**values, "body": body})).message_id for body in values["bodies"]]

    def transaction(self, values):
        producer = self.producer(values["topic"], checked=True)
        transaction = producer.begin_transaction()
        receipt = producer.send(self.message(values), transaction)
        if values["end"] == "commit":
            transaction.commit()
        elif values["end"] == "rollback":
            transaction.rollback()
        return {"id": receipt.message_id}

    def checked(self, values):
        wait(lambda: len(CHECKED) >= values["number"], values["wait_ms"])
        return list(CHECKED)

    def recall(self, values):
        return {"id": self.producer(values["topic"]).recall_message(values["topic"], values["handle"])}

    def expression(self, values):
        if values.get("sql"):
            from rocketmq.grpc_protocol import FilterType

            return FilterExpression(values["sql"], FilterType.SQL)
        return FilterExpression(values.get("tags") or "*")

    def simple(self, values):
        consumer = SimpleConsumer(
            self.config(),
            values["group"],
            {values["topic"]: self.expression(values)},
            values.get("await_ms", 5000) // 1000,
            tls_enable=TLS,
        )
        consumer.startup()
        self.consumers[values["name"]] = consumer

    def receive(self, values):
        consumer = self.consumers[values["name"]]
        end, found = time.time() + values["wait_ms"] / 1000, []
        while len(found) < values["number"] and time.time() < end:
            for message in consumer.receive(values.get("max", 16), values.get("invisible_ms", 15000) // 1000) or []:
                self.messages[message.message_id] = message
                found.append(shown(message))
        return found

    def ack(self, values):
        for each in values["ids"]:
            self.consumers[values["name"]].ack(self.messages[each])

    def change(self, values):
        message = self.messages[values["id_of"]]
        self.consumers[values["name"]].change_invisible_duration(message, values["invisible_ms"] // 1000)

    def push(self, values):
        listener = Listener(dict(values.get("failures") or {}), values.get("work_ms", 0))
        consumer = PushConsumer(
            self.config(), values["group"], listener, {values["topic"]: self.expression(values)}, tls_enable=TLS
        )
        consumer.startup()
        self.consumers[values["name"]], self.listeners[values["name"]] = consumer, listener

    def pushed(self, values):
        listener = self.listeners[values["name"]]
        wait(lambda: len(listener.consumed) >= values["number"], values["wait_ms"])
        return list(listener.consumed)

    def close(self, values):
        self.consumers.pop(values["name"]).shutdown()


def wait(done, wait_ms):
    end = time.time() + wait_ms / 1000
    while not done() and time.time() < end:
        time.sleep(0.01)


def main():
    hand = Hand(sys.argv[1])
    lock = threading.Lock()

    def answer(command):
        said = {"id": command["id"]}
        try:
            said["result"] = getattr(hand, command["do"])(command)
        except Exception as problem:
            traceback.print_exc()
            said["error"] = {
                "kind": type(problem).__name__,
                "code": getattr(problem, "code", None),
                "message": str(problem),
            }
        with lock:
            OUT.write(json.dumps(said) + "\n")
            OUT.flush()

    workers = ThreadPoolExecutor(32)
    for line in sys.stdin:
        workers.submit(answer, json.loads(line))
    OUT.close()
    import os

    os._exit(0)


main()
