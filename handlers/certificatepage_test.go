package handlers_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"integrityledger/domain/evidence"
	"integrityledger/handlers"
)

// certificates has one certificate in every state, by name. The name is also the certified text.
func (w *site) certificates() map[string]string {
	w.t.Helper()
	first, replaced := w.certificate("Replaced", "replaced")
	w.certifies(w.laterText(first.artifact, "Later", "later"))
	_, valid := w.certificate("Annual report", "valid", "title", "organizationName")
	_, revoked := w.certificate("Revoked", "revoked")
	_, broken := w.certificate("Broken", "broken")
	w.post(certificationAction+"/certificates/"+revoked+"/revoke", body{"reason": "a private reason"}).is(http.StatusOK)
	w.owner(
		`UPDATE certificates SET signature = ` + otherSignature +
			` WHERE public_id = (SELECT public_id FROM certificates ORDER BY issued_at DESC LIMIT 1)`,
	)
	return map[string]string{
		"valid": valid, "replaced": replaced, "revoked": revoked, "broken": broken, "unknown": strings.Repeat("a", 26),
	}
}

// Every outcome reports file, signature and validity separately in both languages, with a text about certificates, and
// without accessibility faults.
func TestCertificatesInTheBrowser(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	ids := w.certificates()
	for prefix, table := range map[string][]shows{
		"": {
			{
				"valid", "", "", "No se ha comparado ningún archivo", "", []string{"firma válida", "ni revocado"},
			},
			{
				"valid", "valid", "MATCH_CURRENT", "Su archivo coincide con un certificado válido",
				"ni que existiera en un momento acreditado",
				[]string{
					"Es exactamente el archivo certificado", "Válida: este servicio firmó el certificado", "Válido: ni", "Emitido",
				},
			},
			{
				"replaced", "replaced", "MATCH_HISTORICAL", "Su archivo coincide, pero su certificado se ha sustituido",
				"Qué cambia en la versión posterior", []string{"Es exactamente", "Válida", "Sustituido por"},
			},
			{
				"valid", "another", "HASH_MISMATCH", "Su archivo no es el de este certificado", "Que alguien haya manipulado el archivo",
				[]string{"No es el archivo certificado", "Válida", "Válido", "otra versión legítima"},
			},
			{
				"revoked", "another", "HASH_MISMATCH", "Su archivo no es el de este certificado", "Que alguien haya manipulado el archivo",
				[]string{"Revocado"},
			},
			{
				"revoked", "revoked", "RECORD_REVOKED", "Su archivo coincide, pero su certificado está revocado",
				"El motivo de la revocación, que no se publica", []string{"Es exactamente", "Válida", "Revocado por la organización"},
			},
			{
				"broken", "broken", "SIGNATURE_INVALID", "No se ha podido validar el certificado",
				"no es una coincidencia ni una discrepancia",
				[]string{"Ningún archivo comparado", "No validada", "Sin determinar"},
			},
			{
				"unknown", "", "RECORD_NOT_FOUND", "No hay ningún certificado con este enlace", "no es una discrepancia",
				[]string{"letra a letra"},
			},
		},
		"/en": {
			{
				"replaced", "", "", "No file has been compared", "", []string{"valid signature", "it was replaced"},
			},
			{
				"valid", "valid", "MATCH_CURRENT", "Your file matches a valid certificate", "that it existed at a trusted time",
				[]string{"Exactly the certified file", "Valid: this service signed the certificate", "Valid: neither", "Issued"},
			},
			{
				"replaced", "replaced", "MATCH_HISTORICAL", "Your file matches, but its certificate was replaced",
				"What differs in the later version", []string{"Exactly the certified file", "Valid", "Replaced by"},
			},
			{
				"replaced", "another", "HASH_MISMATCH", "Your file is not the one certified under this link",
				"That somebody tampered with it",
				[]string{"Not the certified file", "Valid", "Replaced by", "another legitimate version"},
			},
			{
				"revoked", "revoked", "RECORD_REVOKED", "Your file matches, but its certificate was revoked",
				"The reason for the revocation, which is not published", []string{"Exactly the certified file", "Valid", "Revoked by the organization"},
			},
			{
				"broken", "broken", "SIGNATURE_INVALID", "The certificate could not be validated",
				"neither a match nor a mismatch", []string{"No file compared", "Not validated", "Not established"},
			},
			{
				"unknown", "", "RECORD_NOT_FOUND", "There is no certificate under this link", "this is not a mismatch",
				[]string{"letter by letter"},
			},
		},
	} {
		p := w.tab()
		for _, want := range table {
			p.open(prefix + "/certificates/" + ids[want.record])
			if want.file != "" {
				if eval[bool](p, `document.querySelector('#result [data-result^="MATCH"]') !== null`) {
					t.Errorf("the page of %s looks verified before a file is compared", want.record)
				}
				p.choose(file(t, "report.pdf", want.file))
			}
			p.shows(want)
			p.accessible(map[string]string{"": "light", "/en": "dark"}[prefix])
			p.shot("certificate-" + want.result + "-" + want.record + prefix)
		}
		if len(p.Foreign()) > 0 {
			t.Errorf("requests left for %v", p.Foreign())
		}
	}
}

// Each file is compared anew: the page shows the certificate's validity at that moment.
func TestEveryComparisonWithACertificateIsFresh(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	v, id := w.certificate("Title", "one")
	p := w.tab()
	p.open("/en/certificates/" + id + "?sha256=" + hash("one") + "#MATCH_CURRENT")
	says(t, p.seen(), "No file has been compared")
	path := file(t, "a.txt", "one")
	p.choose(path)
	p.result("MATCH_CURRENT")
	w.certifies(w.laterText(v.artifact, "Later", "two"))
	p.choose(path)
	p.result("MATCH_HISTORICAL")
	w.post(certificationAction+"/certificates/"+id+"/revoke", body{"reason": "Wrong."}).is(http.StatusOK)
	p.choose(path)
	p.result("RECORD_REVOKED")
}

// An answer that is not about this certificate is neither a match nor a mismatch, and the comparison can be repeated.
func TestUnableToCheckACertificate(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	_, id := w.certificate("Title", "one")
	_, other := w.certificate("Other", "one")
	answer := func(id string) string {
		return string(w.public(certificationAction + "/certificates/" + id + "/verify?sha256=" + hash("one")).body)
	}
	changed := func(from, to string) func(*tab) {
		return func(*tab) {
			text := answer(id)
			if !strings.Contains(text, from) {
				t.Errorf("%s does not hold %s", text, from)
			}
			w.use(answering(http.StatusOK, strings.Replace(text, from, to, 1)))
		}
	}
	p := w.tab()
	for name, begin := range map[string]func(*tab){
		"offline": func(p *tab) { p.offline(true) },
		"503":     func(*tab) { w.away() },
		"429": func(*tab) {
			w.freshMinute()
			config := w.config
			config.PublicPerMinute = 1
			refusing := handlers.New(config)
			first := httptest.NewRequest(http.MethodGet, "/api/public/integrity/unknown", nil)
			first.RemoteAddr = "127.0.0.1:1" // the address of the browser
			refusing.ServeHTTP(httptest.NewRecorder(), first)
			w.use(refusing)
		},
		"another certificate's": func(*tab) { w.use(answering(http.StatusOK, answer(other))) },
		"not verified":          changed(`"verified":true`, `"verified":false`),
		"no hash compared":      changed(`"hashMatches":true`, `"hashMatches":null`),
		"no signature":          changed(`"signatureValid":true`, `"signatureValid":false`),
		"revoked and a match":   changed(`"certificateStatus":"valid"`, `"certificateStatus":"revoked"`),
		"an unknown reason":     changed(`"reason":"MATCH"`, `"reason":"MATCH_CURRENT"`),
	} {
		t.Run(name, func(t *testing.T) {
			w.t, p.T = t, t
			p.open("/certificates/" + id)
			p.worker()
			begin(p)
			p.choose(file(t, "a.txt", "one"))
			p.shows(shows{result: "UNAVAILABLE", title: "Ahora mismo no se puede comprobar", not: "no es una discrepancia"})
			w.use(w.http.Config.Handler)
			p.offline(false)
			p.click("[data-retry]")
			p.result("MATCH_CURRENT")
		})
	}
}

// Without JavaScript the page shows the validity and compares a pasted hash. The result never looks like the comparison
// of a file.
func TestCertificateWithoutJavaScript(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	ids := w.certificates()
	p := w.tab()
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	for _, c := range []shows{
		{
			"replaced", "replaced", "MATCH_HISTORICAL",
			"This hash matches, but its certificate was replaced. No file was compared", "Anything about a file",
			[]string{"no file compared", "Replaced by"},
		},
		{
			"valid", "valid", "MATCH_CURRENT", "This hash matches a valid certificate. No file was compared",
			"Anything about a file", []string{"no file compared", "Valid: neither"},
		},
		{
			"valid", "another", "HASH_MISMATCH", "This hash does not match. No file was compared", "or that somebody tampered",
			[]string{"no file compared", "Valid: neither"},
		},
		{
			"revoked", "revoked", "RECORD_REVOKED", "This hash matches, but its certificate was revoked. No file was compared",
			"Anything about a file", []string{"Revoked"},
		},
		{
			"broken", "broken", "SIGNATURE_INVALID", "The certificate could not be validated", "neither a match",
			[]string{"No file compared"},
		},
	} {
		p.open("/en/certificates/" + ids[c.record])
		p.do(chromedp.WaitVisible(chromedp.CSS("#needs-script")), chromedp.WaitNotVisible(chromedp.CSS("#drop")))
		p.paste(strings.ToUpper(hash(c.file)))
		p.shows(c)
		if eval[bool](p, signOfAFile) {
			t.Errorf("%s shows the sign of a file's match", c.result)
		}
		p.shot("certificate-PASTED-" + c.result + "-" + c.record)
	}
}

// A file can be compared with the keyboard alone.
func TestCertificateByKeyboard(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	_, id := w.certificate("Title", "one")
	p := w.tab()
	p.open("/certificates/" + id)
	p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
	p.tabTo("#file")
	p.chooseByKey(file(t, "a", "one"))
	p.result("MATCH_CURRENT")
	p.tabTo("summary")
	p.key(kb.Enter)
	p.tabTo("#sha256")
	p.key(hash("two"))
	p.key(kb.Enter)
	p.result("HASH_MISMATCH")
}

// The page shows the texts authorized for publication, as the organization's words and as plain text, whatever they
// contain. It shows no other texts of the organization.
func TestDetailsOfTheCertificate(t *testing.T) {
	s := open(t, options{})
	const hostile = `<script>alert(1)</script>"'&amp; א`
	published, id := s.certificate(hostile, "one", "title", "organizationName")
	private, unnamed := s.certificate("A private title", "two")
	key := s.Registrar.Signer.Key()
	for path, parts := range map[string][]string{
		"/certificates/" + id: {
			"palabras de la propia organización", "Qué acredita un certificado y qué no",
			"no un sello de tiempo independiente", `lang="es"`, `href="/en/certificates/` + id + `"`,
		},
		"/en/certificates/" + id: {
			"own words", "members of that organization declared that they had reviewed and approved it",
			"not an independent trusted timestamp", `lang="en"`, `href="/certificates/` + id + `?lang=es"`,
		},
	} {
		a := s.page(path)
		for _, part := range append(parts, "<bdi>&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;amp; א</bdi>",
			"<bdi>Example</bdi>", key.KeyID, key.FingerprintSHA256,
			"integrity verify certificate-"+id+".json integrity-trusted-keys.json",
			`data-ask="/api/v1/certificates/`+id+`/verify"`, baseURL+"/certificates/"+id) {
			if !contains(a.body, part) {
				t.Errorf("%s does not hold %q", path, part)
			}
		}
		for _, part := range []string{
			"<script>alert", `download="`, published.artifact, published.version, hash("one"), s.org.ID.String(),
		} {
			if contains(a.body, part) {
				t.Errorf("%s holds %q", path, part)
			}
		}
	}
	for _, a := range []answer{
		s.page("/certificates/" + unnamed), s.browse(http.MethodPost, "/en/certificates/"+unnamed, "sha256="+hash("two")),
	} {
		for _, part := range []string{"A private title", "Example<", "<bdi>", private.artifact, hash("two")} {
			if contains(a.body, part) {
				t.Errorf("what was not authorized is published: %q", part)
			}
		}
	}
	s.owner(`UPDATE texts SET body = NULL WHERE body LIKE '%certificate-v1%'`)
	erased := s.page("/en/certificates/" + id)
	if erased.status != http.StatusOK || contains(erased.body, "<bdi>") || contains(erased.body, key.KeyID) ||
		!contains(erased.body, `data-result="SIGNATURE_INVALID"`) {
		t.Errorf("after erasure: %d %s", erased.status, erased.body)
	}
}

// The link of a certificate is its page. Every place that explains certificates has the text on what they prove.
func TestCertificateLinksAndLimits(t *testing.T) {
	s := open(t, options{})
	v := s.registeredText("Title", "one")
	s.reviewed(v, "accepted").is(http.StatusCreated)
	s.approved(v).is(http.StatusCreated)
	issued := s.issued(v)
	id := issued.PublicID
	equal(t, "the link", issued.VerificationURL, baseURL+"/certificates/"+id)
	for language, path := range map[evidence.Language]string{
		evidence.Spanish: "/certificates/" + id, evidence.English: "/en/certificates/" + id,
	} {
		for _, place := range []string{path, "/limits", "/api/openapi"} {
			// html/template writes the apostrophe as a reference.
			text := strings.ReplaceAll(string(s.page(place).body), "&#39;", "'")
			for _, sentence := range append(
				evidence.CertificateLimits(language, ""), evidence.CertificateLimitsTitle(language),
			) {
				if !strings.Contains(text, sentence) {
					t.Errorf("%s does not say: %s", place, sentence)
				}
			}
		}
	}
}
