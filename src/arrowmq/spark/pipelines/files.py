"""Files beside a pipeline's data, wherever Spark keeps that: a local folder, HDFS, an object store.

Small JSON files say how far a pipeline is. They are written to another name first and moved into place, so that a run
that is killed leaves the old one or the new one, never half of one. On a local disk Hadoop would keep a checksum in a
second file, and a kill between the two would leave a pair that cannot be read: there they are plain files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote


class Folder:
    """A folder by the path or URL that Spark would take."""

    def __init__(self, spark: Any, root: str) -> None:
        self._spark = spark
        self._jvm = spark._jvm
        self._configuration = spark._jsc.hadoopConfiguration()
        self.root = root.rstrip("/") or "/"

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def exists(self, name: str | None = None) -> bool:
        path = self._path(name)
        return bool(path.getFileSystem(self._configuration).exists(path))

    def read_json(self, name: str) -> dict[str, Any] | None:
        if not self.exists(name):
            return None
        found: dict[str, Any]
        local = self._local(name)
        if local is not None:
            found = json.loads(local.read_text("utf-8"))
            return found
        path = self._path(name)
        stream = path.getFileSystem(self._configuration).open(path)
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        found = json.loads(text)
        return found

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        local = self._local(name)
        if local is not None:
            local.parent.mkdir(parents=True, exist_ok=True)
            fresh = local.with_name(f".{name}.draft")
            fresh.write_text(json.dumps(value), "utf-8")
            fresh.replace(local)
            return
        draft, final = self._path(f".{name}.draft"), self._path(name)
        stream = draft.getFileSystem(self._configuration).create(draft, True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
        finally:
            stream.close()
        place = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(final.toUri(), self._configuration)
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        how = self._spark._sc._gateway.new_array(rename, 1)
        how[0] = rename.OVERWRITE
        place.rename(draft, final, how)

    def parquet_files(self, name: str) -> list[tuple[str, int]]:
        """The files of a table that Spark wrote and their rows, in the order of their names, which is the order of
        the tasks that wrote them."""
        table = self._spark.read.parquet(self.path(name))
        counted = table.selectExpr("_metadata.file_path as path").groupBy("path").count().collect()
        # Spark tells the path as a URL, and wants it back as a path.
        return sorted((unquote(str(row[0])), int(row[1])) for row in counted)

    def _local(self, name: str) -> Path | None:
        """The file on this machine's disk, if that is where the folder lies."""
        place = self._path(name).toUri()
        return Path(place.getPath()) if place.getScheme() == "file" else None

    def _path(self, name: str | None) -> Any:
        path = self._jvm.org.apache.hadoop.fs.Path(self.root if name is None else self.path(name))
        return path.getFileSystem(self._configuration).makeQualified(path)
