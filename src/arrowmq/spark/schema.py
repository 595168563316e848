"""The columns of a message: one list that the source, the store scan and the documentation follow.

A reader may be asked for fewer columns (option `columns`, `includeHeaders=false`, or a schema of the user's own);
Spark's Python data sources know no column pruning, so that is the way to leave bodies where they are.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from arrowmq.spark.options import OptionError

# name, type as Spark writes it, what it holds
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("topic", "string", "topic the record is stored under"),
    ("brokerName", "string", "broker that holds it"),
    ("queueId", "int", "queue within the broker"),
    ("queueOffset", "bigint", "position in the queue"),
    ("commitLogOffset", "bigint", "position in the broker's commit log, in bytes"),
    ("msgId", "string", "the client's id (UNIQ_KEY), else the offset message id"),
    ("offsetMsgId", "string", "store host and commit log position, in hexadecimal"),
    ("tags", "string", "tag; null without one"),
    ("keys", "array<string>", "keys; empty without any"),
    ("body", "binary", "body, decompressed"),
    ("properties", "map<string,string>", "every property, RocketMQ's own included"),
    ("bornTimestamp", "timestamp", "when the producer made it"),
    ("storeTimestamp", "timestamp", "when the broker stored it"),
    ("bornHost", "string", "address of the producer"),
    ("storeHost", "string", "address of the broker"),
    ("reconsumeTimes", "int", "how often it was sent back"),
    ("flag", "int", "the user's flag"),
    ("sysFlag", "int", "compression, transaction and address bits"),
    ("storeSize", "int", "bytes of the stored record"),
)
_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(StringType()),
    "map<string,string>": MapType(StringType(), StringType()),
}


def structure(text: str) -> StructType:
    """A schema written as `name type, name type`. Spark's own parser of that needs a running session."""
    fields = (part.strip().rpartition(" ") for part in text.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, _, kind in fields])


MESSAGE_SCHEMA = structure(", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS))


def message_schema(wanted: list[str] | None, *, with_properties: bool = True) -> StructType:
    """The columns asked for, in the order of the table above; all of them when none are named."""
    by_name = {field.name.lower(): field.name for field in MESSAGE_SCHEMA}
    names = set(MESSAGE_SCHEMA.names)
    if wanted is not None:
        unknown = [name for name in wanted if name.lower() not in by_name]
        if unknown:
            raise OptionError(
                "columns", f"there is no column {unknown[0]}; there are {', '.join(MESSAGE_SCHEMA.names)}"
            )
        names = {by_name[name.lower()] for name in wanted}
    if not with_properties:
        names.discard("properties")
    return StructType([field for field in MESSAGE_SCHEMA if field.name in names])


def check_message_schema(schema: StructType) -> None:
    """A schema given by the user may leave columns out, and may not invent any or change a type."""
    known = {field.name: field.dataType for field in MESSAGE_SCHEMA}
    for field in schema:
        if field.name not in known:
            raise ValueError(
                f"the schema asks for a column {field.name}, which a message does not have; parse `body` yourself, "
                "for example with from_json(col('body').cast('string'), ...)"
            )
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise ValueError(
                f"the schema gives {field.name} the type {field.dataType.simpleString()}, "
                f"but it is {known[field.name].simpleString()}"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Exactly what Spark expects of a batch of that schema."""
    return to_arrow_schema(StructType([StructField(f.name, f.dataType, f.nullable) for f in schema]), timezone="UTC")
