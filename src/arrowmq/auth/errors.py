"""What is raised here: `Denied` to who asks for something, `AccountError` to who changes users and policies."""

from __future__ import annotations


class Denied(Exception):
    """A request is refused. `who` and `resource` are for the audit line; the text is what the client gets."""

    def __init__(self, text: str, *, who: str = "", resource: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.who = who
        self.resource = resource


class AccountError(Exception):
    """A user or policy that cannot be made, changed or found; never carries a password."""


class AccountFileError(Exception):
    """The file of users and policies cannot be read: a server that went on without it would know nobody."""
