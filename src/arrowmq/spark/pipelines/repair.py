"""A repair: what is to become of a dead letter, decided by a Python function.

It takes a message as a dict (topic, body, tags, keys, properties, reconsumeTimes, consumerGroup, msgId, originMsgId)
and gives it back, changed or not, or None to let it rest.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from arrowmq.spark.options import OptionError
from arrowmq.wire.properties import RESERVED

Repair = Callable[[dict[str, Any]], "dict[str, Any] | None"]

RESENT_FROM = "RESENT_FROM"
RESENT_TIMES = "RESENT_TIMES"
_MOMENT = pa.timestamp("us", tz="UTC")
DECISION = pa.schema(
    [
        ("consumerGroup", pa.string()),
        ("msgId", pa.string()),
        ("originMsgId", pa.string()),
        ("originTopic", pa.string()),
        ("reconsumeTimes", pa.int32()),
        ("diedAt", _MOMENT),
        ("decidedAt", _MOMENT),
        ("action", pa.string()),
        ("wasChanged", pa.bool_()),
        ("target", pa.string()),
        ("body", pa.binary()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)
#: The same for Spark.
TRAIL_SCHEMA = (
    "consumerGroup string, msgId string, originMsgId string, originTopic string, reconsumeTimes int, "
    "diedAt timestamp, decidedAt timestamp, action string, wasChanged boolean, target string, body binary, "
    "tags string, `keys` array<string>, properties map<string,string>"
)
RESENT, LEFT = "resent", "left"


def load_repair(name: str) -> Repair:
    """`module:function`, or `file.py:function`."""
    place, _, function = name.rpartition(":")
    if not place or not function:
        raise OptionError("repair", f"{name!r} is not module:function or file.py:function")
    if place.endswith(".py"):
        found = _from_file(Path(place)).get(function)
    else:
        sys.path.insert(0, "")
        try:
            found = getattr(importlib.import_module(place), function, None)
        except ModuleNotFoundError as missing:
            raise OptionError("repair", str(missing)) from None
        finally:
            sys.path.pop(0)
    if not callable(found):
        raise OptionError("repair", f"{place} has no function {function}")
    result: Repair = found
    return result


def _from_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise OptionError("repair", f"{path} does not exist")
    # By value, not by name: executors cannot import a file that lies on the driver only.
    space: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(path.read_text(), str(path), "exec"), space)
    except Exception as wrong:
        raise OptionError("repair", f"{path} cannot be run: {type(wrong).__name__}: {wrong}") from None
    return space


def unchanged(message: dict[str, Any]) -> dict[str, Any]:
    """What is done without a repair: sent as it was."""
    return message


def decisions(batches: Iterator[pa.RecordBatch], repair: Repair) -> Iterator[pa.RecordBatch]:
    """For Spark's mapInArrow: letters in, decisions out."""
    for batch in batches:
        rows = [_decision(letter, repair) for letter in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=DECISION)


def _decision(letter: dict[str, Any], repair: Repair) -> dict[str, Any]:
    properties = dict(letter["properties"] or ())
    given = {
        "topic": letter["target"],
        "body": letter["body"],
        "tags": letter["tags"],
        "keys": list(letter["keys"] or ()),
        "properties": user_properties(properties),
        "reconsumeTimes": letter["reconsumeTimes"],
        "consumerGroup": letter["consumerGroup"],
        "msgId": letter["msgId"],
        "originMsgId": letter["originMsgId"],
    }
    shared = ("consumerGroup", "msgId", "originMsgId", "originTopic", "reconsumeTimes", "diedAt")
    row: dict[str, Any] = {name: letter[name] for name in shared} | {"decidedAt": datetime.now(UTC)}
    try:
        message = repair({**given, "keys": list(given["keys"]), "properties": dict(given["properties"])})
    except Exception as wrong:
        raise OptionError(
            "repair", f"the function failed on message {letter['msgId']}: {type(wrong).__name__}: {wrong}"
        ) from wrong
    if message is None:
        return {**row, "action": LEFT, "wasChanged": False}
    return {**row, **_answer(message, given, properties)}


def _answer(message: Any, given: dict[str, Any], properties: dict[str, str]) -> dict[str, Any]:
    """What the function gave back, checked: a wrong answer must show before anything is sent."""
    if not isinstance(message, dict):
        raise OptionError("repair", f"the function gave {type(message).__name__}, not a message (dict) or None")
    answer = {name: message.get(name, given[name]) for name in ("topic", "body", "tags", "keys", "properties")}
    if isinstance(answer["body"], str):
        answer["body"] = answer["body"].encode()
    if not isinstance(answer["body"], bytes | bytearray) or not answer["body"]:
        raise OptionError("repair", f"of message {given['msgId']} the function left no body (bytes or str)")
    if not answer["topic"]:
        raise OptionError("repair", f"message {given['msgId']} does not say where it came from: set its topic")
    wanted = {str(name): str(value) for name, value in (answer["properties"] or {}).items()}
    if wrong := sorted(RESERVED & wanted.keys()):
        raise OptionError("repair", f"property {wrong[0]} is RocketMQ's own: the function must not set it")
    was_changed = any(answer[name] != given[name] for name in answer)
    times = properties.get(RESENT_TIMES, "0")
    wanted |= {RESENT_FROM: given["originMsgId"], RESENT_TIMES: str(int(times) + 1 if times.isdigit() else 1)}
    return {
        "action": RESENT,
        "wasChanged": was_changed,
        "target": answer["topic"],
        "body": bytes(answer["body"]),
        "tags": answer["tags"],
        "keys": list(answer["keys"] or ()),
        "properties": list(wanted.items()),
    }


def user_properties(properties: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in properties.items()
        if name not in RESERVED and not name.startswith(("__", "SPARK_"))
    }
