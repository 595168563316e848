"""Source, sink and pipelines on a Spark cluster of processes: a master, two workers, executors that they start.

    python tests/spark/soak/standalone.py

Nothing of ours knows that it is a cluster: only the master's address differs from a run in one process. Both sinks are
written to and read back, a stream copies a topic exactly once, and `arrowmq pipeline` archives, replays and audits.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from commands import pipeline  # noqa: E402
from live import Server, wait_for  # noqa: E402
from pipeline_soak import rows_of, visible  # noqa: E402
from pyspark.find_spark_home import _find_spark_home  # noqa: E402

from arrowmq.spark import session  # noqa: E402
from arrowmq.spark.stream_start import unhurried  # noqa: E402

ROWS = 20_000
WORKERS = 2


@contextlib.contextmanager
def process(folder: Path, name: str, kind: str, *arguments: str) -> Iterator[Path]:
    """One of Spark's own servers; gives the file with its words."""
    log = folder / f"{name}.log"
    command = [f"{_find_spark_home()}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with (
        log.open("w") as said,
        subprocess.Popen([*command, *arguments], stdout=said, stderr=said, env=environment) as started,
    ):
        try:
            yield log
        finally:
            started.terminate()


def first_after(log: Path, words: str) -> str:
    """What follows these words in a log, once they are there."""
    wait_for(lambda: words in log.read_text(), f"{words!r} in {log.name}")
    return log.read_text().split(words, 1)[1].split()[0]


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of a master with workers of one core each."""
    with (
        process(folder, "master", "master.Master", "--port", "0", "--webui-port", "0") as log,
        contextlib.ExitStack() as workers,
    ):
        master = first_after(log, "Starting Spark master at ")
        for number in range(WORKERS):
            limits = [
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "--work-dir",
                str(folder / f"work-{number}"),
            ]
            said = workers.enter_context(process(folder, f"worker-{number}", "worker.Worker", *limits, master))
            first_after(said, "Successfully registered with master ")
        yield master


def executors(folder: Path) -> int:
    """How many executors have worked, by the folders that their workers made for them."""
    return sum(1 for _ in folder.glob("work-*/app-*/*/stderr"))


def bodies(namesrv: str, topic: str) -> Counter[str]:
    return Counter(record.body.decode() for record in visible(namesrv, topic))


def sinks_and_source(spark: Any, server: Server, folder: Path) -> Iterator[tuple[str, bool]]:
    expected = Counter(f"row {number}" for number in range(ROWS))
    frame = spark.range(ROWS).selectExpr("concat('row ', id) as body", "concat('tag', id % 3) as tags").repartition(4)
    for delivery in ("at-least-once", "exactly-once"):
        where = {"namesrv": server.namesrv, "topic": f"Cluster-{delivery}", "delivery": delivery}
        frame.write.format("arrowmq").options(**where).mode("append").save()
        yield f"{delivery} sink", expected == bodies(server.namesrv, where["topic"])
    reader = {"namesrv": server.namesrv, "topic": "Cluster-at-least-once"}
    rows = spark.read.format("arrowmq").options(**reader, minPartitions=8).load()
    yield "source", expected == Counter(bytes(row.body).decode() for row in rows.select("body").collect())
    stream = spark.readStream.format("arrowmq").options(**reader, startingOffsets="earliest")
    writer = stream.option("maxOffsetsPerTrigger", ROWS // 4).load().select("body").writeStream.format("arrowmq")
    writer = writer.options(namesrv=server.namesrv, topic="Cluster-streamed", checkpointLocation=f"{folder}/checkpoint")
    unhurried(lambda: writer.trigger(availableNow=True).start().awaitTermination())
    yield "stream from topic to topic", expected == bodies(server.namesrv, "Cluster-streamed")
    scan = spark.read.format("arrowmq.store").option("topic", "Cluster-streamed").load(str(server.store))
    yield "store scan", expected == Counter(bytes(row.body).decode() for row in scan.select("body").collect())


def commands(master: str, server: Server, folder: Path) -> Iterator[tuple[str, bool]]:
    expected = Counter(f"row {number}" for number in range(ROWS))
    topic, lake = "Cluster-streamed", folder / "lake"
    common = ("--master", master, "-n", server.namesrv)
    pipeline(folder / "archive", "archive", *common, "--topics", topic, "--to", str(lake)).finish()
    found = Counter(bytes(body).decode() for (body,) in rows_of(lake / "data", "parquet", "body"))
    yield "pipeline archive", expected == found
    arguments = ("--archive", str(lake), "--to-topic", "Cluster-replayed", "--work", str(folder / "replay"))
    pipeline(folder / "replay-run", "replay", *common, *arguments).finish()
    yield "pipeline replay", expected == bodies(server.namesrv, "Cluster-replayed")
    said = pipeline(folder / "audit", "audit", "--master", master, str(server.store), "--json").finish()
    yield "pipeline audit", '"isSound": true' in said


def main() -> None:
    began = time.monotonic()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="arrowmq-cluster-") as name:
        folder = Path(name)
        with Server(folder, "transactionTimeOut=60000") as server, cluster(folder) as master:
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
            spark = session("cluster", master=master, **{"spark.sql.warehouse.dir": str(folder / "warehouse")})
            for what, is_right in sinks_and_source(spark, server, folder):
                failures += not is_right
                print(f"{what}: {'each row once' if is_right else 'WRONG'}", flush=True)
            spark.stop()
            for what, is_right in commands(master, server, folder):
                failures += not is_right
                print(f"{what}: {'each row once' if is_right else 'WRONG'}", flush=True)
            count = executors(folder)
    print(f"standalone cluster: {count} executors, {failures} failures, {time.monotonic() - began:.0f} s")
    sys.exit(1 if failures or count < 4 * WORKERS else 0)


if __name__ == "__main__":
    main()
