package main

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"

	"integrityledger/handlers/wire"
)

// guidePort is where the receivers of the page on webhooks listen; in a test it may be taken.
const guidePort = "8090"

// alone gives the reader a company of which nobody else registers anything.
func (w *terminal) alone(reference string) {
	w.t.Helper()
	path, admin := w.in.access.BaseURL+"/api/v1/integrity/companies", w.in.access.Keys.Admin
	var company wire.Company
	if status, err := call(plainHTTP(), http.MethodPost, path, admin, map[string]string{"reference": reference}, &company); err != nil || status != http.StatusCreated {
		w.t.Fatalf("make a company: %d %v", status, err)
	}
	for _, key := range []string{w.in.access.Keys.Worker, admin} {
		grant := map[string]any{"keyId": "key_" + strings.Split(key, "_")[1], "enabled": true}
		if status, err := call(plainHTTP(), http.MethodPost, path+"/"+company.ID+"/access", admin, grant, nil); err != nil || status != http.StatusOK {
			w.t.Fatalf("grant it: %d %v", status, err)
		}
	}
	w.in.access.CompanyReference = reference
}

// receiver ends the receiver that was there, starts another in its place, and sends it a test.
func (w *terminal) receiver(text string) {
	w.t.Helper()
	for _, other := range w.others {
		_ = syscall.Kill(-other.Process.Pid, syscall.SIGTERM)
		_ = other.Wait()
	}
	w.others = nil
	_, w.receives = w.begin(text)
	w.accepts()
}

// accepts sends the destination of the page a test, which the receiver that runs must answer with 2xx.
func (w *terminal) accepts() {
	w.t.Helper()
	eventually(w.t, "the receiver listens", func() error {
		connection, err := net.Dial("tcp", "127.0.0.1:"+w.in.port)
		if err == nil {
			err = connection.Close()
		}
		return err
	})
	path := w.in.access.BaseURL + "/api/v1/integrity/webhooks/" + strings.TrimSpace(w.paste(`echo "$WEBHOOK_ID"`))
	var test wire.Delivery
	if status, err := call(plainHTTP(), http.MethodPost, path+"/test", w.in.access.Keys.Admin, nil, &test); err != nil || status != http.StatusAccepted {
		w.t.Fatalf("send a test: %d %v", status, err)
	}
	w.delivered(path, test.ID)
}

// delivered waits until a destination has answered each of its deliveries once, with 2xx, one of them that of an id.
func (w *terminal) delivered(path, id string) {
	w.t.Helper()
	eventually(w.t, "everything is delivered", func() error {
		var list wire.Deliveries
		if status, err := call(plainHTTP(), http.MethodGet, path+"/deliveries", w.in.access.Keys.Admin, nil, &list); err != nil || status != http.StatusOK {
			return fmt.Errorf("%d %w", status, err)
		}
		found := id == ""
		for _, d := range list.Deliveries {
			if found = found || d.ID == id; d.Status != "delivered" {
				return fmt.Errorf("%+v", d)
			}
			if d.Attempts != 1 {
				w.t.Fatalf("the receiver refused at first: %+v\n%s", d, w.receives)
			}
		}
		if !found {
			return fmt.Errorf("%s is not in %+v", id, list)
		}
		return nil
	})
}

// judgeReceivers holds what checks a signature on the page, our own and with the libraries, to the published vectors.
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
