"""The offline verifier on timestamps, witnesses and revoked keys, with authorities that are made for it."""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

import verify_integrity
from timestamp_fixture import (
    LEAF, LOG, NOW, NULL, OTHER_LOG, RECORD, REVOKED, ROOT, SHA, SIGNING, STAMPED, TSA, algorithm, canonical, certificate, der, ed25519, integer,
    judge, key, names, note_key, note_line, oid, places, proof, rebuilt, receipt, revoked_entry, signed, stamp, stamping, standard, token, trust, url,
)
from verify_integrity import CannotCheck, Findings, main, parse_trusted_keys, verify_receipt


POINT = key("root", "P-256").public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


class Times(unittest.TestCase):
    def expect(self, name: str, finding: str, text: bytes, trusted: Mapping[str, Any] | None = None, says: str = "", now: datetime = NOW, **options: Any) -> Findings:
        with self.subTest(name):
            f = judge(text, trusted, now, **options)
            self.assertEqual(("valid", finding), (f.signature, f.time), (f.reasons, f.notes))
            self.assertEqual(finding == "valid", f.existed_before is not None)
            self.assertEqual(finding == "valid", f.time_authority is not None)
            if finding in ("invalid", "untrusted"):
                self.assertEqual(1, f.exit_code)
                self.assertTrue(any(reason.startswith("time: ") and says in reason for reason in f.reasons), (says, f.reasons))
            elif says:
                self.assertTrue(any(says in note for note in f.notes), (says, f.notes))
        return f

    def test_valid(self) -> None:
        f = self.expect("one", "valid", receipt(stamp()))
        self.assertEqual(("2026-11-23T10:04:31Z", "tsa", 0, None), (f.existed_before, f.time_authority, f.exit_code, f.witnessed))
        accuracy = der(0x30, integer(1), der(0x80, b"\x01\xf4"), der(0x81, b"\x64"))
        f = self.expect("accuracy", "valid", receipt(stamp(at="20261123100431.25Z", shown="2026-11-23T10:04:31.25Z", accuracy=accuracy)))
        self.assertEqual("2026-11-23T10:04:32.7501Z", f.existed_before)
        for name, changes in {
            "nonce, ordering, name and extension": {
                "nonce": integer(2**70), "ordering": der(1, b"\xff"), "tsa": der(0xA0, der(0x82, b"tsa.example")),
                "extensions": der(0xA1, der(0x30, oid("1.2.3"), der(4, b"x"))),
            },
            "SHA-384": {"digest": 384}, "SHA-512": {"digest": 512}, "no parameters": {"parameters": []}, "empty accuracy": {"accuracy": der(0x30)},
            "both attributes": {"attribute": {"old": (oid("1.2.840.113549.1.9.16.2.12"), der(0x30, der(0x30, der(0x30, der(4, hashlib.sha1(TSA).digest()))))) }},
            "a named hash": {"named": [algorithm(SHA[256], NULL)]},
            "another attribute": {"attribute": {"time": (oid("1.2.840.113549.1.9.5"), der(0x17, b"261123100431Z"))}},
        }.items():
            self.expect(name, "valid", receipt(stamp(**changes)))
        for kind, digest in (("P-384", 384), ("P-521", 512), ("RSA2048", 256), ("RSA3072", 512)):
            leaf = stamping(f"tsa {kind}", kind=kind)
            self.expect(kind, "valid", receipt(stamp(signer=leaf, signing=f"tsa {kind}", kind=kind, digest=digest)))
        leaf = stamping("tsa RSA2048", kind="RSA2048")
        named = {"signer": leaf, "signing": "tsa RSA2048", "kind": "RSA2048"}
        self.expect("a named RSA", "valid", receipt(stamp(**named, algorithm="1.2.840.113549.1.1.11")))
        self.expect("another named RSA", "invalid", receipt(stamp(**named, algorithm="1.2.840.113549.1.1.12")), says="with the signer's digest")

    def test_the_least_time_counts(self) -> None:
        stamps = [stamp(4, at="20261123100600Z", shown="2026-11-23T10:06:00Z"), stamp(5, "other", at="20261123100500Z", shown="2026-11-23T10:05:00Z")]
        authorities = [{"name": name, "certificates": [standard(ROOT)]} for name in ("tsa", "other")]
        f = self.expect("two", "valid", receipt(*stamps), trust(timestampAuthorities=authorities))
        self.assertEqual(("2026-11-23T10:05:00Z", "other"), (f.existed_before, f.time_authority))
        f = self.expect("one is not pinned", "valid", receipt(*stamps), says="other was passed over")
        self.assertEqual("2026-11-23T10:06:00Z", f.existed_before)
        self.expect("none is pinned", "untrusted", receipt(stamps[1]), says="pinned authority")
        stamps[1]["tokens"][0]["token"] = "????"
        self.expect("a text that is no token, of no pinned authority", "valid", receipt(*stamps))
        self.expect("a text that is no token", "invalid", receipt(*stamps), trust(timestampAuthorities=authorities))

    def test_steps(self) -> None:
        self.expect("none", "not-supplied", receipt())
        self.expect("no authorities", "not-checked", receipt(stamp()), trust(timestampAuthorities=[]), "name no timestamp authority")
        self.expect("no log keys", "not-checked", receipt(stamp()), trust(logKeys=[]))
        without = json.loads(receipt(stamp()))
        del without["inclusion"]
        self.expect("no inclusion", "invalid", json.dumps(without).encode(), says="needs the member inclusion")
        for name, finding, change, says in (
            ("log unknown", "untrusted", {"origin": OTHER_LOG}, "no pinned log key"), ("later size", "invalid", {"treeSize": 6}, "treeSize"),
            ("index beyond", "invalid", {"leafIndex": 5}, "leafIndex"), ("other index", "invalid", {"leafIndex": 1}, "lead"),
            ("no hashes", "invalid", {"hashes": []}, "hashes"),
        ):
            entry = stamp(origin=change.pop("origin", LOG))
            self.expect(name, finding, receipt(entry | change), says=says)
        entry = stamp()
        entry["checkpoint"] = proof(5, extra=lambda text: note_line("w.example", text, 4))["checkpoint"]
        self.expect("cosigned after", "invalid", receipt(entry), says="something else")
        entry["checkpoint"] = entry["checkpoint"].replace("\n5\n", "\n6\n")
        self.expect("a checkpoint that nobody signed", "invalid", receipt(entry), says="signature")
        other = json.loads(LEAF) | {"payloadSha256": "3" * 64}
        self.expect("another's leaf", "invalid", receipt(stamp(), inclusion={**proof(7), "leaf": canonical(other)}), says="another record")
        for name, shown in (("genTime differs", "2026-11-23T10:04:32Z"), ("genTime is spelled otherwise", "2026-11-23T10:04:31.0Z"), ("no time", "")):
            self.expect(name, "invalid", receipt(stamp(shown=shown)), says="genTime")
        self.expect("not in the future yet", "valid", receipt(stamp()), now=STAMPED - timedelta(seconds=300))
        self.expect("future", "invalid", receipt(stamp()), says="future", now=STAMPED - timedelta(seconds=300, microseconds=1))
        self.expect("not behind yet", "valid", receipt(stamp(at="20261123095500Z", shown="2026-11-23T09:55:00Z")))
        behind = {"at": "20261123095459.999999Z", "shown": "2026-11-23T09:54:59.999999Z"}
        self.expect("behind", "invalid", receipt(stamp(**behind)), says="one of the two clocks is wrong")
        self.expect("not behind with its accuracy", "valid", receipt(stamp(**behind, accuracy=der(0x30, der(0x81, b"\x01")))))
        wrong = json.loads(receipt(stamp()))
        wrong["signature"] = url(bytes(64))
        f = judge(json.dumps(wrong).encode())
        self.assertEqual(("invalid", "not-checked"), (f.signature, f.time))

    def test_shape(self) -> None:
        good = json.loads(receipt(stamp()))
        changes: list[Callable[[dict[str, Any]], None]] = [
            lambda v: v.update(timestamps=[]), lambda v: v.update(timestamps=v["timestamps"] * 5), lambda v: v.update(timestamps={}),
            lambda v: v["timestamps"][0].update(tokens=[]), lambda v: v["timestamps"][0].update(tokens=v["timestamps"][0]["tokens"] * 5),
            lambda v: v["timestamps"][0].update(more=1), lambda v: v["timestamps"][0].pop("hashes"), lambda v: v["timestamps"][0].update(leafIndex=-1),
            lambda v: v["timestamps"][0].update(treeSize=0), lambda v: v["timestamps"][0]["tokens"][0].update(genTime=1),
            lambda v: v["timestamps"][0]["tokens"][0].update(more=""), lambda v: v["timestamps"][0]["tokens"][0].pop("authority"),
            lambda v: v["timestamps"][0].update(leaf=LEAF), lambda v: v["timestamps"][0].update(hashes=[1]),
        ]
        for i, change in enumerate(changes):
            with self.subTest(i):
                value = copy.deepcopy(good)
                change(value)
                f = judge(json.dumps(value).encode())
                self.assertEqual(("invalid", "not-checked", 1), (f.signature, f.time, f.exit_code))

    def test_tokens(self) -> None:
        """What the profile of DER, of CMS and of the TSTInfo refuses."""
        attribute: Callable[..., dict[str, Any]] = lambda name, *values: {"attribute": {name: values}}
        cases: dict[str, dict[str, Any]] = {
            "outer type": {"outer": "1.2.840.113549.1.7.1"}, "content type": {"content": "1.2.840.113549.1.7.1"},
            "version of the data": {"data_version": integer(1)}, "version of the signer": {"signer_version": integer(3)}, "version of the info": {"version": integer(2)},
            "no digests": {"digests": []}, "two digests": {"digests": [algorithm(SHA[256], NULL)] * 2}, "another digest": {"digests": [algorithm(SHA[384], NULL)]},
            "SHA-1": {"digests": [algorithm("1.3.14.3.2.26")], "signer_digest": algorithm("1.3.14.3.2.26")},
            "parameters": {"parameters": [der(4)]}, "two NULLs": {"parameters": [NULL, NULL]},
            "no certificates": {"certificates": []}, "nine certificates": {"certificates": [TSA, *(stamping() for _ in range(8))]},
            "an attribute certificate": {"certificates": [TSA, der(0xA2, TSA[4:])]},
            "another's certificate": {"certificates": [stamping()]}, "rubbish": {"certificates": [TSA, der(0x30, integer(1))]},
            "revocation lists": {"crls": der(0xA1)}, "two signers": {"signers": 2}, "no signer": {"signers": 0},
            "named by key": {"sid": der(0x80, bytes(20))}, "unsigned attributes": {"unsigned": der(0xA1, der(0x30, oid("1.2.3"), der(0x31, NULL)))},
            "order": {"order": lambda encoded: sorted(encoded, reverse=True)}, "an attribute twice": {"attribute": {"again": (oid("1.2.840.113549.1.9.3"), oid("1.2.3"))}},
            "the same attribute twice": {"attribute": {"again": (oid("1.2.840.113549.1.9.3"), oid("1.2.840.113549.1.9.16.1.4"))}},
            "two values": attribute("type", oid("1.2.840.113549.1.9.3"), oid("1.2.840.113549.1.9.16.1.4"), oid("1.2.840.113549.1.9.16.1.4")),
            "no value": attribute("time", oid("1.2.840.113549.1.9.5")), "another type": attribute("type", oid("1.2.840.113549.1.9.3"), oid("1.2.840.113549.1.7.1")),
            "another sum": attribute("digest", oid("1.2.840.113549.1.9.4"), der(4, bytes(32))),
            "no binding": attribute("certificate", oid("1.2.3"), NULL), "another bound": {"bound": ROOT},
            "the old binding is another's": attribute("old", oid("1.2.840.113549.1.9.16.2.12"), der(0x30, der(0x30, der(0x30, der(4, bytes(20)))))),
            "bound by SHA-1": {"named": [algorithm("1.3.14.3.2.26")]}, "algorithm": {"algorithm": "1.2.840.10045.4.3.3"}, "another key": {"signing": "root"},
            "imprint of another": {"imprint": der(0x30, algorithm(SHA[256], NULL), der(4, bytes(32)))},
            "imprint SHA-384": {"imprint": der(0x30, algorithm(SHA[384], NULL), der(4, bytes(48)))},
            "short imprint": {"imprint": der(0x30, algorithm(SHA[256], NULL), der(4, bytes(31)))},
            "critical extension": {"extensions": der(0xA1, der(0x30, oid("1.2.3"), der(1, b"\xff"), der(4)))},
            "a boolean of BER": {"ordering": der(1, b"\x01")}, "a member too many": {"extensions": der(0xA1) + NULL}, "a number of two zeros": {"nonce": der(2, b"\x00\x01")},
            "no attributes but one": {"attributes": {"type": (oid("1.2.840.113549.1.9.3"), oid("1.2.840.113549.1.9.16.1.4"))}},
            "P-224": {"signer": stamping("small", kind="P-224"), "signing": "small", "kind": "P-224"},
            "RSA 1024": {"signer": stamping("short", kind="RSA1024"), "signing": "short", "kind": "RSA1024"},
            "more than 8 KiB": {"tsa": der(0xA0, der(0x82, bytes(8192)))},
        }
        for name, seconds in {"too much": 3601, "negative": -1}.items():
            cases[f"accuracy: {name}"] = {"accuracy": der(0x30, integer(seconds))}
        for name, parts in {
            "an hour and more": [integer(3600), der(0x81, b"\x01")], "no millis": [der(0x80, b"\x00")], "1000 millis": [der(0x80, b"\x03\xe8")],
            "1000 micros": [der(0x81, b"\x03\xe8")], "millis of BER": [der(0x80, b"\x00\x01")], "empty millis": [der(0x80)], "order": [der(0x81, b"\x01"), der(0x80, b"\x01")],
        }.items():
            cases[f"accuracy: {name}"] = {"accuracy": der(0x30, *parts)}
        for name, changes in cases.items():
            self.expect(name, "invalid", receipt(stamp(**changes)))
        for at in (
            "20261123100431", "20261123100431+0000", "202611231004Z", "20261123100431.Z", "20261123100431.10Z", "20261123100431.1234567Z", "20261323100431Z",
            "20261123100460Z", "20261123100431,5Z", "00001123100431Z", "261123100431Z",
        ):
            self.expect(at, "invalid", receipt(stamp(at=at)))
        self.expect("not the one spelling", "invalid", self.changed(lambda text: text[:-4] + "AB=="), says="base64")
        self.expect("line breaks", "invalid", self.changed(lambda text: text[:64] + "\n" + text[64:]), says="base64")
        self.expect("nothing", "invalid", self.changed(lambda text: ""))
        self.expect("a response", "invalid", self.changed(lambda text: standard(der(0x30, der(0x30, integer(0)), base64.b64decode(text)))))
        self.expect("something after it", "invalid", self.changed(lambda text: standard(base64.b64decode(text) + NULL)))

    def changed(self, change: Callable[[str], str]) -> bytes:
        entry = stamp()
        entry["tokens"][0]["token"] = change(entry["tokens"][0]["token"])
        return receipt(entry)

    def test_key_usage(self) -> None:
        for name, finding, leaf in (
            ("digital signature", "valid", stamping(usage="digital_signature")), ("non-repudiation", "valid", stamping(usage="content_commitment")),
            ("no authority, it says", "valid", stamping(ca=False)), ("key agreement", "invalid", stamping(usage="key_agreement")),
            ("no purposes", "invalid", stamping(purposes=[])), ("not critical", "invalid", stamping(critical=False)),
            ("two purposes", "invalid", stamping(purposes=[ExtendedKeyUsageOID.TIME_STAMPING, ExtendedKeyUsageOID.CODE_SIGNING])),
            ("another purpose", "invalid", stamping(purposes=[ExtendedKeyUsageOID.CODE_SIGNING])), ("an authority", "invalid", stamping(ca=True)),
        ):
            self.expect(name, finding, receipt(stamp(signer=leaf)), says="" if finding == "valid" else "key usage")
            pinned = trust(timestampAuthorities=[{"name": "tsa", "certificates": [standard(leaf)]}])
            self.expect(f"{name}, pinned", finding, receipt(stamp(signer=leaf)), pinned)

    def test_chains(self) -> None:
        self.expect("pinned itself", "valid", receipt(stamp()), trust(timestampAuthorities=[{"name": "tsa", "certificates": [standard(TSA)]}]))
        self.expect("with the root", "valid", receipt(stamp(certificates=[TSA, ROOT])))
        foreign = "does not lead to one that is pinned"
        self.expect("another root", "untrusted", receipt(stamp()), trust(timestampAuthorities=[{"name": "tsa", "certificates": [standard(certificate("x"))]}]), foreign)
        again = certificate("root", kind="P-384")
        self.expect("a root of the same name", "untrusted", receipt(stamp()), trust(timestampAuthorities=[{"name": "tsa", "certificates": [standard(again)]}]), foreign)
        self.expect("the signer twice", "valid", receipt(stamp(certificates=[TSA, TSA])))
        self.expect("a foreign one besides", "valid", receipt(stamp(certificates=[TSA, certificate("x")])))
        self.expect("a key that is no point besides", "valid", receipt(stamp(certificates=[TSA, ROOT.replace(POINT, POINT[:-1] + bytes([POINT[-1] ^ 1]))])))
        self.expect("the root again, self-signed anew", "valid", receipt(stamp(certificates=[TSA, certificate("root")])))
        unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3"), NULL)
        for name, critical, finding in (("that is critical", True, "untrusted"), ("that is not", False, "valid")):
            leaf, other_root = stamping(more=(unknown, critical)), certificate("root", more=(unknown, critical))
            self.expect(f"an unknown extension {name}", finding, receipt(stamp(signer=leaf)))
            self.expect(f"an unknown extension of the root {name}", finding, receipt(stamp()), trust(timestampAuthorities=[{"name": "tsa", "certificates": [standard(other_root)]}]))
        certified = stamping(more=(x509.CertificatePolicies([x509.PolicyInformation(x509.ObjectIdentifier("1.2.3"), None)]), True))
        self.expect("critical policies", "valid", receipt(stamp(signer=certified)))
        for name, finding, begin, end in (
            ("valid just so", "valid", STAMPED, STAMPED), ("expired", "untrusted", STAMPED - timedelta(days=1), STAMPED - timedelta(seconds=1)),
            ("not yet", "untrusted", STAMPED + timedelta(seconds=1), NOW),
        ):
            leaf = stamping(begin=begin, end=end)
            self.expect(name, finding, receipt(stamp(signer=leaf)), says="" if finding == "valid" else "expired")
        expired = {"begin": STAMPED - timedelta(days=1), "end": STAMPED - timedelta(seconds=1)}
        self.expect("an expired root", "untrusted", receipt(stamp()), trust(timestampAuthorities=[{"name": "tsa", "certificates": [standard(certificate("root", **expired))]}]))
        below = stamping("tsa", "inter")
        for name, finding, middle in (
            ("plain", "valid", certificate("inter", "root")), ("it says all", "valid", certificate("inter", "root", path_length=0, usage="key_cert_sign")),
            ("for time stamping", "valid", certificate("inter", "root", purposes=[ExtendedKeyUsageOID.TIME_STAMPING])),
            ("for any purpose", "valid", certificate("inter", "root", purposes=[x509.ObjectIdentifier("2.5.29.37.0")])),
            ("for code", "untrusted", certificate("inter", "root", purposes=[ExtendedKeyUsageOID.CODE_SIGNING])),
            ("no authority", "untrusted", certificate("inter", "root", ca=False)), ("no constraints", "untrusted", certificate("inter", "root", ca=None)),
            ("may not sign", "untrusted", certificate("inter", "root", usage="digital_signature")), ("expired", "untrusted", certificate("inter", "root", **expired)),
            ("of another root", "untrusted", certificate("inter", "x")), ("self-signed", "untrusted", certificate("inter")),
        ):
            self.expect(f"an intermediate: {name}", finding, receipt(stamp(signer=below, certificates=[middle, below])))
            if finding == "valid":
                self.expect(f"an intermediate, pinned alone: {name}", finding, receipt(stamp(signer=below)), trust(timestampAuthorities=[{"name": "tsa", "certificates": [standard(middle)]}]))
        self.expect("the intermediate is missing", "untrusted", receipt(stamp(signer=below)), says=foreign)
        middle = certificate("inter", "root")
        narrow = trust(timestampAuthorities=[{"name": "tsa", "certificates": [standard(certificate("root", path_length=0))]}])
        self.expect("path length", "untrusted", receipt(stamp(signer=below, certificates=[middle, below])), narrow)
        chain, issuer = [], "root"
        for i in range(4):
            chain.append(certificate(f"i{i}", issuer))
            issuer = f"i{i}"
            leaf = stamping("tsa", issuer)
            self.expect(f"{i + 2} steps", "valid" if i < 3 else "untrusted", receipt(stamp(signer=leaf, certificates=[*chain, leaf])))
        leaf = stamping("tsa", "a")
        circle = [certificate("a", "b"), certificate("b", "a"), leaf]
        self.expect("a circle", "untrusted", receipt(stamp(signer=leaf, certificates=circle)), says=foreign)

    def test_every_element_counts(self) -> None:
        """No element can be added, left out or spelled otherwise, and lengths have one spelling."""
        entry = stamp(accuracy=der(0x30, integer(1)), nonce=integer(9))
        good = base64.b64decode(entry["tokens"][0]["token"])
        authority = verify_integrity._Authority("tsa", (ROOT,))
        imprint, asn1 = hashlib.sha256(entry["checkpoint"].encode()).digest(), verify_integrity._Asn1()
        verify_integrity._check_token(good, imprint, authority, asn1)

        def long_form(tag: int, content: bytes) -> bytes:
            size = len(content).to_bytes(3, "big")
            return bytes([tag, 0x83]) + size + content

        spellings: dict[str, Callable[[int, bytes], bytes]] = {
            "longer length": long_form, "indefinite length": lambda tag, content: bytes([tag, 0x80]) + content + b"\0\0",
            "added": lambda tag, content: der(tag, content, NULL), "left out": lambda tag, content: b"", "doubled": lambda tag, content: der(tag, content) * 2,
            "one byte less": lambda tag, content: der(tag, content[:-1]), "a zero in front": lambda tag, content: der(tag, b"\0", content),
            "constructed": lambda tag, content: der(tag | 0x20, der(tag, content)), "other class": lambda tag, content: der(tag ^ 0x80, content),
        }
        same = {  # the signer's certificate, which may be there twice, and parameters that are NULL or absent
            ("doubled", (0, 1, 0, 3, 0)), ("left out", (0, 1, 0, 1, 0, 1)), ("left out", (0, 1, 0, 4, 0, 2, 1)), ("added", (0, 1, 0, 4, 0, 4)),
        }
        accepted = set()
        for path, tag in places(good):
            for name, spelled in spellings.items():
                changed = rebuilt(good, lambda here, t, content: spelled(t, content) if here == path else None)
                if changed == good or name == "constructed" and tag & 0x20:
                    continue
                with contextlib.suppress(verify_integrity._Refused):
                    verify_integrity._check_token(changed, imprint, authority, asn1)
                    accepted.add((name, path))
        self.assertEqual(same, accepted)

    def test_every_byte_counts(self) -> None:
        """Any changed byte of a token, of the checkpoint and of the hashes is refused."""
        trusted, entry = parse_trusted_keys(json.dumps(trust()).encode()), stamp(certificates=[ROOT, TSA])

        def refused(value: dict[str, Any]) -> None:
            f = verify_receipt(receipt(value), trusted, now=NOW)
            self.assertIn(f.time, ("invalid", "untrusted"))
            self.assertEqual((1, None, None), (f.exit_code, f.existed_before, f.time_authority))

        good = base64.b64decode(entry["tokens"][0]["token"])
        needless = good.index(ROOT)  # a pinned certificate is not taken from the token
        for i in (i for i in range(len(good)) if not needless <= i < needless + len(ROOT)):
            for mask in (0x01, 0x40):
                changed = good[:i] + bytes([good[i] ^ mask]) + good[i + 1 :]
                with self.subTest(f"token, byte {i} xor {mask}"):
                    refused({**entry, "tokens": [{**entry["tokens"][0], "token": standard(changed)}]})
        for i, character in enumerate(entry["checkpoint"]):
            for mask in (0x01, 0x02):
                with self.subTest(f"checkpoint, character {i} xor {mask}"):
                    refused({**entry, "checkpoint": entry["checkpoint"][:i] + chr(ord(character) ^ mask) + entry["checkpoint"][i + 1 :]})
        for n, text in enumerate(entry["hashes"]):
            for i, character in enumerate(text):
                for mask in (0x01, 0x02):
                    with self.subTest(f"hash {n}, character {i} xor {mask}"):
                        different = text[:i] + chr(ord(character) ^ mask) + text[i + 1 :]
                        refused({**entry, "hashes": [*entry["hashes"][:n], different, *entry["hashes"][n + 1 :]]})

    def test_every_byte_of_a_signer_counts(self) -> None:
        """The same of what follows the certificates of a token by RSA, but for the names that one algorithm has."""
        named = {"signing": "tsa RSA2048", "kind": "RSA2048"}
        leaf = stamping("tsa RSA2048", kind="RSA2048")
        entry = stamp(signer=leaf, **named)
        good = base64.b64decode(entry["tokens"][0]["token"])
        authority, asn1 = verify_integrity._Authority("tsa", (ROOT,)), verify_integrity._Asn1()
        imprint = hashlib.sha256(entry["checkpoint"].encode()).digest()
        verify_integrity._check_token(good, imprint, authority, asn1)
        for i in range(good.index(leaf) + len(leaf), len(good)):
            for mask in (0x01, 0x80):
                with self.subTest(f"byte {i} xor {mask}"), self.assertRaises(verify_integrity._Refused):
                    verify_integrity._check_token(good[:i] + bytes([good[i] ^ mask]) + good[i + 1 :], imprint, authority, asn1)

    def test_work_is_bounded(self) -> None:
        """Certificates that all have one name, and all signed one another: each pair is checked once."""
        several = [certificate("same", "same", begin=NOW - timedelta(days=1 + i)) for i in range(7)]
        leaf = stamping("tsa", "same")
        with unittest.mock.patch.object(verify_integrity, "_check_signature_by", wraps=verify_integrity._check_signature_by) as checked:
            self.expect("one name", "untrusted", receipt(stamp(signer=leaf, certificates=[leaf, *several])))
        self.assertLessEqual(checked.call_count, 1 + 8 * 9)
        with unittest.mock.patch.object(verify_integrity, "_read_token", side_effect=AssertionError):
            self.expect("too long", "invalid", self.changed(lambda text: "A" * 40_000), says="at most 8192 bytes")
        deep = b""
        for _ in range(2000):
            deep = der(0x30, deep)
        self.expect("deep", "invalid", self.changed(lambda text: standard(deep[-8192:] if len(deep) > 8192 else deep)))

    def test_without_asn1crypto(self) -> None:
        with unittest.mock.patch.dict(sys.modules, {"asn1crypto.core": None, "asn1crypto.tsp": None}):
            f = self.expect("missing", "not-checked", receipt(stamp()), says="asn1crypto")
            self.assertEqual(0, f.exit_code)
            f = self.expect("required", "not-checked", receipt(stamp()), require_timestamp=True)
            self.assertEqual(["time: tokens were supplied, but none could be checked"], f.reasons)
            f = judge(receipt(stamp()), trust(revokedKeys=[revoked_entry(SIGNING)]), accept_stamped_before_revocation=True)
            self.assertEqual(("untrusted", 1), (f.signature, f.exit_code))

    def test_requirements(self) -> None:
        for name, text, trusted, failing in (
            ("valid", receipt(stamp()), None, 0), ("none", receipt(), None, 1), ("not checked", receipt(stamp()), trust(timestampAuthorities=[]), 1),
            ("invalid", receipt(stamp(shown="")), None, 1), ("untrusted", receipt(stamp(authority="x")), None, 1),
        ):
            with self.subTest(name):
                f = judge(text, trusted, require_timestamp=True)
                self.assertEqual(failing, len(f.reasons), f.reasons)
                self.assertTrue(all(reason.startswith("time: ") for reason in f.reasons))


class Witnesses(unittest.TestCase):
    NAMES = ("w.example/1", "w.example/2", "w.example/3")

    def judge(self, lines: Callable[[str], str], trusted: Mapping[str, Any] | None = None, **options: Any) -> Findings:
        return judge(receipt(inclusion=proof(7, extra=lines)), trusted or trust(witnessKeys=[note_key(name, 4) for name in self.NAMES]), **options)

    def test_counted(self) -> None:
        one, two, _ = self.NAMES
        later = int((NOW + timedelta(seconds=300)).timestamp())
        for name, count, lines, says in (
            ("none", 0, lambda text: "", ""), ("two", 2, lambda text: note_line(one, text, 4) + note_line(two, text, 4), ""),
            ("one twice", 1, lambda text: note_line(one, text, 4) + note_line(one, text, 4, 5), ""),
            ("a stranger", 1, lambda text: note_line(one, text, 4) + note_line("x.example", text, 4), "not checked; they are no trusted timestamps: x.example"),
            ("of another text", 0, lambda text: note_line(one, text + ".", 4), "not counted: " + one), ("no time", 0, lambda text: note_line(one, text, 4, 0), "not counted"),
            ("just now", 1, lambda text: note_line(one, text, 4, later), ""), ("future", 0, lambda text: note_line(one, text, 4, later + 1), "not counted"),
            ("far future", 0, lambda text: note_line(one, text, 4, 2**63), "not counted"),
            ("as a log signs", 0, lambda text: note_line(one, text), ""),
            ("wrong and right", 1, lambda text: note_line(one, text + ".", 4) + note_line(one, text, 4), "not counted: " + one),
        ):
            with self.subTest(name):
                f = self.judge(lines)
                self.assertEqual(("valid", count, 0), (f.inclusion, f.witnessed, f.exit_code), f.reasons)
                self.assertTrue(not says or any(says in note for note in f.notes), f.notes)
                for required in range(5):
                    f = self.judge(lines, require_witnesses=required)
                    self.assertEqual([] if count >= required else ["witnesses"], [reason.split(":")[0] for reason in f.reasons])
        self.assertIsNone(self.judge(lambda text: note_line(one, text, 4), trust()).witnessed)
        bad = receipt(inclusion={**proof(7, extra=lambda text: note_line(one, text, 4)), "hashes": []})
        f = judge(bad, trust(witnessKeys=[note_key(one, 4)]), require_witnesses=1)
        self.assertEqual(("invalid", None, 2), (f.inclusion, f.witnessed, len(f.reasons)))
        with self.assertRaises(CannotCheck):
            self.judge(lambda text: "", require_witnesses=-1)


class Revocations(unittest.TestCase):
    def test_log_key(self) -> None:
        revoked = trust(revokedKeys=[revoked_entry(ed25519(LOG))], witnessKeys=[note_key("w.example", 4), note_key("v.example", 4)])
        late, at = {"at": "20261123110000Z", "shown": "2026-11-23T11:00:00Z"}, int(datetime(2026, 11, 23, 11, tzinfo=timezone.utc).timestamp())
        both = lambda first, second: lambda text: note_line("w.example", text, 4, first) + note_line("v.example", text, 4, second)
        for name, time, inclusion, text, required in (
            ("nothing", "not-supplied", "untrusted", receipt(), 0), ("stamped before", "valid", "valid", receipt(stamp()), 0),
            ("stamped at that time", "untrusted", "untrusted", receipt(stamp(**late)), 0), ("one of two", "valid", "valid", receipt(stamp(4), stamp(**late)), 0),
            ("the accuracy counts", "untrusted", "untrusted", receipt(stamp(at="20261123105959Z", shown="2026-11-23T10:59:59Z", accuracy=der(0x30, integer(1)))), 0),
            ("cosigned, not required", "not-supplied", "untrusted", receipt(inclusion=proof(7, extra=both(at - 1, at - 1))), 0),
            ("cosigned before", "not-supplied", "valid", receipt(inclusion=proof(7, extra=both(at - 1, at - 1))), 2),
            ("one cosigned after", "not-supplied", "untrusted", receipt(inclusion=proof(7, extra=both(at - 1, at))), 2),
            ("one is enough", "not-supplied", "valid", receipt(inclusion=proof(7, extra=both(at - 1, at))), 1),
            ("the proof must hold all the same", "valid", "invalid", receipt(stamp(), inclusion={**proof(7), "hashes": []}), 0),
        ):
            with self.subTest(name):
                f = judge(text, revoked, require_witnesses=required)
                self.assertEqual(("valid", time, inclusion), (f.signature, f.time, f.inclusion), (f.reasons, f.notes))
                self.assertEqual(0 if inclusion == "valid" and time != "untrusted" else 1, f.exit_code)
        fine = revoked | {"revokedKeys": [revoked_entry(ed25519(LOG), "2026-11-23T10:04:31.0000001Z")]}
        self.assertEqual("valid", judge(receipt(stamp()), fine).time)
        # A log with a second key that is not revoked.
        other = note_key(OTHER_LOG)
        typed = base64.b64decode(other["verifierKey"].split("+", 2)[2])
        key_hash = hashlib.sha256(LOG.encode() + b"\n" + typed).hexdigest()[:8]
        second = {"name": LOG, "keyHash": key_hash, "verifierKey": f"{LOG}+{key_hash}+{standard(typed)}"}
        line = lambda text: f"— {LOG} {standard(bytes.fromhex(key_hash) + ed25519(OTHER_LOG).sign(text.encode()))}\n"
        rotated = revoked | {"logKeys": [note_key(LOG), second]}
        self.assertEqual("valid", judge(receipt(inclusion=proof(7, extra=line)), rotated).inclusion)
        twice = rotated | {"revokedKeys": [revoked_entry(ed25519(LOG), "2026-11-23T10:00:00Z"), revoked_entry(ed25519(OTHER_LOG))]}
        entry = proof(5, extra=line)
        entry["tokens"] = [{"authority": "tsa", "genTime": "2026-11-23T10:04:31Z", "token": standard(token(entry["checkpoint"].encode()))}]
        self.assertEqual("valid", judge(receipt(entry), twice).time)
        self.assertEqual("untrusted", judge(receipt(stamp()), twice).time)

    def test_signing_key(self) -> None:
        entry = revoked_entry(SIGNING)
        late = stamp(at="20261123110000Z", shown="2026-11-23T11:00:00Z")
        state = signed({
            "contract": "integrity-status-v1", "observedAt": "2026-11-23T10:30:00Z", "payloadSha256": hashlib.sha256(RECORD["payload"].encode()).hexdigest(),
            "publicId": "a" * 26, "sequence": 5, "status": "current",
        }, SIGNING)
        other = ed25519("another")
        foreign = {**json.loads(receipt(stamp())), **names(other)}
        for name, signature, text, trusted in (
            ("listed", "valid", receipt(stamp()), trust(revokedKeys=[entry])), ("as published", "valid", receipt(stamp()), trust(keys=[], revokedKeys=[entry])),
            ("too late", "untrusted", receipt(late), trust(revokedKeys=[entry])), ("not stamped", "untrusted", receipt(), trust(revokedKeys=[entry])),
            ("authority unknown", "untrusted", receipt(stamp(authority="x")), trust(revokedKeys=[entry])),
            ("another fingerprint", "untrusted", receipt(stamp()), trust(keys=[], revokedKeys=[{**entry, "fingerprintSha256": "0" * 64}])),
            ("key unknown", "untrusted", json.dumps(foreign).encode(), trust(revokedKeys=[entry])),
            ("another key under its name", "untrusted", json.dumps({**foreign, "keyId": entry["keyId"]}).encode(), trust(keys=[], revokedKeys=[entry])),
            ("does not verify", "invalid", json.dumps({**json.loads(receipt(stamp())), "signature": url(bytes(64))}).encode(), trust(revokedKeys=[entry])),
            ("the log key too", "untrusted", receipt(stamp()), trust(revokedKeys=[entry, revoked_entry(ed25519(LOG), "2026-11-23T10:04:31Z")])),
            ("the log key later", "valid", receipt(stamp()), trust(revokedKeys=[entry, revoked_entry(ed25519(LOG))])),
        ):
            with self.subTest(name):
                f = judge(text, trusted)
                self.assertEqual(("untrusted", "not-checked" if b"timestamps" in text else "not-supplied", 1), (f.signature, f.time, f.exit_code))
                f = judge(text, trusted, accept_stamped_before_revocation=True)
                self.assertEqual((signature, 0 if signature == "valid" else 1), (f.signature, f.exit_code), f.reasons)
                self.assertEqual(signature == "valid", f.record is not None)
                self.assertEqual("valid" if signature == "valid" else "not-checked" if b"timestamps" in text else "not-supplied", f.time)
                if signature == "valid":
                    self.assertTrue(any("was revoked, since " + REVOKED in note and "tsa" in note for note in f.notes), f.notes)
        f = judge(receipt(stamp(), statusObservation=state), trust(revokedKeys=[entry]), accept_stamped_before_revocation=True)
        self.assertEqual(("valid", "untrusted", None, 0), (f.signature, f.observation, f.observed_status, f.exit_code), f.reasons)
        f = judge(receipt(stamp(), statusObservation=state), trust(revokedKeys=[entry]), accept_stamped_before_revocation=True, require_current=True)
        self.assertEqual(1, f.exit_code)
        f = judge(receipt(stamp(), statusObservation={**state, **names(other)}), trust(revokedKeys=[entry]), accept_stamped_before_revocation=True)
        self.assertEqual(("untrusted", 1), (f.observation, f.exit_code))
        f = judge(receipt(stamp()), accept_stamped_before_revocation=True)
        self.assertEqual(("valid", 0), (f.signature, f.exit_code))


class Trust(unittest.TestCase):
    def test_refused(self) -> None:
        authority = {"name": "tsa", "certificates": [standard(ROOT)]}
        for name, changes in {
            "critical is unknown": {"critical": ["new"], "new": 1}, "critical and absent": {"critical": ["logKeys", "new"]}, "critical twice": {"critical": ["keys", "keys"]},
            "critical is empty": {"critical": []}, "critical of numbers": {"critical": [1]}, "critical is a text": {"critical": "keys"}, "empty name": {"critical": [""]},
            "case": {"LogKeys": []}, "case of a new member": {"timestampauthorities": []}, "case of critical": {"Critical": ["keys"]},
            "an authority's member": {"timestampAuthorities": [{**authority, "url": ""}]}, "no certificates": {"timestampAuthorities": [{"name": "a"}]},
            "empty certificates": {"timestampAuthorities": [{"name": "a", "certificates": []}]}, "the same name": {"timestampAuthorities": [authority] * 2},
            "a certificate twice": {"timestampAuthorities": [{"name": "a", "certificates": [standard(ROOT)] * 2}]},
            "nine": {"timestampAuthorities": [{"name": "a", "certificates": [standard(certificate("root")) for _ in range(9)]}]},
            "seventeen": {"timestampAuthorities": [{**authority, "name": f"a{i}"} for i in range(17)]}, "a name": {"timestampAuthorities": [{**authority, "name": "-a"}]},
            "a long name": {"timestampAuthorities": [{**authority, "name": "a" * 65}]}, "base64url": {"timestampAuthorities": [{"name": "a", "certificates": [url(ROOT)]}]},
            "rubbish": {"timestampAuthorities": [{"name": "a", "certificates": [standard(b"\x30\x00")]}]},
            "more after it": {"timestampAuthorities": [{"name": "a", "certificates": [standard(ROOT + NULL)]}]},
            "too long": {"timestampAuthorities": [{"name": "a", "certificates": ["A" * 20_000]}]},
            "a log key as witness": {"witnessKeys": [note_key("w.example")]}, "a witness as log key": {"logKeys": [note_key(LOG, 4)]},
            "a witness twice": {"witnessKeys": [note_key("w.example", 4)] * 2}, "a witness with more": {"witnessKeys": [{**note_key("w.example", 4), "since": ""}]},
            "the log is its witness": {"witnessKeys": [note_key(LOG, 4)]}, "a revoked witness": {"witnessKeys": [note_key("w", 4)], "revokedKeys": [revoked_entry(ed25519("w"))]},
            "a signing witness": {"keys": [names(ed25519("w"))], "witnessKeys": [note_key("w", 4)]},
            "a log key that signs records": {"keys": [names(ed25519(LOG))]},
            "a revoked log key that signs records": {"keys": [names(ed25519(LOG))], "revokedKeys": [revoked_entry(ed25519(LOG))]},
        }.items():
            with self.subTest(name), self.assertRaises(CannotCheck):
                parse_trusted_keys(json.dumps(trust(**changes)).encode())

    def test_taken(self) -> None:
        for name, changes in {
            "unknown": {"new": {"a": [1, None, True]}, "Über": 1}, "critical": {"critical": ["keys", "logKeys", "critical"]},
            "no authorities": {"timestampAuthorities": []}, "case of Unicode": {"\u212aeys": 1},
            "two of one root": {"timestampAuthorities": [{"name": name, "certificates": [standard(ROOT)]} for name in ("a", "b")]},
            "a revoked log key": {"revokedKeys": [revoked_entry(ed25519(LOG))]}, "witnesses": {"witnessKeys": [note_key("w", 4), note_key("v", 4)]},
        }.items():
            with self.subTest(name):
                self.assertEqual(0 if name != "a revoked log key" else 1, judge(receipt(), trust(**changes)).exit_code)


class CommandLine(unittest.TestCase):
    def run_on(self, text: bytes, trusted: Mapping[str, Any], *arguments: str) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            files = Path(directory, "receipt"), Path(directory, "trusted")
            files[0].write_bytes(text)
            files[1].write_text(json.dumps(trusted))
            try:
                return main([*map(str, files), *arguments], now=NOW), out.getvalue()
            except SystemExit as exit:
                return int(str(exit.code)), out.getvalue()

    def test_text_and_json(self) -> None:
        trusted = trust(witnessKeys=[note_key("w.example", 4), note_key("v.example", 4)])
        cosigned = receipt(stamp(), inclusion=proof(7, extra=lambda text: note_line("w.example", text, 4)))
        code, out = self.run_on(cosigned, trusted, "--require-timestamp", "--require-witnesses", "1")
        self.assertEqual(0, code, out)
        self.assertIn("time          existed before 2026-11-23T10:04:31Z, says tsa\n", out)
        self.assertIn("witnessed     1 of 2\n", out)
        code, out = self.run_on(cosigned, trusted, "--json", "--require-witnesses", "2")
        found = json.loads(out)
        self.assertEqual((1, "valid", "2026-11-23T10:04:31Z", "tsa", 1), (code, *(found[name] for name in ("time", "existedBefore", "timeAuthority", "witnessed"))))
        self.assertIn("witnesses: ", found["reasons"][0])
        code, out = self.run_on(receipt(), trust())
        self.assertIn("time          not-supplied\n", out)
        self.assertNotIn("witnessed ", out)
        code, out = self.run_on(receipt(), trust(), "--require-timestamp")
        self.assertEqual((1, True), (code, "time: a valid token" in out))
        revoked = trust(revokedKeys=[revoked_entry(SIGNING)])
        self.assertEqual(1, self.run_on(receipt(stamp()), revoked)[0])
        self.assertEqual(0, self.run_on(receipt(stamp()), revoked, "--accept-stamped-before-revocation")[0])
        for wrong in ("-1", "x", "", "1.5"):
            self.assertEqual(2, self.run_on(receipt(), trust(), f"--require-witnesses={wrong}")[0])


@unittest.skipUnless(shutil.which("openssl"), "needs the program openssl")
class OpenSSL(unittest.TestCase):
    """Tokens of another program, which verifies them too."""

    def test_tokens(self) -> None:
        for kind, digest, chained, binding in (("RSA2048", "sha256", False, "sha1"), ("RSA2048", "sha512", True, "sha256"), ("P-256", "sha256", True, "sha256"), ("P-384", "sha384", False, "sha384")):
            with self.subTest(kind=kind, digest=digest, chained=chained), tempfile.TemporaryDirectory() as directory:
                self.check(Path(directory), kind, digest, chained, binding)

    def check(self, directory: Path, kind: str, digest: str, chained: bool, binding: str) -> None:
        now = datetime.now(timezone.utc)
        spans = {"begin": now - timedelta(days=1), "end": now + timedelta(days=1)}
        signer = f"openssl {kind}"
        root, middle = certificate("openssl root", **spans), certificate("openssl inter", "openssl root", **spans)
        leaf = stamping(signer, "openssl inter" if chained else "openssl root", kind=kind, **spans)
        pem = lambda data: x509.load_der_x509_certificate(data).public_bytes(Encoding.PEM)
        entry = proof(5)
        for name, content in {
            "root.pem": pem(root), "chain.pem": pem(middle), "tsa.pem": pem(leaf), "serial": b"01\n", "note": entry["checkpoint"].encode(),
            "tsa.key": key(signer, kind).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "cnf": f"[tsa]\ndefault_tsa=t\n[t]\nserial=serial\nsigner_digest={digest}\ndefault_policy=1.2.3.4\ndigests=sha256\naccuracy=secs:1,millisecs:500\n"
            f"clock_precision_digits=6\nordering=yes\ntsa_name=yes\ness_cert_id_chain={'yes' if chained else 'no'}\ness_cert_id_alg={binding}\n".encode(),
        }.items():
            (directory / name).write_bytes(content)

        def openssl(*arguments: str) -> None:
            done = subprocess.run(["openssl", "ts", *arguments], cwd=directory, capture_output=True, text=True)
            self.assertEqual(0, done.returncode, done.stderr)

        chain = ["-chain", "chain.pem"] if chained else []
        openssl("-query", "-data", "note", "-cert", "-sha256", "-out", "query")
        openssl("-reply", "-queryfile", "query", "-config", "cnf", "-signer", "tsa.pem", "-inkey", "tsa.key", *chain, "-out", "reply")
        openssl("-reply", "-in", "reply", "-token_out", "-out", "token")
        openssl("-verify", "-data", "note", "-in", "token", "-token_in", "-CAfile", "root.pem")
        stamped = (directory / "token").read_bytes()
        at = verify_integrity._read_token(stamped, verify_integrity._Asn1())
        entry["tokens"] = [{"authority": "tsa", "genTime": verify_integrity._format_time(at.at), "token": standard(stamped)}]
        for anchor, finding in ((root, "valid"), (leaf, "valid"), (ROOT, "untrusted")):
            f = judge(receipt(entry), trust(timestampAuthorities=[{"name": "tsa", "certificates": [standard(anchor)]}]), now=now + timedelta(minutes=1))
            self.assertEqual((finding, finding != "valid"), (f.time, f.exit_code == 1), f.reasons)
            if finding == "valid":
                self.assertEqual((verify_integrity._format_time(at.at + timedelta(seconds=1.5)), "tsa"), (f.existed_before, f.time_authority))


if __name__ == "__main__":
    unittest.main()
