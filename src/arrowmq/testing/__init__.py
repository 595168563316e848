"""A real broker for tests: NameServer and broker in the test's process, on a temporary store and on time that leaps.

In: nothing but a folder. Out: `arrowmq_broker` (a pytest fixture, by `arrowmq.testing.plugin`), `BrokerThread` for
every other kind of test, `LocalBroker` for one event loop, and the clocks.
"""

from __future__ import annotations

from arrowmq.clock import VirtualClock
from arrowmq.testing.broker import BrokerThread, LocalBroker
from arrowmq.testing.leap_clock import LeapClock

__all__ = ["BrokerThread", "LeapClock", "LocalBroker", "VirtualClock"]
