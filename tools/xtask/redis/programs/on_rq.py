"""RQ: HOST PORT JOBS"""

import time
from datetime import timedelta

import rq.cron
from rq import Queue, Repeat, Retry
from rq.command import send_stop_job_command
from rq.job import Job, JobStatus
from rq.registry import (
    CanceledJobRegistry,
    FailedJobRegistry,
    FinishedJobRegistry,
    ScheduledJobRegistry,
    StartedJobRegistry,
)

from support import address, begin, client, equal, kill, report, start, stop, url, wait_until


def add(a, b):
    return a + b


def count(name):
    return client().incr(f"count:{name}")


def flaky(name, failures):
    if count(name) <= failures:
        raise ValueError(f"{name} fails")
    return name


def slow(name, seconds):
    if count(name) == 1:
        time.sleep(seconds)
    return "slow"


def counted(name):
    return int(client().get(f"count:{name}") or 0)


rq.cron.register(count, queue_name="default", args=("cron",), interval=1)


def worker(*options):
    return start("-m", "rq.cli", "worker", "--url", url(), *options)


def returned(job, limit=30):
    """What a job returned, as a new look at the server shows it."""

    def look():
        fetched = Job.fetch(job.id, connection=client())
        return fetched if fetched.is_finished or fetched.is_failed else None

    fetched = wait_until(f"{job.func_name} ends", look, limit)
    assert fetched.is_finished, fetched.latest_result().exc_string
    return fetched.return_value()


def results(queue):
    job = queue.enqueue(add, 2, 3)
    equal(returned(job), 5)
    equal(job.latest_result().type.name, "SUCCESSFUL")
    first = queue.enqueue(slow, "first", 0.3)
    second = queue.enqueue(count, "dependent", depends_on=first)
    equal(second.get_status(), JobStatus.DEFERRED)
    equal(returned(second), 1)
    assert second.id in FinishedJobRegistry(queue=queue).get_job_ids()


def failures(queue):
    job = queue.enqueue(flaky, "again", 2, retry=Retry(max=3, interval=[0, 1]))
    equal(returned(job), "again")
    equal(counted("again"), 3)
    job = queue.enqueue(flaky, "never", 9)
    wait_until("a failure", lambda: job.get_status() == JobStatus.FAILED)
    assert "never fails" in job.latest_result().exc_string
    registry = FailedJobRegistry(queue=queue)
    equal(registry.get_job_ids(), [job.id])
    client().set("count:never", 9)
    registry.requeue(job.id)
    equal(returned(job), "never")


def times(queue):
    began = time.monotonic()
    # RQ counts whole seconds.
    job = queue.enqueue_in(timedelta(seconds=2), add, 1, 1)
    equal(ScheduledJobRegistry(queue=queue).get_job_ids(), [job.id])
    equal(returned(job), 2)
    assert time.monotonic() - began >= 1, "too early"
    queue.enqueue(count, "repeated", repeat=Repeat(times=2, interval=1))
    wait_until("three runs", lambda: counted("repeated") == 3)
    host, port = address()
    cron = start("-m", "rq.cli", "cron", "--url", f"redis://{host}:{port}/0", "on_rq.py")
    wait_until("two runs of cron", lambda: counted("cron") >= 2)
    stop(cron)


def cancels(queue, blocker):
    running = queue.enqueue(slow, "stopped", 100)
    wait_until("a start", lambda: counted("stopped") == 1)
    waiting = queue.enqueue(count, "cancelled")
    waiting.cancel()
    equal(CanceledJobRegistry(queue=queue).get_job_ids(), [waiting.id])
    send_stop_job_command(client(), running.id)
    wait_until("a stop", lambda: running.get_status() == JobStatus.STOPPED)
    equal(returned(queue.enqueue(add, 3, 4)), 7)
    equal(counted("cancelled"), 0)
    # A worker that is killed: RQ finds the job by its lapsed heartbeat, here at once.
    lost = queue.enqueue(slow, "lost", 100, retry=Retry(max=1))
    wait_until("a start", lambda: counted("lost") == 1)
    kill(blocker)
    registry = StartedJobRegistry(queue=queue)
    equal(registry.get_job_ids(), [lost.id])
    registry.cleanup(timestamp=time.time() + 1000)
    equal(lost.get_status(), JobStatus.QUEUED)
    other = worker("default")
    equal(returned(lost), "slow")
    equal(counted("lost"), 2)
    stop(other)


def load(jobs):
    queue = Queue("bulk", connection=client())
    began = time.monotonic()
    for first in range(0, jobs, 500):
        some = range(first, min(first + 500, jobs))
        queue.enqueue_many([Queue.prepare_data(add, (i, 1), job_id=f"bulk-{i}") for i in some])
    bulk = worker("--worker-class", "rq.SimpleWorker", "--burst", "bulk")
    registry = FinishedJobRegistry("bulk", connection=client())
    wait_until("all jobs", lambda: registry.get_job_count() == jobs, 600)
    seconds = time.monotonic() - began
    equal(len(queue), 0)
    equal(bulk.wait(20), 0)
    for i in range(0, jobs, max(1, jobs // 100)):
        equal(Job.fetch(f"bulk-{i}", connection=client()).return_value(), i + 1)
    return seconds


def main():
    jobs = begin()
    queue = Queue(connection=client())
    first = worker("--with-scheduler", "default")
    results(queue)
    failures(queue)
    times(queue)
    cancels(queue, first)
    seconds = load(jobs)
    done = "result, dependency, retry, requeue, delay, repeat, cron, cancel, stop, killed worker"
    report("rq", done, jobs, seconds)


if __name__ == "__main__":
    from on_rq import main as run

    run()
