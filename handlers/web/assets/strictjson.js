// Reads JSON that somebody else wrote and that was signed, so that no two readers
// can understand it differently (RFC 8259, RFC 7493), and writes it in the one
// form of RFC 8785.

const maxDepth = 8; // a flat object has depth 1
const maxShown = 200; // characters of a detail, which the author of a text may make up

/** Why a text is refused: a code, and where or what (a JSON pointer, a name). */
export class Refusal extends Error {
  constructor(code, whole = "") {
    const detail = whole.slice(0, maxShown);
    super(detail ? `${code}: ${detail}` : code);
    this.name = "Refusal";
    this.code = code;
    this.detail = detail;
  }
}

/** A refusal of well-formed evidence because its key or certificate is not trusted. */
export class Untrusted extends Refusal {}

// An integer as it was written.
export class Numeral {
  constructor(text) {
    this.text = text;
  }
}

const space = /[ \t\r\n]*/y;
const numeral = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const quoted = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;

// parse reads exactly one value: objects become Maps, numbers Numerals. It refuses
// a repeated member, a lone surrogate, U+0000, depth beyond the deepest, and every number but
// plain integers within 2^53 - 1.
export function parse(text, deepest = maxDepth) {
  let at = 0;
  const fail = (code) => {
    throw new Refusal(code, `${at}`);
  };
  const match = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found === null) {
      fail("not-json");
    }
    at = pattern.lastIndex;
    return found[0];
  };
  const take = (character) => {
    if (text[at] !== character) {
      return false;
    }
    at++;
    match(space);
    return true;
  };
  const string = () => {
    const value = JSON.parse(match(quoted));
    if (!value.isWellFormed()) {
      fail("surrogate");
    }
    if (value.includes("\0")) {
      fail("nul");
    }
    match(space);
    return value;
  };
  const items = (close, read) => {
    if (take(close)) {
      return;
    }
    do {
      read();
    } while (take(","));
    if (!take(close)) {
      fail("not-json");
    }
  };
  const value = (depth) => {
    if ((text[at] === "{" || text[at] === "[") && depth === deepest) {
      fail("depth");
    }
    if (take("{")) {
      const members = new Map();
      items("}", () => {
        const name = string();
        if (members.has(name)) {
          throw new Refusal("duplicate", name);
        }
        if (!take(":")) {
          fail("not-json");
        }
        members.set(name, value(depth + 1));
      });
      return members;
    }
    if (take("[")) {
      const elements = [];
      items("]", () => elements.push(value(depth + 1)));
      return elements;
    }
    if (text[at] === '"') {
      return string();
    }
    for (const [word, constant] of [["true", true], ["false", false], ["null", null]]) {
      if (text.startsWith(word, at)) {
        at += word.length;
        match(space);
        return constant;
      }
    }
    const number = match(numeral);
    if (!/^(?:0|-?[1-9][0-9]*)$/.test(number) || !Number.isSafeInteger(Number(number))) {
      fail("integer");
    }
    match(space);
    return new Numeral(number);
  };
  if (text.startsWith("\ufeff")) {
    fail("byte-order-mark");
  }
  match(space);
  const whole = value(0);
  if (at < text.length) {
    fail("not-json");
  }
  return whole;
}

// decodeText reads at most so many bytes of UTF-8.
export function decodeText(bytes, most) {
  if (bytes.length > most) {
    throw new Refusal("too-long", `${most}`);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Refusal("not-utf8");
  }
}

// decode reads the JSON value in at most so many bytes.
export const decode = (bytes, most) => parse(decodeText(bytes, most));

// canonical is RFC 8785, which defines strings by JSON.stringify and the order of
// members by UTF-16 code units. Integers within 2^53 are written as their digits.
export function canonical(value) {
  if (value instanceof Map) {
    return `{${[...value.keys()].sort().map((name) => `${JSON.stringify(name)}:${canonical(value.get(name))}`).join()}}`;
  }
  if (Array.isArray(value)) {
    return `[${value.map(canonical).join()}]`;
  }
  if (value instanceof Numeral) {
    return value.text;
  }
  return JSON.stringify(value);
}
