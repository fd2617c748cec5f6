package handlers_test

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/stamptest"
	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
)

// reportsOf are the paths of the organization's report and the public one.
func reportsOf(id string) (private, public string) {
	return integrity + "/records/" + id + "/report", "/api/public/integrity/" + id + "/report"
}

// program runs one of Debian's programs for PDF.
func program(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s (packages qpdf and poppler-utils: make test fetches them)", name, args, err, out)
	}
	return string(out)
}

// reportFiles is an evidence report with the files that other people's programs find in it.
type reportFiles struct {
	path, dir, text string
	files           []evidence.ReportFile
}

// file returns the only file of a kind.
func (r reportFiles) file(t *testing.T, purpose evidence.FilePurpose) (path string, content []byte) {
	t.Helper()
	i := slices.IndexFunc(r.files, func(f evidence.ReportFile) bool { return f.Purpose() == purpose })
	if i < 0 {
		t.Fatalf("no %s among %d files", purpose, len(r.files))
	}
	return filepath.Join(r.dir, r.files[i].Name), r.files[i].Content
}

// opened checks a report with qpdf, pdfcpu and Poppler.
func opened(t *testing.T, a answer, private bool) (r reportFiles) {
	t.Helper()
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/pdf" {
		t.Fatalf("report: %d %v %s", a.status, a.header, a.body)
	}
	r.dir, r.path = t.TempDir(), filepath.Join(t.TempDir(), "report.pdf")
	check(t, os.WriteFile(r.path, a.body, 0o600))
	if out := program(t, "qpdf", "--check", r.path); strings.Contains(out, "WARNING") {
		t.Error(out)
	}
	model.ConfigPath = "disable"
	check(t, api.Validate(bytes.NewReader(a.body), model.NewDefaultConfiguration()))
	info := program(t, "pdfinfo", r.path)
	pages := strings.Fields(strings.SplitN(strings.SplitN(info, "Pages:", 2)[1], "\n", 2)[0])[0]
	if pages != "1" && pages != "2" || !strings.Contains(info, "(A4)") {
		t.Errorf("pages: %s", info)
	}
	for line := range strings.Lines(program(t, "pdffonts", r.path)) {
		if fields := strings.Fields(line); strings.Contains(line, "Identity-H") && fields[4] != "yes" {
			t.Errorf("a font is not embedded: %s", line)
		}
	}
	for _, words := range []string{
		"/AFRelationship /Data", "/GTS_PDFA1", "<pdfaid:part>3</pdfaid:part>", "<pdfaid:conformance>B</pdfaid:conformance>",
		"/ID [<",
	} {
		if !bytes.Contains(a.body, []byte(words)) {
			t.Errorf("the PDF does not contain %s", words)
		}
	}
	for _, words := range []string{"/Transparency", "/SMask", "/JavaScript", "/Encrypt"} {
		if bytes.Contains(a.body, []byte(words)) {
			t.Errorf("the PDF contains %s", words)
		}
	}
	program(t, "pdfdetach", "-saveall", "-o", r.dir, r.path)
	list, err := os.ReadDir(r.dir)
	check(t, err)
	for _, entry := range list {
		content, err := os.ReadFile(filepath.Join(r.dir, entry.Name()))
		check(t, err)
		r.files = append(r.files, evidence.ReportFile{Name: entry.Name(), Content: content})
	}
	r.text = strings.Join(strings.Fields(program(t, "pdftotext", "-layout", r.path, "-")), " ")
	for _, word := range []string{"certificate", "Certificate", "certifica"} {
		if strings.Contains(r.text, word) {
			t.Errorf("the report says %q", word)
		}
	}
	if private != strings.Contains(r.text, "secret-document") {
		t.Errorf("the report of the organization: %v, text: %s", private, r.text)
	}
	return r
}

// vouchedService has two witnesses and an authority, and a text of the operator that is as long as any. With publish the
// first witnesses cosign the newest checkpoint.
func vouchedService(t *testing.T) (s *service, publish func(witnesses int)) {
	t.Helper()
	a, b := newOtherWitness(t, "a.example/witness"), newOtherWitness(t, "b.example/witness")
	alpha := stamptest.New(t, "alpha")
	stamper, err := transparency.NewTimestampAuthority(alpha.Name, alpha.URL)
	check(t, err)
	s = open(t, options{config: func(c *handlers.Config) {
		c.Parties = action.Parties{
			Witnesses: []*transparency.Witness{a.Witness, b.Witness}, Authorities: []*transparency.TimestampAuthority{stamper},
		}
		c.Relationship = map[evidence.Language]string{
			evidence.Spanish: strings.Repeat("La empresa que lo opera también opera el programa de facturación. ", 25),
			evidence.English: strings.Repeat("The company that operates it also operates the invoicing program. ", 25),
		}
	}})
	signer, err := transparency.NewSigner(evidence.LogName(s.Installation.Issuer), evidence.GenerateSigner())
	check(t, err)
	logs, err := witness.ParseLogs(signer.VerifierKey)
	check(t, err)
	a.logs.Store(&logs)
	b.logs.Store(&logs)
	trusted := s.trusting([]*transparency.Signer{signer}, alpha)
	for _, w := range []*otherWitness{a, b} {
		trusted, err = trusted.AddWitnessKey(w.key)
		check(t, err)
	}
	keys := *s.keys.Load()
	keys.Trusted = trusted
	s.keys.Store(&keys)
	return s, func(witnesses int) {
		cosigning := map[*transparency.Witness]bool{}
		for _, w := range []*otherWitness{a, b}[:witnesses] {
			cosigning[w.Witness] = true
		}
		s.publish(signer, cosigning, alpha)
	}
}

// The reports of a service that others vouch for. Their files are what the API answers, and other people's programs
// accept them. The public one shows no reference, other version or person.
func TestReport(t *testing.T) {
	s, publish := vouchedService(t)
	id := s.registered("secret-document", 1, "one")
	publish(2)
	other := s.registered("secret-document", 2, "two")
	s.eventually("two witnesses and an authority", func() bool {
		return strings.HasPrefix(s.vouched(id), "2 witnesses cosigned")
	})
	s.hold()
	vouched := s.vouched(id)
	trusted := s.keys.Load().Trusted
	private, public := reportsOf(id)
	privateProof, publicProof := proofsOf(id)
	document := &evidence.Document{SHA256: hash("one"), Size: 3}
	for name, c := range map[string]struct {
		answer, main, proof answer
		kind                evidence.FilePurpose
		private             bool
	}{
		"organization": {
			s.get(private + "?lang=en"), s.get(integrity + "/records/" + id + "/evidence?timestamps=true"),
			s.get(privateProof), evidence.EvidenceFile, true,
		},
		"public": {
			s.public(public + "?lang=en"), s.public("/api/public/integrity/" + id + "/receipt"), s.public(publicProof),
			evidence.PublicReceiptFile, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			own := map[bool]string{true: "private-"}[c.private]
			equal(t, "its name", c.answer.header.Get("Content-Disposition"),
				`attachment; filename="integrity-report-`+own+id+`.pdf"`)
			r := opened(t, c.answer, c.private)
			for purpose, want := range map[evidence.FilePurpose][]byte{
				c.kind: c.main.body, evidence.ProofFile: c.proof.body,
				evidence.TrustedKeysFile: s.public("/.well-known/integrity-trusted-keys.json").body,
			} {
				if path, got := r.file(t, purpose); !bytes.Equal(got, want) {
					t.Errorf("%s is not what the API answers:\n%s\n%s", filepath.Base(path), got, want)
				}
			}
			token, _ := r.file(t, evidence.TokenFile)
			checkpoint, _ := r.file(t, evidence.CheckpointFile)
			chain, _ := r.file(t, evidence.ChainFile)
			if out := program(
				t, "openssl", "ts", "-verify", "-partial_chain", "-in", token, "-data", checkpoint, "-CAfile", chain,
			); !strings.Contains(out, "Verification: OK") {
				t.Error(out)
			}
			for _, words := range []string{
				"Evidence report", hash("one"), id, vouched, s.Trusted.Keys()[0].FingerprintSHA256,
				"a version with a higher number is registered", "No availability is guaranteed (no SLA).",
				"openssl ts -verify -partial_chain -in " + filepath.Base(token),
			} {
				if !strings.Contains(r.text, words) {
					t.Errorf("it does not say %q:\n%s", words, r.text)
				}
			}
			secrets := []string{"billing", "company-1", other, "salt", s.org.ID.String(), "org_", "usr_", "key_"}
			for _, f := range append(r.files, evidence.ReportFile{Name: "text", Content: []byte(r.text)}) {
				for _, secret := range secrets {
					if !c.private && strings.Contains(strings.ReplaceAll(string(f.Content), "tlog-proof@v1", ""), secret) {
						t.Errorf("%s of the public report contains %q", f.Name, secret)
					}
				}
			}
			if c.private && !strings.Contains(r.text, other) {
				t.Error("the organization's report does not name the other version")
			}
			f, err := evidence.VerifyReport(r.files, trusted, evidence.Options{
				Now: s.Now(), Document: document, RequireReferences: c.private, RequireInclusion: true, RequireTimestamp: true,
				RequireWitnesses: 2,
			})
			if err != nil || f.ExitCode() != 0 || *f.TimeAuthority != "alpha" {
				t.Errorf("%v %+v", err, f)
			}
		})
	}
	if again := s.public(public + "?lang=en"); !bytes.Equal(again.body, s.public(public+"?lang=en").body) {
		t.Error("the same report has other bytes")
	}
	spanish := opened(t, s.send(http.MethodGet, private, s.org.Secret, nil, "Accept-Language", "es"), true)
	for _, words := range []string{"Informe de evidencia", "2 testigos han cofirmado un estado del registro de transparencia que contiene este registro."} {
		if !strings.Contains(spanish.text, words) {
			t.Errorf("it does not say %q:\n%s", words, spanish.text)
		}
	}
	if english := opened(t, s.get(private), true); !strings.Contains(english.text, "Evidence report") {
		t.Error("without a preference the report is not in English")
	}
	if a := s.public(public); a.header.Get("Cache-Control") != "no-store" || a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("headers: %v", a.header)
	}
	for path, want := range map[string]string{
		"/integrity/" + id + "?lang=es": `href="` + public + `?lang=es" download>Descargar el informe de evidencia (PDF)<`,
		"/en/integrity/" + id:           `href="` + public + `?lang=en" download>Download the evidence report (PDF)<`,
	} {
		if page := string(s.page(path).body); !strings.Contains(page, want) {
			t.Errorf("%s has no link %s", path, want)
		}
	}
}

// A report counts the cosignatures of the attached proof, although an earlier checkpoint with the record has more.
func TestReportCountsWhatIsAttached(t *testing.T) {
	s, publish := vouchedService(t)
	id := s.registered("secret-document", 1, "one")
	publish(2)
	private, public := reportsOf(id)
	for witnesses, words := range []string{
		"Witnesses and timestamps This record existed before",
		"Witnesses and timestamps 1 witness cosigned a log state that contains this record. This record existed before",
	} {
		s.registered("other", witnesses+1, "two")
		publish(witnesses)
		s.eventually("two witnesses vouch for the record elsewhere", func() bool {
			return strings.HasPrefix(s.vouched(id), "2 witnesses cosigned")
		})
		for path, own := range map[string]bool{private: true, public: false} {
			a := s.public(path)
			if own {
				a = s.get(path)
			}
			r := opened(t, a, own)
			note := "Apart from the operator's own statement, which ends the section"
			if !strings.Contains(r.text, words) || strings.Contains(r.text, note) == own {
				t.Errorf("it does not say %q, or %q by mistake:\n%s", words, note, r.text)
			}
			f, err := evidence.VerifyReport(r.files, s.keys.Load().Trusted, evidence.Options{Now: s.Now()})
			if err != nil || *f.Witnessed != witnesses {
				t.Errorf("%v, %d witnesses are proven, want %d", err, *f.Witnessed, witnesses)
			}
		}
	}
}

const shownAlone = "The attached files show nobody besides this service that vouches for this record"

// Without witnesses, authorities and a proof, a report says that only the service vouches for the record.
func TestReportAlone(t *testing.T) {
	s := open(t, options{})
	id := s.registered("secret-document", 1, "one")
	private, public := reportsOf(id)
	shows := func(files int, end string) {
		t.Helper()
		r := opened(t, s.public(public), false)
		if !strings.Contains(r.text, shownAlone+end) || !strings.Contains(r.text, "It names neither the organization that") ||
			!strings.Contains(r.text, "is the current version") || len(r.files) != files {
			t.Errorf("%d files, text: %s", len(r.files), r.text)
		}
	}
	shows(2, ", because the transparency log did not contain it yet or could not be read.")
	s.integrate()
	s.proven(id)
	shows(3, ". https://ledger.example")
	s.post(integrity+"/records/"+id+"/revoke", nil).is(http.StatusOK)
	for path, own := range map[string]bool{private: true, public: false} {
		a := s.public(path)
		if own {
			a = s.get(path)
		}
		r := opened(t, a, own)
		if !strings.Contains(r.text, "The organization has revoked this record") {
			t.Errorf("a revoked record: %s", r.text)
		}
		f, err := evidence.VerifyReport(r.files, s.Trusted, evidence.Options{Now: s.Now()})
		if err != nil || f.Signature != evidence.Valid || f.ExitCode() == 0 != !own { // the receipt has no state
			t.Errorf("%v %+v", err, f)
		}
	}
}

// No caller learns more about a record by its report than by its evidence or its receipt, and there is no report of a
// record that does not verify.
func TestReportRefusals(t *testing.T) {
	s := open(t, options{})
	foreign := s.Organization(t, s.org.ID.Shard(), domain.InternalPlan)
	strange := s.Register(t, foreign, foreign.Declaration("f", 1, "f"))
	s.Must(t, strange)
	for _, id := range []string{strings.Repeat("a", 26), strange.Outcome.PublicID.String(), s.reserved("r", 1), "x"} {
		private, public := reportsOf(id)
		s.get(private).refuses(http.StatusNotFound, domain.RecordNotFound)
		if id != strange.Outcome.PublicID.String() {
			s.public(public).refuses(http.StatusNotFound, domain.RecordNotFound)
		}
	}
	private, public := reportsOf(s.registered("a", 1, "one"))
	s.get(private+"?lang=fr").refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	s.public(public+"?at=1").refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	_, secret := s.Key(t, s.org, domain.IntegrityWrite)
	s.send(http.MethodGet, private, secret, nil).refuses(http.StatusForbidden, domain.MissingScope)
	s.public(private).refuses(http.StatusUnauthorized, domain.InvalidKey)

	keys := *s.keys.Load()
	key := keys.Trusted.Keys()[0]
	other := evidence.GenerateSigner()
	trusted, err := keys.Trusted.Add(other.Key(), "2026-11-01T00:00:00Z")
	check(t, err)
	revoked, err := trusted.Revoke(key.KeyID, "compromised", "2026-11-01T00:00:00Z")
	check(t, err)
	s.keys.Store(&action.Keys{Signer: other, Trusted: revoked})
	s.get(private).refuses(http.StatusConflict, domain.InvalidState)
	s.public(public).refuses(http.StatusConflict, domain.InvalidState)
}
