"""The pytest plugin: a test that names `arrowmq_broker` as an argument has a broker of its own.

def test_orders(arrowmq_broker):
    with arrowmq.sync.Producer(arrowmq_broker.namesrv) as producer:
        producer.send("orders", b"...", delay=timedelta(days=3))
    arrowmq_broker.advance(timedelta(days=3))
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from arrowmq.testing.broker import BrokerThread


@pytest.fixture
def arrowmq_settings() -> dict[str, str]:
    """Override in a test module to run the broker with further settings, named as in broker.conf."""
    return {}


@pytest.fixture
def arrowmq_broker(tmp_path: Path, arrowmq_settings: dict[str, str]) -> Iterator[BrokerThread]:
    """A NameServer and a broker, empty, in this process; gone with the test."""
    from arrowmq.testing.broker import BrokerThread

    with BrokerThread(tmp_path / "arrowmq", settings=arrowmq_settings) as broker:
        yield broker
