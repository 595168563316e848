"""What a broker says it is doing: the table of GET_BROKER_RUNTIME_INFO, with the keys that Apache's tools read."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from arrowmq.broker.runtime.thread_pools import PROCESSORS, waiting_by_processor
from arrowmq.distribution import Distribution
from arrowmq.remoting.answer_times import AnswerTimes

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

VERSION_NAME = "V5_5_0"  # what CURRENT_VERSION stands for, as tools show it
# Pools as this table names them, and as the metrics do
POOLS = {"send": "send", "pull": "pull", "litePull": "lite_pull", "query": "query_message", "ack": "ack"}


def runtime_table(broker: Broker) -> dict[str, str]:
    broker.stats.gather()
    table = {
        "bootTimestamp": str(broker.boot_ms),
        "runtime": _duration(broker.clock.now_ms() - broker.boot_ms),
        "brokerVersionDesc": VERSION_NAME,
        # As Apache's: whether what a master alone does is done here; of a slave, whether it acts for its master.
        "brokerActive": "true" if broker.is_running and broker.role.does_duties else "false",
        "startAcceptSendRequestTimeStamp": str(broker.config.start_accept_send_request_time_stamp),
        "waitingPulls": str(broker.longpoll.count),
        "differingSubscriptions": str(broker.clients.differing_subscriptions),
        # Stages that a broker of one loop does not have
        "dispatchBehindBytes": "0",
        "dispatchMaxBuffer": "0",
        "pageCacheLockTimeMills": "0",
        "timerCongestNum": "0",
        **_counts(broker),
        **_log(broker),
        **_times(broker.answer_times),
        **_waiting(broker),
        **_timers(broker),
        **_pop(broker),
    }
    for report in broker.runtime_reports:
        table.update(report())
    return table


def _pop(broker: Broker) -> dict[str, str]:
    services = broker.services
    revive = services.pop_revive
    late_ms = max((revive.behind(queue.queue_id)[1] for queue in revive.log.queues), default=0)
    pulling = {group.name for group in broker.clients.consumers.values() if group.consume_type != "CONSUME_POP"}
    both = sorted(pulling & services.pop.popping_now())
    return {
        "popWaiting": str(services.pop.polling.count),
        "popInFlight": str(revive.table.in_flight),
        "popReviveLateMs": str(late_ms),
        "popAndPull": ",".join(group for group in both if not services.assignment.pops(group)),
    }


def _counts(broker: Broker) -> dict[str, str]:
    stats = broker.stats
    found, missed = stats.rates(stats.gets_found), stats.rates(stats.gets_missed)
    got = _numbers(stats.rates(stats.messages_got))
    return {
        "putTps": _numbers(stats.rates(stats.puts)),
        "getFoundTps": _numbers(found),
        "getMissTps": _numbers(missed),
        "getTotalTps": _numbers([one + other for one, other in zip(found, missed, strict=True)]),
        "getTransferredTps": got,
        "getTransferedTps": got,  # what older dashboards look for
        "putMessageTimesTotal": str(stats.puts.times),
        "putMessageFailedTimes": str(stats.failed_puts),
        "putMessageSizeTotal": str(stats.put_bytes),
        "putMessageAverageSize": str(stats.put_bytes / stats.puts.total if stats.puts.total else 0.0),
        # The messages of users: what the broker itself writes and reads, and probes of its topics, do not count.
        "msgPutTotalTodayNow": str(stats.user_puts.total),
        "msgGetTotalTodayNow": str(stats.user_gets.total),
        "msgPutTotalTodayMorning": str(stats.morning(stats.user_puts, 0)),
        "msgPutTotalYesterdayMorning": str(stats.morning(stats.user_puts, 1)),
        "msgGetTotalTodayMorning": str(stats.morning(stats.user_gets, 0)),
        "msgGetTotalYesterdayMorning": str(stats.morning(stats.user_gets, 1)),
        "timerEnqueueTps": str(stats.rates(stats.timer_entered)[0]),
        "timerDequeueTps": str(stats.rates(stats.timer_delivered)[0]),
    }


def _log(broker: Broker) -> dict[str, str]:
    store = broker.store
    ratio = f"{store.disk.usage(store.root).percent / 100:.2f}"
    return {
        "commitLogMinOffset": str(store.min_physical_offset),
        "commitLogMaxOffset": str(store.appended),
        "commitLogDiskRatio": ratio,
        f"commitLogDiskRatio_{store.config.store_path_commit_log or store.root / 'commitlog'}": ratio,
        "consumeQueueDiskRatio": ratio,
        "commitLogDirCapacity": _capacity(os.statvfs(store.root)),
        "remainHowManyDataToFlush": f"{store.appended - store.flushed_position} B",
        "earliestMessageTimeStamp": str(store.earliest_time()),
    }


def _times(times: AnswerTimes) -> dict[str, str]:
    """Of sends and pulls, from the request to its answer; pulls that waited for a message do not count."""
    puts, gets = times.of(PROCESSORS["send"]), times.of(PROCESSORS["pull"])
    return {
        "putMessageEntireTimeMax": str(puts.largest),
        "getMessageEntireTimeMax": str(gets.largest),
        "putLatency99": f"{puts.at_most(0.99):.2f}",
        "putLatency999": f"{puts.at_most(0.999):.2f}",
        "putMessageDistributeTime": _distribution(puts),
    }


def _distribution(times: Distribution) -> str:
    bounds = [0, *times.bounds]
    names = [f"[{begin}~{end}ms]" for begin, end in itertools.pairwise(bounds)] + [f"[{bounds[-1]}ms~]"]
    return " ".join(f"{name}:{count}" for name, count in zip(names, times.counts, strict=True))


def _timers(broker: Broker) -> dict[str, str]:
    timer = broker.services.timer
    return {"timerReadBehind": str(timer.behind_ms // 1000), "timerOffsetBehind": str(timer.not_entered)}


def _waiting(broker: Broker) -> dict[str, str]:
    config, waiting = broker.config, waiting_by_processor(broker.answer_times.waiting)
    table = {"EndTransactionQueueSize": str(waiting["transaction"])}
    for pool, processor in POOLS.items():
        table[f"{pool}ThreadPoolQueueSize"] = str(waiting[processor])
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"  # nothing waits to be begun
    table["sendThreadPoolQueueCapacity"] = str(config.send_thread_pool_queue_capacity)
    table["pullThreadPoolQueueCapacity"] = str(config.pull_thread_pool_queue_capacity)
    table["queryThreadPoolQueueCapacity"] = str(config.query_thread_pool_queue_capacity)
    for pool in ("ack", "litePull", "EndTransaction"):
        table[f"{pool}ThreadPoolQueueCapacity"] = str(config.pull_thread_pool_queue_capacity)
    return table


def _duration(elapsed_ms: int) -> str:
    minutes, seconds = divmod(elapsed_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _capacity(disk: os.statvfs_result) -> str:
    total, free = (blocks * disk.f_frsize / 2**30 for blocks in (disk.f_blocks, disk.f_bfree))
    return f"Total : {total:.1f} GiB, Free : {free:.1f} GiB."


def _numbers(values: list[float]) -> str:
    return " ".join(str(value) for value in values)
