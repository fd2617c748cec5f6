"""The webhook receiver's functions and its server, without the service."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import sqlite3
import tempfile
import threading
import time
import unittest
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from integrity_webhook import TEST_COMPANY, BadEvent, BadSignature, check_signature, note_company, open_database, parse_event, receive, serve

SECRET = "whsec_one"
EVENT = {
    "id": "evt_01jd4gq5k2f8m9x3v7w6t5r4e1", "occurredAt": "2026-11-20T12:00:00Z", "publicId": "a" * 26, "companyReference": "c-1",
    "source": "erp", "documentReference": "d-1", "documentVersion": 2, "recordStatus": "current", "version": 1,
}
BODY = json.dumps(EVENT).encode()
NOW = 1_800_000_000


def sign(body: bytes, at: int = NOW, *secrets: str) -> str:
    fields = [f"t={at}"]
    for secret in secrets or (SECRET,):
        fields.append("v1=" + hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest())
    return ",".join(fields)


class Signatures(unittest.TestCase):
    def test_good(self) -> None:
        for header, secrets in (
            (sign(BODY), [SECRET]), (sign(BODY, NOW - 300), [SECRET]), (sign(BODY, NOW + 300), [SECRET]),
            (sign(BODY, NOW, "whsec_new", SECRET), [SECRET]), (sign(BODY, NOW, SECRET, "whsec_old"), ["whsec_other", SECRET]),
            (sign(BODY) + ",v2=abc", [SECRET]),
        ):
            check_signature(header, BODY, secrets, NOW)

    def test_bad(self) -> None:
        good = sign(BODY)
        for name, header, body in (
            ("nothing", "", BODY), ("changed body", good, BODY + b" "), ("too old", sign(BODY, NOW - 301), BODY), ("too new", sign(BODY, NOW + 301), BODY),
            ("another secret", sign(BODY, NOW, "whsec_two"), BODY), ("another time", good.replace(f"t={NOW}", f"t={NOW - 1}"), BODY),
            ("two times", f"t={NOW}," + good, BODY), ("no time", good.partition(",")[2], BODY), ("no v1", f"t={NOW}", BODY),
            ("another scheme", good.replace("v1=", "v0="), BODY), ("upper case", good[:14] + good[14:].replace("v1=", "v1=").upper(), BODY),
            ("not a number", good.replace(f"t={NOW}", "t=now"), BODY), ("other digits", good.replace("t=1", "t=١"), BODY), ("short", good[:-1], BODY),
        ):
            with self.subTest(name), self.assertRaises(BadSignature):
                check_signature(header, body, [SECRET], NOW)
        with self.assertRaises(BadSignature):
            check_signature(good, BODY, [], NOW)


    def test_published_vectors(self) -> None:
        vectors = json.loads((Path(os.environ["SCHEMAS"]) / "webhook-vectors.json").read_bytes())["vectors"]
        self.assertGreater(len(vectors), 10)
        for v in vectors:
            with self.subTest(v["name"]):
                try:
                    check_signature(v["headers"]["Service-Signature"], v["body"].encode(), [v["secret"]], v["now"])
                    self.assertTrue(v["valid"])
                except BadSignature:
                    self.assertFalse(v["valid"])


class Tests(unittest.TestCase):
    def test_a_test_delivery_has_no_effect(self) -> None:
        body = json.dumps({**EVENT, "companyReference": TEST_COMPANY}).encode()
        with tempfile.TemporaryDirectory() as directory, open_database(str(Path(directory) / "events.db")) as connection:
            self.assertTrue(receive(connection, sign(body), body, [SECRET], note_company, NOW))
            self.assertFalse(receive(connection, sign(body), body, [SECRET], note_company, NOW))
            self.assertEqual([(1, 0)], connection.execute("SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM pending)").fetchall())


class Events(unittest.TestCase):
    def test_good(self) -> None:
        self.assertEqual(EVENT, parse_event(BODY))
        self.assertEqual("x", parse_event(json.dumps({**EVENT, "later": "x"}).encode())["later"])

    def test_bad(self) -> None:
        changed: list[Mapping[str, Any]] = [{**EVENT, "version": 2}, {**EVENT, "version": True}, {**EVENT, "documentVersion": "2"}, {**EVENT, "id": ""}, {**EVENT, "id": 1}]
        changed += [{n: v for n, v in EVENT.items() if n != name} for name in EVENT]
        for body in (b"", b"[]", b"\xff", b"[" * 100_000, *(json.dumps(event).encode() for event in changed)):
            with self.subTest(body[:40]), self.assertRaises(BadEvent):
                parse_event(body)


class Database(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = str(Path(directory.name, "events.db"))

    def stored(self) -> tuple[int, int]:
        with open_database(self.path) as db:
            row: tuple[int, int] = db.execute("SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM pending)").fetchone()
        return row


class Storage(Database):
    def test_a_duplicate_has_no_second_effect(self) -> None:
        effects = []

        def effect(db: sqlite3.Connection, event: Mapping[str, Any]) -> None:
            effects.append(event["id"])
            note_company(db, event)

        with open_database(self.path) as db:
            self.assertTrue(receive(db, sign(BODY), BODY, [SECRET], effect, NOW))
            self.assertFalse(receive(db, sign(BODY, NOW + 5), BODY, [SECRET], effect, NOW + 5))
        self.assertEqual([EVENT["id"]], effects)
        self.assertEqual((1, 1), self.stored())

    def test_event_and_effect_are_one(self) -> None:
        def fail(db: sqlite3.Connection, event: Mapping[str, Any]) -> None:
            note_company(db, event)
            raise RuntimeError("in the middle")

        with open_database(self.path) as db:
            with self.assertRaises(RuntimeError):
                receive(db, sign(BODY), BODY, [SECRET], fail, NOW)
            self.assertEqual((0, 0), self.stored())
            self.assertTrue(receive(db, sign(BODY), BODY, [SECRET], note_company, NOW))
        self.assertEqual((1, 1), self.stored())

    def test_nothing_is_parsed_or_stored_before_the_signature(self) -> None:
        with open_database(self.path) as db:
            with self.assertRaises(BadSignature):
                receive(db, sign(b"{"), b"{ ", [SECRET], note_company, NOW)
            with self.assertRaises(BadEvent):
                receive(db, sign(b"{"), b"{", [SECRET], note_company, NOW)
        self.assertEqual((0, 0), self.stored())


class Server(Database):
    def setUp(self) -> None:
        super().setUp()
        server = serve(self.path, [SECRET], "127.0.0.1", 0)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.port = server.server_address[1]

    def send(self, body: bytes, *signatures: str, method: str = "POST", length: str | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        try:
            connection.putrequest(method, "/hook")
            for signature in signatures:
                connection.putheader("Service-Signature", signature)
            if length != "":
                connection.putheader("Content-Length", length or str(len(body)))
            connection.endheaders(body)
            return connection.getresponse().status
        finally:
            connection.close()

    def test_answers(self) -> None:
        now = int(time.time())
        good = sign(BODY, now)
        cases: list[tuple[int, bytes, list[str]]] = [
            (204, BODY, [good]), (204, BODY, [good]), (401, BODY, []), (401, BODY, [good, good]), (401, BODY + b" ", [good]),
            (401, BODY, [sign(BODY, now - 400)]), (400, b"{}", [sign(b"{}", now)]),
        ]
        for status, body, signatures in cases:
            self.assertEqual(status, self.send(body, *signatures))
        self.assertEqual(411, self.send(b"", good, length=""))
        self.assertEqual(413, self.send(b"", good, length="65537"))
        self.assertEqual(501, self.send(b"", method="GET"))
        self.assertEqual((1, 1), self.stored())

    def test_many_at_once(self) -> None:
        bodies = [json.dumps({**EVENT, "id": f"evt_{i % 10}"}).encode() for i in range(40)]
        statuses: list[int] = []

        def deliver(body: bytes) -> None:
            statuses.append(self.send(body, sign(body, int(time.time()))))

        threads = [threading.Thread(target=deliver, args=(body,)) for body in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([204] * 40, statuses)
        self.assertEqual((10, 1), self.stored())


if __name__ == "__main__":
    unittest.main()
