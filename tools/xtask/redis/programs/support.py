"""What the drivers in Python share. A driver receives HOST PORT JOBS; it deletes the server's data.

A driver's file is also the module that its workers import: they find the server in `ADDRESS`.
"""

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import redis

ADDRESS = "PROGRAM_SERVER"
FOLDER = Path(__file__).parent

_running = []


def address():
    """Host and port: of the driver's arguments, or of a worker's environment."""
    if ADDRESS not in os.environ:
        os.environ[ADDRESS] = f"{sys.argv[1]}:{sys.argv[2]}"
    host, port = os.environ[ADDRESS].rsplit(":", 1)
    return host, int(port)


def url():
    host, port = address()
    return f"redis://{host}:{port}/0"


def client(**options):
    host, port = address()
    return redis.Redis(host=host, port=port, **options)


def begin():
    """Deletes all data, and returns how many jobs are to run at once."""
    client().flushall()
    return int(sys.argv[3])


def start(*command):
    """Starts a worker in the folder of the drivers; it ends with the driver."""
    output = tempfile.NamedTemporaryFile("w+", prefix="program-", suffix=".log")
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=FOLDER,
        env={**os.environ, "PYTHONPATH": str(FOLDER), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )
    process.output = output
    _running.append(process)
    return process


def stop(process):
    """Ends a worker as an operator does, with SIGTERM."""
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=20)


def kill(process):
    """Kills a worker and its children, so that none of them can tell the server."""
    processes = [process.pid]
    for parent in processes:
        os.kill(parent, signal.SIGSTOP)
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            processes += map(int, children.read_text().split())
    for each in processes:
        os.kill(each, signal.SIGKILL)
    process.wait()


@atexit.register
def _end():
    for process in _running:
        if process.poll() is None:
            kill(process)


def wait_until(what, condition, limit=30):
    """Waits until `condition` returns something true, and returns it."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    for process in _running:
        process.output.seek(0)
        sys.stderr.write(process.output.read()[-5000:])
    raise AssertionError(f"not within {limit} s: {what}")


def equal(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


def raises(kind, function, *arguments, **options):
    """Expects an exception of this kind, and returns it."""
    try:
        result = function(*arguments, **options)
    except kind as error:
        return error
    raise AssertionError(f"{function} returned {result!r}, not {kind}")


def report(package, done, jobs, seconds):
    """Prints the driver's line."""
    print(f"{package} {version(package)}: {done}; {jobs} jobs, {jobs / seconds:.0f} jobs/s")
