package evidence

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"integrityledger/schemas"
	"integrityledger/schemas/vectortest"
)

// vectorFile is the expanded form of schemas/verification-vectors.json (see schemas/vectortest).
type vectorFile struct {
	Description string            `json:"description"`
	Version     int               `json:"version"`
	TrustedKeys map[string]string `json:"trustedKeys"` // exact texts of trusted-keys files, by name
	Vectors     []vector          `json:"vectors"`
}

// vector is one receipt with the result required of every verifier. Exactly one of the receipt's two forms is given.
type vector struct {
	Name              string  `json:"name"`
	Receipt           *string `json:"receipt"`       // the exact text
	ReceiptBase64     *string `json:"receiptBase64"` // the exact bytes, if they are not UTF-8
	TrustedKeys       string  `json:"trustedKeys"`   // a name in the file's trustedKeys
	DocumentBase64    *string `json:"documentBase64"`
	Now               string  `json:"now"` // the verifier's clock
	RequireReferences bool    `json:"requireReferences"`
	RequireCurrent    bool    `json:"requireCurrent"`
	RequireInclusion  bool    `json:"requireInclusion"`
	RequireTimestamp  bool    `json:"requireTimestamp"`
	RequireWitnesses  int     `json:"requireWitnesses"`
	// AcceptStampedBeforeRevocation is the option of that name.
	AcceptStampedBeforeRevocation bool `json:"acceptStampedBeforeRevocation"`

	Expect expectation `json:"expect"`
}

type expectation struct {
	ExitCode int `json:"exitCode"`
	// Findings is nil if the trusted-keys file is refused, so nothing is checked.
	Findings *expectedFindings `json:"findings"`
}

type expectedFindings struct {
	Signature      Finding `json:"signature"`
	References     Finding `json:"references"`
	Observation    Finding `json:"observation"`
	ObservedStatus *Status `json:"observedStatus"`
	ObservedAt     *string `json:"observedAt"`
	FileMatch      *bool   `json:"fileMatch"`
	Inclusion      Finding `json:"inclusion"`
	StatusAsOf     Finding `json:"statusAsOf"`
	AsOfStatus     *Status `json:"asOfStatus"`
	AsOf           *string `json:"asOf"`
	AsOfSequence   *int64  `json:"asOfSequence"`
	Time           Finding `json:"time"`
	ExistedBefore  *string `json:"existedBefore"`
	TimeAuthority  *string `json:"timeAuthority"`
	Witnessed      *int    `json:"witnessed"`
}

const vectorDescription = "Test vectors for verifiers of Integrity Ledger receipts. A member that a vector leaves " +
	"out has the value in defaults; so have the members of its expect and of its findings. " +
	"The receipt is the exact text to verify, or a list of parts to join: texts, and pairs [start, length] that name " +
	"Unicode characters of the receipt of the vector that from names. Where receiptBase64 is not null, it is the " +
	"receipt's bytes instead. " +
	"trustedKeys names an exact text of the member trustedKeys above; documentBase64 is the document to compare, null " +
	"for none; now is the verifier's clock. " +
	"Exit code 0: everything supplied and required holds; 1: something does not; 2: the trusted-keys file is refused, " +
	"so nothing is checked and findings is null. " +
	"A receipt that begins with the line c2sp.org/tlog-proof@v1 is a transparency log proof, whose inclusion is required. " +
	"An inclusion is not-checked where the trusted keys hold no logKeys, too, and a time where they hold none or no " +
	"timestampAuthorities. " +
	"Witnessed is how many pinned witnesses cosigned the checkpoint of a valid inclusion, null where none are pinned. " +
	"A part that was supplied and not reached, because the record failed before, is not-checked; a receipt that " +
	"cannot be read has signature invalid and every other part not-checked, and so has a certificate that does not hold. " +
	"Words of explanation are each verifier's own. The keys were made for these vectors alone: never trust them."

func pointer[T any](v T) *T { return &v }

// vectorBook collects vectors; each begins as the good private export.
type vectorBook struct {
	t     *testing.T
	f     fixture
	good  []byte
	trust map[string]string
	list  []vector
}

const standardTrust = "standard"

func vectors(t *testing.T) *vectorBook {
	t.Helper()
	b := &vectorBook{t: t, f: newFixture(t), trust: map[string]string{}}
	standard, err := b.f.trust.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	b.trust[standardTrust] = string(standard)
	b.good = b.envelope(func(*fixture, *Envelope) {})
	for _, group := range []func(){
		b.goodReceipts, b.documents, b.keys, b.signatures, b.payloads, b.canonicalForms, b.envelopes, b.referenceParts,
		b.observations, b.trustFiles, b.tampered, b.certificates, b.inclusions, b.inclusionNumbers, b.leaves, b.checkpoints,
		b.histories, b.stamps,
	} {
		group()
	}
	slices.SortFunc(b.list, func(a, b vector) int { return cmp.Compare(a.Name, b.Name) })
	return b
}

// add adds a vector with the expectations of the good export, modified by expect.
func (b *vectorBook) add(name string, receipt []byte, expect ...func(*vector)) {
	v := vector{Name: name, TrustedKeys: standardTrust, Now: FormatTime(testNow)}
	v.Expect.Findings = &expectedFindings{
		Signature: Valid, References: Valid, Observation: Valid, ObservedStatus: pointer(Current),
		ObservedAt: pointer(FormatTime(b.f.status.ObservedAt)), Inclusion: NotSupplied,
		StatusAsOf: NotSupplied, Time: NotSupplied,
	}
	if utf8.Valid(receipt) {
		v.Receipt = pointer(string(receipt))
	} else {
		v.ReceiptBase64 = pointer(base64.StdEncoding.EncodeToString(receipt))
	}
	for _, change := range expect {
		change(&v)
	}
	b.list = append(b.list, v)
}

// envelope marshals a private export of a changed fixture, or with changed parts.
func (b *vectorBook) envelope(change func(f *fixture, e *Envelope)) []byte {
	g := b.f
	e := g.envelope()
	change(&g, &e)
	return marshal(b.t, e)
}

// replaced changes the text of the good export.
func (b *vectorBook) replaced(from, to string) []byte {
	b.t.Helper()
	if !bytes.Contains(b.good, []byte(from)) {
		b.t.Fatalf("%q does not occur", from)
	}
	return bytes.Replace(b.good, []byte(from), []byte(to), 1)
}

// issued signs a changed record and its observation, like the service.
func (b *vectorBook) issued(change func(p *RecordPayload)) []byte {
	return b.envelope(func(f *fixture, e *Envelope) {
		change(&f.record)
		f.status.PayloadSHA256 = sha256.Sum256(f.record.AppendCanonical(nil))
		*e = f.envelope()
	})
}

// reworded is issued for a text that no RecordPayload can have.
func (b *vectorBook) reworded(from, to string) []byte {
	return b.envelope(func(f *fixture, e *Envelope) {
		text := bytes.Replace(f.record.AppendCanonical(nil), []byte(from), []byte(to), 1)
		f.status.PayloadSHA256 = sha256.Sum256(text)
		*e = f.envelope()
		e.Signed = must(f.signer.SignPayload(text))
	})
}

// payload signs another text in place of the record.
func (b *vectorBook) payload(text string) []byte {
	return b.envelope(func(f *fixture, e *Envelope) { e.Signed = must(f.signer.SignPayload([]byte(text))) })
}

// observed signs another observation.
func (b *vectorBook) observed(change func(p *StatusPayload)) []byte {
	return b.envelope(func(f *fixture, e *Envelope) {
		change(&f.status)
		o := must(f.signer.SignPayload(f.status.AppendCanonical(nil)))
		e.StatusObservation = &o
	})
}

// otherMembers returns variants of the canonical text, each with one member changed, by member name.
func (b *vectorBook) otherMembers(canonical []byte) map[string]string {
	b.t.Helper()
	texts := make(map[string]string)
	var members map[string]any
	if err := json.Unmarshal(canonical, &members); err != nil {
		b.t.Fatal(err)
	}
	for name, value := range members {
		changed := make(map[string]any, len(members))
		for n, v := range members {
			changed[n] = v
		}
		switch v := value.(type) {
		case string:
			changed[name] = tweak(v)
		case float64:
			changed[name] = v + 1
		default:
			b.t.Fatalf("%s: %T", name, value)
		}
		text, err := jcs.Transform(marshal(b.t, changed))
		if err != nil {
			b.t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}

// tweak changes the third character to another of its kind.
func tweak(s string) string {
	c := s[2] + 1
	if s[2] == '9' || s[2] == 'z' || s[2] == 'Z' {
		c = s[2] - 1
	}
	return s[:2] + string(c) + s[3:]
}

// Recurring expectations.

// recordFails: the receipt could be parsed, but its record fails.
func recordFails(finding Finding) func(*vector) {
	return func(v *vector) {
		*v.Expect.Findings = expectedFindings{
			Signature: finding, References: NotChecked, Observation: NotChecked, Inclusion: NotSupplied,
			StatusAsOf: NotSupplied, Time: NotSupplied,
		}
		v.Expect.ExitCode = 1
	}
}

// refused: the receipt cannot be parsed, so its parts are unknown.
func refused(v *vector) {
	recordFails(Invalid)(v)
	v.Expect.Findings.Inclusion, v.Expect.Findings.StatusAsOf, v.Expect.Findings.Time = NotChecked, NotChecked, NotChecked
}

func referencesFail(v *vector) { v.Expect.Findings.References, v.Expect.ExitCode = Invalid, 1 }

func observationFails(finding Finding) func(*vector) {
	return func(v *vector) {
		v.Expect.Findings.Observation, v.Expect.Findings.ObservedStatus, v.Expect.Findings.ObservedAt = finding, nil, nil
		v.Expect.ExitCode = 1
	}
}

func observes(status Status, exit int) func(*vector) {
	return func(v *vector) { v.Expect.Findings.ObservedStatus, v.Expect.ExitCode = &status, exit }
}

func observedAt(at string) func(*vector) {
	return func(v *vector) { v.Expect.Findings.ObservedAt = &at }
}

// partsAbsent: neither references nor an observation is supplied.
func partsAbsent(v *vector) {
	f := v.Expect.Findings
	f.References, f.Observation, f.ObservedStatus, f.ObservedAt = NotSupplied, NotSupplied, nil, nil
}

func trusting(name string) func(*vector) { return func(v *vector) { v.TrustedKeys = name } }

func requireReferences(v *vector) { v.RequireReferences = true }

func requireCurrent(v *vector) { v.RequireCurrent = true }

func requireInclusion(v *vector) { v.RequireInclusion = true }

// included sets the expected finding on a supplied proof.
func included(finding Finding) func(*vector) {
	return func(v *vector) {
		v.Expect.Findings.Inclusion = finding
		if finding == Invalid || finding == Untrusted {
			v.Expect.ExitCode = 1
		}
	}
}

func exits(code int) func(*vector) { return func(v *vector) { v.Expect.ExitCode = code } }

func compared(content []byte, match bool) func(*vector) {
	return func(v *vector) {
		v.DocumentBase64, v.Expect.Findings.FileMatch = pointer(base64.StdEncoding.EncodeToString(content)), &match
		if !match {
			v.Expect.ExitCode = 1
		}
	}
}

// file returns the published form, the same in every run.
func (b *vectorBook) file() []byte {
	b.t.Helper()
	text, err := vectortest.Compact(marshal(b.t, vectorFile{vectorDescription, 2, b.trust, b.list}),
		"private export", "inclusion", "chain: through an intermediate", "revoked signing key: stamped before",
		"witnesses: two", "checkpoint: with 99 cosignatures", "64 KiB", "proof: private")
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// TestVectorsFile compares the published file with the table; -update writes it.
func TestVectorsFile(t *testing.T) {
	made := vectors(t).file()
	if *update {
		if err := os.WriteFile("../../schemas/"+schemas.VectorsFile, made, 0o644); err != nil {
			t.Fatal(err)
		}
		return // the embedded file is still the old one
	}
	published, err := schemas.File(schemas.VectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, published) {
		t.Error(
			"schemas/" + schemas.VectorsFile + " is not what the table makes: run go test ./domain/evidence -run " +
				"TestVectorsFile -update",
		)
	}
}

// TestVectors reads the table back like another verifier, and verifies each receipt.
func TestVectors(t *testing.T) {
	var file vectorFile
	whole, err := vectortest.Expand(vectors(t).file())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(whole, &file); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, v := range file.Vectors {
		if seen[v.Name] {
			t.Fatalf("%s stands twice", v.Name)
		}
		seen[v.Name] = true
		t.Run(v.Name, func(t *testing.T) {
			if got := run(t, file, v); !reflect.DeepEqual(got, v.Expect) {
				t.Errorf("got  %s\nwant %s", marshal(t, got), marshal(t, v.Expect))
			}
		})
	}
}

func run(t *testing.T, file vectorFile, v vector) expectation {
	t.Helper()
	trustFile, ok := file.TrustedKeys[v.TrustedKeys]
	if !ok {
		t.Fatalf("no trusted keys %q", v.TrustedKeys)
	}
	trust, err := ParseTrustedKeys([]byte(trustFile))
	if err != nil {
		return expectation{ExitCode: 2}
	}
	now, err := time.Parse(time.RFC3339, v.Now)
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Now: now, RequireReferences: v.RequireReferences, RequireCurrent: v.RequireCurrent,
		RequireInclusion: v.RequireInclusion,
		RequireTimestamp: v.RequireTimestamp, RequireWitnesses: v.RequireWitnesses,
		AcceptStampedBeforeRevocation: v.AcceptStampedBeforeRevocation}
	if v.DocumentBase64 != nil {
		content := decoded(t, *v.DocumentBase64)
		opts.Document = &Document{hexSHA256(content), int64(len(content))}
	}
	var receipt []byte
	if v.Receipt != nil {
		receipt = []byte(*v.Receipt)
	} else {
		receipt = decoded(t, *v.ReceiptBase64)
	}
	got := Verify(receipt, trust, opts)
	if (got.Record != nil || got.Certificate != nil) != (got.Signature == Valid) ||
		(got.ObservedAt == nil) != (got.ObservedStatus == nil) ||
		(got.StatusAsOf == Valid) != (got.AsOf != nil) || (got.AsOf == nil) != (got.AsOfStatus == nil) ||
		(got.AsOf == nil) != (got.AsOfSequence == nil) {
		t.Errorf("%s", marshal(t, got))
	}
	return expectation{got.ExitCode(), &expectedFindings{
		got.Signature, got.References, got.Observation, got.ObservedStatus, got.ObservedAt, got.FileMatch, got.Inclusion,
		got.StatusAsOf, got.AsOfStatus, got.AsOf, got.AsOfSequence, got.Time, got.ExistedBefore, got.TimeAuthority,
		got.Witnessed,
	}}
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
