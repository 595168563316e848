"""rocketmq-python-client (PyPI) at one load: `python pypi_load.py PROXY TOPIC LOAD MESSAGES BODY_BYTES WARM_UP`.

Runs in an environment of its own, where that package is installed and ArrowMQ is not. It has no batches; its async
sends give concurrent futures, of which so many are kept in flight as the load says.
"""

import json
import sys
import time
from concurrent.futures import FIRST_COMPLETED, wait

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer


def report(messages: int, wall: float, cpu: float) -> None:
    used = {"messages": messages, "seconds": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    print(json.dumps(used), flush=True)


def made(topic: str, body: bytes) -> Message:
    message = Message()
    message.topic = topic
    message.body = body
    return message


def produce(config: ClientConfiguration, topic: str, load: str, messages: int, body: bytes, warm_up: int) -> None:
    producer = Producer(config, (topic,))
    producer.startup()

    def run(count: int) -> None:
        if load == "one":
            for _ in range(count):
                producer.send(made(topic, body))
            return
        pending: set = set()
        for _ in range(count):
            if len(pending) >= int(load):
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for each in done:
                    each.result()
            pending.add(producer.send_async(made(topic, body)))
        for each in pending:
            each.result()

    run(warm_up)
    wall, cpu = time.perf_counter(), time.process_time()
    run(messages)
    report(messages, wall, cpu)
    producer.shutdown()


def consume(config: ClientConfiguration, topic: str, messages: int, group: str) -> None:
    consumer = SimpleConsumer(config, group)
    consumer.startup()
    consumer.subscribe(topic, FilterExpression())
    seen, wall, cpu = 0, time.perf_counter(), time.process_time()
    warm_up = messages // 5
    begun = 0
    failures = 0
    while seen < messages:
        try:
            received = consumer.receive(32, 30)
        except Exception:
            # The proxy refuses until the client's settings have reached it; the package does not wait for that.
            failures += 1
            if failures > 20:
                raise
            time.sleep(0.5)
            continue
        for message in received:
            consumer.ack(message)
            seen += 1
        if not begun and seen >= warm_up:
            begun, wall, cpu = seen, time.perf_counter(), time.process_time()
    report(seen - begun, wall, cpu)
    consumer.shutdown()


def main() -> None:
    proxy, topic, load, messages, body_bytes, warm_up = sys.argv[1:]
    config = ClientConfiguration(proxy, Credentials(), request_timeout=60)
    if load == "consume":
        consume(config, topic, int(messages), f"client_load_{topic}")
    else:
        produce(config, topic, load, int(messages), bytes(int(body_bytes)), int(warm_up))


if __name__ == "__main__":
    main()
