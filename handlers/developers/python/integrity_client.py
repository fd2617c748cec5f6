"""Client of Integrity Ledger for origin systems: asynchronous, one file.

    async with IntegrityClient("https://ledger.example", api_key) as client:
        declaration = final_bytes_declaration(
            Path("invoice.pdf"), company_reference="c-7f3a91", source="erp", document_reference="d-1",
            version=1, mime_type="application/pdf", generated_at=datetime.now(timezone.utc),
        )
        ...  # save the declaration with the file, in one transaction of your own
        try:
            record = await client.register(declaration)
        except Unanswered:
            record = await reconcile_pending(client, declaration)  # later, as often as it takes

The file is not sent, only its hash, size, media type and times. HTTPS only, but for
http to this computer itself; no redirects are followed, no proxy or other setting of
the environment is read, every request ends within a bounded time. Nothing is ever sent
twice unless you ask for it: reconcile after an error whose outcome_unknown is true;
repeat after another whose retryable is true, when its retry_after seconds have passed.

Lists come as pages of the API: dictionaries with the members that its contract
names. A method that ends in _page asks for one; the one without walks all of them.

    async for page in client.changes("c-7f3a91", after=cursor):
        ...  # store page["events"] and page["nextCursor"] in one transaction

A registration says that your organization declared this hash and that the service
received it at receivedAt by its own clock. It is neither a review nor an approval,
and no independent timestamp.

Needs Python 3.11 and the package httpx. Keep the API key on servers, and out of
source code, logs, addresses and documents.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import itertools
import json
import math
import os
import re
import ssl
import stat
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote, urlsplit

try:
    import httpx
except ImportError as missing:
    raise ImportError(f"integrity_client needs the package httpx ({missing}); install it, for example with python3 -m pip install httpx") from missing

__all__ = ["IntegrityClient", "IntegrityError", "Refused", "Unanswered", "final_bytes_declaration", "reconcile_pending"]

__version__: Final = "@VERSION@"
_PRODUCT: Final = f"integrity-python/{__version__}"

_INTEGRITY: Final = "/api/v1/integrity"
_ORGANIZATION: Final = "/api/v1/organization"
_LOG: Final = "/api/public/log/"
_TILE: Final = 256  # hashes of a whole tile
_MAX_ANSWER: Final = 8 << 20
_MAX_HEADERS: Final = 128 << 10  # bytes, interim answers (1xx) included, which httpx reads without end
_LONG_POLL: Final = 25  # seconds that the service holds an empty page of changes open at most
_PAUSE: Final = 5.0  # seconds after an empty page that came at once
_SESSION: Final = 10.0  # seconds after a write
_IDENTITY: Final = ("companyReference", "source", "documentReference", "version")
_DECLARATION: Final = frozenset({*_IDENTITY, "previousVersion", "sha256", "sizeBytes", "mimeType", "generatedAt", "reservationId"})


class IntegrityError(Exception):
    """What went wrong with a request.

    outcome_unknown is true of a write that may have happened all the same: look it up
    and send the exact same one again; a write that was done is replayed. If it is
    false and retryable is true, nothing was done: send the same again, after
    retry_after seconds where they are known.
    """

    outcome_unknown = False
    retryable = False
    retry_after: int | None = None
    status: int | None = None  # where there was an answer
    code: str | None = None  # stable: see {base_url}/errors/<code in kebab case>
    request_id: str | None = None


class Refused(IntegrityError):
    """The service said no, and changed nothing.

    401, 403, 404, 409 and 422 need a correction, not a repetition. retryable is
    true of 408 and 429, after retry_after seconds, but not of a limit that does not pass with
    time (COMPANY_LIMIT, WEBHOOK_LIMIT, UNFINALIZED_IDENTITY_LIMIT).
    """

    def __init__(self, status: int, error: Mapping[str, Any], retry_after: int | None, request_id: str | None) -> None:
        self.status: int = status
        self.code: str = str(error.get("code"))
        self.detail = str(error.get("detail"))
        self.fields: list[dict[str, str]] = [f for f in _list(error.get("errors")) if isinstance(f, dict)]  # each {pointer, code, message}
        existing = error.get("existing")
        self.existing: dict[str, str] | None = existing if isinstance(existing, dict) else None  # of VERSION_CONFLICT: publicId and receivedAt of the accepted version
        self.retryable = error.get("retryable") is True or status == 408
        self.retry_after = retry_after if self.retryable else None
        self.request_id = request_id
        fields = "".join(f"; {f.get('pointer')}: {f.get('message')}" for f in self.fields)
        super().__init__(f"{status} {self.code}: {self.detail}{fields}")


class Unanswered(IntegrityError):
    """There was no usable answer: no connection, no time left, 5xx or a redirect.

    A write may have happened or not, where outcome_unknown is true: see
    reconcile_pending. It says nothing about any document.
    """

    def __init__(
        self, message: str, retry_after: int | None = None, outcome_unknown: bool = False, *,
        status: int | None = None, code: str | None = None, request_id: str | None = None, retryable: bool = False,
    ) -> None:
        self.retry_after, self.outcome_unknown, self.retryable = retry_after, outcome_unknown, retryable
        self.status, self.code, self.request_id = status, code, request_id
        super().__init__(message)


class IntegrityClient:
    """Speaks to one service with one API key; for concurrent use in one event loop.

    base_url is the origin, without /api/v1. Without an api_key only compare,
    compare_bytes, receipt and the methods of the log work, which never send it. timeout bounds a whole request,
    in seconds. ssl_context is for a private authority; it must verify certificates.

    A lookup shows everything that was committed before it. Within ten seconds of a
    write of the same client a read replica of the service may answer, which then has
    at least what the client has written.
    """

    def __init__(self, base_url: str, api_key: str | None = None, *, timeout: float = 30.0, ssl_context: ssl.SSLContext | None = None) -> None:
        if api_key is not None and re.fullmatch("[!-~]+", api_key) is None:
            raise ValueError("api_key must be the text of a key, without spaces or line breaks")
        if not 0 < timeout <= 300:
            raise ValueError("timeout must be more than 0 and at most 300 seconds")
        if ssl_context is not None and (ssl_context.verify_mode != ssl.CERT_REQUIRED or not ssl_context.check_hostname):
            raise ValueError("ssl_context must be one that verifies certificates and names")
        self._key, self._timeout = api_key, timeout
        self._written, self._session_end = 0, 0.0  # the highest Integrity-Sequence of a write, and until when it is named
        self._http = httpx.AsyncClient(
            base_url=_origin(base_url),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "Integrity-Version": _PRODUCT, "User-Agent": _PRODUCT},
            timeout=timeout, verify=ssl_context or ssl.create_default_context(), follow_redirects=False, trust_env=False,
        )

    async def __aenter__(self) -> IntegrityClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def create_company(self, reference: str) -> dict[str, Any]:
        """Creates a company: a partition of yours, under an opaque reference, never a name.

        The same reference again gives the same company, with "replayed": true. Creating
        grants nothing, not even to this key. Needs integrity:admin.
        """
        return await self._data("POST", _INTEGRITY + "/companies", {"reference": reference})

    async def companies_page(self, *, all: bool = False, status: str | None = None, limit: int | None = None, after: str | None = None) -> dict[str, Any]:
        """A page of the companies granted to the key; with all, which needs integrity:admin, every company of the organization.

        status is active or closed.
        """
        return await self._data("GET", _INTEGRITY + "/companies", query={"all": all or None, "status": status, "limit": limit, "after": after})

    async def companies(self, *, all: bool = False, status: str | None = None, limit: int | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of companies_page, to the end."""
        async for page in _pages(lambda after: self.companies_page(all=all, status=status, limit=limit, after=after)):
            yield page

    async def set_company_status(self, company_id: str, status: str) -> dict[str, Any]:
        """Makes a company closed, or active again. Needs integrity:admin.

        A closed one takes no new reservation or registration (Refused with code
        COMPANY_CLOSED); everything else of it goes on, replays too.
        """
        return await self._data("PATCH", f"{_INTEGRITY}/companies/{_segment(company_id)}", {"status": status})

    async def company_access_page(self, company_id: str, *, limit: int | None = None, after: str | None = None) -> dict[str, Any]:
        """A page of the keys that may use a company, and of those that no longer may. Needs integrity:admin."""
        return await self._data("GET", f"{_INTEGRITY}/companies/{_segment(company_id)}/access", query={"limit": limit, "after": after})

    async def company_access(self, company_id: str, *, limit: int | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of company_access_page, to the end."""
        async for page in _pages(lambda after: self.company_access_page(company_id, limit=limit, after=after)):
            yield page

    async def company_webhooks_page(self, company_id: str, *, limit: int | None = None, after: str | None = None) -> dict[str, Any]:
        """A page of the destinations that hear of a company, and of those that no longer do. Needs integrity:admin."""
        return await self._data("GET", f"{_INTEGRITY}/companies/{_segment(company_id)}/webhooks", query={"limit": limit, "after": after})

    async def company_webhooks(self, company_id: str, *, limit: int | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of company_webhooks_page, to the end."""
        async for page in _pages(lambda after: self.company_webhooks_page(company_id, limit=limit, after=after)):
            yield page

    async def grant_key(self, company_id: str, key_id: str, enabled: bool = True) -> dict[str, Any]:
        """Lets a key use a company, or no longer. Needs integrity:admin."""
        return await self._data("POST", f"{_INTEGRITY}/companies/{_segment(company_id)}/access", {"keyId": key_id, "enabled": enabled})

    async def grant_webhook(self, company_id: str, webhook_id: str, enabled: bool = True) -> dict[str, Any]:
        """Lets a webhook destination get a company's events, or no longer. Needs integrity:admin."""
        return await self._data("POST", f"{_INTEGRITY}/companies/{_segment(company_id)}/webhooks", {"webhookId": webhook_id, "enabled": enabled})

    async def create_webhook(self, url: str, *, description: str | None = None, types: Sequence[str] | None = None) -> dict[str, Any]:
        """Makes a destination, another one with each call; its "secret" is in this answer only.

        It hears of no company until grant_webhook. types are integrity.registered,
        integrity.superseded and integrity.revoked; all where they are not given. Everything
        about destinations needs integrity:admin.
        """
        of = {"url": url, "description": description, "types": None if types is None else list(types)}
        return await self._data("POST", _INTEGRITY + "/webhooks", _given(of))

    async def webhooks(self) -> dict[str, Any]:
        """All destinations, the oldest first."""
        return await self._data("GET", _INTEGRITY + "/webhooks")

    async def webhook(self, webhook_id: str) -> dict[str, Any]:
        """One destination."""
        return await self._data("GET", f"{_INTEGRITY}/webhooks/{_segment(webhook_id)}")

    async def update_webhook(
        self, webhook_id: str, *, url: str | None = None, description: str | None = None, types: Sequence[str] | None = None, enabled: bool | None = None,
    ) -> dict[str, Any]:
        """Changes a destination. Enabling one that was disabled says that it works again."""
        change = {"url": url, "description": description, "types": None if types is None else list(types), "enabled": enabled}
        return await self._data("PATCH", f"{_INTEGRITY}/webhooks/{_segment(webhook_id)}", _given(change))

    async def delete_webhook(self, webhook_id: str) -> dict[str, Any]:
        """Deletes a destination with its authorizations. Webhooks that still wait for it are not sent."""
        return await self._data("DELETE", f"{_INTEGRITY}/webhooks/{_segment(webhook_id)}")

    async def rotate_webhook_secret(self, webhook_id: str, *, overlap_seconds: int | None = None) -> dict[str, Any]:
        """Gives a destination another "secret", in this answer only; both sign for the overlap, by default a day."""
        return await self._data("POST", f"{_INTEGRITY}/webhooks/{_segment(webhook_id)}/secret/rotate", _given({"overlapSeconds": overlap_seconds}))

    async def test_webhook(self, webhook_id: str) -> dict[str, Any]:
        """Queues a delivery that stands for no record; deliveries shows what became of it."""
        return await self._data("POST", f"{_INTEGRITY}/webhooks/{_segment(webhook_id)}/test", {})

    async def deliveries_page(self, webhook_id: str, *, status: str | None = None, limit: int | None = None, after: str | None = None) -> dict[str, Any]:
        """A page of a destination's deliveries, the newest first.

        status is pending, delivered, exhausted, suppressed or cancelled.
        """
        query = {"status": status, "limit": limit, "after": after}
        return await self._data("GET", f"{_INTEGRITY}/webhooks/{_segment(webhook_id)}/deliveries", query=query)

    async def deliveries(self, webhook_id: str, *, status: str | None = None, limit: int | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of deliveries_page, to the end."""
        async for page in _pages(lambda after: self.deliveries_page(webhook_id, status=status, limit=limit, after=after)):
            yield page

    async def redeliver(self, delivery_id: str) -> dict[str, Any]:
        """Begins the attempts of a delivery again, at once."""
        return await self._data("POST", f"{_INTEGRITY}/webhooks/deliveries/{_segment(delivery_id)}/redeliver", {})

    async def replay_webhook(
        self, webhook_id: str, from_sequence: int, *, dry_run: bool, to_sequence: int | None = None, company_reference: str | None = None,
    ) -> dict[str, Any]:
        """Queues what a destination has missed, or with dry_run counts it; the same again queues nothing twice.

        Where nextSequence is set, there are more than 10,000: go on from there.
        """
        of = {"fromSequence": from_sequence, "toSequence": to_sequence, "companyReference": company_reference, "dryRun": dry_run}
        return await self._data("POST", f"{_INTEGRITY}/webhooks/{_segment(webhook_id)}/replay", _given(of))

    async def reserve(self, company_reference: str, source: str, document_reference: str, version: int) -> dict[str, Any]:
        """Reserves the verification link of a version, before its bytes are final.

        Where this fails, emit the document without the link: emission never depends on
        the service. A reservation is no evidence. Needs integrity:write.
        """
        return await self._data("POST", _INTEGRITY + "/reservations", dict(zip(_IDENTITY, (company_reference, source, document_reference, version))))

    async def reservations_page(
        self, company_reference: str, *, status: str | None = None, limit: int | None = None, after: str | None = None,
    ) -> dict[str, Any]:
        """A page of a company's versions that were reserved and are not registered, the earliest to expire first.

        status is pending, expired or released. A page may be empty although hasMore is
        true. Needs integrity:read.
        """
        query = {"companyReference": company_reference, "status": status, "limit": limit, "after": after}
        return await self._data("GET", _INTEGRITY + "/reservations", query=query)

    async def reservations(self, company_reference: str, *, status: str | None = None, limit: int | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of reservations_page, to the end."""
        async for page in _pages(lambda after: self.reservations_page(company_reference, status=status, limit=limit, after=after)):
            yield page

    async def release_reservation(self, public_id: str) -> dict[str, Any]:
        """Gives the place of a pending reservation back; its link stays, and reserving again renews it. Needs integrity:write."""
        return await self._data("DELETE", f"{_INTEGRITY}/reservations/{_segment(public_id)}")

    async def register(self, declaration: Mapping[str, Any]) -> dict[str, Any]:
        """Registers a version; the same declaration again is a replay and consumes nothing.

        After Unanswered, keep the declaration and call reconcile_pending. Needs
        integrity:write.
        """
        return await self._data("POST", _INTEGRITY + "/records", _checked(declaration))

    async def register_batch(self, declarations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Registers 1 to 500 versions in one request, each decided as if sent alone.

        The results are in the order of the declarations: each has status and either data,
        as register answers, or error, with retryAfter where time helps: look at every one.
        Needs integrity:write.
        """
        body = {"declarations": [_checked(declaration) for declaration in declarations]}
        results = (await self._data("POST", _INTEGRITY + "/records/batch", body)).get("results")
        if not isinstance(results, list) or len(results) != len(declarations) or not all(map(_judged, results)):
            raise Unanswered("the answer has not one result for each declaration", outcome_unknown=True)
        return results

    async def lookup(
        self, company_reference: str | None = None, source: str | None = None, document_reference: str | None = None, version: int | None = None, *,
        public_id: str | None = None,
    ) -> dict[str, Any]:
        """The record of a version, or with public_id alone the record of a link. Needs integrity:read.

        Refused with code RECORD_NOT_FOUND if there is no record.
        """
        query = dict(zip(_IDENTITY, (company_reference, source, document_reference, version)))
        return await self._data("GET", _INTEGRITY + "/lookup", query={**query, "publicId": public_id})

    async def record(self, public_id: str) -> dict[str, Any]:
        """The record of a link. Needs integrity:read."""
        return await self._data("GET", f"{_INTEGRITY}/records/{_segment(public_id)}")

    async def records_page(
        self, *, sha256: str | None = None, company_reference: str | None = None, source: str | None = None, document_reference: str | None = None,
        status: str | None = None, received_from: datetime | None = None, received_to: datetime | None = None,
        limit: int | None = None, after: str | None = None,
    ) -> dict[str, Any]:
        """A page of records, the newest first, in the companies granted to the key. Needs integrity:read.

        Either the records of a sha256 or the records of a company, which the others narrow
        down: status is current, superseded or revoked; receivedAt lies at or after the one
        time and before the other, both with time zones. A page may be empty although hasMore is true.
        """
        return await self._data("GET", _INTEGRITY + "/records", query={
            "sha256": sha256, "companyReference": company_reference, "source": source, "documentReference": document_reference, "status": status,
            "receivedFrom": _moment("received_from", received_from), "receivedTo": _moment("received_to", received_to), "limit": limit, "after": after,
        })

    async def records(
        self, *, sha256: str | None = None, company_reference: str | None = None, source: str | None = None, document_reference: str | None = None,
        status: str | None = None, received_from: datetime | None = None, received_to: datetime | None = None, limit: int | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of records_page, to the end."""
        async for page in _pages(lambda after: self.records_page(
            sha256=sha256, company_reference=company_reference, source=source, document_reference=document_reference, status=status,
            received_from=received_from, received_to=received_to, limit=limit, after=after,
        )):
            yield page

    async def evidence(self, public_id: str, *, at: datetime | int | None = None, timestamps: bool = False) -> bytes:
        """The signed evidence of a record, as bytes to be saved as they are. Needs integrity:read.

        With at, a time with a time zone that is at least a minute past or the sequence of an event, it holds the
        state as of then in the place of an observation: history, never the present state.
        With timestamps it holds what timestamp authorities (RFC 3161) signed over checkpoints
        of the transparency log that hold the record, as soon as there is any.
        """
        moment = _moment("at", at) if isinstance(at, datetime) else at
        query = {"at": moment, "timestamps": timestamps or None}
        return await self._signed(f"{_INTEGRITY}/records/{_segment(public_id)}/evidence", query=query)

    async def evidence_of_many(self, public_ids: Sequence[str], *, timestamps: bool = False, wait: int | None = None) -> list[dict[str, Any]]:
        """The evidence of 1 to 100 records, each once, in one request of the minute. Needs integrity:read.

        The results are in the order of the public ids: status, and data, the evidence, or
        error. To keep evidence, save the JSON of data: the signed bytes are its texts.
        INCLUSION_PENDING means that the proof of inclusion may still come: ask again, or with
        wait, 1 to 25 seconds, let the service hold the request open until all proofs are there.
        """
        body = {"publicIds": list(public_ids), "timestamps": timestamps, "wait": wait or 0}
        _, answer = await self._ask("POST", _INTEGRITY + "/records/evidence", body, held=wait or 0, reads=True)
        results = answer["data"].get("results")
        if not isinstance(results, list) or len(results) != len(public_ids) or not all(map(_judged, results)):
            raise Unanswered("the answer has not one result for each record")
        return results

    async def tlog_proof(self, public_id: str, *, wait: int | None = None) -> bytes:
        """The transparency log proof of a record (C2SP tlog-proof), with its references, as bytes to be saved as they are.

        Save them as a file .tlog-proof. INCLUSION_PENDING means that the proof may still come: ask
        again, or with wait, 1 to 25 seconds, let the service hold the request open. Needs integrity:read.
        """
        path = f"{_INTEGRITY}/records/{_segment(public_id)}/tlog-proof"
        return _proof(await self._send("GET", path, None, {"wait": wait or None}, False, False, wait or 0))

    async def report(self, public_id: str, *, language: str | None = None) -> bytes:
        """The evidence report of a record, a PDF for people with the evidence attached. Needs integrity:read.

        language is "es" or "en", the default.
        """
        path = f"{_INTEGRITY}/records/{_segment(public_id)}/report"
        return _report(await self._send("GET", path, None, {"lang": language}, False, False, 0))

    async def revoke(self, public_id: str, reason: str = "") -> dict[str, Any]:
        """Revokes a record for good; again, it is "replayed": true and the first reason stays.

        The reason, at most 500 characters, is kept for the organization's history only.
        Needs integrity:revoke.
        """
        return await self._data("POST", f"{_INTEGRITY}/records/{_segment(public_id)}/revoke", {"reason": reason})

    async def changes_page(self, company_reference: str | None = None, after: int = 0, *, epoch: int | None = None, limit: int | None = None, wait: int | None = None) -> dict[str, Any]:
        """A page of a company's changes after a sequence: events, nextCursor, hasMore, and epoch.

        Without a company it has the changes of all companies of the key, the organization's
        head, and grantedCompanies: those that the key was granted by events of the page.
        Pages read before a grant lack the events of its company; changes() reads them.
        Each event has the declared sha256 of its version, so that you can compare the feed with
        your own documents (a service before November 2026 does not send it).
        With wait, 1 to 25 seconds, an empty page is held open until something happens. Give
        back the epoch of the page that after came from: where the service was restored from
        a backup meanwhile it refuses with CURSOR_AHEAD. It may have lost events that you
        hold, so read again from 0 and deduplicate by id. Needs integrity:read.
        """
        query = {"companyReference": company_reference, "after": after, "epoch": epoch, "limit": limit, "wait": wait}
        _, answer = await self._ask("GET", _INTEGRITY + "/changes", query=query, newest=True, held=wait or 0)
        page, meta = answer["data"], answer.get("meta")
        if not isinstance(meta, dict) or not isinstance(meta.get("epoch"), int):
            raise Unanswered("the answer is not of this service")
        self._written = max(self._written, page["nextCursor"])
        return {**page, "epoch": meta["epoch"]}

    async def changes(self, company_reference: str | None = None, after: int = 0, *, epoch: int | None = None, limit: int | None = None, follow: bool = False) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of changes_page, to the end, or with follow without one, waiting for changes.

        Store the events of a page, its nextCursor and its epoch in one transaction before you
        take the next, and deduplicate by id. After an error go on from the cursor and the
        epoch that you stored.
        """
        wait: int | None = None
        known: int | None = None  # every page since the first event was read with the grants up to this sequence
        while True:
            asked = time.monotonic()
            page = await self.changes_page(company_reference, after, epoch=epoch, limit=limit, wait=wait)
            if known is None:
                known = page.get("head", 0) if after == 0 else 0
            for granted in page.get("grantedCompanies", []):
                if granted["sequence"] > known:
                    async for earlier in self._earlier(granted["companyReference"], after, page["epoch"], limit):
                        yield earlier
            yield page
            after, epoch = page["nextCursor"], page["epoch"]
            if not page["hasMore"] and not follow:
                return
            if wait is not None and not page["events"] and time.monotonic() - asked < 1:
                await asyncio.sleep(_PAUSE)  # a service with too many waiting readers answers at once
            wait = None if page["hasMore"] else _LONG_POLL

    async def _earlier(self, company_reference: str, after: int, epoch: int, limit: int | None) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a company up to a sequence, in pages whose cursor is that sequence."""
        cursor, more = 0, True
        while more and cursor < after:
            try:
                page = await self.changes_page(company_reference, cursor, epoch=epoch, limit=limit)
            except Refused as error:
                if error.code == "COMPANY_NOT_AUTHORIZED":
                    return  # withdrawn since; a page will name another grant
                raise
            cursor, more = page["nextCursor"], page["hasMore"]
            yield {**page, "events": [e for e in page["events"] if e["sequence"] <= after], "nextCursor": after, "hasMore": True}

    async def usage(self) -> dict[str, Any]:
        """The organization's month, with what each company of the key has contributed. Needs integrity:read."""
        return await self._data("GET", _INTEGRITY + "/usage")

    async def usage_entries_page(self, *, period: str | None = None, limit: int | None = None, after: str | None = None) -> dict[str, Any]:
        """A page of what a month ("2026-11"; absent: this one) was charged with. Needs integrity:read."""
        return await self._data("GET", _INTEGRITY + "/usage/entries", query={"period": period, "limit": limit, "after": after})

    async def usage_entries(self, *, period: str | None = None, limit: int | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of usage_entries_page, to the end. All have the throughSequence of the first."""
        first = await self.usage_entries_page(period=period, limit=limit)
        if not isinstance(first.get("period"), str):
            raise Unanswered("the answer is not of this service")
        yield first
        if first["hasMore"]:
            async for page in _pages(lambda after: self.usage_entries_page(period=first["period"], limit=limit, after=after), first["nextCursor"]):
                yield page

    async def organization(self) -> dict[str, Any]:
        """The organization of the key, with its allowance left in this month. Any key may ask."""
        return await self._data("GET", _ORGANIZATION)

    async def api_keys_page(self, *, limit: int | None = None, after: str | None = None) -> dict[str, Any]:
        """A page of the organization's keys, the oldest first, ended ones included, never with their texts.

        This and everything else about keys and members needs organization:admin.
        """
        return await self._data("GET", _ORGANIZATION + "/keys", query={"limit": limit, "after": after})

    async def api_keys(self, *, limit: int | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of api_keys_page, to the end."""
        async for page in _pages(lambda after: self.api_keys_page(limit=limit, after=after)):
            yield page

    async def api_key(self, key_id: str) -> dict[str, Any]:
        """One key, with the companies that it may use."""
        return await self._data("GET", f"{_ORGANIZATION}/keys/{_segment(key_id)}")

    async def create_api_key(
        self, name: str, scopes: Sequence[str], *, expires_at: datetime | None = None, source: str | None = None, networks: Sequence[str] = (),
        max_version_step: int | None = None, companies: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Makes a key of this key's member, another one with each call; its text, "key", is in this answer only.

        companies are references. No key gives more than it has, nor a longer life; without
        expires_at it is a year.
        """
        return await self._data("POST", _ORGANIZATION + "/keys", {
            "name": name, "scopes": list(scopes), "expiresAt": _moment("expires_at", expires_at), "source": source, "networks": list(networks),
            "maxVersionStep": max_version_step, "companies": list(companies),
        })

    async def update_api_key(self, key_id: str, *, name: str | None = None, expires_at: datetime | None = None) -> dict[str, Any]:
        """Gives a key another name, or an earlier end."""
        change = {"name": name, "expiresAt": _moment("expires_at", expires_at)}
        return await self._data("PATCH", f"{_ORGANIZATION}/keys/{_segment(key_id)}", _given(change))

    async def rotate_api_key(
        self, key_id: str, *, overlap_seconds: int | None = None, copy_grants: bool = False, expires_at: datetime | None = None,
    ) -> dict[str, Any]:
        """Makes a successor with the same member, scopes and limits; its text, "key", is in this answer only.

        The former key goes on working for overlap_seconds, by default a day.
        """
        rotation = {"overlapSeconds": overlap_seconds, "copyGrants": copy_grants, "expiresAt": _moment("expires_at", expires_at)}
        return await self._data("POST", f"{_ORGANIZATION}/keys/{_segment(key_id)}/rotate", _given(rotation))

    async def revoke_api_key(self, key_id: str) -> dict[str, Any]:
        """Ends a key for good."""
        return await self._data("DELETE", f"{_ORGANIZATION}/keys/{_segment(key_id)}")

    async def members_page(self, *, limit: int | None = None, after: str | None = None) -> dict[str, Any]:
        """A page of the organization's members, the oldest first, ended memberships included."""
        return await self._data("GET", _ORGANIZATION + "/members", query={"limit": limit, "after": after})

    async def members(self, *, limit: int | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of members_page, to the end."""
        async for page in _pages(lambda after: self.members_page(limit=limit, after=after)):
            yield page

    async def invite_member(self, email: str, role: str) -> dict[str, Any]:
        """Invites an address; again, it makes another link, and the former one works no more.

        invitationUrls is the link where the service does not mail it, in this answer only.
        """
        return await self._data("POST", _ORGANIZATION + "/members", {"email": email, "role": role})

    async def update_member(self, member_id: str, *, role: str | None = None, status: str | None = None) -> dict[str, Any]:
        """Gives a member another role, or makes the status disabled or active."""
        return await self._data("PATCH", f"{_ORGANIZATION}/members/{_segment(member_id)}", _given({"role": role, "status": status}))

    async def end_member(self, member_id: str) -> dict[str, Any]:
        """Ends a membership for good, or withdraws an invitation."""
        return await self._data("DELETE", f"{_ORGANIZATION}/members/{_segment(member_id)}")

    async def compare(self, public_id: str, sha256: str | None = None) -> dict[str, Any]:
        """How a hash relates to a record, asked publicly: no key is sent.

        result is one of the specification's results; accept a file only where verified is
        true. Refused with code RECORD_NOT_FOUND is an unknown link; every other error means
        that it could not be checked, which is not a mismatch.
        """
        path = f"/api/public/integrity/{_segment(public_id)}"
        data = await self._data("GET", path, query={"sha256": sha256}, public=True)
        verified = data.get("verified")
        if data.get("publicId") != public_id or not isinstance(verified, bool) or verified and data.get("result") != "MATCH_CURRENT":
            raise Unanswered("the answer is not about this record")
        return data

    async def compare_bytes(self, public_id: str, content: bytes | Path) -> dict[str, Any]:
        """compare with the bytes of a copy, which are hashed here."""
        return await self.compare(public_id, _hash(content)[0])

    async def receipt(self, public_id: str) -> bytes:
        """The public receipt of a record, as bytes to be saved as they are: no key is sent."""
        return await self._signed(f"/api/public/integrity/{_segment(public_id)}/receipt", public=True)

    async def public_tlog_proof(self, public_id: str) -> bytes:
        """The transparency log proof of a record without its references: no key is sent."""
        return _proof(await self._send("GET", f"/api/public/integrity/{_segment(public_id)}/tlog-proof", None, None, True, False, 0))

    async def public_report(self, public_id: str, *, language: str | None = None) -> bytes:
        """The evidence report of a record without its references and other versions: no key is sent."""
        path = f"/api/public/integrity/{_segment(public_id)}/report"
        return _report(await self._send("GET", path, None, {"lang": language}, True, False, 0))

    async def verify_hash(self, public_id: str, sha256: str) -> dict[str, Any]:
        """Compares a hash with a certificate: accept a file only where verified is true. Needs verify:read."""
        _, answer = await self._ask("POST", "/api/v1/verify", {"publicId": public_id, "sha256": sha256}, reads=True)
        data: dict[str, Any] = answer["data"]
        if data.get("publicId") != public_id or not isinstance(data.get("verified"), bool):
            raise Unanswered("the answer is not about this certificate")
        return data

    async def verify_bytes(self, public_id: str, content: bytes | Path) -> dict[str, Any]:
        """verify_hash with the bytes of a copy, which are hashed here."""
        return await self.verify_hash(public_id, _hash(content)[0])

    async def log_checkpoint(self) -> str:
        """The newest checkpoint of the transparency log, a signed note: no key is sent. verify_integrity checks it."""
        note = await self._log("checkpoint")
        try:
            return note.decode("utf-8")
        except UnicodeDecodeError:
            raise Unanswered("the answer is not of this service") from None

    async def log_timestamps_page(self, after: int = 0) -> dict[str, Any]:
        """A page of tokens (RFC 3161) over checkpoints of trees with more than after leaves: no key is sent.

        They are what somebody sent until they are checked.
        """
        page = _object(await self._log("timestamps", {"after": after}))
        sizes = [stamped.get("treeSize") if isinstance(stamped, dict) else None for stamped in _list(page.get("timestamps"), [None])]
        if not isinstance(page.get("hasMore"), bool) or page["hasMore"] and not sizes or not all(isinstance(size, int) and size > after for size in sizes):
            raise Unanswered("the answer is not of this service")
        return page

    async def log_timestamps(self, after: int = 0) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of log_timestamps_page, to the end."""
        while True:
            page = await self.log_timestamps_page(after)
            yield page
            if not page.get("hasMore"):
                return
            after = page["timestamps"][-1]["treeSize"]

    async def log_tile(self, level: int, n: int, width: int = _TILE) -> bytes:
        """A tile of hashes of the log (C2SP tlog-tiles), 32 bytes each: no key is sent.

        Where the partial tile is no longer kept, the whole one is fetched and cut. The
        hashes are what somebody sent until they are checked against a checkpoint.
        """
        if level < 0 or n < 0 or not 1 <= width <= _TILE:
            raise ValueError("level and n must be at least 0, and width 1 to 256")
        groups = [f"{n % 1000:03d}"]
        while n := n // 1000:
            groups.insert(0, f"x{n % 1000:03d}")
        path = f"tile/{level}/" + "/".join(groups)
        try:
            hashes = await self._log(path if width == _TILE else f"{path}.p/{width}")
        except Refused as error:
            if error.status != 404 or width == _TILE:
                raise
            hashes = (await self._log(path))[: 32 * width]
        if len(hashes) != 32 * width:
            raise Unanswered("the tile has another number of hashes")
        return hashes

    async def _log(self, path: str, query: Mapping[str, Any] | None = None) -> bytes:
        return await self._send("GET", _LOG + path, None, query, True, False, 0)

    async def _data(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None, public: bool = False,
    ) -> dict[str, Any]:
        data: dict[str, Any] = (await self._ask(method, path, body, query, public=public))[1]["data"]
        return data

    async def _signed(self, path: str, query: Mapping[str, Any] | None = None, public: bool = False) -> bytes:
        return (await self._ask("GET", path, query=query, public=public, member="payload", kind=str))[0]

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None, *,
        public: bool = False, newest: bool = False, held: float = 0, member: str = "data", kind: type[Any] = dict, reads: bool = False,
    ) -> tuple[bytes, dict[str, Any]]:
        """One request: the bytes of a success and its object, whose member has that kind.

        public: no key is sent. newest: everything that was committed is to be in the answer.
        held: seconds that the service may hold the request open. reads: it changes nothing,
        whatever its method is.
        """
        try:
            answer = await self._send(method, path, body, query, public, newest, held)
            found = (value := _object(answer)).get(member)
            if not isinstance(found, kind) or not found:
                raise Unanswered("the answer is not of this service")
            if query is not None and "after" in query and not _is_page(found, query["after"]):
                raise Unanswered("the cursor does not move, or the answer is not of this service")
            return answer, value
        except Unanswered as error:
            # A connection that was never made has sent nothing.
            error.outcome_unknown = method != "GET" and not reads and not isinstance(error.__cause__, (httpx.ConnectError, httpx.ConnectTimeout))
            raise

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, Any] | None, public: bool, newest: bool, held: float,
    ) -> bytes:
        content, headers = None, {}
        if not public:
            if self._key is None:
                raise ValueError("api_key must be given: only public questions can be asked without one")
            headers["Authorization"] = f"Bearer {self._key}"
            if method == "GET" and not newest and time.monotonic() < self._session_end:
                headers["Integrity-Read-After"] = str(self._written)
        if path.startswith(_LOG):
            headers["Accept"] = "*/*"
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")
            headers["Content-Type"] = "application/json"
        params = {name: "true" if value is True else str(value) for name, value in (query or {}).items() if value is not None}
        time_left = self._timeout + held
        request = self._http.build_request(
            method, path, content=content, headers=headers, params=params, timeout=time_left, extensions={"trace": _bound_reads},
        )
        try:
            # A task of its own: httpx cancels within its task too, which would confuse a deadline there.
            response, answer = await asyncio.wait_for(asyncio.create_task(self._exchange(request, time_left)), time_left)
        except (httpx.HTTPError, OSError, TimeoutError) as error:  # OSError: for example of a certificate
            raise Unanswered(f"no answer: {type(error).__name__} {error}".rstrip(), retryable=True) from error
        status, retry_after = response.status_code, _seconds(response.headers.get("Retry-After", ""))
        if response.status_code in (200, 201, 202):
            if re.fullmatch("[0-9]{1,16}", sequence := response.headers.get("Integrity-Sequence", "")):
                self._written, self._session_end = max(self._written, int(sequence)), time.monotonic() + _SESSION
            return answer
        if 300 <= status < 400:
            raise Unanswered(f"status {status}: redirects are not followed", status=status)
        try:
            envelope = _object(answer)
        except Unanswered:
            envelope = {}
        refusal, meta = envelope.get("error"), envelope.get("meta")
        request_id = meta.get("requestId") if isinstance(meta, dict) else None
        if not isinstance(refusal, dict) or not isinstance(refusal.get("code"), str):
            raise Unanswered(f"status {status}, and the answer is not of this service", retry_after, status=status, retryable=status >= 500)
        if not 400 <= status < 500:
            raise Unanswered(
                f"status {status} {refusal['code']}: {refusal.get('detail')}", retry_after,
                status=status, code=refusal["code"], request_id=request_id, retryable=refusal.get("retryable") is True,
            )
        raise Refused(status, refusal, retry_after, request_id)

    async def _exchange(self, request: httpx.Request, time_left: float) -> tuple[httpx.Response, bytes]:
        _until.set(time.monotonic() + time_left)
        _left.set(_MAX_HEADERS)
        response = await self._http.send(request, stream=True)
        _left.set(2 * _MAX_ANSWER)  # the framing of chunks included
        try:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise Unanswered("the answer is compressed, which was not asked for")  # a little can unpack to any length
            answer = bytearray()
            async for block in response.aiter_raw():
                answer += block
                if len(answer) > _MAX_ANSWER:
                    raise Unanswered("the answer is too long to be of this service")
            return response, bytes(answer)
        finally:
            await response.aclose()


def final_bytes_declaration(
    content: bytes | Path,
    *,
    company_reference: str,
    source: str,
    document_reference: str,
    version: int,
    mime_type: str,
    generated_at: datetime,
    previous_version: int | None = None,
    reservation_id: str | None = None,
) -> dict[str, Any]:
    """Makes the declaration of a finished file from its very bytes.

    Nothing may change the file afterwards. generated_at is yours to declare; it needs
    a time zone. The result is plain JSON: save it with the file and send it as it is,
    however often.
    """
    if generated_at.tzinfo is None:
        raise ValueError("generated_at must have a time zone")
    try:
        generated = generated_at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise ValueError("generated_at: must lie in the years 1 to 9999 of UTC") from None
    sha256, size = _hash(content)
    declaration: dict[str, Any] = {
        "companyReference": company_reference, "source": source, "documentReference": document_reference, "version": version,
        "previousVersion": previous_version, "sha256": sha256, "sizeBytes": size, "mimeType": mime_type,
        "generatedAt": generated,
    }
    if reservation_id is not None:
        declaration["reservationId"] = reservation_id
    return declaration


async def reconcile_pending(client: IntegrityClient, declaration: Mapping[str, Any]) -> dict[str, Any]:
    """Settles a registration whose outcome is not known, with the exact saved declaration.

    Looks the version up, so that a service that is away or a key without access is
    told before anything is sent; then replays the declaration, which decides: a
    version that had been registered comes back with "replayed": true and costs nothing,
    another is registered now, and a different declaration of the same version is
    Refused with code VERSION_CONFLICT. Never make another document or declaration
    instead. After Unanswered, call it again later.
    """
    try:
        await client.lookup(*(declaration[name] for name in _IDENTITY))
    except Refused as error:
        if error.code != "RECORD_NOT_FOUND":
            raise
    return await client.register(declaration)


# The number of bytes that the exchange of this task may still read.
_left: ContextVar[int] = ContextVar("_left")
_until: ContextVar[float] = ContextVar("_until")


async def _bound_reads(event: str, info: Mapping[str, Any]) -> None:
    """Bounds the reads of a new connection: a trace of httpcore, which hands out its stream here alone."""
    if event not in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
        return
    stream = info["return_value"]
    unbounded = stream.read

    async def read(max_bytes: int, timeout: float | None = None) -> bytes:
        block: bytes = await unbounded(max_bytes, timeout)
        if time.monotonic() > _until.get():
            raise TimeoutError  # a cancellation may get lost in httpx, and such a peer would be read without end
        _left.set(_left.get() - len(block))
        if _left.get() < 0:
            raise Unanswered("the answer is too long to be of this service")
        return block

    stream.read = read


def _seconds(retry_after: str) -> int | None:
    """Both forms of Retry-After (RFC 9110, section 10.2.3)."""
    if re.fullmatch("[0-9]{1,9}", retry_after):
        return int(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
    except (ValueError, TypeError, OverflowError):
        return None
    if at.tzinfo is None:
        return None
    return max(0, math.ceil((at - datetime.now(timezone.utc)).total_seconds()))


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def _moment(name: str, at: datetime | None) -> str | None:
    """A time as a query says it."""
    if at is None:
        return None
    if at.utcoffset() is None:
        raise ValueError(f"{name} must be a time with a time zone")
    return at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _hash(content: bytes | Path) -> tuple[str, int]:
    """The SHA-256 and the size of bytes, or of a file, which is read piece by piece."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest(), len(content)
    digest, size = hashlib.sha256(), 0
    # A pipe would be waited for without end, already by opening it.
    with open(os.open(content, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("content must be bytes or a regular file")
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


def _checked(declaration: Mapping[str, Any]) -> Mapping[str, Any]:
    """The declaration, where it has no other members: nothing else may be sent anywhere."""
    if unknown := sorted(set(declaration) - _DECLARATION):
        raise ValueError(f"declaration: there is no member {unknown[0]}")
    return declaration


def _list(value: Any, other: Sequence[Any] = ()) -> Sequence[Any]:
    """The value if it is a list, otherwise the other."""
    return value if isinstance(value, list) else other


def _judged(result: Any) -> bool:
    """Whether this is the result of one item of a request."""
    return isinstance(result, dict) and isinstance(result.get("status"), int) and any(isinstance(result.get(name), dict) for name in ("data", "error"))


def _is_page(data: Mapping[str, Any], after: int | str | None) -> bool:
    """Whether this is a page that follows a cursor: a list of objects, and a cursor that moves."""
    more, cursor = data.get("hasMore"), data.get("nextCursor")
    lists = [value for value in data.values() if isinstance(value, list) and all(isinstance(item, dict) for item in value)]
    if not isinstance(more, bool) or not lists:
        return False
    if isinstance(after, int):  # the feed: a cursor that stands would hand out the same events without end
        events = data.get("events")
        if not isinstance(events, list) or not all(isinstance(event, dict) for event in events) or not isinstance(cursor, int):
            return False
        return cursor > after if more or events else cursor >= after
    return not more or isinstance(cursor, str) and cursor.isprintable() and cursor not in ("", after)


async def _pages(ask: Callable[[str | None], Awaitable[dict[str, Any]]], after: str | None = None) -> AsyncGenerator[dict[str, Any], None]:
    """Page after page, to the end; not in a circle."""
    mark = after  # Brent's algorithm: a circle comes back to a mark, which is set ever more rarely
    for n in itertools.count(1):
        page = await ask(after)
        yield page
        if not page.get("hasMore"):
            return
        after = page["nextCursor"]
        if after == mark:
            raise Unanswered("the cursors repeat: the answer is not of this service")
        if n & (n - 1) == 0:
            mark = after


def _origin(base_url: str) -> str:
    """Accepts https://host[:port], and http to a loopback address."""
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False  # a name
    extra = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
    if not host or extra or parts.scheme not in ("https", "http"):
        raise ValueError("base_url must be an origin such as https://ledger.example, without /api/v1, user or query")
    if parts.scheme == "http" and not loopback:
        raise ValueError("base_url must be https; http is for this computer's own addresses alone")
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + (f":{port}" if port is not None else "")


def _segment(text: str) -> str:
    """One segment of a path, whatever the text is."""
    if text in ("", ".", ".."):
        raise ValueError("the id must be one of the service")
    return quote(text, safe="")


def _proof(answer: bytes) -> bytes:
    """A transparency log proof, of which nothing but the first line was looked at."""
    if not answer.startswith(b"c2sp.org/tlog-proof@v1\n"):
        raise Unanswered("the answer is not of this service")
    return answer


def _report(answer: bytes) -> bytes:
    """An evidence report, of which nothing but the first bytes was looked at."""
    if not answer.startswith(b"%PDF-"):
        raise Unanswered("the answer is not of this service")
    return answer


def _object(answer: bytes) -> dict[str, Any]:
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Unanswered("the answer is not of this service")
    return value
