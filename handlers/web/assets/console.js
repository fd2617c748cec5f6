// The console. Without this script everything works but passkeys, and times stand in UTC.

export const all = (selector) => document.querySelectorAll(selector);

// Times of a part of the page, in the reader's zone.
export const inOwnZone = (part) => {
  for (const time of part.querySelectorAll("time[datetime]")) {
    time.textContent = new Date(time.dateTime).toLocaleString(document.documentElement.lang, {dateStyle: "medium", timeStyle: "short"});
  }
};

inOwnZone(document);

export const show = (selector, shown) => {
  for (const element of all(selector)) {
    element.hidden = !shown;
  }
};

// What answers a form and is shown once goes with a reload, which would send the form again and make another.
for (const next of all("[data-once]")) {
  history.replaceState(null, "", next.href);
}

// What was done is said once: a reload, or a copied address, says it no more. A status is read out when it changes.
const here = new URL(location);
if (here.searchParams.has("said")) {
  here.searchParams.delete("said");
  history.replaceState(null, "", here);
  for (const said of all("[data-done]")) {
    setTimeout(() => said.replaceChildren(...said.childNodes), 100);
  }
}

// What is shown once can be copied where the browser lets a page do so.
for (const button of navigator.clipboard ? all("[data-copy]") : []) {
  button.hidden = false;
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
  window.PublicKeyCredential?.parseCreationOptionsFromJSON &&
  PublicKeyCredential.prototype.toJSON &&
  !/^[0-9.]+$|:/.test(location.hostname.replace(/[[\]]/g, ""));

const attempt = async (button, act) => {
  show("[data-failed], [data-cancelled]", false);
  button.disabled = true;
  try {
    await act();
  } catch (error) {
    show(error.name === "NotAllowedError" || error.name === "AbortError" ? "[data-cancelled]" : "[data-failed]", true);
  } finally {
    button.disabled = false;
  }
};

const signIn = async (button) => {
  const {publicKey} = await answer(await post(button.dataset.options ?? button.dataset.passkey + "/options"));
  const credential = await navigator.credentials.get({publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey)});
  const data = await answer(await post(button.dataset.passkey, credential.toJSON()));
  location.assign(data.location || button.dataset.to);
};

const add = async (form) => {
  const address = form.dataset.newPasskey;
  const {publicKey} = await answer(await post(address + "/options"));
  const credential = await navigator.credentials.create({publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(publicKey)});
  const data = await answer(await post(address, {name: form.elements.name.value, credential: credential.toJSON()}));
  location.assign(data.location);
};

if (possible) {
  show("[data-no-passkey]", false);
  show("[data-passkey], [data-new-passkey]", true);
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
