"""Goal: Apache's configuration files mean here what they mean there, and a mistake in one is named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrowmq.config import (
    ConfigError,
    camel_case,
    fill,
    format_properties,
    parse_properties,
    parse_settings,
    properties_of,
    read_properties,
)


@dataclass
class Sample:
    listen_port: int = 9876
    order_message_enable: bool = False
    kv_config_path: str = ""


def test_the_forms_a_java_properties_file_may_have() -> None:
    text = (
        "# a comment\n! another\n\n"
        "brokerName=broker-a\n"
        "  listenPort : 10911\r\n"
        "flushDiskType ASYNC_FLUSH\n"
        "namesrvAddr=10.0.0.1:9876;\\\n"
        "    10.0.0.2:9876\n"
        "path=C\\:\\\\store\n"
        "name=caf\\u00e9\n"
        "empty=\n"
        "lonely\n"
        "a\\ key=b = c\n"
        "last=one\nlast=two"
    )
    assert parse_properties(text) == {
        "brokerName": "broker-a",
        "listenPort": "10911",
        "flushDiskType": "ASYNC_FLUSH",
        "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
        "path": "C:\\store",
        "name": "café",
        "empty": "",
        "lonely": "",
        "a key": "b = c",
        "last": "two",
    }


@settings(deadline=None)  # a time limit would measure how busy the machine is
@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=8))
def test_what_is_written_is_read_back(properties: dict[str, str]) -> None:
    # Half of a surrogate pair is no text.
    properties = {k: v for k, v in properties.items() if not any("\ud800" <= c <= "\udfff" for c in k + v)}
    assert parse_properties(format_properties(properties)) == properties


def test_a_broken_escape_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=1\nb=\\u12x4\n")
    with pytest.raises(ConfigError, match=r"broker\.conf, line 2: .*four hexadecimal digits"):
        read_properties(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read_properties(tmp_path / "nowhere.conf")


def test_a_latin_1_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes("name=caf\u00e9".encode("latin-1"))
    assert read_properties(path) == {"name": "café"}


def test_a_setting_of_the_command_line_ends_its_key_at_the_first_equals_sign() -> None:
    assert parse_settings(["a=1", "storePathRootDir=/x=y"]) == {"a": "1", "storePathRootDir": "/x=y"}


@pytest.mark.parametrize("word", ["autoCreate", "=1", "two words=1", ""])
def test_a_word_that_is_no_setting_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_settings([word])


def test_a_class_is_filled_by_apaches_keys_and_returns_what_it_does_not_know() -> None:
    sample, unknown = fill(Sample, {"listenPort": " 1 ", "orderMessageEnable": "TRUE", "other": "x"})
    assert (Sample(1, True, ""), {"other": "x"}) == (sample, unknown)
    assert properties_of(sample) == {"kvConfigPath": "", "listenPort": "1", "orderMessageEnable": "true"}


@pytest.mark.parametrize(("key", "value"), [("listenPort", "many"), ("orderMessageEnable", "yes"), ("listenPort", "")])
def test_a_value_that_does_not_fit_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}={value}"):
        fill(Sample, {key: value})


def test_names_of_fields_become_apaches_keys() -> None:
    assert [camel_case(name) for name in ("listen_port", "broker_ip1", "ha")] == ["listenPort", "brokerIp1", "ha"]
