"""Lets Spark find `format("arrowmq.store")` by itself: it imports modules named pyspark_… and takes DefaultSource."""

from arrowmq.spark.store.scan import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
