"""The one place where tests look behind a producer's face: what must not stay behind, and how to break connections."""

from __future__ import annotations

from typing import NamedTuple

import arrowmq
from arrowmq.client.produce.faults import FaultTable
from arrowmq.client.produce.transactions import Decisions
from arrowmq.client.session import Session


class UnderWay(NamedTuple):
    """What a producer keeps for messages that are not settled."""

    messages: int
    bytes: int
    pending_sends: int


NOTHING = UnderWay(0, 0, 0)


def under_way(producer: arrowmq.Producer) -> UnderWay:
    in_flight = producer._budget
    return UnderWay(in_flight.count, in_flight.bytes, len(producer._session.pending_sends))


def session_of(producer: arrowmq.Producer) -> Session:
    return producer._session


def faults_of(producer: arrowmq.Producer) -> FaultTable:
    faults = producer._sender.faults
    assert faults is not None
    return faults


def decisions_of(producer: arrowmq.Producer) -> Decisions:
    return producer._transactions.decisions
