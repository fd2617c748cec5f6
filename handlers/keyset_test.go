package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/wire"
	"integrityledger/schemas"
)

const logKeys = "/api/public/log/keys"

func (s *service) trustedKeySet() evidence.KeySet {
	s.t.Helper()
	set, err := evidence.NewKeySet(s.Installation.Issuer, s.keys.Load().Trusted)
	check(s.t, err)
	return set
}

// publishKeys publishes the trusted keys that the service serves, as integrity keys publish does.
func (s *service) publishKeys() {
	s.t.Helper()
	set := s.trustedKeySet()
	_, sequence, err := transparency.ReadPublishedKeys(context.Background(), s.Pool)
	if !errors.Is(err, transparency.ErrNoKeySet) {
		check(s.t, err)
	}
	s.Must(s.t, &domain.PublishKeys{
		Origin: domain.Origin{Organization: domain.InstallationID, Actor: domain.OperatorActor, RequestID: "r"},
		Set:    set, After: sequence,
	})
}

// TestKeySet: a reader who pins only the log key, or only a witness, obtains the keys that the service publishes. The
// page and the document say since when, and which checkpoint covers them.
func TestKeySet(t *testing.T) {
	w := newOtherWitness(t, "a.example/witness")
	s := open(t, options{config: func(c *handlers.Config) {
		c.Parties = action.Parties{Witnesses: []*transparency.Witness{w.Witness}}
	}})
	signer, err := transparency.NewSigner(evidence.LogName(s.Installation.Issuer), evidence.GenerateSigner())
	check(t, err)
	w.witnesses(t, signer)
	keys := *s.keys.Load()
	keys.Trusted, err = s.trusting([]*transparency.Signer{signer}).AddWitnessKey(w.key)
	check(t, err)
	s.keys.Store(&keys)
	s.registered("a", 1, "one")
	s.public(logKeys).refuses(http.StatusNotFound, domain.NotFound)
	s.publish(signer, map[*transparency.Witness]bool{w.Witness: true})
	s.public(logKeys).refuses(http.StatusNotFound, domain.NotFound)
	s.trustSays("en", "has not published the keys in the transparency log")

	s.publishKeys()
	a := s.public(logKeys)
	if a.refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable); a.header.Get("Retry-After") == "" {
		t.Errorf("before a checkpoint: %v", a.header)
	}
	s.trustSays("en", "No checkpoint covers them yet.")
	s.publish(signer, map[*transparency.Witness]bool{w.Witness: true})
	a = s.public(logKeys)
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		a.header.Get("Cache-Control") != "public, max-age=10" || a.header.Get("Access-Control-Allow-Origin") != "*" ||
		a.header.Get("Content-Disposition") != `attachment; filename="integrity-trusted-keys.tlog-proof"` {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	none, err := evidence.NewTrustedKeys(nil, nil, nil)
	check(t, err)
	byLog, err := none.AddLogKey(signer.LogKey)
	check(t, err)
	byWitness, err := none.AddWitnessKey(w.key)
	check(t, err)
	file := s.public("/.well-known/integrity-trusted-keys.json").body
	for name, pins := range map[string]evidence.KeySetPins{
		"log key": {Trusted: byLog, Now: s.Now()},
		"witness": {Trusted: byWitness, Now: s.Now(), Origin: signer.Name, Witnesses: 1},
	} {
		found, err := evidence.VerifyKeySet(a.body, pins)
		check(t, err)
		got, err := found.File()
		check(t, err)
		if string(got) != string(file) || found.Issuer != s.Installation.Issuer || !found.LogKeyListed {
			t.Errorf("%s: %+v, and the file\n%s\nwant\n%s", name, found, got, file)
		}
	}
	view := s.independence("the keys are bound", func(v wire.Independence) bool {
		return v.KeySet != nil && v.KeySet.LeafIndex != nil
	})
	if k := view.KeySet; view.KeySetState != wire.KeySetPublished || !k.Newest || *k.TreeSize != view.Checkpoint.TreeSize || *k.LeafIndex >= *k.TreeSize {
		t.Errorf("the document says %+v", k)
	}
	s.trustSays("en", "The newest checkpoint, of ", "Of the witnesses that count, 1 of 1 cosigned a checkpoint",
		view.KeySet.PayloadSHA256, "integrity verify-keys")
	s.trustSays("es", "El operador publicó las claves el ", "1 de los 1 testigos que cuentan")

	// Other keys are served now.
	other, err := transparency.NewSigner(signer.Name, evidence.GenerateSigner())
	check(t, err)
	s.trust(signer, other)
	s.trustSays("en", "are different and have not been published yet")
	if again := s.public(logKeys); string(again.body) != string(a.body) {
		t.Errorf("other keys are proven: %s", again.body)
	}

	// The keys cannot be read now.
	s.owner(`ALTER TABLE organization_state RENAME TO organization_state_gone`)
	s.trustSays("en", "The service cannot say at the moment whether the operator has published the keys")
	if page := s.page("/en/trust"); page.header.Get("Cache-Control") != "no-store" {
		t.Errorf("keys that cannot be read: %v", page.header)
	}
	s.public(independence).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	s.owner(`ALTER TABLE organization_state_gone RENAME TO organization_state`)
	s.trustSays("en", "are different and have not been published yet")

	// A row that somebody changed is neither proven nor shown.
	s.owner(
		`ALTER TABLE events DISABLE TRIGGER ALL`,
		`UPDATE events SET data = convert_to(replace(convert_from(data, 'UTF8'), '"issuer":"', '"issuer":"x'), 'UTF8') WHERE type = 'keys.published'`,
	)
	s.public(logKeys).refuses(http.StatusInternalServerError, domain.Internal)
	s.trustSays("en", "The published keys do not agree with the transparency log")
	s.trustSays("es", "Las claves publicadas no concuerdan con el registro de transparencia")
	differs := func(v wire.Independence) bool {
		return v.KeySetState == wire.KeySetDiffers && v.KeySet == nil && v.State == wire.LogPublished
	}
	s.independence("the keys do not agree with the log", differs)
	s.owner(`UPDATE events SET data = 'x' WHERE type = 'keys.published'`)
	time.Sleep(1100 * time.Millisecond) // the service reads the log again
	s.independence("the keys are damaged", differs)
	if a := s.public(logKeys); !strings.Contains(a.refuses(http.StatusInternalServerError, domain.Internal).Detail, "does not agree with the transparency log") {
		t.Errorf("damaged keys: %s", a.body)
	}
}

// trustSays waits until the page of trust says something: the service reads the log again each second.
func (s *service) trustSays(language string, words ...string) {
	s.t.Helper()
	path := "/trust"
	if language == "en" {
		path = "/en/trust"
	}
	for _, text := range words {
		s.eventually("the page says "+text, func() bool {
			return strings.Contains(string(s.page(path).body), html.EscapeString(text))
		})
	}
}

// witnesses lets the witness cosign the checkpoints of a log.
func (w *otherWitness) witnesses(t *testing.T, signer *transparency.Signer) {
	t.Helper()
	logs, err := witness.ParseLogs(signer.VerifierKey)
	check(t, err)
	w.logs.Store(&logs)
}

// The page's verifier obtains the published keys exactly where the vectors say so, and every other verifier does too.
func TestKeySetVectorsInNode(t *testing.T) {
	t.Parallel()
	needsNPM(t, "the verifier in Node.js")
	text, err := schemas.File(schemas.KeySetVectorsFile)
	check(t, err)
	directory := verifierModules(t)
	const main = `import { readFileSync } from "node:fs";
import { Refusal, parseTrustedKeys, verify, verifyKeySet } from "./verifier.js";
const file = JSON.parse(readFileSync(0, "utf8"));
const bytes = (text) => new TextEncoder().encode(text);
const answers = [];
for (const { name, proof, origin, issuer, requireWitnesses, logKeys, witnessKeys, revokedKeys } of file.vectors) {
  const pinned = await parseTrustedKeys(bytes(JSON.stringify({ keys: [], logKeys, witnessKeys, revokedKeys })));
  const judge = (proof) => verifyKeySet(proof, pinned, { now: new Date(file.now), origin, issuer, requireWitnesses }).catch((error) => {
    if (!(error instanceof Refusal)) {
      throw error;
    }
    return null;
  });
  const found = await judge(bytes(proof));
  let expect = null;
  if (found !== null) {
    const { issuer, publishedAt, payloadSha256, treeSize, witnesses, cosignedAt, logKeyPinned, logKeyListed } = found;
    expect = { issuer, publishedAt, payloadSha256, keyIds: [...found.trust.keys.keys()], treeSize, witnesses, cosignedAt, logKeyPinned, logKeyListed };
    await parseTrustedKeys(found.file);
  }
  answers.push({ name, expect });
  if (name === "by the pinned log key") {
    for (const wrong of [NaN, -1, 1.5, "1", null]) {
      const refused = [verifyKeySet(bytes(proof), pinned, { now: new Date(file.now), requireWitnesses: wrong }),
        verify(bytes(proof), pinned, { now: new Date(file.now), requireWitnesses: wrong })];
      for (const one of await Promise.allSettled(refused)) {
        if (!/must be a whole number of 0 or more/.test(one.reason)) {
          throw new Error(wrong + " witnesses may be required");
        }
      }
    }
    for (let at = 0; at < proof.length; at += 7) {
      const changed = bytes(proof);
      changed[at] ^= 1;
      if ((await judge(changed)) !== null) {
        throw new Error("byte " + at + " can change");
      }
    }
  }
}
process.stdout.write(JSON.stringify(answers));`
	check(t, os.WriteFile(filepath.Join(directory, "main.js"), []byte(main), 0o600))
	type answer struct {
		Name   string         `json:"name"`
		Expect map[string]any `json:"expect"`
	}
	var want struct{ Vectors []answer }
	var got []answer
	check(t, json.Unmarshal(text, &want))
	check(t, json.Unmarshal(runModule(t, directory, "main.js", text), &got))
	equal(t, "the verdicts", got, want.Vectors)
}

// What a person pins is sorted by its form: names of keys may be like URLs.
func TestPinsInNode(t *testing.T) {
	t.Parallel()
	needsNPM(t, "the verifier in Node.js")
	signer, err := transparency.NewSigner("https://ledger.example/log", evidence.GenerateSigner())
	check(t, err)
	witness, err := evidence.NewWitnessKey("x://witness", evidence.GenerateSigner().Key().Ed25519())
	check(t, err)
	directory := verifierModules(t)
	const main = `import { readFileSync } from "node:fs";
import { Refusal, pins } from "./verifier.js";
const answers = await Promise.all(JSON.parse(readFileSync(0, "utf8")).map(async (text) => {
  try {
    const { trust, origin, issuer } = await pins(text);
    return [...trust.logKeys.keys(), ...trust.witnessKeys.keys(), origin, issuer].join(" ");
  } catch (error) {
    if (!(error instanceof Refusal)) {
      throw error;
    }
    return error.code;
  }
}));
process.stdout.write(JSON.stringify(answers));`
	check(t, os.WriteFile(filepath.Join(directory, "main.js"), []byte(main), 0o600))
	logKey, witnessKey := signer.Name+"+"+signer.KeyHash, witness.Name+"+"+witness.KeyHash
	cases := [][2]string{
		{"", " "},
		{signer.VerifierKey, logKey + "  "},
		{witness.VerifierKey + "\n" + signer.VerifierKey + " a.example/log", logKey + " " + witnessKey + " a.example/log "},
		{signer.VerifierKey + " https://a.example/b+c+d https://a.example/b+c+d", logKey + "  https://a.example/b+c+d"},
		{"https://a.example https://b.example", "two-issuers"},
		{"a.example/log b.example/log", "two-logs"},
		{"a.example+00000000+AAAA", "log-key"},
	}
	var got, want []string
	var texts []string
	for _, c := range cases {
		texts, want = append(texts, c[0]), append(want, c[1])
	}
	input, err := json.Marshal(texts)
	check(t, err)
	check(t, json.Unmarshal(runModule(t, directory, "main.js", input), &got))
	equal(t, "the pins", got, want)
}

// The page takes a proof of published keys and a pinned key in the place of a trusted-keys file.
func TestVerifyingWithPublishedKeys(t *testing.T) {
	t.Parallel()
	w, one := openSite(t), newOtherWitness(t, "a.example/witness")
	signer, err := transparency.NewSigner(evidence.LogName(w.Installation.Issuer), evidence.GenerateSigner())
	check(t, err)
	one.witnesses(t, signer)
	other, err := transparency.NewSigner(signer.Name, evidence.GenerateSigner())
	check(t, err)
	w.trust(signer)
	id := w.registered("a", 1, "one")
	w.publishKeys()
	w.publish(signer, map[*transparency.Witness]bool{one.Witness: true})
	receipt := file(t, "current.json", string(w.get(integrity+"/records/"+id+"/evidence").is200().body))
	proof := file(t, "keys.tlog-proof", string(w.public(logKeys).is200().body))
	set := w.trustedKeySet()
	for prefix, c := range map[string]struct {
		valid, source, unknown, unpinned, issuer, two string
		by, alone, listed, ago                        string
	}{
		"": {
			"Válida con la clave de confianza que se indica abajo", "Publicadas en el registro de transparencia que usted fijó",
			"Ninguna clave de confianza del registro de transparencia firmó", "necesita una clave fijada",
			"Usted fijó otro emisor", "Usted fijó dos emisores", "Claves publicadas por", "Ningún testigo fijado cofirmó", "incluyen la del registro",
			`hace \d+ minutos?`,
		},
		"/en": {
			"Valid under the trusted key named below", "Published in the transparency log that you pinned",
			"No trusted key of the log signed", "needs a pinned key of the log",
			"You pinned another issuer", "You pinned two issuers", "Keys published by", "No pinned witness cosigned", "include the key of the log",
			`\d+ minutes? ago`,
		},
	} {
		p := w.tab()
		p.openVerify(prefix)
		p.give("#receipt", receipt)
		p.give("#keys", proof)
		p.click(`#evidence [type="submit"]`)
		p.notice(c.unpinned)
		pin := func(text string) {
			p.do(chromedp.SetValue(chromedp.CSS("#pin"), text))
			p.click(`#evidence [type="submit"]`)
		}
		pin(other.VerifierKey)
		p.notice(c.unknown)
		pin(signer.VerifierKey + " https://other.example")
		p.notice(c.issuer)
		pin(signer.VerifierKey + " https://other.example " + w.Installation.Issuer)
		p.notice(c.two)
		p.do(chromedp.SetValue(chromedp.CSS("#pin"), " "+signer.VerifierKey+" "+signer.Name))
		key := w.keys.Load().Trusted.Keys()[0]
		says(t, p.found(), c.valid, c.source, key.KeyID, key.FingerprintSHA256, c.by, w.Installation.Issuer,
			set.SHA256().String(), signer.Name, c.alone, c.listed)
		p.do(chromedp.SetValue(chromedp.CSS("#pin"), one.key.VerifierKey+" "+signer.Name))
		text := p.found()
		says(t, text, c.by, one.key.Name)
		if strings.Contains(text, c.alone) || !regexp.MustCompile(c.ago).MatchString(text) {
			t.Errorf("a witness cosigned %s: %s", c.ago, text)
		}
		p.shot("verify-published" + prefix)
		p.Fits("the findings")
	}
}
