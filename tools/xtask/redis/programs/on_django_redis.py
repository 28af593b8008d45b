"""django-redis, as Django's cache and for its sessions: HOST PORT JOBS"""

import threading
import time

import django
from django.conf import settings

from support import begin, client, equal, raises, report, url

THREADS = 4
BACKEND = "django_redis.cache.RedisCache"
COMPRESSED = {"COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor"}
JSON = {"SERIALIZER": "django_redis.serializers.json.JSONSerializer"}


def configure():
    def cache(prefix, options):
        return {"BACKEND": BACKEND, "LOCATION": url(), "KEY_PREFIX": prefix, "OPTIONS": options}

    settings.configure(
        CACHES={
            "default": cache("plain", {}),
            "compressed": cache("compressed", COMPRESSED),
            "json": cache("json", JSON),
        },
        SESSION_ENGINE="django.contrib.sessions.backends.cache",
        SECRET_KEY="secret",
        USE_TZ=True,
    )
    django.setup()


def values(cache):
    cache.set("a", {"b": [1, 2.5, "\N{SNOWMAN}"]}, timeout=300)
    equal(cache.get("a"), {"b": [1, 2.5, "\N{SNOWMAN}"]})
    assert 290 <= cache.ttl("a") <= 300 and 290_000 <= cache.pttl("a") <= 300_000
    equal(cache.get("none", "default"), "default")
    equal(cache.ttl("none"), 0)
    equal(cache.set("a", 1, nx=True), False)
    equal(cache.set("new", 1, nx=True), True)
    equal(cache.ttl("new") in range(290, 301), True)
    equal((cache.persist("new"), cache.ttl("new")), (True, None))
    equal((cache.expire("new", 50), cache.ttl("new") in range(45, 51)), (True, True))
    equal(cache.touch("new", 600), True)
    cache.set("short", 1, timeout=1)
    cache.set_many({f"m{i}": i for i in range(50)}, timeout=60)
    equal(cache.get_many([f"m{i}" for i in range(60)]), {f"m{i}": i for i in range(50)})
    equal(cache.get_or_set("e", lambda: 5), 5)
    equal((cache.incr("m1"), cache.incr("m1", 40), cache.decr("m1")), (2, 42, 41))
    raises(ValueError, cache.incr, "none")
    equal(sorted(cache.keys("m4*")), ["m4", *(f"m4{i}" for i in range(10))])
    equal(len(list(cache.iter_keys("m*", itersize=7))), 50)
    equal(cache.delete_pattern("m*", itersize=7), 50)
    equal((cache.has_key("m1"), cache.has_key("a")), (False, True))
    equal((cache.delete("a"), cache.delete("a")), (True, False))
    time.sleep(1.1)
    equal(cache.get("short"), None)


def collections(cache):
    equal(cache.sadd("set", "a", "b", "c"), 3)
    equal((cache.smembers("set"), cache.sismember("set", "b")), ({"a", "b", "c"}, True))
    equal((cache.srem("set", "a"), cache.scard("set")), (1, 2))
    equal(cache.hset("hash", "field", {"x": 1}), 1)
    equal((cache.hlen("hash"), cache.hkeys("hash")), (1, ["field"]))
    equal((cache.hexists("hash", "no"), cache.hdel("hash", "field")), (False, 1))
    equal(cache.zadd("ranks", {"one": 1.0, "two": 2.0}), 2)
    equal(cache.zrange("ranks", 0, -1, withscores=True), [("one", 1.0), ("two", 2.0)])


def locks(cache):
    total = []

    def work():
        for _ in range(10):
            with cache.lock("lock", timeout=20, sleep=0.005):
                before = len(total)
                time.sleep(0.001)
                assert len(total) == before, "two hold the lock"
                total.append(1)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(len(total), 10 * THREADS)


def sessions():
    from django.contrib.sessions.backends import cache, cached_db  # noqa: F401

    session = cache.SessionStore()
    session["user"] = {"id": 7, "name": "\N{SNOWMAN}"}
    session.set_expiry(100)
    session.create()
    again = cache.SessionStore(session.session_key)
    equal(again["user"], {"id": 7, "name": "\N{SNOWMAN}"})
    again["visits"] = 2
    again.save()
    session_key = again.session_key
    again.cycle_key()
    assert session_key != again.session_key
    equal(cache.SessionStore(again.session_key)["visits"], 2)
    equal(cache.SessionStore(session_key).get("visits"), None)
    again.flush()
    equal(again.exists(session_key), False)


def load(cache, jobs):
    found = []

    def work(first):
        for i in range(first, jobs, THREADS):
            cache.set(f"bulk-{i}", {"number": i}, timeout=600)
            if cache.get(f"bulk-{i}") == {"number": i}:
                found.append(i)

    began = time.monotonic()
    threads = [threading.Thread(target=work, args=(first,)) for first in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    equal(sorted(found), list(range(jobs)))
    equal(cache.delete_pattern("bulk-*"), jobs)
    return seconds


def main():
    jobs = begin()
    configure()
    from django.core.cache import caches

    for name in ("default", "compressed", "json"):
        values(caches[name])
    collections(caches["default"])
    locks(caches["default"])
    sessions()
    seconds = load(caches["default"], jobs)
    caches["default"].clear()
    equal(client().dbsize(), 0)
    done = "values, patterns, zlib, JSON, sets, hashes, sorted sets, locks, sessions"
    report("django-redis", done, jobs, seconds)


if __name__ == "__main__":
    main()
