"""Every page and what it shows of a furnished cluster, without a browser: what guards every landing."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from urllib.parse import quote

import pytest
from scene import HOSTILE, Furnished, consume_all, consuming, furnish
from visiting import Visitor

from arrowmq import Admin, Producer
from arrowmq.console.pages.render import MENU
from arrowmq.inspect.messages.events import SENTENCES
from arrowmq.testing import LocalBroker
from waiting import until

PAGES = [href for _, href, _ in MENU] + ["/api"]


@pytest.fixture
async def furnished(broker: LocalBroker, visitor: Visitor) -> Furnished:
    found = await furnish(broker.namesrv)
    assert visitor.server.console is not None
    await visitor.server.console.gatherer.survey()
    return found


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_every_page_of_the_menu_opens_in_both_languages(
    visitor: Visitor, furnished: Furnished, language: str
) -> None:
    words = json.loads(files("arrowmq.console").joinpath("words", f"{language}.json").read_text())
    for href, (name, _, _) in zip(PAGES, [*MENU, ("api", "", "")], strict=True):
        text = await visitor.page(href, Cookie=f"lang={language}")
        assert words[f"nav.{name}"].replace("&", "&amp;") in text, href
    for href in (
        f"/topics/{furnished.orders}",
        f"/groups/{furnished.dying}",
        f"/messages?topic={furnished.orders}",
        f"/messages/{furnished.order_id}?topic={furnished.orders}",
        f"/letters/{furnished.dying}",
        f"/trace?id={furnished.traced_id}",
        "/users?username=a&resource=Topic:x&action=Pub",
    ):
        await visitor.page(href, Cookie=f"lang={language}")


def test_both_languages_have_the_same_words_and_every_word_that_a_page_asks_for() -> None:
    folder = files("arrowmq.console")
    english, chinese = (json.loads(folder.joinpath("words", f"{each}.json").read_text()) for each in ("en", "zh"))
    # What becomes of a message is said in English by the inspection itself.
    assert {f"told.{name}" for name in SENTENCES} == chinese.keys() - english.keys()
    assert not english.keys() - chinese.keys()
    for name, text in english.items():
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", chinese[name])), name
        assert text.strip()
        assert chinese[name].strip()
    for page in folder.joinpath("templates").iterdir():
        for name in re.findall(r'(?<![\w.])t\(["\']([\w.]+)["\'][,)]', page.read_text()):
            assert name in english, f"{page.name}: {name}"


async def test_the_overview_tells_of_brokers_rates_and_findings(visitor: Visitor, furnished: Furnished) -> None:
    await visitor.change("POST", "/api/doctor")
    now = await visitor.get("/api/overview")
    assert ["broker-a"] == [row["broker"] for row in now["brokers"]]
    assert now["topics"] >= 5
    assert now["letters"] > 0
    assert "dead-letters" in {finding["name"] for finding in now["findings"]}
    page = await visitor.page("/")
    assert "broker-a" in page
    assert "dead letters" in page


async def test_a_topic_is_created_changed_and_deleted_with_its_name_typed_again(visitor: Visitor, name: str) -> None:
    await visitor.change("POST", "/api/topics", {"topic": name, "writeQueues": 3, "readQueues": 3})
    await visitor.change("POST", "/api/topics", {"topic": name}, status=400)
    one = await visitor.get(f"/api/topics/{name}")
    assert (3, "RW") == (one["settings"][0]["writeQueues"], one["settings"][0]["permText"])
    await visitor.change("PUT", f"/api/topics/{name}", {"writeQueues": 5, "readQueues": 5, "perm": 4})
    one = await visitor.get(f"/api/topics/{name}")
    assert (5, "R-") == (one["settings"][0]["writeQueues"], one["settings"][0]["permText"])
    await visitor.change("DELETE", f"/api/topics/{name}", status=400, confirm=name[:-1])
    await visitor.change("DELETE", f"/api/topics/{name}", confirm=name)
    await visitor.page(f"/topics/{name}", 404)
    await visitor.change("DELETE", "/api/topics/SCHEDULE_TOPIC_XXXX", status=400, confirm="SCHEDULE_TOPIC_XXXX")
    await visitor.change("POST", "/api/topics", {"topic": "not a name"}, status=400)
    await visitor.change("POST", "/api/topics", {"topic": "x", "wrong": 1}, status=400)


async def test_lists_are_filtered_sorted_paged_and_to_be_had_as_csv(visitor: Visitor, furnished: Furnished) -> None:
    first = await visitor.get("/api/topics", size=2)
    second = await visitor.get("/api/topics", size=2, page=2)
    names = [row["topic"] for row in first["rows"] + second["rows"]]
    assert sorted(names) == names
    assert first["total"] > 4
    turned = await visitor.get("/api/topics", sort="-topic", size=1)
    assert turned["rows"][0]["topic"] == max(row["topic"] for row in (await visitor.get("/api/topics"))["rows"])
    assert [furnished.orders] == [row["topic"] for row in (await visitor.get("/api/topics", q="ORD"))["rows"]]
    table = await visitor.http.get("/api/topics?format=csv")
    assert table.text.startswith("topic,kind,brokers")
    assert "attachment" in table.headers["content-disposition"]
    for bad in ({"sort": "nosuch"}, {"page": "0"}, {"size": "5000"}, {"size": "x"}, {"kind": "odd"}, {"odd": "1"}):
        assert 400 == (await visitor.http.get("/api/topics", params=bad)).status_code, bad


async def test_a_cell_that_a_spreadsheet_takes_for_a_formula_is_defused(visitor: Visitor, furnished: Furnished) -> None:
    table = (await visitor.http.get(f"/api/messages?topic={furnished.payments}&format=csv")).text
    assert "'=HYPERLINK" in table
    assert ",=HYPERLINK" not in table
    assert "\n=HYPERLINK" not in table


async def test_a_group_shows_its_lag_members_and_who_holds_which_queue(
    visitor: Visitor, broker: LocalBroker, furnished: Furnished
) -> None:
    async with consuming(broker.namesrv, furnished.group, furnished.orders):

        async def is_held() -> bool:
            call = visitor.server.console
            assert call is not None
            call.cache.forget()
            answer = await visitor.get(f"/api/groups/{furnished.group}")
            queues = [row for row in answer["queues"] if row["topic"] == furnished.orders]
            return len(queues) == 4 and all(row["holder"] for row in queues) and answer["lag"] == 0

        await until(is_held, 30)
        answer = await visitor.get(f"/api/groups/{furnished.group}")
        assert 1 == len(answer["members"])
        page = await visitor.page(f"/groups/{furnished.group}")
        assert answer["members"][0]["clientId"] in page
        client = await visitor.get(f"/api/clients/{furnished.group}/{quote(answer['members'][0]['clientId'])}")
        assert 4 == len([row for row in client["queues"] if row["topic"] == furnished.orders])
        listed = await visitor.get("/api/clients", role="consumer")
        assert [furnished.group] == [row["group"] for row in listed["rows"]]
        refused = await visitor.change("DELETE", f"/api/groups/{furnished.group}", status=409, confirm=furnished.group)
        assert "members online" in refused["error"]


async def test_members_that_subscribe_differently_are_named(
    visitor: Visitor, broker: LocalBroker, furnished: Furnished
) -> None:
    async with (
        consuming(broker.namesrv, furnished.group, furnished.orders, "created"),
        consuming(broker.namesrv, furnished.group, furnished.orders, "paid"),
    ):
        answer = await visitor.get(f"/api/groups/{furnished.group}")
        assert [furnished.orders] == answer["differing"]
        assert "subscribe differently" in await visitor.page(f"/groups/{furnished.group}")


async def test_offsets_are_reset_by_a_plan_skipped_and_cloned(
    visitor: Visitor, broker: LocalBroker, furnished: Furnished
) -> None:
    await consume_all(broker.namesrv, furnished.group, furnished.orders, 39)
    wanted = {"group": furnished.group, "topic": furnished.orders, "to": "first"}
    plan = await visitor.change("POST", "/api/offsets/plan", wanted)
    assert -39 == sum(row["moved"] for row in plan["rows"])
    assert 0 == (await visitor.get(f"/api/groups/{furnished.group}"))["lag"]
    steps = [{"broker": row["broker"], "queueId": row["queueId"], "target": row["target"]} for row in plan["rows"]]
    await visitor.change(
        "POST", "/api/offsets/reset", {"group": furnished.group, "topic": furnished.orders, "steps": steps}
    )
    assert 39 == (await visitor.get(f"/api/groups/{furnished.group}"))["lag"]
    clone = {"source": furnished.group, "target": furnished.lagging, "topic": furnished.orders}
    await visitor.change("POST", "/api/offsets/clone", clone)
    assert 39 == (await visitor.get(f"/api/groups/{furnished.lagging}"))["lag"]
    skip = {"group": furnished.group, "topic": furnished.orders}
    await visitor.change("POST", "/api/offsets/skip", skip, status=400)
    await visitor.change("POST", "/api/offsets/skip", skip | {"confirm": furnished.group})
    assert 0 == (await visitor.get(f"/api/groups/{furnished.group}"))["lag"]
    await visitor.change("POST", "/api/offsets/plan", wanted | {"to": "time"}, status=400)
    await visitor.change("POST", "/api/offsets/plan", wanted | {"topic": "nosuch"}, status=404)


async def test_messages_are_found_by_id_key_time_and_text(visitor: Visitor, furnished: Furnished) -> None:
    topic = furnished.orders

    async def ids(**query: str) -> list[str]:
        return [row["msgId"] for row in (await visitor.get("/api/messages", **query))["rows"]]

    assert [furnished.order_id] == await ids(id=furnished.order_id)
    assert [furnished.order_id] == await ids(topic=topic, key="o-1")
    assert [furnished.order_id] == await ids(topic=topic, text="12.5")
    assert 39 == len(await ids(topic=topic))
    assert 19 == len(await ids(topic=topic, tag="paid"))
    one = await visitor.get(f"/api/messages/{furnished.order_id}", topic=topic)
    assert (True, "created", ["o-1"]) == (one["isText"], one["tag"], one["keys"])
    assert '"price": 12.5' in one["json"]
    assert one["hex"].startswith("00000000  7b 22 6f")
    body = await visitor.http.get(f"/api/messages/{furnished.order_id}/body")
    assert b'{"order": 1, "item": "arrow", "price": 12.5}' == body.content
    assert "application/octet-stream" == body.headers["content-type"]
    await visitor.page(f"/messages/{'0' * 32}", 404)
    gone = await visitor.page(f"/messages?id={'0' * 32}", 404)
    assert "never stored here" in gone


async def test_the_life_of_a_message_is_drawn(visitor: Visitor, broker: LocalBroker, furnished: Furnished) -> None:
    await consume_all(broker.namesrv, furnished.group, furnished.orders, 39)
    life = await visitor.get(f"/api/messages/{furnished.order_id}/life", topic=furnished.orders)
    assert ["born", "stored", "flushed", "replicated"] == [stage["name"] for stage in life["trunk"]]
    branches = {branch["group"]: [stage["name"] for stage in branch["stages"]] for branch in life["branches"]}
    assert ["delivered", "consumed"] == branches[furnished.group]
    page = await visitor.page(f"/messages/{furnished.order_id}?topic={furnished.orders}")
    assert "stop-done" in page


async def test_a_message_is_sent_sent_again_and_consumed_directly(
    visitor: Visitor, broker: LocalBroker, furnished: Furnished
) -> None:
    wanted = {
        "topic": furnished.orders,
        "body": "hand made",
        "tag": "manual",
        "keys": ["m-1"],
        "properties": {"by": "me"},
    }
    sent = await visitor.change("POST", "/api/messages", wanted)
    one = await visitor.get(f"/api/messages/{sent['msgId']}")
    assert ("hand made", "manual", "me") == (one["text"], one["tag"], one["properties"]["by"])
    again = await visitor.change("POST", f"/api/messages/{sent['msgId']}/resend", {"target": furnished.payments})
    assert furnished.payments == (await visitor.get(f"/api/messages/{again['msgId']}"))["topic"]
    coded = await visitor.change(
        "POST", "/api/messages", {"topic": furnished.orders, "body": "00ff", "encoding": "hex"}
    )
    assert not (await visitor.get(f"/api/messages/{coded['msgId']}"))["isText"]
    await visitor.change(
        "POST", "/api/messages", {"topic": furnished.orders, "body": "0g", "encoding": "hex"}, status=400
    )
    await visitor.change("POST", "/api/messages", {"topic": "nosuch", "body": "x"}, status=404)
    nobody = {"group": furnished.group}
    await visitor.change("POST", f"/api/messages/{sent['msgId']}/consume", nobody, status=404)
    async with consuming(broker.namesrv, furnished.group, furnished.orders):
        result = await visitor.change("POST", f"/api/messages/{sent['msgId']}/consume", nobody)
    assert "CR_SUCCESS" == result["result"]


async def test_what_waits_for_its_time_is_listed_and_recalled(visitor: Visitor, furnished: Furnished) -> None:
    waiting = await visitor.get("/api/scheduled")
    kinds = [row["kind"] for row in waiting["rows"]]
    assert (6, 1) == (kinds.count("timer"), kinds.count("level"))
    assert 7 == sum(bucket["count"] for bucket in waiting["buckets"])
    assert sorted(row["due"] for row in waiting["rows"]) == [row["due"] for row in waiting["rows"]]
    done = await visitor.change("POST", "/api/scheduled/recall", {"ids": [furnished.timer_id]})
    assert "1 of 1" in done["done"]
    left = await visitor.get("/api/scheduled")
    assert furnished.timer_id not in {row["msgId"] for row in left["rows"]}
    await visitor.change("POST", "/api/scheduled/recall", {"topic": "reminders", "text": "reminder 1"})
    assert 5 == (await visitor.get("/api/scheduled"))["total"]
    await visitor.change("POST", "/api/scheduled/recall", {}, status=400)


async def test_an_open_transaction_is_shown(visitor: Visitor, furnished: Furnished) -> None:
    answer = await visitor.get("/api/transactions")
    assert [furnished.half_id] == [row["msgId"] for row in answer["rows"]]
    assert ("bookings", "booker") == (answer["rows"][0]["topic"], answer["rows"][0]["producerGroup"])


async def test_a_trace_is_a_waterfall(visitor: Visitor, broker: LocalBroker, furnished: Furnished) -> None:
    await consume_all(broker.namesrv, furnished.group, furnished.orders, 39)
    answer = await visitor.get("/api/trace", id=furnished.traced_id)
    assert ["sent", "consumed"] == [row["kind"] for row in answer["rows"]]
    assert ["shop", furnished.group] == [row["group"] for row in answer["rows"]]
    assert (await visitor.http.get("/api/trace", params={"id": "nosuch"})).status_code == 404


async def test_settings_have_defaults_and_meanings_and_change_while_the_broker_runs(visitor: Visitor) -> None:
    rows = {row["key"]: row for row in (await visitor.get("/api/settings", size=1000))["rows"]}
    assert ("false", "true", True) == tuple(
        rows["autoCreateTopicEnable"][key] for key in ("value", "default", "isChanged")
    )
    assert rows["autoCreateTopicEnable"]["meaning"]
    changed = {"broker": "broker-a", "key": "autoCreateTopicEnable", "value": "true"}
    await visitor.change("PUT", "/api/settings", changed)
    rows = {row["key"]: row for row in (await visitor.get("/api/settings", q="autoCreateTopic"))["rows"]}
    assert "true" == rows["autoCreateTopicEnable"]["value"]
    await visitor.change("PUT", "/api/settings", changed | {"key": "nosuch"}, status=404)
    await visitor.change("PUT", "/api/settings", changed | {"broker": "nosuch"}, status=404)
    await visitor.change("PUT", "/api/settings", changed | {"value": "true\nbrokerPermission=0"}, status=400)


async def test_the_search_box_finds_topics_groups_brokers_and_ids(visitor: Visitor, furnished: Furnished) -> None:
    hits = (await visitor.get("/api/search", q="ord"))["rows"]
    assert ("topic", furnished.orders) == (hits[0]["kind"], hits[0]["name"])
    assert "group" in {hit["kind"] for hit in (await visitor.get("/api/search", q="bill"))["rows"]}
    assert "broker" in {hit["kind"] for hit in (await visitor.get("/api/search", q="broker-a"))["rows"]}
    (hit,) = (await visitor.get("/api/search", q=furnished.order_id))["rows"]
    assert f"/messages/{furnished.order_id}" == hit["url"]


async def test_hostile_content_is_text_on_every_page_that_shows_it(visitor: Visitor, furnished: Furnished) -> None:
    pages = [f"/messages?topic={furnished.payments}", f"/letters/{furnished.dying}"]
    pages += [f"/messages/{each}?topic={furnished.payments}" for each in furnished.hostile_ids]
    seen = ""
    for path in pages:
        text = await visitor.page(path)
        seen += text
        assert "<script>" not in text
        assert "<img" not in text
        assert "<svgonload" not in text.replace(" ", "")
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\u202a-\u202e\u2066-\u2069\ufeff\u200b]", text), path
    assert "&lt;script&gt;" in seen
    assert "⟨U+202E⟩" in seen
    assert "␇" in seen
    assert "{{ 7 * 7 }}" in seen


async def test_a_page_of_events_brings_the_newest_at_once(visitor: Visitor) -> None:
    await visitor.get("/api/overview")
    async with visitor.http.stream("GET", "/api/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        kinds = set()
        async for line in stream.aiter_lines():
            if line.startswith("event: "):
                kinds.add(line.removeprefix("event: "))
            if {"beat", "survey"} <= kinds:
                break


async def test_many_pages_cost_the_brokers_no_more_than_one(visitor: Visitor, furnished: Furnished) -> None:
    console = visitor.server.console
    assert console is not None
    asked = 0
    ask = console.admin.call

    async def counted(*arguments: object, **options: object) -> object:
        nonlocal asked
        asked += 1
        return await ask(*arguments, **options)  # type: ignore[arg-type]

    await visitor.page(f"/topics/{furnished.orders}")
    console.admin.call = counted  # type: ignore[method-assign, assignment]
    for _ in range(20):
        await visitor.page("/")
        await visitor.page(f"/topics/{furnished.orders}")
    assert asked <= 6


async def test_a_cluster_that_does_not_answer_is_said_on_every_page(visitor: Visitor, broker: LocalBroker) -> None:
    await visitor.get("/api/overview")
    await broker.close()
    console = visitor.server.console
    assert console is not None
    await console.gatherer.beat()
    assert "No NameServer answers" in await visitor.page("/")
    assert (await visitor.http.get("/api/transactions")).status_code < 500
    assert (await visitor.http.get("/api/settings")).status_code in (502, 404)


async def test_what_a_cluster_lacks_is_said(visitor: Visitor) -> None:
    assert "Not on this cluster" in await visitor.page("/cluster")
    users = await visitor.get("/api/users")
    assert users["lacks"] is not None or users["users"] is not None


async def test_only_a_set_with_a_controller_is_switched(visitor: Visitor) -> None:
    for broker, status in (("nosuch", 404), ("broker-a", 409)):
        wanted = {"cluster": "DefaultCluster", "broker": broker, "brokerId": 2, "confirm": broker}
        answer = await visitor.change("POST", "/api/cluster/switch", wanted, status)
        assert broker in answer["error"]


async def test_unknown_addresses_are_sentences(visitor: Visitor) -> None:
    assert "there is no such page" in await visitor.page("/nosuch", 404)
    assert {"error"} == (await visitor.http.get("/api/nosuch")).json().keys()
    assert 405 == (await visitor.http.get("/api/offsets/skip")).status_code
    assert HOSTILE[0] not in await visitor.page(f"/topics/{HOSTILE[0].replace('/', '')}", 404)


async def test_the_rate_of_a_topic_is_not_that_of_kept_offsets(
    visitor: Visitor, broker: LocalBroker, name: str
) -> None:
    """It was zero on every page opened within the seconds for which offsets are kept."""
    console = visitor.server.console
    assert console is not None
    await visitor.change("POST", "/api/topics", {"topic": name, "writeQueues": 1, "readQueues": 1})

    async def is_counted() -> bool:
        await visitor.change("POST", "/api/messages", {"topic": name, "body": "x"})
        console.cache.forget()
        await visitor.get(f"/api/topics/{name}")
        return bool((await visitor.get(f"/api/topics/{name}"))["inPerSecond"])

    await until(is_counted, 30)


async def test_what_is_popped_and_not_acknowledged_is_shown_with_its_group_and_in_the_life_of_the_message(
    visitor: Visitor, furnished: Furnished
) -> None:
    answer = await visitor.get(f"/api/groups/{furnished.popping}")
    assert 1 <= answer["poppedTotal"] == sum(row["messages"] for row in answer["popped"]) <= 5
    assert {furnished.payments} == {row["topic"] for row in answer["popped"]}
    page = await visitor.page(f"/groups/{furnished.popping}")
    assert f"{answer['poppedTotal']} messages" in page
    assert "Nothing is popped" in await visitor.page(f"/groups/{furnished.lagging}")
    life = await visitor.get(f"/api/messages/{furnished.popped_id}/life", topic=furnished.payments)
    (branch,) = [each for each in life["branches"] if each["group"] == furnished.popping]
    assert [("delivered", "done"), ("inFlight", "now")] == [(each["name"], each["state"]) for each in branch["stages"]]


async def test_every_list_that_a_page_offers_as_a_file_can_be_had(visitor: Visitor, furnished: Furnished) -> None:
    for href in (
        *PAGES,
        f"/topics/{furnished.orders}?x=1",
        f"/groups/{furnished.group}",
        f"/messages?topic={furnished.orders}&text=arrow",
        f"/letters/{furnished.dying}?reason=exhausted",
        "/settings?broker=broker-a&changed=true&sort=-key",
        "/users?username=a&resource=Topic:x&action=Pub",
    ):
        page = await visitor.page(href)
        for place in re.findall(r'<a href="([^"]+)" download', page):
            answer = await visitor.http.get(place.replace("&amp;", "&"))
            assert (href, place, 200) == (href, place, answer.status_code), answer.text


async def test_every_setting_of_a_broker_has_a_meaning_and_says_when_a_change_counts(visitor: Visitor) -> None:
    rows = (await visitor.get("/api/settings", size=1000))["rows"]
    assert len(rows) > 150
    assert [] == [row["key"] for row in rows if row["default"] is not None and not (row["meaning"] and row["counts"])]
    counts = {row["key"]: row["counts"] for row in rows}
    assert ("fixed", "now", "start") == tuple(
        counts[key] for key in ("brokerName", "autoCreateTopicEnable", "mappedFileSizeCommitLog")
    )
    page = await visitor.page("/settings?q=brokerName")
    assert "set where it is started" in page
    assert 'data-dialog="set-' not in page


async def test_a_search_by_text_begins_with_the_newest_and_says_what_it_left_out(
    visitor: Visitor, broker: LocalBroker, name: str
) -> None:
    async with Admin(broker.namesrv) as admin:
        await admin.create_topic(name, queues=3)
    async with Producer(broker.namesrv) as producer:
        for number in range(300):
            await producer.send(name, b"needle %d" % number)
    sent = [f"needle {number}" for number in range(300)]
    assert visitor.server.console is not None
    await visitor.server.console.gatherer.survey()

    async def is_dispatched() -> bool:
        answer = await visitor.get("/api/messages", topic=name, text="needle 299")
        return bool(answer["rows"])

    await until(is_dispatched)
    answer = await visitor.get("/api/messages", topic=name, text="needle", limit=10)
    assert not answer["isComplete"]
    whole = await visitor.get("/api/messages", topic=name, text="needle", limit=500)
    assert (True, 300, sorted(sent)) == (
        whole["isComplete"],
        whole["scanned"],
        sorted(row["preview"] for row in whole["rows"]),
    )
    assert [row["stored"] for row in whole["rows"][:10]] == [row["stored"] for row in answer["rows"]]
    middle = whole["rows"][150]["stored"]
    some = await visitor.get("/api/messages", topic=name, text="needle", begin=middle, limit=500)
    assert {True} == {row["stored"] >= middle for row in some["rows"]}
    rest = await visitor.get("/api/messages", topic=name, text="needle", end=middle, limit=500)
    assert 300 == len(some["rows"]) + len(rest["rows"])


async def test_the_life_of_a_message_is_told_in_the_language_of_the_page(
    visitor: Visitor, broker: LocalBroker, furnished: Furnished
) -> None:
    await consume_all(broker.namesrv, furnished.group, furnished.orders, 39)
    ids = (furnished.order_id, furnished.popped_id, furnished.timer_id, furnished.half_id, furnished.hostile_ids[0])
    for each in ids:
        answer = await visitor.get(f"/api/messages/{each}/life")
        page = await visitor.page(f"/messages/{each}", Cookie="lang=zh")
        told = page.partition('class="events"')[2].partition("</ol>")[0]
        for row in answer["rows"]:
            assert row["text"] not in told, row
        assert "{" not in told
    assert "的生产者产生" in told
