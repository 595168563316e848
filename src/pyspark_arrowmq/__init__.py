"""Lets Spark find `format("arrowmq")` by itself: it imports modules named pyspark_… and takes DefaultSource."""

from arrowmq.spark.source.data_source import ArrowmqSource as DefaultSource

__all__ = ["DefaultSource"]
