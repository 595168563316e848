"""A Spark session that works without flags: the right Python, a Java that is there, our formats by name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA = 17
PANDAS_WARNING = "PySpark does not yet fully support pandas"  # it does for what is used here
# Errors only, one line each; Spark's own profile greets with three lines and warns about much.
QUIET_JAVA = f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.json'}"
SHORT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
FORMATS = ("parquet", "delta", "iceberg")
# Which Sparks have builds, as of Delta 4.4 and Iceberg 1.12.
DELTA_BUILDS = ("4.0", "4.1", "4.2")
ICEBERG_BUILDS = {"4.0": "1.11.0", "4.1": "1.12.0"}


class JavaMissing(RuntimeError):
    """Spark needs a Java runtime and there is none; the message says how to get one."""


def find_java() -> Path:
    """The `java` that Spark will use; refuses one that is missing or too old, in one sentence."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    get_one = f"install Java {LEAST_JAVA} (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless)"
    if found is None:
        raise JavaMissing(f"Spark needs a Java runtime and none was found: {get_one} or set JAVA_HOME")
    if not Path(found).exists():
        raise JavaMissing(f"JAVA_HOME is {home}, but {found} does not exist: correct it, or {get_one}")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)(?:\.(\d+))?', said.stderr + said.stdout)
    major = int(match[1]) if match else 0
    if major == 1 and match and match[2]:
        major = int(match[2])
    if major < LEAST_JAVA:
        raise JavaMissing(
            f"{found} is Java {major or 'of an unknown version'}, but Spark needs {LEAST_JAVA}: {get_one}"
        )
    return Path(found)


def session(
    app_name: str = "arrowmq",
    *,
    master: str | None = None,
    table_format: str = "parquet",
    is_short: bool = False,
    log_level: str = "error",
    **conf: str,
) -> SparkSession:
    """The running Spark session, or a new one, that knows `format("arrowmq")` and `format("arrowmq.store")`.

    `master` is Spark's own (`local[*]` unless MASTER or a spark-submit says otherwise). `table_format="delta"` (or
    `"iceberg"`, where Spark has a build) adds what writing such tables takes. `is_short` says that the program
    runs for a minute or so: Java then spends less time on making itself faster. `log_level` is that of Spark's own
    log (error, warn, info, off), unless the variable ARROWMQ_SPARK_LOG says otherwise. Further settings are Spark's,
    with underscores for dots: `session(spark_sql_shuffle_partitions="8")`.
    """
    find_java()
    level = os.environ.get("ARROWMQ_SPARK_LOG", log_level)
    quiet_java = f"{QUIET_JAVA} -Darrowmq.log.level={level.lower()}"
    # Workers must run this very Python, which has arrowmq; plain PySpark takes the first `python3` on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("PYTHONWARNINGS", f"ignore:{PANDAS_WARNING}:FutureWarning")
    warnings.filterwarnings("ignore", PANDAS_WARNING, FutureWarning)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    # Under spark-submit the master is decided already, and a builder must not overrule it.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = master or os.environ.get("MASTER") or (None if submitted else "local[*]")
    settings = {
        "spark.sql.python.filterPushdown.enabled": "true",
        # A busy machine may take longer than Spark's 15 s to start a Python worker.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.showConsoleProgress": "false",
    }
    if not submitted:
        settings["spark.driver.extraJavaOptions"] = f"{quiet_java} {SHORT_JAVA}" if is_short else quiet_java
    if chosen is not None and chosen.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
            "spark.sql.warehouse.dir": str(Path.cwd() / "spark-warehouse"),
        }
    settings |= table_settings(table_format)
    settings |= {name.replace("_", ".") if "." not in name else name: value for name, value in conf.items()}
    if chosen is not None:
        builder = builder.master(chosen)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(level.upper())
    register(spark)
    return spark


def register(spark: SparkSession) -> SparkSession:
    """Makes our formats known to a session that was made without `session()`. Where the packages are installed, Spark
    finds them by itself (see `pyspark_arrowmq`); this also serves a session whose Python path came later."""
    from arrowmq.spark.source.data_source import ArrowmqSource
    from arrowmq.spark.store.scan import StoreSource

    for source in (ArrowmqSource, StoreSource):
        spark.dataSource.register(source)
    return spark


def table_settings(table_format: str) -> dict[str, str]:
    """What Spark must be told before it can write tables of that format."""
    if table_format not in FORMATS:
        raise ValueError(f"table format {table_format!r} is none of {', '.join(FORMATS)}")
    if table_format == "parquet":
        return {}
    import pyspark

    minor = ".".join(pyspark.__version__.split(".")[:2])
    if table_format == "delta":
        if minor not in DELTA_BUILDS:
            raise ValueError(
                f"Delta has no build for Spark {minor} (it has for {', '.join(DELTA_BUILDS)}): use parquet"
            )
        return {
            "spark.jars.packages": f"io.delta:delta-spark_{minor}_2.13:{_delta_version()}",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    if minor not in ICEBERG_BUILDS:
        raise ValueError(
            f"Iceberg has no build for Spark {minor} (it has for {', '.join(ICEBERG_BUILDS)}): use parquet or delta"
        )
    return {
        "spark.jars.packages": f"org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:{ICEBERG_BUILDS[minor]}",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }


def _delta_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("delta-spark")
    except PackageNotFoundError:
        raise ValueError("writing Delta tables needs the package delta-spark: pip install 'arrowmq[delta]'") from None
    # The Python package 4.4.1 was published without Java artifacts of that number; 4.4.0 has them.
    return "4.4.0" if installed == "4.4.1" else installed
