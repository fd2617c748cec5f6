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

The file stays where it is: its hash, size, media type and times are sent, nothing
else. HTTPS only, but for http to this computer itself; no redirects are followed,
no proxy or other setting of the environment is read, every request ends within a
bounded time. Nothing is ever sent twice unless you ask for it: repeat after a
Refused whose retryable is true, when its retry_after seconds have passed, and
reconcile after an Unanswered.

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
import json
import re
import ssl
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote, urlsplit

try:
    import httpx
except ImportError as missing:
    raise ImportError(f"integrity_client needs the package httpx ({missing}); install it, for example with python3 -m pip install httpx") from missing

__all__ = ["IntegrityClient", "IntegrityError", "Refused", "Unanswered", "final_bytes_declaration", "reconcile_pending"]

_MAX_ANSWER: Final = 1 << 20
_SESSION: Final = 10.0  # seconds after a write
_IDENTITY: Final = ("companyReference", "source", "documentReference", "version")
_DECLARATION: Final = frozenset({*_IDENTITY, "previousVersion", "sha256", "sizeBytes", "mimeType", "generatedAt", "reservationId"})


class IntegrityError(Exception):
    """What went wrong with a request."""


class Refused(IntegrityError):
    """The service said no, and changed nothing.

    401, 403, 404, 409 and 422 need a correction, not a repetition. retryable is
    true of 408 and 429, after retry_after seconds, but not of a limit that does not pass with
    time (COMPANY_LIMIT, WEBHOOK_LIMIT, UNFINALIZED_IDENTITY_LIMIT).
    """

    def __init__(self, status: int, error: Mapping[str, Any], retry_after: int | None, request_id: str | None) -> None:
        self.status = status
        self.code = str(error.get("code"))  # stable: see {base_url}/errors/<code in kebab case>
        self.detail = str(error.get("detail"))
        self.fields: list[dict[str, str]] = list(error.get("errors") or [])  # each {pointer, code, message}
        self.retryable = error.get("retryable") is True
        self.retry_after = retry_after
        self.request_id = request_id
        fields = "".join(f"; {f.get('pointer')}: {f.get('message')}" for f in self.fields)
        super().__init__(f"{status} {self.code}: {self.detail}{fields}")


class Unanswered(IntegrityError):
    """There was no usable answer: no connection, no time left, 5xx or a redirect.

    A write may have happened or not: see reconcile_pending. It says nothing about
    any document.
    """

    def __init__(self, message: str, retry_after: int | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class IntegrityClient:
    """Speaks to one service with one API key; for concurrent use in one event loop.

    base_url is the origin, without /api/v1. timeout bounds a whole request, in
    seconds. ssl_context is for a private authority; it must verify certificates.

    A lookup shows everything that was committed before it. Within ten seconds of a
    write of the same client a read replica of the service may answer, which then has
    at least what the client has written.
    """

    def __init__(self, base_url: str, api_key: str, *, timeout: float = 30.0, ssl_context: ssl.SSLContext | None = None) -> None:
        if re.fullmatch("[!-~]+", api_key) is None:
            raise ValueError("api_key must be the text of a key, without spaces or line breaks")
        if not 0 < timeout <= 300:
            raise ValueError("timeout must be more than 0 and at most 300 seconds")
        if ssl_context is not None and (ssl_context.verify_mode != ssl.CERT_REQUIRED or not ssl_context.check_hostname):
            raise ValueError("ssl_context must be one that verifies certificates and names")
        self._timeout = timeout
        self._written, self._session_end = 0, 0.0  # the highest Integrity-Sequence of a write, and until when it is named
        self._http = httpx.AsyncClient(
            base_url=_origin(base_url), headers={"Authorization": f"Bearer {api_key}", "Accept": "application/json", "Accept-Encoding": "identity"},
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
        return await self._data("POST", "/companies", {"reference": reference})

    async def grant_key(self, company_id: str, key_id: str, enabled: bool = True) -> dict[str, Any]:
        """Lets a key use a company, or no longer. Needs integrity:admin."""
        return await self._data("POST", f"/companies/{_segment(company_id)}/access", {"keyId": key_id, "enabled": enabled})

    async def grant_webhook(self, company_id: str, webhook_id: str, enabled: bool = True) -> dict[str, Any]:
        """Lets a webhook destination get a company's events, or no longer. Needs integrity:admin."""
        return await self._data("POST", f"/companies/{_segment(company_id)}/webhooks", {"webhookId": webhook_id, "enabled": enabled})

    async def reserve(self, company_reference: str, source: str, document_reference: str, version: int) -> dict[str, Any]:
        """Reserves the verification link of a version, before its bytes are final.

        Where this fails, emit the document without the link: emission never depends on
        the service. A reservation is no evidence. Needs integrity:write.
        """
        return await self._data("POST", "/reservations", dict(zip(_IDENTITY, (company_reference, source, document_reference, version))))

    async def register(self, declaration: Mapping[str, Any]) -> dict[str, Any]:
        """Registers a version; the same declaration again is a replay and consumes nothing.

        After Unanswered, keep the declaration and call reconcile_pending. Needs
        integrity:write.
        """
        if unknown := sorted(set(declaration) - _DECLARATION):
            raise ValueError(f"declaration: there is no member {unknown[0]}")  # nor is it sent anywhere
        return await self._data("POST", "/records", declaration)

    async def lookup(self, company_reference: str, source: str, document_reference: str, version: int) -> dict[str, Any]:
        """The record of a version; Refused with code RECORD_NOT_FOUND where the version has no record. Needs integrity:read."""
        return await self._data("GET", "/lookup", query=dict(zip(_IDENTITY, (company_reference, source, document_reference, str(version)))))

    async def evidence(self, public_id: str, *, at: datetime | int | None = None) -> bytes:
        """The signed evidence of a record, as bytes to be saved as they are. Needs integrity:read.

        With at, a time with a time zone that is at least a minute past or the sequence of an event, it holds the
        state as of then in the place of an observation: history, never the present state.
        """
        if isinstance(at, datetime) and at.utcoffset() is None:
            raise ValueError("at must be a time with a time zone")
        moment = at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z") if isinstance(at, datetime) else str(at)
        answer = await self._send("GET", f"/records/{_segment(public_id)}/evidence", query=None if at is None else {"at": moment})
        if not isinstance(_object(answer).get("payload"), str):
            raise Unanswered("the answer is not of this service")
        return answer

    async def _data(self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        data = _object(await self._send(method, path, body, query)).get("data")
        if not isinstance(data, dict):
            raise Unanswered("the answer is not of this service")
        return data

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None) -> bytes:
        content, headers = None, {}
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")
            headers["Content-Type"] = "application/json"
        elif time.monotonic() < self._session_end:
            headers["Integrity-Read-After"] = str(self._written)
        request = self._http.build_request(method, "/api/v1/integrity" + path, content=content, headers=headers, params=query)
        try:
            # A task of its own: httpx cancels within its task too, which would confuse a deadline there.
            response, answer = await asyncio.wait_for(asyncio.create_task(self._exchange(request)), self._timeout)
        except (httpx.HTTPError, OSError, TimeoutError) as error:  # OSError: that of a certificate, among others
            raise Unanswered(f"no answer: {type(error).__name__} {error}".rstrip()) from error
        wait = response.headers.get("Retry-After", "")
        retry_after = int(wait) if re.fullmatch("[0-9]{1,9}", wait) else None
        if response.status_code in (200, 201):
            if re.fullmatch("[0-9]{1,16}", sequence := response.headers.get("Integrity-Sequence", "")):
                self._written, self._session_end = max(self._written, int(sequence)), time.monotonic() + _SESSION
            return answer
        if not 400 <= response.status_code < 500:
            raise Unanswered(f"status {response.status_code}", retry_after)
        envelope = _object(answer)
        refusal, meta = envelope.get("error"), envelope.get("meta")
        if not isinstance(refusal, dict):
            raise Unanswered(f"status {response.status_code}, and the answer is not of this service")
        raise Refused(response.status_code, refusal, retry_after, meta.get("requestId") if isinstance(meta, dict) else None)

    async def _exchange(self, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        response = await self._http.send(request, stream=True)
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
    digest, size = hashlib.sha256(), 0
    if isinstance(content, bytes):
        digest.update(content)
        size = len(content)
    else:
        with content.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                size += len(block)
    declaration: dict[str, Any] = {
        "companyReference": company_reference, "source": source, "documentReference": document_reference, "version": version,
        "previousVersion": previous_version, "sha256": digest.hexdigest(), "sizeBytes": size, "mimeType": mime_type,
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


def _object(answer: bytes) -> dict[str, Any]:
    try:
        value = json.loads(answer)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Unanswered("the answer is not of this service")
    return value
