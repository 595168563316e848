"""Administration of users and policies: AUTH_CREATE_USER … AUTH_LIST_ACL, mqadmin's createUser … copyAcl.

A change is on disk and in force before it is answered. Super users are made, changed and deleted by super users only;
without authentication, by everybody, as at Apache. A password is told to super users alone, for mqadmin's copyUser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from arrowmq.auth.account_book import Change
from arrowmq.auth.accounts import user_info
from arrowmq.auth.errors import AccountError
from arrowmq.auth.guard import Guard
from arrowmq.auth.policies import PolicyType, parse_acl, parse_policy_type
from arrowmq.auth.resources import Resource, parse_resource
from arrowmq.auth.users import User, UserType, name_of, new_user, user_status, user_type
from arrowmq.remoting.handlers import Answer, Call, Refused, handles
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import AclInfo, UserInfo
from arrowmq.wire.bodies.declare import Body
from arrowmq.wire.codes import RequestCode, ResponseCode
from arrowmq.wire.errors import WireError
from arrowmq.wire.headers import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateAcl,
    UpdateUser,
)

BLANK = "The username is blank"
NO_ACL = "The body of acl is null"


class UserAdmin:
    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.book = guard.book

    # Users

    @handles(RequestCode.AUTH_CREATE_USER)
    async def create_user(self, request: CreateUser, call: Call) -> None:
        name, body = _named(request.username), _body(call, UserInfo)
        type, status = _asked(user_type, body.user_type), _asked(user_status, body.user_status)
        user = _asked(new_user, name, body.password, type, status)
        if user.is_super and not self._is_trusted(call):
            raise Refused(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
        await self._change(lambda accounts: accounts.with_new_user(user))
        self._told(call, f"created {_shown(user)}")

    @handles(RequestCode.AUTH_UPDATE_USER)
    async def update_user(self, request: UpdateUser, call: Call) -> None:
        name, body = _named(request.username), _body(call, UserInfo)
        type, status = _asked(user_type, body.user_type), _asked(user_status, body.user_status)
        if type is UserType.SUPER and not self._is_trusted(call):
            raise Refused(ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")
        self._protect(name, call)
        await self._change(lambda accounts: accounts.with_user_changed(name, body.password, type, status))
        changed = self.book.user(name)
        password = " with a new password" if body.password and body.password.strip() else ""
        if changed is not None:
            self._told(call, f"changed {_shown(changed)}{password}")

    @handles(RequestCode.AUTH_DELETE_USER)
    async def delete_user(self, request: DeleteUser, call: Call) -> None:
        if not request.username or not request.username.strip():
            raise Refused(ResponseCode.NO_PERMISSION, "username can not be blank")
        name = request.username
        self._protect(name, call)
        await self._change(lambda accounts: accounts.without_user(name))
        self._told(call, f"deleted User:{name} and its rights")

    @handles(RequestCode.AUTH_GET_USER)
    def get_user(self, request: GetUser, call: Call) -> Answer:
        user = self.book.user(_named(request.username))
        return Answer(body=b"" if user is None else fastjson.dumps(self._info(user, call)))

    @handles(RequestCode.AUTH_LIST_USER)
    def list_users(self, request: ListUsers, call: Call) -> Answer:
        users = [self._info(user, call) for user in self.book.accounts.users_like(request.filter)]
        return Answer(body=fastjson.dumps(users) if users else b"")

    def _info(self, user: User, call: Call) -> UserInfo:
        return user_info(user, with_password=call.user is not None and call.user.is_super)

    # Policies

    @handles(RequestCode.AUTH_CREATE_ACL)
    async def create_acl(self, request: CreateAcl, call: Call) -> None:
        await self._add(request.subject, call)

    @handles(RequestCode.AUTH_UPDATE_ACL)
    async def update_acl(self, request: UpdateAcl, call: Call) -> None:
        await self._add(request.subject, call)

    async def _add(self, subject: str | None, call: Call) -> None:
        body = _body(call, AclInfo)
        if not body.policies:
            raise Refused(ResponseCode.NO_PERMISSION, NO_ACL)
        acl = _asked(parse_acl, body, subject)
        await self._change(lambda accounts: accounts.with_acl(acl))
        entries = "; ".join(entry.text for type in PolicyType for entry in acl.entries(type))
        self._told(call, f"gave User:{acl.user} the rights {entries}")

    @handles(RequestCode.AUTH_DELETE_ACL)
    async def delete_acl(self, request: DeleteAcl, call: Call) -> None:
        name = _asked(name_of, request.subject)
        type = _asked(parse_policy_type, request.policy_type)
        resource: Resource | None = _asked(parse_resource, request.resource) if request.resource else None
        await self._change(lambda accounts: accounts.without_acl(name, type, resource))
        self._told(call, f"took rights from User:{name}: {resource.key if resource is not None else 'all'}")

    @handles(RequestCode.AUTH_GET_ACL)
    def get_acl(self, request: GetAcl) -> Answer:
        acl = _asked(self.book.accounts.acl, _asked(name_of, request.subject))
        return Answer(body=b"" if acl is None else fastjson.dumps(acl.info()))

    @handles(RequestCode.AUTH_LIST_ACL)
    def list_acls(self, request: ListAcls) -> Answer:
        acls = self.book.accounts.acls_like(request.subject_filter, request.resource_filter)
        return Answer(body=fastjson.dumps(acls) if acls else b"")

    # Both

    def _is_trusted(self, call: Call) -> bool:
        return not self.guard.is_on or (call.user is not None and call.user.is_super)

    def _protect(self, name: str, call: Call) -> None:
        user = self.book.user(name)
        if user is not None and user.is_super and not self._is_trusted(call):
            raise Refused(ResponseCode.NO_PERMISSION, "The super user can only be update by super user")

    async def _change(self, change: Change) -> None:
        try:
            await self.book.change(change)
        except AccountError as fault:
            raise Refused(ResponseCode.NO_PERMISSION, str(fault)) from None

    def _told(self, call: Call, what: str) -> None:
        who = call.user.name if call.user is not None else ""
        self.guard.audit.changed(what, who, call.connection.peer_text)


def _named(name: str | None) -> str:
    if name is None or not name.strip():
        raise Refused(ResponseCode.INVALID_PARAMETER, BLANK)
    return name


def _shown(user: User) -> str:
    return f"{user.subject} type={user.type.value} status={user.status.value}"


_Given = TypeVar("_Given", bound=Body)
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _body(call: Call, kind: type[_Given]) -> _Given:
    """What the request carries; nothing counts as an empty object. The error must not quote it: passwords are there."""
    try:
        return fastjson.loads(call.body or b"{}", type=kind)
    except WireError:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the body is no {kind.__name__} in JSON") from None


def _asked(check: Callable[_Parameters, _Result], *values: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
    """A value of the request, or the refusal that its check gives."""
    try:
        return check(*values, **named)
    except AccountError as fault:
        raise Refused(ResponseCode.NO_PERMISSION, str(fault)) from None
