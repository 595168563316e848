"""A Spark Declarative Pipelines project over a topic, ready for `spark-pipelines run`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from arrowmq.spark.options import OptionError, Options
from arrowmq.spark.source.options import connection_of

#: What `spark-pipelines run` needs to remember tables from run to run on one machine.
CATALOG = "--conf spark.sql.catalogImplementation=hive"

SPEC = """\
name: {name}
storage: {storage}
catalog: spark_catalog
database: default
configuration:
  spark.sql.shuffle.partitions: "4"
libraries:
  - glob:
      include: transformations/**
"""

MESSAGES = '''\
"""Topic {topic} as a streaming table: each run takes in what came since the last one."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(name="{table}", comment="every message of topic {topic}, once")
def messages() -> DataFrame:
    return (
        spark.readStream.format("arrowmq")
        .option("namesrv", {namesrv_text})
        .option("topic", {topic_text})
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "500000")
        .option("group", "{name}")
        .load()
    )


@dp.materialized_view(name="{table}_by_tag", comment="how many messages of each tag, and how large")
def by_tag() -> DataFrame:
    return (
        spark.read.table("{table}")
        .groupBy("tags")
        .agg({{"*": "count", "storeSize": "avg"}})
        .toDF("tags", "messages", "meanBytes")
    )
'''

README = """\
# {name}

Reads topic `{topic}` of {namesrv} into the streaming table `{table}`, and counts it by tag in `{table}_by_tag`.

    pip install 'arrowmq[pipelines]'
    spark-pipelines run {catalog}

The Hive catalog (embedded, in this folder) remembers tables between runs; on a cluster with a catalog of its own leave
the setting out. Add files to `transformations/`; `spark-pipelines dry-run` checks them.
"""


def create_project(folder: str, *, namesrv: str, topic: str) -> list[Path]:
    """Writes the project into a folder that does not hold one yet; gives back the files."""
    connection_of(Options({"namesrv": namesrv}))
    if not re.fullmatch(r"[%|a-zA-Z0-9_-]{1,127}", topic):
        raise OptionError("topic", f"{topic!r} is no name of a topic: letters, digits, and the characters - _ % | only")
    root = Path(folder).absolute()
    name = re.sub(r"[^A-Za-z0-9_]", "_", root.name)
    table = re.sub(r"[^a-z0-9_]", "_", topic.lower())
    values = {
        "name": name,
        "storage": json.dumps((root / "storage").as_uri()),
        "namesrv": namesrv,
        "namesrv_text": json.dumps(namesrv),
        "topic": topic,
        "topic_text": json.dumps(topic),
        # A name in SQL does not begin with a digit.
        "table": f"t_{table}" if table[0].isdigit() else table,
        "catalog": CATALOG,
    }
    files = {
        root / "spark-pipeline.yml": SPEC,
        root / "transformations" / "messages.py": MESSAGES,
        root / "README.md": README,
    }
    there = [path for path in files if path.exists()]
    if there:
        raise FileExistsError(f"{there[0]} is there already: choose another folder")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(**values))
    return list(files)
