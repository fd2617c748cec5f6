"""Timestamp authorities, a log with witnesses, and receipts, made for tests of the offline verifier."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from verify_integrity import Findings, verify_receipt

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
RECEIVED = datetime(2026, 11, 23, 10, tzinfo=timezone.utc)
STAMPED = datetime(2026, 11, 23, 10, 4, 31, tzinfo=timezone.utc)
REVOKED = "2026-11-23T11:00:00Z"

# --- DER ------------------------------------------------------------------------


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    length = bytes([size]) if size < 0x80 else (lambda octets: bytes([0x80 + len(octets)]) + octets)(size.to_bytes((size.bit_length() + 7) // 8, "big"))
    return bytes([tag]) + length + content


def oid(text: str) -> bytes:
    first, second, *rest = (int(part) for part in text.split("."))
    content = b""
    for number in (40 * first + second, *rest):
        octets = [number & 0x7F]
        while number := number >> 7:
            octets.insert(0, 0x80 | number & 0x7F)
        content += bytes(octets)
    return der(6, content)


def integer(number: int) -> bytes:
    return der(2, number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def algorithm(text: str, *parameters: bytes) -> bytes:
    return der(0x30, oid(text), *parameters)


def split(data: bytes) -> list[tuple[int, int, int]]:
    """Start, begin of the content, and end of each element of data."""
    found, start = [], 0
    while start < len(data):
        size, begin = data[start + 1], start + 2
        if size >= 0x80:
            begin += size - 0x80
            size = int.from_bytes(data[start + 2 : begin], "big")
        found.append((start, begin, begin + size))
        start = begin + size
    return found


def rebuilt(data: bytes, change: Callable[[tuple[int, ...], int, bytes], bytes | None], path: tuple[int, ...] = ()) -> bytes:
    """The elements with those replaced for which change says so, and all lengths around them right."""
    result = b""
    for i, (start, begin, end) in enumerate(split(data)):
        here = (*path, i)
        new = change(here, data[start], data[begin:end])
        if new is None:
            new = data[start:end] if not data[start] & 0x20 else der(data[start], rebuilt(data[begin:end], change, here))
        result += new
    return result


def places(data: bytes, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], int]]:
    found = []
    for i, (start, begin, end) in enumerate(split(data)):
        found.append(((*path, i), data[start]))
        if data[start] & 0x20:
            found += places(data[begin:end], (*path, i))
    return found


# --- An authority ---------------------------------------------------------------

SHA = {256: "2.16.840.1.101.3.4.2.1", 384: "2.16.840.1.101.3.4.2.2", 512: "2.16.840.1.101.3.4.2.3"}
HASH = {256: hashes.SHA256(), 384: hashes.SHA384(), 512: hashes.SHA512()}
NULL = b"\x05\x00"
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@functools.lru_cache(maxsize=None)
def key(name: str, kind: str = "P-256") -> Key:
    """One key a name, made once."""
    if kind.startswith("RSA"):
        return rsa.generate_private_key(65537, int(kind[3:]))
    curves: dict[str, ec.EllipticCurve] = {"P-224": ec.SECP224R1(), "P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    return ec.generate_private_key(curves[kind])


def certificate(
    subject: str, issuer: str = "", *, kind: str = "P-256", issuer_kind: str = "P-256", ca: bool | None = True, path_length: int | None = None,
    sign: bool | None = None, usage: str | None = None, purposes: Sequence[x509.ObjectIdentifier] = (), critical: bool = True,
    begin: datetime = NOW - timedelta(days=30), end: datetime = NOW + timedelta(days=30), more: tuple[x509.ExtensionType, bool] | None = None,
) -> bytes:
    """A certificate of the subject's key, signed by the issuer's; ca None leaves the basic constraints out."""
    name = lambda text: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    signer = key(issuer or subject, issuer_kind if issuer else kind)
    builder = x509.CertificateBuilder(
        name(issuer or subject), name(subject), key(subject, kind).public_key(), x509.random_serial_number(), begin.replace(tzinfo=None), end.replace(tzinfo=None),
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca, path_length), True)
    if usage is not None:
        bits = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign", "encipher_only", "decipher_only"), False)
        bits |= {"digital_signature": False, "key_cert_sign": False, usage: True}
        builder = builder.add_extension(x509.KeyUsage(**bits), True)
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(purposes)), critical)
    if more is not None:
        builder = builder.add_extension(*more)
    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.DER)


def stamping(subject: str = "tsa", issuer: str = "root", **changes: Any) -> bytes:
    return certificate(subject, issuer, **{"ca": None, "purposes": [ExtendedKeyUsageOID.TIME_STAMPING], **changes})


ROOT = certificate("root")
TSA = stamping()


def token(note: bytes, at: str = "20261123100431Z", signer: bytes = TSA, signing: str = "tsa", kind: str = "P-256", **c: Any) -> bytes:
    """A TimeStampToken over a note. Each change names a part: its bytes, or what it is made of."""
    digest = c.get("digest", 256)
    hashed = algorithm(SHA[digest], *c.get("parameters", [NULL]))
    info = c.get("info") or der(0x30, *(part for part in (
        c.get("version", integer(1)), oid("1.2.3.4"), c.get("imprint") or der(0x30, algorithm(SHA[256], NULL), der(4, hashlib.sha256(note).digest())),
        integer(7), der(0x18, at.encode()), c.get("accuracy", b""), c.get("ordering", b""), c.get("nonce", b""), c.get("tsa", b""), c.get("extensions", b""),
    )))
    summed = hashlib.new(f"sha{digest}", info).digest()
    bound = hashlib.sha256(c.get("bound", signer)).digest()
    attributes = c.get("attributes") or {
        "type": (oid("1.2.840.113549.1.9.3"), oid("1.2.840.113549.1.9.16.1.4")), "digest": (oid("1.2.840.113549.1.9.4"), der(4, summed)),
        "certificate": (oid("1.2.840.113549.1.9.16.2.47"), der(0x30, der(0x30, der(0x30, *c.get("named", []), der(4, bound))))),
    } | c.get("attribute", {})
    encoded = [der(0x30, name, der(0x31, *values)) for name, *values in attributes.values()]
    encoded = c.get("order", sorted)(encoded)
    private = key(signing, kind)
    signed = der(0x31, *encoded)
    if isinstance(private, rsa.RSAPrivateKey):
        signature = private.sign(signed, padding.PKCS1v15(), HASH[digest])
        named = algorithm(c.get("algorithm", "1.2.840.113549.1.1.1"), NULL)
    else:
        signature = private.sign(signed, ec.ECDSA(HASH[digest]))
        named = algorithm(c.get("algorithm", {256: "1.2.840.10045.4.3.2", 384: "1.2.840.10045.4.3.3", 512: "1.2.840.10045.4.3.4"}[digest]))
    parsed = x509.load_der_x509_certificate(signer)
    sid = c.get("sid") or der(0x30, parsed.issuer.public_bytes(), integer(parsed.serial_number))
    signer_info = der(0x30, c.get("signer_version", integer(1)), sid, c.get("signer_digest") or hashed, der(0xA0, *encoded), named, der(4, signature), c.get("unsigned", b""))
    certificates = c.get("certificates", [signer])
    data = der(
        0x30, c.get("data_version", integer(3)), der(0x31, *c.get("digests", [hashed])),
        der(0x30, oid(c.get("content", "1.2.840.113549.1.9.16.1.4")), der(0xA0, der(4, info))), *([der(0xA0, *certificates)] if certificates else []),
        c.get("crls", b""), der(0x31, *([signer_info] * c.get("signers", 1))),
    )
    return der(0x30, oid(c.get("outer", "1.2.840.113549.1.7.2")), der(0xA0, data))


# --- A log and a receipt --------------------------------------------------------


def ed25519(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def raw(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def standard(data: bytes) -> str:
    return base64.b64encode(data).decode()


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def names(private: Ed25519PrivateKey) -> dict[str, Any]:
    jwk = {"crv": "Ed25519", "kty": "OKP", "x": url(raw(private))}
    spki = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {"keyId": url(hashlib.sha256(canonical(jwk).encode()).digest()), "publicKeyJwk": jwk, "fingerprintSha256": hashlib.sha256(spki).hexdigest()}


def note_key(name: str, kind: int = 1) -> dict[str, str]:
    typed = bytes([kind]) + raw(ed25519(name))
    key_hash = hashlib.sha256(name.encode() + b"\n" + typed).hexdigest()[:8]
    return {"name": name, "keyHash": key_hash, "verifierKey": f"{name}+{key_hash}+{standard(typed)}"}


def revoked_entry(private: Ed25519PrivateKey, since: str = REVOKED) -> dict[str, str]:
    named = names(private)
    return {"keyId": named["keyId"], "fingerprintSha256": named["fingerprintSha256"], "reason": "compromised", "since": since}


def signed(payload: Any, private: Ed25519PrivateKey) -> dict[str, Any]:
    text = canonical(payload)
    return {"payload": text, "signature": url(private.sign(text.encode())), **names(private)}


LOG, OTHER_LOG, SIGNING = "log.example/a", "log.example/b", ed25519("signing")
RECORD = signed({
    "algorithm": "SHA-256", "contract": "integrity-v1", "generatedAt": "2026-11-23T09:00:00Z", "issuer": "Test", "mimeType": "text/plain",
    "publicId": "a" * 26, "receivedAt": "2026-11-23T10:00:00Z", "referencesSha256": "0" * 64, "sha256": "1" * 64, "sizeBytes": 3, "timeSource": "service-clock",
}, SIGNING)
LEAF = canonical({
    "bodySha256": "2" * 64, "contract": "integrity-leaf-v1", "id": "evt_0" + "0" * 25, "nonce": url(bytes(16)), "occurredAt": "2026-11-23T10:00:00Z",
    "payloadSha256": hashlib.sha256(RECORD["payload"].encode()).hexdigest(), "type": "integrity.registered",
})


def tree(leaves: Sequence[bytes], index: int) -> tuple[bytes, list[bytes]]:
    """The root of a tree, and the path of one of its leaves (RFC 6962, section 2.1)."""
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest(), []
    k = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = tree(leaves[:k], min(index, k - 1)), tree(leaves[k:], max(index - k, 0))
    path = [*left[1], right[0]] if index < k else [*right[1], left[0]]
    return hashlib.sha256(b"\1" + left[0] + right[0]).digest(), path


def note_line(name: str, text: str, kind: int = 1, at: int | None = None) -> str:
    key_hash = bytes.fromhex(note_key(name, kind)["keyHash"])
    if kind == 1:
        return f"— {name} {standard(key_hash + ed25519(name).sign(text.encode()))}\n"
    seconds = int(STAMPED.timestamp()) if at is None else at
    cosigned = f"cosignature/v1\ntime {seconds}\n{text}".encode()
    return f"— {name} {standard(key_hash + seconds.to_bytes(8, 'big') + ed25519(name).sign(cosigned))}\n"


def proof(size: int, index: int = 2, origin: str = LOG, extra: Callable[[str], str] = lambda text: "", signers: Sequence[str] = ()) -> dict[str, Any]:
    root, path = tree([LEAF.encode() if i == index else f"leaf {i}".encode() for i in range(size)], index)
    text = f"{origin}\n{size}\n{standard(root)}\n"
    lines = "".join(note_line(name, text) for name in signers or [origin])
    return {"leafIndex": index, "treeSize": size, "hashes": [standard(h) for h in path], "checkpoint": text + "\n" + lines + extra(text)}


def stamp(size: int = 5, authority: str = "tsa", at: str = "20261123100431Z", shown: str = "2026-11-23T10:04:31Z", **changes: Any) -> dict[str, Any]:
    entry = proof(size, origin=changes.pop("origin", LOG))
    text = standard(token(entry["checkpoint"].encode(), at, **changes))
    return {**entry, "tokens": [{"authority": authority, "genTime": shown, "token": text}]}


def receipt(*stamps: dict[str, Any], inclusion: dict[str, Any] | None = None, **others: Any) -> bytes:
    value = {"contract": "integrity-evidence-v1", **RECORD, "inclusion": {"leaf": LEAF, **(inclusion or proof(7))}, **others}
    if stamps:
        value["timestamps"] = list(stamps)
    return json.dumps(value).encode()


def trust(**changes: Any) -> dict[str, Any]:
    return {
        "keys": [names(SIGNING)], "logKeys": [note_key(LOG)],
        "timestampAuthorities": [{"name": "tsa", "certificates": [standard(ROOT)]}], **changes,
    }


def judge(text: bytes, trusted: Mapping[str, Any] | None = None, now: datetime = NOW, **options: Any) -> Findings:
    return verify_receipt(text, json.dumps(trusted or trust()).encode(), now=now, **options)
