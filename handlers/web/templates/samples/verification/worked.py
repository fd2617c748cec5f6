import base64
import hashlib
import json

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

def base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()

def show(name: str, value: object) -> None:
    print(f"{name:21} {value.hex() if isinstance(value, bytes) else value}")

evidence = json.load(open("example-evidence.json", encoding="utf-8"))
pinned = json.load(open("example-keys.json", encoding="utf-8"))

# The key: 32 bytes in the JWK, 44 bytes of SPKI in DER.
jwk = evidence["publicKeyJwk"]
key = base64url(jwk["x"])
spki = bytes.fromhex("302a300506032b6570032100") + key
show("public key", key)
show("SPKI", spki)
show("fingerprintSha256", sha256(spki))
thumbprint = '{"crv":"Ed25519","kty":"OKP","x":"' + jwk["x"] + '"}'
show("keyId of", thumbprint)
key_id = base64.urlsafe_b64encode(sha256(thumbprint.encode())).rstrip(b"=").decode()
show("keyId", key_id)
assert key_id == evidence["keyId"] == pinned["keys"][0]["keyId"]
assert sha256(spki).hex() == evidence["fingerprintSha256"]

# The signature is over the UTF-8 bytes of the text, once JSON has unescaped it.
payload = evidence["payload"].encode()
show("payload begins", payload[:16])
show("payload ends", payload[-16:])
show("payload, bytes", len(payload))
show("payloadSha256", sha256(payload))
signature = base64url(evidence["signature"])
show("signature", signature)
Ed25519PublicKey.from_public_bytes(key).verify(signature, payload)
record = json.loads(payload)

# The RFC 8785 form of these members: sorted, no white space, no escape that is needless.
references = json.dumps(
    evidence["references"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
show("references", references)
show("references, bytes", len(references.encode()))
show("referencesSha256", sha256(references.encode()))
assert sha256(references.encode()).hex() == record["referencesSha256"]

# The observation is signed as the record is, and names its payload.
observation = evidence["statusObservation"]
Ed25519PublicKey.from_public_bytes(key).verify(
    base64url(observation["signature"]), observation["payload"].encode())
assert json.loads(observation["payload"])["payloadSha256"] == sha256(payload).hex()

# The leaf of the log, and the way from it to the root.
inclusion = evidence["inclusion"]
leaf = inclusion["leaf"].encode()
assert json.loads(leaf)["payloadSha256"] == sha256(payload).hex()
node = sha256(b"\x00" + leaf)
show("leaf hash", node)
index, last = inclusion["leafIndex"], inclusion["treeSize"] - 1
for sibling in map(base64.b64decode, inclusion["hashes"]):
    if index % 2 == 1 or index == last:
        node = sha256(b"\x01" + sibling + node)
        while index % 2 == 0 and index != 0:
            index, last = index // 2, last // 2
    else:
        node = sha256(b"\x01" + node + sibling)
    index, last = index // 2, last // 2
    show("node", node)
assert last == 0

# The checkpoint: three lines are signed, each with its newline, by a pinned key of the log.
text, _, lines = inclusion["checkpoint"].partition("\n\n")
signed = (text + "\n").encode()
origin, size, root = text.split("\n")
assert base64.b64decode(root) == node and int(size) == inclusion["treeSize"]
name, key_hash, encoded = pinned["logKeys"][0]["verifierKey"].split("+", 2)
log_key = base64.b64decode(encoded)
show("log key", log_key)
show("keyHash", sha256(name.encode() + b"\n" + log_key)[:4])
assert sha256(name.encode() + b"\n" + log_key)[:4].hex() == key_hash and log_key[0] == 1
line = base64.b64decode(lines.split("\n")[0].removeprefix(f"— {name} "))
assert line[:4].hex() == key_hash
show("checkpoint, bytes", len(signed))
show("checkpoint, SHA-256", sha256(signed))
Ed25519PublicKey.from_public_bytes(log_key[1:]).verify(line[4:], signed)
print("everything verifies")
