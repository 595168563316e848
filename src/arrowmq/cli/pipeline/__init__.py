"""`arrowmq pipeline …`: the Spark pipelines from the command line.

In: options of a pipeline. Out: its progress, its report and an exit code; the work is `arrowmq.spark.pipelines`'.
"""
