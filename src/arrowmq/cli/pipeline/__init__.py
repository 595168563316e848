"""`arrowmq pipeline …`: the Spark pipelines from the command line."""
