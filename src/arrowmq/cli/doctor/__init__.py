"""`arrowmq doctor`: what is wrong with a cluster, found by checks over facts that were gathered first."""
