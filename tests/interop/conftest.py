"""The cluster and the hands that the scenes are played with; `--target apache` proves a scene on the real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from oracle import hands
from oracle.hand import Hand, HandOf
from oracle.scene import Scene
from oracle.target import CONFIG, KINDS, Target


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--target", choices=KINDS, default="arrowmq", help="the broker that the scenes are played against")


@pytest.fixture(scope="session")
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--target", default="arrowmq"))


@pytest.fixture(scope="session")
def cluster(target_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One cluster for all scenes that do not disturb it; each scene has topics and groups of its own."""
    with Target(target_kind, tmp_path_factory.mktemp("cluster"), **CONFIG) as target:
        yield target


@pytest.fixture(scope="session")
def hand_of(cluster: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandOf]:
    """The one hand of each flavour on the shared cluster, started when it is first asked for."""
    folder = tmp_path_factory.mktemp("hands")
    started: dict[str, Hand] = {}
    with ExitStack() as stack:

        def get(flavour: str) -> Hand:
            if flavour not in started:
                started[flavour] = stack.enter_context(hands.start(flavour, cluster.namesrv, cluster.broker, folder))
            return started[flavour]

        yield get


@pytest.fixture
def another_hand(cluster: Target, tmp_path: Path) -> Iterator[HandOf]:
    """A further hand in a process of its own, which a scene may kill."""
    with ExitStack() as stack:
        yield lambda flavour: stack.enter_context(hands.start(flavour, cluster.namesrv, cluster.broker, tmp_path))


@pytest.fixture(scope="session")
def direct_hand(cluster: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hand | None]:
    """Where clients are at a proxy, administrators are at the NameServer all the same."""
    if cluster.proxy is None:
        yield None
        return
    folder = tmp_path_factory.mktemp("admin")
    with hands.start("java-5.5-json", cluster.real_namesrv, cluster.broker, folder) as hand:
        yield hand


@pytest.fixture
def admin(hand_of: HandOf, direct_hand: Hand | None) -> Hand:
    """Creates topics and asks, whichever client a scene is about."""
    return direct_hand or hand_of("java-5.5-json")


@pytest.fixture
def scene(admin: Hand, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Names, producers and consumers of one scene; whatever it started ends with it."""
    with Scene(admin, request.node.name) as stage:
        yield stage
