"""redis-py's Lock, which is a script for all but taking it: HOST PORT JOBS"""

import threading
import time

from redis.exceptions import LockError, LockNotOwnedError

from support import begin, client, equal, raises, report

THREADS = 4


def behaviours(redis):
    lock = redis.lock("lock", timeout=10)
    equal(lock.acquire(blocking=False), True)
    other = redis.lock("lock", timeout=10)
    equal((other.acquire(blocking=False), other.locked(), other.owned()), (False, True, False))
    equal(lock.owned(), True)
    began = time.monotonic()
    equal(other.acquire(blocking_timeout=0.3), False)
    assert 0.2 <= time.monotonic() - began < 5
    equal(lock.extend(5), True)
    assert 10_000 < redis.pttl("lock") <= 15_000
    equal(lock.extend(5, replace_ttl=True), True)
    assert 0 < redis.pttl("lock") <= 5_000
    equal(lock.reacquire(), True)
    assert 5_000 < redis.pttl("lock") <= 10_000
    raises(LockError, other.release)
    lock.release()
    raises(LockError, lock.release)
    equal(redis.exists("lock"), 0)
    # Who waits receives it when it is released.
    held = redis.lock("lock", timeout=10)
    held.acquire()
    timer = threading.Timer(0.3, lambda: redis.delete("lock"))
    timer.start()
    equal(other.acquire(blocking_timeout=10), True)
    raises(LockNotOwnedError, held.release)
    other.release()


def loss(redis):
    lock = redis.lock("lost", timeout=0.2)
    lock.acquire()
    time.sleep(0.3)
    equal(lock.locked(), False)
    raises(LockNotOwnedError, lock.extend, 5)
    raises(LockNotOwnedError, lock.reacquire)
    other = redis.lock("lost", timeout=10)
    equal(other.acquire(blocking=False), True)
    raises(LockNotOwnedError, lock.release)
    equal(other.owned(), True)
    other.release()


def load(redis, jobs):
    """Threads add to a counter by a read and a write, which only the lock makes one step."""
    redis.set("counter", 0)

    def work():
        own = client()
        for _ in range(jobs // THREADS):
            with own.lock("counted", timeout=60, sleep=0.0005):
                own.set("counter", int(own.get("counter")) + 1)

    began = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    equal(int(redis.get("counter")), jobs // THREADS * THREADS)
    return seconds


def main():
    jobs = begin()
    redis = client()
    behaviours(redis)
    loss(redis)
    seconds = load(redis, jobs)
    report("redis", "Lock: wait, time limit, extend, reacquire, loss, threads", jobs, seconds)


if __name__ == "__main__":
    main()
