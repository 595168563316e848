"""Which entry of a user's policies decides."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules import acl, info

from arrowmq.auth.errors import AccountError
from arrowmq.auth.policies import Acl, Decision, Entry, PolicyType, parse_acl
from arrowmq.auth.resources import Action, Pattern, Resource, ResourceType, parse_resource, topic_resource
from arrowmq.auth.sources import parse_source
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import AclInfo


def decision(acl: Acl, key: str, action: Action, source: str = "10.0.0.1") -> str:
    match = acl.best_match(parse_resource(key), (action,), source)
    return "none" if match is None else match.entry.decision.value


@pytest.mark.parametrize(
    ("entries", "asked", "action", "expected"),
    [
        ([("Topic:a", "Pub", "Allow")], "Topic:a", Action.PUB, "Allow"),
        ([("Topic:a", "Pub", "Allow")], "Topic:a", Action.SUB, "none"),
        ([("Topic:a", "Pub", "Allow")], "Topic:ab", Action.PUB, "none"),
        ([("Topic:a", "Pub", "Allow")], "Group:a", Action.PUB, "none"),
        ([("Topic:a*", "All", "Allow")], "Topic:ab", Action.DELETE, "Allow"),
        ([("*", "All", "Allow")], "Cluster:c", Action.UPDATE, "Allow"),
        ([("*", "All", "Allow"), ("Topic:*", "All", "Deny")], "Topic:a", Action.PUB, "Deny"),
        ([("Topic:*", "All", "Deny"), ("Topic:a*", "All", "Allow")], "Topic:ab", Action.PUB, "Allow"),
        ([("Topic:a*", "All", "Allow"), ("Topic:ab*", "All", "Deny")], "Topic:abc", Action.PUB, "Deny"),
        ([("Topic:ab*", "All", "Deny"), ("Topic:abc", "All", "Allow")], "Topic:abc", Action.PUB, "Allow"),
        ([("Topic:abc", "Sub", "Allow"), ("Topic:ab*", "Pub", "Deny")], "Topic:abc", Action.PUB, "Deny"),
        ([("Topic:a", "Pub", "Deny"), ("Topic:a", "Pub", "Allow")], "Topic:a", Action.PUB, "Allow"),
    ],
)
def test_the_closest_entry_decides(entries: list[tuple[str, ...]], asked: str, action: Action, expected: str) -> None:
    assert expected == decision(acl(*entries), asked, action)


def test_a_default_policy_counts_only_where_no_custom_entry_matches() -> None:
    both = acl(("Topic:*", "Pub", "Deny")).merged(acl(("Topic:a", "Pub,Sub", "Allow"), policy="Default"))
    assert "Deny" == decision(both, "Topic:a", Action.PUB)
    assert "Allow" == decision(both, "Topic:a", Action.SUB)


def test_sources_are_addresses_and_networks_of_either_kind() -> None:
    rule = acl(("Topic:a", "Pub", "Allow", "10.0.0.7,192.0.2.0/24,2001:db8::/32"))
    inside = ("10.0.0.7", "192.0.2.200", "2001:db8::1", "::ffff:10.0.0.7", "[2001:db8::1]")
    outside = ("10.0.0.8", "192.0.3.1", "2001:db9::1", "", "nonsense")
    assert ["Allow"] * 5 == [decision(rule, "Topic:a", Action.PUB, source) for source in inside]
    assert ["none"] * 5 == [decision(rule, "Topic:a", Action.PUB, source) for source in outside]


def test_a_request_that_names_nothing_is_met_by_rules_for_everything_only() -> None:
    nothing = topic_resource(None)
    assert acl(("Topic:null", "Pub", "Allow")).best_match(nothing, (Action.PUB,), "") is None
    assert acl(("Topic:n*", "Pub", "Allow")).best_match(nothing, (Action.PUB,), "") is None
    assert acl(("Topic:*", "Pub", "Allow")).best_match(nothing, (Action.PUB,), "") is not None


def test_rights_for_the_same_resource_replace_the_old_ones_and_others_stay() -> None:
    merged = acl(("Topic:a", "Pub", "Allow"), ("Topic:b", "Pub", "Allow")).merged(acl(("Topic:a", "Sub", "Deny")))
    assert ["Deny Sub on Topic:a", "Allow Pub on Topic:b"] == [e.text for e in merged.entries(PolicyType.CUSTOM)]
    left = merged.without(PolicyType.CUSTOM, parse_resource("Topic:a"))
    assert ["Allow Pub on Topic:b"] == [entry.text for entry in left.entries(PolicyType.CUSTOM)]
    assert merged == merged.without(PolicyType.DEFAULT, parse_resource("Topic:a"))
    assert not left.without(PolicyType.CUSTOM, parse_resource("Topic:b")).policies


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (("", "Pub", "Allow"), "resource is null"),
        (("Nothing:a", "Pub", "Allow"), "resource type is null"),
        (("Namespace:a", "Pub", "Allow"), "resource type is null"),
        (("Topic:a*b*", "Pub", "Allow"), "only the end"),
        (("Topic:a*b", "Pub", "Allow"), "only the end"),
        (("Topic:a\nb", "Pub", "Allow"), "printable"),
        (("Topic:" + "a" * 300, "Pub", "Allow"), "at most"),
        (("Topic:a", "Any", "Allow"), "can not be Any"),
        (("Topic:a", "Publish", "Allow"), "no action"),
        (("Topic:a", "Pub", "Maybe"), "decision is null or illegal"),
        (("Topic:a", "Pub", "Allow", "10.0.0.300"), "source ip is invalid"),
        (("Topic:a", "Pub", "Allow", "10.0.0.0/33"), "source ip is invalid"),
        (("Topic:a", "Pub", "Allow", " "), "source ip is empty"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_with_a_sentence(entry: tuple[str, ...], words: str) -> None:
    with pytest.raises(AccountError, match=words):
        acl(entry)


def test_rights_need_a_subject_and_at_least_one_entry() -> None:
    with pytest.raises(AccountError, match="User:NAME"):
        parse_acl(info(("Topic:a", "Pub", "Allow"), subject="Role:u"))
    with pytest.raises(AccountError, match="entries is empty"):
        parse_acl(info())
    with pytest.raises(AccountError, match="policies is empty"):
        parse_acl(AclInfo(subject="User:u"))
    assert "v" == parse_acl(info(("Topic:a", "Pub", "Allow"), subject=None), "User:v").user


def test_rights_survive_the_way_to_their_text_and_back() -> None:
    rules = acl(("*", "All", "Deny"), ("Topic:a*", "Pub,Sub", "Allow", "10.0.0.0/8"), ("Group:*", "Sub", "Allow"))
    assert rules == parse_acl(fastjson.loads(fastjson.dumps(rules.info()), type=AclInfo))


# --- beside Apache's way of sorting -------------------------------------------------------------------------------

_names = st.sampled_from(["", "a", "ab", "abc", "b"])
_resources = st.one_of(
    st.just(parse_resource("*")),
    st.builds(
        Resource,
        st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER]),
        _names,
        st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED]),
    ),
    st.builds(Resource, st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]), st.none(), st.just(Pattern.ANY)),
)
_sources = st.sampled_from([(), (parse_source("10.0.0.0/8"),), (parse_source("10.0.0.1"),)])
_actions = st.lists(st.sampled_from(list(Action)), min_size=1, max_size=3).map(tuple)
_entries = st.builds(Entry, _resources, _actions, _sources, st.sampled_from(list(Decision)))


def _compare(one: Entry, other: Entry) -> int:
    """Pairwise, in words of its own: the closer one first, then ALLOW."""
    if one.resource.type is not other.resource.type:
        if ResourceType.ANY in (one.resource.type, other.resource.type):
            return 1 if one.resource.type is ResourceType.ANY else -1
    elif one.resource.pattern is other.resource.pattern:
        if one.resource.pattern is Pattern.PREFIXED:
            lengths = len(other.resource.name or "") - len(one.resource.name or "")
            if lengths:
                return lengths
    else:
        order = [Pattern.LITERAL, Pattern.PREFIXED, Pattern.ANY]
        return order.index(one.resource.pattern) - order.index(other.resource.pattern)
    if one.decision is Decision.DENY:
        return 1
    return -1 if other.decision is Decision.DENY else 0


@given(st.lists(_entries, max_size=8), _names, _actions, st.sampled_from(["10.0.0.1", "10.9.9.9", "192.0.2.1"]))
def test_the_decision_is_that_of_the_first_in_apaches_order(
    entries: list[Entry], name: str, actions: tuple[Action, ...], source: str
) -> None:
    asked = topic_resource(name)
    matching = [entry for entry in entries if entry.matches(asked, actions, source)]
    expected = sorted(matching, key=functools.cmp_to_key(_compare))[0].decision if matching else None
    found = Acl("u", ((PolicyType.CUSTOM, tuple(entries)),)).best_match(asked, actions, source)
    assert expected == (None if found is None else found.entry.decision)


@given(st.text(max_size=40))
def test_any_text_is_a_resource_or_a_clear_refusal(text: str) -> None:
    try:
        resource = parse_resource(text)
    except AccountError:
        return
    assert resource == parse_resource(resource.key)
