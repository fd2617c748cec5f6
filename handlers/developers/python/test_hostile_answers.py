"""What the client makes of answers that are not the service's: its own error, in time."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import unittest
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

from integrity_client import IntegrityClient, IntegrityError

_MOST_PAGES = 20


async def _walk(pages: AsyncGenerator[dict[str, Any], None]) -> None:
    n = 0
    async for _ in pages:
        n += 1
        if n == _MOST_PAGES:
            raise AssertionError("it walks on and on")


_OPERATIONS: dict[str, Callable[[IntegrityClient], Awaitable[Any]]] = {
    "read": lambda client: client.usage(),
    "write": lambda client: client.register({"version": 1}),
    "list": lambda client: _walk(client.companies()),
    "changes": lambda client: _walk(client.changes("c")),
    "signed": lambda client: client.evidence("a"),
    "many": lambda client: client.evidence_of_many(["a", "b"]),
    "log": lambda client: client.log_tile(0, 0),
}


class HostileAnswers(unittest.TestCase):  # without the debug mode of IsolatedAsyncioTestCase, which takes most of the time
    def test_every_answer_is_the_clients_own_error(self) -> None:
        asyncio.run(self._ask_all(json.loads(Path(os.environ["PEERS"]).read_bytes())["peers"]))

    async def _ask_all(self, peers: list[dict[str, Any]]) -> None:
        failures: list[str] = []
        context = ssl.create_default_context()  # each takes a while to make

        async def ask(peer: dict[str, Any], operation: str) -> None:
            timeout = 2 if peer["holds"] else 300  # not the clock may end an answer that can be judged
            try:
                async with IntegrityClient(peer["origin"], "ik_secret", timeout=timeout, ssl_context=context) as client:
                    result = await _OPERATIONS[operation](client)
                failures.append(f"{peer['name']}, {operation}: {result!r}")
            except IntegrityError as error:
                if not peer["holds"] and isinstance(error.__cause__, TimeoutError):
                    failures.append(f"{peer['name']}, {operation}: {error!r}")
            except BaseException as error:  # a cancellation, too
                failures.append(f"{peer['name']}, {operation}: {error!r}")

        tasks = [asyncio.create_task(ask(peer, name), name=f"{peer['name']}, {name}") for peer in peers for name in peer["fails"]]
        _, waiting = await asyncio.wait(tasks, timeout=900)  # for one that waits for ever, not for a slow machine
        self.assertEqual([task.get_name() for task in waiting], [])
        self.assertEqual(failures, [])
        self.assertGreater(len(peers), 100)


if __name__ == "__main__":
    unittest.main()
