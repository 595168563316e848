"""Who may what: the answers that servers get, in Apache's words, and the audit lines."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from rules import acl

from arrowmq.auth.access import Access
from arrowmq.auth.account_book import AccountBook
from arrowmq.auth.audit import PER_SECOND, Audit
from arrowmq.auth.errors import Denied
from arrowmq.auth.needs import Need
from arrowmq.auth.resources import Action, topic_resource
from arrowmq.auth.settings import AuthSettings, is_secret, read_settings, without_secrets
from arrowmq.auth.signature import sign
from arrowmq.auth.users import User, UserStatus, UserType
from arrowmq.clock import SystemClock
from arrowmq.config import ConfigError
from arrowmq.wire import fastjson
from arrowmq.wire.frames import Command

SECRET = "the-secret-of-ann"
ON = AuthSettings(is_authenticating=True, is_authorizing=True)


def access(tmp_path: Path, settings: AuthSettings = ON) -> Access:
    book = AccountBook(tmp_path)
    made = Access(settings, book, "C", Audit("broker-a", SystemClock()))
    book.change_now(
        lambda accounts: (
            accounts.with_new_user(User("ann", SECRET))
            .with_new_user(User("root", "r00t", UserType.SUPER))
            .with_new_user(User("old", "x", status=UserStatus.DISABLE))
            .with_acl(acl(("Topic:orders", "Pub", "Allow"), ("Topic:closed", "Pub", "Deny"), user="ann"))
        )
    )
    return made


def request(code: int, user: str = "", secret: str = "", body: bytes = b"", **ext: str) -> Command:
    command = Command(code, ext=dict(ext), body=body)
    if user:
        sign(command.ext, body, user, secret.encode())
    return command


def refusal(access: Access, command: Command) -> str:
    with pytest.raises(Denied) as denied:
        access.check(command, "192.0.2.7")
    return denied.value.text


def test_refusals_are_in_apaches_words(tmp_path: Path) -> None:
    guard = access(tmp_path)
    assert "username cannot be null." == refusal(guard, request(310, b="orders"))
    assert "User:eve is not found." == refusal(guard, request(310, "eve", "x", b="orders"))
    assert "User:old is disabled." == refusal(guard, request(310, "old", "x", b="orders"))
    assert "check signature failed." == refusal(guard, request(310, "ann", "wrong", b="orders"))
    assert "User:ann has no permission to access Topic:t from 192.0.2.7, no matched policies." == refusal(
        guard, request(310, "ann", SECRET, b="t")
    )
    assert "User:ann has no permission to access Topic:closed from 192.0.2.7, the decision is deny." == refusal(
        guard, request(310, "ann", SECRET, b="closed")
    )


def test_who_may_is_told_who_they_are(tmp_path: Path) -> None:
    guard = access(tmp_path)
    ann = guard.check(request(310, "ann", SECRET, b="orders"), "192.0.2.7")
    assert ann is not None
    assert "ann" == ann.name
    root = guard.check(request(987654, "root", "r00t"), "192.0.2.7")
    assert root is not None
    assert root.is_super


def test_a_code_that_nobody_classified_is_refused_to_normal_users(tmp_path: Path) -> None:
    assert "super users only" in refusal(access(tmp_path), request(987654, "ann", SECRET))


def test_a_body_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "parse authorization context error" in refusal(access(tmp_path), request(34, "ann", SECRET, b"\x00"))


def test_changed_users_and_rights_count_from_the_next_request_on(tmp_path: Path) -> None:
    guard = access(tmp_path)
    command = request(310, "ann", SECRET, b="orders")
    assert guard.check(command, "192.0.2.7")
    guard.book.change_now(lambda accounts: accounts.with_acl(acl(("Topic:orders", "Pub", "Deny"), user="ann")))
    assert "the decision is deny." in refusal(guard, command)
    guard.book.change_now(lambda accounts: accounts.with_acl(acl(("Topic:orders", "Pub", "Allow"), user="ann")))
    assert guard.check(command, "192.0.2.7")
    guard.book.change_now(lambda accounts: accounts.with_user_changed("ann", "new", None, None))
    assert "check signature failed." == refusal(guard, command)
    guard.book.change_now(lambda accounts: accounts.with_user_changed("ann", SECRET, None, UserStatus.DISABLE))
    assert "User:ann is disabled." == refusal(guard, command)
    guard.book.change_now(lambda accounts: accounts.without_user("ann"))
    assert "User:ann is not found." == refusal(guard, command)


def test_authentication_alone_lets_every_user_do_everything(tmp_path: Path) -> None:
    guard = access(tmp_path, AuthSettings(is_authenticating=True))
    assert guard.check(request(25, "ann", SECRET), "192.0.2.7")
    assert "username cannot be null." == refusal(guard, request(25))


def test_a_whitelisted_code_needs_no_signature_but_a_claimed_name_gives_no_rights(tmp_path: Path) -> None:
    settings = read_settings(
        {"authenticationEnabled": "true", "authorizationEnabled": "true", "authenticationWhitelist": "310, 105"}
    )
    guard = access(tmp_path, settings)
    assert "not signed" in refusal(guard, request(310, AccessKey="root", b="orders"))
    assert guard.check(request(310, "ann", SECRET, b="orders"), "192.0.2.7")
    both = read_settings(
        {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationWhitelist": "310",
            "authorizationWhitelist": "310",
        }
    )
    assert access(tmp_path / "2", both).check(request(310, b="orders"), "192.0.2.7") is None


def test_the_service_asks_for_what_only_the_message_tells(tmp_path: Path) -> None:
    guard = access(tmp_path)
    ann = guard.book.user("ann")
    guard.require(ann, Need(topic_resource("orders"), (Action.PUB,)), "192.0.2.7")
    assert not guard.may(ann, Need(topic_resource("other"), (Action.PUB,)), "192.0.2.7")
    assert not guard.may(None, Need(topic_resource("orders"), (Action.PUB,)), "192.0.2.7")


def test_a_name_and_password_are_taken_together(tmp_path: Path) -> None:
    guard = access(tmp_path)
    assert "ann" == guard.authenticate_password("ann", SECRET).name
    texts = set()
    for name, password in (("ann", "x"), ("eve", "x"), ("eve", ""), ("old", "x"), ("ann", "")):
        with pytest.raises(Denied) as denied:
            guard.authenticate_password(name, password)
        texts.add(denied.value.text)
    assert 1 == len(texts)


# --- audit -----------------------------------------------------------------------------------------------------------


def test_each_refusal_leaves_one_line_that_names_who_where_what_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = access(tmp_path)
    with caplog.at_level(logging.DEBUG):
        refusal(guard, request(310, "ann", SECRET, b="t"))
        refusal(guard, request(26))
        refusal(guard, request(26, AccessKey="a\nforged line " + "x" * 500))
    first, second, third = [record.getMessage() for record in caplog.records]
    assert (
        "refused server=broker-a user=ann from=192.0.2.7 request=SEND_MESSAGE_V2(310) resource=Topic:t "
        "reason=User:ann has no permission to access Topic:t from 192.0.2.7, no matched policies." == first
    )
    assert "user=- from=192.0.2.7 request=GET_BROKER_CONFIG(26)" in second
    assert "\n" not in third
    assert len(third) < 600
    assert SECRET not in caplog.text


def test_a_flood_of_refusals_is_told_by_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    guard = access(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(PER_SECOND * 3):
            refusal(guard, request(26))
    assert len(caplog.records) <= PER_SECOND * 2
    assert PER_SECOND * 3 == guard.audit.refused


# --- settings --------------------------------------------------------------------------------------------------------


def test_apaches_keys_are_read() -> None:
    settings = read_settings(
        {
            "authenticationEnabled": "true",
            "initAuthenticationUser": '{"username":"root","password":"p"}',
            "innerClientAuthenticationCredentials": '{"accessKey":"k","secretKey":"s"}',
            "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
            "authenticationWhitelist": "105,apache.rocketmq.v2.QueryRouteRequest",
            "trustedProxies": "10.0.0.0/8",
        }
    )
    assert User("root", "p", UserType.SUPER) == settings.init_user
    assert settings.inner_credentials is not None
    assert ("k", "s") == (settings.inner_credentials.access_key, settings.inner_credentials.secret_key)
    assert {105} == settings.unauthenticated_codes
    assert not read_settings({}).is_on


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"authorizationEnabled": "true"}, "needs authenticationEnabled"),
        ({"authenticationProvider": "com.example.Mine"}, "Java classes"),
        ({"initAuthenticationUser": "hush-hush"}, "initAuthenticationUser"),
        ({"initAuthenticationUser": '{"username":"a"}'}, "password"),
        ({"innerClientAuthenticationCredentials": '{"accessKey":"hush-hush"}'}, "secretKey"),
        ({"authenticationWhitelist": "10;20"}, "neither"),
        ({"trustedProxies": "nowhere"}, "networks"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_without_showing_secrets(
    properties: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        read_settings(properties)
    assert "hush-hush" not in str(error.value)


def test_secrets_are_hidden_wherever_settings_are_shown() -> None:
    shown = without_secrets(
        {"initAuthenticationUser": "a", "tls.server.keyPassword": "b", "listenPort": "1", "tls.client.keyPassword": ""}
    )
    assert ["******", "******", "1", ""] == list(shown.values())
    assert is_secret("innerClientAuthenticationCredentials")
    assert not is_secret("authenticationEnabled")


def test_a_heartbeat_is_judged_by_all_its_groups_and_topics(tmp_path: Path) -> None:
    guard = access(tmp_path)
    guard.book.change_now(
        lambda accounts: accounts.with_acl(acl(("Group:g", "Sub", "Allow"), ("Topic:t", "Sub", "Allow"), user="ann"))
    )
    body = fastjson.dumps({"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "t"}]}]})
    assert guard.check(request(34, "ann", SECRET, body), "192.0.2.7")
    body = fastjson.dumps({"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "u"}]}]})
    assert "Topic:u" in refusal(guard, request(34, "ann", SECRET, body))
