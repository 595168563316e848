"""What is wrong with a cluster: facts first (`gather`), then a list of small checks over them (`servers`, `topics`).

In: the facts of a cluster. Out: findings, each with what to do.
"""

from __future__ import annotations

from arrowmq.inspect.doctor.controllers import CONTROLLER_CHECKS
from arrowmq.inspect.doctor.facts import Facts, Finding
from arrowmq.inspect.doctor.pop import POP_CHECKS
from arrowmq.inspect.doctor.replicas import REPLICA_CHECKS
from arrowmq.inspect.doctor.servers import SERVER_CHECKS
from arrowmq.inspect.doctor.topics import TOPIC_CHECKS

CHECKS = {**SERVER_CHECKS, **REPLICA_CHECKS, **CONTROLLER_CHECKS, **TOPIC_CHECKS, **POP_CHECKS}


def examine(facts: Facts) -> dict[str, list[Finding]]:
    """Every check by its title, with what it found."""
    return {title: check(facts) for title, check in CHECKS.items()}
