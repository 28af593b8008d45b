"""Huey: HOST PORT JOBS"""

import time

from huey import PriorityRedisHuey, RedisHuey
from huey.exceptions import TaskException, TaskLockedException

from support import address, begin, client, equal, kill, raises, report, start, stop, wait_until

host, port = address()
huey = RedisHuey("plain", host=host, port=port)
ordered = PriorityRedisHuey("ordered", host=host, port=port)


@huey.task()
def add(a, b):
    return a + b


@huey.task()
def count(name):
    return client().incr(f"count:{name}")


@huey.task(retries=2, retry_delay=1)
def flaky(name, failures):
    if client().incr(f"count:{name}") <= failures:
        raise ValueError(f"{name} fails")
    return name


@huey.task()
def slow(name, seconds):
    client().incr(f"count:{name}")
    time.sleep(seconds)
    return "slow"


# Huey looks for periodic tasks once a minute, and first when its consumer starts.
@huey.periodic_task(lambda now: True)
def periodic():
    client().incr("count:periodic")


@ordered.task()
def note(name):
    client().rpush("order", name)
    return name


def counted(name):
    return int(client().get(f"count:{name}") or 0)


def consumer(which, *options):
    command = ("-m", "huey.bin.huey_consumer", f"on_huey.{which}", "--scheduler-interval", "1")
    return start(*command, *options)


def results():
    equal(add(2, 3)(blocking=True, timeout=30), 5)
    equal(add.map([(i, i) for i in range(20)]).get(blocking=True), [2 * i for i in range(20)])
    pipeline = add.s(1, 2).then(add, 4).then(add, 8)
    equal(huey.enqueue(pipeline).get(blocking=True, timeout=30), [3, 7, 15])


def failures():
    handle = flaky("again", 2)

    def result():
        # Each failed try leaves its error as the result, until the next one ends.
        try:
            return huey.result(handle.id, preserve=True)
        except TaskException:
            return None

    equal(wait_until("the third try", result), "again")
    equal(counted("again"), 3)
    handle = flaky("never", 9)
    wait_until("all tries", lambda: counted("never") == 3)
    error = raises(TaskException, handle.get, blocking=True, timeout=30)
    assert "never fails" in str(error), error


def times():
    wait_until("the first periodic task", lambda: counted("periodic") == 1)
    began = time.monotonic()
    handle = add.schedule((1, 1), delay=2)
    equal(handle(blocking=True, timeout=30), 2)
    # Huey counts whole seconds.
    assert time.monotonic() - began >= 1, "too early"


def cancels():
    handle = count.schedule(("cancelled",), delay=1)
    handle.revoke()
    assert handle.is_revoked()
    count.revoke()
    count("paused")
    equal(add(1, 1)(blocking=True, timeout=30), 2)
    assert count.is_revoked()
    count.restore()
    equal(count("paused")(blocking=True, timeout=30), 1)
    wait_until("the cancelled task to be dropped", lambda: huey.scheduled_count() == 0)
    equal(add(1, 1)(blocking=True, timeout=30), 2)
    equal(counted("cancelled"), 0)


def locks_and_limits():
    with huey.lock_task("one"):
        assert huey.is_locked("one")
        raises(TaskLockedException, huey.lock_task("one").__enter__)
    assert not huey.is_locked("one")


def killed(first):
    """Huey gives a killed consumer's task to no other; the rest of the queue waits for one."""
    slow("lost", 100)
    wait_until("a start", lambda: counted("lost") == 1)
    kill(first)
    handle = add(20, 3)
    equal(huey.pending_count(), 1)
    other = consumer("huey", "--workers", "2")
    equal(handle(blocking=True, timeout=30), 23)
    equal(counted("lost"), 1)
    return other


def priorities():
    names = [("low", 1), ("high", 9), ("none", None), ("middle", 5)]
    handles = [ordered.enqueue(note.s(name, priority=priority)) for name, priority in names]
    worker = consumer("ordered", "--workers", "1")
    for handle in handles:
        handle.get(blocking=True, timeout=30)
    equal(client().lrange("order", 0, -1), [b"high", b"middle", b"low", b"none"])
    stop(worker)


def load(jobs):
    began = time.monotonic()
    handles = [add(i, 1) for i in range(jobs)]
    found = [handle.get(blocking=True, timeout=60) for handle in handles]
    seconds = time.monotonic() - began
    equal(found, [i + 1 for i in range(jobs)])
    equal((huey.pending_count(), huey.result_count()), (0, 0))
    return seconds


def main():
    jobs = begin()
    first = consumer("huey", "--workers", "2")
    results()
    times()
    failures()
    cancels()
    locks_and_limits()
    other = killed(first)
    huey.flush()
    seconds = load(jobs)
    stop(other)
    priorities()
    done = (
        "result, map, pipeline, retry, delay, periodic, revoke, lock, priority, consumer replaced"
    )
    report("huey", done, jobs, seconds)


if __name__ == "__main__":
    # The consumers import this file by its name: tasks are of that module.
    from on_huey import main as run

    run()
