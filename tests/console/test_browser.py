"""Every page and every action in a real browser, wide and narrow, in both languages. Runs where Chromium is found."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from browsing import NARROW, WIDE, Tab, browser_running, paths_of, tab
from consoles import console_running
from guarded_scene import ANN, GUARDED, ROOT, furnish_rights
from playwright.sync_api import Browser, expect
from scene import Furnished, another_dying_group, consume_all, consuming, furnish

from arrowmq.testing import BrokerThread
from waiting import block_until

T = TypeVar("T")
# One cluster and one browser serve all of them.
pytestmark = pytest.mark.xdist_group("console_browser")


def apart(work: Coroutine[Any, Any, T]) -> T:
    """In a thread of its own: Playwright's loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@dataclass
class Stage:
    broker: BrokerThread
    address: str
    found: Furnished
    client: str


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One cluster with something of everything, a consumer online, and the console as people run it."""
    with BrokerThread(settings={"autoCreateTopicEnable": "false"}) as broker:
        found = apart(furnish(broker.namesrv, letters=60, is_large=True))
        apart(consume_all(broker.namesrv, found.group, found.orders, 39))
        clients: list[str] = []
        stop = threading.Event()

        async def stay() -> None:
            async with consuming(broker.namesrv, found.group, found.orders) as consumer:
                clients.append(consumer.client_id)
                await asyncio.to_thread(stop.wait)

        online = threading.Thread(target=lambda: asyncio.run(stay()))
        online.start()
        try:
            block_until(lambda: clients)
            with console_running(broker.namesrv, tmp_path_factory.mktemp("console")) as address:
                yield Stage(broker, address, found, clients[0])
        finally:
            stop.set()
            online.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_running() as running:
        yield running


@pytest.fixture
def wide(browser: Browser, stage: Stage) -> Iterator[Tab]:
    with tab(browser, stage.address) as opened:
        yield opened
        assert [] == opened.wrongs


def look_at_both_widths(opened: Tab) -> None:
    """As on a desk in light, and as on a telephone in dark."""
    opened.page.set_viewport_size(WIDE)
    opened.page.emulate_media(color_scheme="light")
    opened.look()
    opened.page.set_viewport_size(NARROW)
    opened.page.emulate_media(color_scheme="dark")
    opened.look()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_page_is_sound(browser: Browser, stage: Stage, language: str) -> None:
    """No error, no other host, nothing nameless, nothing wider than the screen, at either width."""
    with tab(browser, stage.address, language=language) as opened:
        for path in paths_of(stage.found, (stage.found.group, stage.client)).values():
            page = opened.open(path)
            expect(page.locator("#live.on")).to_be_attached()
            look_at_both_widths(opened)


def test_messages_of_an_enemy_are_text(browser: Browser, stage: Stage) -> None:
    """No script of a message runs, and none makes the page wider."""
    with tab(browser, stage.address) as opened:
        for each in stage.found.hostile_ids:
            opened.open(f"/messages/{each}?topic={stage.found.payments}")
            look_at_both_widths(opened)
        place = opened.open(f"/letters/{stage.found.dying}?tag=hostile").locator("tbody th a").get_attribute("href")
        opened.open(str(place))
        look_at_both_widths(opened)


def test_a_topic_lives_through_its_dialogs(wide: Tab) -> None:
    page = wide.open("/topics")
    wide.open_dialog("new-topic")
    wide.fill("new-topic", topic="from_browser", writeQueues=2, readQueues=2)
    wide.submit("new-topic")
    page.wait_for_url("**/topics/from_browser")
    expect(page.locator("#queues tbody tr")).to_have_count(2)
    wide.open_dialog("change")
    wide.fill("change", writeQueues=3, readQueues=3)
    wide.submit("change")
    expect(page.locator("#queues tbody tr")).to_have_count(3)
    wide.open_dialog("delete")
    wide.fill("delete", confirm="from_brows")
    wide.submit("delete")
    assert "not the same" in wide.wrong("delete")
    wide.fill("delete", confirm="from_browser")
    wide.submit("delete")
    page.wait_for_url(re.compile("/topics$"))
    expect(page.get_by_role("link", name="from_browser")).to_have_count(0)
    wide.look()


def test_a_wrong_name_is_refused_in_its_dialog(wide: Tab) -> None:
    page = wide.open("/groups")
    wide.open_dialog("new-group")
    wide.fill("new-group", group="DEFAULT_CONSUMER")
    wide.submit("new-group")
    assert "placeholder" in wide.wrong("new-group")
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_a_group_is_created_changed_reset_skipped_cloned_and_deleted(wide: Tab, stage: Stage) -> None:
    found = stage.found
    page = wide.open("/groups")
    wide.open_dialog("new-group")
    wide.fill("new-group", group="browsers", retryMaxTimes=3)
    wide.submit("new-group")
    page.wait_for_url("**/groups/browsers")
    wide.open_dialog("change")
    wide.fill("change", retryMaxTimes=5)
    wide.submit("change")
    expect(page.get_by_role("row", name=re.compile("broker-a yes yes no 5"))).to_be_visible()
    # Clone the offsets of a group that has some, then reset and skip what was cloned.
    wide.open(f"/groups/{found.group}")
    wide.open_dialog("clone")
    wide.fill("clone", topic=found.orders, target="browsers")
    wide.submit("clone")
    page.wait_for_url("**/groups/browsers")
    lag = page.locator("#tiles .tile b").first
    expect(lag).to_have_text("0")
    wide.open_dialog("reset")
    page.locator('dialog#reset [data-step="plan"]').click()
    expect(page.locator("dialog#reset .plan tbody tr")).to_have_count(4)
    page.locator('dialog#reset [data-step="apply"]').click()
    expect(lag).to_have_text("39", timeout=20_000)
    wide.open_dialog("skip")
    wide.fill("skip", confirm="browsers")
    wide.submit("skip")
    expect(lag).to_have_text("0", timeout=20_000)
    wide.open_dialog("delete")
    wide.fill("delete", confirm="browsers")
    wide.submit("delete")
    page.wait_for_url(re.compile("/groups$"))


def test_a_message_is_sent_found_shown_sent_again_and_consumed(wide: Tab, stage: Stage) -> None:
    page = wide.open(f"/messages?topic={stage.found.orders}")
    wide.open_dialog("send")
    wide.fill("send", tag="browser", keys="k-1 k-2", body='{"made": "by hand"}', properties="colour=green\nsize=3")
    wide.submit("send")
    page.wait_for_url("**/messages/*")
    expect(page.locator("#body-json")).to_contain_text('"made": "by hand"')
    page.get_by_role("tab", name="Hex").click()
    expect(page.locator("#body-hex")).to_contain_text("7b 22 6d 61 64 65")
    expect(page.locator(".picture .stop-done").first).to_be_attached()
    expect(page.get_by_text("colour", exact=True)).to_be_visible()
    wide.open_dialog("consume")
    wide.fill("consume", group=stage.found.group)
    wide.submit("consume")
    expect(page.locator("#consumed pre")).to_contain_text("CR_SUCCESS")
    page.locator("dialog#consume footer [data-close]").click()
    before = page.url
    wide.open_dialog("resend")
    wide.submit("resend")
    page.wait_for_url(lambda url: url != before and "/messages/" in url)
    block_until(lambda: wide.open(f"/messages?topic={stage.found.orders}&key=k-2").locator("tbody tr").count() == 2)
    wide.open(f"/messages?topic={stage.found.orders}&text=by+hand")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.go_back()
    expect(page.locator('input[name="key"]')).to_have_value("k-2")


def test_dead_letters_are_filtered_edited_and_sent_again_with_progress(wide: Tab, stage: Stage) -> None:
    group = apart(another_dying_group(stage.broker.namesrv, stage.found, 60))
    block_until(lambda: wide.page.request.get(f"{stage.address}/letters/{group}").status == 200)
    page = wide.open(f"/letters/{group}")
    page.get_by_role("link", name=re.compile("schema mismatch")).click()
    expect(page.locator("tbody tr")).to_have_count(20)
    page.locator("tbody th a").first.click()
    wide.open_dialog("edit")
    wide.fill("edit", body="cured", tag="cured")
    wide.submit("edit")
    expect(page.get_by_text("This letter was sent again")).to_be_visible()
    wide.open(f"/letters/{group}?reason=exhausted")
    wide.open_dialog("resend-all")
    wide.fill("resend-all", rate=15)
    wide.submit("resend-all")
    page.wait_for_url("**/jobs/*")
    expect(page.locator('#job [data-count="sent"]')).not_to_have_text("0")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator('[data-test="state"]')).to_have_text("stopped", timeout=20_000)
    wide.open_dialog("go-on")
    wide.fill("go-on", rate=1000)
    wide.submit("go-on")
    expect(page.locator('[data-test="state"]')).to_have_text("done", timeout=20_000)
    expect(page.locator('#job [data-count="sent"]')).to_have_text("60")
    wide.open(f"/letters/{group}?reason=rejected")
    page.locator('input[data-pick="letter"]').nth(0).check()
    page.locator('input[data-pick="letter"]').nth(1).check()
    wide.open_dialog("resend-chosen")
    wide.submit("resend-chosen")
    page.wait_for_url("**/jobs/*")
    expect(page.locator('#job [data-count="sent"]')).to_have_text("2")


def test_a_timer_message_is_recalled(wide: Tab) -> None:
    page = wide.open("/scheduled")
    rows = page.locator("#list tbody tr")
    expect(rows).to_have_count(7)
    page.on("dialog", lambda question: question.accept())
    rows.first.get_by_role("button", name="Recall").click()
    expect(rows).to_have_count(6)
    wide.open_dialog("recall-all")
    wide.fill("recall-all", text="reminder 3")
    wide.submit("recall-all")
    expect(rows).to_have_count(5)


def test_a_setting_is_changed_and_the_change_is_in_the_audit_log(wide: Tab) -> None:
    page = wide.open("/settings?q=autoCreateTopic")
    page.get_by_role("button", name="Change").click()
    page.locator("dialog[open] input[name=value]").fill("true")
    page.locator("dialog[open] footer button.primary").click()
    expect(page.get_by_text("PUT /api/settings").first).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("true")


def test_the_keyboard_finds_everything(wide: Tab, stage: Stage) -> None:
    page = wide.open("/")
    page.keyboard.press("/")
    page.keyboard.type("bill")
    expect(page.locator('#hits li[aria-selected="true"]')).to_contain_text("billing")
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups/billing")
    page.keyboard.press("/")
    page.keyboard.type(stage.found.order_id)
    expect(page.locator("#hits li[data-url]")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/messages/{stage.found.order_id}")


def test_tables_sort_filter_and_copy_and_times_theme_and_language_change(wide: Tab, stage: Stage) -> None:
    page = wide.open(f"/groups/{stage.found.group}")
    page.locator("#queue-table thead button", has_text="Queue").click()
    page.locator("#queue-table thead button", has_text="Queue").click()
    expect(page.locator('#queue-table th[aria-sort="descending"]')).to_have_count(1)
    expect(page.locator("#queue-table tbody tr").first.locator("td").nth(1)).to_have_text("3")
    page.locator('input[data-filter="queue-table"]').fill("nosuch")
    expect(page.locator("#queue-table tbody tr:visible")).to_have_count(0)
    page.locator('input[data-filter="queue-table"]').fill("ORDERS")
    expect(page.locator("#queue-table tbody tr:visible")).to_have_count(4)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#queues [data-copytable]").click()
    expect(page.locator("#toasts")).to_contain_text("Copied")
    rows = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert (5, "Topic\tBroker\tQueue") == (len(rows), "\t".join(rows[0].split("\t")[:3]))
    assert rows[1].startswith("orders\tbroker-a\t3\t")
    expect(page.locator("time").first).to_contain_text("UTC")
    page.locator("#zone").click()
    expect(page.locator("#zone")).to_have_text("Local time")
    expect(page.locator("time").first).not_to_contain_text("UTC")
    page.locator("#theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.locator("#lang").select_option("zh")
    expect(page.locator("nav.menu")).to_contain_text("消费组")
    wide.look()


def test_the_menu_opens_on_a_narrow_screen(browser: Browser, stage: Stage) -> None:
    with tab(browser, stage.address, narrow=True) as opened:
        page = opened.open("/")
        expect(page.locator("#menu")).to_be_hidden()
        page.locator("#menu-button").click()
        page.locator("#menu [data-zone]").click()
        expect(page.locator("html")).to_have_attribute("data-zone", "local")
        page.locator("#menu-button").click()
        page.get_by_role("link", name="Topics").first.click()
        page.wait_for_url("**/topics")
        opened.look()


def test_numbers_are_live(wide: Tab, stage: Stage) -> None:
    page = wide.open("/topics/orders")
    expect(page.locator("#live.on")).to_be_attached()
    before = page.locator("#queues tbody tr td").nth(3).inner_text()

    async def send() -> None:
        from arrowmq import Producer

        async with Producer(stage.broker.namesrv) as producer:
            for _ in range(20):
                await producer.send("orders", b"live")

    apart(send())
    expect(page.locator("#queues tbody tr td").nth(3)).not_to_have_text(before, timeout=30_000)


def test_errors_are_sentences_on_the_page(wide: Tab) -> None:
    page = wide.open("/messages/" + "0" * 32, 404)
    expect(page.locator('[data-test="problem"]')).to_contain_text("never stored here")
    wide.open("/topics/nosuch", 404)
    wide.open("/nosuch", 404)
    wide.open("/trace?id=nosuch", 404)
    expect(page.locator('[data-test="problem"]')).to_contain_text("no client has traced")


def test_a_visitor_without_the_right_reads_and_is_told(browser: Browser, stage: Stage, tmp_path: Path) -> None:
    guarded = console_running(stage.broker.namesrv, tmp_path, "--read-only", "--token", "sesame")
    with guarded as address, tab(browser, address) as opened:
        page = opened.open("/topics")
        page.wait_for_url(re.compile(r"/login\?next="))
        page.locator("input[name=token]").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.locator(".wrong")).to_contain_text("opens nothing")
        page.locator("input[name=token]").fill("sesame")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/topics")
        expect(page.locator('[data-dialog="new-topic"]')).to_have_count(0)
        expect(page.locator("nav.menu")).to_contain_text("Read-only")
        page.locator("#logout").click()
        page.wait_for_url("**/login")


def test_a_broker_that_is_gone_is_said(browser: Browser, tmp_path: Path) -> None:
    with (
        BrokerThread() as broker,
        console_running(broker.namesrv, tmp_path, "--timeout", "1") as address,
        tab(browser, address) as opened,
    ):
        opened.open("/")
        broker.stop()
        page = opened.page
        block_until(lambda: page.goto(address + "/") and page.locator(".alarm").count() > 0, 30)
        expect(page.locator(".alarm")).to_contain_text("No NameServer answers")
        opened.look()


def test_a_user_of_the_brokers_logs_in_is_told_no_and_why(browser: Browser, tmp_path: Path) -> None:
    """On a cluster that knows its users: the log-in by name, the page of users, and the words of a refusal."""
    with BrokerThread(settings=GUARDED) as broker:
        apart(furnish_rights(broker.namesrv, broker.broker_address))
        keys = ("--access-key", ROOT[0], "--secret-key", ROOT[1], "--token", "sesame")
        with console_running(broker.namesrv, tmp_path, *keys) as address:
            with tab(browser, address) as opened:
                log_in(opened, *ANN)
                page = opened.page
                opened.open("/letters/billing", 403)
                expect(page.locator('[data-test="problem"]')).to_contain_text("User:ann has no permission")
                opened.open("/topics")
                opened.open_dialog("new-topic")
                opened.fill("new-topic", topic="hers", writeQueues=1, readQueues=1)
                opened.submit("new-topic")
                assert "User:ann has no permission" in opened.wrong("new-topic")
                opened.look()
            with tab(browser, address, language="zh", narrow=True) as opened:
                log_in(opened, *ROOT)
                page = opened.open("/users?username=ann&resource=Topic:payments&action=Sub")
                expect(page.locator('[data-test="why"] .mark-error')).to_be_visible()
                opened.look()
                opened.open_dialog("new-policy")
                opened.fill("new-policy", username="ann", resource="Topic:payments", actions="Sub Get")
                opened.submit("new-policy")
                expect(page.locator('[data-test="why"] .mark-good')).to_be_visible()


def log_in(opened: Tab, name: str, password: str) -> None:
    page = opened.open("/login")
    page.locator("details summary").click()
    page.locator("input[name=username]").fill(name)
    page.locator("input[name=password]").fill(password)
    page.locator("form button.primary").click()
    page.wait_for_url(re.compile(r"^http://[^/]+/$"))
