"""Reports: one file, nothing from elsewhere, nothing unescaped."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from arrowmq.spark.pipelines.report import Report, bar_chart, line_chart, size_text


def test_charts_are_well_formed_and_say_their_values() -> None:
    chart = bar_chart([("a & b", 3.0), ("<c>", 0.0)], "messages")
    tree = ElementTree.fromstring(chart)
    titles = [element.text for element in tree.iter("title")]
    assert ["a & b: 3.0 messages", "<c>: 0.0 messages"] == titles
    curve = ElementTree.fromstring(line_chart([("median", [("12:00", 1.0), ("12:01", 2.0)]), ("99 %", [])], "ms"))
    assert 2 == len(list(curve.iter("polyline")))


def test_nothing_to_draw_is_said() -> None:
    assert "nothing to draw" in bar_chart([], "x")
    assert "nothing to draw" in line_chart([], "x")


def test_a_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = Report("A <title>", "about & more")
    page.numbers([("messages", "12", False), ("damaged", "1", True)])
    page.table(["name", "n"], [("<script>alert(1)</script>", 1234), (None, 1.25)])
    page.table(["name"], [], empty="none at all")
    text = page.write(tmp_path / "deep" / "page.html").read_text()
    assert "<script>" not in text
    assert "1,234" in text
    assert "none at all" in text
    assert "src=" not in text
    assert "href=" not in text
    assert "url(" not in text


def test_sizes_read_well() -> None:
    assert ["0 bytes", "1.0 KiB", "1.5 MiB", "2.0 TiB"] == [size_text(n) for n in (0, 1024, 1.5 * 1024**2, 2 * 1024**4)]
