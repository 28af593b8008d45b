"""`limits` with all its strategies, and Flask-Limiter: HOST PORT JOBS"""

import asyncio
import threading
import time
from importlib.metadata import version

import limits.aio.storage
import limits.aio.strategies
from flask import Flask
from flask_limiter import Limiter
from limits import RateLimitItemPerHour, RateLimitItemPerSecond, strategies
from limits.storage import storage_from_string

from support import begin, equal, report, url

STRATEGIES = {
    "fixed-window": strategies.FixedWindowRateLimiter,
    "moving-window": strategies.MovingWindowRateLimiter,
    "sliding-window-counter": strategies.SlidingWindowCounterRateLimiter,
}
THREADS = 4


def one(storage, name):
    """What a strategy lets through, and what it tells about its window."""
    limiter = STRATEGIES[name](storage)
    limit = RateLimitItemPerHour(10)
    equal([limiter.hit(limit, name, "ann") for _ in range(12)], [True] * 10 + [False] * 2)
    equal(limiter.test(limit, name, "ann"), False)
    equal(limiter.test(limit, name, "bob"), True)
    equal(limiter.hit(limit, name, "bob", cost=7), True)
    equal(limiter.hit(limit, name, "bob", cost=7), False)
    equal(limiter.get_window_stats(limit, name, "ann").remaining, 0)
    stats = limiter.get_window_stats(limit, name, "cleo")
    equal(stats.remaining, 10)
    limiter.clear(limit, name, "ann")
    equal(limiter.hit(limit, name, "ann"), True)
    equal(limiter.get_window_stats(limit, name, "ann").remaining, 9)


def window_passes(storage, name):
    limiter = STRATEGIES[name](storage)
    limit = RateLimitItemPerSecond(3)
    # The window of the clock's whole seconds, so that all hits lie in one.
    time.sleep(1.05 - time.time() % 1)
    equal([limiter.hit(limit, name) for _ in range(4)], [True, True, True, False])
    reset = limiter.get_window_stats(limit, name).reset_time
    assert 0 < reset - time.time() <= 1.1, reset
    time.sleep(2)
    equal(limiter.hit(limit, name), True)


def threads(storage, name, jobs):
    """Many threads together are let through as often as the limit says, and no more."""
    limit = RateLimitItemPerHour(jobs // 2)
    passed = []

    def hit(count):
        limiter = STRATEGIES[name](storage)
        passed.append(sum(limiter.hit(limit, name, "threads") for _ in range(count)))

    began = time.monotonic()
    running = [threading.Thread(target=hit, args=(jobs // THREADS,)) for _ in range(THREADS)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    equal(sum(passed), jobs // 2)
    return time.monotonic() - began


async def in_coroutines():
    storage = limits.aio.storage.RedisStorage(f"async+{url()}", implementation="redispy")
    for limiter in (
        limits.aio.strategies.FixedWindowRateLimiter(storage),
        limits.aio.strategies.MovingWindowRateLimiter(storage),
        limits.aio.strategies.SlidingWindowCounterRateLimiter(storage),
    ):
        limit = RateLimitItemPerHour(5)
        name = type(limiter).__name__
        found = await asyncio.gather(*(limiter.hit(limit, name) for _ in range(9)))
        equal(sum(found), 5)


def flask(strategy):
    app = Flask("limited")
    limiter = Limiter(
        lambda: "client",
        app=app,
        storage_uri=url(),
        strategy=strategy,
        headers_enabled=True,
        key_prefix=strategy,
    )

    @app.route("/")
    @limiter.limit("5 per hour")
    def root():
        return "ok"

    with app.test_client() as client:
        answers = [client.get("/") for _ in range(7)]
        equal([answer.status_code for answer in answers], [200] * 5 + [429] * 2)
        left = [answer.headers["X-RateLimit-Remaining"] for answer in answers]
        equal(left, ["4", "3", "2", "1", "0", "0", "0"])
        limiter.reset()
        equal(client.get("/").status_code, 200)


def main():
    jobs = begin() // THREADS * THREADS
    storage = storage_from_string(url())
    equal(storage.check(), True)
    seconds = 0
    for name in STRATEGIES:
        one(storage, name)
        window_passes(storage, name)
        seconds += threads(storage, name, jobs)
        flask(name)
    asyncio.run(in_coroutines())
    # A script that looks for keys by a pattern.
    equal(storage.reset() > 0, True)
    equal(storage.reset(), 0)
    done = (
        f"{', '.join(STRATEGIES)}, cost, clear, reset, threads, asyncio, "
        f"Flask-Limiter {version('flask-limiter')}"
    )
    report("limits", done, jobs * len(STRATEGIES), seconds)


if __name__ == "__main__":
    main()
