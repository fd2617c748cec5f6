import Stripe from "stripe";

export function verify(headers, body, secret) {
  return Stripe.webhooks.constructEvent(body, headers["service-signature"], secret);
}
