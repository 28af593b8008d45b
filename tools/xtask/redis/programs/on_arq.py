"""arq: HOST PORT JOBS"""

import asyncio
import time

from arq import create_pool, cron
from arq.connections import RedisSettings
from arq.jobs import Job, JobStatus
from arq.worker import Retry, func

from support import address, begin, client, equal, kill, report, start, stop, wait_until

SETTINGS = RedisSettings(*address())


async def add(context, a, b):
    return a + b


async def attempt(context, name, failures):
    if context["job_try"] <= failures:
        raise Retry(defer=0.3)
    return context["job_try"]


async def count(context, name):
    return await context["redis"].incr(f"count:{name}")


async def fail(context):
    raise ValueError("it fails")


async def slow(context, name, seconds):
    if await context["redis"].incr(f"count:{name}") == 1:
        await asyncio.sleep(seconds)
    return "slow"


async def tick(context):
    await context["redis"].incr("count:tick")


class WorkerSettings:
    """What `arq on_arq.WorkerSettings` works on."""

    # A killed worker's job is taken over when its time limit and ten seconds have passed.
    functions = [add, attempt, count, fail, slow, func(slow, name="lost", timeout=1)]
    redis_settings = SETTINGS
    cron_jobs = [cron(tick, second=set(range(60)))]
    allow_abort_jobs = True
    max_jobs = 50
    poll_delay = 0.1
    job_timeout = 1
    health_check_interval = 1


class BulkSettings:
    functions = [add]
    redis_settings = SETTINGS
    queue_name = "bulk"
    max_jobs = 100
    poll_delay = 0.05


def counted(name):
    return int(client().get(f"count:{name}") or 0)


def worker(settings="WorkerSettings", *options):
    return start("-m", "arq", f"on_arq.{settings}", *options)


async def fails(kind, job):
    try:
        result = await job.result(timeout=30, poll_delay=0.02)
    except kind as error:
        return error
    raise AssertionError(f"{job} returned {result!r}")


async def behaviours(pool):
    job = await pool.enqueue_job("add", 2, 3)
    equal(await job.result(timeout=30, poll_delay=0.02), 5)
    info = await job.result_info()
    equal((info.function, info.args, info.success, info.job_try), ("add", (2, 3), True, 1))
    job = await pool.enqueue_job("attempt", "again", 2)
    equal(await job.result(timeout=30, poll_delay=0.02), 3)
    equal(str(await fails(ValueError, await pool.enqueue_job("fail"))), "it fails")
    began = time.monotonic()
    job = await pool.enqueue_job("add", 1, 1, _defer_by=1)
    equal(await job.status(), JobStatus.deferred)
    equal(await job.result(timeout=30, poll_delay=0.02), 2)
    assert time.monotonic() - began >= 1, "too early"
    first = await pool.enqueue_job("add", 1, 1, _job_id="unique", _defer_by=0.5)
    equal(await pool.enqueue_job("add", 1, 1, _job_id="unique"), None)
    equal(await first.result(timeout=30, poll_delay=0.02), 2)
    wait_until("two runs of cron", lambda: counted("tick") >= 2)
    waiting = await pool.enqueue_job("count", "cancelled", _defer_by=1)
    equal(await waiting.abort(timeout=30, poll_delay=0.02), True)
    equal(await waiting.status(), JobStatus.complete)
    running = await pool.enqueue_job("slow", "stopped", 100)
    equal(await running.abort(timeout=30, poll_delay=0.02), True)
    await fails(asyncio.CancelledError, running)
    equal(counted("cancelled"), 0)


async def killed(pool, first):
    job = await pool.enqueue_job("lost", "lost", 100)
    wait_until("a start", lambda: counted("lost") == 1)
    kill(first)
    equal(await job.status(), JobStatus.in_progress)
    other = worker()
    equal(await job.result(timeout=40, poll_delay=0.1), "slow")
    equal(counted("lost"), 2)
    equal((await job.result_info()).job_try, 2)
    stop(other)


async def load(pool, jobs):
    bulk = worker("BulkSettings")
    began = time.monotonic()
    for i in range(jobs):
        await pool.enqueue_job("add", i, 1, _job_id=f"bulk-{i}", _queue_name="bulk")
    found = [
        await Job(f"bulk-{i}", pool, "bulk").result(timeout=60, poll_delay=0.02)
        for i in range(jobs)
    ]
    seconds = time.monotonic() - began
    equal(found, [i + 1 for i in range(jobs)])
    equal(client().zcard("bulk"), 0)
    stop(bulk)
    return seconds


async def main():
    jobs = begin()
    first = worker()
    pool = await create_pool(SETTINGS)
    await behaviours(pool)
    await killed(pool, first)
    seconds = await load(pool, jobs)
    await pool.aclose()
    done = "result, retry, failure, delay, unique, cron, cancel, abort, killed worker"
    report("arq", done, jobs, seconds)


if __name__ == "__main__":
    asyncio.run(main())
