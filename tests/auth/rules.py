"""Rights in few words: (resource, actions, decision[, sources])."""

from __future__ import annotations

from typing import Any

from arrowmq.auth.policies import Acl, parse_acl
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import AclInfo


def acl(*entries: tuple[str, ...], policy: str = "Custom", user: str = "u") -> Acl:
    return parse_acl(info(*entries, policy=policy, subject=f"User:{user}"))


def info(*entries: tuple[Any, ...], policy: str | None = "Custom", subject: str | None = "User:u") -> AclInfo:
    made = [
        {
            "resource": resource,
            "actions": actions.split(","),
            "decision": decision,
            **({"sourceIps": rest[0].split(",")} if rest else {}),
        }
        for resource, actions, decision, *rest in entries
    ]
    body = {"subject": subject, "policies": [{"policyType": policy, "entries": made}]}
    return fastjson.loads(fastjson.dumps(body), type=AclInfo)
