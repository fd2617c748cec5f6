import { Webhook } from "svix";

export function verify(headers, body, secret) {
  new Webhook(secret).verify(body, headers);
  return JSON.parse(body);
}
