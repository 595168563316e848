"""Typed headers: what is required, what is lenient, and the texts inside pop's headers."""

from __future__ import annotations

import pytest

from arrowmq.wire import headers
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.headers import HeaderError, decode_header, encode_header

PULL = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "5", "maxMsgNums": "32", "sysFlag": "2",
    "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "1",
}  # fmt: skip


def test_a_missing_field_is_named() -> None:
    with pytest.raises(HeaderError, match="PullMessage needs the field queueOffset") as refused:
        decode_header(headers.PullMessage, {name: value for name, value in PULL.items() if name != "queueOffset"})
    assert "queueOffset" == refused.value.field


@pytest.mark.parametrize("text", ["five", "1.5", "0x10", "9223372036854775808", "1 ", "٣", "9" * 5000])
def test_a_field_that_is_no_integer_is_named(text: str) -> None:
    with pytest.raises(HeaderError, match="queueOffset"):
        decode_header(headers.PullMessage, PULL | {"queueOffset": text})


def test_unknown_fields_are_left_alone_and_empty_numbers_count_as_absent() -> None:
    header = decode_header(headers.PullMessage, PULL | {"AccessKey": "me", "maxMsgBytes": "", "subscription": ""})
    assert header.max_msg_bytes is None
    assert "" == header.subscription


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("TRUE", True), ("false", False), ("1", False)])
def test_booleans_are_read_as_java_reads_them(text: str, expected: bool) -> None:
    assert (
        expected is decode_header(headers.EndTransaction, END | {"fromTransactionCheck": text}).from_transaction_check
    )


END = {"producerGroup": "P", "tranStateTableOffset": "1", "commitLogOffset": "2", "commitOrRollback": "8"}


def test_none_is_not_written_and_names_are_javas() -> None:
    header = headers.UnregisterClient(client_id="c@1", consumer_group="G")
    assert {"clientID": "c@1", "consumerGroup": "G"} == encode_header(header)
    assert {"isForce": "true"} == {
        name: value
        for name, value in encode_header(headers.ResetOffset(topic="T", group="G", timestamp=-1, is_force=True)).items()
        if name.startswith("is")
    }


def test_a_send_without_producer_group_is_taken_as_the_apache_broker_takes_it() -> None:
    header = headers.SendMessage.from_v2_ext({"b": "T", "e": "1", "g": "5"})
    assert ("", "T", 1, 5, None) == (
        header.producer_group, header.topic, header.queue_id, header.born_timestamp, header.batch
    )  # fmt: skip


def test_every_header_of_the_table_writes_and_reads_itself() -> None:
    for cls in {*headers.REQUEST_HEADERS.values(), *headers.RESPONSE_HEADERS.values()}:
        samples = dict.fromkeys(headers.wire_names(cls), "1")
        header = decode_header(cls, samples)
        assert header == decode_header(cls, encode_header(header))


def test_every_request_that_has_a_header_is_a_known_code() -> None:
    assert set(headers.REQUEST_HEADERS) | set(headers.RESPONSE_HEADERS) <= {int(code) for code in RequestCode}


def test_a_receipt_comes_back_as_it_was() -> None:
    receipt = headers.Receipt(100, 1757000000123, 60000, 3, "0", "broker-a", 0, 102)
    assert "100 1757000000123 60000 3 0 broker-a 0 102" == receipt.encode()
    assert receipt == headers.parse_receipt(receipt.encode())
    assert 77 == headers.parse_receipt(receipt.encode() + " 77").commit_log_offset


@pytest.mark.parametrize("text", ["", "1 2 3", "a 1 2 3 0 b 0 1", "1 2 3 4 0 b 0 1 2 3"])
def test_a_damaged_receipt_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="receipt"):
        headers.parse_receipt(text)


def test_offset_texts_are_those_of_the_specification() -> None:
    assert "0 0 100;1 0 7" == headers.start_offset_info([("0", 0, 100), ("1", 0, 7)])
    assert "0 0 100,101;1 0 7" == headers.msg_offset_info([("0", 0, [100, 101]), ("1", 0, [7])])
    assert {("0", "0"): [100, 101], ("1", "0"): [7]} == headers.parse_offset_info("0 0 100,101;1 0 7")
    assert {("0", "qo0%100"): [2], ("0", "0"): [0]} == headers.parse_offset_info("0 qo0%100 2;0 0 0")
    assert {} == headers.parse_offset_info(None)
    for damaged in ("0 0", "0 0 1;0 0 2", "0 0 x"):
        with pytest.raises(HeaderError):
            headers.parse_offset_info(damaged)
