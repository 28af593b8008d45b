"""Django's cache on Redis: HOST PORT CUT_PORT MODE"""

import socket
import sys

import django
from django.conf import settings


def cut(host, port):
    """Has the proxy cut all connections."""
    with socket.create_connection((host, port)) as connection:
        assert connection.recv(16) == b"cut\n"


def exercise(cache):
    """Each call of Django's cache."""
    client = cache._cache.get_client()

    def ttl(key):
        return client.ttl(cache.make_key(key))

    cache.clear()
    cache.set("a", {"b": [1, 2.5, "\N{SNOWMAN}"]}, timeout=300)
    assert cache.get("a") == {"b": [1, 2.5, "\N{SNOWMAN}"]}
    assert cache.get("none", "default") == "default"
    assert 290 <= ttl("a") <= 300
    assert cache.touch("a", 600) is True and 590 <= ttl("a") <= 600
    assert cache.touch("a", None) is True and ttl("a") == -1
    assert cache.touch("none") is False
    cache.set("forever", 1, timeout=None)
    assert ttl("forever") == -1
    cache.set("over", 1, timeout=0)
    assert cache.get("over") is None
    assert cache.add("a", 1) is False and cache.add("new", 1, timeout=10) is True
    assert cache.set_many({"c": 1, "d": 2}, timeout=60) == []
    assert cache.get_many(["c", "d", "none"]) == {"c": 1, "d": 2}
    assert 50 <= ttl("d") <= 60
    assert cache.incr("c") == 2 and cache.incr("c", 40) == 42 and cache.decr("c") == 41
    try:
        cache.incr("none")
        raise AssertionError("incr of a missing key")
    except ValueError:
        pass
    assert cache.has_key("c") is True and cache.has_key("none") is False
    assert cache.delete("c") is True and cache.delete("c") is False
    cache.delete_many(["d", "new"])
    assert cache.get_or_set("e", lambda: 5) == 5 and cache.get("e") == 5
    cache.clear()
    assert cache.get("a") is None and cache.get("e") is None


def main(host, port, cut_port, mode):
    settings.configure(
        CACHES={
            "default": {
                "BACKEND": "django.core.cache.backends.redis.RedisCache",
                "LOCATION": f"redis://{host}:{port}",
            }
        }
    )
    django.setup()
    from django.core.cache import cache

    if mode == "full":
        exercise(cache)
        cut(host, cut_port)
    assert cache.get("none") is None
    print(
        f"Django {django.__version__}: set, get, ttl, touch, add, many, incr, delete, clear, "
        "reconnect"
    )


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
