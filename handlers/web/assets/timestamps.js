// Time stamp tokens (RFC 3161, RFC 5816) of pinned authorities, in the strict profile that every verifier of this
// service holds to: one DER form, one signer, and a path from its certificate to a pinned one. asn1js reads the
// ASN.1, WebCrypto checks the signatures; that nil is left unchecked is this file's.

import { fromBER } from "./asn1.js";
import { hex } from "./bytes.js";
import { Refusal, Untrusted } from "./strictjson.js";

const maxBytes = 8 * 1024; // of a token or a certificate
const maxSteps = 4; // from a certificate to a pinned one
const maxAccuracy = 3_600_000_000n; // microseconds
const [minModulus, maxModulus] = [2048, 8192]; // bits of RSA
const maxExponent = 2 ** 31 - 1; // of RSA, as no library refuses it

const refuse = (code) => {
  throw new Refusal(code);
};
const must = (right, code) => right || refuse(code);
const same = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

// ---- DER (X.690, section 10)

const [boolean, integer, bitString, octetString, nil, objectId, enumerated, utcTime, generalizedTime] = [1, 2, 3, 4, 5, 6, 10, 0x17, 0x18];
const [sequence, set] = [0x30, 0x31];
const context = (number) => 0xa0 | number; // constructed
const primitive = (number) => 0x80 | number;

// node is a value as it stands: its tag (one octet), its bytes whole, those after the header, and what it is made of.
function node(block) {
  const whole = block.valueBeforeDecodeView;
  const length = block.lenBlock.length;
  const header = length < 128 ? 2 : 2 + Math.ceil(length.toString(16).length / 2);
  const [tag, first, last] = [whole[0], whole[header], whole[whole.length - 1]];
  const constructed = (tag & 0x20) !== 0;
  must(tag !== 0 && (tag & 0x1f) !== 0x1f && !block.lenBlock.isIndefiniteForm && whole.length === header + length, "token-der");
  must(tag >= 0x40 || constructed === (tag === sequence || tag === set), "token-der");
  must(tag !== boolean || (length === 1 && (first === 0 || first === 0xff)), "token-der");
  const bytes = whole.subarray(header);
  must((tag !== integer && tag !== enumerated) || isWhole(bytes), "token-der");
  must(tag !== bitString || (length === 1 ? first === 0 : length > 1 && first < 8 && (last & ((1 << first) - 1)) === 0), "token-der");
  must(tag !== nil || length === 0, "token-der");
  must(tag !== objectId || (length > 0 && last < 128 && first !== 128 && bytes.every((byte, i) => byte !== 128 || bytes[i - 1] > 127)), "token-der");
  return { tag, whole, bytes, parts: constructed ? block.valueBlock.value.map(node) : [] };
}

// isWhole tells whether these bytes are an integer's, without a needless one.
const isWhole = ([first, second]) => first !== undefined && (second === undefined || !((first === 0 && second < 128) || (first === 0xff && second > 127)));

// read takes the DER of one value apart. The library reads BER, which allows several encodings; node accepts only DER.
function read(der) {
  must(der.length > 0 && der.length <= maxBytes, "token-der");
  let found;
  try {
    found = fromBER(der, { parseEmbedded: false, maxDepth: 32 });
  } catch {
    refuse("token-der"); // some malformed strings, which the library does not report as it does the rest
  }
  must(found.offset === der.length, "token-der");
  return node(found.result);
}

// Parts reads the parts of a value in their order.
class Parts {
  constructor(value, tag = sequence) {
    must(value.tag === tag, "token-form");
    this.rest = [...value.parts];
  }

  maybe(tag) {
    return this.rest[0]?.tag === tag ? this.rest.shift() : undefined;
  }

  next(tag) {
    return this.maybe(tag) ?? refuse("token-form");
  }

  // only is the last part there may be.
  only(tag) {
    const value = this.next(tag);
    this.end();
    return value;
  }

  end() {
    must(this.rest.length === 0, "token-form");
  }
}

const oid = (value) => hex(value.bytes);
const isVersion = (value, version) => value.bytes.length === 1 && value.bytes[0] === version;

function natural(value, tag = integer) {
  must(value.tag === tag && isWhole(value.bytes) && value.bytes.length <= 4 && value.bytes[0] < 128, "token-form");
  return value.bytes.reduce((sum, byte) => sum * 256 + byte, 0);
}

const digests = { "608648016503040201": "SHA-256", "608648016503040202": "SHA-384", "608648016503040203": "SHA-512" };
const rsa = "2a864886f70d010101";
const signatures = {
  [rsa]: ["RSASSA-PKCS1-v1_5"],
  "2a864886f70d01010b": ["RSASSA-PKCS1-v1_5", "SHA-256"], "2a864886f70d01010c": ["RSASSA-PKCS1-v1_5", "SHA-384"], "2a864886f70d01010d": ["RSASSA-PKCS1-v1_5", "SHA-512"],
  "2a8648ce3d040302": ["ECDSA", "SHA-256"], "2a8648ce3d040303": ["ECDSA", "SHA-384"], "2a8648ce3d040304": ["ECDSA", "SHA-512"],
};
const curves = { "2a8648ce3d030107": ["P-256", 32], "2b81040022": ["P-384", 48], "2b81040023": ["P-521", 66] };
const namedCurves = ["2b81040021", ...Object.keys(curves)]; // P-224 too, which signs nothing here
const [ecKey, signedData, tstInfo] = ["2a8648ce3d0201", "2a864886f70d010702", "2a864886f70d0109100104"];
const attributes = {
  "2a864886f70d010903": "contentType", "2a864886f70d010904": "messageDigest",
  "2a864886f70d010910020c": "signingCertificate", "2a864886f70d010910022f": "signingCertificateV2",
};
const extensions = { "551d0f": "keyUsage", "551d13": "basicConstraints", "551d25": "extendedKeyUsage" };
const harmless = ["551d1f", "551d20"]; // where critical: distribution points of lists, and policies
const nameConstraints = "551d1e"; // not looked at, so not accepted
const [timeStamping, anyUsage] = ["2b06010505070308", "551d2500"];

// algorithm reads an AlgorithmIdentifier whose parameters are absent or NULL.
function algorithm(value) {
  const parts = new Parts(value);
  const name = oid(parts.next(objectId));
  parts.maybe(nil);
  must(parts.rest.length === 0, "token-algorithm");
  return name;
}

const digestOf = (value) => digests[algorithm(value)] ?? refuse("token-algorithm");
const digest = async (name, bytes) => new Uint8Array(await crypto.subtle.digest(name, bytes));

// moment reads UTCTime or GeneralizedTime with seconds, in Z, as microseconds since 1970.
function moment(value, digits = 0) {
  const written = String.fromCharCode(...value.bytes);
  const text = value.tag === utcTime ? `${Number(written.slice(0, 2)) < 50 ? 20 : 19}${written}` : written;
  const found = (value.tag === utcTime || value.tag === generalizedTime) && /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d*[1-9]))?Z$/.exec(text);
  must(found && (found[7] ?? "").length <= digits, "token-form");
  const [, year, month, day, hour, minute, second, fraction = ""] = found;
  const civil = `${year}-${month}-${day}T${hour}:${minute}:${second}`;
  const at = new Date(`${civil}Z`);
  must(!Number.isNaN(at.getTime()) && at.toISOString().slice(0, 19) === civil, "token-form");
  return BigInt(at.getTime()) * 1000n + BigInt(fraction.padEnd(6, "0"));
}

// readExtensions answers the value of each extension, and which are critical, by their ids.
function readExtensions(value) {
  const found = new Map();
  for (const extension of new Parts(value).rest) {
    const parts = new Parts(extension);
    const id = oid(parts.next(objectId));
    const critical = parts.maybe(boolean);
    must(!found.has(id), "token-form");
    found.set(id, { critical: critical?.bytes[0] === 0xff, bytes: parts.only(octetString).bytes });
  }
  return found;
}

// ---- Certificates (RFC 5280)

// readName reads a Name, whose bytes are compared.
function readName(value) {
  for (const names of value.parts) {
    for (const one of new Parts(names, set).rest) {
      const parts = new Parts(one);
      parts.next(objectId);
      must(parts.rest.length === 1, "token-form");
    }
  }
  return value.whole;
}

// checkKey refuses public keys that some libraries read: on other curves, points that are not written out, and RSA
// without the NULL of RFC 3279, section 2.3.1.
function checkKey(parts) {
  const named = new Parts(parts.next(sequence));
  const kind = oid(named.next(objectId));
  const bits = parts.only(bitString).bytes;
  must(named.rest.length <= 1 && (kind !== rsa || named.only(nil)), "token-form");
  must(kind !== ecKey || (namedCurves.includes(oid(named.only(objectId))) && bits[1] === 4), "token-form");
}

// readOutline returns the elements of a certificate (RFC 5280, section 4.1). It checks their tags, not their contents.
function readOutline(value) {
  const outer = new Parts(value);
  const signed = outer.next(sequence);
  const signatureAlgorithm = outer.next(sequence);
  const signature = outer.only(bitString).bytes;
  const parts = new Parts(signed);
  const wrappedVersion = parts.maybe(context(0));
  const serial = parts.next(integer).bytes;
  const [signedAlgorithm, issuer, validity, subject, key] = [1, 2, 3, 4, 5].map(() => parts.next(sequence));
  parts.maybe(primitive(1));
  parts.maybe(primitive(2));
  const wrapped = parts.maybe(context(3));
  parts.end();
  return { whole: value.whole, signed, signatureAlgorithm, signature, wrappedVersion, serial, signedAlgorithm, issuer, validity, subject, key, wrapped };
}

// readStrictly reads the contents of an outline.
function readStrictly({ wrappedVersion, signedAlgorithm, validity, wrapped, ...outline }) {
  const { signed, signatureAlgorithm, signature, serial, key } = outline;
  const version = wrappedVersion && natural(new Parts(wrappedVersion, context(0)).only(integer));
  must((version === undefined || version === 1 || version === 2) && serial[0] < 128, "token-form");
  must(same(signedAlgorithm.whole, signatureAlgorithm.whole) && signature[0] === 0, "token-form");
  must(wrapped === undefined || version === 2, "token-form");
  const times = new Parts(validity).rest;
  must(times.length === 2, "token-form");
  const [from, until] = times.map((time) => moment(time));
  checkKey(new Parts(key));
  const made = {
    ...outline, signed: signed.whole, signature: signature.subarray(1), issuer: readName(outline.issuer), subject: readName(outline.subject),
    from, until, authority: false, pathLength: Infinity, understood: true,
  };
  for (const [id, { critical, bytes }] of wrapped ? readExtensions(new Parts(wrapped, context(3)).only(sequence)) : []) {
    if (extensions[id] === "basicConstraints") {
      const constraints = new Parts(read(bytes));
      made.authority = constraints.maybe(boolean)?.bytes[0] === 0xff;
      const length = constraints.maybe(integer);
      constraints.end();
      made.pathLength = length === undefined ? Infinity : natural(length);
    } else if (extensions[id] === "keyUsage") {
      const bits = read(bytes);
      must(bits.tag === bitString, "token-form");
      made.keyUsage = bits.bytes.slice(1).some((byte) => byte !== 0) ? bits.bytes[1] : undefined; // none is any
    } else if (extensions[id] === "extendedKeyUsage") {
      made.extendedKeyUsage = { critical, ids: new Parts(read(bytes)).rest.map((usage) => (usage.tag === objectId ? oid(usage) : refuse("token-form"))) };
    } else {
      made.understood &&= id !== nameConstraints && (!critical || harmless.includes(id));
    }
  }
  return made;
}

/** Reads the DER of one X.509 certificate, or throws a Refusal. */
export const readCertificate = (der) => readStrictly(readOutline(read(der)));

// readable returns the certificates that can be read strictly. The others have issued nothing.
const readable = (outlines) => outlines.flatMap((outline) => {
  try {
    return [readStrictly(outline)];
  } catch (error) {
    if (error instanceof Refusal) {
      return [];
    }
    throw error;
  }
});

const digitalSignature = 0x80 | 0x40; // or nonRepudiation
const keyCertSign = 0x04;

// signs tells whether a key made a signature. Signature algorithms without a hash of their own take the one given.
async function signs(key, signatureAlgorithm, hash, message, signature) {
  const [family, named] = signatures[algorithm(signatureAlgorithm)] ?? refuse("token-algorithm");
  must((named ?? hash) !== undefined && (hash ?? named) === (named ?? hash), "token-algorithm");
  const parts = new Parts(key);
  const keyAlgorithm = new Parts(parts.next(sequence));
  const kind = oid(keyAlgorithm.next(objectId));
  const use = { name: family, hash: named ?? hash };
  let form = signature;
  if (family === "ECDSA") {
    const [namedCurve, size] = (kind === ecKey && curves[oid(keyAlgorithm.only(objectId))]) || refuse("token-algorithm");
    use.namedCurve = namedCurve;
    const numbers = new Parts(read(signature));
    const [r, s] = [numbers.next(integer), numbers.only(integer)].map(({ bytes }) => (bytes[0] === 0 ? bytes.subarray(1) : bytes[0] > 127 ? null : bytes));
    if (r === null || s === null || r.length > size || s.length > size) {
      return false;
    }
    form = new Uint8Array(2 * size);
    form.set(r, size - r.length);
    form.set(s, 2 * size - s.length);
  } else {
    must(kind === rsa, "token-algorithm");
  }
  let imported;
  try {
    imported = await crypto.subtle.importKey("spki", key.whole, use, false, ["verify"]);
  } catch (error) {
    if (error.name === "DataError") {
      return false; // no key
    }
    throw error;
  }
  must(family === "ECDSA" || isStrong(imported.algorithm), "token-algorithm");
  return crypto.subtle.verify(use, imported, form, message);
}

function isStrong({ modulusLength, publicExponent }) {
  const exponent = Number(`0x${hex(publicExponent)}`);
  return modulusLength >= minModulus && modulusLength <= maxModulus && exponent >= 3 && exponent <= maxExponent && exponent % 2 === 1;
}

async function issued(certificate, by) {
  try {
    return await signs(by.key, certificate.signatureAlgorithm, undefined, certificate.signed, certificate.signature);
  } catch (error) {
    if (error instanceof Refusal) {
      return false; // an algorithm that is not of the profile
    }
    throw error;
  }
}

// Paths finds the ways from the signer of a token to pinned certificates. Each pair of certificates is checked once.
class Paths {
  constructor(pinned, others, at) {
    Object.assign(this, { pinned, others, at, checked: new Map() });
  }

  isPinned(certificate) {
    return this.pinned.some((anchor) => same(anchor.whole, certificate.whole));
  }

  // mayIssue is everything about an issuer but its signature; below is how many issuers stand between it and the signer
  // of the token. Another certificate of one key is no issuer of it.
  mayIssue(by, certificate, below) {
    return (
      same(by.subject, certificate.issuer) && by.authority && by.understood && below <= by.pathLength &&
      !(same(by.subject, certificate.subject) && same(by.key.whole, certificate.key.whole)) &&
      (by.keyUsage === undefined || (by.keyUsage & keyCertSign) !== 0) && isValid(by, this.at) &&
      (by.extendedKeyUsage === undefined || by.extendedKeyUsage.ids.some((id) => id === timeStamping || id === anyUsage))
    );
  }

  async signed(certificate, by) {
    const known = this.checked.get(certificate) ?? new Map();
    this.checked.set(certificate, known);
    if (!known.has(by)) {
      known.set(by, await issued(certificate, by));
    }
    return known.get(by);
  }

  async lead(certificate, steps = 0) {
    if (this.isPinned(certificate)) {
      return true;
    }
    for (const by of steps < maxSteps ? [...this.pinned, ...this.others] : []) {
      if (this.mayIssue(by, certificate, steps) && (await this.signed(certificate, by)) && (await this.lead(by, steps + 1))) {
        return true;
      }
    }
    return false;
  }
}

const isValid = (certificate, at) => certificate.from <= at && at <= certificate.until;

// ---- Tokens

// readInfo reads a TSTInfo over an imprint: {genTime, latest} in microseconds.
function readInfo(bytes, imprint) {
  const parts = new Parts(read(bytes));
  must(isVersion(parts.next(integer), 1), "token-form");
  parts.next(objectId);
  const stamped = new Parts(parts.next(sequence));
  must(digestOf(stamped.next(sequence)) === "SHA-256", "token-algorithm");
  const hash = stamped.only(octetString).bytes;
  parts.next(integer);
  const genTime = moment(parts.next(generalizedTime), 6);
  const accuracy = parts.maybe(sequence);
  let within = 0n;
  if (accuracy !== undefined) {
    const limits = new Parts(accuracy);
    const seconds = limits.maybe(integer);
    const [millis, micros] = [0, 1].map((tag) => limits.maybe(primitive(tag)));
    limits.end();
    const small = [millis, micros].map((value, tag) => (value === undefined ? 0 : natural(value, primitive(tag))));
    must([millis, micros].every((value, i) => value === undefined || (small[i] >= 1 && small[i] <= 999)), "token-form");
    within = BigInt(seconds === undefined ? 0 : natural(seconds)) * 1_000_000n + BigInt(small[0] * 1000 + small[1]);
    must(within <= maxAccuracy, "token-accuracy");
  }
  parts.maybe(boolean);
  parts.maybe(integer);
  parts.maybe(context(0));
  const more = parts.maybe(context(1));
  parts.end();
  if (more !== undefined) {
    must([...readExtensions({ ...more, tag: sequence }).values()].every(({ critical }) => !critical), "token-form");
  }
  must(same(hash, imprint), "token-imprint");
  return { genTime, latest: genTime + within };
}

// readAttributes answers the one value of each signed attribute that matters, by name.
function readAttributes(value) {
  const found = {};
  const seen = new Set();
  let before = "";
  for (const attribute of value.parts) {
    const written = hex(attribute.whole);
    must(before < written, "token-der"); // X.690, section 11.6; no attribute is the beginning of another
    before = written;
    const parts = new Parts(attribute);
    const id = oid(parts.next(objectId));
    const values = parts.only(set).parts;
    must(!seen.has(id) && values.length === 1, "token-attributes");
    seen.add(id);
    if (Object.hasOwn(attributes, id)) {
      [found[attributes[id]]] = values;
    }
  }
  return found;
}

// names reports whether the first ESSCertID of a signing certificate attribute identifies a certificate.
async function names(value, certificate, second) {
  const outer = new Parts(value);
  const first = new Parts(new Parts(outer.next(sequence)).next(sequence));
  outer.maybe(sequence);
  outer.end();
  const hashing = second ? first.maybe(sequence) : undefined;
  const hash = first.next(octetString).bytes;
  first.maybe(sequence);
  first.end();
  const name = second ? (hashing ? digestOf(hashing) : "SHA-256") : "SHA-1";
  return same(hash, await digest(name, certificate.whole));
}

/**
 * Judges a token: DER of a CMS ContentInfo, for the SHA-256 of the stamped text, under the certificates (from
 * readCertificate) of the authority that it claims. It returns {genTime, latest}, microseconds since 1970:
 * the token's time, and that with its accuracy. Otherwise it throws a Refusal, which is Untrusted
 * if the token is well made but its certificates do not belong to the authority.
 */
export async function checkToken(der, imprint, pinned) {
  const info = new Parts(read(der));
  must(oid(info.next(objectId)) === signedData, "token-form");
  const data = new Parts(new Parts(info.only(context(0)), context(0)).only(sequence));
  must(isVersion(data.next(integer), 3), "token-form");
  const hash = digestOf(new Parts(data.next(set), set).only(sequence));
  const encapsulated = new Parts(data.next(sequence));
  must(oid(encapsulated.next(objectId)) === tstInfo, "token-form");
  const content = new Parts(encapsulated.only(context(0)), context(0)).only(octetString).bytes;
  const certificates = data.next(context(0)).parts.map(readOutline);
  must(certificates.length >= 1 && certificates.length <= 8, "token-form");
  const signer = new Parts(new Parts(data.only(set), set).only(sequence));
  must(isVersion(signer.next(integer), 1), "token-form");
  const named = new Parts(signer.next(sequence));
  const [issuer, serial] = [named.next(sequence).whole, named.only(integer).bytes];
  const chosen = certificates.filter((one) => same(one.issuer.whole, issuer) && same(one.serial, serial));
  must(chosen.length > 0 && chosen.every((one) => same(one.whole, chosen[0].whole)), "token-signer");
  const own = readStrictly(chosen[0]);
  must(digestOf(signer.next(sequence)) === hash, "token-algorithm");
  const signed = signer.next(context(0));
  const signatureAlgorithm = signer.next(sequence);
  const signature = signer.only(octetString).bytes;
  const { contentType, messageDigest, signingCertificate, signingCertificateV2 } = readAttributes(signed);
  must(contentType?.tag === objectId && oid(contentType) === tstInfo, "token-attributes");
  must(messageDigest?.tag === octetString && same(messageDigest.bytes, await digest(hash, content)), "token-attributes");
  must(signingCertificate ?? signingCertificateV2, "token-attributes");
  must(!signingCertificate || (await names(signingCertificate, own, false)), "token-attributes");
  must(!signingCertificateV2 || (await names(signingCertificateV2, own, true)), "token-attributes");
  const { genTime, latest } = readInfo(content, imprint);
  const message = Uint8Array.of(set, ...signed.whole.subarray(1)); // RFC 5652, section 5.4
  must(await signs(own.key, signatureAlgorithm, hash, message, signature), "token-signature");
  const usage = own.extendedKeyUsage;
  must(
    !own.authority && usage?.critical && usage.ids.length === 1 && usage.ids[0] === timeStamping &&
      (own.keyUsage === undefined || (own.keyUsage & digitalSignature) !== 0),
    "token-usage",
  );
  // Other certificates in the token, such as duplicates or members of other chains, are ignored.
  if (!isValid(own, genTime)) {
    throw new Untrusted("token-expired");
  }
  if (!own.understood || !(await new Paths(pinned, readable(certificates), genTime).lead(own))) {
    throw new Untrusted("token-chain");
  }
  return { genTime, latest };
}

