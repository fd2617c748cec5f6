#!/usr/bin/env python3
"""Receives webhooks of Integrity Ledger: a small server, and the functions it is made of.

    export INTEGRITY_WEBHOOK_SECRET=whsec_...     # shown once, when the destination was made
    python3 integrity_webhook.py events.db --listen 127.0.0.1:8090

Destinations are https addresses: put the server that ends TLS for you in front. The
secret may be several, separated by spaces, while one is being replaced.

What it does, and what your own receiver must do too:

1. It checks the signature over the raw bytes, in constant time, before it parses
   them, and refuses a time more than 300 seconds from its clock.
2. It stores the event's id and its effect in one transaction. An event that is there
   already is answered 204 like a new one, and has no second effect.
3. It never takes order of arrival for anything. The effect here is a note that a
   company has something to read (table pending; your reader of the feed deletes the
   row before it reads, so that what comes meanwhile makes another): the change feed,
   GET /api/v1/integrity/changes, says what is true now, and has what no webhook
   brought.
4. A test delivery (POST .../webhooks/{webhookId}/test) is stored in the same table, and
   has no effect. It stands for no event of the feed: its companyReference is
   service:webhook-test, which no company can have.

A webhook says what the service recorded. It proves nothing about a document.

Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import hmac
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

__all__ = ["TEST_COMPANY", "BadEvent", "BadSignature", "check_signature", "open_database", "parse_event", "receive", "serve"]

TOLERANCE: Final = 300  # seconds between the signature's time and our clock
MAX_BODY: Final = 64 * 1024
TEST_COMPANY: Final = "service:webhook-test"  # the companyReference of a test delivery, and of nothing else

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS event (
    id TEXT PRIMARY KEY, received_at INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS pending (
    company_reference TEXT PRIMARY KEY, since INTEGER NOT NULL
);
"""


class BadSignature(Exception):
    """The request is not, or not any more, a delivery of the service."""


class BadEvent(Exception):
    """The body was signed and is no event of protocol version 1."""


Effect = Callable[[sqlite3.Connection, Mapping[str, Any]], None]


def check_signature(header: str, body: bytes, secrets: Sequence[str], now: float | None = None) -> None:
    """Checks Service-Signature: t=<unix seconds>,v1=<hex>[,v1=<hex>] over the raw body.

    Any v1 may match under any of the secrets: there are two while a secret is being
    rotated. Raises BadSignature.
    """
    fields = [field.partition("=") for field in header.split(",")]
    times = [value for name, _, value in fields if name == "t"]
    given = [value for name, _, value in fields if name == "v1" and re.fullmatch("[0-9a-f]{64}", value)]
    if len(times) != 1 or not re.fullmatch("[0-9]{1,12}", times[0]) or not given:
        raise BadSignature("Service-Signature must be t=<unix seconds>,v1=<64 hexadecimal characters>")
    clock = time.time() if now is None else now
    if abs(clock - int(times[0])) > TOLERANCE:
        raise BadSignature(f"the signature's time is more than {TOLERANCE} seconds from this clock")
    message = times[0].encode("ascii") + b"." + body
    expected = [hmac.new(secret.encode("utf-8"), message, hashlib.sha256).hexdigest() for secret in secrets]
    if not any([hmac.compare_digest(a, b) for a in expected for b in given]):
        raise BadSignature("the signature does not belong to the body under any secret")


def parse_event(body: bytes) -> dict[str, Any]:
    """Reads a body whose signature has been checked. Raises BadEvent.

    Members that it does not know are left alone; the service sends none.
    """
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        raise BadEvent("the body is not JSON") from None
    texts = ("id", "occurredAt", "publicId", "companyReference", "source", "documentReference", "recordStatus")
    if not isinstance(event, dict) or not all(isinstance(event.get(name), str) and event[name] for name in texts):
        raise BadEvent(f"an event must have the texts {', '.join(texts)}")
    if type(event.get("documentVersion")) is not int or type(event.get("version")) is not int or event["version"] != 1:
        raise BadEvent("an event must have a whole documentVersion, and version 1 of the protocol")
    return event


@contextlib.contextmanager
def open_database(path: str) -> Iterator[sqlite3.Connection]:
    """Opens the database for one thread, with its tables. Commits survive a crash."""
    connection = sqlite3.connect(path, timeout=10, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
        yield connection
    finally:
        connection.close()


def receive(
    connection: sqlite3.Connection, header: str, body: bytes, secrets: Sequence[str], effect: Effect, now: float | None = None
) -> bool:
    """Takes one delivery; false means that the event was there already.

    The event and its effect are stored in one transaction, so effect may use the
    connection and must do nothing that cannot be rolled back. A test delivery is
    stored and has no effect. Raises BadSignature, BadEvent, or what effect raises;
    then nothing is stored, and the service tries again.
    """
    check_signature(header, body, secrets, now)
    event = parse_event(body)
    connection.execute("BEGIN IMMEDIATE")
    try:
        inserted = connection.execute(
            "INSERT INTO event (id, received_at, body) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (event["id"], int(time.time() if now is None else now), body),
        ).rowcount
        if inserted and event["companyReference"] != TEST_COMPANY:
            effect(connection, event)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return inserted == 1


def note_company(connection: sqlite3.Connection, event: Mapping[str, Any]) -> None:
    """The effect of this sample: the company's feed has something to read.

    A reader of the feed deletes the row before it reads, so that a webhook that arrives
    meanwhile is not lost.
    """
    connection.execute(
        "INSERT INTO pending (company_reference, since) VALUES (?, ?) ON CONFLICT (company_reference) DO NOTHING",
        (event["companyReference"], int(time.time())),
    )


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # deliveries come in bursts, after an outage above all


def serve(database: str, secrets: Sequence[str], host: str, port: int, effect: Effect = note_company) -> ThreadingHTTPServer:
    """Makes a server for POST on any path; the caller runs serve_forever. Port 0 takes any."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds for a peer that says nothing

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not re.fullmatch("[0-9]{1,9}", length):
                return self.answer(411)
            if int(length) > MAX_BODY:
                return self.answer(413)
            body = self.rfile.read(int(length))
            if len(body) != int(length):
                return self.answer(400)
            signatures: list[str] = self.headers.get_all("Service-Signature", [])
            try:
                with open_database(database) as connection:
                    receive(connection, signatures[0] if len(signatures) == 1 else "", body, secrets, effect)
            except BadSignature as error:
                self.log_error("refused: %s", error)
                return self.answer(401)
            except BadEvent as error:
                self.log_error("refused: %s", error)
                return self.answer(400)
            except Exception as error:  # the effect may raise anything; the service will deliver again
                self.log_error("not stored: %r", error)
                return self.answer(503)
            return self.answer(204)

        def answer(self, status: int) -> None:
            self.send_response(status)
            if status != 204:  # which never has one (RFC 9110, section 8.6)
                self.send_header("Content-Length", "0")
            self.end_headers()

    with open_database(database):
        pass  # a database that cannot be opened is reported at once
    return _Server((host, port), Handler)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the server until it is interrupted."""
    parser = argparse.ArgumentParser(description="Receives webhooks of Integrity Ledger; the secret is in INTEGRITY_WEBHOOK_SECRET.")
    parser.add_argument("database", help="SQLite file for events; made where missing")
    parser.add_argument("--listen", default="127.0.0.1:8090", metavar="HOST:PORT")
    args = parser.parse_args(argv)
    secrets = os.environ.get("INTEGRITY_WEBHOOK_SECRET", "").split()
    if not secrets or not all(secret.startswith("whsec_") for secret in secrets):
        parser.error("INTEGRITY_WEBHOOK_SECRET must be a secret whsec_...")
    host, _, port = args.listen.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port):
        parser.error("--listen must be HOST:PORT")
    try:
        server = serve(args.database, secrets, host, int(port))
    except (OSError, OverflowError, sqlite3.Error) as error:
        print(f"integrity_webhook: {args.database}, {args.listen}: {error}", file=sys.stderr)
        return 2
    with server:
        print(f"listening on {host}:{server.server_address[1]}", file=sys.stderr, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
