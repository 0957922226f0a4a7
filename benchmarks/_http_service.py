"""A service over HTTP with a best concurrency, in a process of its own: ``python -m benchmarks._http_service``.

Up to that many requests at a time take 200 ms each; more take longer than in proportion, so that the service as a
whole gives less. It prints its port, and ends when its input does. Paths: ``/best/N`` sets the best concurrency,
``/sleep/S`` how long an answer takes; any other is answered with itself. ``/fail/…`` is answered with an error the
first time, ``/hang/…`` not at all the first time.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import threading
from typing import Any

LOSS = 0.5
"""How fast the whole falls beyond the best concurrency."""


class Service:
    def __init__(self) -> None:
        self.best = 8
        self.seconds = 0.2
        self.under_way = 0
        self.seen: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                path = line.split()[1].decode()
                while (await reader.readline()).strip():
                    pass
                status, body = await self.answer(path)
                head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body.encode())
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str) -> tuple[int, str]:
        _, what, number = f"{path}/".split("/")[:3]
        if what == "best":
            self.best = int(number)
            return 200, path
        if what == "sleep":
            self.seconds = float(number)
            return 200, path
        is_first = path not in self.seen
        if what in ("fail", "hang"):
            self.seen.add(path)
        self.under_way += 1
        try:
            crowd = max(1.0, self.under_way / self.best)
            await asyncio.sleep(3600 if what == "hang" and is_first else self.seconds * crowd ** (1 + LOSS))
        finally:
            self.under_way -= 1
        return (503, "busy") if what == "fail" and is_first else (200, path)


async def main() -> None:
    server = await asyncio.start_server(Service().serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.read)
    os._exit(0)  # answers that are under way are of no use to anybody


class RunningService:
    """The service, from the process that uses it."""

    def __enter__(self) -> RunningService:
        command = [sys.executable, "-m", "benchmarks._http_service"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self._connections = threading.local()
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def get(self, path: str) -> str:
        """The answer; each thread has a connection of its own."""
        return get(self.port, path, self._connections)


def get(port: int, path: str, connections: Any) -> str:
    """The answer to a request, over the connection of this thread."""
    connection = getattr(connections, "connection", None)
    if connection is None:
        connection = connections.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode()
    except Exception:
        connection.close()
        raise
    if answer.status != 200:
        raise ConnectionError(f"{answer.status} {body}")
    return body


if __name__ == "__main__":
    asyncio.run(main())
