"""Apache RocketMQ's own integration tests, run against a cluster outside of their JVM: Apache's and ours.

In: the compiled tests of rocketmq-test (fetched by Maven), the tests that are expected to fail on ours with their
reasons (`expected.py`). Out: what passed on either cluster, side by side, and what is not as expected.

`java/` has a class that stands before the tests' own `IntegrationTestBase` and gives them handles of running processes
where they would start brokers in their JVM. `make apache-its` runs it all; `docs/apache-its.md` is written from here.
"""
