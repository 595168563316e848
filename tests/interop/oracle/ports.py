"""Ports for servers that a test starts, and perhaps kills and starts again."""

from __future__ import annotations

import os
import random
import socket

HOST = "127.0.0.1"
# Below those that the kernel hands out to whoever asks for any: it would, between two lives of a server. And each of
# the processes that tests run in has its own: they would take them from each other. Runs at the same time in several
# working copies set ARROWMQ_PORT_SLICE to numbers that lie apart.
LOWEST, PROCESSES, EACH = 10_000, 16, 1375

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_number = (int(os.environ.get("ARROWMQ_PORT_SLICE", "0")) + _worker) % PROCESSES
_chance = random.SystemRandom()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port(*neighbours: int) -> int:
    """A port that is free on loopback, with the ports at these distances from it free as well."""
    while True:
        port = LOWEST + _number * EACH + _chance.randrange(EACH)
        if all(is_free(port + distance) for distance in (0, *neighbours)):
            return port


def broker_port() -> int:
    """A broker takes its port, the "VIP" port two below it, and the replication port above it."""
    return free_port(-2, 1)
