// What members of JSON objects must be, each test a predicate, and objects of exactly the members that are known.

import { decodeBase64URL } from "./bytes.js";
import { Numeral, Refusal } from "./strictjson.js";

export const sha256Hex = /^[a-f0-9]{64}$/;
const timestamp = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))$/;

// instant reads a timestamp as microseconds since 1970, or returns null if it is
// not a real date in the years 0001 to 9999 in UTC.
export function instant(text) {
  const found = timestamp.exec(text);
  const civil = found && new Date(`${found[1]}Z`);
  if (!found || Number.isNaN(civil.getTime()) || civil.toISOString().slice(0, 19) !== found[1]) {
    return null;
  }
  const [, , fraction = "", sign, hours = "0", minutes = "0"] = found;
  if (Number(hours) > 23 || Number(minutes) > 59) {
    return null;
  }
  const offset = (Number(hours) * 60 + Number(minutes)) * (sign === "-" ? -1 : 1);
  const moment = new Date(civil.getTime() - offset * 60_000);
  if (moment.getUTCFullYear() < 1 || moment.getUTCFullYear() > 9999) {
    return null;
  }
  return BigInt(moment.getTime()) * 1000n + BigInt(fraction.padEnd(6, "0").slice(0, 6));
}

// roundedUp is instant plus one microsecond if the text has a fraction of a microsecond: a time in whole microseconds that
// is before the result is before that text's time.
export const roundedUp = (text) => instant(text) + (/\.\d{6}0*[1-9]/.test(text) ? 1n : 0n);

// formatTime writes microseconds since 1970 as the service does: RFC 3339 in UTC, without zeros at the end.
export function formatTime(at) {
  const fraction = `${at % 1_000_000n}`.padStart(6, "0").replace(/0+$/, "");
  return `${new Date(Number(at / 1_000_000n) * 1000).toISOString().slice(0, 19)}${fraction && `.${fraction}`}Z`;
}

export const matches = (pattern) => (value) => typeof value === "string" && pattern.test(value);
export const text = (value) => typeof value === "string";
export const constant = (wanted) => (value) => value === wanted;
export const integer = (least, most = Number.MAX_SAFE_INTEGER) => (value) =>
  value instanceof Numeral && Number(value.text) >= least && Number(value.text) <= most;
export const base64URL = (size) => (value) => typeof value === "string" && decodeBase64URL(value, size) !== null;
export const anyTime = (value) => typeof value === "string" && instant(value) !== null;
export const normalTime = (value) => anyTime(value) && value.endsWith("Z") && !/\.\d*0Z$/.test(value);
export const serviceTime = (value) => normalTime(value) && !/\.\d{7}/.test(value);
export const object = (value) => value instanceof Map;
export const list = (value) => Array.isArray(value);

export function anObject(value, at = "") {
  if (!object(value)) {
    throw new Refusal("type", at);
  }
  return value;
}

// closed requires an object of exactly these members, each as its test wants it.
// Names in optional may be absent.
export function closed(value, form, optional = [], at = "") {
  for (const name of anObject(value, at).keys()) {
    if (!Object.hasOwn(form, name)) {
      throw new Refusal("unknown-member", `${at}/${name}`);
    }
  }
  for (const [name, right] of Object.entries(form)) {
    if (!value.has(name)) {
      if (!optional.includes(name)) {
        throw new Refusal("missing-member", `${at}/${name}`);
      }
    } else if (!right(value.get(name))) {
      throw new Refusal("format", `${at}/${name}`);
    }
  }
  return value;
}
