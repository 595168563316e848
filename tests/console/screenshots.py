"""Takes the pictures of docs/console: every page of a furnished cluster, small.

.venv/bin/python tests/console/screenshots.py
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / each) for each in ("console", "", "interop")]

from browsing import browser_running, paths_of, tab  # noqa: E402
from consoles import console_running, trio_running  # noqa: E402
from guarded_scene import GUARDED, furnish_rights  # noqa: E402
from guarded_scene import ROOT as ROOT_USER  # noqa: E402
from scene import Furnished, consume_all, consuming, furnish  # noqa: E402

from arrowmq import Producer  # noqa: E402
from arrowmq.testing import BrokerThread  # noqa: E402
from waiting import block_until  # noqa: E402

WATCHED_MS = 40_000
SETTLED_MS = 700


async def traffic(namesrv: str, found: Furnished, clients: list[str], stop: threading.Event) -> None:
    async with consuming(namesrv, found.group, found.orders) as consumer, Producer(namesrv, group="shop") as producer:
        clients.append(consumer.client_id)
        number = 0
        while not stop.is_set():
            number += 1
            for _ in range(5 + number % 17):
                await producer.send(found.orders, b'{"order": 99}', tag="created")
            await asyncio.sleep(0.2)  # so many a second, for the charts


def main() -> None:
    folder = ROOT / "docs" / "console"
    folder.mkdir(exist_ok=True)
    with BrokerThread(settings={"autoCreateTopicEnable": "false"}) as broker, tempfile.TemporaryDirectory() as own:
        found = asyncio.run(furnish(broker.namesrv, letters=60))
        asyncio.run(consume_all(broker.namesrv, found.group, found.orders, 39))
        stop, clients = threading.Event(), list[str]()
        live = threading.Thread(target=lambda: asyncio.run(traffic(broker.namesrv, found, clients, stop)))
        live.start()
        try:
            with console_running(broker.namesrv, Path(own)) as address, browser_running() as browser:
                with tab(browser, address) as opened:
                    opened.open("/").wait_for_timeout(WATCHED_MS)
                    for name, path in paths_of(found, (found.group, clients[0])).items():
                        opened.open(path).wait_for_timeout(SETTLED_MS)
                        opened.page.screenshot(path=folder / f"{name}.jpg", type="jpeg", quality=55)
                with tab(browser, address, language="zh", dark=True) as opened:
                    opened.open("/").wait_for_timeout(SETTLED_MS)
                    opened.page.screenshot(path=folder / "overview-zh.jpg", type="jpeg", quality=55)
                with tab(browser, address, narrow=True) as opened:
                    opened.open(f"/groups/{found.group}").wait_for_timeout(SETTLED_MS)
                    opened.page.screenshot(path=folder / "group-narrow.jpg", type="jpeg", quality=55)
        finally:
            stop.set()
            live.join()


def of_a_trio(folder: Path) -> None:
    """The cluster that elects its master, and the one that knows its users."""
    with (
        tempfile.TemporaryDirectory() as own,
        trio_running(Path(own)) as (namesrv, _),
        console_running(namesrv, Path(own) / "console") as address,
        browser_running() as browser,
        tab(browser, address) as opened,
    ):
        block_until(lambda: opened.open("/cluster").locator("td", has_text="yes").count() >= 6, 60)
        opened.page.wait_for_timeout(SETTLED_MS)
        opened.page.screenshot(path=folder / "cluster.jpg", type="jpeg", quality=55)


def of_users(folder: Path) -> None:
    with BrokerThread(settings=GUARDED) as broker, tempfile.TemporaryDirectory() as own:
        asyncio.run(furnish_rights(broker.namesrv, broker.broker_address))
        keys = ("--access-key", ROOT_USER[0], "--secret-key", ROOT_USER[1])
        with (
            console_running(broker.namesrv, Path(own), *keys) as address,
            browser_running() as browser,
            tab(browser, address) as opened,
        ):
            opened.open("/users?username=ann&resource=Topic:payments&action=Sub").wait_for_timeout(SETTLED_MS)
            opened.page.screenshot(path=folder / "users.jpg", type="jpeg", quality=55)


if __name__ == "__main__":
    main()
    of_a_trio(ROOT / "docs" / "console")
    of_users(ROOT / "docs" / "console")
