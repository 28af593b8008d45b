"""Celery, with the server as its broker and for its results: HOST PORT JOBS"""

import tempfile
import time

from celery import Celery, chain, chord, group
from celery.exceptions import TaskRevokedError

from support import begin, client, equal, kill, raises, report, start, stop, url, wait_until

app = Celery("on_celery", broker=url(), backend=url())
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=4,
    task_default_queue="work",
    # After this many seconds another worker receives a killed worker's task.
    broker_transport_options={
        "visibility_timeout": 3,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        # A worker that is killed while it looks for such tasks leaves this lock behind.
        "unacked_mutex_expire": 2,
    },
    beat_schedule={"tick": {"task": "on_celery.count", "schedule": 1.0, "args": ("beat",)}},
    broker_connection_retry_on_startup=True,
)


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def count(name):
    return client().incr(f"count:{name}")


@app.task(bind=True, max_retries=3)
def flaky(self, name, failures):
    if client().incr(f"count:{name}") <= failures:
        raise self.retry(countdown=0.2, exc=ValueError(f"{name} fails"))
    return name


@app.task
def slow(name, seconds):
    if client().incr(f"count:{name}") == 1:
        time.sleep(seconds)
    return "slow"


def counted(name):
    return int(client().get(f"count:{name}") or 0)


def worker(*options):
    return start("-m", "celery", "-A", "on_celery", "worker", "--concurrency", "2", *options)


def results():
    equal(add.delay(2, 3).get(timeout=30), 5)
    equal(group(add.s(i, i) for i in range(20))().get(timeout=30), [2 * i for i in range(20)])
    equal(chain(add.s(1, 2), add.s(4), add.s(8))().get(timeout=30), 15)
    equal(chord(add.s(i, 1) for i in range(20))(total.s()).get(timeout=30), 210)
    equal(add.apply_async((1, 1), priority=9).get(timeout=30), 2)
    handle = add.delay(1, 1)
    equal(handle.get(timeout=30), 2)
    handle.forget()
    equal(handle.state, "PENDING")


def failures():
    equal(flaky.delay("again", 2).get(timeout=30), "again")
    equal(counted("again"), 3)
    handle = flaky.delay("never", 9)
    equal(str(raises(ValueError, handle.get, timeout=30)), "never fails")
    equal((handle.state, counted("never")), ("FAILURE", 4))


def times():
    began = time.monotonic()
    equal(add.apply_async((1, 1), countdown=1).get(timeout=30), 2)
    assert time.monotonic() - began >= 1, "too early"
    with tempfile.TemporaryDirectory() as folder:
        schedule = f"{folder}/schedule"
        beat = start("-m", "celery", "-A", "on_celery", "beat", "--schedule", schedule)
        wait_until("two runs of beat", lambda: counted("beat") >= 2)
        stop(beat)


def cancels():
    handle = count.apply_async(("cancelled",), countdown=2)
    handle.revoke()
    raises(TaskRevokedError, handle.get, timeout=30)
    running = slow.delay("stopped", 100)
    wait_until("a start", lambda: counted("stopped") == 1)
    running.revoke(terminate=True, signal="SIGKILL")
    raises(TaskRevokedError, running.get, timeout=30)
    equal(counted("cancelled"), 0)
    pong = app.control.ping(timeout=2)
    assert len(pong) == 1 and list(pong[0].values()) == [{"ok": "pong"}], pong
    inspected = app.control.inspect(timeout=2).registered()
    assert "on_celery.add" in next(iter(inspected.values())), inspected


def killed(first):
    handle = slow.delay("lost", 100)
    wait_until("a start", lambda: counted("lost") == 1)
    kill(first)
    other = worker("--loglevel", "info")
    equal(handle.get(timeout=60), "slow")
    equal(counted("lost"), 2)
    return other


def load(jobs):
    began = time.monotonic()
    with app.producer_pool.acquire(block=True) as producer:
        handles = [
            add.apply_async((i, 1), task_id=f"bulk-{i}", producer=producer) for i in range(jobs)
        ]
    finished = 0
    for handle in handles:
        handle.get(timeout=60)
        finished += 1
    seconds = time.monotonic() - began
    equal([handle.result for handle in handles], [i + 1 for i in range(jobs)])
    equal(finished, jobs)
    return seconds


def main():
    jobs = begin()
    first = worker("--loglevel", "info")
    results()
    failures()
    times()
    cancels()
    other = killed(first)
    seconds = load(jobs)
    stop(other)
    equal(client().llen("work"), 0)
    done = (
        "result, group, chain, chord, priority, retry, countdown, beat, revoke, terminate, ping, "
        "killed worker"
    )
    report("celery", done, jobs, seconds)


if __name__ == "__main__":
    main()
