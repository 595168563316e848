"""A session without flags: what is needed is found, or missed in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from arrowmq.spark.session import JavaMissing, find_java, table_settings


def fake_java(folder: Path, version: str) -> None:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(0o755)


def test_java_is_found_through_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert tmp_path / "bin" / "java" == find_java()


@pytest.mark.parametrize(("version", "said"), [("11.0.2", "is Java 11"), ("1.8.0_402", "is Java 8")])
def test_an_old_java_is_one_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, said: str
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=said) as caught:
        find_java()
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_java_at_all_is_one_clear_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="none was found"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaMissing, match=re.escape(f"JAVA_HOME is {tmp_path}/gone")):
        find_java()


def test_table_formats_name_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.2.0")
    assert {} == table_settings("parquet")
    assert "io.delta:delta-spark_4.2_" in table_settings("delta")["spark.jars.packages"]
    with pytest.raises(ValueError, match="none of parquet, delta, iceberg"):
        table_settings("csv")
    with pytest.raises(ValueError, match=r"Iceberg has no build for Spark 4\.2"):
        table_settings("iceberg")
    monkeypatch.setattr("pyspark.__version__", "4.3.0")
    with pytest.raises(ValueError, match=r"Delta has no build for Spark 4\.3"):
        table_settings("delta")
