package domain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gowebpki/jcs"

	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
)

func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

func TestIDsCarryTheirShard(t *testing.T) {
	for _, shard := range []Shard{0, 1, 3, 255, 65535} {
		id := NewOrganizationID(noon(), shard)
		back, err := ParseID[OrganizationID](id.String())
		if err != nil || back != id || back.Shard() != shard || !strings.HasPrefix(id.String(), "org_") {
			t.Errorf("shard %d: %s read back as %v, %v", shard, id, back, err)
		}
		public := NewPublicID(LedgerSecret("secret"), shard)
		again, ok := ParsePublicID(public.String())
		if !ok || again.Shard(LedgerSecret("secret")) != shard {
			t.Errorf("public id of shard %d leads to %d", shard, again.Shard(LedgerSecret("secret")))
		}
		if again.Shard(LedgerSecret("another")) == shard && again.Shard(LedgerSecret("a third")) == shard {
			t.Error("the shard shows without the secret")
		}
	}
}

func TestIDsHaveOneSpelling(t *testing.T) {
	id := NewKeyID(noon(), 1)
	text := id.String()
	for _, wrong := range []string{
		"", "key_", strings.ToUpper(text), "org_" + text[4:], text + "0", text[:len(text)-1], "key_8" + text[5:],
		"key_l" + text[5:],
	} {
		if _, err := ParseID[KeyID](wrong); err == nil {
			t.Errorf("%q was read as a key id", wrong)
		}
	}
	public := NewPublicID(nil, 0)
	spelled := public.String()
	for _, wrong := range []string{
		"", strings.ToUpper(spelled), spelled + "a", spelled[:25], spelled[:25] + "1",
		strings.Replace(spelled, spelled[:1], "=", 1),
	} {
		if _, ok := ParsePublicID(wrong); ok {
			t.Errorf("%q was read as a public id", wrong)
		}
	}
	// The last character holds three bits of 16 bytes; the two below them must be zero.
	read := 0
	for _, last := range "abcdefghijklmnopqrstuvwxyz234567" {
		if _, ok := ParsePublicID(spelled[:25] + string(last)); ok {
			read++
		}
	}
	if read != 8 {
		t.Errorf("%d last characters were read, want 8", read)
	}
}

func TestAPIKeyForm(t *testing.T) {
	id := NewKeyID(noon(), 2)
	text, sum := NewAPIKey(id)
	if len(text) != 3+26+1+43+6 || !strings.HasPrefix(text, "ik_"+id.String()[4:]+"_") {
		t.Errorf("form of %q", text)
	}
	back, backSum, ok := ParseAPIKey(text)
	if !ok || back != id || backSum != sum {
		t.Error("a key does not read back")
	}
	for i := range text {
		changed := []byte(text)
		changed[i] = 'z'
		if text[i] == 'z' {
			changed[i] = 'y'
		}
		if _, _, ok := ParseAPIKey(string(changed)); ok {
			t.Errorf("a key with another character at %d was read", i)
		}
	}
}

func TestPeriods(t *testing.T) {
	last := time.Date(2026, 12, 31, 23, 59, 59, 999999000, time.UTC)
	p := PeriodOf(last)
	if p.String() != "2026-12" || p.Next().String() != "2027-01" || p.Previous().String() != "2026-11" ||
		!p.End().Equal(last.Add(time.Microsecond)) {
		t.Errorf("%s ends %s", p, p.End())
	}
	leap := PeriodOf(time.Date(2028, 2, 29, 12, 0, 0, 0, time.UTC))
	if leap.End().Sub(leap.Start()) != 29*24*time.Hour {
		t.Error("February 2028 has 29 days")
	}
	if PeriodOf(time.Date(2026, 12, 1, 0, 30, 0, 0, time.FixedZone("", 3600))).String() != "2026-11" {
		t.Error("a period is a month of UTC")
	}
}

func TestScopesNeverRaiseARole(t *testing.T) {
	want := map[Scope][]Role{
		IntegrityWrite: {Owner, Admin, Analyst}, IntegrityRevoke: {Owner, Admin}, IntegrityAdmin: {Owner, Admin},
		ArtifactsWrite: {Owner, Admin, Analyst}, ReviewsWrite: {Owner, Admin, Reviewer},
		ApprovalsWrite: {Owner, Admin}, CertificatesWrite: {Owner, Admin}, OrganizationAdmin: {Owner, Admin},
	}
	for _, scope := range Scopes() {
		for _, role := range Roles() {
			allowed := want[scope] == nil || slices.Contains(want[scope], role)
			err := Access{Scopes: []Scope{scope}, Role: role}.Authorize(scope)
			if allowed != (err == nil) {
				t.Errorf("%s as %s: %v", scope, role, err)
			}
			var refusal *Error
			if err := (Access{Role: role}).Authorize(scope); !errors.As(err, &refusal) || refusal.Code != MissingScope {
				t.Errorf("%s without the scope: %v", scope, err)
			}
		}
	}
}

func TestReadDeclaration(t *testing.T) {
	const good = `{"companyReference":"c","source":"billing","documentReference":"d","version":2,"previousVersion":1,` +
		`"sha256":"ABCDEF0000000000000000000000000000000000000000000000000000000000","sizeBytes":0,"mimeType":"Application/PDF","generatedAt":"2026-11-20T10:00:00.100+01:00"}`
	read := func(text string) (Declaration, []FieldError) {
		t.Helper()
		value, err := strictjson.Parse([]byte(text), 32)
		if err != nil {
			t.Fatal(err)
		}
		o := strictjson.Decode(value)
		d := ReadDeclaration(o)
		return d, o.Problems()
	}
	d, problems := read(good)
	if len(problems) > 0 || d.MimeType != "application/pdf" || d.GeneratedAt != "2026-11-20T09:00:00.1Z" ||
		d.SHA256[0] != 0xab || *d.PreviousVersion != 1 {
		t.Errorf("read %+v, %v", d, problems)
	}
	for change, pointers := range map[[2]string]string{
		{`"version":2`, `"version":0`}:                                         "/version",
		{`"version":2`, `"version":2147483648`}:                                "/version",
		{`"version":2`, `"version":1`}:                                         "/previousVersion",
		{`"previousVersion":1`, `"previousVersion":2`}:                         "/previousVersion",
		{`"sizeBytes":0`, `"sizeBytes":9007199254740992`}:                      "/sizeBytes",
		{`"sizeBytes":0`, `"sizeBytes":-1`}:                                    "/sizeBytes",
		{`Application/PDF`, `application/pdf; a=b`}:                            "/mimeType",
		{`Application/PDF`, `pdf`}:                                             "/mimeType",
		{`"source":"billing"`, `"source":"-billing"`}:                          "/source",
		{`"source":"billing"`, `"source":"billing\n"`}:                         "/source",
		{`"documentReference":"d"`, `"documentReference":7`}:                   "/documentReference",
		{`ABCDEF`, `ABCDEG`}:                                                   "/sha256",
		{`2026-11-20T10`, `2026-02-30T10`}:                                     "/generatedAt",
		{`"companyReference":"c",`, ``}:                                        "/companyReference",
		{`"companyReference":"c","source":"billing",`, `"source":null,"x":1,`}: "/companyReference /source /x",
	} {
		_, problems := read(strings.Replace(good, change[0], change[1], 1))
		var found []string
		for _, p := range problems {
			found = append(found, p.Pointer)
		}
		slices.Sort(found)
		if strings.Join(found, " ") != pointers {
			t.Errorf("%s → %s: problems at %v, want %s", change[0], change[1], problems, pointers)
		}
	}
}

func TestEventsSurviveStorage(t *testing.T) {
	member := NewID[MemberID](noon())
	key := NewKeyID(noon(), 1)
	document := NewID[DocumentID](noon())
	text := NewText(noon(), "someone@example.com")
	ref := text.Ref()
	limit, source := int32(5), "s\u2028\x01\"é"
	for _, body := range []Body{
		&OrganizationCreatedBody{Name: ref, Plan: "gratis", PerMinute: &limit},
		&PlanChangedBody{Plan: "internal", Internal: true},
		&LimitsChangedBody{UnfinalizedLimit: &limit}, &LimitsChangedBody{},
		&VersionReservedBody{
			DocumentID: document, VersionReference: VersionReference{"c", source, "d", 7}, PublicID: PublicID{1},
			ExpiresAt: noon(), Renewed: true,
		},
		&VersionReleasedBody{DocumentID: document, Version: 7},
		&MemberAddedBody{MemberID: member, Email: ref, Role: Owner},
		&MemberChangedBody{MemberID: member, Role: Viewer, Status: MemberEnded},
		&KeyCreatedBody{
			KeyID: key, MemberID: member, SecretSHA256: []byte{1, 2}, Scopes: Scopes(), ExpiresAt: noon(),
			KeyLimits: KeyLimits{Source: &source},
		},
		&KeyRevokedBody{KeyID: key},
		&CompanyCreatedBody{Reference: "c"},
		&AccessChangedBody{KeyID: key, Enabled: true},
		&QuotaWarningReachedBody{Percent: 95, Period: 202611, Used: 96, Limit: 100},
		&QuotaWarningReachedBody{Allowance: RegistrationsAllowance, Percent: 80, Period: 202611, Used: 80, Limit: 100},
		&RecordSupersededBody{DocumentID: document, Version: 1, ByVersion: 2},
		&RecordRevokedBody{DocumentID: document, Version: 1, Reason: &ref},
		&LinkStartedBody{
			LinkID: LinkID{1}, MemberID: member, SecretSHA256: []byte{1, 2}, Scopes: OAuthScopes(), ExpiresAt: noon(),
		},
		&LinkedBody{LinkID: LinkID{1}, Subject: []byte{3, 4}, Scopes: []Scope{VerifyRead}},
		&ConsentWithdrawnBody{LinkID: LinkID{1}},
		&PasskeyAddedBody{
			PasskeyID: PasskeyID{1}, MemberID: member, Name: ref,
			Credential: Credential{CredentialID: []byte{1}, PublicKey: []byte{2}, Transports: []string{"internal"}},
		},
		&PasskeyRemovedBody{PasskeyID: PasskeyID{1}},
	} {
		row := rowByBody[reflect.TypeOf(body)]
		data, err := appendCanonical(nil, body)
		if err != nil {
			t.Fatal(err)
		}
		if canonical, err := jcs.Transform(data); err != nil || !bytes.Equal(canonical, data) {
			t.Errorf("%s: data is not canonical: %s", row.eventType, data)
		}
		back, err := DecodeBody(row.eventType, row.version, data)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := appendCanonical(nil, back); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%s: %s became %s", row.eventType, data, again)
		}
		if bytes.Contains(data, []byte("example.com")) {
			t.Errorf("%s holds an address", row.eventType)
		}
	}
	if _, err := DecodeBody(CompanyCreated, 2, []byte(`{}`)); err == nil {
		t.Error("an unknown version of data was read")
	}
}

// FuzzRegisteredIsCanonical: the data of a registration and the leaf around it are canonical to jcs.
func FuzzRegisteredIsCanonical(f *testing.F) {
	f.Add("company", "source", "document", int32(1), int32(0), "actor", "request")
	f.Add("ü\u2028", "\x00\x1f\"\\", "𝄞", int32(7), int32(3), "\t", "</script>")
	signer := testSigner(f)
	f.Fuzz(func(t *testing.T, company, source, document string, version, previous int32, actor, request string) {
		valid := func(s string) string { return strings.ToValidUTF8(s, "?") }
		w := Registrar{Issuer: "https://ledger.example", Signer: signer}
		d := Declaration{
			VersionReference: VersionReference{valid(company), valid(source), valid(document), version}, MimeType: "a/b",
			GeneratedAt: "2026-11-20T09:00:00Z",
		}
		if previous > 0 {
			d.PreviousVersion = &previous
		}
		organization := NewOrganizationID(noon(), 0)
		c := must(w.Prepare(
			Origin{Organization: organization, Actor: ParseActor(valid(actor)), RequestID: valid(request)}, KeyID{},
			KeyLimits{}, d, noon(),
		))
		b := &RecordRegisteredBody{
			RecordID: c.recordID, DocumentID: DocumentID(c.recordID), VersionReference: d.VersionReference,
			PreviousVersion: d.PreviousVersion, Salt: c.salt, Period: PeriodOf(noon()), Status: StatusCurrent,
			KeyID: c.keyID, Signature: c.signature, Payload: c.payload, Record: c.record,
		}
		data := b.appendCanonical(nil)
		if canonical, err := jcs.Transform(data); err != nil || !bytes.Equal(canonical, data) {
			t.Fatalf("not canonical (%v): %s", err, data)
		}
		id := NewID[EventID](noon())
		e := Event{
			ID: id, Organization: organization, Sequence: 1, V: 1, Type: RecordRegistered, Actor: c.Actor,
			RequestID: c.RequestID, Subject: "x", OccurredAt: noon(), Data: data, Body: b,
		}
		leaf := e.Leaf()
		if canonical, err := jcs.Transform(leaf); err != nil || !bytes.Equal(canonical, leaf) {
			t.Fatalf("leaf is not canonical (%v): %s", err, leaf)
		}
		if read, err := evidence.ParseLeaf(leaf); err != nil || read.ID != id.String() ||
			*read.PayloadSHA256 != sha256.Sum256(c.payload) {
			t.Fatalf("verifiers do not read the leaf as it was made: %+v, %v", read, err)
		}
		signed, err := ReadSignedRecord(data)
		if err != nil || !bytes.Equal(signed.Payload, c.payload) || signed.Signature != c.signature ||
			signed.References != b.References() {
			t.Fatalf("what was signed does not come back: %+v, %v", signed, err)
		}
	})
}

// TestLeaf computes the hash of contract section 4.3 the slow way.
func TestLeaf(t *testing.T) {
	id := NewID[EventID](noon())
	organization := NewOrganizationID(noon(), 0)
	e := Event{ID: id, Organization: organization, Sequence: 9, V: 1, Type: CompanyCreated, Subject: "com_x",
		Actor: OperatorActor, RequestID: "r",
		OccurredAt: noon().Add(1500 * time.Microsecond), Data: []byte(`{"reference":"c"}`),
		Body: &CompanyCreatedBody{Reference: "c"}}
	body, _ := json.Marshal(map[string]any{"v": 1, "organization": organization.String(), "sequence": 9,
		"actor": "operator", "requestId": "r",
		"company": nil, "subject": "com_x", "data": json.RawMessage(e.Data)})
	canonicalBody, _ := jcs.Transform(body)
	leaf, _ := json.Marshal(map[string]any{"contract": "integrity-leaf-v1", "id": id.String(), "type": "company.created",
		"occurredAt": evidence.FormatTime(e.OccurredAt), "payloadSha256": nil, "bodySha256": hexSum(canonicalBody),
		"nonce": "AAAAAAAAAAAAAAAAAAAAAA"})
	want, _ := jcs.Transform(leaf)
	if got := e.Leaf(); !bytes.Equal(got, want) {
		t.Errorf("leaf\n%s, want\n%s", got, want)
	}
	if hexSum(append([]byte{0}, want...)) != hexOf(LeafHash(want)) {
		t.Error("the leaf hash is not SHA-256(0x00 || leaf)")
	}
}

func hexSum(b []byte) string { return hexOf(sha256.Sum256(b)) }

func hexOf(sum [32]byte) string { return hex.EncodeToString(sum[:]) }

// TestDocumentIsOpenedOnce: projections insert the document of an opening event without a check, so no log may contain
// such an event twice.
func TestDocumentIsOpenedOnce(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	if _, code := w.reserve("a", 1); code != "" {
		t.Fatal(code)
	}
	c, code := w.register("a", 2, "x", nil)
	if code != "" {
		t.Fatal(code)
	}
	state := NewState(Plans{})
	for i := range w.events {
		e := &w.events[i]
		if b, ok := e.Body.(*RecordRegisteredBody); ok {
			b.DocumentID = DocumentID(c.Outcome.ID)
			if err := state.Apply(e); err == nil || !strings.Contains(err.Error(), "opens a document that exists") {
				t.Errorf("a document that was reserved before is opened: %v", err)
			}
			return
		}
		if err := state.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("nothing was registered")
}
