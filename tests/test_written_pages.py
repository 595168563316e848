"""Pages that tools write from the code are what the code says now."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from arrowmq.broker.settings.config import BrokerConfig
from arrowmq.broker.settings.refused import REFUSED
from arrowmq.config import ConfigError

ROOT = Path(__file__).resolve().parents[1]


def test_the_page_of_settings_is_what_the_code_says() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "configuration_table.py"))
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert tool["page"]() == page, "run python tools/configuration_table.py"


def test_every_setting_of_apache_has_its_line() -> None:
    lines = (ROOT / "tools" / "apache_configuration.tsv").read_text().splitlines()
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert len(lines) > 500
    assert [line for line in lines if f"| `{line.split()[1]}` |" not in page] == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authenticationEnabled", "true"),
        ("authorizationEnabled", "TRUE"),
        ("aclEnable", " true "),
        ("enableControllerMode", "true"),
        ("enableDLegerCommitLog", "true"),
        ("inSyncReplicas", "2"),
        ("minInSyncReplicas", "3"),
        ("messageStorePlugIn", "org.example.Plugin"),
        ("storeType", "defaultRocksDB"),
    ],
)
def test_a_setting_whose_promise_cannot_be_kept_is_refused_with_its_reason(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        BrokerConfig.from_properties({key: value})
    assert key in REFUSED


def test_the_same_settings_with_harmless_values_pass() -> None:
    harmless = {
        "authenticationEnabled": "false",
        "inSyncReplicas": "1",
        "storeType": "default",
        "messageStorePlugIn": "",
    }
    kept = BrokerConfig.from_properties(harmless).properties()
    assert harmless == {key: kept[key] for key in harmless}


def test_the_board_is_what_its_tool_writes() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "grafana_board.py"))
    assert tool["board"]() == json.loads((ROOT / "docs" / "grafana" / "arrowmq.json").read_text())
