"""The client against the real service, which a Go test runs, and against servers that misbehave.

SERVICE and PLAIN are the addresses of one service over https and http; AUTHORITY
is its certificate; ADMIN and WORKER are keys, ADMIN_ID, WORKER_ID and WEBHOOK_ID ids.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import re
import ssl
import unittest
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from integrity_client import IntegrityClient, IntegrityError, Refused, Unanswered, final_bytes_declaration, reconcile_pending
from verify_integrity import verify_receipt

SERVICE, PLAIN = os.environ["SERVICE"], os.environ["PLAIN"]
CONTENT = b"%PDF-1.7 secret-content\n"
GENERATED = datetime(2026, 11, 19, 10, 30, 0, 120000, timezone(timedelta(hours=1)))


def client(url: str = SERVICE, key: str = "WORKER", **options: Any) -> IntegrityClient:
    if url.startswith("https:"):
        options.setdefault("ssl_context", ssl.create_default_context(cafile=os.environ["AUTHORITY"]))
    return IntegrityClient(url, os.environ[key], **options)


def declaration(document: str, version: int = 1, **change: Any) -> dict[str, Any]:
    return final_bytes_declaration(
        CONTENT, company_reference=change.pop("company", "c-python"), source="erp", document_reference=document, version=version,
        mime_type="application/pdf", generated_at=change.pop("generated_at", GENERATED), **change,
    )


def final_sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Wire:
    """A server on this computer that keeps what it is sent, request by request."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[bytes] = []
        self._answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            for line in request.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    request += await reader.readexactly(int(line.split(b":")[1]))
            self.requests.append(request)
            await self._answer(request, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[tuple[str, Wire]]:
    wire = Wire(answer)
    server = await asyncio.start_server(wire, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", wire


def saying(status: str, body: bytes, *headers: str) -> Answer:
    async def answer(_: bytes, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
        writer.write("\r\n".join(lines).encode() + body)

    return answer


async def forwarded(request: bytes) -> bytes:
    """What the service answers to the request."""
    address = urlsplit(PLAIN)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


class AgainstTheService(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        async with client(key="ADMIN") as admin:
            self.company = await admin.create_company("c-python")
            await admin.grant_key(self.company["id"], os.environ["WORKER_ID"])

    async def test_setup_is_idempotent_and_can_be_taken_back(self) -> None:
        async with client(key="ADMIN") as admin, client() as worker:
            self.assertTrue((await admin.create_company("c-python"))["replayed"])
            webhook = await admin.grant_webhook(self.company["id"], os.environ["WEBHOOK_ID"])
            self.assertEqual((True, os.environ["WEBHOOK_ID"]), (webhook["enabled"], webhook["webhookId"]))
            self.assertFalse((await admin.grant_webhook(self.company["id"], os.environ["WEBHOOK_ID"], False))["enabled"])
            self.assertFalse((await admin.grant_key(self.company["id"], os.environ["WORKER_ID"], False))["enabled"])
            with self.assertRaises(Refused) as refused:
                await worker.register(declaration("taken-back"))
            self.assertEqual((403, "COMPANY_NOT_AUTHORIZED"), (refused.exception.status, refused.exception.code))

    async def test_reserve_register_look_up_and_verify_offline(self) -> None:
        async with client() as c:
            reserved = await c.reserve("c-python", "erp", "whole", 1)
            self.assertEqual(("pending", 0), (reserved["status"], reserved["consumption"]["applied"]))
            with NamedTemporaryFile() as file:
                file.write(CONTENT)
                file.flush()
                made = final_bytes_declaration(
                    Path(file.name), company_reference="c-python", source="erp", document_reference="whole", version=1,
                    mime_type="application/pdf", generated_at=GENERATED, reservation_id=reserved["publicId"],
                )
            self.assertEqual(declaration("whole", reservation_id=reserved["publicId"]), made)
            record = await c.register(json.loads(json.dumps(made)))
            self.assertEqual((reserved["publicId"], reserved["verificationUrl"], False), (record["publicId"], record["verificationUrl"], record["replayed"]))
            self.assertEqual("2026-11-19T09:30:00.12Z", record["generatedAt"])
            self.assertTrue((await c.register(made))["replayed"])
            found = await c.lookup("c-python", "erp", "whole", 1)
            self.assertEqual({name: record[name] for name in found}, found)
            evidence = await c.evidence(record["publicId"])
            many, unknown = await c.evidence_of_many([record["publicId"], "a" * 26], wait=1)
            self.assertEqual("RECORD_NOT_FOUND", unknown["error"]["code"])
            self.assertTrue(
                many["data"]["payload"] == json.loads(evidence)["payload"] if many["data"] else many["error"]["code"] == "INCLUSION_PENDING"
            )
            for report in (c.report(record["publicId"], language="es"), c.public_report(record["publicId"])):
                self.assertEqual(b"%PDF-", (await report)[:5])
            for proof in (c.tlog_proof(record["publicId"], wait=1), c.public_tlog_proof(record["publicId"])):
                try:
                    self.assertEqual(b"c2sp.org/tlog-proof@v1", (await proof).splitlines()[0])
                except Refused as pending:
                    self.assertEqual("INCLUSION_PENDING", pending.code)
            with self.assertRaises(Refused) as refused:
                await c.evidence_of_many([record["publicId"]] * 2)
            self.assertEqual("/publicIds/1", refused.exception.fields[0]["pointer"])
            with self.assertRaises(Refused) as refused:
                await c.evidence(record["publicId"], at=datetime.now(timezone.utc) - timedelta(hours=1))
            self.assertEqual((422, "/at"), (refused.exception.status, refused.exception.fields[0]["pointer"]))
            with self.assertRaises(ValueError):
                await c.evidence(record["publicId"], at=datetime(2026, 11, 20))
            history = await c.evidence(record["publicId"], at=json.loads(json.loads(evidence)["statusObservation"]["payload"])["sequence"])
        schemas = Path(os.environ["SCHEMAS"])
        findings = verify_receipt(
            evidence, Path(os.environ["TRUSTED"]).read_bytes(), CONTENT, require_references=True, require_current=True,
            record_schema=json.loads((schemas / "integrity-v1.json").read_bytes()), status_schema=json.loads((schemas / "integrity-status-v1.json").read_bytes()),
        )
        self.assertEqual((0, "valid", True), (findings.exit_code, findings.references, findings.file_match), findings.reasons)
        past = verify_receipt(history, Path(os.environ["TRUSTED"]).read_bytes(), CONTENT, require_references=True)
        self.assertEqual((0, "valid", "current", None), (past.exit_code, past.status_as_of, past.as_of_status, past.observed_status), past.reasons)

    async def test_records_comparisons_and_the_month(self) -> None:
        async with client() as c, client(key="ADMIN") as admin, IntegrityClient(PLAIN) as anyone:
            await admin.grant_key(self.company["id"], os.environ["ADMIN_ID"])
            before = (await c.usage())["organization"]["used"]
            content = b"%PDF-1.7 of a batch"
            first, second = ({**declaration("batch", v), "sha256": final_sha256(content), "sizeBytes": len(content)} for v in (1, 2))
            results = await c.register_batch([first, second, {**second, "sizeBytes": 1}, {**first, "version": 0}])
            self.assertEqual([201, 201, 409, 422], [r["status"] for r in results])
            self.assertEqual("VERSION_CONFLICT", results[2]["error"]["code"])
            one, two = (r["data"] for r in results[:2])
            usage = await c.usage()
            self.assertEqual(before + 2, usage["organization"]["used"])
            entries = [entry["publicId"] async for page in c.usage_entries(limit=1) for entry in page["entries"]]
            self.assertEqual(usage["organization"]["used"], len(entries))
            self.assertLessEqual({one["publicId"], two["publicId"]}, set(entries))

            self.assertEqual(await c.lookup("c-python", "erp", "batch", 2), await c.record(two["publicId"]))
            pages = [page async for page in c.records(sha256=two["sha256"], limit=1)]
            self.assertEqual([1, 1], [len(page["records"]) for page in pages])
            self.assertEqual({one["publicId"], two["publicId"]}, {page["records"][0]["publicId"] for page in pages})
            companies = [company["reference"] async for page in c.companies() for company in page["companies"]]
            self.assertIn("c-python", companies)

            listed = [r["version"] async for page in c.records(
                company_reference="c-python", source="erp", document_reference="batch", received_from=datetime.now(timezone.utc) - timedelta(hours=1), limit=1,
            ) for r in page["records"]]
            self.assertEqual([2, 1], listed)
            past = datetime(2020, 1, 1, tzinfo=timezone.utc)
            page = await c.records_page(company_reference="c-python", status="current", received_from=past, received_to=past + timedelta(days=1))
            self.assertEqual([], page["records"])
            with self.assertRaises(ValueError):
                await c.records_page(company_reference="c-python", received_to=datetime(2026, 1, 1))
            unused = await c.reserve("c-python", "erp", "unused", 1)
            pending = [r["publicId"] async for page in c.reservations("c-python", status="pending") for r in page["reservations"]]
            self.assertIn(unused["publicId"], pending)
            self.assertEqual("released", (await c.release_reservation(unused["publicId"]))["status"])
            self.assertTrue((await c.release_reservation(unused["publicId"]))["replayed"])

            self.assertEqual("MATCH_HISTORICAL", (await anyone.compare(one["publicId"], one["sha256"]))["result"])
            matched = await anyone.compare_bytes(two["publicId"], content)
            self.assertEqual(("MATCH_CURRENT", True), (matched["result"], matched["verified"]))
            self.assertEqual("HASH_MISMATCH", (await anyone.compare_bytes(two["publicId"], b"another"))["result"])
            self.assertEqual("FILE_NOT_COMPARED", (await anyone.compare(two["publicId"]))["result"])
            with self.assertRaises(Refused) as refused:
                await anyone.compare("a" * 26)
            self.assertEqual((404, "RECORD_NOT_FOUND"), (refused.exception.status, refused.exception.code))
            receipt = json.loads(await anyone.receipt(two["publicId"]))
            self.assertNotIn("references", receipt)
            with self.assertRaises(ValueError):
                await anyone.usage()

            closed = await admin.set_company_status(self.company["id"], "closed")
            self.assertEqual([self.company["id"]], [company["id"] async for page in c.companies(status="closed") for company in page["companies"]])
            with self.assertRaises(Refused) as refused:
                await c.register(declaration("closed"))
            self.assertEqual(("closed", 403, "COMPANY_CLOSED"), (closed["status"], refused.exception.status, refused.exception.code))
            self.assertIsNone((await admin.set_company_status(self.company["id"], "active"))["closedAt"])
            access = {entry["keyId"]: entry["enabled"] async for page in admin.company_access(self.company["id"], limit=1) for entry in page["access"]}
            self.assertEqual({os.environ["ADMIN_ID"]: True, os.environ["WORKER_ID"]: True}, access)
            await admin.grant_webhook(self.company["id"], os.environ["WEBHOOK_ID"])
            hears = [entry["webhookId"] async for page in admin.company_webhooks(self.company["id"]) for entry in page["webhooks"] if entry["enabled"]]
            self.assertEqual([os.environ["WEBHOOK_ID"]], hears)

            with self.assertRaises(Refused) as refused:
                await c.revoke(two["publicId"])
            self.assertEqual("MISSING_SCOPE", refused.exception.code)
            revoked = await admin.revoke(two["publicId"], "withdrawn")
            self.assertEqual(("revoked", False), (revoked["status"], revoked["replayed"]))
            self.assertTrue((await admin.revoke(two["publicId"]))["replayed"])
            self.assertEqual("RECORD_REVOKED", (await anyone.compare_bytes(two["publicId"], content))["result"])

    async def test_changes_come_page_after_page(self) -> None:
        async with client(key="ADMIN") as admin, client() as c:
            company = await admin.create_company("c-feed")
            await admin.grant_key(company["id"], os.environ["WORKER_ID"])
            await c.register_batch([declaration("fed", v, company="c-feed") for v in (1, 2, 3)])
            seen: list[tuple[int, str]] = []
            cursor = 0
            async for page in c.changes("c-feed", limit=2):
                self.assertLessEqual(len(page["events"]), 2)
                self.assertIsInstance(page["epoch"], int)
                seen += [(event["version"], event["type"]) for event in page["events"]]
                for event in page["events"]:
                    self.assertEqual((await c.record(event["publicId"]))["sha256"], event["sha256"])
                cursor, epoch = page["nextCursor"], page["epoch"]
            with self.assertRaises(Refused) as refused:
                await anext(c.changes("c-feed", cursor, epoch=epoch + 1))
            self.assertEqual("CURSOR_AHEAD", refused.exception.code)
            registered, superseded = "integrity.registered", "integrity.superseded"
            self.assertEqual([(1, registered), (2, registered), (1, superseded), (3, registered), (2, superseded)], seen)
            # At the end it waits, and hears of the next change.
            pages = c.changes("c-feed", cursor, epoch=epoch, follow=True)
            self.assertEqual([], (await anext(pages))["events"])
            waiting = asyncio.ensure_future(anext(pages))
            await c.register(declaration("fed", 4, company="c-feed"))
            self.assertEqual(4, (await waiting)["events"][0]["version"])
            await pages.aclose()
            with self.assertRaises(Refused) as refused:
                await c.changes_page("c-feed", 1_000_000_000)
            self.assertEqual("CURSOR_AHEAD", refused.exception.code)

    async def test_one_cursor_reads_all_companies(self) -> None:
        async with client(key="ADMIN") as admin, client() as c:
            held: set[str] = set()

            async def read(cursor: int) -> int:
                async for page in c.changes(after=cursor, limit=2):
                    self.assertGreaterEqual(page["nextCursor"], cursor)
                    held.update(event["id"] for event in page["events"])
                    cursor = page["nextCursor"]
                return cursor

            async def lacks(company: str) -> int:
                return len([e async for page in c.changes(company) for e in page["events"] if e["id"] not in held])

            for reference in ("c-all-1", "c-all-2"):
                company = await admin.create_company(reference)
                await admin.grant_key(company["id"], os.environ["WORKER_ID"])
                await c.register_batch([declaration("all", v, company=reference) for v in (1, 2, 3)])
            await admin.grant_key(company["id"], os.environ["WORKER_ID"], enabled=False)
            cursor = await read(0)
            self.assertEqual(0, await lacks("c-all-1"))
            await admin.grant_key(company["id"], os.environ["WORKER_ID"])
            self.assertEqual(5, await lacks("c-all-2"))
            page = await c.changes_page(after=cursor)
            self.assertEqual(["c-all-2"], [granted["companyReference"] for granted in page["grantedCompanies"]])
            self.assertEqual(page["head"], await read(cursor))
            self.assertEqual(0, await lacks("c-all-2"))

    async def test_a_webhook_destination_from_its_secret_to_its_end(self) -> None:
        async with client(key="ADMIN") as admin, client() as c:
            made = await admin.create_webhook("https://receiver.example/python", types=["integrity.registered"])
            self.assertTrue(made["secret"].startswith("whsec_"))
            await c.register(declaration("before-the-webhook"))
            await admin.grant_webhook(self.company["id"], made["id"])
            self.assertIn(made["id"], [w["id"] for w in (await admin.webhooks())["webhooks"] if "secret" not in w])
            test = await admin.test_webhook(made["id"])
            counted = await admin.replay_webhook(made["id"], 1, dry_run=True, company_reference="c-python")
            replayed = await admin.replay_webhook(made["id"], 1, dry_run=False, company_reference="c-python")
            self.assertTrue(counted["dryRun"] and not replayed["dryRun"] and counted["count"] == replayed["count"] >= 1)
            types = [d["type"] async for page in admin.deliveries(made["id"], limit=1) for d in page["deliveries"]]
            self.assertEqual((1, counted["count"]), (types.count("webhook.test"), types.count("integrity.registered")))
            self.assertEqual(test["id"], (await admin.redeliver(test["id"]))["id"])
            self.assertNotEqual(made["secret"], (await admin.rotate_webhook_secret(made["id"], overlap_seconds=0))["secret"])
            self.assertEqual("disabled", (await admin.update_webhook(made["id"], enabled=False, description="off"))["status"])
            self.assertEqual("off", (await admin.webhook(made["id"]))["description"])
            self.assertTrue((await admin.delete_webhook(made["id"]))["deleted"])
            with self.assertRaises(Refused):
                await admin.webhook(made["id"])

    async def test_the_organization_administers_itself(self) -> None:
        async with client() as c, client(key="ADMIN") as admin:
            self.assertGreaterEqual((await c.organization())["limits"]["versions"]["used"], 0)
            with self.assertRaises(Refused) as refused:
                await c.api_keys_page()
            self.assertEqual("MISSING_SCOPE", refused.exception.code)
            tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
            made = await admin.create_api_key(
                "from Python", ["integrity:read"], expires_at=tomorrow, source="erp", networks=["127.0.0.1"], max_version_step=2, companies=["c-python"],
            )
            self.assertEqual(("from Python", ["c-python"], 2, "erp"), (made["name"], made["grants"]["companies"], made["maxVersionStep"], made["source"]))
            async with IntegrityClient(PLAIN, made["key"]) as theirs:
                self.assertEqual(["c-python"], [company["reference"] for company in (await theirs.companies_page())["companies"]])
            self.assertEqual("renamed", (await admin.update_api_key(made["id"], name="renamed"))["name"])
            rotated = await admin.rotate_api_key(made["id"], overlap_seconds=0, copy_grants=True, expires_at=tomorrow)
            self.assertEqual((made["id"], ["c-python"]), (rotated["formerKey"]["id"], rotated["grants"]["companies"]))
            self.assertTrue(rotated["formerKey"]["revokedAt"] and rotated["key"] != made["key"])
            self.assertTrue((await admin.revoke_api_key(rotated["id"]))["revokedAt"])
            self.assertNotIn("key", await admin.api_key(rotated["id"]))
            listed = [key["id"] async for page in admin.api_keys(limit=2) for key in page["keys"]]
            self.assertLessEqual({made["id"], rotated["id"], os.environ["WORKER_ID"]}, set(listed))

            invited = await admin.invite_member("python@example.org", "viewer")
            self.assertEqual(("invited", False), (invited["status"], invited["mailed"]))
            self.assertIn("/console/invitation/", invited["invitationUrls"]["es"])
            self.assertEqual("analyst", (await admin.update_member(invited["id"], role="analyst"))["role"])
            self.assertEqual("ended", (await admin.end_member(invited["id"]))["status"])
            statuses = {member["id"]: member["status"] async for page in admin.members(limit=1) for member in page["members"]}
            self.assertEqual("ended", statuses[invited["id"]])

    async def test_refusals(self) -> None:
        async with client() as c:
            await c.register(declaration("conflict"))
            other = {**declaration("conflict"), "sha256": "0" * 64}
            unknown_company = declaration("d", company="c-unknown")
            cases: list[tuple[int, str, Callable[[], Awaitable[object]]]] = [
                (409, "VERSION_CONFLICT", lambda: c.register(other)), (404, "RECORD_NOT_FOUND", lambda: c.lookup("c-python", "erp", "nothing", 1)),
                (404, "NOT_FOUND", lambda: c.evidence("../companies?x=#")), (422, "INVALID_DATA", lambda: c.register({**other, "sizeBytes": -1})),
                (403, "COMPANY_NOT_AUTHORIZED", lambda: c.register(unknown_company)), (403, "MISSING_SCOPE", lambda: c.create_company("c-2")),
            ]
            for status, code, ask in cases:
                with self.subTest(code), self.assertRaises(Refused) as refused:
                    await ask()
                e = refused.exception
                self.assertEqual((status, code, False), (e.status, e.code, e.retryable))
                self.assertTrue(e.request_id and e.detail)
                self.assertEqual(code == "VERSION_CONFLICT", e.existing is not None)
                self.assertFalse(e.outcome_unknown)
                if code in ("VERSION_CONFLICT", "INVALID_DATA"):
                    self.assertEqual("/sha256" if status == 409 else "/sizeBytes", e.fields[0]["pointer"])
        async with IntegrityClient(PLAIN, "ik_wrong") as c:
            with self.assertRaises(Refused) as refused:
                await c.lookup("c-python", "erp", "conflict", 1)
            self.assertEqual((401, "INVALID_KEY"), (refused.exception.status, refused.exception.code))

    async def test_an_ambiguous_outcome_is_settled(self) -> None:
        async def lost_answer(request: bytes, _: asyncio.StreamWriter) -> None:
            await forwarded(request)

        async def lost_request(_: bytes, __: asyncio.StreamWriter) -> None:
            pass

        for name, answer, registered in (("lost-answer", lost_answer, True), ("lost-request", lost_request, False)):
            with self.subTest(name):
                saved = json.dumps(declaration(name))
                async with listening(answer) as (url, wire), client(url) as c:
                    with self.assertRaises(Unanswered) as unanswered:
                        await c.register(json.loads(saved))
                    self.assertTrue(unanswered.exception.outcome_unknown)
                    self.assertEqual(1, len(wire.requests), "a request was repeated")
                    self.assertNotIn(b"secret-content", wire.requests[0])
                async with client() as c:
                    record = await reconcile_pending(c, json.loads(saved))
                    self.assertEqual(registered, record["replayed"])
                    self.assertEqual(record["publicId"], (await reconcile_pending(c, json.loads(saved)))["publicId"])
                    with self.assertRaises(Refused) as refused:
                        await reconcile_pending(c, {**json.loads(saved), "sizeBytes": 1})
                    self.assertEqual("VERSION_CONFLICT", refused.exception.code)

    async def test_reconciliation_looks_first(self) -> None:
        seen: list[str] = []

        async def pass_on(request: bytes, writer: asyncio.StreamWriter) -> None:
            seen.append(request.split(b" ")[0].decode())
            writer.write(await forwarded(request))

        async with listening(pass_on) as (url, _), client(url) as c:
            await reconcile_pending(c, declaration("looks-first"))
            self.assertEqual(["GET", "POST"], seen)
        async with listening(saying("503 Service Unavailable", b"{}", "Retry-After: 7")) as (url, wire), client(url) as c:
            with self.assertRaises(Unanswered) as unanswered:
                await reconcile_pending(c, declaration("away"))
            self.assertEqual(7, unanswered.exception.retry_after)
            self.assertEqual(1, len(wire.requests), "it wrote although the look-up was not answered")

    async def test_the_certificate_counts(self) -> None:
        async with IntegrityClient(SERVICE, os.environ["WORKER"]) as c:
            with self.assertRaises(Unanswered) as unanswered:
                await c.lookup("c-python", "erp", "d", 1)
            self.assertIn("CERTIFICATE_VERIFY_FAILED", str(unanswered.exception))
        lax = ssl.create_default_context()
        lax.check_hostname = False
        with self.assertRaises(ValueError):
            client(ssl_context=lax)


class AgainstOthers(unittest.IsolatedAsyncioTestCase):
    async def test_redirects_are_not_followed(self) -> None:
        async with listening(saying("200 OK", b'{"data":{}}')) as (elsewhere, reached):
            for status in ("301 Moved", "302 Found", "307 Temporary", "308 Permanent"):
                async with listening(saying(status, b"", f"Location: {elsewhere}/")) as (url, wire), client(url) as c:
                    with self.assertRaises(Unanswered):
                        await c.register(declaration("d"))
                    self.assertEqual(1, len(wire.requests))
            self.assertEqual([], reached.requests)

    async def test_answers_that_are_none(self) -> None:
        async def stop_within(_: bytes, writer: asyncio.StreamWriter) -> None:
            writer.write(b'HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{"data"')

        for name, answer in (
            ("a page", saying("200 OK", b"<html>")), ("a page of a proxy", saying("403 Forbidden", b"<html>")), ("no data", saying("201 Created", b'{"data":null}')),
            ("internal", saying("500 Internal Server Error", b'{"error":{"code":"INTERNAL"}}')), ("half", stop_within),
            ("endless", saying("200 OK", b"[" * (8 << 20 | 1))), ("a list", saying("200 OK", b"[]")), ("not UTF-8", saying("200 OK", b"\xff")),
        ):
            async with listening(answer) as (url, wire), client(url) as c:
                with self.subTest(name), self.assertRaises(Unanswered) as unanswered:
                    await c.register(declaration("d"))
                self.assertTrue(unanswered.exception.outcome_unknown, name)
                self.assertEqual(1, len(wire.requests), name)
                with self.subTest(name), self.assertRaises(Unanswered) as unanswered:
                    await c.usage()
                self.assertFalse(unanswered.exception.outcome_unknown, name)

    async def test_compressed_answers_are_not_unpacked(self) -> None:
        for coding in ("gzip", "x-none"):
            body = gzip.compress(b'{"data":{}}') if coding == "gzip" else b'{"data":{}}'
            async with listening(saying("200 OK", body, f"Content-Encoding: {coding}")) as (url, wire), client(url) as c:
                with self.assertRaises(Unanswered) as unanswered:
                    await c.lookup("c", "s", "d", 1)
                self.assertIn("compressed", str(unanswered.exception))
                self.assertIn(b"accept-encoding: identity\r\n", wire.requests[0].lower())

    async def test_a_page_is_no_evidence(self) -> None:
        for body in (b"<html>", b"{}", b'{"payload":1}'):
            async with listening(saying("200 OK", body)) as (url, wire), client(url) as c:
                with self.subTest(body):
                    for timestamps, path in ((False, b"/evidence "), (True, b"/evidence?timestamps=true ")):
                        with self.assertRaises(Unanswered):
                            await c.evidence("a" * 26, timestamps=timestamps)
                        self.assertIn(path, wire.requests[-1])

    async def test_time_is_bounded_as_a_whole(self) -> None:
        async def drip(request: bytes, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
            for _ in range(500):  # each byte is in time, all of them are not
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)

        async with listening(drip) as (url, _), client(url, timeout=0.3) as c:
            with self.assertRaises(Unanswered) as unanswered:
                await c.evidence("a" * 26)
            self.assertIn("TimeoutError", str(unanswered.exception))

    async def test_outcomes(self) -> None:
        """Every client makes the same of an answer: schemas/outcome-vectors.json."""
        vectors = json.loads((Path(os.environ["SCHEMAS"]) / "outcome-vectors.json").read_text("utf-8"))["vectors"]
        vector: dict[str, Any] = {}

        async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
            if vector.get("break") == "body":
                writer.write(b'HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{"data":')
            elif (given := vector.get("answer")) is not None:
                headers = [f"{name}: {value}" for name, value in given["headers"].items()]
                await saying(f"{given['status']} X", given["body"].encode(), *headers)(request, writer)

        async with listening(answer) as (url, wire), client(url) as here, client("http://127.0.0.1:1") as nowhere:
            for vector in vectors:
                sent = 0 if vector.get("break") == "connect" else 1
                wire.requests.clear()
                with self.subTest(vector["name"]), self.assertRaises(IntegrityError) as raised:
                    await (here if sent else nowhere).register(declaration("d"))
                e, want = raised.exception, vector["want"]
                with self.subTest(vector["name"]):
                    refused = isinstance(e, Refused) and not e.retryable
                    self.assertEqual((want["refused"], want["outcomeUnknown"]), (refused, e.outcome_unknown))
                    self.assertTrue(refused or e.outcome_unknown or e.retryable)
                    if "retryAfter" in want:
                        self.assertEqual(want["retryAfter"], e.retry_after or 0)
                    else:
                        self.assertGreaterEqual(e.retry_after or 0, want["retryAfterAtLeast"])
                    self.assertEqual(sent, len(wire.requests))

    async def test_the_log(self) -> None:
        hashes = b"\xff" * 32 * 256

        async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
            path = request.split(b" ")[1]
            if b".p/" in path:
                await saying("404 Not Found", b'{"data":null,"error":{"code":"NOT_FOUND","detail":"d"},"meta":{}}')(request, writer)
            elif b"timestamps" in path:
                size, more = (3, True) if path.endswith(b"=0") else (9, False)
                await saying("200 OK", json.dumps({"timestamps": [{"treeSize": size}], "hasMore": more}).encode())(request, writer)
            else:
                await saying("200 OK", b"note" if path.endswith(b"checkpoint") else hashes)(request, writer)

        async with listening(answer) as (url, wire), client(url) as c:
            self.assertEqual(hashes[:160], await c.log_tile(1, 1234067, 5))
            self.assertEqual(hashes, await c.log_tile(0, 0))
            self.assertEqual([3, 9], [page["timestamps"][0]["treeSize"] async for page in c.log_timestamps()])
            self.assertEqual("note", await c.log_checkpoint())
            paths = [request.split(b" ")[1].decode().removeprefix("/api/public/log/") for request in wire.requests]
            self.assertEqual(["tile/1/x001/x234/067.p/5", "tile/1/x001/x234/067", "tile/0/000", "timestamps?after=0", "timestamps?after=3", "checkpoint"], paths)
            for request in wire.requests:
                self.assertNotIn(b"authorization:", request.lower())
                self.assertIn(b"accept: */*\r\n", request.lower())
            hashes = b"short"
            with self.assertRaises(Unanswered):
                await c.log_tile(0, 0)
            with self.assertRaises(ValueError):
                await c.log_tile(0, 0, 257)

    async def test_certificates(self) -> None:
        data = {"publicId": "a", "verified": True}
        async with listening(saying("200 OK", json.dumps({"data": data}).encode())) as (url, wire), client(url) as c:
            self.assertEqual(data, await c.verify_bytes("a", CONTENT))
            self.assertIn(final_sha256(CONTENT).encode(), wire.requests[0])
            with self.assertRaises(Unanswered) as unanswered:
                await c.verify_hash("b", "0" * 64)
            self.assertFalse(unanswered.exception.outcome_unknown, "it changes nothing")
            await c.lookup(public_id="a")
            self.assertIn(b"/lookup?publicId=a ", wire.requests[-1])

    async def test_a_limit_says_when(self) -> None:
        body = b'{"data":null,"error":{"code":"RATE_LIMITED","detail":"d","retryable":true,"errors":[]},"meta":{"requestId":"r"}}'
        async with listening(saying("429 Too Many Requests", body, "Retry-After: 12")) as (url, wire), client(url) as c:
            with self.assertRaises(Refused) as refused:
                await c.register(declaration("d"))
            e = refused.exception
            self.assertEqual(("RATE_LIMITED", True, 12, "r"), (e.code, e.retryable, e.retry_after, e.request_id))
            self.assertEqual(1, len(wire.requests))

    async def test_only_the_members_of_a_declaration_are_sent(self) -> None:
        async with listening(saying("200 OK", b"{}")) as (url, wire), client(url) as c:
            with self.assertRaises(ValueError):
                await c.register({**declaration("d"), "content": "secret-content"})
            self.assertEqual([], wire.requests)

    async def test_who_has_written_lately_asks_for_what_he_has_written(self) -> None:
        sequences = iter(("7", "5", "x"))

        async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
            headers = [f"Integrity-Sequence: {next(sequences)}"] if request.startswith(b"POST") else []
            await saying("200 OK", b'{"data": {"a": 1}}', *headers)(request, writer)

        async with listening(answer) as (url, wire), client(url) as c:

            async def asked(*, write: bool = False) -> list[bytes]:
                await (c.register(declaration("d")) if write else c.lookup("c-python", "erp", "d", 1))
                return [line.lower() for line in wire.requests[-1].split(b"\r\n") if line.lower().startswith(b"integrity-read")]

            self.assertEqual([], await asked())
            self.assertEqual([], await asked(write=True))
            self.assertEqual([b"integrity-read-after: 7"], await asked())
            self.assertEqual([], await asked(write=True))  # an answer that was overtaken
            self.assertEqual([b"integrity-read-after: 7"], await asked())
            self.assertEqual([], await asked(write=True))  # it must be a number
            self.assertEqual([b"integrity-read-after: 7"], await asked())
            c._session_end = 0.0
            self.assertEqual([], await asked())
        with patch("integrity_client._SESSION", 0.0):
            sequences = iter("3")
            async with listening(answer) as (url, wire), client(url) as c:
                await c.register(declaration("d"))
                await c.lookup("c-python", "erp", "d", 1)
                self.assertNotIn(b"integrity-read-after", wire.requests[-1].lower())

    async def test_nobody_there(self) -> None:
        async with listening(saying("200 OK", b"")) as (url, _):
            pass
        async with client(url) as c:
            with self.assertRaises(Unanswered) as unanswered:
                await c.register(declaration("d"))
            self.assertFalse(unanswered.exception.outcome_unknown, "nothing was sent")

    async def test_a_comparison_is_about_its_record(self) -> None:
        for data in ({"publicId": "b", "result": "MATCH_CURRENT", "verified": True}, {"publicId": "a", "result": "HASH_MISMATCH", "verified": True},
                     {"publicId": "a", "result": "MATCH_CURRENT"}):
            async with listening(saying("200 OK", json.dumps({"data": data}).encode())) as (url, wire), client(url) as c:
                with self.subTest(data), self.assertRaises(Unanswered):
                    await c.compare("a", "0" * 64)
                self.assertNotIn(b"authorization", wire.requests[0].lower())

    async def test_pages_that_do_not_go_on(self) -> None:
        stuck = b'{"data":{"events":[],"nextCursor":5,"hasMore":true},"meta":{"epoch":1}}'
        async with listening(saying("200 OK", stuck)) as (url, wire), client(url) as c:
            with self.assertRaises(Unanswered):
                async for _ in c.changes("c", 5):
                    pass
            self.assertEqual(1, len(wire.requests))
        async with listening(saying("200 OK", b'{"data":{"results":[]}}')) as (url, _), client(url) as c:
            with self.assertRaises(Unanswered) as unanswered:
                await c.register_batch([declaration("d")])
            self.assertTrue(unanswered.exception.outcome_unknown)

    def test_addresses(self) -> None:
        for url in ("http://ledger.example", "http://192.0.2.1", "http://localhost.example", "ftp://127.0.0.1", "https://", "ledger.example", "",
                    "https://a@ledger.example", "https://ledger.example/api/v1", "https://ledger.example?x", "https://ledger.example:99999"):
            with self.subTest(url), self.assertRaises(ValueError):
                IntegrityClient(url, "ik_a")
        for url in ("https://ledger.example", "https://ledger.example:8443/", "http://localhost:8080", "http://127.0.0.2", "http://[::1]:8080"):
            IntegrityClient(url, "ik_a")
        for key in ("", "ik_a b", "ik_a\n", "ik_é"):
            with self.subTest(key), self.assertRaises(ValueError):
                IntegrityClient("https://ledger.example", key)
        for timeout in (0, -1, 301):
            with self.assertRaises(ValueError):
                IntegrityClient("https://ledger.example", "ik_a", timeout=timeout)

    def test_declarations(self) -> None:
        with self.assertRaises(ValueError):
            final_bytes_declaration(b"", company_reference="c", source="s", document_reference="d", version=1, mime_type="a/b", generated_at=datetime(2026, 1, 1))
        made = declaration("d", 3, previous_version=2)
        self.assertEqual((2, len(CONTENT), "2026-11-19T09:30:00.120000Z"), (made["previousVersion"], made["sizeBytes"], made["generatedAt"]))
        self.assertNotIn("reservationId", made)

    def test_generated_at(self) -> None:
        schemas = Path(os.environ["SCHEMAS"])
        document = json.loads((schemas / "integrity-openapi.json").read_bytes())
        pattern = document["components"]["schemas"]["Declaration"]["properties"]["generatedAt"]["pattern"]
        compared = 0
        for v in json.loads((schemas / "generated-at-vectors.json").read_bytes())["vectors"]:
            with self.subTest(v["name"]):
                # Python's $ matches before a newline at the end, too.
                self.assertEqual(v["form"], re.fullmatch(pattern, v["text"]) is not None and not v["text"].endswith("\n"))
                try:
                    at = datetime.fromisoformat(v["text"])
                except ValueError:
                    continue
                if v["normalized"] is None or at.tzinfo is None:
                    continue
                try:
                    made = declaration("d", generated_at=at)["generatedAt"]
                except ValueError:
                    self.assertIn(at.year, (1, 9999))
                    continue
                self.assertTrue(re.fullmatch(pattern, made), made)
                self.assertEqual(datetime.fromisoformat(v["normalized"]), datetime.fromisoformat(made))
                compared += 1
        self.assertGreater(compared, 10)


if __name__ == "__main__":
    unittest.main()
