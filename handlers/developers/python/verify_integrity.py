#!/usr/bin/env python3
"""Verifies a receipt of Integrity Ledger offline.

    python3 verify_integrity.py RECEIPT TRUSTED_KEYS [DOCUMENT]

RECEIPT is evidence saved from the service, a public receipt, or a downloaded
certificate of the certification API. TRUSTED_KEYS is
a trusted-keys file that you obtained and pinned through a channel you trust: a
key inside a receipt proves nothing. DOCUMENT is compared by its SHA-256. A proof
that the transparency log holds the record is checked where the file has logKeys.

Exit code 0: everything supplied and required holds. 1: something does not, the
document differs, or the record had been revoked. 2: it could not be checked.
A version that a later one has replaced exits 0 and is called historical.

No network is used, so nothing is said about what is current now. From a program,
call verify_receipt; with both saved schemas it validates them as well.

Needs Python 3.11 and the package cryptography; jsonschema for the schemas only.
This is an implementation of its own, not a translation of the service's.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import dataclasses
import hashlib
import importlib
import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, NoReturn

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
except ImportError as missing:
    if __name__ != "__main__":
        raise
    # A command that cannot check exits 2: 1 would say that the receipt is not valid.
    print(
        f"verify_integrity: the package cryptography is needed and could not be loaded ({missing}); install it, for example with "
        "python3 -m pip install cryptography",
        file=sys.stderr,
    )
    sys.exit(2)

__all__ = ["CannotCheck", "Findings", "TrustedKeys", "limits", "parse_trusted_keys", "verify_receipt"]

VALID: Final = "valid"
INVALID: Final = "invalid"
UNTRUSTED: Final = "untrusted"
NOT_SUPPLIED: Final = "not-supplied"
NOT_CHECKED: Final = "not-checked"

_MAX_RECEIPT: Final = 64 * 1024
_MAX_TRUSTED: Final = 1024 * 1024
_MAX_DEPTH: Final = 8
_MAX_SHOWN: Final = 200  # characters of a name that a message repeats
_MAX_INTEGER: Final = 2**53 - 1  # what a double holds exactly
_MAX_VERSION: Final = 2**31 - 1
_CLOCK_TOLERANCE: Final = timedelta(seconds=300)
# The order L of the group (RFC 8032, section 5.1): S of a signature is below it.
_GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493

_HASH: Final = re.compile("[a-f0-9]{64}")
_PUBLIC_ID: Final = re.compile("[a-z2-7]{26}")
_ISSUER: Final = re.compile("[^\x00-\x1f\x7f]{1,512}")
_PUBLISHED: Final = re.compile("[^\x00-\x1f\x7f]{1,200}")
_MEDIA_TYPE: Final = re.compile("[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")  # RFC 6838, section 4.2
_REFERENCE: Final = re.compile("[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_LOG_NAME: Final = re.compile("[!-*,-~]{1,512}")
_EVENT_ID: Final = re.compile("evt_[0-7][0-9a-hjkmnp-tv-z]{25}")  # a TypeID
_TREE_SIZE: Final = re.compile("0|[1-9][0-9]{0,15}")
# Unicode's White_Space, which C2SP signed-note keeps out of names, spelled out.
_NOTE_SIGNATURE: Final = re.compile("— ([^+ \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+) ([A-Za-z0-9+/]+=*)")
_NOTE_CONTROL: Final = re.compile("[\x00-\x09\x0b-\x1f]")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)


class CannotCheck(Exception):
    """Nothing was verified: the trusted keys or an argument cannot be used."""


class _Refused(Exception):
    """A part of the receipt does not hold; the text says why."""


# --- JSON, as strict as evidence has to be --------------------------------------


def _parse(data: bytes) -> Any:
    """Reads exactly one JSON value.

    Refuses what is not UTF-8, a byte order mark, nesting deeper than 8, duplicate
    members, lone surrogates, U+0000, and every number but plain integers within 2^53-1.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Refused(f"the text is not UTF-8 (at byte {error.start})") from None
    if text.startswith("\ufeff"):
        raise _Refused("the text begins with a byte order mark")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_float=_no_number, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise _Refused(f"the text is not one JSON value: {error}") from None
    except RecursionError:
        raise _Refused(f"nested deeper than {_MAX_DEPTH}") from None
    _check_tree(value, 0)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise _Refused(f"the member {name[:_MAX_SHOWN]!r} appears more than once")
        members[name] = value
    return members


def _integer(digits: str) -> int:
    if digits == "-0" or len(digits) > 17 or abs(int(digits)) > _MAX_INTEGER:
        raise _Refused("an integer must be within 2^53-1 and not minus zero")
    return int(digits)


def _no_number(text: str) -> NoReturn:
    raise _Refused(f"an integer must be in plain digits, not {text[:20]}")


def _check_tree(value: Any, depth: int) -> None:
    if isinstance(value, str):
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise _Refused("a lone surrogate stands for no character")
        if "\0" in value:
            raise _Refused("a string must have no U+0000")
    elif isinstance(value, (dict, list)):
        if depth == _MAX_DEPTH:
            raise _Refused(f"nested deeper than {_MAX_DEPTH}")
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_tree(item, depth + 1)


def _canonical(value: Any) -> str:
    """The RFC 8785 form of strings, integers and objects, all that is ever signed."""
    if isinstance(value, str):
        # json escapes what section 3.2.2.2 escapes, and in the same spelling.
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        names: list[str] = sorted(value, key=_utf16)
        return "{" + ",".join(_canonical(name) + ":" + _canonical(value[name]) for name in names) + "}"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise _Refused("only strings, integers and objects are signed")


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be")


# --- Members --------------------------------------------------------------------


def _members(value: Any, what: str, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """A closed object: names are compared exactly, upper and lower case differ."""
    if not isinstance(value, dict):
        raise _Refused(f"{what} must be an object")
    if missing := [name for name in required if name not in value]:
        raise _Refused(f"{what}: {', '.join(missing)} missing")
    known = {*required, *optional}
    if unknown := [name for name in value if name not in known]:
        raise _Refused(f"{what}: there is no member {unknown[0][:_MAX_SHOWN]!r}")
    return value


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise _Refused(f"{what} must be a string")
    return value


def _whole(value: Any, what: str, least: int, most: int = _MAX_INTEGER) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _Refused(f"{what} must be an integer from {least} to {most}")
    return value


def _match(value: Any, what: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(_string(value, what)):
        raise _Refused(f"{what} must have the form that is documented")
    return str(value)


def _constant(value: Any, what: str, expected: str) -> None:
    if value != expected:
        raise _Refused(f"{what} must be {expected}")


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise _Refused(f"{what} must be an array")
    return value


def _decode(text: str, size: int, what: str) -> bytes:
    """Reads base64url without padding, in its one spelling, of exactly size bytes."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != size or base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii") != text:
        raise _Refused(f"{what} must be {size} bytes, in the one spelling of base64url")
    return raw


def _decode_standard(text: str, what: str) -> bytes:
    """Reads base64 with the alphabet of RFC 4648, section 4, in its one spelling."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not raw or base64.b64encode(raw).decode("ascii") != text:
        raise _Refused(f"{what} must be in the one spelling of base64")
    return raw


def _timestamp(value: Any, what: str) -> datetime:
    """Reads date, T, time, at most 9 digits of fraction, Z or an offset; cut to microseconds."""
    match = _TIMESTAMP.fullmatch(_string(value, what))
    if match is None:
        raise _Refused(f"{what} must be a timestamp such as 2026-11-20T14:03:00Z")
    fraction, sign, hours, minutes = match[7] or "", match[8], int(match[9] or 0), int(match[10] or 0)
    try:
        year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
        # Only the year in UTC counts, and datetime has no year 0: the year 400 has the same days.
        instant = datetime(year or 400, month, day, hour, minute, second, int(f"{fraction:0<6}"[:6]), timezone.utc)
        if hours > 23 or minutes > 59:
            raise ValueError
        offset = timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1)
        return instant - offset - (timedelta(0) if year else timedelta(days=146_097))
    except (ValueError, OverflowError):
        raise _Refused(f"{what} must be a real date and time of the years 1 to 9999") from None


def _normal_timestamp(value: Any, what: str, digits: int) -> datetime:
    """A timestamp in UTC with Z, of at most so many digits of fraction, the last one not zero."""
    instant = _timestamp(value, what)
    _, _, fraction = value[:-1].partition(".")
    if not value.endswith("Z") or len(fraction) > digits or fraction.endswith("0"):
        raise _Refused(f"{what} must be in UTC with Z and at most {digits} digits of fraction without zeros at the end")
    return instant


# --- Trusted keys ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Key:
    key_id: str
    raw: bytes
    fingerprint: str
    retired: bool = False

    @property
    def jwk(self) -> dict[str, str]:
        return {"kty": "OKP", "crv": "Ed25519", "x": _base64url(self.raw)}


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


@dataclasses.dataclass(frozen=True)
class _LogKey:
    name: str  # the origin of the checkpoints that it signs
    key_hash: bytes
    raw: bytes


@dataclasses.dataclass(frozen=True)
class TrustedKeys:
    """A pinned set of keys, made by parse_trusted_keys."""

    _keys: Mapping[str, _Key]
    _barred: frozenset[str]  # keyIds and fingerprints of revoked keys
    _log_keys: Mapping[tuple[str, bytes], _LogKey]  # by name and key hash

    def _lookup(self, key_id: str) -> _Key:
        """The pinned key of that name, or _Untrusted."""
        key = self._keys.get(key_id)
        if key is None:
            raise _Untrusted("the key is not among the trusted keys")
        if key.key_id in self._barred or key.fingerprint in self._barred:
            raise _Untrusted("the key has been revoked")
        return key


class _Untrusted(_Refused):
    """The key is not pinned, or it is revoked."""


def parse_trusted_keys(file: bytes) -> TrustedKeys:
    """Reads a trusted-keys file, or the bare array of its keys.

    One fault refuses the file whole (CannotCheck): a member that is unknown or given
    twice, a repeated keyId, a JWK other than exactly kty, crv and x, a keyId or
    fingerprint that does not belong to the key, a log key whose name or keyHash does
    not, or that is a signing key too.
    """
    try:
        return _parse_trusted_keys(file)
    except _Refused as error:
        raise CannotCheck(f"trusted keys: {error}") from None


def _parse_trusted_keys(file: bytes) -> TrustedKeys:
    if len(file) > _MAX_TRUSTED:
        raise _Refused(f"the file must have at most {_MAX_TRUSTED} bytes")
    value = _parse(file)
    if isinstance(value, list):
        value = {"keys": value}
    _members(value, "the file", ["keys"], ["keyStatus", "revokedKeys", "logKeys"])
    log_entries = _list(value.get("logKeys", []), "logKeys")

    keys: dict[str, _Key] = {}
    for i, entry in enumerate(_list(value["keys"], "keys")):
        key = _trusted_key(entry, f"key {i}")
        if key.key_id in keys:
            raise _Refused(f"key {i}: its keyId is repeated")
        keys[key.key_id] = key

    revoked: set[str] = set()
    barred: set[str] = set()
    for i, entry in enumerate(_list(value.get("revokedKeys", []), "revokedKeys")):
        what = f"revoked key {i}"
        _members(entry, what, ["keyId", "fingerprintSha256", "reason", "since"])
        _decode(_string(entry["keyId"], what), 32, f"{what}, keyId")
        _match(entry["fingerprintSha256"], f"{what}, fingerprintSha256", _HASH)
        if entry["reason"] not in ("compromised", "revoked"):
            raise _Refused(f"{what} must have the reason compromised or revoked")
        _timestamp(entry["since"], f"{what}, since")
        if entry["keyId"] in revoked:
            raise _Refused(f"{what}: its keyId is repeated")
        revoked.add(entry["keyId"])
        barred |= {entry["keyId"], entry["fingerprintSha256"]}

    statuses = value.get("keyStatus", {})
    for key_id, entry in _members(statuses, "keyStatus", [], [*keys, *revoked]).items():
        what = f"keyStatus of {key_id}"
        _members(entry, what, ["status", "since"])
        if entry["status"] not in ("active", "retired"):
            raise _Refused(f"{what} must be active or retired")
        _timestamp(entry["since"], f"{what}, since")
        if key_id in keys:
            keys[key_id] = dataclasses.replace(keys[key_id], retired=entry["status"] == "retired")
    return TrustedKeys(keys, frozenset(barred), _read_log_keys(log_entries, {*keys, *barred}))


def _trusted_key(entry: Any, what: str) -> _Key:
    _members(entry, what, ["keyId", "publicKeyJwk", "fingerprintSha256"])
    jwk = _members(entry["publicKeyJwk"], f"{what}, publicKeyJwk", ["kty", "crv", "x"])
    _constant(jwk["kty"], f"{what}, kty", "OKP")
    _constant(jwk["crv"], f"{what}, crv", "Ed25519")
    raw = _decode(_string(jwk["x"], what), 32, f"{what}, x")
    key_id, fingerprint = _key_names(raw)
    if entry["keyId"] != key_id or entry["fingerprintSha256"] != fingerprint:
        raise _Refused(f"{what}: keyId or fingerprintSha256 does not belong to the key")
    return _Key(key_id, raw, fingerprint)


def _key_names(raw: bytes) -> tuple[str, str]:
    """The keyId (RFC 7638) and the fingerprint of an Ed25519 key."""
    key_id = hashlib.sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{_base64url(raw)}"}}'.encode("ascii")).digest()
    spki = bytes.fromhex("302a300506032b6570032100") + raw  # RFC 8410
    return _base64url(key_id), hashlib.sha256(spki).hexdigest()


def _read_log_keys(entries: list[Any], signing: set[str]) -> dict[tuple[str, bytes], _LogKey]:
    """Reads logKeys; signing are the names of keys that sign or signed records."""
    keys: dict[tuple[str, bytes], _LogKey] = {}
    for i, entry in enumerate(entries):
        what = f"log key {i}"
        _members(entry, what, ["name", "keyHash", "verifierKey"])
        name, written = _match(entry["name"], f"{what}, name", _LOG_NAME), _string(entry["verifierKey"], what)
        # C2SP signed-note: <name>+<key hash>+<base64 of the type 1 and the key>.
        typed = _decode_standard(written.split("+", 2)[-1], f"{what}, verifierKey")
        key_hash = hashlib.sha256(name.encode("ascii") + b"\n" + typed).digest()[:4]
        if len(typed) != 33 or typed[0] != 1 or written != f"{name}+{key_hash.hex()}+{base64.b64encode(typed).decode('ascii')}":
            raise _Refused(f"{what} must be the verifier key of a signed note, of type Ed25519 and with its own name and hash")
        if entry["keyHash"] != key_hash.hex():
            raise _Refused(f"{what}: keyHash does not belong to verifierKey")
        if (name, key_hash) in keys:
            raise _Refused(f"{what}: it is repeated")
        if not signing.isdisjoint(_key_names(typed[1:])):
            raise _Refused(f"{what}: it is the same key as one that signs or signed records")
        keys[name, key_hash] = _LogKey(name, key_hash, typed[1:])
    return keys


# --- Signed parts ---------------------------------------------------------------

_SIGNED: Final = ["payload", "signature", "keyId", "publicKeyJwk", "fingerprintSha256"]


def _read_signed(value: dict[str, Any], what: str) -> None:
    for name in ("payload", "signature", "keyId", "fingerprintSha256"):
        _string(value[name], f"{what}, {name}")
    jwk = _members(value["publicKeyJwk"], f"{what}, publicKeyJwk", ["kty", "crv", "x"])
    for name, text in jwk.items():
        _string(text, f"{what}, {name}")


def _read_receipt(receipt: bytes) -> dict[str, Any]:
    """Reads the envelope: its shape only, no signature and no payload.

    What has no member contract is a certificate: the signed members and nothing else.
    """
    if len(receipt) > _MAX_RECEIPT:
        raise _Refused(f"the file must have at most {_MAX_RECEIPT} bytes")
    value = _parse(receipt)
    if isinstance(value, dict) and "contract" not in value:
        certificate = _members(value, "certificate", _SIGNED)
        _read_signed(certificate, "certificate")
        return certificate
    envelope = _members(value, "receipt", ["contract", *_SIGNED], ["references", "statusObservation", "statusAsOf", "inclusion"])
    _constant(envelope["contract"], "contract", "integrity-evidence-v1")
    _read_signed(envelope, "receipt")
    if "references" in envelope:
        names = ["companyReference", "source", "documentReference", "version", "salt"]
        references = _members(envelope["references"], "references", names)
        for name in names:
            if name == "version":
                _whole(references[name], name, -_MAX_INTEGER)
            else:
                _string(references[name], name)
    if "statusObservation" in envelope:
        _read_signed(_members(envelope["statusObservation"], "statusObservation", _SIGNED), "statusObservation")
    if "statusAsOf" in envelope:
        _read_signed(_members(envelope["statusAsOf"], "statusAsOf", _SIGNED), "statusAsOf")
    if "inclusion" in envelope:
        inclusion = _members(envelope["inclusion"], "inclusion", ["leaf", "leafIndex", "treeSize", "hashes", "checkpoint"])
        _whole(inclusion["leafIndex"], "leafIndex", 0)
        _whole(inclusion["treeSize"], "treeSize", 1)
        for text in [inclusion["leaf"], inclusion["checkpoint"], *_list(inclusion["hashes"], "hashes")]:
            _string(text, "inclusion")
    return envelope


def _check_ed25519(key: bytes, signature: bytes, text: bytes, refusal: str) -> None:
    if len(signature) != 64 or int.from_bytes(signature[32:], "little") >= _GROUP_ORDER:
        raise _Refused(refusal)
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise _Refused(refusal) from None


def _check_signature(signed: Mapping[str, Any], trusted: TrustedKeys) -> _Key:
    """Checks an Ed25519 signature over the bytes of payload under a pinned key."""
    signature = _decode(signed["signature"], 64, "signature")
    key = trusted._lookup(signed["keyId"])
    _check_ed25519(key.raw, signature, signed["payload"].encode("utf-8"), "the signature does not belong to the payload")
    if signed["publicKeyJwk"] != key.jwk or signed["fingerprintSha256"] != key.fingerprint:
        raise _Refused("the receipt's key differs from the trusted key of the same keyId")
    return key


def _read_payload(
    text: str, contract: str, names: Sequence[str], schema: Mapping[str, Any] | None, optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Reads signed text: a closed object of one contract in its canonical form."""
    payload = _parse(text.encode("utf-8"))
    if not isinstance(payload, dict) or payload.get("contract") != contract:
        raise _Refused(f"payload must be of contract {contract} in this place")
    _members(payload, "payload", names, optional)
    if schema is not None:
        _validate(payload, schema)
    if _canonical(payload) != text:
        raise _Refused("payload: the text is not in the canonical form of RFC 8785")
    return payload


def _read_record(text: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    p = _read_payload(text, "integrity-v1", [
        "algorithm", "contract", "generatedAt", "issuer", "mimeType", "publicId", "receivedAt", "referencesSha256", "sha256", "sizeBytes", "timeSource",
    ], schema)
    _check_attested(p)
    _match(p["referencesSha256"], "referencesSha256", _HASH)
    _match(p["mimeType"], "mimeType", _MEDIA_TYPE)
    _normal_timestamp(p["generatedAt"], "generatedAt", 9)
    _normal_timestamp(p["receivedAt"], "receivedAt", 6)
    return p


def _read_certificate(text: str) -> dict[str, Any]:
    optional = ("title", "organizationName")
    p = _read_payload(text, "certificate-v1", [
        "algorithm", "contract", "issuedAt", "issuer", "publicId", "sha256", "sizeBytes", "timeSource",
    ], None, optional)
    _check_attested(p)
    _normal_timestamp(p["issuedAt"], "issuedAt", 6)
    for name in optional:
        if name in p:
            _match(p[name], name, _PUBLISHED)
    return p


def _check_attested(p: Mapping[str, Any]) -> None:
    """The members that records and certificates share."""
    _constant(p["algorithm"], "algorithm", "SHA-256")
    _constant(p["timeSource"], "timeSource", "service-clock")
    _match(p["issuer"], "issuer", _ISSUER)
    _match(p["publicId"], "publicId", _PUBLIC_ID)
    _match(p["sha256"], "sha256", _HASH)
    _whole(p["sizeBytes"], "sizeBytes", 0)


_STATUS: Final = ("contract", "observedAt", "payloadSha256", "publicId", "sequence", "status")


def _read_status(text: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    p = _read_payload(text, "integrity-status-v1", _STATUS, schema)
    _check_state(p)
    return p


def _read_status_as_of(text: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    p = _read_payload(text, "integrity-status-as-of-v1", [*_STATUS, "asOf", "asOfSequence"], schema)
    _check_state(p)
    _normal_timestamp(p["asOf"], "asOf", 6)
    _whole(p["asOfSequence"], "asOfSequence", 1)
    return p


def _check_state(p: Mapping[str, Any]) -> None:
    """The members that an observation and a state as of a moment share."""
    _match(p["publicId"], "publicId", _PUBLIC_ID)
    _match(p["payloadSha256"], "payloadSha256", _HASH)
    _whole(p["sequence"], "sequence", 1)
    _normal_timestamp(p["observedAt"], "observedAt", 6)
    if p["status"] not in ("current", "superseded", "revoked"):
        raise _Refused("status must be current, superseded or revoked")


def _validate(payload: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    jsonschema = _jsonschema()
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(payload))
    if error is not None:
        raise _Refused(f"payload against its schema: {error.message}")


def _jsonschema() -> Any:
    try:
        return importlib.import_module("jsonschema")
    except ImportError:
        raise CannotCheck("validation against schemas needs the package jsonschema") from None


# --- Transparency log -----------------------------------------------------------

_COSIGNATURE: Final = 76  # bytes of a line of C2SP tlog-cosignature: key hash, time and Ed25519


@dataclasses.dataclass(frozen=True)
class _Checkpoint:
    """What the log signed: C2SP tlog-checkpoint, without extension lines."""

    origin: str
    size: int
    root: bytes
    witnesses: tuple[str, ...]  # names on cosignatures, none of which is checked


def _open_checkpoint(note: str, trusted: TrustedKeys) -> _Checkpoint:
    """Reads a checkpoint and checks the signatures of pinned keys of its origin.

    Each of them must verify and stand once; without any it is _Untrusted.
    """
    if _NOTE_CONTROL.search(note):
        raise _Refused("checkpoint must have no control characters but newlines")
    lines = note.split("\n")
    if len(lines) < 6 or not lines[0] or lines[3] or lines[-1] or len(lines) > 105:
        raise _Refused("checkpoint must be three lines, a blank one and 1 to 100 signatures, each ended by a newline")
    origin, size, root = lines[0], _match(lines[1], "checkpoint, size", _TREE_SIZE), _hash(lines[2], "checkpoint, root")
    if int(size) > _MAX_INTEGER:
        raise _Refused("checkpoint must have a size within 2^53-1")

    signatures: list[tuple[str, bytes]] = []
    for line in lines[4:-1]:
        match = _NOTE_SIGNATURE.fullmatch(line)
        if match is None:
            raise _Refused("checkpoint: a signature line is not of the form of a signed note")
        signatures.append((match[1], _decode_standard(match[2], "checkpoint, signature")))
        if len(signatures[-1][1]) < 5:
            raise _Refused("checkpoint: a signature is too short")

    text = "\n".join(lines[:3]).encode("utf-8") + b"\n"
    witnesses: list[str] = []
    seen: set[bytes] = set()
    for name, raw in signatures:
        key = trusted._log_keys.get((name, raw[:4]))
        if key is None or name != origin:
            if len(raw) == _COSIGNATURE and _LOG_NAME.fullmatch(name):
                witnesses.append(name)
            continue
        if key.key_hash in seen:
            raise _Refused("checkpoint: a signature of the log stands twice")
        seen.add(key.key_hash)
        _check_ed25519(key.raw, raw[4:], text, "checkpoint: the log's signature does not belong to it")
    if not seen:
        raise _Untrusted("no pinned log key of its origin signed the checkpoint")
    return _Checkpoint(origin, int(size), root, tuple(witnesses))


def _hash(text: str, what: str) -> bytes:
    raw = _decode_standard(text, what)
    if len(raw) != 32:
        raise _Refused(f"{what} must be 32 bytes")
    return raw


def _root_of(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """The root that an audit path leads to (RFC 9162, section 2.1.3.2)."""
    node, last = index, size - 1
    result = hashlib.sha256(b"\0" + leaf).digest()
    for sibling in path:
        if last == 0:
            raise _Refused("there are more hashes than the tree has levels")
        if node % 2 == 1 or node == last:
            result = hashlib.sha256(b"\1" + sibling + result).digest()
            while node % 2 == 0 and node != 0:
                node, last = node // 2, last // 2
        else:
            result = hashlib.sha256(b"\1" + result + sibling).digest()
        node, last = node // 2, last // 2
    if last != 0:
        raise _Refused("there are fewer hashes than the tree has levels")
    return result


def _verify_inclusion(f: Findings, envelope: Mapping[str, Any], trusted: TrustedKeys) -> None:
    """The log's checkpoint, the way to its root, and the leaf of this record's registration."""
    inclusion = envelope["inclusion"]
    checkpoint = _open_checkpoint(inclusion["checkpoint"], trusted)
    size, index = inclusion["treeSize"], inclusion["leafIndex"]
    if size != checkpoint.size or index >= size:
        raise _Refused("treeSize is not the checkpoint's, or leafIndex lies beyond the tree")
    path = [_hash(text, f"hash {i}") for i, text in enumerate(inclusion["hashes"])]
    if _root_of(inclusion["leaf"].encode("utf-8"), index, size, path) != checkpoint.root:
        raise _Refused("the hashes do not lead from the leaf to the checkpoint's root")
    leaf = _read_payload(
        inclusion["leaf"], "integrity-leaf-v1", ["bodySha256", "contract", "id", "nonce", "occurredAt", "payloadSha256", "type"], None
    )
    _constant(leaf["type"], "leaf, type", "integrity.registered")
    _match(leaf["id"], "leaf, id", _EVENT_ID)
    _match(leaf["bodySha256"], "leaf, bodySha256", _HASH)
    _match(leaf["payloadSha256"], "leaf, payloadSha256", _HASH)
    _normal_timestamp(leaf["occurredAt"], "leaf, occurredAt", 6)
    _decode(_string(leaf["nonce"], "leaf, nonce"), 16, "leaf, nonce")
    if leaf["payloadSha256"] != hashlib.sha256(envelope["payload"].encode("utf-8")).hexdigest():
        raise _Refused("the leaf is that of another record")
    f.notes.append(
        f"The log {checkpoint.origin} of {size} entries holds the record as its entry {index}. "
        "That is no independent timestamp, and does not show that everybody is shown the same log."
    )
    if checkpoint.witnesses:
        f.notes.append("Cosignatures of the checkpoint were not checked; they are no trusted timestamps: " + ", ".join(checkpoint.witnesses))


# --- Verification ---------------------------------------------------------------


@dataclasses.dataclass
class Findings:
    """What a receipt proves, part by part: never one boolean.

    A part that was not reached because an earlier one failed is "not-checked";
    what is not established is None.
    """

    signature: str = INVALID
    references: str = NOT_CHECKED
    observation: str = NOT_CHECKED
    observed_status: str | None = None
    observed_at: str | None = None
    file_match: bool | None = None
    inclusion: str = NOT_CHECKED
    status_as_of: str = NOT_CHECKED  # what the state was at an earlier moment: history, never the observed status
    as_of_status: str | None = None
    as_of: str | None = None
    as_of_sequence: int | None = None
    record: dict[str, Any] | None = None  # the payload; None unless the signature is valid
    certificate: dict[str, Any] | None = None  # the same of a certificate
    reasons: list[str] = dataclasses.field(default_factory=list)  # the failures in words
    notes: list[str] = dataclasses.field(default_factory=list)  # what a reader must know besides

    @property
    def exit_code(self) -> int:
        """0 when everything supplied or required holds, 1 otherwise."""
        return 1 if self.reasons else 0

    def as_json(self) -> dict[str, Any]:
        """The members as `integrity verify --json` names them."""
        return {
            "signature": self.signature, "references": self.references, "observation": self.observation,
            "observedStatus": self.observed_status, "observedAt": self.observed_at, "fileMatch": self.file_match,
            "inclusion": self.inclusion, "statusAsOf": self.status_as_of, "asOfStatus": self.as_of_status, "asOf": self.as_of,
            "asOfSequence": self.as_of_sequence, "record": self.record, "certificate": self.certificate, "reasons": self.reasons, "notes": self.notes,
        }


def verify_receipt(
    receipt: bytes,
    trusted_keys: bytes | TrustedKeys,
    document: bytes | Path | None = None,
    *,
    record_schema: Mapping[str, Any] | None = None,
    status_schema: Mapping[str, Any] | None = None,
    status_as_of_schema: Mapping[str, Any] | None = None,
    require_references: bool = False,
    require_current: bool = False,
    require_inclusion: bool = False,
    now: datetime | None = None,
) -> Findings:
    """Verifies a receipt against pinned keys, and compares a document with it.

    With both saved schemas, integrity-v1.json and integrity-status-v1.json as
    json.load gives them, the payloads of a receipt are validated against them as well,
    and with integrity-status-as-of-v1.json that of a state as of an earlier moment;
    that needs the package jsonschema. A certificate has neither of these payloads. now is the verifier's clock, with a time zone; by default
    this computer's.

    Raises CannotCheck where nothing can be verified, OSError where the document
    cannot be read. Whatever is wrong with the receipt is a finding.
    """
    if (record_schema is None) != (status_schema is None):
        raise CannotCheck("both schemas must be given, or neither")
    for schema in (record_schema, status_schema, status_as_of_schema):
        if schema is not None:
            jsonschema = _jsonschema()
            try:
                jsonschema.Draft202012Validator.check_schema(schema)
            except jsonschema.exceptions.SchemaError as error:
                raise CannotCheck(f"not a JSON Schema: {error.message}") from None
    trusted = trusted_keys if isinstance(trusted_keys, TrustedKeys) else parse_trusted_keys(trusted_keys)
    clock = now or datetime.now(timezone.utc)

    f = Findings()
    try:
        envelope = _read_receipt(receipt)
    except _Refused as error:
        f.reasons.append(f"signature: {error}")
        return f
    if "contract" not in envelope:
        _verify_certificate(f, envelope, trusted, document)
    else:
        _verify_envelope(f, envelope, trusted, document, clock, record_schema, status_schema, status_as_of_schema)
    if require_references and f.references == NOT_SUPPLIED:
        f.reasons.append("references: they are required and not supplied")
    if require_current and f.observed_status != "current":
        f.reasons.append("observation: a valid observation that the version was current is required")
    if require_inclusion and f.inclusion in (NOT_SUPPLIED, NOT_CHECKED):
        f.reasons.append("inclusion: a valid proof of inclusion in the transparency log is required")
    return f


def _part(f: Findings, name: str, check: Callable[[], None]) -> str:
    """The finding on one part; the reason of a failure is kept."""
    try:
        check()
    except _Refused as error:
        f.reasons.append(f"{name}: {error}")
        return UNTRUSTED if isinstance(error, _Untrusted) else INVALID
    return VALID


def _verify_envelope(
    f: Findings, envelope: Mapping[str, Any], trusted: TrustedKeys, document: bytes | Path | None, clock: datetime,
    record_schema: Mapping[str, Any] | None, status_schema: Mapping[str, Any] | None, status_as_of_schema: Mapping[str, Any] | None,
) -> None:
    f.references, f.observation, f.status_as_of, f.inclusion = (
        NOT_CHECKED if name in envelope else NOT_SUPPLIED for name in ("references", "statusObservation", "statusAsOf", "inclusion")
    )

    f.signature = _part(f, "signature", lambda: _verify_record(f, envelope, trusted, record_schema))
    if f.record is None:
        return
    record = f.record
    if f.references == NOT_SUPPLIED:
        f.notes.append("Without the references nothing is said about company, source, document and version.")
    else:
        f.references = _part(f, "references", lambda: _verify_references(envelope["references"], record))
    if f.observation == NOT_SUPPLIED:
        f.notes.append("Without an observation nothing is said about the version's state.")
    else:
        f.observation = _part(f, "observation", lambda: _verify_observation(f, envelope, record, trusted, clock, status_schema))
        _judge_status(f)
    if f.inclusion == NOT_CHECKED and trusted._log_keys:
        f.inclusion = _part(f, "inclusion", lambda: _verify_inclusion(f, envelope, trusted))
    elif f.inclusion == NOT_CHECKED:
        f.notes.append("The proof of inclusion in the transparency log was not checked: the trusted keys name no key of the log.")
    if f.status_as_of != NOT_SUPPLIED:
        f.status_as_of = _part(f, "status as of", lambda: _verify_as_of(f, envelope, record, trusted, clock, status_as_of_schema))
        _judge_history(f)
    _compare(f, record, document)


def _verify_certificate(f: Findings, signed: Mapping[str, Any], trusted: TrustedKeys, document: bytes | Path | None) -> None:
    """A certificate has no references, no observation, no history and no inclusion: nothing is said about its validity now."""
    def check() -> None:
        _check_pinned(f, signed, trusted)
        f.certificate = _read_certificate(signed["payload"])

    f.signature = _part(f, "signature", check)
    if f.certificate is not None:
        f.references = f.observation = f.status_as_of = f.inclusion = NOT_SUPPLIED
        f.notes.append("Whether the certificate is still valid, or was replaced or revoked, is not established: only the service can say, online.")
        _compare(f, f.certificate, document)


def _check_pinned(f: Findings, signed: Mapping[str, Any], trusted: TrustedKeys) -> None:
    if _check_signature(signed, trusted).retired:
        f.notes.append("The signing key has been retired; it stays trusted.")


def _verify_record(f: Findings, envelope: Mapping[str, Any], trusted: TrustedKeys, schema: Mapping[str, Any] | None) -> None:
    _check_pinned(f, envelope, trusted)
    f.record = _read_record(envelope["payload"], schema)


def _verify_references(references: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    for name in ("companyReference", "source", "documentReference"):
        _match(references[name], name, _REFERENCE)
    _whole(references["version"], "version", 1, _MAX_VERSION)
    _decode(references["salt"], 16, "salt")
    if hashlib.sha256(_canonical(references).encode("utf-8")).hexdigest() != record["referencesSha256"]:
        raise _Refused("they are not those that the record was signed with")


def _verify_observation(
    f: Findings, envelope: Mapping[str, Any], record: Mapping[str, Any], trusted: TrustedKeys, now: datetime, schema: Mapping[str, Any] | None
) -> None:
    observation = envelope["statusObservation"]
    _check_signature(observation, trusted)
    status = _read_status(observation["payload"], schema)
    observed = _check_about(status, envelope, record, now)
    if observed < _timestamp(record["receivedAt"], "receivedAt"):
        raise _Refused("it is older than the record")
    f.observed_status, f.observed_at = status["status"], status["observedAt"]


def _check_about(status: Mapping[str, Any], envelope: Mapping[str, Any], record: Mapping[str, Any], now: datetime) -> datetime:
    """Refuses a state of another record, and one from the verifier's future; returns when it was observed."""
    if status["publicId"] != record["publicId"] or status["payloadSha256"] != hashlib.sha256(envelope["payload"].encode("utf-8")).hexdigest():
        raise _Refused("it is about another record")
    observed = _timestamp(status["observedAt"], "observedAt")
    if observed - now > _CLOCK_TOLERANCE:
        raise _Refused("it lies in the future of this computer's clock")
    return observed


def _verify_as_of(
    f: Findings, envelope: Mapping[str, Any], record: Mapping[str, Any], trusted: TrustedKeys, now: datetime, schema: Mapping[str, Any] | None
) -> None:
    signed = envelope["statusAsOf"]
    _check_signature(signed, trusted)
    status = _read_status_as_of(signed["payload"], schema)
    observed = _check_about(status, envelope, record, now)
    as_of = _timestamp(status["asOf"], "asOf")
    if as_of < _timestamp(record["receivedAt"], "receivedAt"):
        raise _Refused("its moment lies before the record")
    if as_of > observed or status["asOfSequence"] > status["sequence"]:
        raise _Refused("its moment lies after it was observed")
    f.as_of_status, f.as_of, f.as_of_sequence = status["status"], status["asOf"], status["asOfSequence"]


def _judge_history(f: Findings) -> None:
    when = f"{f.as_of} (sequence {f.as_of_sequence})"
    if f.as_of_status == "revoked":
        f.reasons.append(f"status as of: the record had been revoked by {when}")
    elif f.as_of_status == "superseded":
        f.notes.append(f"History: by {when} a later version had replaced this one.")
    elif f.as_of_status == "current":
        f.notes.append(f"History: the version was current as of {when}; this says nothing about any later time.")


def _judge_status(f: Findings) -> None:
    if f.observed_status == "revoked":
        f.reasons.append(f"observation: the record had been revoked by {f.observed_at}")
    elif f.observed_status == "superseded":
        f.notes.append(f"The version is historical: a later one had replaced it at {f.observed_at}.")
    elif f.observed_status == "current":
        f.notes.append(f"The version was current at {f.observed_at}; that is not its present state.")


def _compare(f: Findings, payload: Mapping[str, Any], document: bytes | Path | None) -> None:
    """The hash decides; a differing length is only reported."""
    if document is None:
        f.notes.append("No document was compared.")
        return
    sha256, size = _hash_document(document)
    f.file_match = sha256 == payload["sha256"]
    if not f.file_match:
        f.reasons.append("file: its SHA-256 is not the registered one: it may be another version, or its metadata may have changed")
    if size != payload["sizeBytes"]:
        signer = "the service counted" if f.certificate is not None else "the origin declared"
        f.notes.append(f"The document has {size} bytes where {signer} {payload['sizeBytes']}.")


def _hash_document(document: bytes | Path) -> tuple[str, int]:
    if isinstance(document, bytes):
        return hashlib.sha256(document).hexdigest(), len(document)
    digest, size = hashlib.sha256(), 0
    with document.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


# --- What is proven, and what is not --------------------------------------------

_TITLES: Final = {
    "en": "What this service attests, and what it does not",
    "es": "Qué acredita este servicio y qué no",
}

_LIMITS: Final[Mapping[str, Sequence[str]]] = {
    "en": (
        "An authenticated organization declared this hash (SHA-256), and the service received the declaration at receivedAt by its own clock. That is not an independent trusted timestamp.",
        "The size, the media type and generatedAt are declarations of the origin system. The service has not seen the document.",
        "A registration is neither a review nor an approval of the document.",
        "It does not prove existence, possession, authorship, truth or legal compliance.",
        "A mismatch may be another legitimate version, or a change of metadata only. It does not say who changed the file or what the change means.",
        "A proof of inclusion shows that the transparency log, as the service signed it, holds the record; whoever keeps it can tell when that log is rewritten later. It is not an independent trusted timestamp, and neither is the cosignature of a witness.",
        "Where evidence carries a token of an independent timestamp authority, the token shows, by that authority's word, that the record existed before the token's time; it does not show when it was registered, and says nothing of the document's truth.",
        "Companies are internal integration partitions, not verified legal entities.",
        "No availability is guaranteed (no SLA).",
        "Records, references and states are kept while the service operates, not for ever.",
        "A link for checking is not an authorization to download a document.",
        "The receipt shows the hash, the size, the media type and the times to whoever has the link.",
        "This service shares its developer and operator with an origin system that uses it. It is an external verification service, not an independent audit.",
    ),
    "es": (
        "Una organización autenticada declaró este hash (SHA-256) y el servicio recibió la declaración en receivedAt según su propio reloj. No es un sello de tiempo independiente.",
        "El tamaño, el tipo de archivo y generatedAt son declaraciones del sistema de origen. El servicio no ha visto el documento.",
        "Un registro no es una revisión ni una aprobación del documento.",
        "No acredita existencia, posesión, autoría, veracidad ni cumplimiento legal.",
        "Una discrepancia puede deberse a otra versión legítima o a un cambio solo de metadatos. No indica quién modificó el archivo ni qué significa el cambio.",
        "Una prueba de inclusión muestra que el registro de transparencia, tal como lo firmó el servicio, contiene el registro; quien la conserve puede detectar si aquel se reescribe después. No es un sello de tiempo independiente, y tampoco lo es la cofirma de un testigo.",
        "Cuando una evidencia lleva un sello de una autoridad de sellado de tiempo independiente, el sello muestra, según esa autoridad, que el registro existía antes de la hora del sello; no muestra cuándo se registró ni dice nada sobre la veracidad del documento.",
        "Las empresas son particiones internas de integración, no entidades jurídicas verificadas.",
        "No se garantiza disponibilidad (no hay SLA).",
        "Los registros, las referencias y los estados se conservan mientras el servicio esté en funcionamiento, no a perpetuidad.",
        "Un enlace de comprobación no autoriza a descargar un documento.",
        "El justificante muestra el hash, el tamaño, el tipo de archivo y las fechas a quien tenga el enlace.",
        "Este servicio comparte desarrollador y operador con un sistema de origen que lo utiliza. Es un servicio externo de verificación, no una auditoría independiente.",
    ),
}


_CERTIFICATE_TITLES: Final = {
    "en": "What a certificate attests, and what it does not",
    "es": "Qué acredita un certificado y qué no",
}

_CERTIFICATE_LIMITS: Final[Mapping[str, Sequence[str]]] = {
    "en": (
        "An authenticated organization sent the file to this service, and members of that organization declared that they had reviewed and approved it. The service signed its hash (SHA-256) and its size.",
        "The review and the approval are declarations of the organization. The service has not examined the content, and the automatic analysis of the file is no approval.",
        "issuedAt is the time of this service's own clock. It is not an independent trusted timestamp.",
        "A title or a name of an organization in the certificate is the organization's own words, published with its authorization. The service has not verified them.",
        "It does not prove authorship, truth, legal compliance or the identity of any person.",
        "A mismatch may be another legitimate version, or a change of metadata only. It does not say who changed the file or what the change means.",
        "A certificate can be replaced by that of a later version, or revoked. Only an online check shows whether it is still valid; reasons are not published.",
        "No availability is guaranteed (no SLA).",
        "Certificates and their states are kept while the service operates, not for ever.",
        "A link for checking is not an authorization to download a document.",
        _LIMITS["en"][-1],
    ),
    "es": (
        "Una organización autenticada envió el archivo a este servicio y miembros de esa organización declararon que lo habían revisado y aprobado. El servicio firmó su hash (SHA-256) y su tamaño.",
        "La revisión y la aprobación son declaraciones de la organización. El servicio no ha examinado el contenido, y el análisis automático del archivo no es una aprobación.",
        "issuedAt es la hora del propio reloj de este servicio. No es un sello de tiempo independiente.",
        "El título o el nombre de la organización que figuren en el certificado son palabras de la propia organización, publicadas con su autorización. El servicio no los ha verificado.",
        "No acredita autoría, veracidad, cumplimiento legal ni la identidad de ninguna persona.",
        "Una discrepancia puede deberse a otra versión legítima o a un cambio solo de metadatos. No indica quién modificó el archivo ni qué significa el cambio.",
        "Un certificado puede ser reemplazado por el de una versión posterior, o revocado. Solo una comprobación en línea muestra si sigue siendo válido; los motivos no se publican.",
        "No se garantiza disponibilidad (no hay SLA).",
        "Los certificados y sus estados se conservan mientras el servicio esté en funcionamiento, no a perpetuidad.",
        "Un enlace de comprobación no autoriza a descargar un documento.",
        _LIMITS["es"][-1],
    ),
}


def limits(language: str = "en", certificate: bool = False) -> Sequence[str]:
    """The fixed sentences on what a record, or a certificate, does and does not prove, in "en" or "es"."""
    return (_CERTIFICATE_LIMITS if certificate else _LIMITS)[language]


# --- Command line ---------------------------------------------------------------


def _describe(f: Findings) -> list[tuple[str, str]]:
    observation = f.observation
    if f.observed_status is not None:
        observation += f": {f.observed_status} at {f.observed_at}"
    file = {None: "not compared", True: "matches the registered SHA-256", False: "DIFFERS from the registered SHA-256"}[f.file_match]
    lines = [("signature", f.signature), ("references", f.references), ("observation", observation)]
    if f.as_of is not None:
        lines.append(("history", f"{f.as_of_status} as of {f.as_of} (sequence {f.as_of_sequence}); not the present state"))
    elif f.status_as_of != NOT_SUPPLIED:
        lines.append(("history", f.status_as_of))
    lines += [("file", file), ("inclusion", f.inclusion)]
    if f.record is not None:
        lines.append(("record", f"{f.record['publicId']}, received at {f.record['receivedAt']} by the clock of {f.record['issuer']}"))
    if f.certificate is not None:
        lines.append(("certificate", f"{f.certificate['publicId']}, issued at {f.certificate['issuedAt']} by the clock of {f.certificate['issuer']}"))
    lines += [("note", note) for note in f.notes] + [("NOT VALID", reason) for reason in f.reasons]
    lines.append(("verdict", "NOT verified" if f.reasons else "everything that was supplied and checked is valid"))
    return lines


def _read(path: str, most: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(most + 1)  # one more, so that a longer one is refused as such


def main(argv: Sequence[str] | None = None, now: datetime | None = None) -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Verifies a receipt offline against trusted keys that you pinned, and compares a document with it.",
        epilog="Exit code 0: everything supplied holds. 1: something does not, differs, or was revoked. 2: it could not be checked.",
    )
    parser.add_argument("receipt", help="saved evidence, a public receipt, or a downloaded certificate")
    parser.add_argument("trusted", help="a trusted-keys file that you got through a channel you trust")
    parser.add_argument("document", nargs="?", help="the file to compare")
    parser.add_argument("--require-references", action="store_true", help="fail where the references are absent")
    parser.add_argument("--require-current", action="store_true", help="fail unless the evidence shows that the version was current when it was saved")
    parser.add_argument("--require-inclusion", action="store_true", help="fail unless a valid proof shows that the transparency log holds the record")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--language", choices=sorted(_LIMITS), default="en", help="of the closing text")
    args = parser.parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may know fewer characters
    try:
        f = verify_receipt(
            _read(args.receipt, _MAX_RECEIPT), _read(args.trusted, _MAX_TRUSTED), Path(args.document) if args.document is not None else None,
            require_references=args.require_references, require_current=args.require_current,
            require_inclusion=args.require_inclusion, now=now,
        )
    except (CannotCheck, OSError, ValueError) as error:  # ValueError: a name that no file can have
        print(f"verify_integrity: {error}", file=sys.stderr)
        return 2
    sentences = limits(args.language, f.certificate is not None)
    if args.json:
        print(json.dumps({**f.as_json(), "limits": sentences}, ensure_ascii=False, indent=2))
    else:
        for name, text in _describe(f):
            print(f"{name:<13} {text}")
        titles = _TITLES if f.certificate is None else _CERTIFICATE_TITLES
        print(f"\n{titles[args.language]}:")
        for sentence in sentences:
            print(f"- {sentence}")
    return f.exit_code


if __name__ == "__main__":
    sys.exit(main())
