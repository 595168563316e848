"""Users and rights: how they change, and how they lie on disk."""

from __future__ import annotations

import asyncio
import logging
import stat
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrowmq.auth.account_book import AccountBook
from arrowmq.auth.accounts import Accounts, decode_accounts, encode_accounts, user_info
from arrowmq.auth.errors import AccountError, AccountFileError
from arrowmq.auth.plain_acl import convert, read_plain_acl, taken_over
from arrowmq.auth.policies import Acl, Decision, Entry, PolicyType
from arrowmq.auth.resources import Action, parse_resource
from arrowmq.auth.users import User, UserStatus, UserType, new_user
from arrowmq.store.disk import Disk
from arrowmq.store.errors import OutOfSpace
from arrowmq.wire.errors import WireError

SECRET = "the-secret-of-ann"
ANN = User("ann", SECRET)


def rights(user: str, key: str = "Topic:a") -> Acl:
    entry = Entry(parse_resource(key), (Action.PUB,), (), Decision.ALLOW)
    return Acl(user, ((PolicyType.CUSTOM, (entry,)),))


def test_a_user_is_created_once_changed_in_parts_and_takes_its_rights_along() -> None:
    one = Accounts().with_new_user(ANN).with_acl(rights("ann"))
    with pytest.raises(AccountError, match="The user is existed"):
        one.with_new_user(User("ann", "other"))
    changed = one.with_user_changed("ann", None, None, UserStatus.DISABLE)
    assert User("ann", SECRET, status=UserStatus.DISABLE) == changed.user("ann")
    assert SECRET == one.with_user_changed("ann", "  ", UserType.SUPER, None).user("ann").password
    assert "new" == one.with_user_changed("ann", "new", None, None).user("ann").password
    gone = changed.without_user("ann")
    assert not gone.users
    assert not gone.acls
    assert gone is gone.without_user("ann")
    with pytest.raises(AccountError, match="The user is not exist"):
        gone.with_user_changed("ann", "x", None, None)


def test_rights_belong_to_users_who_exist() -> None:
    with pytest.raises(AccountError, match=r"The subject of User:ann is not exist\."):
        Accounts().with_acl(rights("ann"))
    accounts = Accounts().with_new_user(ANN)
    assert accounts.acl("ann") is None
    with pytest.raises(AccountError, match="The acl is not exist"):
        accounts.without_acl("ann", PolicyType.CUSTOM, None)
    two = accounts.with_acl(rights("ann")).with_acl(rights("ann", "Topic:b"))
    left = two.without_acl("ann", PolicyType.CUSTOM, parse_resource("Topic:a"))
    assert ["Topic:b"] == [
        entry.resource for policy in left.acls_like(None, None)[0].policies for entry in policy.entries
    ]
    assert left.without_acl("ann", PolicyType.CUSTOM, parse_resource("Topic:b")).acl("ann") is None
    assert two.without_acl("ann", PolicyType.CUSTOM, None).acl("ann") is None


def test_lists_are_filtered_by_parts_of_names() -> None:
    accounts = Accounts().with_new_user(ANN).with_new_user(User("bob", "x")).with_acl(rights("ann"))
    assert ["ann", "bob"] == [user.name for user in accounts.users_like("")]
    assert ["bob"] == [user.name for user in accounts.users_like("o")]
    assert ["User:ann"] == [info.subject for info in accounts.acls_like("an", None)]
    assert [] == accounts.acls_like("bob", None)
    assert [] == accounts.acls_like(None, "Topic:b")
    assert 1 == len(accounts.acls_like(None, "Topic:a"))


@pytest.mark.parametrize(
    ("name", "password", "words"),
    [
        ("", "x", "username"),
        (" ", "x", "username"),
        (None, "x", "username"),
        ("a", "", "password"),
        ("a", " ", "password"),
    ],
)
def test_a_user_has_a_name_and_a_password(name: str | None, password: str, words: str) -> None:
    with pytest.raises(AccountError, match=words):
        new_user(name, password, None, None)


@pytest.mark.parametrize("name", ["a\nb", "a\x00", "x" * 300])
def test_names_that_would_spoil_a_log_are_refused(name: str) -> None:
    with pytest.raises(AccountError, match="printable"):
        new_user(name, "x", None, None)


def test_a_password_is_shown_nowhere() -> None:
    accounts = Accounts().with_new_user(ANN)
    assert SECRET not in repr(accounts) + repr(ANN) + str(user_info(ANN, with_password=False))


_names = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20)


@given(st.dictionaries(_names, st.tuples(_names, st.sampled_from(UserType), st.sampled_from(UserStatus)), max_size=5))
def test_the_file_gives_back_what_was_written(users: dict[str, tuple[str, UserType, UserStatus]]) -> None:
    accounts = Accounts()
    for name, (password, type, status) in users.items():
        accounts = accounts.with_new_user(User(name, password, type, status)).with_acl(rights(name))
    assert accounts == decode_accounts(encode_accounts(accounts))


@given(st.binary(max_size=60))
def test_a_damaged_file_is_an_error_and_never_nobody(data: bytes) -> None:
    with pytest.raises((AccountError, WireError)):
        decode_accounts(data)


# --- on disk ---------------------------------------------------------------------------------------------------------


async def test_a_change_is_on_disk_before_it_is_in_force_and_for_the_owner_only(tmp_path: Path) -> None:
    seen = []

    class Watched(Disk):
        def force_folder(self, path: Path) -> None:
            super().force_folder(path)
            seen.append((book.path.exists(), book.user("ann")))

    book = AccountBook(tmp_path / "config", Watched())
    book.on_change.append(lambda: seen.append("in force"))
    await book.change(lambda accounts: accounts.with_new_user(ANN))
    assert [(True, None), "in force"] == seen[-2:]
    assert 0o600 == stat.S_IMODE(book.path.stat().st_mode)
    again = AccountBook(tmp_path / "config")
    again.load()
    assert ANN == again.user("ann")


async def test_a_disk_that_refuses_leaves_everything_as_it_was(tmp_path: Path) -> None:
    class Full(Disk):
        def write(self, path: Path, data: bytes) -> None:
            raise OutOfSpace("full")

    book = AccountBook(tmp_path)
    await book.change(lambda accounts: accounts.with_new_user(ANN))
    book._disk = Full()
    with pytest.raises(OutOfSpace):
        await book.change(lambda accounts: accounts.without_user("ann"))
    assert ANN == book.user("ann")
    again = AccountBook(tmp_path)
    again.load()
    assert ANN == again.user("ann")


async def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    book = AccountBook(tmp_path)

    def add(n: int, accounts: Accounts) -> Accounts:
        return accounts.with_new_user(User(f"u{n}", "x"))

    await asyncio.gather(*(book.change(partial(add, n)) for n in range(20)))
    again = AccountBook(tmp_path)
    again.load()
    assert 20 == len(again.accounts.users)


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    book = AccountBook(tmp_path)
    book.change_now(lambda accounts: accounts.with_new_user(ANN))
    book.path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        AccountBook(tmp_path).load()
    assert 0o600 == stat.S_IMODE(book.path.stat().st_mode)
    assert "could be read by others" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":2}', b'{"users":[{"username":"a"}]}', b"\xff\xfe"])
def test_a_file_that_cannot_be_read_stops_the_start_and_shows_no_secret(tmp_path: Path, content: bytes) -> None:
    book = AccountBook(tmp_path)
    book.path.write_bytes(content + SECRET.encode() if content == b"{" else content)
    with pytest.raises(AccountFileError, match=r"accounts\.json") as error:
        book.load()
    assert SECRET not in str(error.value)


def test_users_of_an_apache_broker_are_not_passed_over_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "users").mkdir()
    with caplog.at_level(logging.WARNING):
        AccountBook(tmp_path).load()
    assert "copyUser" in caplog.text


# --- plain_acl.yml ---------------------------------------------------------------------------------------------------

PLAIN = """
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: 192.168.0.*
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  - groupB=PUB|SUB
- accessKey: rocketmq2
  secretKey: "another-secret"
  admin: true
- accessKey: rocketmq2
  secretKey: twice
"""


def test_accounts_of_acl_1_become_users_with_custom_and_default_policies(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(PLAIN)
    plain = read_plain_acl(tmp_path / "plain_acl.yml")
    accounts = taken_over(Accounts(), plain)
    assert User("RocketMQ", "12345678") == accounts.user("RocketMQ")
    assert User("rocketmq2", "another-secret", UserType.SUPER) == accounts.user("rocketmq2")
    acl = accounts.acl("RocketMQ")
    assert acl is not None
    assert [
        "Deny All on Topic:topicA",
        "Allow Pub,Sub on Topic:topicB",
        "Allow Sub on Topic:topicC",
        "Allow Pub,Sub on Group:groupB",
    ] == [entry.text for entry in acl.entries(PolicyType.CUSTOM)]
    assert ["Deny All on Topic:*", "Allow Sub on Group:*"] == [e.text for e in acl.entries(PolicyType.DEFAULT)]
    assert accounts.acl("rocketmq2") is None
    assert 3 == len(plain.left_out)


def test_users_who_are_there_keep_password_and_rights(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(PLAIN)
    before = Accounts().with_new_user(User("RocketMQ", "mine")).with_acl(rights("RocketMQ"))
    after = taken_over(before, read_plain_acl(tmp_path / "plain_acl.yml"))
    assert "mine" == after.user("RocketMQ").password
    assert rights("RocketMQ") == after.acl("RocketMQ")
    assert "rocketmq2" in after.users


@pytest.mark.parametrize(
    "text",
    [
        "accounts: 5",
        "accounts: [5]",
        "- a",
        "accounts:\n- accessKey: a",
        "a: [",
        "\x00",
        "accounts:\n- secretKey: abcdefgh1",
    ],
)
def test_a_plain_acl_that_cannot_be_meant_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plain_acl.yml").write_text(text)
    with pytest.raises(AccountError) as error:
        read_plain_acl(tmp_path / "plain_acl.yml")
    assert "abcdefgh1" not in str(error.value)


def test_a_permission_that_is_none_is_refused() -> None:
    with pytest.raises(AccountError, match="a permission is"):
        convert({"accounts": [{"accessKey": "a", "secretKey": "b", "topicPerms": ["t=WRITE"]}]})
    with pytest.raises(AccountError, match=r"write NAME=PUB\|SUB"):
        convert({"accounts": [{"accessKey": "a", "secretKey": "b", "topicPerms": ["t"]}]})
