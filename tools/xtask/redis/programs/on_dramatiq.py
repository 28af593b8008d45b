"""Dramatiq, with its rate limits and results: HOST PORT JOBS"""

import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend as LimitsBackend
from dramatiq.results import ResultFailure, Results
from dramatiq.results.backends import RedisBackend as ResultsBackend

from support import begin, client, equal, kill, raises, report, start, stop, url, wait_until

# A killed worker's messages return after a second, and each command looks for them.
broker = RedisBroker(url=url(), heartbeat_timeout=1000, maintenance_chance=1_000_000)
limits = LimitsBackend(url=url())
broker.add_middleware(Results(backend=ResultsBackend(url=url())))
broker.add_middleware(GroupCallbacks(limits))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def add(a, b):
    return a + b


@dramatiq.actor
def count(name):
    client().incr(f"count:{name}")


@dramatiq.actor(store_results=True, max_retries=3, min_backoff=100, max_backoff=200)
def flaky(name, failures):
    if client().incr(f"count:{name}") <= failures:
        raise ValueError(f"{name} fails")
    return name


@dramatiq.actor(store_results=True, time_limit=200_000, max_retries=0)
def slow(name, seconds):
    if client().incr(f"count:{name}") == 1:
        time.sleep(seconds)
    return "slow"


@dramatiq.actor(store_results=True, time_limit=1000, max_retries=0)
def endless():
    while True:
        time.sleep(0.01)


def counted(name):
    return int(client().get(f"count:{name}") or 0)


def worker():
    return start("-m", "dramatiq", "on_dramatiq", "--processes", "1", "--threads", "4")


def results():
    equal(add.send(2, 3).get_result(block=True, timeout=30_000), 5)
    group = dramatiq.group([add.message(i, i) for i in range(20)])
    group.add_completion_callback(count.message("completed"))
    equal(list(group.run().get_results(block=True, timeout=30_000)), [2 * i for i in range(20)])
    wait_until("the group's callback", lambda: counted("completed") == 1)
    pipeline = dramatiq.pipeline([add.message(1, 2), add.message(4), add.message(8)]).run()
    equal(pipeline.get_result(block=True, timeout=30_000), 15)
    equal(list(pipeline.get_results()), [3, 7, 15])


def failures():
    message = flaky.send("again", 2)
    wait_until("three tries", lambda: counted("again") == 3)
    message = flaky.send("never", 9)
    wait_until("four tries", lambda: counted("never") == 4)
    error = raises(ResultFailure, message.get_result, block=True, timeout=30_000)
    assert "never fails" in str(error), error
    wait_until("a dead letter", lambda: client().zcard("dramatiq:default.XQ") == 1)
    equal(client().hlen("dramatiq:default.XQ.msgs"), 1)
    raises(ResultFailure, endless.send().get_result, block=True, timeout=30_000)


def times():
    began = time.monotonic()
    message = add.send_with_options(args=(1, 1), delay=1000)
    equal(message.get_result(block=True, timeout=30_000), 2)
    assert time.monotonic() - began >= 1, "too early"


def rate_limits():
    mutex = ConcurrentRateLimiter(limits, "mutex", limit=1)
    with mutex.acquire(raise_on_failure=False) as first:
        with mutex.acquire(raise_on_failure=False) as second:
            equal((first, second), (True, False))
    with mutex.acquire(raise_on_failure=False) as again:
        equal(again, True)
    window = WindowRateLimiter(limits, "window", limit=5, window=30)
    taken = []
    for _ in range(8):
        with window.acquire(raise_on_failure=False) as acquired:
            taken.append(acquired)
    equal(taken, [True] * 5 + [False] * 3)


def killed(first):
    message = slow.send("lost", 100)
    wait_until("a start", lambda: counted("lost") == 1)
    kill(first)
    other = worker()
    equal(message.get_result(block=True, timeout=30_000), "slow")
    equal(counted("lost"), 2)
    return other


def load(jobs):
    began = time.monotonic()
    messages = [add.send(i, 1) for i in range(jobs)]
    found = [message.get_result(block=True, timeout=60_000) for message in messages]
    seconds = time.monotonic() - began
    equal(found, [i + 1 for i in range(jobs)])
    broker.join("default", timeout=10_000)
    return seconds


def main():
    jobs = begin()
    first = worker()
    results()
    failures()
    times()
    rate_limits()
    other = killed(first)
    seconds = load(jobs)
    stop(other)
    done = (
        "result, group, pipeline, retry, dead letter, time limit, delay, rate limits, killed worker"
    )
    report("dramatiq", done, jobs, seconds)


if __name__ == "__main__":
    # The workers import this file by its name: messages are of that module's actors.
    from on_dramatiq import main as run

    run()
