"""Pages that tools write from the code are what the code says now."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_page_of_settings_is_what_the_code_says() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "configuration_table.py"))
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert tool["page"]() == page, "run python tools/configuration_table.py"
    catalog = (ROOT / "src" / "arrowmq" / "console" / "settings.tsv").read_text()
    assert tool["catalog"]() == catalog, "run python tools/configuration_table.py"


def test_every_setting_of_apache_has_its_line() -> None:
    lines = (ROOT / "tools" / "apache_configuration.tsv").read_text().splitlines()
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert len(lines) > 540
    assert {"haMasterAddress", "brokerConfigPath", "authConfigPath"} <= {line.split("\t")[1] for line in lines}
    assert [line for line in lines if f"| `{line.split()[1]}` |" not in page] == []


def test_the_board_is_what_its_tool_writes() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "grafana_board.py"))
    assert tool["board"]() == json.loads((ROOT / "docs" / "grafana" / "arrowmq.json").read_text())
