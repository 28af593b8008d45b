"""A `farcore serve` that serves a little load, so that the live page has something to show."""

import os
import pathlib
import random
import re
import socket
import subprocess
import threading

CORE = str(min(os.sched_getaffinity(0)))
FLAGS = ["--resp", "127.0.0.1:0", "--cores", CORE, "--local", "24MiB", "--far", "64MiB", "--no-huge-pages",
         "--stats-socket", "default"]
KEYS = 60_000
VALUE = b"v" * 512


def command(*parts):
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Server:
    """The server, and a client in a thread; both end with the block."""

    def __init__(self, binary, folder, *flags):
        self.binary = binary
        self.flags = flags
        self.folder = pathlib.Path(folder)
        self.stopping = threading.Event()

    def __enter__(self):
        self.process = subprocess.Popen(
            [self.binary, "serve", *FLAGS, *self.flags],
            env={**os.environ, "XDG_RUNTIME_DIR": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "serve.log").open("wb"),
            text=True,
        )
        line = self.process.stdout.readline()
        port = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert port, f"the server says {line!r}: {(self.folder / 'serve.log').read_text()}"
        self.thread = threading.Thread(target=self.load, args=(int(port[1]),), daemon=True)
        self.thread.start()
        return self

    def load(self, port):
        draw = random.Random(1)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
            while not self.stopping.is_set():
                batch = []
                for _ in range(64):
                    key = b"user:%d" % int(KEYS * draw.random() ** 3)
                    batch.append(command(b"SET", key, VALUE) if draw.random() < 0.3 else command(b"EXISTS", key))
                stream.sendall(b"".join(batch))
                answers = 0
                while answers < len(batch):
                    answers += stream.recv(65_536).count(b"\r\n")
                self.stopping.wait(0.004)

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join(10)
        self.process.terminate()
        self.process.wait(30)
        self.process.stdout.close()
