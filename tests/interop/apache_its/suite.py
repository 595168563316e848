"""Runs the selected classes on one cluster after the other, each class in a JVM of its own.

Several classes run at a time (lanes): most of what a test does is wait. Those that change brokers get a cluster for
themselves; the others share one. A test that fails unexpectedly is tried once more, alone on a fresh cluster.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from oracle import java

from apache_its.catalogue import WITH_A_CLUSTER_OF_THEIR_OWN, Selection
from apache_its.cluster import Cluster
from apache_its.expected import is_expected_to_fail
from apache_its.results import WHOLE_CLASS, Result, Results, ResultsFile, counted, read_events

SOURCES = sorted((Path(__file__).resolve().parent / "java").rglob("*.java"))
# What Mockito, and the JSON of the clients, reach into on a Java that is newer than 8.
OPEN = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.util"))
OPTIONS = (*java.QUICK, "-Xmx1g", "-XX:MaxDirectMemorySize=1g", *OPEN)


class OutOfTimeError(Exception):
    """No further class may begin in this run."""


@dataclass
class Suite:
    """`known` has the whole names of the classes. Everything is written below `folder`."""

    known: dict[str, str]
    folder: Path
    results: ResultsFile
    lanes: int
    class_timeout: float  # seconds
    deadline: float  # of time.monotonic(): no class begins after it

    def __post_init__(self) -> None:
        self._classpath = java.compiled(SOURCES, "its")
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_given_up = False

    def run(self, kind: str, selection: Selection) -> bool:
        """Everything selected that has no result yet on this kind of cluster. False: time was up before the end."""
        done = self.results.classes(kind)
        ahead = {name: tests for name, tests in selection.items() if name not in done}
        shared = {name: tests for name, tests in ahead.items() if name not in WITH_A_CLUSTER_OF_THEIR_OWN}
        alone = {name: tests for name, tests in ahead.items() if name in WITH_A_CLUSTER_OF_THEIR_OWN}
        try:
            with ExitStack() as stack:
                self._in_time()
                jobs: list[Callable[[], None]] = []
                if shared:
                    cluster = stack.enter_context(Cluster(kind, self._fresh(kind, "cluster")))
                    jobs += [self._job(cluster, name, tests) for name, tests in shared.items()]
                jobs += [self._job_alone(kind, name, tests) for name, tests in alone.items()]
                self._at_once(jobs)
            self._at_once([self._second_try(kind, *again) for again in self._failed(kind, selection)], lanes=1)
        except OutOfTimeError:
            return False
        return True

    def _in_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise OutOfTimeError

    def _at_once(self, jobs: Iterable[Callable[[], None]], lanes: int = 0) -> None:
        with ThreadPoolExecutor(lanes or self.lanes) as pool:
            running: list[Future[None]] = [pool.submit(job) for job in jobs]
            try:
                for job in running:
                    job.result()
            except OutOfTimeError:
                pass  # what has begun is brought to its end
            except BaseException:
                self._is_given_up = True
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list(self._running):
                    process.kill()
                raise
        self._in_time()

    def _job(self, cluster: Cluster, name: str, tests: tuple[str, ...]) -> Callable[[], None]:
        def job() -> None:
            self._in_time()
            self.results.add(cluster.kind, self._run_class(cluster, name, tests, name))

        return job

    def _job_alone(self, kind: str, name: str, tests: tuple[str, ...]) -> Callable[[], None]:
        def job() -> None:
            self._in_time()
            with Cluster(kind, self._fresh(kind, f"{name}-cluster")) as cluster:
                self.results.add(kind, self._run_class(cluster, name, tests, name))

        return job

    def _second_try(self, kind: str, name: str, tests: tuple[str, ...]) -> Callable[[], None]:
        def job() -> None:
            self._in_time()
            with Cluster(kind, self._fresh(kind, f"{name}-again-cluster")) as cluster:
                again = self._run_class(cluster, name, tests, f"{name}-again")
            first = self.results.of[kind]
            earlier = {test: first[test].status for test in first if test.partition("#")[0] == name}
            tried = {test: replace(one, earlier=earlier.get(test, "failed")) for test, one in again.items()}
            self.results.add(kind, tried)

        return job

    def _failed(self, kind: str, selection: Selection) -> list[tuple[str, tuple[str, ...]]]:
        """The tests, by class, that failed once and should not have."""
        failed: dict[str, tuple[str, ...]] = {}
        for test, result in self.results.of.get(kind, {}).items():
            name, _, method = test.partition("#")
            if name in selection and not (result.is_fine or result.earlier or is_expected_to_fail(test, kind)):
                failed[name] = (*failed.get(name, ()), method)
        return list(failed.items())

    def _run_class(self, cluster: Cluster, name: str, tests: tuple[str, ...], label: str) -> Results:
        folder = self._fresh(cluster.kind, label)
        events = folder / "events.jsonl"
        temporary = folder / "temporary"
        temporary.mkdir()
        command, env = java.command(
            "RunTests",
            [str(events), self.known[name], *tests],
            folder,
            classpath=self._classpath,
            options=OPTIONS,
            properties={"java.io.tmpdir": temporary, **cluster.properties()},
        )
        began = time.monotonic()
        with (folder / "out.txt").open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=folder)
            self._running.add(process)
            self._wait(process, folder)
        results = read_events(events.read_text().splitlines() if events.exists() else ())
        if not results:
            output = (folder / "out.txt").read_text(errors="replace")
            results = {f"{name}#{WHOLE_CLASS}": Result("failed", error=f"no test ran: {output[-3000:].strip()}")}
        shutil.rmtree(temporary, ignore_errors=True)
        seconds = time.monotonic() - began
        print(f"{time.strftime('%H:%M:%S')} {cluster.kind:8}{label}: {counted(results.values())}, {seconds:.0f} s")
        return results

    def _wait(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        try:
            process.wait(self.class_timeout)
        except subprocess.TimeoutExpired:
            with (folder / "threads.txt").open("wb") as threads:  # where it hangs
                subprocess.run(["jstack", str(process.pid)], stdout=threads, stderr=subprocess.STDOUT, timeout=60)
        finally:
            process.kill()
            process.wait()
            self._running.discard(process)
        if self._is_given_up:
            raise InterruptedError(f"{folder.name} did not come to its end")

    def _fresh(self, kind: str, label: str) -> Path:
        folder = self.folder / kind / label
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder
