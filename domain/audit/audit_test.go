package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
)

// memory is audit.Parts for tests.
type memory [audit.PartCount]bytes.Buffer

func (m *memory) Append(part int, more []byte) error { _, err := m[part].Write(more); return err }
func (m *memory) Open(part int) io.Reader            { return bytes.NewReader(m[part].Bytes()) }

// failing is the common interface of a test and a property.
type failing interface {
	Helper()
	Fatal(...any)
}

// past is an in-memory ledger of one organization with one company and one key.
type past struct {
	t         failing
	state     *domain.State
	now       time.Time
	events    []audit.Event
	texts     map[domain.TextID]audit.Text
	registrar domain.Registrar
	trusted   *evidence.TrustedKeys
	id        domain.OrganizationID
	key       domain.KeyID
	company   domain.CompanyID
	actor     domain.Actor // instead of the key
}

func newPast(t failing) *past {
	t.Helper()
	p := &past{
		t: t, state: domain.NewState(must(domain.DefaultPlans())), now: time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC),
		texts: map[domain.TextID]audit.Text{},
	}
	p.state.Follow(domain.BackfillAllowances)
	signer := evidence.GenerateSigner()
	p.registrar = domain.Registrar{Issuer: "https://ledger.example", Secret: domain.LedgerSecret("secret"), Signer: signer}
	p.trusted = must(evidence.NewTrustedKeys([]evidence.TrustedKey{{PublicKey: signer.Key()}}, nil, nil))
	p.id = domain.NewOrganizationID(p.now, 0)
	operator := domain.Origin{Organization: p.id, Actor: domain.OperatorActor, RequestID: "test"}
	p.do(&domain.CreateOrganization{Origin: operator, Name: "Example", Plan: domain.InternalPlan, Internal: true})
	// not the last owner, so it may be ended
	p.do(&domain.AddMember{Origin: operator, Email: "ana@example.org", Role: domain.Admin})
	key, _ := domain.NewCreateKey(
		domain.CreateKey{
			Origin: operator, Email: "ana@example.org", Scopes: domain.Scopes(), Lifetime: domain.DefaultKeyLifetime,
		},
		p.now,
	)
	p.do(key)
	p.key = key.Outcome.ID
	company := &domain.CreateCompany{Origin: operator, Reference: "c-1"}
	p.do(company)
	p.company = company.Outcome.ID
	p.do(&domain.SetAccess{Origin: operator, Company: p.company, Key: p.key, Enabled: true})
	return p
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// do executes a command; a refusal changes nothing.
func (p *past) do(c domain.Command) {
	p.t.Helper()
	p.now = p.now.Add(time.Second)
	drafts, err := p.state.Decide(c, 0, p.now)
	p.append(c, drafts, err)
}

// unjudged executes a command without checking whether the actor may still act.
func (p *past) unjudged(c domain.Command) {
	p.t.Helper()
	drafts, err := c.Decide(p.state, p.now)
	p.append(c, drafts, err)
}

func (p *past) append(c domain.Command, drafts []domain.Draft, err error) {
	p.t.Helper()
	if err != nil {
		return
	}
	events, err := p.state.Append(c.CommandOrigin(), p.now, drafts)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range events {
		e.Position = int64(len(p.events)) + 1
		for _, text := range e.Texts {
			p.texts[text.ID] = audit.Text{ID: text.ID, Salt: text.Salt[:], Body: &text.Body}
		}
		refs := domain.TextRefs(e.Body)
		e.Texts, e.Body = nil, nil
		stored := audit.Event{Event: e}
		for _, ref := range refs {
			stored.Stored = append(stored.Stored, p.texts[ref.ID])
		}
		p.events = append(p.events, stored)
	}
}

func (p *past) cause() domain.Origin {
	return domain.Origin{Organization: p.id, Actor: domain.KeyActor(p.key), RequestID: "test"}
}

func (p *past) register(document string, version int32) domain.PublicID {
	c := must(p.registrar.Prepare(p.cause(), p.key, domain.KeyLimits{}, domain.Declaration{
		VersionReference: domain.VersionReference{
			CompanyReference: "c-1", Source: "s", DocumentReference: document, Version: version,
		},
		SHA256: sha256.Sum256([]byte(document)), MimeType: "application/pdf", GeneratedAt: "2026-11-01T10:00:00Z",
	}, p.now))
	p.do(c)
	return c.Outcome.PublicID
}

func (p *past) reserve(document string, version int32) domain.PublicID {
	c := &domain.Reserve{
		Origin: p.cause(), Key: p.key, Limits: domain.KeyLimits{},
		Version: domain.VersionReference{
			CompanyReference: "c-1", Source: "s", DocumentReference: document, Version: version,
		},
		PublicID: domain.NewPublicID(p.registrar.Secret, p.cause().Organization.Shard()),
	}
	p.do(c)
	return c.Outcome.PublicID
}

func (p *past) revoke(id domain.PublicID) {
	p.do(&domain.Revoke{Origin: p.cause(), Key: p.key, PublicID: id, Reason: "by mistake"})
}

// rotate ends the key after an overlap. Later commands still use the old key.
func (p *past) rotate(overlap time.Duration) {
	c, _ := domain.NewRotateKey(
		domain.RotateKey{Origin: p.operator(), Key: p.key, Lifetime: domain.DefaultKeyLifetime, Overlap: overlap}, p.now,
	)
	p.do(c)
}

func (p *past) operator() domain.Origin {
	return domain.Origin{Organization: p.id, Actor: domain.OperatorActor, RequestID: "test"}
}

// live adds a history of versions and of a certificate.
func (p *past) live() {
	p.reserve("a", 1)
	p.do(&domain.ReleaseReservation{Origin: p.cause(), Key: p.key, PublicID: p.reserve("released", 1)})
	p.register("a", 1)
	p.register("a", 2)
	p.register("late", 2)
	p.register("late", 1)
	p.certify("text")
	p.revoke(p.register("b", 1))
}

// certify takes a text through certification to its certificate.
func (p *past) certify(text string) {
	sum, member := sha256.Sum256([]byte(text)), p.state.Key(p.key).Member
	c := domain.NewRegisterArtifactVersion(domain.RegisterArtifactVersion{
		Origin: p.cause(),
		Content: domain.Content{
			Kind: domain.TextContent, Title: "Title", MediaType: "text/plain", SHA256: sum, SizeBytes: int64(len(text)),
		},
	}, p.now)
	p.do(c)
	p.do(&domain.DeclareReview{
		Origin: p.cause(), Artifact: c.Artifact, Version: c.Version, Member: member, Outcome: domain.ReviewAccepted,
		Statement: "read", SHA256: sum,
	})
	p.do(&domain.ApproveArtifactVersion{Origin: p.cause(), Version: c.Version, Member: member, Statement: "approved"})
	p.do(must(p.registrar.Certify(p.cause(), member, c.Version, sum, int64(len(text)), domain.Published{}, p.now)))
}

// audit audits the events at once, and again in two checks, of which the second goes on from the state of the first:
// both must find the same, and save the same state.
func (p *past) audit(change ...func(*audit.Config)) audit.Report {
	p.t.Helper()
	config := audit.Config{Issuer: p.registrar.Issuer, Trusted: p.trusted, Whole: true}
	for _, c := range change {
		c(&config)
	}
	whole, state := p.check(config, p.events)
	if t, ok := p.t.(*testing.T); ok {
		audit.Judge(t, judgement(whole))
	}
	if config.Former != nil {
		return whole
	}
	for _, cut := range []int{len(p.events) / 2, max(0, len(p.events)-1), len(p.events)} {
		before, saved := p.check(config, p.events[:cut])
		if before.Count != 0 {
			continue
		}
		later := config
		later.Since = func(section int) ([]byte, error) { return saved[section], nil }
		since, again := p.check(later, p.events[cut:])
		if got, want := concluded(since), concluded(whole); got != want {
			p.t.Fatal(fmt.Sprintf("after %d of %d events: %s, want %s", cut, len(p.events), got, want))
		}
		if whole.Count == 0 && (len(state) != audit.SectionCount || !slices.EqualFunc(state, again, bytes.Equal)) {
			p.t.Fatal(fmt.Sprintf("after %d of %d events: the state differs", cut, len(p.events)))
		}
	}
	return whole
}

func (p *past) check(config audit.Config, events []audit.Event) (r audit.Report, state [][]byte) {
	p.t.Helper()
	config.Parts = &memory{}
	config.Save = func(section []byte) error {
		state = append(state, section)
		return nil
	}
	c := must(audit.New(config))
	for events := range slices.Chunk(slices.Clone(events), 7) {
		if err := c.Add(events); err != nil {
			p.t.Fatal(err)
		}
	}
	return must(c.Finish(nil)), state
}

// judgement returns what a report finds, without words and ids.
func judgement(r audit.Report) string {
	var found []string
	for _, f := range r.Findings[:min(len(r.Findings), 10)] {
		found = append(found, fmt.Sprint(f.Check, " ", f.Sequence))
	}
	slices.Sort(found)
	return strings.Join(append([]string{fmt.Sprint(r.Count)}, found...), ", ")
}

// TestStateOfHistory: the same history leaves the same state. What it was is in testdata/judged.golden.
func TestStateOfHistory(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	p := newPast(t)
	p.live()
	_, state := p.check(audit.Config{Issuer: p.registrar.Issuer, Trusted: p.trusted, Whole: true}, p.events)
	state[0] = state[0][sha256.Size:] // without the digest that differs between programs by itself
	audit.Judge(t, fmt.Sprintf("%x", sha256.Sum256(bytes.Join(state, nil))))
}

var claimedFirst = regexp.MustCompile(`that of (the event of sequence \d+ of \S*|an event up to the mark), which`)

// TestOtherState: a state of another version of the program, and one that was cut, are refused.
func TestOtherState(t *testing.T) {
	p := newPast(t)
	p.register("a", 1)
	config := audit.Config{Issuer: p.registrar.Issuer, Trusted: p.trusted, Whole: true}
	_, state := p.check(config, p.events)
	for name, want := range map[string]string{
		"another version": "a version of this program that has other rules", "cut": "are not those", "a part cut": "are not those",
	} {
		config.Parts = &memory{}
		config.Since = func(n int) ([]byte, error) {
			section := bytes.Clone(state[n])
			switch {
			case name == "another version" && n == 0:
				section[3] ^= 1
			case name == "cut" && n == 0, name == "a part cut" && n > 0:
				section = section[:len(section)-1]
			}
			return section, nil
		}
		c, err := audit.New(config)
		if err == nil {
			_, err = c.Finish(nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// concluded returns everything in a report that does not depend on the event from which the check went on. The order of
// the organizations does.
func concluded(r audit.Report) string {
	lines := []string{fmt.Sprintln(r.Count, r.Texts, r.Damaged, len(r.Erasures), r.Logs)}
	for _, o := range r.Organizations {
		lines = append(lines, fmt.Sprintln(o.Organization, o.Events, o.Digest, o.Findings, o.Usage))
	}
	for _, f := range r.Findings {
		lines = append(lines, claimedFirst.ReplaceAllString(f.String(), "first")+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// forge renumbers events so that positions and sequences have no gap, and recomputes their hashes, like a forger who
// knows the format.
func (p *past) forge(events []audit.Event) {
	for i := range events {
		e := &events[i]
		e.Position, e.Sequence = int64(i)+1, int64(i)+1
		if e.Body != nil {
			e.Data = must(e.Canonical())
		}
		e.Body = must(domain.DecodeBody(e.Type, e.V, e.Data))
		e.Hash = domain.LeafHash(e.Leaf())
	}
	p.events = events
}

// change rewrites the body of the nth event of a type.
func change[B any](p *past, t domain.EventType, n int, do func(*B)) {
	for i := range p.events {
		if e := &p.events[i]; e.Type == t {
			if n--; n == 0 {
				e.Body = must(domain.DecodeBody(e.Type, e.V, e.Data))
				do(e.Body.(any).(*B))
			}
		}
	}
}

// TestSoundHistories: every decided history passes, and its usage is counted as it was charged.
func TestSoundHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPast(t)
		var ids []domain.PublicID
		for range rapid.IntRange(0, 25).Draw(t, "commands") {
			document, version := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "document"),
				rapid.Int32Range(1, 5).Draw(t, "version")
			switch rapid.IntRange(0, 10).Draw(t, "command") {
			case 10:
				p.do(&domain.ChangeBackfill{Origin: p.operator(), Versions: int64(version) - 1})
			case 9:
				p.do(&domain.SetCompanyStatus{
					Origin: p.operator(), Company: p.company, Status: rapid.SampledFrom(domain.CompanyStatuses()).Draw(t, "status"),
				})
			case 8:
				p.do(&domain.ChangeKey{Origin: p.operator(), Key: p.key, Name: new("accounting")})
				invite, code := domain.NewInviteMember(
					domain.InviteMember{Origin: p.operator(), Email: document + "@example.org", Role: domain.Viewer}, nil,
				)
				p.do(invite)
				if _, secret, _ := domain.ParseInvitationCode(code); version > 2 {
					p.do(&domain.AcceptInvitation{Origin: p.operator(), SecretSHA256: secret})
				}
			case 4:
				status := rapid.SampledFrom([]domain.MemberStatus{
					domain.MemberActive, domain.MemberDisabled, domain.MemberEnded,
				}).Draw(t, "status")
				p.do(&domain.ChangeMember{Origin: p.operator(), Email: "ana@example.org", Status: &status})
			case 5:
				p.rotate(rapid.SampledFrom([]time.Duration{0, 2 * time.Second}).Draw(t, "overlap"))
			case 0:
				p.reserve(document, version)
			case 1:
				if len(ids) > 0 {
					p.revoke(rapid.SampledFrom(ids).Draw(t, "id"))
				}
			default:
				ids = append(ids, p.register(document, version))
			}
		}
		r := p.audit()
		if r.Count != 0 || r.Events != int64(len(p.events)) || len(r.Organizations) != 1 ||
			r.Organizations[0].Events != r.Events {
			t.Fatalf("%+v", r)
		}
		used := map[string]int64{}
		for _, u := range r.Organizations[0].Usage {
			used[u.Period] += u.Used
		}
		for _, period := range []domain.Period{202611, 202612} {
			want := 2 * p.state.Used(domain.UsageKey{Organization: p.id, Period: period})
			if used[period.String()] != want {
				t.Fatalf("%s: %d used, want %d", period, used[period.String()], want)
			}
			delete(used, period.String())
		}
		if len(used) > 0 {
			t.Fatalf("other months are charged: %v", used)
		}
	})
}

// TestBackfillIsAudited: a registration that is charged to a backfill allowance when none is left, or to the month while
// some is, is found.
func TestBackfillIsAudited(t *testing.T) {
	for n, from := range map[int]int64{1: 0, 2: 0, 3: 7} {
		p := newPast(t)
		p.do(&domain.ChangeBackfill{Origin: p.operator(), Versions: 2})
		for version := range int32(3) {
			p.register("a", version+1)
		}
		if r := p.audit(); r.Count != 0 {
			t.Fatalf("%+v", r.Findings)
		}
		change(p, domain.RecordRegistered, n, func(b *domain.RecordRegisteredBody) { b.FromBackfill = from })
		p.forge(p.events)
		if r := p.audit(); r.Count == 0 || r.Findings[0].Check != audit.CheckHistory ||
			!strings.Contains(r.Findings[0].Expected.String(), "fromBackfill") {
			t.Errorf("version %d from %d: %+v", n, from, r.Findings)
		}
	}
}

// TestReservedBeforeClosing: a closed company can register only versions reserved before it was closed.
func TestReservedBeforeClosing(t *testing.T) {
	p := newPast(t)
	p.reserve("a", 1)
	p.do(&domain.SetCompanyStatus{Origin: p.operator(), Company: p.company, Status: domain.CompanyClosedStatus})
	before := len(p.events)
	p.register("a", 1)
	p.register("b", 1)
	if len(p.events) != before+1 {
		t.Errorf("%d events, want one registration", len(p.events)-before)
	}
	if r := p.audit(); r.Count != 0 {
		t.Errorf("%+v", r.Findings)
	}
}

// TestForgeries: histories with consistent hashes that no ledger can have written.
func TestForgeries(t *testing.T) {
	for name, test := range map[string]struct {
		forge func(p *past)
		want  audit.Check
		found string
	}{
		"superseded left out": {func(p *past) {
			p.events = slices.DeleteFunc(p.events, func(e audit.Event) bool { return e.Type == domain.RecordSuperseded })
		}, audit.CheckHistory, "integrity.superseded of version 1 next"},
		"superseded made up": {func(p *past) {
			i := slices.IndexFunc(p.events, func(e audit.Event) bool { return e.Type == domain.RecordSuperseded })
			p.events = append(p.events, p.events[i])
			p.events[len(p.events)-1].ID[15] ^= 1
		}, audit.CheckHistory, "integrity.superseded only"},
		"a late version called current": {func(p *past) {
			change(p, domain.RecordRegistered, 4, func(b *domain.RecordRegisteredBody) { b.Status = domain.StatusCurrent })
		}, audit.CheckHistory, "status superseded"},
		"revoked a second time": {func(p *past) {
			i := slices.IndexFunc(p.events, func(e audit.Event) bool { return e.Type == domain.RecordRevoked })
			p.events = append(p.events, p.events[i])
			p.events[len(p.events)-1].ID[15] ^= 1
		}, audit.CheckHistory, "a version that was not revoked before"},
		"one event twice": {func(p *past) {
			e := p.events[4]
			p.events = append(p.events, e)
		}, audit.CheckUnique, "event id"},
		"one reference, two documents": {func(p *past) {
			change(p, domain.RecordRegistered, 5, func(b *domain.RecordRegisteredBody) { b.DocumentReference = "a" })
		}, audit.CheckUnique, "document reference"},
		"one document, two references": {func(p *past) {
			var first domain.RecordRegisteredBody
			change(p, domain.RecordRegistered, 1, func(b *domain.RecordRegisteredBody) { first = *b })
			change(p, domain.RecordRegistered, 5, func(b *domain.RecordRegisteredBody) { b.DocumentID = first.DocumentID })
		}, audit.CheckUnique, "document id"},
		"one publicId, two versions": {func(p *past) {
			var first domain.RecordRegisteredBody
			change(p, domain.RecordRegistered, 1, func(b *domain.RecordRegisteredBody) { first = *b })
			change(p, domain.RecordRegistered, 5, func(b *domain.RecordRegisteredBody) {
				b.Payload, b.Record = first.Payload, first.Record
			})
		}, audit.CheckUnique, "publicId"},
		"a version above itself": {func(p *past) {
			change(p, domain.RecordRegistered, 1, func(b *domain.RecordRegisteredBody) { b.PreviousVersion = &b.Version })
		}, audit.CheckBinding, "previousVersion"},
		"charged to another month": {func(p *past) {
			change(p, domain.RecordRegistered, 1, func(b *domain.RecordRegisteredBody) { b.Period = 202512 })
		}, audit.CheckBinding, "month"},
		"a reservation that lives longer": {func(p *past) {
			change(p, domain.VersionReserved, 1, func(b *domain.VersionReservedBody) {
				b.ExpiresAt = b.ExpiresAt.Add(time.Hour)
			})
		}, audit.CheckBinding, "seven days"},
		"released twice": {func(p *past) {
			i := slices.IndexFunc(p.events, func(e audit.Event) bool { return e.Type == domain.VersionReleased })
			p.events = append(p.events, p.events[i])
			p.events[len(p.events)-1].ID[15] ^= 1
		}, audit.CheckHistory, "a reservation that was pending"},
		"never created":     {func(p *past) { p.events = p.events[1:] }, audit.CheckHistory, "organization.created"},
		"without its grant": {func(p *past) { p.events = slices.Delete(p.events, 4, 5) }, audit.CheckHistory, "the grant"},
		"without its company": {func(p *past) {
			p.events = slices.Delete(p.events, 3, 4)
		}, audit.CheckHistory, "the company"},
		"in a closed company": {func(p *past) {
			p.do(&domain.SetCompanyStatus{Origin: p.operator(), Company: p.company, Status: domain.CompanyClosedStatus})
			closed := p.events[len(p.events)-1]
			closed.OccurredAt = p.events[4].OccurredAt
			p.events = slices.Insert(p.events[:len(p.events)-1], 5, closed)
		}, audit.CheckHistory, "the opening of the closed company"},
		"closed twice": {func(p *past) {
			p.do(&domain.SetCompanyStatus{Origin: p.operator(), Company: p.company, Status: domain.CompanyClosedStatus})
			p.events = append(p.events, p.events[len(p.events)-1])
			p.events[len(p.events)-1].ID[15] ^= 1
		}, audit.CheckHistory, "of another status"},
		"joined without an invitation": {func(p *past) {
			p.do(&domain.ChangeMember{Origin: p.operator(), Email: "ana@example.org", Status: new(domain.MemberDisabled)})
			invite, code := domain.NewInviteMember(
				domain.InviteMember{Origin: p.operator(), Email: "bob@example.org", Role: domain.Viewer}, nil,
			)
			p.do(invite)
			_, secret, _ := domain.ParseInvitationCode(code)
			p.do(&domain.AcceptInvitation{Origin: p.operator(), SecretSHA256: secret})
			change(p, domain.MemberChanged, 1, func(b *domain.MemberChangedBody) { b.Status = domain.MemberInvited })
			change(p, domain.MemberJoined, 1, func(b *domain.MemberJoinedBody) { b.MemberID = p.state.Key(p.key).Member })
		}, audit.CheckHistory, "can follow"},
		"a member invited": {func(p *past) {
			invite, _ := domain.NewInviteMember(
				domain.InviteMember{Origin: p.operator(), Email: "bob@example.org", Role: domain.Viewer}, nil,
			)
			p.do(invite)
			change(p, domain.InvitationMade, 1, func(b *domain.MemberInvitedBody) { b.MemberID = p.state.Key(p.key).Member })
		}, audit.CheckHistory, "new or invited"},
		"a sign-in link by somebody else": {func(p *past) {
			p.signInLink()
			p.events[len(p.events)-1].Actor = domain.MemberActor(p.state.Key(p.key).Member)
		}, audit.CheckHistory, "an act of the operator"},
		"a sign-in link of nobody": {func(p *past) {
			p.signInLink()
			change(p, domain.SignInLinkMade, 1, func(b *domain.SignInLinkMadeBody) { b.MemberID[15] ^= 1 })
		}, audit.CheckHistory, "the member"},
		"a passkey of somebody else": {func(p *past) {
			p.do(&domain.AddMember{Origin: p.operator(), Email: "bob@example.org", Role: domain.Viewer})
			member := p.state.Key(p.key).Member
			p.do(&domain.AddPasskey{
				Origin: domain.Origin{Organization: p.id, Actor: domain.MemberActor(member), RequestID: "test", Console: true},
				Member: member,
				Name:   "laptop", Credential: domain.Credential{CredentialID: []byte{1}, PublicKey: []byte{1}},
			})
			if r := p.audit(); r.Count != 0 {
				p.t.Fatal("before the forgery:", r.Findings)
			}
			bob := p.state.MemberByEmail(p.id, "bob@example.org").ID
			change(p, domain.PasskeyAdded, 1, func(b *domain.PasskeyAddedBody) { b.MemberID = bob })
		}, audit.CheckHistory, "an act of the member"},
		"time runs back": {func(p *past) {
			p.events[3].OccurredAt = p.events[0].OccurredAt.Add(-time.Second)
		}, audit.CheckTime, "not before"},
		"superseded by another": {func(p *past) {
			change(p, domain.RecordSuperseded, 1, func(b *domain.RecordSupersededBody) { b.ByVersion = 9 })
		}, audit.CheckHistory, "integrity.superseded only"},
		"revoked under another's publicId": {func(p *past) {
			p.events[len(p.events)-1].Subject = p.events[len(p.events)-3].Subject
		}, audit.CheckHistory, "publicId"},
		"revoked for another company": {func(p *past) {
			company := &domain.CreateCompany{Origin: p.operator(), Reference: "c-2"}
			p.do(company)
			p.do(&domain.SetAccess{Origin: p.operator(), Company: company.Outcome.ID, Key: p.key, Enabled: true})
			i := slices.IndexFunc(p.events, func(e audit.Event) bool { return e.Type == domain.RecordRevoked })
			revoked := p.events[i]
			revoked.Company = company.Outcome.ID
			p.events = append(slices.Delete(p.events, i, i+1), revoked)
		}, audit.CheckHistory, "the document's company"},
		"in another shard": {func(p *past) { p.events[3].Shard = 1 }, audit.CheckBinding, "the organization's shard 0"},
		"a certificate signed by nobody": {func(p *past) {
			change(p, domain.CertificateIssued, 1, func(b *domain.CertificateIssuedBody) {
				b.Signature = strings.Repeat("A", 86)
			})
		}, audit.CheckSignature, "trusted key"},
		"a certificate of other content": {func(p *past) {
			change(p, domain.ArtifactVersionRegistered, 1, func(b *domain.ArtifactVersionRegisteredBody) { b.SizeBytes++ })
		}, audit.CheckHistory, "a certificate of the version's hash and size"},
		"more than what it says": {func(p *past) {
			p.events[3].Data = bytes.Replace(p.events[3].Data, []byte("}"), []byte(`,"x":1}`), 1)
		}, audit.CheckCanonical, "canonical"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			p.live()
			if r := p.audit(); r.Count != 0 {
				t.Fatalf("before the forgery: %v", r.Findings)
			}
			test.forge(p)
			p.forge(p.events)
			r := p.audit()
			if r.Count == 0 || !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool {
				return f.Check == test.want && strings.Contains(f.Expected.String(), test.found)
			}) {
				t.Errorf("%v", r.Findings)
			}
		})
	}
}

// TestKeys: signatures by retired keys verify, those by revoked keys are reported as such, all others are findings.
func TestKeys(t *testing.T) {
	p := newPast(t)
	p.register("a", 1)
	key := p.registrar.Signer.Key()
	revoked := evidence.RevokedKey{
		KeyID: key.KeyID, FingerprintSHA256: key.FingerprintSHA256, Reason: evidence.ReasonCompromised,
		Since: "2026-12-01T00:00:00Z",
	}
	keys := func(status evidence.KeyStatus, revoked ...evidence.RevokedKey) func(*audit.Config) {
		var pinned []evidence.TrustedKey
		if status != "" {
			pinned = []evidence.TrustedKey{{PublicKey: key, Status: status, Since: "2026-12-01T00:00:00Z"}}
		}
		trusted := must(evidence.NewTrustedKeys(pinned, revoked, nil))
		return func(c *audit.Config) { c.Trusted = trusted }
	}
	for name, test := range map[string]struct {
		keys     func(*audit.Config)
		findings int64
		note     string
	}{
		"retired":                {keys(evidence.KeyRetired), 0, ""},
		"revoked":                {keys(evidence.KeyActive, revoked), 0, "1 signatures by the revoked key " + key.KeyID},
		"revoked and not listed": {keys("", revoked), 0, "1 signatures by revoked keys that are not in"},
		"not trusted":            {keys(""), 1, ""},
	} {
		r := p.audit(test.keys)
		if r.Count != test.findings || test.note != "" && !strings.Contains(fmt.Sprint(r.NotChecked), test.note) {
			t.Errorf("%s: %v, not checked %q", name, r.Findings, r.NotChecked)
		}
	}
}

// TestErasedTexts: a text erased by an event is not checked and is no finding; a text missing without an event is a
// finding.
func TestErasedTexts(t *testing.T) {
	p := newPast(t)
	operator := domain.Origin{Organization: p.id, Actor: domain.OperatorActor}
	name := p.events[0].Stored[0]
	p.events[0].Stored = []audit.Text{{ID: name.ID, Salt: name.Salt}}
	if r := p.audit(); r.Count != 1 || r.Organizations[0].First.Check != audit.CheckText ||
		r.Organizations[0].First.Sequence != 1 {
		t.Errorf("gone: %v", r.Findings)
	}
	p.do(&domain.EraseTexts{Origin: operator, Subject: p.id.String(), Texts: []domain.TextID{name.ID}})
	if r := p.audit(); r.Count != 0 || r.Organizations[0].Sums.Erased != 1 ||
		!strings.Contains(r.NotChecked[0].String(), "1 texts that were erased") {
		t.Errorf("erased: %v, not checked %v", r.Findings, r.NotChecked)
	}
	if r := p.audit(); len(r.Erasures) != 1 ||
		r.Erasures[0] != (audit.Erasure{Organization: p.id, Text: name.ID, Sequence: p.events[len(p.events)-1].Sequence}) {
		t.Errorf("erased: %+v", r.Erasures)
	}
	first := &p.events[0]
	for _, more := range []audit.Text{first.Stored[0], {Salt: name.Salt, Body: name.Body}} {
		stored := first.Stored
		first.Stored = append(slices.Clone(stored), more)
		if r := p.audit(); r.Count != 1 || r.Findings[0].Check != audit.CheckText {
			t.Errorf("a text besides: %v", r.Findings)
		}
		first.Stored = stored
	}
	if r := p.audit(func(c *audit.Config) { c.WithoutTexts = true }); r.Count != 0 ||
		!strings.Contains(fmt.Sprint(r.NotChecked), "not supplied") {
		t.Errorf("without texts: %v, not checked %v", r.Findings, r.NotChecked)
	}
}

// TestFirstFinding: a gap is found at the first missing event, and later findings do not hide it.
func TestFirstFinding(t *testing.T) {
	p := newPast(t)
	for i := range 300 {
		p.register(fmt.Sprint(i), 1)
	}
	p.events = slices.Delete(p.events, 100, 101)
	for i := 150; i < len(p.events); i++ {
		p.events[i].Hash[0] ^= 1
	}
	r := p.audit()
	first := r.Organizations[0].First
	if first.Check != audit.CheckPosition && first.Check != audit.CheckSequence || first.Sequence != 101 ||
		r.Count < 150 || len(r.Findings) > 100 {
		t.Errorf("%d findings, %d kept, first %v", r.Count, len(r.Findings), first)
	}
}

// TestDamageBehindMuch: all findings, not only the kept ones, decide whether the log can be replayed.
func TestDamageBehindMuch(t *testing.T) {
	p := newPast(t)
	for i := range 150 {
		p.register(fmt.Sprint(i), 1)
	}
	stranger := func(c *audit.Config) { c.Trusted = must(evidence.NewTrustedKeys(nil, nil, nil)) }
	if r := p.audit(stranger); r.Damaged || r.Count != 150 {
		t.Errorf("no key is trusted: damaged %t, %d findings", r.Damaged, r.Count)
	}
	p.events[len(p.events)-1].Hash[0] ^= 1
	if r := p.audit(stranger); !r.Damaged || r.Count != 151 || slices.ContainsFunc(r.Findings, func(f audit.Finding) bool {
		return f.Check == audit.CheckHash
	}) {
		t.Errorf("and a hash is wrong: damaged %t, %d findings, %v", r.Damaged, r.Count, r.Findings)
	}
}

// TestForeign: events of another ledger or of another organization's companies are findings.
func TestForeign(t *testing.T) {
	p, other := newPast(t), newPast(t)
	p.register("a", 1)
	p.certify("text")
	r := p.audit(func(c *audit.Config) { c.Issuer = "https://other.example" })
	if r.Count != 2 || r.Findings[0].Check != audit.CheckBinding || r.Findings[1].Check != audit.CheckBinding {
		t.Errorf("signed for another issuer: %v", r.Findings)
	}
	registered := slices.IndexFunc(p.events, func(e audit.Event) bool { return e.Type == domain.RecordRegistered })
	p.events[registered].Company = other.company
	p.forge(p.events)
	p.events = append(slices.Clone(other.events), p.events...)
	r = p.audit(func(c *audit.Config) { c.Whole = false })
	if !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool {
		return f.Organization == p.id.String() && strings.HasPrefix(f.Expected.String(), "the company "+other.company.String())
	}) {
		t.Errorf("with the company of another organization: %v", r.Findings)
	}
}

// TestHead: the digest of a history can be computed by the description in the README.
func TestHead(t *testing.T) {
	p := newPast(t)
	digest := make([]byte, sha256.Size)
	for _, e := range p.events {
		sum := sha256.Sum256(slices.Concat(digest, e.Hash[:]))
		digest = sum[:]
	}
	if r := p.audit(); r.Organizations[0].Digest != fmt.Sprintf("%x", digest) {
		t.Errorf("%s, want %x", r.Organizations[0].Digest, digest)
	}
}

// known is an in-memory audit.Former.
type known struct {
	id     domain.OrganizationID
	hashes [][sha256.Size]byte
}

func (k *known) Organization() domain.OrganizationID { return k.id }

func (k *known) Next() (hash [sha256.Size]byte, err error) {
	if len(k.hashes) == 0 {
		return hash, io.EOF
	}
	hash, k.hashes = k.hashes[0], k.hashes[1:]
	return hash, nil
}

// torn is a former history with a read error before its end.
type torn struct{ known }

var errTorn = errors.New("torn")

func (k *torn) Next() (hash [sha256.Size]byte, err error) {
	if hash, err = k.known.Next(); err != nil {
		err = errTorn
	}
	return hash, err
}

// TestFormerThatCannotBeRead: a read error in a former history, before or after this one's end, ends the audit with
// that error.
func TestFormerThatCannotBeRead(t *testing.T) {
	p := newPast(t)
	for _, read := range []int{1, len(p.events)} {
		former := &torn{known{id: p.id}}
		for _, e := range p.events[:read] {
			former.hashes = append(former.hashes, e.Hash)
		}
		c := must(audit.New(audit.Config{
			Issuer: p.registrar.Issuer, Trusted: p.trusted, Parts: &memory{}, Whole: true, Former: former,
		}))
		err := c.Add(slices.Clone(p.events))
		if err == nil {
			_, err = c.Finish(nil)
		}
		if !errors.Is(err, errTorn) {
			t.Errorf("%d events read: %v", read, err)
		}
	}
}

// TestFormer: a missing or changed event is found; a new event is no finding.
func TestFormer(t *testing.T) {
	p := newPast(t)
	var hashes [][sha256.Size]byte
	for _, e := range p.events {
		hashes = append(hashes, e.Hash)
	}
	last := int64(len(hashes))
	for name, test := range map[string]struct {
		hashes [][sha256.Size]byte
		want   int64 // sequence; 0: no finding
	}{
		"the same":           {hashes, 0},
		"one is new":         {hashes[:last-1], 0},
		"one is gone":        {append(slices.Clone(hashes), hashes[0]), last + 1},
		"the last is other":  {append(slices.Clone(hashes[:last-1]), hashes[0]), last},
		"the first is other": {append(slices.Clone(hashes[1:2]), hashes[1:]...), 1},
	} {
		r := p.audit(func(c *audit.Config) { c.Former = &known{p.id, test.hashes} })
		if found := r.Count == 1 && r.Findings[0].Check == audit.CheckFormer &&
			r.Findings[0].Sequence == test.want; r.Count != 0 && !found || found != (test.want > 0) {
			t.Errorf("%s: %v", name, r.Findings)
		}
	}
}

// TestEndedActors: acts of an ended key or member stay in the log as facts, and the audit reports them.
func TestEndedActors(t *testing.T) {
	for name, test := range map[string]struct {
		end   func(p *past)
		found string
	}{
		"a revoked key": {
			func(p *past) { p.do(&domain.RevokeKey{Origin: p.operator(), Key: p.key}) },
			"no act of the key after it was revoked at ",
		},
		"a key whose life was shortened": {func(p *past) {
			p.rotate(time.Second)
			p.now = p.now.Add(time.Second)
		}, "no act of the key after it expired at "},
		"an ended member": {func(p *past) {
			ended := domain.MemberEnded
			p.do(&domain.ChangeMember{Origin: p.operator(), Email: "ana@example.org", Status: &ended})
		}, "an act of an active member, not of usr_"},
		"a key of nobody": {func(p *past) {
			p.actor = domain.ParseActor("key_01h2xcejqtf2nbrexx3vqjhp41")
		}, "an act of a key of the organization"},
		"nobody": {
			func(p *past) { p.actor = domain.ParseActor("somebody") }, "an act of a key, a member, the operator or the service",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			company := func(reference string) *domain.CreateCompany {
				cause := p.cause()
				if p.actor != (domain.Actor{}) {
					cause.Actor = p.actor
				}
				return &domain.CreateCompany{Origin: cause, Reference: reference}
			}
			p.unjudged(company("before"))
			test.end(p)
			sound := p.audit()
			sequence := int64(len(p.events)) + 1
			p.unjudged(company("after"))
			r := p.audit()
			if sound.Count != 0 || r.Count != 1 || r.Damaged || r.Findings[0].Check != audit.CheckActor ||
				r.Findings[0].Sequence != sequence ||
				!strings.HasPrefix(r.Findings[0].Expected.String(), test.found) {
				t.Errorf("%+v %+v", sound.Findings, r.Findings)
			}
			// In a history without its beginning, nothing is known about keys.
			p.events = p.events[3:]
			for _, f := range p.audit().Findings {
				if f.Check == audit.CheckActor {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// TestClockReset: time may go back only at a reset event.
func TestClockReset(t *testing.T) {
	const ahead = 40 * 24 * time.Hour
	history := func(change func(p *past)) audit.Report {
		t.Helper()
		p := newPast(t)
		p.register("a", 1)
		p.now = p.now.Add(ahead)
		p.register("a", 2)
		p.register("b", 1)
		from := p.now
		p.now = p.now.Add(-ahead)
		p.do(&domain.ResetClock{Origin: p.operator(), From: from})
		p.register("a", 3)
		change(p)
		p.forge(p.events)
		whole := p.audit()
		if alone := p.audit(func(c *audit.Config) { c.Whole = false }); (alone.Count == 0) != (whole.Count == 0) {
			t.Errorf("a shard has %d findings, the organization by itself %d", whole.Count, alone.Count)
		}
		return whole
	}
	if r := history(func(*past) {}); r.Count != 0 {
		t.Errorf("a sound history: %+v", r.Findings)
	}
	reset := func(p *past) int {
		return slices.IndexFunc(p.events, func(e audit.Event) bool { return e.Type == domain.ClockReset })
	}
	for name, forge := range map[string]func(p *past){
		"without the event": func(p *past) { i := reset(p); p.events = slices.Delete(p.events, i, i+1) },
		"from an earlier date": func(p *past) {
			change(p, domain.ClockReset, 1, func(b *domain.ClockResetBody) { b.From = b.From.Add(-time.Hour) })
		},
		"to a later date":     func(p *past) { i := reset(p); p.events[i].OccurredAt = p.events[i-1].OccurredAt },
		"earlier by an event": func(p *past) { i := reset(p); p.events[i], p.events[i-1] = p.events[i-1], p.events[i] },
		"a second time": func(p *past) {
			again := p.events[reset(p)]
			again.ID[15] ^= 1
			again.OccurredAt = p.events[len(p.events)-1].OccurredAt
			p.events = append(p.events, again)
		},
		"time goes back again after it": func(p *past) {
			p.events[len(p.events)-1].OccurredAt = p.events[reset(p)].OccurredAt.Add(-time.Second)
		},
	} {
		r := history(forge)
		found := r.Findings
		if !slices.ContainsFunc(found, func(f audit.Finding) bool { return f.Check == audit.CheckTime }) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// signInLink has the operator create a sign-in link.
func (p *past) signInLink() {
	link, _ := domain.NewMakeSignInLink(
		domain.MakeSignInLink{Origin: p.operator(), Member: p.state.Key(p.key).Member}, p.events[0].OccurredAt,
	)
	p.do(link)
	if r := p.audit(); r.Count != 0 {
		p.t.Fatal("before the forgery:", r.Findings)
	}
}

// TestFindingsAreShort: a finding keeps only the beginning of a hostile history's texts.
func TestFindingsAreShort(t *testing.T) {
	p := newPast(t)
	p.register("d", 1)
	last := &p.events[len(p.events)-1]
	last.Actor = domain.ParseActor(strings.Repeat("€", 1<<20))
	for _, f := range p.audit().Findings {
		if len(f.Expected.String())+len(f.Found.String()) > 3000 || !utf8.ValidString(f.Found.String()) {
			t.Errorf("%s: %d bytes", f.Check, len(f.Expected.String())+len(f.Found.String()))
		}
	}
	if !slices.ContainsFunc(p.audit().Findings, func(f audit.Finding) bool {
		return f.Check == audit.CheckActor && strings.HasSuffix(f.Found.String(), "€…")
	}) {
		t.Error("the actor is not found")
	}
}

// TestManyFindingsOfOneEvent: all findings are counted, and the first ones are kept.
func TestManyFindingsOfOneEvent(t *testing.T) {
	p := newPast(t)
	p.register("d", 1)
	last := &p.events[len(p.events)-1]
	for i := range 50_000 {
		text := audit.Text{Salt: []byte{1}}
		binary.BigEndian.PutUint32(text.ID[4:], uint32(i)+1)
		last.Stored = append(last.Stored, text)
	}
	if r := p.audit(); r.Count != 50_000 || len(r.Findings) != 100 || r.Findings[99].Sequence != last.Sequence ||
		r.Damaged {
		t.Errorf("%d findings, %d kept, damaged %t", r.Count, len(r.Findings), r.Damaged)
	}
	last.Stored = nil
	for i := range p.events {
		p.events[i].Hash[0] ^= 1
	}
	if r := p.audit(); !r.Damaged {
		t.Error("a wrong hash is no damage")
	}
}

// TestLargeDataIsNotKept: data that the state keeps to the end is no larger than the ledger writes it.
func TestLargeDataIsNotKept(t *testing.T) {
	p := newPast(t)
	events := p.events
	body := &domain.WebhookCreatedBody{
		WebhookID: domain.NewID[domain.WebhookID](p.now), Types: []domain.EventType{}, Secret: make([]byte, 1<<20),
	}
	body.URL = domain.TextRef{ID: domain.NewID[domain.TextID](p.now), SHA256: strings.Repeat("0", 64)}
	p.forge(append(events, audit.Event{Event: domain.Event{
		Organization: p.id, Shard: p.id.Shard(), ID: domain.NewID[domain.EventID](p.now), V: 1, Type: domain.WebhookCreated,
		Subject: "x",
		Actor:   domain.OperatorActor, OccurredAt: p.now, Body: body,
	}}))
	r := p.audit(func(c *audit.Config) { c.WithoutTexts = true })
	if r.Count != 1 || r.Findings[0].Check != audit.CheckHistory ||
		!strings.Contains(r.Findings[0].Found.String(), "bytes of data") {
		t.Errorf("%v", r.Findings)
	}
}
