"""Users and their rights at brokers that check them (ACL 2.0): each broker keeps its own, so a change goes to each."""

from __future__ import annotations

from collections.abc import Iterable

from arrowmq.client.admin.cluster import ClusterAdmin
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from arrowmq.wire.codes import RequestCode


class AccessAdmin(ClusterAdmin):
    async def create_user(self, address: str, name: str, password: str, type: str = "Normal") -> None:
        body = UserInfo(username=name, password=password, user_type=type, user_status="enable")
        await self.call(address, RequestCode.AUTH_CREATE_USER, {"username": name}, fastjson.dumps(body))

    async def update_user(
        self,
        address: str,
        name: str,
        *,
        password: str | None = None,
        type: str | None = None,
        status: str | None = None,
    ) -> None:
        """What is None stays."""
        body = UserInfo(username=name, password=password, user_type=type, user_status=status)
        await self.call(address, RequestCode.AUTH_UPDATE_USER, {"username": name}, fastjson.dumps(body))

    async def delete_user(self, address: str, name: str) -> None:
        """With all rights of that user; nothing happens if there is none."""
        await self.call(address, RequestCode.AUTH_DELETE_USER, {"username": name})

    async def user(self, address: str, name: str) -> UserInfo | None:
        """Its password is told to super users only."""
        answer = await self.call(address, RequestCode.AUTH_GET_USER, {"username": name})
        return fastjson.loads(answer.body, UserInfo) if answer.body else None

    async def users(self, address: str, part: str = "") -> list[UserInfo]:
        """Those whose name contains `part`."""
        answer = await self.call(address, RequestCode.AUTH_LIST_USER, {"filter": part} if part else None)
        return fastjson.loads(answer.body, list[UserInfo]) if answer.body else []

    async def give_rights(
        self,
        address: str,
        user: str,
        resources: Iterable[str],
        actions: Iterable[str],
        *,
        sources: Iterable[str] = (),
        decision: str = "Allow",
        policy: str = "Custom",
    ) -> None:
        """Rights on each resource; they replace those that the user had on it."""
        sources, actions = list(sources), list(actions)
        entries = [
            PolicyEntryInfo(resource=resource, actions=actions, source_ips=sources or None, decision=decision)
            for resource in resources
        ]
        await self.give_acl(
            address, AclInfo(subject=f"User:{user}", policies=[PolicyInfo(policy_type=policy, entries=entries)])
        )

    async def give_acl(self, address: str, acl: AclInfo) -> None:
        await self.call(address, RequestCode.AUTH_CREATE_ACL, {"subject": acl.subject or ""}, fastjson.dumps(acl))

    async def take_rights(self, address: str, user: str, resource: str | None = None, policy: str = "Custom") -> None:
        """The rights on one resource, or all of them."""
        ext = {"subject": f"User:{user}", "policyType": policy, **({"resource": resource} if resource else {})}
        await self.call(address, RequestCode.AUTH_DELETE_ACL, ext)

    async def rights(self, address: str, user: str) -> AclInfo | None:
        answer = await self.call(address, RequestCode.AUTH_GET_ACL, {"subject": f"User:{user}"})
        return fastjson.loads(answer.body, AclInfo) if answer.body else None

    async def all_rights(self, address: str, subject_part: str = "", resource_part: str = "") -> list[AclInfo]:
        ext = {"subjectFilter": subject_part, "resourceFilter": resource_part}
        answer = await self.call(address, RequestCode.AUTH_LIST_ACL, {key: part for key, part in ext.items() if part})
        return fastjson.loads(answer.body, list[AclInfo]) if answer.body else []
