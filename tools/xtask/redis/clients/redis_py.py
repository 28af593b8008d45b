"""redis-py: HOST PORT CUT_PORT MODE"""

import socket
import sys

import redis

COUNT = 1000


def cut(host, port):
    """Has the proxy cut all connections."""
    with socket.create_connection((host, port)) as connection:
        assert connection.recv(16) == b"cut\n"


def main(host, port, cut_port, mode):
    client = redis.Redis(host=host, port=port)
    assert client.ping() is True
    if mode == "full":
        value = b"\x00\r\n\xff" * 100
        assert client.set("farcore:py", value) is True
        assert client.get("farcore:py") == value
        pipeline = client.pipeline(transaction=False)
        for i in range(COUNT):
            pipeline.set(f"farcore:py:{i}", i)
            pipeline.get(f"farcore:py:{i}")
        assert pipeline.execute() == [
            part for i in range(COUNT) for part in (True, str(i).encode())
        ]
        cut(host, cut_port)
        assert client.get("farcore:py:999") == b"999"
        for protocol in (2, 3):
            other = redis.Redis(host=host, port=port, protocol=protocol)
            assert other.hset("farcore:py:hash", mapping={"a": 1}) in (0, 1)
            assert other.hgetall("farcore:py:hash") == {b"a": b"1"}
            other.close()
    client.close()
    print(
        f"redis-py {redis.__version__}: connect, set, get, pipeline of {2 * COUNT}, "
        "reconnect, RESP2 and RESP3"
    )


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
