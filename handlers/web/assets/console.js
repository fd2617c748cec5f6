// The console. Without this script everything works but passkeys, and times stand in UTC.

export const all = (selector) => document.querySelectorAll(selector);

// Times of a part of the page, in the reader's zone, which they name.
const {locale} = document.querySelector("main").dataset;
const toMinute = {
  day: "numeric", month: "short", year: "numeric", hour: "numeric", minute: "2-digit", timeZoneName: "short",
};

export const inOwnZone = (part) => {
  for (const time of part.querySelectorAll("time[datetime]")) {
    const format = "minute" in time.dataset ? toMinute : {dateStyle: "medium", timeStyle: "long"};
    time.textContent = new Date(time.dateTime).toLocaleString(locale, format);
  }
};

inOwnZone(document);

export const show = (selector, shown) => {
  for (const element of all(selector)) {
    element.hidden = !shown;
  }
};

// A page that answers a form gets the address of a page in the browser's history, or Back and a reload would have to send
// the form again.
const {answers} = document.querySelector("main").dataset;
if (answers) {
  history.replaceState(null, "", answers + location.hash);
}

// What answers a form and is shown once goes with a reload, which would send the form again and make another.
for (const next of all("[data-once]")) {
  history.replaceState(null, "", next.href);
}

// The page says once that an action was done: a reload or a copied address does not repeat it. Screen readers announce a
// status when it changes.
const here = new URL(location);
if (here.searchParams.has("said")) {
  here.searchParams.delete("said");
  history.replaceState(null, "", here);
  for (const said of all("[data-done]")) {
    setTimeout(() => said.replaceChildren(...said.childNodes), 100);
  }
}

// Secrets that are shown once can be copied if the browser lets a page do so.
for (const button of navigator.clipboard ? all("[data-copy]") : []) {
  button.classList.remove("waiting");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.querySelector(button.dataset.copy).textContent);
    show("[data-copied]", true);
  });
}

const post = (address, body) =>
  fetch(address, {
    method: "POST",
    headers: {"Content-Type": "application/json", Accept: "application/json"},
    body: body && JSON.stringify(body),
  });

// A refusal that names a way on is followed: to sign in, or to prove again who the person is.
const answer = async (response) => {
  const data = await response.json().catch(() => ({}));
  if (response.ok) {
    return data;
  }
  if (data.location) {
    location.assign(data.location);
    await new Promise(() => {}); // the page is about to change
  }
  throw new Error(data.error?.code ?? "refused");
};

// Authenticators sign for names, never for addresses.
const possible =
  window.PublicKeyCredential &&
  navigator.credentials &&
  !/^[0-9.]+$|:/.test(location.hostname.replace(/[[\]]/g, ""));

// The JSON of WebAuthn (Level 3, section 5.1) is made and read by hand. Password managers answer with objects of their own,
// on which the browser's toJSON throws, and older browsers have neither that nor the functions that parse options.
const bytesOf = (base64url) => Uint8Array.from(atob(base64url.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));

const base64urlOf = (bytes) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

const optionsOf = ({challenge, user, excludeCredentials, allowCredentials, ...options}) => {
  const named = (list) => list?.map((credential) => ({...credential, id: bytesOf(credential.id)}));
  return {
    ...options,
    challenge: bytesOf(challenge),
    ...(user && {user: {...user, id: bytesOf(user.id)}}),
    excludeCredentials: named(excludeCredentials),
    allowCredentials: named(allowCredentials),
  };
};

// Of a password manager's object nothing but what the service needs is sure to be there.
const transportsOf = (response) => {
  try {
    return response.getTransports();
  } catch {
    return [];
  }
};

const jsonOf = ({rawId, response}) => {
  const json = {transports: transportsOf(response)};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
    json[name] = response[name] ? base64urlOf(response[name]) : undefined;
  }
  const id = base64urlOf(rawId);
  return {id, rawId: id, type: "public-key", response: json, clientExtensionResults: {}};
};

// What explains an error of the browser, by its name, or of the service, by its code.
const explanations = {
  NotAllowedError: "[data-cancelled]",
  AbortError: "[data-cancelled]",
  InvalidStateError: "[data-exists]",
  NOT_FOUND: "[data-unknown]",
};

const attempt = async (button, act) => {
  show("[data-failed], [data-cancelled], [data-exists], [data-unknown], [data-done]", false);
  button.disabled = true;
  try {
    await act();
  } catch (error) {
    show(explanations[error.name] ?? explanations[error.message] ?? "[data-failed]", true);
  } finally {
    button.disabled = false;
  }
};

const signIn = async (button) => {
  const {publicKey} = await answer(await post(button.dataset.options ?? button.dataset.passkey + "/options"));
  const credential = await navigator.credentials.get({publicKey: optionsOf(publicKey)});
  const data = await answer(await post(button.dataset.passkey, jsonOf(credential)));
  location.assign(data.location || button.dataset.to);
};

const add = async (form) => {
  const address = form.dataset.newPasskey;
  const {publicKey} = await answer(await post(address + "/options"));
  const credential = await navigator.credentials.create({publicKey: optionsOf(publicKey)});
  const data = await answer(await post(address, {name: form.elements.name.value, credential: jsonOf(credential)}));
  location.assign(data.location);
};

if (possible) {
  show("[data-no-passkey]", false);
  for (const way of all("[data-passkey], [data-new-passkey]")) {
    way.classList.remove("waiting");
  }
  for (const button of all("[data-passkey]")) {
    button.addEventListener("click", () => attempt(button, () => signIn(button)));
  }
  for (const form of all("[data-new-passkey]")) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      attempt(form.querySelector("button"), () => add(form));
    });
  }
}
