package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"

	"integrityledger/handlers/wire"
)

// guidePort is the port of the receivers on the webhooks page; in a test it may be in use.
const guidePort = "8090"

// alone gives the reader a company to which no other test registers anything.
func (w *terminal) alone(reference string) {
	w.t.Helper()
	path, admin := w.in.access.BaseURL+"/api/v1/integrity/companies", w.in.access.Keys.Admin
	var company wire.Company
	if status, err := call(
		plainHTTP(), http.MethodPost, path, admin, map[string]string{"reference": reference}, &company,
	); err != nil || status != http.StatusCreated {
		w.t.Fatalf("make a company: %d %v", status, err)
	}
	for _, key := range []string{w.in.access.Keys.Worker, admin} {
		grant := map[string]any{"keyId": "key_" + strings.Split(key, "_")[1], "enabled": true}
		if status, err := call(
			plainHTTP(), http.MethodPost, path+"/"+company.ID+"/access", admin, grant, nil,
		); err != nil || status != http.StatusOK {
			w.t.Fatalf("grant it: %d %v", status, err)
		}
	}
	w.in.access.CompanyReference = reference
}

// receiver stops the previous receiver, starts another, waits until it says where it listens, as the page says, and
// sends it an event.
func (w *terminal) receiver(text string) {
	w.t.Helper()
	for _, other := range w.others {
		_ = syscall.Kill(-other.Process.Pid, syscall.SIGTERM)
		_ = other.Wait()
	}
	w.others = nil
	lines, errs := w.begin("exec 2>&1\n" + text)
	for said := ""; !strings.Contains(said, "listening on 127.0.0.1:"+w.in.port+"\n"); {
		line, err := lines.ReadString('\n')
		if said += line; err != nil {
			w.t.Fatalf("%s ended and did not say where it listens: %s%s", text, said, errs)
		}
	}
	go io.Copy(io.Discard, lines) //nolint:errcheck // read so that the writer does not block
	w.accepts()
}

// accepts registers a version, which the running receiver must receive and answer with 2xx. It is no test delivery:
// those are limited for the organization, which all readers share.
func (w *terminal) accepts() {
	w.t.Helper()
	heard := w.registered()
	w.register()
	eventually(w.t, "everything is delivered", func() error {
		for _, d := range w.deliveries() {
			if d.Attempts > 1 {
				w.t.Fatalf("the receiver refused at first: %+v", d)
			}
			if d.Status != "delivered" {
				return fmt.Errorf("%+v", d)
			}
		}
		if now := w.registered(); now != heard+1 {
			return fmt.Errorf("%d registrations are delivered, want %d", now, heard+1)
		}
		return nil
	})
}

// deliveries returns the deliveries to the page's destination.
func (w *terminal) deliveries() []wire.Delivery {
	w.t.Helper()
	path := w.in.access.BaseURL + "/api/v1/integrity/webhooks/" + w.variable("WEBHOOK_ID") + "/deliveries"
	var list wire.Deliveries
	if status, err := call(plainHTTP(), http.MethodGet, path, w.in.access.Keys.Admin, nil, &list); err != nil ||
		status != http.StatusOK {
		w.t.Fatalf("deliveries: %d %v", status, err)
	}
	return list.Deliveries
}

// registered returns how many registrations the destination has received.
func (w *terminal) registered() (n int) {
	w.t.Helper()
	for _, d := range w.deliveries() {
		if d.Type == "integrity.registered" {
			n++
		}
	}
	return n
}

// judgeReceivers runs the page's signature checks, our own and the libraries', on the published vectors.
func (w *terminal) judgeReceivers() {
	w.t.Helper()
	write(w.t, filepath.Join(w.files, "judge.mjs"), `import { readFileSync } from "node:fs";
const lower = (headers) => Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
const { vectors } = JSON.parse(readFileSync("webhook-vectors.json", "utf8"));
for (const file of ["signature", "standard", "svix", "stripe"]) {
  const { verify } = await import("./" + file + ".mjs");
  for (const { name, valid, secret, now, headers, body } of vectors) {
    Date.now = () => now * 1000;
    let event;
    try { event = verify(lower(headers), Buffer.from(body), secret); } catch { event = undefined; }
    // Stripe's library does not look at a time in the future, as the page says.
    const want = valid || (file === "stripe" && name === "301 seconds in the future");
    if ((event?.id === JSON.parse(body).id) !== want) throw new Error(file + ": " + name);
  }
}
`)
	w.paste("node judge.mjs")
}
