"""Users: a name, a password that signatures are made with, a type and a status, under RocketMQ's names.

A signature is an HMAC with the password, so it has to be kept as it is. It is shown nowhere: not by `repr`, not in a
log, an error or a settings answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from arrowmq.auth.errors import AccountError

NAME_MAX_LENGTH = 255
PASSWORD_MAX_LENGTH = 1024


class UserType(Enum):
    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        return self.status is UserStatus.ENABLE

    @property
    def subject(self) -> str:
        return subject_of(self.name)

    def changed(self, password: str | None, type: UserType | None, status: UserStatus | None) -> User:
        """What is None, or a blank password, stays."""
        return replace(
            self,
            password=password if password and password.strip() else self.password,
            type=type or self.type,
            status=status or self.status,
        )


def new_user(name: str | None, password: str | None, type: UserType | None, status: UserStatus | None) -> User:
    """A checked user. Raises `AccountError`."""
    if name is None or not name.strip():
        raise AccountError("username can not be blank")
    if password is None or not password.strip():
        raise AccountError("password can not be blank")
    if len(name) > NAME_MAX_LENGTH or not name.isprintable():
        raise AccountError(f"a username is at most {NAME_MAX_LENGTH} printable characters")
    if len(password) > PASSWORD_MAX_LENGTH:
        raise AccountError(f"a password is at most {PASSWORD_MAX_LENGTH} characters")
    return User(name, password, type or UserType.NORMAL, status or UserStatus.ENABLE)


def user_type(text: str | None) -> UserType | None:
    """By name in any case; None where none is given. Raises `AccountError`."""
    if text is None or not text.strip():
        return None
    for known in UserType:
        if known.value.lower() == text.strip().lower():
            return known
    raise AccountError(f"there is no user type {text[:40]!r}: take Super or Normal")


def user_status(text: str | None) -> UserStatus | None:
    if text is None or not text.strip():
        return None
    for known in UserStatus:
        if known.value == text.strip().lower():
            return known
    raise AccountError(f"there is no user status {text[:40]!r}: take enable or disable")


def subject_of(name: str) -> str:
    return f"User:{name}"


def name_of(subject: str | None) -> str:
    """The user that a subject (`User:name`) names. Raises `AccountError`."""
    kind, colon, name = (subject or "").partition(":")
    if kind.lower() != "user" or not colon or not name.strip():
        raise AccountError("a subject is written User:NAME")
    return name
