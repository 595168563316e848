"""Reports: one file, nothing from elsewhere, nothing unescaped."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

from arrowmq.spark.pipelines.report import Report, bar_chart, by_time, is_brief, line_chart, size_text
from arrowmq.spark.pipelines.trace import Traced, trace_report


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


def test_hours_without_messages_are_drawn_and_many_hours_become_days() -> None:
    start = datetime(2026, 11, 15, 7)
    assert [("11-15 07h", 3), ("11-15 08h", 0), ("11-15 09h", 4)] == by_time({start: 3, start + timedelta(hours=2): 4})
    days = by_time({start + timedelta(hours=hour): 1 for hour in range(24 * 200)})
    assert (90, ("2027-06-03", 7)) == (len(days), days[-1])
    assert [] == by_time({})


def test_a_few_hours_are_shown_by_minute() -> None:
    start = datetime(2026, 11, 15, 7)
    assert is_brief([start, start + timedelta(hours=2)])
    assert not is_brief([start, start + timedelta(hours=3)])
    assert not is_brief([])
    moment = start + timedelta(minutes=58)
    assert [("07:58", 3), ("07:59", 0), ("08:00", 4)] == by_time({moment: 3, moment + timedelta(minutes=2): 4})


def test_a_chart_has_round_numbers_at_its_axis_and_nothing_at_its_edge() -> None:
    chart = bar_chart([(f"11-15 {hour:02d}h", 3733.0 * hour) for hour in range(24)], "messages")
    assert ["0", "20 k", "40 k", "60 k", "80 k"] == re.findall(r">([\d k]+)</text>", bar_chart([("a", 77_000.0)], "x"))
    for place in re.findall(r'<text class="x[^"]*" x="([\d.]+)"', chart):
        assert float(place) < 735


def test_numbers_stand_on_the_right_and_a_long_list_says_how_long_it_is() -> None:
    page = Report("t", "a")
    page.table(["name", "n", "size"], [("x", 1, "2.0 KiB"), ("y", None, "7 bytes")], of=12)
    page.ranking([("a <long> name", 10.0, "10"), ("b", 0.0, "0")])
    text = page.text()
    assert 4 == text.count('<td class="n">')
    assert "the first 2 of 12" in text
    assert "a &lt;long&gt; name" in text


def test_a_minute_without_a_time_is_left_out_of_the_curve() -> None:
    """Records that do not say how long sending took once ended the report."""
    minutes = [SimpleNamespace(minute="11-16 03:07", sends=2, send=None)]
    assert "nothing to draw" in trace_report(Traced(by_minute=minutes), "Traces").text()
    minutes.append(SimpleNamespace(minute="11-16 03:08", sends=2, send=[4, 5, 6]))
    text = trace_report(Traced(by_minute=minutes), "Traces").text()
    assert "03:08" in text
    assert "03:07" not in text
