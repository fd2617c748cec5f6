#!/usr/bin/env python3
"""Verifies a receipt of Integrity Ledger offline.

    python3 verify_integrity.py RECEIPT TRUSTED_KEYS [DOCUMENT]

RECEIPT is evidence saved from the service, a public receipt, a transparency log
proof (.tlog-proof), or a downloaded certificate of the certification API. A
transparency log proof must be of a log whose key is pinned. TRUSTED_KEYS is
a trusted-keys file that you obtained and pinned through a channel you trust: a
key inside a receipt proves nothing. DOCUMENT is compared by its SHA-256. A proof
that the transparency log holds the record is checked where the file has logKeys,
and tokens of timestamp authorities (RFC 3161) where it has timestampAuthorities
too: such a token says that the record existed before a time, by a clock that is
not the service's. It is no time of registration. Cosignatures of the log's
checkpoint are counted where the file has witnessKeys.

Exit code 0: everything supplied and required holds. 1: something does not, the
document differs, or the record had been revoked. 2: it could not be checked.
A version that a later one has replaced exits 0 and is called historical.

A key that was revoked makes nothing valid by itself. A checkpoint under a revoked
log key counts where a pinned authority stamped it, or as many pinned witnesses as
are required cosigned it, before the revocation's since; a record under a revoked
signing key where a pinned authority stamped it before and
--accept-stamped-before-revocation is given.

No network is used, so nothing is said about what is current now. From a program,
call verify_receipt; with both saved schemas it validates them as well. With one
pinned key of the log, or of a witness, verify_key_set obtains the trusted keys from
the proof that the service publishes (GET /api/public/log/keys).

Needs Python 3.11 and the package cryptography (Debian: python3-cryptography);
asn1crypto (Debian: python3-asn1crypto) for tokens of timestamp authorities, without
which they are not-checked; and jsonschema for the schemas only.
This is an implementation of its own, not a translation of the service's.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import contextlib
import dataclasses
import errno
import functools
import hashlib
import importlib
import io
import json
import os
import re
import stat
import string
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn


def _locale_language() -> str:
    """The language of the locale: the first of LC_ALL, LC_MESSAGES and LANG that is set (POSIX, XBD section 8.2)."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if locale := os.environ.get(name):
            return "es" if re.match("es([_.@-]|$)", locale, re.IGNORECASE) else "en"
    return "en"


try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key
    from cryptography.x509 import InvalidVersion, load_der_x509_certificate
except ImportError as missing:
    if __name__ != "__main__":
        raise
    # A command that cannot check exits 2: 1 would say that the receipt is not valid.
    print(
        {
            "en": f"verify_integrity: the package cryptography is needed and could not be loaded ({missing}); install it, for example with "
            "python3 -m pip install cryptography",
            "es": f"verify_integrity: hace falta el paquete cryptography y no se ha podido cargar ({missing}); instálelo, por ejemplo con "
            "python3 -m pip install cryptography",
        }[_locale_language()],
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
_MAX_KEY_SET: Final = 256 * 1024
_MAX_KEY_SET_PROOF: Final = 1024 * 1024
_MAX_DEPTH: Final = 8
_MAX_SHOWN: Final = 200  # characters of a name that a message repeats
_MAX_INTEGER: Final = 2**53 - 1  # what a double holds exactly
_MAX_VERSION: Final = 2**31 - 1
_CLOCK_TOLERANCE: Final = timedelta(seconds=300)
_MAX_DER: Final = 8 * 1024  # bytes of a token, or of a pinned certificate
_MAX_AUTHORITIES: Final = 16
_MAX_CERTIFICATES: Final = 8  # pinned for an authority, or in a token
_MAX_STAMPS: Final = 4  # stamped checkpoints in a receipt, and tokens over each
# The order L of the group (RFC 8032, section 5.1): S of a signature is below it.
_GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493

_HASH: Final = re.compile("[a-f0-9]{64}")
_PUBLIC_ID: Final = re.compile("[a-z2-7]{26}")
_ISSUER: Final = re.compile("[^\x00-\x1f\x7f]{1,512}")
_PUBLISHED: Final = re.compile("[^\x00-\x1f\x7f]{1,200}")
_MEDIA_TYPE: Final = re.compile("[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")  # RFC 6838, section 4.2
_REFERENCE: Final = re.compile("[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_LOG_NAME: Final = re.compile("[!-*,-~]{1,512}")
_AUTHORITY_NAME: Final = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_EVENT_ID: Final = re.compile("evt_[0-7][0-9a-hjkmnp-tv-z]{25}")  # a TypeID
_EVENT_TYPE: Final = re.compile("[a-z][a-z0-9_.]{0,63}")
_TREE_SIZE: Final = re.compile("0|[1-9][0-9]{0,15}")
# Unicode's White_Space, which C2SP signed-note keeps out of names, spelled out.
_NOTE_SIGNATURE: Final = re.compile("— ([^+ \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+) ([A-Za-z0-9+/]+=*)")
_NOTE_CONTROL: Final = re.compile("[\x00-\x09\x0b-\x1f]")
_PROOF_HEADER: Final = b"c2sp.org/tlog-proof@v1\n"
_TLOG_PROOF: Final = re.compile(
    r"c2sp\.org/tlog-proof@v1\nextra ([A-Za-z0-9+/=]+)\nindex (0|[1-9][0-9]{0,15})\n((?:[A-Za-z0-9+/=]+\n)*)\n(.*)", re.DOTALL
)
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)


class CannotCheck(Exception):
    """Nothing was verified: the trusted keys or an argument cannot be used."""


class NotProven(Exception):
    """The proof of published keys does not hold; the text says why."""


class _Refused(Exception):
    """A part of the receipt does not hold; the text says why."""


# --- JSON, as strict as evidence has to be --------------------------------------


def _parse(data: bytes, deepest: int = _MAX_DEPTH) -> Any:
    """Reads exactly one JSON value.

    Refuses text that is not UTF-8, a byte order mark, nesting deeper than allowed, duplicate
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
        raise _Refused(f"the text is not one JSON value (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise _Refused(f"nested deeper than {deepest}") from None
    _check_tree(value, deepest)
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


def _check_tree(value: Any, deepest: int, depth: int = 0) -> None:
    if isinstance(value, str):
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise _Refused("a lone surrogate stands for no character")
        if "\0" in value:
            raise _Refused("a string must have no U+0000")
    elif isinstance(value, (dict, list)):
        if depth == deepest:
            raise _Refused(f"nested deeper than {deepest}")
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_tree(item, deepest, depth + 1)


def _canonical(value: Any) -> str:
    """The RFC 8785 form of all JSON but other numbers than integers, which the service never writes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, str):
        # json escapes what section 3.2.2.2 escapes, and in the same spelling.
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        names: list[str] = sorted(value, key=_utf16)
        return "{" + ",".join(_canonical(name) + ":" + _canonical(value[name]) for name in names) + "}"
    return str(value)


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
class _Revocation:
    key_id: str
    fingerprint: str
    text: str  # since, as the file has it
    since: datetime  # in microseconds, rounded up: a time before it is before the true since


@dataclasses.dataclass(frozen=True)
class _NoteKey:
    name: str  # of a log, the origin of the checkpoints that it signs; or of a witness
    key_hash: bytes
    raw: bytes


@dataclasses.dataclass(frozen=True)
class _Authority:
    name: str
    certificates: tuple[bytes, ...]  # DER; each is a trust anchor


@dataclasses.dataclass(frozen=True)
class TrustedKeys:
    """A pinned set of keys and timestamp authorities, made by parse_trusted_keys."""

    _keys: Mapping[str, _Key]
    _revoked: Mapping[str, _Revocation]  # by keyId and by fingerprint
    _log_keys: Mapping[tuple[str, bytes], _NoteKey]  # by name and key hash
    _witnesses: Mapping[tuple[str, bytes], _NoteKey]  # by name and key hash
    _authorities: Mapping[str, _Authority]  # by name

    def _lookup(self, key_id: str) -> _Key:
        """The pinned key of that name, or _Untrusted."""
        key = self._keys.get(key_id)
        if key is None:
            raise _Untrusted("the key is not among the trusted keys")
        if self._revocation(key.key_id, key.fingerprint) is not None:
            raise _Untrusted("the key has been revoked")
        return key

    def _revocation(self, key_id: str, fingerprint: str) -> _Revocation | None:
        return self._revoked.get(key_id) or self._revoked.get(fingerprint)

    def _is_revoked(self, key_id: str) -> bool:
        """Of a key that is pinned, or that the file names as revoked alone."""
        key = self._keys.get(key_id)
        return self._revocation(key_id, key.fingerprint if key is not None else "") is not None


class _Untrusted(_Refused):
    """The key, or the certificate, is not pinned, or it is revoked."""


def parse_trusted_keys(file: bytes) -> TrustedKeys:
    """Reads a trusted-keys file, or the bare array of its keys.

    A member of the file that is unknown is ignored, unless the file's own member critical
    names it, as RFC 7515, section 4.1.11, has it. Any other fault refuses the file whole
    (CannotCheck): an unknown member whose name differs from a known one only in the case of
    letters, an unknown member of an entry, a member given twice, a repeated keyId, a JWK
    other than exactly kty, crv and x, a keyId or fingerprint that does not belong to the
    key, a log key or witness key whose name or keyHash does not, one that has another role
    too, or a timestamp authority's certificate that cannot be read.
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
    _members(value, "the file", ["keys"], _known_members(value))
    log_entries, witness_entries, authorities = (_list(value.get(name, []), name) for name in ("logKeys", "witnessKeys", "timestampAuthorities"))

    keys: dict[str, _Key] = {}
    for i, entry in enumerate(_list(value["keys"], "keys")):
        key = _trusted_key(entry, f"key {i}")
        if key.key_id in keys:
            raise _Refused(f"key {i}: its keyId is repeated")
        keys[key.key_id] = key

    revoked: dict[str, _Revocation] = {}
    for i, entry in enumerate(_list(value.get("revokedKeys", []), "revokedKeys")):
        what = f"revoked key {i}"
        _members(entry, what, ["keyId", "fingerprintSha256", "reason", "since"])
        _decode(_string(entry["keyId"], what), 32, f"{what}, keyId")
        _match(entry["fingerprintSha256"], f"{what}, fingerprintSha256", _HASH)
        if entry["reason"] not in ("compromised", "revoked"):
            raise _Refused(f"{what} must have the reason compromised or revoked")
        since = _timestamp(entry["since"], f"{what}, since")
        if re.search("[.][0-9]{6}0*[1-9]", entry["since"]):
            since += min(timedelta(microseconds=1), datetime.max.replace(tzinfo=timezone.utc) - since)
        if entry["keyId"] in revoked:
            raise _Refused(f"{what}: its keyId is repeated")
        revoked[entry["keyId"]] = revoked[entry["fingerprintSha256"]] = _Revocation(entry["keyId"], entry["fingerprintSha256"], entry["since"], since)

    statuses = value.get("keyStatus", {})
    for key_id, entry in _members(statuses, "keyStatus", [], [*keys, *(r.key_id for r in revoked.values())]).items():
        what = f"keyStatus of {key_id}"
        _members(entry, what, ["status", "since"])
        if entry["status"] not in ("active", "retired"):
            raise _Refused(f"{what} must be active or retired")
        _timestamp(entry["since"], f"{what}, since")
        if key_id in keys:
            keys[key_id] = dataclasses.replace(keys[key_id], retired=entry["status"] == "retired")
    log_keys = _read_note_keys(log_entries, "log key", _TYPE_ED25519, set(keys))
    cosigning = {*keys, *revoked, *(name for key in log_keys.values() for name in _key_names(key.raw))}
    witnesses = _read_note_keys(witness_entries, "witness key", _TYPE_COSIGNATURE, cosigning)
    return TrustedKeys(keys, revoked, log_keys, witnesses, _read_authorities(authorities))


def _known_members(value: Any) -> list[str]:
    """The names of an object's members that are known, or unknown and to be ignored; all others are refused."""
    known = ["keys", "keyStatus", "revokedKeys", "logKeys", "witnessKeys", "timestampAuthorities", "critical"]
    if not isinstance(value, dict):
        return known
    folded = {name.lower() for name in known}
    unknown = [name for name in value if name not in known and name.translate(_ASCII_LOWER) not in folded]
    if "critical" in value:
        critical = _list(value["critical"], "critical")
        if not critical or any(not isinstance(name, str) or name not in value for name in critical) or len(set(critical)) != len(critical):
            raise _Refused("critical must be names of members of the file, at least one and each once")
        if missing := [name for name in critical if name in unknown]:
            raise _Refused(f"the file says that its member {missing[0][:_MAX_SHOWN]!r} must be understood, and this verifier does not know it: use a newer one")
    return known + unknown


_ASCII_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def _read_authorities(entries: list[Any]) -> dict[str, _Authority]:
    """Reads timestampAuthorities. Each certificate is parsed here, so that none is found to be malformed later."""
    if len(entries) > _MAX_AUTHORITIES:
        raise _Refused(f"timestampAuthorities must be at most {_MAX_AUTHORITIES}")
    authorities: dict[str, _Authority] = {}
    for i, entry in enumerate(entries):
        what = f"timestamp authority {i}"
        _members(entry, what, ["name", "certificates"])
        name, texts = _match(entry["name"], f"{what}, name", _AUTHORITY_NAME), _list(entry["certificates"], f"{what}, certificates")
        if name in authorities:
            raise _Refused(f"{what}: its name is repeated")
        if not 1 <= len(texts) <= _MAX_CERTIFICATES:
            raise _Refused(f"{what} must have 1 to {_MAX_CERTIFICATES} certificates")
        certificates: list[bytes] = []
        for n, text in enumerate(texts):
            certificate = _decode_der(_string(text, what), f"{what}, certificate {n}")
            try:
                load_der_x509_certificate(certificate)
                with contextlib.suppress(ImportError):  # then no token is checked either
                    _read_certificate_der(certificate, _Asn1())
            except (ValueError, InvalidVersion, _Refused):
                raise _Refused(f"{what}, certificate {n} must be an X.509 certificate in DER") from None
            if certificate in certificates:
                raise _Refused(f"{what}, certificate {n} is given twice")
            certificates.append(certificate)
        authorities[name] = _Authority(name, tuple(certificates))
    return authorities


def _decode_der(text: str, what: str) -> bytes:
    """Reads standard base64 of at most 8 KiB; a longer text is not decoded."""
    raw = _decode_standard(text, what) if len(text) <= _MAX_DER * 4 // 3 + 4 else b""
    if not 1 <= len(raw) <= _MAX_DER:
        raise _Refused(f"{what} must have at most {_MAX_DER} bytes")
    return raw


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


# Types of C2SP signed-note, and of tlog-cosignature.
_TYPE_ED25519: Final = 1
_TYPE_COSIGNATURE: Final = 4


def _read_note_keys(entries: list[Any], kind: str, key_type: int, others: Set[str]) -> dict[tuple[str, bytes], _NoteKey]:
    """Reads logKeys or witnessKeys; others are the names, as a signing key has them, of keys of other roles."""
    keys: dict[tuple[str, bytes], _NoteKey] = {}
    for i, entry in enumerate(entries):
        what = f"{kind} {i}"
        _members(entry, what, ["name", "keyHash", "verifierKey"])
        name, written = _match(entry["name"], f"{what}, name", _LOG_NAME), _string(entry["verifierKey"], what)
        # C2SP signed-note: <name>+<key hash>+<base64 of the type and the key>.
        typed = _decode_standard(written.split("+", 2)[-1], f"{what}, verifierKey")
        key_hash = hashlib.sha256(name.encode("ascii") + b"\n" + typed).digest()[:4]
        if len(typed) != 33 or typed[0] != key_type or written != f"{name}+{key_hash.hex()}+{base64.b64encode(typed).decode('ascii')}":
            raise _Refused(f"{what} must be the verifier key of a signed note, of type {key_type} and with its own name and hash")
        if entry["keyHash"] != key_hash.hex():
            raise _Refused(f"{what}: keyHash does not belong to verifierKey")
        if (name, key_hash) in keys:
            raise _Refused(f"{what}: it is repeated")
        if not others.isdisjoint(_key_names(typed[1:])):
            raise _Refused(f"{what}: the same key has another role too")
        keys[name, key_hash] = _NoteKey(name, key_hash, typed[1:])
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

    An object without a member contract is a certificate: the signed members and nothing else.
    """
    if len(receipt) > _MAX_RECEIPT:
        raise _Refused(f"the file must have at most {_MAX_RECEIPT} bytes")
    if receipt.startswith(_PROOF_HEADER):
        return _read_tlog_proof(receipt)
    value = _parse(receipt)
    if isinstance(value, dict) and "contract" not in value:
        certificate = _members(value, "certificate", _SIGNED)
        _read_signed(certificate, "certificate")
        return certificate
    envelope = _members(value, "receipt", ["contract", *_SIGNED], ["references", "statusObservation", "statusAsOf", "inclusion", "timestamps"])
    _constant(envelope["contract"], "contract", "integrity-evidence-v1")
    _read_signed(envelope, "receipt")
    _read_references(envelope)
    if "statusObservation" in envelope:
        _read_signed(_members(envelope["statusObservation"], "statusObservation", _SIGNED), "statusObservation")
    if "statusAsOf" in envelope:
        _read_signed(_members(envelope["statusAsOf"], "statusAsOf", _SIGNED), "statusAsOf")
    if "inclusion" in envelope:
        _read_proof(envelope["inclusion"], "inclusion", ["leaf"])
        _string(envelope["inclusion"]["leaf"], "inclusion, leaf")
    if "timestamps" in envelope:
        for i, stamped in enumerate(_few(envelope["timestamps"], "timestamps")):
            _read_proof(stamped, f"timestamp {i}", ["tokens"])
            for token in _few(stamped["tokens"], f"timestamp {i}, tokens"):
                for name, text in _members(token, f"timestamp {i}, token", ["authority", "genTime", "token"]).items():
                    _string(text, f"timestamp {i}, {name}")
    return envelope


def _read_references(value: Mapping[str, Any]) -> None:
    if "references" not in value:
        return
    names = ["companyReference", "source", "documentReference", "version", "salt"]
    references = _members(value["references"], "references", names)
    for name in names:
        if name == "version":
            _whole(references[name], name, -_MAX_INTEGER)
        else:
            _string(references[name], name)


def _read_tlog_proof(proof: bytes) -> dict[str, Any]:
    """Reads a transparency log proof (C2SP tlog-proof@v1) as the envelope whose parts it holds.

    Its extra data is one JSON object in its RFC 8785 form, so no byte can change without a meaning.
    """
    data, inclusion = _read_tlog_lines(proof, "integrity-tlog-proof-v1", _SIGNED, ["references"])
    _read_signed(data, "extra data")
    _read_references(data)
    inclusion["leaf"] = data.pop("leaf")
    return {**data, "contract": "integrity-evidence-v1", "inclusion": inclusion}


def _read_tlog_lines(proof: bytes, contract: str, names: Sequence[str], optional: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """The extra data of a proof, and the inclusion without its leaf, which the extra data has."""
    try:
        match = _TLOG_PROOF.fullmatch(proof.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _Refused(f"the text is not UTF-8 (at byte {error.start})") from None
    if match is None:
        raise _Refused("the transparency log proof must have the lines of C2SP tlog-proof@v1, with extra data")
    hashes = match[3].splitlines()
    for text in hashes:
        _hash(text, "hash")
    raw = _decode_standard(match[1], "extra data")
    data = _members(_parse(raw), "extra data", ["contract", "leaf", *names], optional)
    _constant(data["contract"], "extra data, contract", contract)
    _string(data["leaf"], "extra data, leaf")
    if _canonical(data).encode("utf-8") != raw:
        raise _Refused("extra data: the text is not in the canonical form of RFC 8785")
    return data, {
        "leafIndex": _whole(int(match[2]), "index", 0), "treeSize": _read_note(match[4]).size, "hashes": hashes, "checkpoint": match[4],
    }


def _read_proof(value: Any, what: str, others: Sequence[str]) -> None:
    proof = _members(value, what, ["leafIndex", "treeSize", "hashes", "checkpoint", *others])
    _whole(proof["leafIndex"], f"{what}, leafIndex", 0)
    _whole(proof["treeSize"], f"{what}, treeSize", 1)
    for text in [proof["checkpoint"], *_list(proof["hashes"], f"{what}, hashes")]:
        _string(text, what)


def _few(value: Any, what: str) -> list[Any]:
    if not 1 <= len(_list(value, what)) <= _MAX_STAMPS:
        raise _Refused(f"{what} must have 1 to {_MAX_STAMPS} elements")
    return list(value)


def _check_ed25519(key: bytes, signature: bytes, text: bytes, refusal: str) -> None:
    if len(signature) != 64 or int.from_bytes(signature[32:], "little") >= _GROUP_ORDER:
        raise _Refused(refusal)
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise _Refused(refusal) from None


def _check_signature(signed: Mapping[str, Any], trusted: TrustedKeys) -> _Key:
    """Checks an Ed25519 signature over the bytes of payload under a pinned key."""
    _decode(signed["signature"], 64, "signature")
    key = trusted._lookup(signed["keyId"])
    _check_signed_by(signed, key)
    if not _is_of(signed, key):
        raise _Refused("the receipt's key differs from the trusted key of the same keyId")
    return key


def _check_signed_by(signed: Mapping[str, Any], key: _Key) -> None:
    signature = _decode(signed["signature"], 64, "signature")
    _check_ed25519(key.raw, signature, signed["payload"].encode("utf-8"), "the signature does not belong to the payload")


def _is_of(signed: Mapping[str, Any], key: _Key) -> bool:
    """Whether the receipt describes the key correctly."""
    return bool(signed["publicKeyJwk"] == key.jwk and signed["fingerprintSha256"] == key.fingerprint)


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
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclasses.dataclass(frozen=True)
class _Note:
    """A checkpoint as it is written, of which no signature was checked."""

    origin: str
    size: int
    root: bytes
    signatures: tuple[tuple[str, bytes], ...]  # names, and key hashes with what follows
    text: bytes  # the signed bytes


@dataclasses.dataclass(frozen=True)
class _Checkpoint:
    """What the log signed: C2SP tlog-checkpoint, without extension lines."""

    origin: str
    size: int
    root: bytes
    text: bytes  # the signed bytes
    cosignatures: tuple[tuple[str, bytes], ...]  # names, and key hashes with what follows, of the other lines
    revocation: _Revocation | None  # the latest, where every pinned key that signed it is revoked


def _read_note(note: str) -> _Note:
    """Reads a checkpoint without extension lines."""
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

    return _Note(origin, int(size), root, tuple(signatures), "\n".join(lines[:3]).encode("utf-8") + b"\n")


def _open_checkpoint(text: str, trusted: TrustedKeys) -> _Checkpoint:
    """Reads a checkpoint and checks the signatures of pinned keys of its origin.

    Each of them must verify and stand once; without any it is _Untrusted.
    """
    note = _read_note(text)
    cosignatures: list[tuple[str, bytes]] = []
    seen: dict[bytes, _Revocation | None] = {}
    for name, raw in note.signatures:
        key = trusted._log_keys.get((name, raw[:4]))
        if key is None or name != note.origin:
            cosignatures.append((name, raw))
            continue
        if key.key_hash in seen:
            raise _Refused("checkpoint: a signature of the log stands twice")
        seen[key.key_hash] = trusted._revocation(*_key_names(key.raw))
        _check_ed25519(key.raw, raw[4:], note.text, "checkpoint: the log's signature does not belong to it")
    if not seen:
        raise _Untrusted("no pinned log key of its origin signed the checkpoint")
    revocations = [revocation for revocation in seen.values() if revocation is not None]
    latest = max(revocations, key=lambda revocation: revocation.since) if len(revocations) == len(seen) else None
    return _Checkpoint(note.origin, note.size, note.root, note.text, tuple(cosignatures), latest)


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


def _check_proof(proof: Mapping[str, Any], leaf: str, trusted: TrustedKeys) -> _Checkpoint:
    """Opens the checkpoint, and follows the way from the leaf to its root."""
    checkpoint = _open_checkpoint(proof["checkpoint"], trusted)
    _check_path(proof, leaf, checkpoint.size, checkpoint.root)
    return checkpoint


def _check_path(proof: Mapping[str, Any], leaf: str, size: int, root: bytes) -> None:
    if size != proof["treeSize"] or proof["leafIndex"] >= size:
        raise _Refused("treeSize is not the checkpoint's, or leafIndex lies beyond the tree")
    path = [_hash(text, f"hash {i}") for i, text in enumerate(proof["hashes"])]
    if _root_of(leaf.encode("utf-8"), proof["leafIndex"], size, path) != root:
        raise _Refused("the hashes do not lead from the leaf to the checkpoint's root")


class _OtherLeaf(Exception):
    """The leaf is of an event that is no registration, such as a healed record."""


def _read_leaf(text: str) -> dict[str, Any]:
    leaf = _read_payload(text, "integrity-leaf-v1", ["bodySha256", "contract", "id", "nonce", "occurredAt", "payloadSha256", "type"], None)
    _match(leaf["type"], "leaf, type", _EVENT_TYPE)
    _match(leaf["id"], "leaf, id", _EVENT_ID)
    _match(leaf["bodySha256"], "leaf, bodySha256", _HASH)
    if leaf["type"] == "integrity.registered" or leaf["payloadSha256"] is not None:
        _match(leaf["payloadSha256"], "leaf, payloadSha256", _HASH)
    _normal_timestamp(leaf["occurredAt"], "leaf, occurredAt", 6)
    _decode(_string(leaf["nonce"], "leaf, nonce"), 16, "leaf, nonce")
    return leaf


def _check_leaf(text: str, payload: str) -> None:
    """Requires the leaf of the registration of this payload.

    A leaf of another type that names no other payload is _OtherLeaf.
    """
    leaf = _read_leaf(text)
    if leaf["payloadSha256"] not in (None, hashlib.sha256(payload.encode("utf-8")).hexdigest()):
        raise _Refused("the leaf belongs to another record")
    if leaf["type"] != "integrity.registered":
        raise _OtherLeaf


def _cosigned(checkpoint: _Checkpoint, trusted: TrustedKeys, clock: datetime) -> tuple[dict[str, datetime], list[str]]:
    """The pinned witnesses whose cosignatures hold, with their earliest times, and the names on lines of pinned keys that do not hold.

    The times are the witnesses' own words and no trusted timestamps.
    """
    holding: dict[str, datetime] = {}
    failing: list[str] = []
    latest = (clock + _CLOCK_TOLERANCE - _EPOCH) // timedelta(seconds=1)
    for name, raw in checkpoint.cosignatures:
        key = trusted._witnesses.get((name, raw[:4]))
        if key is None:
            continue
        seconds = int.from_bytes(raw[4:12], "big")
        try:
            if len(raw) != _COSIGNATURE or not 0 < seconds <= latest:
                raise _Refused("not a cosignature of this verifier's past")
            _check_ed25519(key.raw, raw[12:], f"cosignature/v1\ntime {seconds}\n".encode("ascii") + checkpoint.text, "not its signature")
        except _Refused:
            failing.append(name)
            continue
        at = _EPOCH + timedelta(seconds=seconds)
        holding[name] = min(at, holding.get(name, at))
    return holding, failing


def _verify_inclusion(f: Findings, envelope: Mapping[str, Any], o: _Options) -> None:
    """The log's checkpoint, the way to its root, the leaf of this record's registration, and who else signed.

    Under a revoked key of the log it holds where a checkpoint that was stamped before the
    revocation holds the record, whichever key signed that one, or where as many pinned
    witnesses as are required cosigned this one before.
    """
    inclusion = envelope["inclusion"]
    checkpoint = _check_proof(inclusion, inclusion["leaf"], o.trusted)
    _check_leaf(inclusion["leaf"], envelope["payload"])
    cosigned, failing = _cosigned(checkpoint, o.trusted, o.clock)
    if (revocation := checkpoint.revocation) is not None:
        before = [name for name, at in cosigned.items() if at < revocation.since]
        if f.existed_before is not None and _timestamp(f.existed_before, "time") < revocation.since:
            f.notes.append(f"The log's key was revoked, since {revocation.text}; a checkpoint that a pinned authority stamped before that holds the record.")
        elif o.require_witnesses and len(before) >= o.require_witnesses:
            f.notes.append(f"The log's key was revoked, since {revocation.text}; before that {len(before)} pinned witnesses had cosigned the checkpoint.")
        else:
            raise _Untrusted("the log key has been revoked")
    f.notes.append(
        f"The log {checkpoint.origin} of {checkpoint.size} entries holds the record as its entry {inclusion['leafIndex']}. "
        "That is no independent timestamp, and does not show that every reader sees the same log."
    )
    if o.trusted._witnesses:
        f.witnessed, f.witnesses = len(cosigned), len({name for name, _ in o.trusted._witnesses})
    if failing:
        f.notes.append("Cosignatures of pinned witnesses do not hold and are not counted: " + ", ".join(failing))
    strangers = [
        name for name, raw in checkpoint.cosignatures
        if (name, raw[:4]) not in o.trusted._witnesses and len(raw) == _COSIGNATURE and _LOG_NAME.fullmatch(name)
    ]
    if strangers:
        f.notes.append("Cosignatures of the checkpoint were not checked; they are no trusted timestamps: " + ", ".join(strangers))


# --- Timestamps (RFC 3161) ------------------------------------------------------

_MAX_STEPS: Final = 4  # signatures between a certificate and a pinned one
_MAX_ACCURACY: Final = timedelta(hours=1)
_MAX_DER_DEPTH: Final = 32
_GENERALIZED_TIME: Final = re.compile(rb"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})(?:[.]([0-9]{0,5}[1-9]))?Z")
_CERTIFICATE_TIME: Final = re.compile(rb"\x17\x0d[0-9]{12}Z|\x18\x0f[0-9]{14}Z")

_SIGNED_DATA: Final = "1.2.840.113549.1.7.2"
_TST_INFO: Final = "1.2.840.113549.1.9.16.1.4"
_CONTENT_TYPE: Final = "1.2.840.113549.1.9.3"
_MESSAGE_DIGEST: Final = "1.2.840.113549.1.9.4"
_SIGNING_CERTIFICATE: Final = "1.2.840.113549.1.9.16.2.12"
_SIGNING_CERTIFICATE_V2: Final = "1.2.840.113549.1.9.16.2.47"
_RSA_ENCRYPTION: Final = "1.2.840.113549.1.1.1"
_RSA_KEY: Final = bytes.fromhex("300d06092a864886f70d0101010500")  # AlgorithmIdentifier of rsaEncryption
_EC_KEY: Final = "1.2.840.10045.2.1"
_NAMED_CURVES: Final = ("secp224r1", "secp256r1", "secp384r1", "secp521r1")
_EXTENSION: Final = rb"\x06\x01?\x04"
_BASIC_CONSTRAINTS: Final = "2.5.29.19"
_KEY_USAGE: Final = "2.5.29.15"
_EXTENDED_KEY_USAGE: Final = "2.5.29.37"
# Extensions that may be critical: those above, distribution points of lists, and policies.
_KNOWN_EXTENSIONS: Final = {_BASIC_CONSTRAINTS, _KEY_USAGE, _EXTENDED_KEY_USAGE, "2.5.29.31", "2.5.29.32"}
_NAME_CONSTRAINTS: Final = "2.5.29.30"  # not looked at, so not accepted
_TIME_STAMPING: Final = "1.3.6.1.5.5.7.3.8"
_ANY_USAGE: Final = "2.5.29.37.0"

_DIGESTS: Final[Mapping[str, str]] = {"2.16.840.1.101.3.4.2.1": "sha256", "2.16.840.1.101.3.4.2.2": "sha384", "2.16.840.1.101.3.4.2.3": "sha512"}
# Algorithms of signatures: the kind of key, and the digest; RSA is PKCS #1 version 1.5.
_SIGNATURES: Final[Mapping[str, tuple[str, str]]] = {
    "1.2.840.113549.1.1.11": ("RSA", "sha256"), "1.2.840.113549.1.1.12": ("RSA", "sha384"), "1.2.840.113549.1.1.13": ("RSA", "sha512"),
    "1.2.840.10045.4.3.2": ("ECDSA", "sha256"), "1.2.840.10045.4.3.3": ("ECDSA", "sha384"), "1.2.840.10045.4.3.4": ("ECDSA", "sha512"),
}
_HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}


class _Asn1:
    """The parts of the package asn1crypto that are used; made only if it is installed."""

    def __init__(self) -> None:
        self.core, self.cms, self.tsp, self.x509 = (importlib.import_module(f"asn1crypto.{name}") for name in ("core", "cms", "tsp", "x509"))

    def read(self, kind: Any, der: bytes, what: str, build: Callable[[Any], Any]) -> Any:
        """Parses DER and takes it apart with build. Any exception of the package is a refusal: the bytes are not trusted."""
        try:
            return build(kind.load(der, strict=True))
        except _Refused:
            raise
        except Exception as error:  # it raises ValueError, TypeError, KeyError and others for malformed bytes
            raise _Refused(f"{what} cannot be read: {str(error)[:_MAX_SHOWN]}") from None


@dataclasses.dataclass(frozen=True)
class _Certificate:
    der: bytes
    signed: bytes
    algorithm: str  # of the signature
    signature: bytes
    issuer: bytes
    subject: bytes
    serial: int
    not_before: datetime
    not_after: datetime
    key: bytes  # SubjectPublicKeyInfo
    authority: bool  # it may sign certificates
    path_length: int | None
    usage: frozenset[str] | None  # names of bits; None: any
    purposes: tuple[str, ...] | None  # of the extended key usage; None: any
    purposes_critical: bool
    understood: bool  # no other extension is critical, and none constrains names

    def valid_at(self, at: datetime) -> bool:
        return self.not_before <= at <= self.not_after


@dataclasses.dataclass(frozen=True)
class _Token:
    """What a token states. Its signature holds; whose it is, is not judged."""

    imprint: bytes
    at: datetime
    accuracy: timedelta
    signer: _Certificate
    certificates: tuple[bytes, ...]  # DER, whose outlines are well formed

    @property
    def latest(self) -> datetime:
        """The time at which the stamped bytes existed at the latest, as the authority says."""
        return self.at + self.accuracy


def _der_elements(data: bytes, what: str, depth: int = 0) -> list[bytes]:
    """Splits data into DER elements, each looked through to its depths (X.690, sections 8 and 10).

    asn1crypto reads BER as well. This refuses lengths that are indefinite or not the
    shortest, strings in pieces, and other encodings where DER has one only.
    """
    elements: list[bytes] = []
    start = 0
    while start < len(data):
        header = data[start : start + 2]
        if len(header) < 2 or header[0] & 0x1F == 0x1F or depth > _MAX_DER_DEPTH:
            raise _Refused(f"{what} is not in DER")
        size, begin = header[1], start + 2
        if size >= 0x80:
            octets = data[begin : begin + size - 0x80]
            size, begin = int.from_bytes(octets, "big"), begin + len(octets)
            if not octets or size < 0x80 or octets[0] == 0:
                raise _Refused(f"{what}: a length is not in DER")
        end = begin + size
        if end > len(data):
            raise _Refused(f"{what} is cut off")
        if header[0] & 0x20:
            _der_elements(data[begin:end], what, depth + 1)
        if header[0] < 0x40 and not _is_der(header[0], data[begin:end]):
            raise _Refused(f"{what}: an element is not in DER")
        elements.append(data[start:end])
        start = end
    return elements


def _inside(element: bytes) -> bytes:
    """The content of an element that is DER."""
    return element[2 + max(0, element[1] - 0x80) :]


def _is_der(tag: int, content: bytes) -> bool:
    """Whether the content of a universal type has the one spelling of DER, as far as the type alone decides it."""
    if tag in (0x30, 0x31):  # SEQUENCE and SET, the only ones that are constructed
        return True
    if tag == 0x01:
        return content in (b"\x00", b"\xff")
    if tag in (0x02, 0x0A):
        return len(content) > 0 and not (len(content) > 1 and (content[0], content[1] >> 7) in ((0, 0), (0xFF, 1)))
    if tag == 0x03:
        return len(content) > 0 and content[0] < 8 and (content[-1] & (1 << content[0]) - 1 == 0 if len(content) > 1 else content[0] == 0)
    if tag == 0x05:
        return not content
    if tag == 0x06:
        starts = (b"\xff" + content)[:-1]
        return len(content) > 0 and content[-1] < 0x80 and not any(byte == 0x80 and (i == 0 or before < 0x80) for i, (before, byte) in enumerate(zip(starts, content)))
    return 0 < tag < 0x20


def _one_der(data: bytes, what: str) -> None:
    if len(_der_elements(data, what)) != 1:
        raise _Refused(f"{what} must be one element and nothing after it")


def _fields(content: bytes, tags: bytes, what: str) -> list[bytes]:
    """The elements of a constructed value's content, whose tags must match the pattern: asn1crypto passes over what follows the last it knows."""
    elements = _der_elements(content, what)
    if not re.fullmatch(tags, bytes(element[0] for element in elements), re.DOTALL):
        raise _Refused(f"{what} must hold the elements of its standard, and no others")
    return elements


def _algorithm(value: Any, what: str) -> str:
    """The OID of an AlgorithmIdentifier that has no parameters, or NULL."""
    _fields(value.contents, rb"\x06\x05?", what)  # without parameters, or with NULL
    return str(value[0].dotted)


def _signature_algorithm(value: Any) -> str:
    """The OID of a certificate's signature; empty where it has parameters, as no signature that counts here has."""
    with contextlib.suppress(_Refused):
        return _algorithm(value, "a certificate's signature")
    return ""


def _digest_name(value: Any, what: str) -> str:
    name = _DIGESTS.get(_algorithm(value, what))
    if name is None:
        raise _Refused(f"{what} must be SHA-256, SHA-384 or SHA-512")
    return name


def _outline(der: bytes) -> list[bytes]:
    """The elements of what a certificate signs (RFC 5280, section 4.1), the first empty if it names no version. Their tags are checked, their contents are not."""
    signed = _fields(_inside(der), rb"\x30\x30\x03", "a certificate")[0]
    elements = _fields(_inside(signed), rb"\xa0?\x02\x30\x30\x30\x30\x30\x81?\x82?\xa3?", "what a certificate signs")
    return elements if elements[0][0] == 0xA0 else [b"", *elements]


def _read_certificate_der(der: bytes, asn1: _Asn1) -> _Certificate:
    """Reads what a chain is judged by. The certificate is DER throughout, the extensions that count as well."""
    _one_der(der, "a certificate")

    def build(whole: Any) -> _Certificate:
        tbs = whole["tbs_certificate"]
        if whole["signature_algorithm"].dump() != tbs["signature"].dump():
            raise _Refused("a certificate names two algorithms of its signature")
        found: dict[str, tuple[bool, Any]] = {}
        extensions = tbs["extensions"]
        kind = _check_tbs(tbs, _outline(der))
        read = load_der_x509_certificate(der)  # all of it, which asn1crypto does not
        if kind in (_EC_KEY, _RSA_ENCRYPTION):  # another signs nothing here
            with contextlib.suppress(UnsupportedAlgorithm):
                read.public_key()
        for extension in extensions if isinstance(extensions, asn1.x509.Extensions) else ():
            _fields(extension.contents, _EXTENSION, "an extension of a certificate")
            oid = extension["extn_id"].dotted
            if oid in found:
                raise _Refused("a certificate has an extension twice")
            found[oid] = (extension["critical"].native, extension["extn_value"])
        values: dict[str, Any] = {}
        for oid in (_BASIC_CONSTRAINTS, _KEY_USAGE, _EXTENDED_KEY_USAGE):
            if oid in found:
                _one_der(found[oid][1].contents, "an extension of a certificate")
                values[oid] = found[oid][1].parsed
        constraints, purposes = values.get(_BASIC_CONSTRAINTS), values.get(_EXTENDED_KEY_USAGE)
        not_before, not_after = (tbs["validity"][name].native for name in ("not_before", "not_after"))
        if type(not_before) is not datetime or type(not_after) is not datetime:  # asn1crypto has a class of its own for the year 0
            raise _Refused("a certificate's validity must be of the years 1 to 9999")
        bits = whole["signature_value"].contents
        if bits[0] != 0:
            raise _Refused("a certificate's signature must be of whole bytes")
        return _Certificate(
            der=der, signed=tbs.dump(), algorithm=_signature_algorithm(whole["signature_algorithm"]), signature=bits[1:],
            issuer=tbs["issuer"].dump(), subject=tbs["subject"].dump(), serial=tbs["serial_number"].native,
            not_before=not_before, not_after=not_after, key=tbs["subject_public_key_info"].dump(),
            authority=constraints is not None and constraints["ca"].native is True,
            path_length=None if constraints is None else constraints["path_len_constraint"].native,
            usage=frozenset(values[_KEY_USAGE].native) or None if _KEY_USAGE in values else None,
            purposes=tuple(purpose.dotted for purpose in purposes) if purposes is not None else None,
            purposes_critical=purposes is not None and found[_EXTENDED_KEY_USAGE][0] is True,
            understood=_NAME_CONSTRAINTS not in found and all(oid in _KNOWN_EXTENSIONS for oid, (critical, _) in found.items() if critical),
        )

    certificate: _Certificate = asn1.read(asn1.x509.Certificate, der, "a certificate", build)
    return certificate


def _check_tbs(tbs: Any, elements: Sequence[bytes]) -> str:
    """Requires of what a certificate signs what the packages pass over: its version, its times, and one spelling of its key, whose kind is returned."""
    version, named, extended = tbs["version"].native, elements[0] != b"", elements[-1][0] == 0xA3
    if version not in ("v1", "v2", "v3") or named == (version == "v1") or extended and version != "v3":
        raise _Refused("a certificate must be of version 3 where it has extensions, and not name version 1")
    if tbs["serial_number"].native < 0:
        raise _Refused("a certificate's serial number must not be negative")
    if not all(_CERTIFICATE_TIME.fullmatch(time) for time in _fields(tbs["validity"].contents, rb"[\x17\x18]{2}", "a certificate's validity")):
        raise _Refused("a certificate's validity must be of whole seconds in UTC")
    algorithm, bits = _fields(tbs["subject_public_key_info"].contents, rb"\x30\x03", "a certificate's key")
    _fields(_inside(algorithm), rb"\x06.?", "a certificate's key")
    named_key = tbs["subject_public_key_info"]["algorithm"]
    kind = named_key["algorithm"].dotted
    # Other curves and forms of a point, and RSA without the NULL of RFC 3279, section 2.3.1, are read by some libraries.
    if kind == _EC_KEY and (named_key["parameters"].native not in _NAMED_CURVES or _inside(bits)[1:2] != b"\x04"):
        raise _Refused("the point of a certificate's key must be written out, and be on P-224, P-256, P-384 or P-521")
    if kind == _RSA_ENCRYPTION:
        _fields(_inside(algorithm), rb"\x06\x05", "a certificate's key")
    return str(kind)


def _check_signature_by(key: bytes, kind: str, digest: str, signature: bytes, signed: bytes) -> None:
    """Checks RSA (PKCS #1 version 1.5) or ECDSA by a SubjectPublicKeyInfo."""
    refusal = "the signature does not belong to it"
    try:
        public = load_der_public_key(key)
        if kind == "RSA" and isinstance(public, rsa.RSAPublicKey):
            exponent = public.public_numbers().e
            if not 2048 <= public.key_size <= 8192 or not 3 <= exponent < 2**31 or exponent % 2 == 0 or not _inside(key).startswith(_RSA_KEY):
                raise _Refused("an RSA key must have 2048 to 8192 bits and an odd exponent from 3 to 2^31-1, and not be for PSS")
            public.verify(signature, signed, padding.PKCS1v15(), _HASHES[digest])
        elif kind == "ECDSA" and isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)):
            public.verify(signature, signed, ec.ECDSA(_HASHES[digest]))
        else:
            raise _Refused("the key does not fit the signature: it must be RSA, or on P-256, P-384 or P-521")
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        raise _Refused(refusal) from None


def _read_token(der: bytes, asn1: _Asn1) -> _Token:
    """Reads a TimeStampToken: CMS SignedData (RFC 5652) of one signer over a TSTInfo, and checks its signature.

    There is nothing in it that neither the signature covers nor a certificate binds:
    no unsigned attributes and no revocation lists.
    """
    _one_der(der, "the token")

    def build(info: Any) -> _Token:
        _fields(_inside(_fields(info.contents, rb"\x06\xa0", "the token")[1]), rb"\x30", "the token")
        if info["content_type"].dotted != _SIGNED_DATA:
            raise _Refused("the token is no CMS SignedData")
        data = info["content"]
        _fields(data.contents, rb"\x02\x31\x30\xa0\x31", "the signed data, which has certificates and no revocation lists,")
        if _version(data["version"]) != 3:
            raise _Refused("the version of the token's signed data must be 3")
        content = data["encap_content_info"]
        _fields(_inside(_fields(content.contents, rb"\x06\xa0", "the encapsulated content")[1]), rb"\x04", "the encapsulated content")
        if content["content_type"].dotted != _TST_INFO:
            raise _Refused("what the token signs is no TSTInfo")
        if len(data["digest_algorithms"]) != 1 or len(data["signer_infos"]) != 1:
            raise _Refused("the token must have one digest algorithm and one signer")
        certificates = tuple(_fields(data["certificates"].contents, rb"\x30{1,%d}" % _MAX_CERTIFICATES, "the set of X.509 certificates, at most 8,"))
        tst_info = content["content"].contents
        signer = _check_signer(data["signer_infos"][0], data["digest_algorithms"][0], tst_info, certificates, asn1)
        _one_der(tst_info, "the TSTInfo")
        imprint, at, accuracy = asn1.read(asn1.tsp.TSTInfo, tst_info, "the TSTInfo", lambda value: _read_tst_info(value, asn1))
        return _Token(imprint, at, accuracy, signer, certificates)

    token: _Token = asn1.read(asn1.cms.ContentInfo, der, "the token", build)
    return token


def _version(value: Any) -> int:
    return int.from_bytes(value.contents, "big", signed=True)


def _check_signer(info: Any, listed: Any, tst_info: bytes, certificates: Sequence[bytes], asn1: _Asn1) -> _Certificate:
    """Checks the signature over the attributes, and by them over the TSTInfo; returns the signer's certificate."""
    _fields(info.contents, rb"\x02\x30\x30\xa0\x30\x04", "the signer, which has signed attributes and no unsigned ones,")
    if _version(info["version"]) != 1 or info["sid"].name != "issuer_and_serial_number":
        raise _Refused("the signer must be of version 1, and be named by issuer and serial number")
    issuer, serial = _fields(info["sid"].chosen.contents, rb"\x30\x02", "the signer's name")
    named = {certificate for certificate in certificates if _outline(certificate)[1:4:2] == [serial, issuer]}
    if len(named) != 1:
        raise _Refused("the signer must name exactly one of the token's certificates")
    signer = _read_certificate_der(named.pop(), asn1)
    digest = _digest_name(info["digest_algorithm"], "the signer's digest")
    if digest != _digest_name(listed, "the listed digest"):
        raise _Refused("the signer's digest is not the listed one")

    encoded = _fields(info["signed_attrs"].contents, rb"\x30+", "the signed attributes")
    if encoded != sorted(set(encoded)):
        raise _Refused("the signed attributes must stand in the order of DER")
    attributes: dict[str, bytes] = {}  # by type, the one value
    for attribute in info["signed_attrs"]:
        oid, (_, values) = attribute["type"].dotted, _fields(attribute.contents, rb"\x06\x31", "a signed attribute")
        if oid in attributes:
            raise _Refused("a signed attribute must stand once")
        (attributes[oid],) = _fields(_inside(values), rb".", "a signed attribute")
    expected = asn1.core.ObjectIdentifier(_TST_INFO).dump()
    if attributes.get(_CONTENT_TYPE) != expected:
        raise _Refused("the signed attributes must name the content type TSTInfo")
    if attributes.get(_MESSAGE_DIGEST) != asn1.core.OctetString(hashlib.new(digest, tst_info).digest()).dump():
        raise _Refused("the signed digest is not the TSTInfo's")
    _check_binding(attributes, signer, asn1)

    algorithm = _algorithm(info["signature_algorithm"], "the signature's algorithm")
    kind, hashed = ("RSA", digest) if algorithm == _RSA_ENCRYPTION else _SIGNATURES.get(algorithm, ("", ""))
    if hashed != digest:
        raise _Refused("the signature must be RSA (PKCS #1 version 1.5) or ECDSA, with the signer's digest")
    # The signature covers the set itself, not its implicit tag (RFC 5652, section 5.4).
    signed = b"\x31" + info["signed_attrs"].dump()[1:]
    _check_signature_by(signer.key, kind, digest, info["signature"].contents, signed)
    return signer


def _check_binding(attributes: Mapping[str, bytes], signer: _Certificate, asn1: _Asn1) -> None:
    """Requires that the first certificate that the attributes name is the signer's (RFC 2634, section 5.4, and RFC 5816).

    The older attribute names it by SHA-1; no signature rests on that.
    """
    found = False
    for oid, kind, digest in ((_SIGNING_CERTIFICATE, "SigningCertificate", "sha1"), (_SIGNING_CERTIFICATE_V2, "SigningCertificateV2", "sha256")):
        if oid not in attributes:
            continue
        found = True

        # In the newer one SHA-256 is the default, and so may be left out.
        def build(value: Any, digest: str = digest) -> None:
            _fields(value.contents, rb"\x30\x30?", "the signing certificate")
            first = value["certs"][0]
            if _fields(first.contents, rb"\x04\x30?" if digest == "sha1" else rb"\x30?\x04\x30?", "the signing certificate")[0][0] == 0x30:
                digest = _digest_name(first["hash_algorithm"], "the signing certificate's digest")
            if first["cert_hash"].contents != hashlib.new(digest, signer.der, usedforsecurity=False).digest():
                raise _Refused("the signing certificate that is named is not the signer's")

        asn1.read(getattr(asn1.tsp, kind), attributes[oid], "the signing certificate", build)
    if not found:
        raise _Refused("the signed attributes must name the signing certificate")


def _read_tst_info(info: Any, asn1: _Asn1) -> tuple[bytes, datetime, timedelta]:
    """The imprint, the time and the accuracy of a TSTInfo (RFC 3161, section 2.4.2)."""
    _fields(info.contents, rb"\x02\x06\x30\x02\x18\x30?\x01?\x02?\xa0?\xa1?", "the TSTInfo")
    if _version(info["version"]) != 1:
        raise _Refused("the version of the TSTInfo must be 1")
    imprint = info["message_imprint"]
    _fields(imprint.contents, rb"\x30\x04", "the imprint")
    if _digest_name(imprint["hash_algorithm"], "the imprint's digest") != "sha256" or len(imprint["hashed_message"].contents) != 32:
        raise _Refused("the imprint must be of SHA-256")
    match = _GENERALIZED_TIME.fullmatch(info["gen_time"].contents)
    if match is None:
        raise _Refused("genTime must be in UTC, with at most 6 digits of fraction and no zeros at the end")
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    try:
        at = datetime(year, month, day, hour, minute, second, int(f"{(match[7] or b'').decode('ascii'):0<6}"), timezone.utc)
    except ValueError:
        raise _Refused("genTime must be a real date and time") from None
    accuracy = timedelta(0)
    if not isinstance(info["accuracy"], asn1.core.Void):
        _fields(info["accuracy"].contents, rb"\x02?\x80?\x81?", "the accuracy")
        for name, least, most, unit in (("seconds", 0, 3600, 1_000_000), ("millis", 1, 999, 1000), ("micros", 1, 999, 1)):
            part = info["accuracy"][name]
            if isinstance(part, asn1.core.Void):
                continue
            if not _is_der(0x02, part.contents) or not least <= part.native <= most:
                raise _Refused("the accuracy is out of bounds")
            accuracy += timedelta(microseconds=part.native * unit)
        if accuracy > _MAX_ACCURACY:
            raise _Refused("the accuracy is out of bounds")
    extensions = [] if isinstance(info["extensions"], asn1.core.Void) else list(info["extensions"])
    for extension in extensions:
        _fields(extension.contents, _EXTENSION, "an extension of the TSTInfo")
    if len({extension["extn_id"].dotted for extension in extensions}) != len(extensions) or any(extension["critical"].native for extension in extensions):
        raise _Refused("the TSTInfo has an extension twice, or a critical one, which no verifier here knows")
    return imprint["hashed_message"].contents, at, accuracy


def _check_token(der: bytes, imprint: bytes, authority: _Authority, asn1: _Asn1) -> _Token:
    """Checks a token of a pinned authority over a SHA-256 imprint; no clock is asked."""
    token = _read_token(der, asn1)
    if token.imprint != imprint:
        raise _Refused("the token stamps something else")
    signer = token.signer
    if signer.authority or not signer.purposes_critical or signer.purposes != (_TIME_STAMPING,):
        raise _Refused("key usage: the signer's certificate must be for time stamping alone, say so critically, and be no authority's")
    if signer.usage is not None and signer.usage.isdisjoint({"digital_signature", "non_repudiation"}):
        raise _Refused("key usage: the signer's certificate is not for signatures")
    _check_chains(token, authority, asn1)
    return token


def _check_chains(token: _Token, authority: _Authority, asn1: _Asn1) -> None:
    """Requires that the signer's certificate was valid at the token's time and leads to a pinned one in at most 4 steps.

    What else the token holds, doubles and certificates of other chains among them, counts for nothing.
    """
    signer = token.signer
    if not signer.valid_at(token.at):
        raise _Untrusted("the signer's certificate had expired, or was not valid yet")
    if not signer.understood:
        raise _Untrusted("the signer's certificate has a critical extension that is not known here (RFC 5280, section 4.2)")
    known: dict[bytes, _Certificate] = {}
    for der in (*token.certificates, *authority.certificates):
        with contextlib.suppress(_Refused):  # one that cannot be read strictly has issued nothing
            known[der] = _read_certificate_der(der, asn1)
    checked: dict[tuple[bytes, bytes], bool] = {}

    def issued(issuer: _Certificate, subject: _Certificate) -> bool:
        """Whether one signed the other; each pair is checked once."""
        pair = (issuer.der, subject.der)
        if pair not in checked:
            checked[pair] = False
            itself = (issuer.subject, issuer.key) == (subject.subject, subject.key)  # another certificate of one key leads nowhere
            if issuer.subject == subject.issuer and not itself and issuer.authority and issuer.understood and (issuer.usage is None or "key_cert_sign" in issuer.usage):
                with contextlib.suppress(_Refused):
                    _check_signature_by(issuer.key, *_SIGNATURES.get(subject.algorithm, ("", "")), subject.signature, subject.signed)
                    checked[pair] = True
        return checked[pair]

    reached = {signer.der: signer}
    for step in range(_MAX_STEPS):
        if not reached.keys().isdisjoint(authority.certificates):
            break
        reached = {
            issuer.der: issuer
            for issuer in known.values()
            if issuer.valid_at(token.at) and (issuer.path_length is None or issuer.path_length >= step)
            and (issuer.purposes is None or not {_TIME_STAMPING, _ANY_USAGE}.isdisjoint(issuer.purposes))
            and any(issued(issuer, subject) for subject in reached.values())
        }
    if reached.keys().isdisjoint(authority.certificates):
        raise _Untrusted(f"the signer's certificate does not lead to one that is pinned for {authority.name}")


def _format_time(at: datetime) -> str:
    """As the service writes times: UTC with Z, at most 6 digits of fraction, no zeros at the end."""
    text = f"{at.year:04}-{at.month:02}-{at.day:02}T{at.hour:02}:{at.minute:02}:{at.second:02}.{at.microsecond:06}"
    return text.rstrip("0").rstrip(".") + "Z"


def _judge_time(f: Findings, envelope: Mapping[str, Any], record: Mapping[str, Any], o: _Options) -> None:
    """Says what pinned timestamp authorities stamped: checkpoints of the log that hold the record, and nothing by the tokens' word alone."""
    if not o.trusted._authorities or not o.trusted._log_keys:
        f.notes.append("The timestamps were not checked: the trusted keys name no timestamp authority, or no key of the log.")
        return
    try:
        asn1 = _Asn1()
    except ImportError:
        f.notes.append(
            "The timestamps were not checked: that needs the package asn1crypto (Debian: python3-asn1crypto; else python3 -m pip install asn1crypto)."
        )
        return
    f.time = _part(f, "time", lambda: _verify_time(f, envelope, record, o, asn1))


def _verify_time(f: Findings, envelope: Mapping[str, Any], record: Mapping[str, Any], o: _Options, asn1: _Asn1) -> None:
    if "inclusion" not in envelope:
        raise _Refused("it needs the member inclusion, whose leaf it proves")
    leaf = envelope["inclusion"]["leaf"]
    _check_leaf(leaf, envelope["payload"])
    valid: list[tuple[datetime, str]] = []
    passed: str | None = None  # why a token was passed over
    for stamped in envelope["timestamps"]:
        checkpoint = _check_proof(stamped, leaf, o.trusted)
        imprint = hashlib.sha256(stamped["checkpoint"].encode("utf-8")).digest()
        for entry in stamped["tokens"]:
            authority = o.trusted._authorities.get(entry["authority"])
            if authority is None:
                passed = passed or "none of its tokens is of a pinned authority"
                f.notes.append(f"A token of the timestamp authority {entry['authority'][:_MAX_SHOWN]} was passed over: it is not pinned.")
                continue
            token = _check_token(_decode_der(entry["token"], "token"), imprint, authority, asn1)
            if entry["genTime"] != _format_time(token.at):
                raise _Refused("genTime is not the token's")
            if token.at - o.clock > _CLOCK_TOLERANCE:
                raise _Refused("the token lies in the future of this computer's clock")
            if _timestamp(record["receivedAt"], "receivedAt") - token.latest > _CLOCK_TOLERANCE:
                raise _Refused("the token is earlier than the record was received: one of the two clocks is wrong")
            if checkpoint.revocation is None or token.latest < checkpoint.revocation.since:
                valid.append((token.latest, authority.name))
                continue
            passed = f"the log key has been revoked, and no pinned authority stamped the checkpoint before {checkpoint.revocation.text}"
            f.notes.append(f"A token of {authority.name} was passed over: {passed}.")
    if not valid:
        raise _Untrusted(passed or "no token counts")
    latest, f.time_authority = min(valid, key=lambda found: found[0])
    f.existed_before = _format_time(latest)


# --- Verification ---------------------------------------------------------------


@dataclasses.dataclass
class Findings:
    """What a receipt proves, part by part: never one boolean.

    A part that was not reached because an earlier one failed is "not-checked";
    a value that is not established is None.
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
    time: str = NOT_CHECKED  # what pinned timestamp authorities say
    existed_before: str | None = None  # the least time that a valid token states, with its accuracy
    time_authority: str | None = None  # the name of the authority of that token
    witnessed: int | None = None  # pinned witnesses that cosigned the checkpoint of a valid inclusion; None where none is pinned
    record: dict[str, Any] | None = None  # the payload; None unless the signature is valid
    certificate: dict[str, Any] | None = None  # the same of a certificate
    reasons: list[str] = dataclasses.field(default_factory=list)  # the failures in words
    notes: list[str] = dataclasses.field(default_factory=list)  # what a reader must know besides
    witnesses: int = 0  # how many are pinned
    accepted: bool = False  # under a revoked key, as a pinned authority stamped the record before

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
            "asOfSequence": self.as_of_sequence, "time": self.time, "existedBefore": self.existed_before, "timeAuthority": self.time_authority,
            "witnessed": self.witnessed, "record": self.record, "certificate": self.certificate, "reasons": self.reasons, "notes": self.notes,
        }


@dataclasses.dataclass(frozen=True)
class _Options:
    """What a receipt is verified against."""

    trusted: TrustedKeys
    document: bytes | Path | None
    clock: datetime
    record_schema: Mapping[str, Any] | None
    status_schema: Mapping[str, Any] | None
    status_as_of_schema: Mapping[str, Any] | None
    require_witnesses: int
    accept_stamped: bool


def _check_required(witnesses: int) -> None:
    """Refuses any other number of witnesses: each comparison with NaN is false, so that none would be required."""
    if not isinstance(witnesses, int) or witnesses < 0:
        raise CannotCheck("require_witnesses must be a whole number of 0 or more")


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
    require_timestamp: bool = False,
    require_witnesses: int = 0,
    accept_stamped_before_revocation: bool = False,
    now: datetime | None = None,
) -> Findings:
    """Verifies a receipt against pinned keys, and compares a document with it.

    With both saved schemas, integrity-v1.json and integrity-status-v1.json as
    json.load gives them, the payloads of a receipt are validated against them as well,
    and with integrity-status-as-of-v1.json the payload of a state as of an earlier moment;
    that needs the package jsonschema. A certificate has neither of these payloads.
    now is the verifier's clock, with a time zone; by default this computer's.

    require_witnesses is how many pinned witnesses must have cosigned the checkpoint that
    holds the record. accept_stamped_before_revocation accepts a signature under a revoked
    key where a pinned timestamp authority stamped the record before the revocation.

    Raises CannotCheck where nothing can be verified, OSError where the document
    cannot be read. Whatever is wrong with the receipt is a finding.
    """
    _check_required(require_witnesses)
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
    o = _Options(
        trusted, document, now or datetime.now(timezone.utc), record_schema, status_schema, status_as_of_schema,
        require_witnesses, accept_stamped_before_revocation,
    )

    f = Findings()
    try:
        envelope = _read_receipt(receipt)
    except _Refused as error:
        f.reasons.append(f"signature: {error}")
        return f
    if "contract" not in envelope:
        _verify_certificate(f, envelope, trusted, document)
    else:
        _verify_envelope(f, envelope, o)
    require_inclusion = require_inclusion or receipt.startswith(_PROOF_HEADER)  # a proof that was not checked proves nothing
    if require_references and f.references == NOT_SUPPLIED:
        f.reasons.append("references: they are required and not supplied")
    if require_current and f.observed_status != "current":
        f.reasons.append("observation: a valid observation that the version was current is required")
    if require_inclusion and f.inclusion == NOT_SUPPLIED:
        f.reasons.append("inclusion: a valid proof of inclusion in the transparency log is required")
    if require_timestamp and f.time == NOT_SUPPLIED:
        f.reasons.append("time: a valid token of a pinned timestamp authority is required")
    if f.record is not None:  # otherwise nothing was checked but the signature, and its reason says enough
        if require_inclusion and f.inclusion == NOT_CHECKED and trusted._log_keys:
            f.reasons.append("inclusion: the leaf in the transparency log is not that of a registration")
        elif require_inclusion and f.inclusion == NOT_CHECKED:
            f.reasons.append(
                "inclusion: a proof was supplied, but it could not be checked, because the trusted keys name no key of its log: "
                "obtain that key from a source that you trust, and add it to logKeys in the trusted-keys file"
            )
        if require_timestamp and f.time == NOT_CHECKED:
            f.reasons.append("time: tokens were supplied, but none could be checked")
    if (f.witnessed or 0) < require_witnesses:
        f.reasons.append(f"witnesses: {require_witnesses} pinned witnesses must have cosigned the checkpoint, and {f.witnessed or 0} have")
    return f


@dataclasses.dataclass(frozen=True)
class KeySet:
    """Trusted keys that a service has published in its transparency log.

    Everyone who sees this log sees that they were published. That does not show that the
    keys are good, nor that no later ones were published.
    """

    trusted: TrustedKeys
    file: bytes  # the trusted-keys file as it was published, in its RFC 8785 form
    issuer: str
    published_at: str  # by the service's clock
    payload_sha256: str
    origin: str
    tree_size: int
    leaf_index: int
    log_key_pinned: bool  # False where the proof rests on witnesses alone
    log_key_listed: bool  # False where the log key was rotated and the new keys are not published yet
    witnesses: tuple[str, ...]  # the pinned ones that cosigned the checkpoint
    cosigned_at: str | None  # the latest time of these, by their own words; None without one


def verify_key_set(
    proof: bytes,
    pinned: bytes | TrustedKeys,
    *,
    origin: str = "",
    issuer: str = "",
    require_witnesses: int = 0,
    now: datetime | None = None,
) -> KeySet:
    """Verifies the proof of published keys (GET /api/public/log/keys) against what you pin.

    pinned is a trusted-keys file, of which only logKeys, witnessKeys and revoked log keys
    count; its member keys may be empty. Without a log key, at least one pinned witness must
    have cosigned the checkpoint, and origin must name the log, because a witness cosigns many.

    The log must be named after the issuer of the keys: https://ledger.example publishes in
    ledger.example/log. To accept any other issuer in this log, name it.

    Raises NotProven where the proof does not hold, and CannotCheck where pinned cannot be read.
    """
    _check_required(require_witnesses)
    trusted = pinned if isinstance(pinned, TrustedKeys) else parse_trusted_keys(pinned)
    try:
        return _verify_key_set(proof, trusted, origin, issuer, require_witnesses, now or datetime.now(timezone.utc))
    except _Refused as error:
        raise NotProven(str(error)) from None


def _verify_key_set(proof: bytes, pinned: TrustedKeys, origin: str, expected: str, required: int, clock: datetime) -> KeySet:
    if len(proof) > _MAX_KEY_SET_PROOF:
        raise _Refused(f"the file must have at most {_MAX_KEY_SET_PROOF} bytes")
    data, inclusion = _read_tlog_lines(proof, "integrity-key-set-proof-v1", ["payload"])
    text = _string(data["payload"], "extra data, payload")
    issuer, file = _read_key_set(text)
    trusted = _parse_trusted_keys(file)
    if pinned._log_keys:
        checkpoint = _open_checkpoint(inclusion["checkpoint"], pinned)
        if checkpoint.revocation is not None:
            raise _Untrusted("the log key has been revoked")
    elif not pinned._witnesses:
        raise _Refused("pin a log key or a witness key: a proof without one shows nothing")
    elif not origin:
        raise _Refused("give the origin of the log: a witness cosigns many logs")
    else:
        required = max(1, required)
        note = _read_note(inclusion["checkpoint"])
        checkpoint = _Checkpoint(note.origin, note.size, note.root, note.text, note.signatures, None)
    if origin and checkpoint.origin != origin:
        raise _Refused("the checkpoint is of another log")
    cosigned, _ = _cosigned(checkpoint, pinned, clock)
    if len(cosigned) < required:
        raise _Refused(f"{required} pinned witnesses must have cosigned the checkpoint, and {len(cosigned)} have")
    _check_path(inclusion, data["leaf"], checkpoint.size, checkpoint.root)
    leaf, digest = _read_leaf(data["leaf"]), hashlib.sha256(text.encode("utf-8")).hexdigest()
    if leaf["type"] != "keys.published" or leaf["payloadSha256"] != digest:
        raise _Refused("the leaf belongs to another key set")
    if expected and expected != issuer:
        raise _Refused(f"the keys belong to the issuer {issuer}, not to {expected}")
    if not expected and checkpoint.origin != _log_name(issuer):
        raise _Refused(
            f"the log {checkpoint.origin} is not named after the issuer of the keys, {issuer}: name that issuer if you expect its keys in this log"
        )
    try:
        listed = True
        if _open_checkpoint(inclusion["checkpoint"], trusted).revocation is not None:
            raise _Refused("the key set revokes the log key that signed the checkpoint: pin the new log key")
    except _Untrusted:
        listed = False
    return KeySet(
        trusted, file, issuer, leaf["occurredAt"], digest, checkpoint.origin, checkpoint.size, inclusion["leafIndex"], bool(pinned._log_keys), listed,
        tuple(name for name in dict.fromkeys(name for name, _ in pinned._witnesses) if name in cosigned),
        _format_time(max(cosigned.values())) if cosigned else None,
    )


_HOST: Final = re.compile("(?:[A-Za-z][A-Za-z0-9+.-]*:)?//")
_PLAIN_URL: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://([A-Za-z0-9.-]+(?::[0-9]+)?)((?:/[A-Za-z0-9._~-]*)*)")


def _log_name(issuer: str) -> str | None:
    """The name of the log of an issuer: without the scheme, and followed by /log.

    None for a URL with more than a host name, a port and a plain path, because libraries read such URLs differently.
    """
    url = _PLAIN_URL.fullmatch(issuer)
    if url is None and _HOST.match(issuer):
        return None
    name = (issuer if url is None else url[1].lower() + url[2]).rstrip("/")
    return "".join(chr(c) if 0x20 < c < 0x7F and c != 0x2B else f"%{c:02X}" for c in name.encode("utf-8")) + "/log"


def _read_key_set(text: str) -> tuple[str, bytes]:
    """The issuer and the trusted-keys file of a payload in its canonical form."""
    raw = text.encode("utf-8")
    if len(raw) > _MAX_KEY_SET:
        raise _Refused(f"the key set must have at most {_MAX_KEY_SET} bytes")
    payload = _members(_parse(raw, _MAX_DEPTH + 1), "key set", ["contract", "issuer", "trustedKeys"])
    _constant(payload["contract"], "key set, contract", "integrity-key-set-v1")
    _match(payload["issuer"], "key set, issuer", _ISSUER)
    if not isinstance(payload["trustedKeys"], dict):
        raise _Refused("trusted keys must be an object")
    if _canonical(payload) != text:
        raise _Refused("key set: the text is not in the canonical form of RFC 8785")
    return payload["issuer"], _canonical(payload["trustedKeys"]).encode("utf-8")


def _part(f: Findings, name: str, check: Callable[[], None]) -> str:
    """The finding on one part; the reason of a failure is kept."""
    try:
        check()
    except _Refused as error:
        f.reasons.append(f"{name}: {error}")
        return UNTRUSTED if isinstance(error, _Untrusted) else INVALID
    except _OtherLeaf:
        f.notes.append(f"Not checked: {name}. The leaf is not that of a registration; the record may have been healed.")
        return NOT_CHECKED
    return VALID


def _verify_envelope(f: Findings, envelope: Mapping[str, Any], o: _Options) -> None:
    f.references, f.observation, f.status_as_of, f.inclusion, f.time = (
        NOT_CHECKED if name in envelope else NOT_SUPPLIED for name in ("references", "statusObservation", "statusAsOf", "inclusion", "timestamps")
    )

    f.signature = _part(f, "signature", lambda: _verify_record(f, envelope, o))
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
        f.observation = _state(f, "observation", envelope["statusObservation"], o, lambda: _verify_observation(f, envelope, record, o))
        _judge_status(f)
    if f.time == NOT_CHECKED:
        _judge_time(f, envelope, record, o)
    if f.inclusion == NOT_CHECKED and o.trusted._log_keys:
        f.inclusion = _part(f, "inclusion", lambda: _verify_inclusion(f, envelope, o))
    elif f.inclusion == NOT_CHECKED:
        f.notes.append("The proof of inclusion in the transparency log was not checked: the trusted keys name no key of the log.")
    if f.status_as_of != NOT_SUPPLIED:
        f.status_as_of = _state(f, "status as of", envelope["statusAsOf"], o, lambda: _verify_as_of(f, envelope, record, o))
        _judge_history(f)
    _compare(f, record, o.document)


def _state(f: Findings, name: str, signed: Mapping[str, Any], o: _Options, check: Callable[[], None]) -> str:
    """The finding on a signed state. Under a revoked key it says nothing, which is no failure of a record that was accepted under one."""
    reasons = len(f.reasons)
    finding = _part(f, name, check)
    if finding == UNTRUSTED and f.accepted and o.trusted._is_revoked(signed["keyId"]):
        del f.reasons[reasons:]
        f.notes.append(f"{name}: its key has been revoked, so it says nothing")
    return finding


def _verify_certificate(f: Findings, signed: Mapping[str, Any], trusted: TrustedKeys, document: bytes | Path | None) -> None:
    """A certificate has no references, no observation, no history, no inclusion and no timestamps: nothing is said about its validity now."""
    def check() -> None:
        _check_pinned(f, signed, trusted)
        f.certificate = _read_certificate(signed["payload"])

    f.signature = _part(f, "signature", check)
    if f.certificate is not None:
        f.references = f.observation = f.status_as_of = f.inclusion = f.time = NOT_SUPPLIED
        f.notes.append("Whether the certificate is still valid, or was replaced or revoked, is not established: only the service can say, online.")
        _compare(f, f.certificate, document)


def _check_pinned(f: Findings, signed: Mapping[str, Any], trusted: TrustedKeys) -> None:
    if _check_signature(signed, trusted).retired:
        f.notes.append("The signing key has been retired; it stays trusted.")


def _verify_record(f: Findings, envelope: Mapping[str, Any], o: _Options) -> None:
    if o.accept_stamped and o.trusted._is_revoked(envelope["keyId"]):
        _accept_stamped(f, envelope, o)
        return
    _check_pinned(f, envelope, o.trusted)
    f.record = _read_record(envelope["payload"], o.record_schema)


def _revoked_key(signed: Mapping[str, Any], trusted: TrustedKeys) -> tuple[_Key, _Revocation]:
    """The revoked key that signed: the pinned one, or the receipt's own where the file as it is published names it by two hashes alone."""
    key_id = signed["keyId"]
    key = trusted._keys.get(key_id)
    if key is None:
        try:
            raw = _decode(signed["publicKeyJwk"]["x"], 32, "x")
        except _Refused as error:
            raise _Untrusted(f"the key has been revoked: {error}") from None
        name, fingerprint = _key_names(raw)
        key = _Key(name, raw, fingerprint)
    revocation = trusted._revocation(key.key_id, key.fingerprint)
    if revocation is None or (key_id, key_id, key.fingerprint) != (key.key_id, revocation.key_id, revocation.fingerprint) or not _is_of(signed, key):
        raise _Untrusted("the key has been revoked, and the receipt's differs from the one of the same keyId")
    return key, revocation


def _accept_stamped(f: Findings, envelope: Mapping[str, Any], o: _Options) -> None:
    """Accepts a record under a revoked key that a pinned authority stamped before the revocation; any other is _Untrusted."""
    key, revocation = _revoked_key(envelope, o.trusted)
    _check_signed_by(envelope, key)
    record = _read_record(envelope["payload"], o.record_schema)
    stamped = Findings(time=f.time)
    if stamped.time == NOT_CHECKED:
        _judge_time(stamped, envelope, record, o)
    if stamped.time != VALID or stamped.existed_before is None or _timestamp(stamped.existed_before, "time") >= revocation.since:
        raise _Untrusted(f"the key has been revoked, and no pinned authority stamped the record before {revocation.text}")
    f.record, f.accepted = record, True
    f.time, f.existed_before, f.time_authority = stamped.time, stamped.existed_before, stamped.time_authority
    f.notes += stamped.notes
    f.notes.append(
        f"The signing key was revoked, since {revocation.text}; {f.time_authority} says that the record existed before {f.existed_before}, so it is accepted."
    )


def _verify_references(references: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    for name in ("companyReference", "source", "documentReference"):
        _match(references[name], name, _REFERENCE)
    _whole(references["version"], "version", 1, _MAX_VERSION)
    _decode(references["salt"], 16, "salt")
    if hashlib.sha256(_canonical(references).encode("utf-8")).hexdigest() != record["referencesSha256"]:
        raise _Refused("they are not those that the record was signed with")


def _verify_observation(f: Findings, envelope: Mapping[str, Any], record: Mapping[str, Any], o: _Options) -> None:
    observation = envelope["statusObservation"]
    _check_signature(observation, o.trusted)
    status = _read_status(observation["payload"], o.status_schema)
    observed = _check_about(status, envelope, record, o.clock)
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


def _verify_as_of(f: Findings, envelope: Mapping[str, Any], record: Mapping[str, Any], o: _Options) -> None:
    signed = envelope["statusAsOf"]
    _check_signature(signed, o.trusted)
    status = _read_status_as_of(signed["payload"], o.status_as_of_schema)
    observed = _check_about(status, envelope, record, o.clock)
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
        f.notes.append(f"History: by {when} a version with a higher number was registered.")
    elif f.as_of_status == "current":
        f.notes.append(f"History: the version was current as of {when}; this says nothing about any later time.")


def _judge_status(f: Findings) -> None:
    if f.observed_status == "revoked":
        f.reasons.append(f"observation: the record had been revoked by {f.observed_at}")
    elif f.observed_status == "superseded":
        f.notes.append(f"The version is historical: a version with a higher number was registered by {f.observed_at}.")
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


def _open(path: str | Path) -> BinaryIO:
    """A regular file: a pipe would be waited for without end, already by opening it."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CannotCheck(f"{path}: must be a regular file, no directory, pipe or device")
    return os.fdopen(descriptor, "rb")


def _hash_document(document: bytes | Path) -> tuple[str, int]:
    if isinstance(document, bytes):
        return hashlib.sha256(document).hexdigest(), len(document)
    digest, size = hashlib.sha256(), 0
    with _open(document) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


# --- Proven, and not proven -----------------------------------------------------

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
        "Records, references and states are kept while the service operates, not perpetually.",
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
        "Un enlace de verificación no autoriza a descargar un documento.",
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
        "Certificates and their states are kept while the service operates, not perpetually.",
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
        "Un certificado puede ser sustituido por el de una versión posterior, o revocado. Solo una consulta en línea muestra si sigue siendo válido; los motivos no se publican.",
        "No se garantiza disponibilidad (no hay SLA).",
        "Los certificados y sus estados se conservan mientras el servicio esté en funcionamiento, no a perpetuidad.",
        "Un enlace de verificación no autoriza a descargar un documento.",
        _LIMITS["es"][-1],
    ),
}


def limits(language: str = "en", certificate: bool = False) -> Sequence[str]:
    """The fixed sentences on what a record, or a certificate, does and does not prove, in "en" or "es"."""
    return (_CERTIFICATE_LIMITS if certificate else _LIMITS)[language]


# --- Command line ---------------------------------------------------------------


# Sentences of the command in Spanish, and their parts, by their English forms: {} is a word, {...} a part that is looked up too, and {!} any
# text as it is. Names of members and findings, values of findings, and JSON have no language.
_SPANISH: Final[Mapping[str, str]] = {
    "note": "nota",
    "NOT VALID": "NO VÁLIDO",
    "verdict": "veredicto",
    "NOT verified": "NO verificado",
    "everything that was supplied and checked is valid": "todo lo aportado y comprobado es válido",
    "not compared": "sin comparar",
    "matches the registered SHA-256": "coincide con el SHA-256 registrado",
    "DIFFERS from the registered SHA-256": "DIFIERE del SHA-256 registrado",
    "{}: {} at {}": "{}: {} en {}",
    "{} as of {} (sequence {}); not the present state": "{} en {} (secuencia {}); no es el estado actual",
    "existed before {}, says {}": "existía antes de {}, según {}",
    "{} of {}": "{} de {}",
    "{}, received at {} by the clock of {!}": "{}, recibido el {} según el reloj de {!}",
    "{}, issued at {} by the clock of {!}": "{}, emitido el {} según el reloj de {!}",
    "The log's key was revoked, since {}; a checkpoint that a pinned authority stamped before that holds the record.": "La clave del registro de transparencia está revocada desde {}; un punto de control que una autoridad de confianza selló antes contiene el registro.",
    "The log's key was revoked, since {}; before that {} pinned witnesses had cosigned the checkpoint.": "La clave del registro de transparencia está revocada desde {}; antes, {} testigos de confianza habían cofirmado el punto de control.",
    "The log {} of {} entries holds the record as its entry {}. That is no independent timestamp, and does not show that every reader sees the same log.": "El registro de transparencia {}, de {} entradas, contiene el registro en la entrada {}. No es un sello de tiempo independiente ni muestra que todos vean lo mismo.",
    "Cosignatures of pinned witnesses do not hold and are not counted: {!}": "No se cuentan las cofirmas de testigos de confianza que no se sostienen: {!}",
    "Cosignatures of the checkpoint were not checked; they are no trusted timestamps: {!}": "No se han comprobado cofirmas del punto de control; no son sellos de tiempo de confianza: {!}",
    "Not checked: {!}. The leaf is not that of a registration; the record may have been healed.": "No se ha comprobado: {!}. La hoja no es la de un registro nuevo; puede que el registro se haya restaurado.",
    "The timestamps were not checked: the trusted keys name no timestamp authority, or no key of the log.": "No se han comprobado los sellos de tiempo: las claves de confianza no nombran ninguna autoridad o ninguna clave del registro de transparencia.",
    "The timestamps were not checked: that needs the package asn1crypto (Debian: python3-asn1crypto; else python3 -m pip install asn1crypto).": "No se han comprobado los sellos de tiempo: hace falta el paquete asn1crypto (Debian: python3-asn1crypto; si no, python3 -m pip install asn1crypto).",
    "A token of the timestamp authority {} was passed over: it is not pinned.": "Se ha pasado por alto un sello de la autoridad {}: no está entre las de confianza.",
    "A token of {} was passed over: {...}.": "Se ha pasado por alto un sello de {}: {...}.",
    "Without the references nothing is said about company, source, document and version.": "Sin las referencias no se dice nada sobre empresa, origen, documento y versión.",
    "Without an observation nothing is said about the version's state.": "Sin una observación no se dice nada sobre el estado de la versión.",
    "The proof of inclusion in the transparency log was not checked: the trusted keys name no key of the log.": "No se ha comprobado la prueba de inclusión en el registro de transparencia: las claves de confianza no nombran ninguna de él.",
    "{...}: its key has been revoked, so it says nothing": "{...}: su clave está revocada, así que no dice nada",
    "Whether the certificate is still valid, or was replaced or revoked, is not established: only the service can say, online.": "No queda acreditado si el certificado sigue siendo válido o fue sustituido o revocado: solo el servicio puede decirlo, en línea.",
    "The signing key has been retired; it stays trusted.": "La clave de firma se ha retirado del uso; sigue siendo de confianza.",
    "The signing key was revoked, since {}; {} says that the record existed before {}, so it is accepted.": "La clave de firma está revocada desde {}; {} dice que el registro existía antes de {}, así que se acepta.",
    "History: by {} (sequence {}) a version with a higher number was registered.": "Historia: en {} (secuencia {}) ya había registrada una versión con un número superior.",
    "History: the version was current as of {} (sequence {}); this says nothing about any later time.": "Historia: la versión estaba vigente en {} (secuencia {}); esto no dice nada sobre ningún momento posterior.",
    "The version is historical: a version with a higher number was registered by {}.": "La versión es histórica: en {} ya había registrada otra con un número superior.",
    "The version was current at {}; that is not its present state.": "La versión estaba vigente en {}; no es su estado actual.",
    "No document was compared.": "No se ha comparado ningún documento.",
    "The document has {} bytes where the service counted {}.": "El documento tiene {} bytes; el servicio contó {}.",
    "The document has {} bytes where the origin declared {}.": "El documento tiene {} bytes; el origen declaró {}.",
    "references: they are required and not supplied": "references: se exigen y no se han aportado",
    "observation: a valid observation that the version was current is required": "observation: se exige una observación válida de que la versión estaba vigente",
    "inclusion: a valid proof of inclusion in the transparency log is required": "inclusion: se exige una prueba válida de inclusión en el registro de transparencia",
    "inclusion: the leaf in the transparency log is not that of a registration": "inclusion: la hoja del registro de transparencia no es la de un registro nuevo",
    "inclusion: a proof was supplied, but it could not be checked, because the trusted keys name no key of its log: obtain that key from a source that you trust, and add it to logKeys in the trusted-keys file": "inclusion: se ha aportado una prueba, pero no se ha podido comprobar, porque las claves de confianza no nombran ninguna clave de su registro de transparencia: obtenga esa clave por un medio en el que confíe y añádala a logKeys en el archivo de claves de confianza",
    "time: a valid token of a pinned timestamp authority is required": "time: se exige un sello válido de una autoridad de sellado de tiempo de confianza",
    "time: tokens were supplied, but none could be checked": "time: se han aportado sellos, pero no se ha podido comprobar ninguno",
    "witnesses: {} pinned witnesses must have cosigned the checkpoint, and {} have": "witnesses: deben haber cofirmado el punto de control {} testigos de confianza, y lo han hecho {}",
    "status as of: the record had been revoked by {} (sequence {})": "statusAsOf: el registro ya estaba revocado en {} (secuencia {})",
    "observation: the record had been revoked by {}": "observation: el registro ya estaba revocado en {}",
    "file: its SHA-256 is not the registered one: it may be another version, or its metadata may have changed": "file: su SHA-256 no es el registrado: puede ser otra versión o pueden haber cambiado sus metadatos",
    "the key is not among the trusted keys": "la clave no está entre las claves de confianza",
    "the key has been revoked": "la clave está revocada",
    "the key has been revoked: {...}": "la clave está revocada: {...}",
    "the key has been revoked, and no pinned authority stamped the record before {}": "la clave está revocada y ninguna autoridad de confianza selló el registro antes de {}",
    "the key has been revoked, and the receipt's differs from the one of the same keyId": "la clave está revocada y la del justificante difiere de la que tiene el mismo keyId",
    "the log key has been revoked": "la clave del registro de transparencia está revocada",
    "the log key has been revoked, and no pinned authority stamped the checkpoint before {}": "la clave del registro de transparencia está revocada y ninguna autoridad de confianza selló el punto de control antes de {}",
    "no pinned log key of its origin signed the checkpoint": "ninguna clave de confianza del registro de transparencia firmó el punto de control",
    "no token counts": "no cuenta ningún sello",
    "none of its tokens is of a pinned authority": "ninguno de sus sellos es de una autoridad de confianza",
    "the signer's certificate does not lead to one that is pinned for {}": "el certificado del firmante no lleva a ninguno de los fijados para {}",
    "the signer's certificate had expired, or was not valid yet": "el certificado del firmante había caducado o todavía no era válido",
    "the signer's certificate has a critical extension that is not known here (RFC 5280, section 4.2)": "el certificado del firmante tiene una extensión crítica que aquí no se conoce (RFC 5280, sección 4.2)",
    "the signature does not belong to the payload": "la firma no corresponde al payload",
    "the signature does not belong to it": "la firma no le corresponde",
    "the log's signature does not belong to it": "la firma del registro de transparencia no le corresponde",
    "not its signature": "la firma no es suya",
    "not a cosignature of this verifier's past": "no es una cofirma del pasado de este verificador",
    "the receipt's key differs from the trusted key of the same keyId": "la clave del justificante difiere de la clave de confianza con el mismo keyId",
    "they are not those that the record was signed with": "no son las referencias con las que se firmó el registro",
    "it is older than the record": "es anterior al registro",
    "it is about another record": "se refiere a otro registro",
    "it lies in the future of this computer's clock": "queda en el futuro según el reloj de este equipo",
    "its moment lies before the record": "su momento es anterior al registro",
    "its moment lies after it was observed": "su momento es posterior a la observación",
    "it needs the member inclusion, whose leaf it proves": "necesita el campo inclusion, cuya hoja prueba",
    "the leaf belongs to another record": "la hoja es de otro registro",
    "treeSize is not the checkpoint's, or leafIndex lies beyond the tree": "treeSize no es el del punto de control, o leafIndex queda fuera del árbol",
    "the hashes do not lead from the leaf to the checkpoint's root": "los hashes no llevan de la hoja a la raíz del punto de control",
    "there are more hashes than the tree has levels": "hay más hashes que niveles en el árbol",
    "there are fewer hashes than the tree has levels": "hay menos hashes que niveles en el árbol",
    "a signature is too short": "una firma es demasiado corta",
    "a signature line is not of the form of a signed note": "una línea de firma no tiene la forma de una nota firmada",
    "a signature of the log stands twice": "una firma del registro de transparencia está dos veces",
    "{...} must be three lines, a blank one and 1 to 100 signatures, each ended by a newline": "{...} debe tener tres líneas, una en blanco y de 1 a 100 firmas, cada una terminada por un salto de línea",
    "{...} must have a size within 2^53-1": "{...} debe tener un tamaño de 2^53-1 como máximo",
    "{...} must have no control characters but newlines": "{...} no debe tener más caracteres de control que saltos de línea",
    "critical must be names of members of the file, at least one and each once": "critical deben ser nombres de campos del archivo, al menos uno y cada uno una vez",
    "the file says that its member {!} must be understood, and this verifier does not know it: use a newer one": "el archivo dice que hay que entender su campo {!}, y este verificador no lo conoce: use uno más nuevo",
    "nested deeper than {}": "hay más de {} niveles de anidamiento",
    "only strings, integers, null and objects are signed": "solo se firman textos, enteros, null y objetos",
    "payload against its schema: {!}": "payload según su esquema: {!}",
    "payload must be of contract {} in this place": "payload debe ser aquí del contrato {}",
    "the text is not in the canonical form of RFC 8785": "el texto no está en la forma canónica de RFC 8785",
    "the text begins with a byte order mark": "el texto empieza con una marca de orden de bytes",
    "the text is not UTF-8 (at byte {})": "el texto no está en UTF-8 (en el byte {})",
    "the text is not one JSON value (line {}, column {})": "el texto no es un único valor JSON (línea {}, columna {})",
    "the member {!} appears more than once": "el campo {!} aparece más de una vez",
    "a lone surrogate stands for no character": "un surrogate suelto no representa ningún carácter",
    "a string must have no U+0000": "un texto no debe contener U+0000",
    "an integer must be within 2^53-1 and not minus zero": "un entero debe estar dentro de 2^53-1 y no ser menos cero",
    "an integer must be in plain digits, not {!}": "un entero se escribe solo con cifras, no {!}",
    "status must be current, superseded or revoked": "status debe ser current, superseded o revoked",
    "the file must have at most {} bytes": "el archivo debe tener {} bytes como máximo",
    "timestampAuthorities must be at most {}": "timestampAuthorities debe tener {} como máximo",
    "{...} must be a string": "{...} debe ser un texto",
    "{...} must be an object": "{...} debe ser un objeto",
    "{...} must be an array": "{...} debe ser una lista",
    "{...} must be an integer from {} to {}": "{...} debe ser un entero de {} a {}",
    "{...} must be a timestamp such as 2026-11-20T14:03:00Z": "{...} debe ser una fecha y hora como 2026-11-20T14:03:00Z",
    "{...} must be a real date and time of the years 1 to 9999": "{...} debe ser una fecha y hora que exista, de los años 1 a 9999",
    "{...} must be a real date and time": "{...} debe ser una fecha y hora que exista",
    "{...} must be in UTC with Z and at most {} digits of fraction without zeros at the end": "{...} debe estar en UTC con Z y {} decimales como máximo, sin ceros al final",
    "{...} must be in UTC, with at most 6 digits of fraction and no zeros at the end": "{...} debe estar en UTC, con 6 decimales como máximo y sin ceros al final",
    "{...} must be in the one spelling of base64": "{...} debe estar en la forma única de base64",
    "{...} must be {} bytes, in the one spelling of base64url": "{...} debe tener {} bytes, en la forma única de base64url",
    "{...} must be 32 bytes": "{...} debe tener 32 bytes",
    "{...} must be SHA-256, SHA-384 or SHA-512": "{...} debe ser SHA-256, SHA-384 o SHA-512",
    "{...} must be active or retired": "{...} debe ser active o retired",
    "{...} must be one element and nothing after it": "{...} debe ser un solo elemento, sin nada detrás",
    "{...} must be the verifier key of a signed note, of type {} and with its own name and hash": "{...} debe ser la clave de verificación de una nota firmada, de tipo {} y con su nombre y su hash",
    "{...} must have 1 to {} certificates": "{...} debe tener de 1 a {} certificados",
    "{...} must have 1 to {} elements": "{...} debe tener de 1 a {} elementos",
    "{...} must have at most {} bytes": "{...} debe tener {} bytes como máximo",
    "{...} must have the form that is documented": "{...} debe tener la forma documentada",
    "{...} must have the reason compromised or revoked": "{...} debe tener reason compromised o revoked",
    "{...} must hold the elements of its standard, and no others": "{...} debe tener los elementos de su norma y ningún otro",
    "{...} must be an X.509 certificate in DER": "{...} debe ser un certificado X.509 en DER",
    "{...} must be {}": "{...} debe ser {}",
    "{...} is given twice": "{...} está dos veces",
    "{...} cannot be read: {!}": "no se puede leer {...}: {!}",
    "{...} is cut off": "{...} está incompleto",
    "{...} is not in DER": "{...} no está en DER",
    "a length is not in DER": "una longitud no está en DER",
    "an element is not in DER": "un elemento no está en DER",
    "it is repeated": "está repetida",
    "its keyId is repeated": "su keyId está repetido",
    "its name is repeated": "su nombre está repetido",
    "keyHash does not belong to verifierKey": "keyHash no corresponde a verifierKey",
    "keyId or fingerprintSha256 does not belong to the key": "keyId o fingerprintSha256 no corresponde a la clave",
    "the same key has another role too": "la misma clave tiene además otra función",
    "there is no member {!}": "no existe el campo {!}",
    "{!} missing": "falta {!}",
    "a certificate has an extension twice": "un certificado tiene una extensión dos veces",
    "a certificate must be of version 3 where it has extensions, and not name version 1": "un certificado con extensiones debe ser de la versión 3, y no nombrar la versión 1",
    "a certificate names two algorithms of its signature": "un certificado nombra dos algoritmos de su firma",
    "a certificate's serial number must not be negative": "el número de serie de un certificado no debe ser negativo",
    "a certificate's signature must be of whole bytes": "la firma de un certificado debe tener bytes enteros",
    "a certificate's validity must be of the years 1 to 9999": "el plazo de validez de un certificado debe ser de los años 1 a 9999",
    "a certificate's validity must be of whole seconds in UTC": "el plazo de validez de un certificado debe tener segundos enteros en UTC",
    "a signed attribute must stand once": "un atributo firmado debe estar una sola vez",
    "an RSA key must have 2048 to 8192 bits and an odd exponent from 3 to 2^31-1, and not be for PSS": "una clave RSA debe tener de 2048 a 8192 bits y un exponente impar de 3 a 2^31-1, y no ser para PSS",
    "genTime is not the token's": "genTime no es el del sello",
    "the signer's certificate is not for signatures": "el certificado del firmante no es para firmas",
    "the signer's certificate must be for time stamping alone, say so critically, and be no authority's": "el certificado del firmante debe ser solo para sellado de tiempo, indicarlo en una extensión crítica y no ser de una autoridad de certificación",
    "the TSTInfo has an extension twice, or a critical one, which no verifier here knows": "el TSTInfo tiene una extensión dos veces, o una crítica, que aquí no se conoce",
    "the accuracy is out of bounds": "la precisión está fuera de los límites",
    "the imprint must be of SHA-256": "la huella sellada debe ser SHA-256",
    "the key does not fit the signature: it must be RSA, or on P-256, P-384 or P-521": "la clave no corresponde a la firma: debe ser RSA o de P-256, P-384 o P-521",
    "the point of a certificate's key must be written out, and be on P-224, P-256, P-384 or P-521": "el punto de la clave de un certificado debe estar sin comprimir y ser de P-224, P-256, P-384 o P-521",
    "the signature must be RSA (PKCS #1 version 1.5) or ECDSA, with the signer's digest": "la firma debe ser RSA (PKCS #1 versión 1.5) o ECDSA, con el resumen del firmante",
    "the signed attributes must name the content type TSTInfo": "los atributos firmados deben nombrar el tipo de contenido TSTInfo",
    "the signed attributes must name the signing certificate": "los atributos firmados deben nombrar el certificado de firma",
    "the signed attributes must stand in the order of DER": "los atributos firmados deben ir en el orden de DER",
    "the signed digest is not the TSTInfo's": "el resumen firmado no es el del TSTInfo",
    "the signer must be of version 1, and be named by issuer and serial number": "el firmante debe ser de la versión 1 y nombrarse por su emisor y número de serie",
    "the signer must name exactly one of the token's certificates": "el firmante debe nombrar exactamente uno de los certificados del sello",
    "the signer's digest is not the listed one": "el algoritmo de resumen del firmante no es el de la lista",
    "the signing certificate that is named is not the signer's": "el certificado de firma que se nombra no es el del firmante",
    "the token is earlier than the record was received: one of the two clocks is wrong": "el sello es anterior a la recepción del registro: uno de los dos relojes está mal",
    "the token is no CMS SignedData": "el sello no es un SignedData de CMS",
    "the token lies in the future of this computer's clock": "el sello queda en el futuro según el reloj de este equipo",
    "the token must have one digest algorithm and one signer": "el sello debe tener un algoritmo de resumen y un firmante",
    "the token stamps something else": "el sello es de otra cosa",
    "the version of the TSTInfo must be 1": "la versión del TSTInfo debe ser 1",
    "the version of the token's signed data must be 3": "la versión de los datos firmados del sello debe ser 3",
    "what the token signs is no TSTInfo": "lo que firma el sello no es un TSTInfo",
    "key usage": "uso de la clave",
    "status as of": "statusAsOf",
    "trusted keys": "claves de confianza",
    "the file": "el archivo",
    "receipt": "justificante",
    "extra data": "datos adicionales",
    "hash {}": "hash {}",
    "key {}": "clave {}",
    "revoked key {}": "clave revocada {}",
    "log key {}": "clave del registro de transparencia {}",
    "witness key {}": "clave de testigo {}",
    "timestamp authority {}": "autoridad de sellado de tiempo {}",
    "timestamp {}": "sello de tiempo {}",
    "certificate {}": "certificado {}",
    "keyStatus of {}": "keyStatus de {}",
    "root": "raíz",
    "size": "tamaño",
    "certificate": "certificado",
    "a certificate": "un certificado",
    "a certificate's key": "la clave de un certificado",
    "a certificate's signature": "la firma de un certificado",
    "a certificate's validity": "el plazo de validez de un certificado",
    "a signed attribute": "un atributo firmado",
    "algorithm": "el algoritmo",
    "an extension of a certificate": "una extensión de un certificado",
    "an extension of the TSTInfo": "una extensión del TSTInfo",
    "the TSTInfo": "el TSTInfo",
    "the accuracy": "la precisión",
    "the encapsulated content": "el contenido encapsulado",
    "the imprint": "la huella sellada",
    "the imprint's digest": "el algoritmo de la huella sellada",
    "the listed digest": "el algoritmo de resumen de la lista",
    "the set of X.509 certificates, at most 8,": "el conjunto de certificados X.509, 8 como máximo,",
    "the signature's algorithm": "el algoritmo de la firma",
    "the signed attributes": "los atributos firmados",
    "the signed data, which has certificates and no revocation lists,": "los datos firmados, con certificados y sin listas de revocación,",
    "the signer's digest": "el algoritmo de resumen del firmante",
    "the signer's name": "el nombre del firmante",
    "the signer, which has signed attributes and no unsigned ones,": "el firmante, con atributos firmados y sin otros,",
    "the signing certificate": "el certificado de firma",
    "the signing certificate's digest": "el resumen del certificado de firma",
    "the token": "el sello",
    "what a certificate signs": "lo que firma un certificado",
    "the keys belong to the issuer {!}, not to {!}": "las claves son del emisor {!}, no de {!}",
    "the log {} is not named after the issuer of the keys, {!}: name that issuer if you expect its keys in this log": "el registro de transparencia {} no lleva el nombre del emisor de las claves, {!}: indique ese emisor si espera sus claves en este registro",
    "pin a log key or a witness key: a proof without one shows nothing": "fije una clave del registro de transparencia o de un testigo: sin ninguna, una prueba no muestra nada",
    "give the origin of the log: a witness cosigns many logs": "indique el nombre del registro de transparencia: un testigo cofirma muchos",
    "the checkpoint is of another log": "el punto de control es de otro registro de transparencia",
    "{} pinned witnesses must have cosigned the checkpoint, and {} have": "deben haber cofirmado el punto de control {} testigos fijados, y lo han hecho {}",
    "the leaf belongs to another key set": "la hoja es de otro conjunto de claves",
    "the key set revokes the log key that signed the checkpoint: pin the new log key": "el conjunto de claves revoca la clave que firmó el punto de control: fije la nueva clave del registro de transparencia",
    "the key set must have at most {} bytes": "el conjunto de claves debe tener {} bytes como máximo",
    "trusted keys must be an object": "las claves de confianza deben ser un objeto",
    "key set: the text is not in the canonical form of RFC 8785": "conjunto de claves: el texto no está en la forma canónica del RFC 8785",
    "key set": "conjunto de claves",
    "the transparency log proof must have the lines of C2SP tlog-proof@v1, with extra data": "la prueba del registro de transparencia debe tener las líneas de C2SP tlog-proof@v1, con datos adicionales",
    "both schemas must be given, or neither": "hay que dar los dos esquemas o ninguno",
    "not a JSON Schema: {!}": "no es un JSON Schema: {!}",
    "require_witnesses must be a whole number of 0 or more": "require_witnesses debe ser un número entero, 0 o más",
    "validation against schemas needs the package jsonschema": "para validar según los esquemas hace falta el paquete jsonschema",
    "{!}: must be a regular file, no directory, pipe or device": "{!}: debe ser un archivo regular, no un directorio, una tubería ni un dispositivo",
    "{!}: no such file or directory": "{!}: no existe el archivo o el directorio",
    "{!}: permission denied": "{!}: permiso denegado",
    "{!}: it is a directory": "{!}: es un directorio",
    "{!}: no file can have this name": "{!}: ningún archivo puede tener ese nombre",
    "{!}: it cannot be read ({!})": "{!}: no se puede leer ({!})",
    "the result could not be written: {!}": "no se ha podido escribir el resultado: {!}",
    "must be a number of witnesses": "debe ser un número de testigos",
    "Verifies a receipt offline against trusted keys that you pinned, and compares a document with it.": "Verifica un justificante sin conexión con las claves de confianza que usted fijó, y compara un documento con él.",
    "Exit code 0: everything supplied holds. 1: something does not, differs, or was revoked. 2: it could not be checked.": "Código de salida 0: todo lo aportado se sostiene. 1: algo no se sostiene, difiere o está revocado. 2: no se ha podido comprobar.",
    "saved evidence, a public receipt, a transparency log proof, or a downloaded certificate": "evidencia guardada, un justificante público, una prueba del registro de transparencia o un certificado descargado",
    "a trusted-keys file that you got through a channel you trust": "un archivo de claves de confianza que obtuvo por un medio en el que confía",
    "the file to compare": "el archivo que se compara",
    "show this help and exit": "muestra esta ayuda y termina",
    "fail where the references are absent": "falla si faltan las referencias",
    "fail unless the evidence shows that the version was current when it was saved": "falla salvo que la evidencia muestre que la versión estaba vigente cuando se guardó",
    "fail unless a valid proof shows that the transparency log holds the record": "falla salvo que una prueba válida muestre que el registro de transparencia contiene el registro",
    "fail unless a pinned timestamp authority stamped a checkpoint that holds the record": "falla salvo que una autoridad de sellado de tiempo de confianza haya sellado un punto de control que contenga el registro",
    "fail unless N pinned witnesses cosigned the checkpoint of the proof": "falla salvo que N testigos de confianza hayan cofirmado el punto de control de la prueba",
    "accept a signature under a revoked key where a pinned timestamp authority stamped the record before the revocation": "acepta una firma de una clave revocada si una autoridad de sellado de tiempo de confianza selló el registro antes de la revocación",
    "print JSON": "muestra JSON",
    "of the output; by default that of the locale, and English with --json": "de la salida; por omisión, el del entorno, e inglés con --json",
    "usage: ": "uso: ",
    "positional arguments": "argumentos",
    "options": "opciones",
    "the following arguments are required: {!}": "faltan argumentos obligatorios: {!}",
    "unrecognized arguments: {!}": "argumentos desconocidos: {!}",
    "ambiguous option: {!} could match {!}": "opción ambigua: {!} puede ser {!}",
    "argument {}": "argumento {}",
    "expected one argument": "necesita un valor",
    "ignored explicit argument {!}": "no admite el valor {!}",
    "invalid choice: {!} (choose from {!})": "valor no válido: {!} (elija entre {!})",
    "{!}: error: {...}": "{!}: error: {...}",
    "verify_integrity: {...}": "verify_integrity: {...}",
}


_PLACE: Final = re.compile(r"\{(?:\.\.\.|!)?\}")


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], list[str], str]]:
    """The English forms as patterns, with the places in each, and the Spanish forms for str.format."""
    made = []
    for english, spanish in _SPANISH.items():
        places: list[str] = _PLACE.findall(english)
        first, *rest = (re.escape(str(text)) for text in _PLACE.split(english))
        pattern = first + "".join((r"(\S+)" if place == "{}" else "(.+)") + text for place, text in zip(places, rest))
        made.append((re.compile(pattern, re.DOTALL), places, _PLACE.sub("{}", spanish)))
    return made


def _in_spanish(text: str, part: bool = False) -> str | None:
    """A sentence in Spanish, or a part of one, which may be a name; None if Spanish lacks any of it."""
    for pattern, places, spanish in _patterns():
        if found := pattern.fullmatch(text):
            said = [_in_spanish(group, part=True) if place == "{...}" else group for place, group in zip(places, found.groups())]
            if None not in said:
                return spanish.format(*said)
    if part and re.fullmatch("[A-Za-z0-9]+", text):  # the name of a member or of a finding
        return text
    for separator in (": ", ", ") if part else (": ",):
        before, _, after = text.partition(separator)
        first, second = (_in_spanish(before, part=True), _in_spanish(after, part=separator == ", ")) if after else (None, None)
        if first is not None and second is not None:
            return first + separator + second
    return None


def _say(text: str, language: str) -> str:
    """A sentence in a language; one that Spanish lacks stays English as a whole."""
    return (_in_spanish(text) if language == "es" else None) or text


_LABELS: Final = ("note", "NOT VALID", "verdict")  # of lines; all others are names of findings


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
    lines += [("file", file), ("inclusion", f.inclusion), ("time", f.time)]
    if f.existed_before is not None:
        lines[-1] = ("time", f"existed before {f.existed_before}, says {f.time_authority}")
    if f.witnessed is not None:
        lines.append(("witnessed", f"{f.witnessed} of {f.witnesses}"))
    if f.record is not None:
        lines.append(("record", f"{f.record['publicId']}, received at {f.record['receivedAt']} by the clock of {f.record['issuer']}"))
    if f.certificate is not None:
        lines.append(("certificate", f"{f.certificate['publicId']}, issued at {f.certificate['issuedAt']} by the clock of {f.certificate['issuer']}"))
    lines += [("note", note) for note in f.notes] + [("NOT VALID", reason) for reason in f.reasons]
    lines.append(("verdict", "NOT verified" if f.reasons else "everything that was supplied and checked is valid"))
    return lines


def _read(path: str, most: int) -> bytes:
    with _open(path) as file:
        return file.read(most + 1)  # one more, so that a longer one is refused as such


def _visible(text: str) -> str:
    """Text in which a terminal obeys nothing: receipts hold words of others. JSON stays the same JSON."""
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _write(text: str, language: str) -> bool:
    """Whether standard output has taken the text."""
    try:
        sys.stdout.write(_visible(text))
        sys.stdout.flush()
        return True
    except (AttributeError, OSError) as error:  # AttributeError: it is closed
        print(_say(f"verify_integrity: the result could not be written: {error}", language), file=sys.stderr)
        if isinstance(sys.stdout, io.TextIOWrapper):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try again at its end
        return False


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text):
        raise argparse.ArgumentTypeError("must be a number of witnesses")
    return int(text)


class _Parser(argparse.ArgumentParser):
    """A parser whose help and errors are in a language."""

    def __init__(self, language: str) -> None:
        super().__init__(
            description=_say("Verifies a receipt offline against trusted keys that you pinned, and compares a document with it.", language),
            epilog=_say("Exit code 0: everything supplied holds. 1: something does not, differs, or was revoked. 2: it could not be checked.", language),
            add_help=False,
        )
        self.language = language
        self.arguments = self.add_argument_group(_say("positional arguments", language))
        self.options = self.add_argument_group(_say("options", language))

    def argument(self, name: str, help: str, **more: Any) -> None:
        (self.options if name.startswith("-") else self.arguments).add_argument(
            *(("-h", name) if name == "--help" else (name,)), help=_say(help, self.language), **more
        )

    def format_usage(self) -> str:
        return super().format_usage().replace("usage: ", _say("usage: ", self.language), 1)

    def format_help(self) -> str:
        return super().format_help().replace("usage: ", _say("usage: ", self.language), 1)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, _say(f"{self.prog}: error: {message}", self.language) + "\n")


_FILE_FAULTS: Final[Mapping[int | None, str]] = {
    errno.ENOENT: "no such file or directory", errno.EACCES: "permission denied", errno.EISDIR: "it is a directory",
}


def _file_fault(error: OSError) -> str:
    return f"{error.filename}: {_FILE_FAULTS.get(error.errno) or f'it cannot be read ({error.strerror or error})'}"


def _wanted_language(arguments: Sequence[str]) -> str:
    """The language of the command's own messages, which are needed before the arguments are read: the value of --language, or the locale's."""
    for given, value in zip(arguments, [*arguments[1:], ""]):
        if given.partition("=")[0] == "--language" and (chosen := given.partition("=")[2] or value) in _LIMITS:
            return chosen
    return _locale_language()


def main(argv: Sequence[str] | None = None, now: datetime | None = None) -> int:
    """Runs the command line and returns the exit code."""
    spoken = _wanted_language(sys.argv[1:] if argv is None else argv)
    parser = _Parser(spoken)
    parser.argument("receipt", "saved evidence, a public receipt, a transparency log proof, or a downloaded certificate")
    parser.argument("trusted", "a trusted-keys file that you got through a channel you trust")
    parser.argument("document", "the file to compare", nargs="?")
    parser.argument("--help", "show this help and exit", action="help")
    parser.argument("--require-references", "fail where the references are absent", action="store_true")
    parser.argument("--require-current", "fail unless the evidence shows that the version was current when it was saved", action="store_true")
    parser.argument("--require-inclusion", "fail unless a valid proof shows that the transparency log holds the record", action="store_true")
    parser.argument("--require-timestamp", "fail unless a pinned timestamp authority stamped a checkpoint that holds the record", action="store_true")
    parser.argument("--require-witnesses", "fail unless N pinned witnesses cosigned the checkpoint of the proof", type=_count, default=0, metavar="N")
    parser.argument(
        "--accept-stamped-before-revocation",
        "accept a signature under a revoked key where a pinned timestamp authority stamped the record before the revocation", action="store_true",
    )
    parser.argument("--json", "print JSON", action="store_true")
    parser.argument("--language", "of the output; by default that of the locale, and English with --json", choices=sorted(_LIMITS))
    try:
        args = parser.parse_args(argv)
    except SystemExit as end:  # help, or a wrong argument
        return int(end.code or 0) if _write("", spoken) else 2
    except OSError:
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may know fewer characters
    try:
        f = verify_receipt(
            _read(args.receipt, _MAX_RECEIPT), _read(args.trusted, _MAX_TRUSTED), Path(args.document) if args.document is not None else None,
            require_references=args.require_references, require_current=args.require_current,
            require_inclusion=args.require_inclusion, require_timestamp=args.require_timestamp, require_witnesses=args.require_witnesses,
            accept_stamped_before_revocation=args.accept_stamped_before_revocation, now=now,
        )
    except (CannotCheck, OSError, ValueError) as error:
        fault = _file_fault(error) if isinstance(error, OSError) else str(error)
        if isinstance(error, ValueError):
            fault = f"{args.receipt}, {args.trusted}, {args.document}: no file can have this name"
        print(_visible(_say(f"verify_integrity: {fault}", spoken)), file=sys.stderr)
        return 2
    language = args.language or ("en" if args.json else _locale_language())
    sentences = limits(language, f.certificate is not None)
    if args.json:
        lines = [json.dumps({**f.as_json(), "limits": sentences}, ensure_ascii=False, indent=2)]
    else:
        titles = _TITLES if f.certificate is None else _CERTIFICATE_TITLES
        lines = [f"{_say(name, language) if name in _LABELS else name:<13} {_say(text, language)}" for name, text in _describe(f)]
        lines += [f"\n{titles[language]}:"] + [f"- {sentence}" for sentence in sentences]
    return f.exit_code if _write("\n".join(lines) + "\n", spoken) else 2


if __name__ == "__main__":
    sys.exit(main())
