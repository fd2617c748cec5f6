"""The offline verifier against the published vectors. VECTORS and SCHEMAS name the files."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import math
import os
import re
import tempfile
import unittest
import unittest.mock
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import verify_integrity
from verify_integrity import CannotCheck, NotProven, limits, main, parse_trusted_keys, verify_key_set, verify_receipt

SCHEMAS = Path(os.environ["SCHEMAS"])


def merged(usual: Any, given: Any) -> Any:
    if not (isinstance(usual, dict) and isinstance(given, dict)):
        return given
    return {name: merged(usual.get(name), given.get(name, usual.get(name))) for name in usual | given}


def whole_vectors(file: dict[str, Any]) -> dict[str, Any]:
    """The vectors with what they leave out, and each receipt as a text."""
    receipts = {v["name"]: v.get("receipt") for v in file["vectors"]}
    for v in file["vectors"]:
        if isinstance(v.get("receipt"), list):
            base = receipts[v["from"]]
            v["receipt"] = "".join(part if isinstance(part, str) else base[part[0] : part[0] + part[1]] for part in v["receipt"])
    file["vectors"] = [merged(file["defaults"], v) for v in file["vectors"]]
    return file


VECTORS = whole_vectors(json.loads((SCHEMAS / "verification-vectors.json").read_bytes()))
RECORD_SCHEMA = json.loads((SCHEMAS / "integrity-v1.json").read_bytes())
STATUS_AS_OF_SCHEMA = json.loads((SCHEMAS / "integrity-status-as-of-v1.json").read_bytes())
STATUS_SCHEMA = json.loads((SCHEMAS / "integrity-status-v1.json").read_bytes())
NAMES = (
    "signature", "references", "observation", "observedStatus", "observedAt", "fileMatch", "inclusion", "statusAsOf", "asOfStatus", "asOf", "asOfSequence",
    "time", "existedBefore", "timeAuthority", "witnessed",
)


def vector(name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(v for v in VECTORS["vectors"] if v["name"] == name)
    return found


def receipt_of(v: dict[str, Any]) -> bytes:
    if v["receipt"] is not None:
        return str(v["receipt"]).encode("utf-8")
    return base64.b64decode(v["receiptBase64"])


def document_of(v: dict[str, Any]) -> bytes | None:
    return None if v["documentBase64"] is None else base64.b64decode(v["documentBase64"])


def trusted_of(v: dict[str, Any]) -> bytes:
    return str(VECTORS["trustedKeys"][v["trustedKeys"]]).encode("utf-8")


def options_of(v: dict[str, Any]) -> dict[str, Any]:
    return {
        "require_references": v["requireReferences"], "require_current": v["requireCurrent"], "require_inclusion": v["requireInclusion"],
        "require_timestamp": v["requireTimestamp"], "require_witnesses": v["requireWitnesses"],
        "accept_stamped_before_revocation": v["acceptStampedBeforeRevocation"], "now": datetime.fromisoformat(v["now"]),
    }


class Vectors(unittest.TestCase):
    def check(self, **schemas: Any) -> None:
        self.assertGreater(len(VECTORS["vectors"]), 900)
        for v in VECTORS["vectors"]:
            with self.subTest(v["name"]):
                try:
                    f = verify_receipt(receipt_of(v), trusted_of(v), document_of(v), **options_of(v), **schemas)
                except CannotCheck:
                    self.assertEqual(v["expect"], {"exitCode": 2, "findings": None})
                    continue
                found = {name: f.as_json()[name] for name in NAMES}
                self.assertEqual(v["expect"], {"exitCode": f.exit_code, "findings": found}, f.reasons)
                self.assertEqual((f.record or f.certificate) is not None, f.signature == "valid")

    def test_vectors(self) -> None:
        self.check()

    def test_vectors_with_schemas(self) -> None:
        self.check(record_schema=RECORD_SCHEMA, status_schema=STATUS_SCHEMA, status_as_of_schema=STATUS_AS_OF_SCHEMA)

    def test_command_line(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            files = [Path(directory, name) for name in ("receipt.json", "trusted.json", "document")]
            for v in VECTORS["vectors"]:
                document = document_of(v)
                for path, content in zip(files, (receipt_of(v), trusted_of(v), document or b"")):
                    path.write_bytes(content)
                arguments = [str(path) for path in (files if document is not None else files[:2])]
                arguments += ["--require-references"] * v["requireReferences"] + ["--require-current"] * v["requireCurrent"]
                arguments += ["--require-inclusion"] * v["requireInclusion"] + ["--require-timestamp"] * v["requireTimestamp"]
                arguments += [f"--require-witnesses={v['requireWitnesses']}"] * (v["requireWitnesses"] > 0)
                arguments += ["--accept-stamped-before-revocation"] * v["acceptStampedBeforeRevocation"]
                with self.subTest(v["name"]), contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
                    code = main([*arguments, "--json"], now=options_of(v)["now"])
                    self.assertEqual(code, v["expect"]["exitCode"])
                    if code == 2:
                        self.assertEqual("", out.getvalue())
                        self.assertIn("trusted keys", errors.getvalue())
                    else:
                        printed = json.loads(out.getvalue())
                        self.assertEqual(v["expect"]["findings"], {name: printed[name] for name in NAMES})
                        self.assertEqual(list(limits("en", printed["certificate"] is not None)), printed["limits"])


class Output(unittest.TestCase):
    def run_on(self, name: str, *arguments: str) -> tuple[int, str]:
        v = vector(name)
        with tempfile.TemporaryDirectory() as directory:
            receipt, trusted, document = (Path(directory, n) for n in ("receipt", "trusted", "document"))
            receipt.write_bytes(receipt_of(v))
            trusted.write_bytes(trusted_of(v))
            document.write_bytes(document_of(v) or b"")
            given = [document] if v["documentBase64"] is not None else []
            with contextlib.redirect_stdout(io.StringIO()) as out:
                code = main([str(path) for path in (receipt, trusted, *given)] + list(arguments), now=options_of(v)["now"])
        return code, out.getvalue()

    def test_text_ends_with_what_is_not_proven(self) -> None:
        for language in ("en", "es"):
            code, text = self.run_on("the document", "--language", language)
            self.assertEqual(0, code)
            self.assertTrue(text.endswith("".join(f"- {sentence}\n" for sentence in limits(language))))
        self.assertEqual(len(limits("en")), len(limits("es")))

    def test_historical_is_said_and_is_no_failure(self) -> None:
        code, text = self.run_on("historical: superseded")
        self.assertEqual(0, code)
        self.assertIn("historical", text)

    def test_every_failure_is_said(self) -> None:
        code, text = self.run_on("references wrong and observation too")
        self.assertEqual(1, code)
        self.assertEqual(2, text.count("NOT VALID"))
        self.assertIn("NOT verified", text)

    def test_inclusion_is_said_with_what_it_does_not_show(self) -> None:
        code, text = self.run_on("checkpoint: with cosignatures")
        self.assertEqual(0, code)
        self.assertIn("of 7 entries holds the record as its entry 4. That is no independent timestamp", text)
        self.assertIn("not checked; they are no trusted timestamps: witness.example/w1, witness.example/w2", text)

    def test_unchecked_proof_is_not_called_missing(self) -> None:
        for language, words in (("en", "a proof was supplied, but it could not be checked"), ("es", "se ha aportado una prueba, pero no se ha podido comprobar")):
            code, text = self.run_on("proof: without log keys", "--language", language)
            self.assertEqual(1, code)
            self.assertIn(words, text)
            self.assertIn("logKeys", text)
        v = vector("proof: a healed record")
        f = verify_receipt(receipt_of(v), trusted_of(v), **options_of(v))
        self.assertEqual(["inclusion: the leaf in the transparency log is not that of a registration"], f.reasons)
        v = vector("proof: foreign signing key")
        f = verify_receipt(receipt_of(v), trusted_of(v), **{**options_of(v), "require_timestamp": True})
        self.assertEqual(2, len(f.reasons), f.reasons)  # the signature, and the tokens, which are missing

    def test_missing_files_cannot_be_checked(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(2, main(["/nowhere/receipt", "/nowhere/trusted"]))
        self.assertIn("/nowhere/receipt", errors.getvalue())


class Messages(ast.NodeVisitor):
    """The messages in the verifier's source, with a word in each place: raised ones, and the subjects that helpers get."""

    raised = ("_Refused", "_Untrusted", "CannotCheck", "ArgumentTypeError")

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.subjects: list[str] = []
        self.positions: dict[str, int] = {}  # of the parameter what or refusal

    def visit_Module(self, node: ast.Module) -> None:
        for function in (n for n in ast.walk(node) if isinstance(n, ast.FunctionDef)):
            names = [a.arg for a in function.args.args if a.arg != "self"]
            self.positions.update((function.name, names.index(name)) for name in ("what", "refusal") if name in names)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in self.raised or name == "append" and ast.unparse(node.func) in ("f.notes.append", "f.reasons.append"):
            self.add(self.sentences, node.args[0])
        elif name == "argument":
            self.add(self.sentences, node.args[1])
        elif name == "_say":
            self.add(self.sentences, node.args[0])
        elif name in self.positions and self.positions[name] < len(node.args):
            refusal = name == "_check_ed25519"
            self.add(self.sentences if refusal else self.subjects, node.args[self.positions[name]])
        self.generic_visit(node)

    def add(self, to: list[str], message: ast.expr) -> None:
        if isinstance(message, ast.BinOp):  # a sentence and a list
            message = ast.JoinedStr([message.left, ast.FormattedValue(message.right, -1)])
        if isinstance(message, ast.Constant):
            to.append(str(message.value))
        elif isinstance(message, ast.JoinedStr):
            to.append("".join(self.sample(part) for part in message.values))

    @staticmethod
    def sample(part: ast.expr) -> str:
        if isinstance(part, ast.Constant):
            return str(part.value)
        assert isinstance(part, ast.FormattedValue)
        values = {"when": "T (sequence 1)", "signer": "the origin declared"}
        values |= dict.fromkeys(("error", "passed", "message", "fault"), "nested deeper than 8")  # one of the other sentences
        return values.get(ast.unparse(part.value), "word")


KEY_SETS = json.loads((SCHEMAS / "key-set-vectors.json").read_bytes())


class KeySets(unittest.TestCase):
    """A reader who pins a log key or witnesses obtains the published keys, and nothing else passes."""

    def verify(self, v: dict[str, Any], proof: bytes) -> verify_integrity.KeySet:
        pinned = {"keys": [], **{name: v[name] for name in ("logKeys", "witnessKeys", "revokedKeys")}}
        now = datetime.fromisoformat(KEY_SETS["now"])
        expected = {name: v[name] for name in ("origin", "issuer")}
        return verify_key_set(proof, json.dumps(pinned).encode(), **expected, require_witnesses=v["requireWitnesses"], now=now)

    def test_vectors(self) -> None:
        self.assertGreater(len(KEY_SETS["vectors"]), 35)
        for v in KEY_SETS["vectors"]:
            with self.subTest(v["name"]):
                try:
                    k = self.verify(v, v["proof"].encode())
                except NotProven:
                    self.assertIsNone(v["expect"])
                    continue
                found = {
                    "issuer": k.issuer, "publishedAt": k.published_at, "payloadSha256": k.payload_sha256, "keyIds": list(k.trusted._keys),
                    "treeSize": k.tree_size, "witnesses": list(k.witnesses), "cosignedAt": k.cosigned_at,
                    "logKeyPinned": k.log_key_pinned, "logKeyListed": k.log_key_listed,
                }
                self.assertEqual(v["expect"], found)
                self.assertEqual(parse_trusted_keys(k.file), k.trusted)

    def test_no_byte_can_change(self) -> None:
        v = next(v for v in KEY_SETS["vectors"] if v["name"] == "by the pinned log key")
        proof = v["proof"].encode()
        for at in range(0, len(proof), 3):
            with self.assertRaises(NotProven, msg=f"byte {at}"):
                self.verify(v, proof[:at] + bytes([proof[at] ^ 1]) + proof[at + 1 :])
        for wrong in (b"", b"{}", proof + b"\n" * (1024 * 1024)):
            with self.assertRaises(NotProven):
                self.verify(v, wrong)
        with self.assertRaises(CannotCheck):
            verify_key_set(proof, b"{}")

    def test_number_of_witnesses(self) -> None:
        v = next(v for v in KEY_SETS["vectors"] if v["name"] == "by the pinned log key")
        for wrong in (-1, math.nan, 1.5, "1", None):
            with self.assertRaisesRegex(CannotCheck, "must be a whole number of 0 or more"):
                self.verify({**v, "requireWitnesses": wrong}, v["proof"].encode())
            with self.assertRaisesRegex(CannotCheck, "must be a whole number of 0 or more"):
                verify_receipt(b"{}", b'{"keys":[]}', require_witnesses=wrong)  # type: ignore[arg-type]


class Calls(unittest.TestCase):
    def test_long_names_are_cut(self) -> None:
        name = "a" * 500_000
        for text in (f'{{"{name}":0}}', f'{{"{name}":0,"{name}":0}}', f'{{"keys":[],"keyStatus":{{"{name}":0}}}}'):
            with self.assertRaises(CannotCheck) as raised:
                parse_trusted_keys(text.encode())
            self.assertLess(len(str(raised.exception)), 1000)

    def test_document_of_a_path(self) -> None:
        v = vector("the document")
        with tempfile.NamedTemporaryFile() as file:
            file.write(document_of(v) or b"")
            file.flush()
            f = verify_receipt(receipt_of(v), parse_trusted_keys(trusted_of(v)), Path(file.name), **options_of(v))
            self.assertIs(True, f.file_match)
            file.write(b".")
            file.flush()
            f = verify_receipt(receipt_of(v), trusted_of(v), Path(file.name), **options_of(v))
            self.assertIs(False, f.file_match)
            self.assertTrue(any("bytes where the origin declared" in note for note in f.notes))

    def test_schemas_go_together_and_decide(self) -> None:
        v = vector("private export")
        stricter = {**RECORD_SCHEMA, "properties": {**RECORD_SCHEMA["properties"], "mimeType": {"const": "text/plain"}}}
        for schemas in ({"record_schema": RECORD_SCHEMA}, {"record_schema": {"type": 1}, "status_schema": STATUS_SCHEMA}):
            with self.assertRaises(CannotCheck):
                verify_receipt(receipt_of(v), trusted_of(v), **options_of(v), **schemas)
        f = verify_receipt(receipt_of(v), trusted_of(v), **options_of(v), record_schema=stricter, status_schema=STATUS_SCHEMA)
        self.assertEqual(("invalid", 1), (f.signature, f.exit_code))
        f = verify_receipt(receipt_of(v), trusted_of(v), **options_of(v), record_schema=RECORD_SCHEMA, status_schema=RECORD_SCHEMA)
        self.assertEqual(("valid", "invalid"), (f.signature, f.observation))

    def test_the_clock_is_this_computers_by_default(self) -> None:
        self.assertEqual(0, verify_receipt(receipt_of(vector("private export")), trusted_of(vector("private export"))).exit_code)
        early = verify_receipt(receipt_of(vector("private export")), trusted_of(vector("private export")), now=datetime(2026, 11, 19, tzinfo=timezone.utc))
        self.assertEqual("invalid", early.observation)

    def test_every_byte_counts(self) -> None:
        for name, start in (("private export", b"{"), ("inclusion", b'"inclusion"')):
            v = vector(name)
            receipt, trusted = receipt_of(v), parse_trusted_keys(trusted_of(v))
            meaning = json.loads(receipt)
            for i in range(receipt.index(start), len(receipt)):
                for mask in (0x01, 0x20):
                    changed = receipt[:i] + bytes([receipt[i] ^ mask]) + receipt[i + 1 :]
                    if verify_receipt(changed, trusted, **options_of(v)).exit_code == 0:
                        self.assertEqual(meaning, json.loads(changed), f"{name}, byte {i} xor {mask}")

    def test_language_of_the_locale(self) -> None:
        """The output follows the locale, names of findings and JSON do not, and no line is in both."""
        v = vector("inclusion")
        with tempfile.TemporaryDirectory() as directory:
            receipt, trusted = Path(directory, "receipt"), Path(directory, "trusted")
            receipt.write_bytes(receipt_of(v))
            trusted.write_bytes(trusted_of(v))
            outputs: dict[tuple[str, ...], str] = {}
            for locale, *flags in (("C",), ("es_ES.UTF-8",), ("es_ES.UTF-8", "--json"), ("C", "--json"), ("es", "--language", "en")):
                out = io.StringIO()
                with unittest.mock.patch.dict(os.environ, {"LC_ALL": locale}), contextlib.redirect_stdout(out):
                    self.assertEqual(0, main([str(receipt), str(trusted), *flags], options_of(v)["now"]))
                outputs[locale, *flags] = out.getvalue()
        self.assertEqual(outputs["C", "--json"], outputs["es_ES.UTF-8", "--json"])
        self.assertEqual(outputs["C",], outputs["es", "--language", "en"])
        self.assertIn("verdict       everything that was supplied and checked is valid\n", outputs["C",])
        spanish = outputs["es_ES.UTF-8",]
        self.assertIn("veredicto     todo lo aportado y comprobado es válido\n", spanish)
        self.assertRegex(spanish, r"(?m)^signature +valid$")
        for line in outputs["C",].splitlines():
            self.assertTrue(line not in spanish.splitlines() or re.fullmatch(r"\S+ +[a-z-]+|", line), line)

    def test_every_note_and_reason_has_spanish(self) -> None:
        for v in VECTORS["vectors"]:
            try:
                f = verify_receipt(receipt_of(v), trusted_of(v), document_of(v), **options_of(v))
                sentences = f.notes + f.reasons
            except CannotCheck as error:
                sentences = [f"verify_integrity: {error}"]
            for sentence in sentences:
                self.assertIsNotNone(verify_integrity._in_spanish(sentence), sentence)
        for english, spanish in verify_integrity._SPANISH.items():
            self.assertEqual(re.findall(r"{[.!]*}", english), re.findall(r"{[.!]*}", spanish))

    def test_every_message_in_the_source_has_spanish(self) -> None:
        """Every refusal, the subjects of refusals, and the help, also those that no vector brings about."""
        messages = Messages()
        messages.visit(ast.parse(Path(verify_integrity.__file__).read_text(encoding="utf-8")))
        self.assertGreater(len(messages.sentences), 130)
        self.assertGreater(len(messages.subjects), 60)
        for sentence in messages.sentences:
            self.assertIsNotNone(verify_integrity._in_spanish(sentence), sentence)
        for subject in messages.subjects:
            self.assertIsNotNone(verify_integrity._in_spanish(subject, part=True), subject)

    def test_errors_and_help_follow_the_locale(self) -> None:
        for arguments, said in ((["--help"], "muestra esta ayuda"), (["a"], "faltan argumentos obligatorios: trusted"), (["/none", "b"], "/none: no existe")):
            with unittest.mock.patch.dict(os.environ, {"LC_ALL": "es_ES.UTF-8"}), contextlib.redirect_stdout(io.StringIO()) as out:
                with contextlib.redirect_stderr(out):
                    self.assertEqual(0 if arguments == ["--help"] else 2, main(arguments))
            self.assertIn(said, out.getvalue())
            for word in ("usage:", "options:", "show", "required"):
                self.assertNotIn(word, out.getvalue())

    def test_public_names(self) -> None:
        for name in verify_integrity.__all__:
            self.assertTrue(hasattr(verify_integrity, name))


if __name__ == "__main__":
    unittest.main()
