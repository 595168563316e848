"""The fast path fails closed: what is added to the general path without saying what it touches sees everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from in_process import LocalClient
from talking import has_fast_path, taken_by_fast_path

from arrowmq.broker import Broker
from arrowmq.broker.fastpath.permit import Does
from arrowmq.remoting.handlers import Call, HandlerTable, Refused, handles
from arrowmq.touches import Touches
from arrowmq.wire.batch import encode_batch
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.frames import Command
from arrowmq.wire.headers import PullMessage
from arrowmq.wire.ids import parse_offset_message_id

TOPIC = "Orders"
OTHER = "Payments"
TIMES = 5


class Traffic:
    """Each kind of request that the fast path serves, a few times."""

    def __init__(self, node: Any, topic: str = TOPIC) -> None:
        self.node = node
        self.topic = topic
        self.number = 0

    def header(self, properties: str = "", **more: str) -> dict[str, str]:
        self.number += 1
        return {
            "a": "P", "b": self.topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
            "i": f"{properties}UNIQ_KEY\x01{self.number:032X}\x02", "j": "0", "k": "false", "m": "false", **more,
        }  # fmt: skip

    async def answered(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        answer: Command = await self.node.client.ask(code, ext, body)
        assert ResponseCode.SUCCESS == answer.code, answer.remark
        return answer

    async def send(self, properties: str = "") -> None:
        for _ in range(TIMES):
            await self.answered(RequestCode.SEND_MESSAGE_V2, self.header(properties), b"body")

    async def send_batches(self) -> None:
        body = encode_batch([(0, b"one", b"TAGS\x01a\x02"), (0, b"two", b"TAGS\x01b\x02")])
        for _ in range(TIMES):
            await self.answered(RequestCode.SEND_BATCH_MESSAGE, self.header(m="true"), body)

    async def pull(self, **more: Any) -> None:
        for _ in range(TIMES):
            header = self.node.client.pull_header(self.topic, 0, maxMsgNums=1, **more)
            await self.answered(RequestCode.PULL_MESSAGE, header)

    async def begin_and_commit(self) -> None:
        for _ in range(TIMES):
            half = self.header("TRAN_MSG\x01true\x02PGROUP\x01P\x02", f="4")
            answer = await self.answered(RequestCode.SEND_MESSAGE_V2, half, b"half")
            end = {
                "producerGroup": "P", "tranStateTableOffset": answer.ext["queueOffset"],
                "commitLogOffset": str(parse_offset_message_id(answer.ext["msgId"]).physical_offset),
                "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "m", "transactionId": "t",
            }  # fmt: skip
            await self.answered(RequestCode.END_TRANSACTION, end)

    async def all(self) -> None:
        await self.send()
        await self.send_batches()
        await self.begin_and_commit()
        await self.pull()


EACH_KIND = {"sent": 3 * TIMES, "pulled": TIMES, "halves": TIMES, "ends": TIMES}
NOTHING = dict.fromkeys(EACH_KIND, 0)


async def taken_of(node: Any, traffic: Callable[[], Any]) -> dict[str, int]:
    """What the fast path took of some traffic."""
    before = taken_by_fast_path(node.broker)
    await traffic()
    after = taken_by_fast_path(node.broker)
    return {name: after[name] - before[name] for name in after}


@pytest.fixture
async def node(make_node: Any) -> Any:
    """A broker whose fast path takes all of the traffic."""
    made = await make_node(short=True)
    for topic in (TOPIC, OTHER):
        await made.client.send(topic, properties="UNIQ_KEY\x01first\x02")
    await Traffic(made).begin_and_commit()
    assert (EACH_KIND if has_fast_path() else NOTHING) == await taken_of(made, Traffic(made).all)
    return made


def add_gate(broker: Broker, seen: Counter[str]) -> Callable[[], None]:
    def gate() -> None:
        seen["gate"] += 1

    broker.path.gates.add(gate)
    return lambda: broker.path.gates.remove(gate)


def add_rule(broker: Broker, seen: Counter[str]) -> Callable[[], None]:
    def rule(_request: Any, record: Any) -> None:
        seen["rule"] += 1

    broker.path.rules.add(rule)
    return lambda: broker.path.rules.remove(rule)


def add_batch_rule(broker: Broker, seen: Counter[str]) -> Callable[[], None]:
    def rule(_request: Any, record: Any) -> None:
        seen["batch rule"] += 1

    broker.path.batch_rules.add(rule)
    return lambda: broker.path.batch_rules.remove(rule)


def add_rewrite(broker: Broker, seen: Counter[str]) -> Callable[[], None]:
    def rewrite(record: Any) -> None:
        seen["rewrite"] += 1

    broker.path.rewrites.add(rewrite)
    return lambda: broker.path.rewrites.remove(rewrite)


def add_listener(broker: Broker, seen: Counter[str]) -> Callable[[], None]:
    def listener(topic: str, *facts: object) -> None:
        if topic == TOPIC:
            seen["listener"] += 1

    broker.store.add_listener(listener, every=True)
    return lambda: broker.store.listeners_of_every.remove(listener)


def add_hook(broker: Broker, seen: Counter[str]) -> Callable[[], None]:
    def hook(call: Call) -> None:
        seen[f"hook {call.command.code}"] += 1

    broker.hooks.add(hook)
    return lambda: broker.hooks.remove(hook)


# Step → what it sees of one round of traffic, and what the fast path still takes beside it
UNDECLARED = [
    (add_gate, {"gate": 3 * TIMES}, {"pulled", "ends"}),
    (add_rule, {"rule": 2 * TIMES}, {"pulled", "ends", "batches"}),
    (add_batch_rule, {"batch rule": 2 * TIMES}, {"pulled", "halves", "ends", "singles"}),
    (add_rewrite, {"rewrite": 3 * TIMES}, {"pulled", "batches"}),
    (add_listener, {"listener": 4 * TIMES}, {"pulled"}),
    (
        add_hook,
        {
            f"hook {RequestCode.SEND_MESSAGE_V2}": 2 * TIMES,
            f"hook {RequestCode.SEND_BATCH_MESSAGE}": TIMES,
            f"hook {RequestCode.END_TRANSACTION}": TIMES,
            f"hook {RequestCode.PULL_MESSAGE}": TIMES,
        },
        set[str](),
    ),
]


@pytest.mark.parametrize(("add", "sees", "left"), UNDECLARED, ids=[each[0].__name__ for each in UNDECLARED])
async def test_a_step_that_declares_nothing_sees_all_that_it_may_touch(
    node: Any, add: Any, sees: dict[str, int], left: set[str]
) -> None:
    """One of each kind, added while the broker runs: it counts for the very next request, and so does its removal."""
    seen: Counter[str] = Counter()
    remove = add(node.broker, seen)
    taken = await taken_of(node, Traffic(node).all)
    assert sees == seen
    still_sent = (TIMES if "singles" in left else 0) + (2 * TIMES if "batches" in left else 0)
    expected = {name: count if name in left else 0 for name, count in EACH_KIND.items()} | {"sent": still_sent}
    assert (expected if has_fast_path() else NOTHING) == taken
    remove()
    assert (EACH_KIND if has_fast_path() else NOTHING) == await taken_of(node, Traffic(node).all)
    assert sees == seen


@pytest.mark.parametrize("vip", [False, True])
async def test_a_hook_refuses_before_the_handler_runs_at_either_port(node: Any, vip: bool) -> None:
    """The table of the VIP port is made when the port opens; a hook that is added later counts there too."""
    handlers: HandlerTable = node.broker.handlers.without([RequestCode.PULL_MESSAGE]) if vip else node.broker.handlers
    answers: list[Any] = []

    class Asked(Call):
        def _deliver(self, reply: Any) -> None:
            answers.append(reply)

    def refuse(call: Call) -> None:
        raise Refused(ResponseCode.NO_PERMISSION, f"{call.ext['b']} is not for you")

    node.broker.hooks.add(refuse, Touches(codes=(RequestCode.SEND_MESSAGE_V2,)))
    before = node.broker.store.appended
    command = Command.request(RequestCode.SEND_MESSAGE_V2, Traffic(node).header(), b"body")
    handlers.serve(Asked(command, LocalClient(handlers)))
    assert (ResponseCode.NO_PERMISSION, "Orders is not for you") == (answers[0].code, answers[0].remark)
    assert before == node.broker.store.appended
    await Traffic(node).send_batches()


async def test_a_hook_sees_a_call_from_inside_the_process_with_its_fields(node: Any) -> None:
    def refuse(call: Call) -> None:
        raise Refused(ResponseCode.NO_PERMISSION, f"{call.ext['topic']} at {call.ext['queueOffset']}")

    node.broker.hooks.add(refuse, Touches(codes=(RequestCode.PULL_MESSAGE,)))
    header = PullMessage(
        consumer_group="G", topic=TOPIC, queue_id=0, queue_offset=7, max_msg_nums=1, sys_flag=0, commit_offset=0,
        suspend_timeout_millis=0, sub_version=0,
    )  # fmt: skip
    answer = await LocalClient(node.broker.handlers).ask(node.broker.services.pull.pull, header)
    assert (ResponseCode.NO_PERMISSION, "Orders at 7") == (answer.code, answer.remark)


def test_hooks_see_the_codes_they_declare_and_those_of_no_declaration_all() -> None:
    seen: list[tuple[str, int]] = []

    class Service:
        @handles(1, 2)
        def answer(self, call: Call) -> None:
            pass

    class Asked(Call):
        def _deliver(self, reply: Any) -> None:
            pass

    table = HandlerTable(Service())
    table.hooks.add(lambda call: seen.append(("some", call.command.code)), Touches(codes=(2,)))
    table.hooks.add(lambda call: seen.append(("all", call.command.code)))
    for code in (1, 2):
        table.serve(Asked(Command(code), LocalClient(table)))
    assert [("all", 1), ("some", 2), ("all", 2)] == seen


async def test_what_a_step_declares_narrows_what_the_fast_path_leaves_to_it(node: Any) -> None:
    seen: list[str] = []
    node.broker.path.rules.add(lambda request, record: seen.append(record.topic), Touches(topics=(f"{OTHER[:3]}*",)))
    node.broker.path.rewrites.add(
        lambda record: seen.append(record.properties["color"]) if "color" in record.properties else None,
        Touches(properties=("color",)),
    )
    plain, other = Traffic(node), Traffic(node, OTHER)
    assert (EACH_KIND if has_fast_path() else NOTHING) == await taken_of(node, plain.all)
    assert 0 == (await taken_of(node, lambda: plain.send("color\x01red\x02")))["sent"]
    assert 0 == (await taken_of(node, other.send))["sent"]
    assert (TIMES if has_fast_path() else 0) == (await taken_of(node, lambda: plain.send("colour\x01red\x02")))["sent"]
    assert ["red"] * TIMES == [each for each in seen if each == "red"]
    assert [OTHER] * TIMES == [each for each in seen if each == OTHER]


async def test_a_step_that_touches_a_header_field_sees_the_requests_that_have_it(node: Any) -> None:
    seen: list[str] = []
    node.broker.hooks.add(lambda call: seen.append(call.ext.get("bname", "")), Touches(fields=("bname",)))
    await Traffic(node).pull(bname="broker-a")
    assert ["broker-a"] * TIMES == seen


async def test_a_closer_is_named_to_an_operator_and_counts_at_once(node: Any) -> None:
    """Added by whoever brings a new condition, such as replicas that are too few."""
    too_few: list[str] = []
    node.broker.permit.close_while("replicas", lambda: too_few and too_few[0], Does.WRITES)
    too_few.append("1 of 2 are in sync")
    taken = await taken_of(node, Traffic(node).all)
    assert ({**NOTHING, "pulled": TIMES} if has_fast_path() else NOTHING) == taken
    info = await node.client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    closed = node.broker.permit.report()["fastPathClosedBy"]
    assert b"fastPathClosedBy" in info.body
    if has_fast_path():
        assert "sends: replicas (1 of 2 are in sync)" in closed
    too_few.clear()
    node.broker.permit.remove("replicas")
    assert (EACH_KIND if has_fast_path() else NOTHING) == await taken_of(node, Traffic(node).all)
    assert "nothing" == node.broker.permit.report()["fastPathClosedBy"]


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"brokerPermission": "4"}, {"pulled"}),
        ({"maxSendsPerSecond": "100000"}, {"pulled", "ends"}),
        ({"startAcceptSendRequestTimeStamp": "1"}, {"sent", "pulled", "halves", "ends"}),
        ({"regionId": "elsewhere"}, {"pulled"}),
        ({"rejectPullConsumerEnable": "true"}, {"sent", "halves", "ends"}),
    ],
)
async def test_a_setting_closes_what_it_concerns(node: Any, settings: dict[str, str], kinds: set[str]) -> None:
    node.broker.config.apply(settings)
    node.broker.config_changed(settings)

    async def traffic() -> None:
        each = Traffic(node)
        await each.send()
        await each.send_batches()
        await each.begin_and_commit()
        for _ in range(TIMES):
            await node.client.pull(TOPIC, 0, maxMsgNums=1)

    expected = {name: count if name in kinds else 0 for name, count in EACH_KIND.items()}
    assert (expected if has_fast_path() else NOTHING) == await taken_of(node, traffic)


async def test_a_native_check_of_requests_hands_over_what_it_does_not_pass(node: Any) -> None:
    """The form that every such check is made from passes nothing: the hook sees all, as without it."""
    seen: list[int] = []

    def hook(call: Call) -> None:
        seen.append(call.command.code)

    node.broker.hooks.add(hook)
    if not has_fast_path():
        return
    check = import_module("arrowmq.broker.fastpath._router_native").RequestCheck()
    node.broker.permit.check_natively(hook, check, ("AccessKey", "Signature"))
    assert NOTHING == await taken_of(node, Traffic(node).all)
    assert 5 * TIMES == len(seen)
    with pytest.raises(TypeError, match="no native check"):
        node.broker.permit.check_natively(hook, object())
    with pytest.raises(ValueError, match="there is room for 4"):
        node.broker.permit.check_natively(hook, check, ("a", "b", "c"))
