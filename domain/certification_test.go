package domain_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// certification is a state with one organization, without a database. It already has the data that commands would load,
// because everything happened in it.
type certification struct {
	t      *testing.T
	state  *domain.State
	origin domain.Origin
	now    time.Time
	log    []domain.Event
}

func newCertificationCase(t *testing.T) *certification {
	t.Helper()
	plans, err := domain.DefaultPlans()
	check(t, err)
	w := &certification{t: t, state: domain.NewState(plans), now: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
	id := domain.NewOrganizationID(w.now, 1)
	w.origin = domain.Origin{Organization: id, Actor: domain.OperatorActor, RequestID: "test"}
	w.must(&domain.CreateOrganization{Origin: w.origin, Name: "Example", Plan: "gratis"})
	return w
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do decides a command and applies its events.
func (w *certification) do(c domain.Command) error {
	w.t.Helper()
	drafts, err := c.Decide(w.state, w.now)
	if err != nil {
		return err
	}
	events, err := w.state.Append(w.origin, w.now, drafts)
	check(w.t, err)
	w.log = append(w.log, events...)
	return nil
}

func (w *certification) must(c domain.Command) {
	w.t.Helper()
	check(w.t, w.do(c))
}

func (w *certification) refused(c domain.Command, code domain.Code) {
	w.t.Helper()
	var refused *domain.Error
	if err := w.do(c); !errors.As(err, &refused) || refused.Code != code {
		w.t.Errorf("%T: %v, want %s", c, err, code)
	}
}

func (w *certification) register(artifact domain.ArtifactID, content string) *domain.RegisterArtifactVersion {
	w.t.Helper()
	c := domain.NewRegisterArtifactVersion(domain.RegisterArtifactVersion{
		Origin: w.origin, Artifact: artifact,
		Content: domain.Content{
			Kind: domain.TextContent, Title: "Title", SHA256: sha256.Sum256([]byte(content)), SizeBytes: int64(len(content)),
		},
	}, w.now)
	return c
}

func (w *certification) review(r *domain.RegisterArtifactVersion, outcome domain.ReviewOutcome) *domain.DeclareReview {
	w.t.Helper()
	c := &domain.DeclareReview{
		Origin: w.origin, Artifact: r.Artifact, Version: r.Version, Outcome: outcome, Statement: "Read.",
		SHA256: r.Content.SHA256,
	}
	return c
}

func (w *certification) approve(r *domain.RegisterArtifactVersion) *domain.ApproveArtifactVersion {
	w.t.Helper()
	return &domain.ApproveArtifactVersion{Origin: w.origin, Version: r.Version, Statement: "Approved."}
}

func (w *certification) certify(r *domain.RegisterArtifactVersion) *domain.IssueCertificate {
	w.t.Helper()
	signer := evidence.GenerateSigner()
	title := "Title"
	registrar := domain.Registrar{Issuer: "https://ledger.example", Secret: []byte("secret"), Signer: signer}
	c, err := registrar.Certify(
		w.origin, domain.MemberID{}, r.Version, r.Content.SHA256, r.Content.SizeBytes, domain.Published{Title: &title},
		w.now,
	)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// TestRegisteredOnly: a version without an analysis cannot advance.
func TestRegisteredOnly(t *testing.T) {
	w := newCertificationCase(t)
	r := w.register(domain.ArtifactID{}, "content")
	drafts, err := r.Decide(w.state, w.now)
	check(t, err)
	_, err = w.state.Append(w.origin, w.now, drafts[:1])
	check(t, err)
	w.refused(w.review(r, domain.ReviewAccepted), domain.InvalidState)
	w.refused(w.approve(r), domain.InvalidState)
	w.refused(w.certify(r), domain.InvalidState)
	_, err = w.state.Append(w.origin, w.now, drafts[1:])
	check(t, err)
	w.must(w.review(r, domain.ReviewAccepted))
	w.must(w.review(r, domain.ReviewRequested))
	w.refused(w.approve(r), domain.InvalidState) // the latest review counts
}

// TestCertificationHistory: a whole history is encoded, decoded and replayed to the same bytes and hashes, and no event
// can occur twice or without the earlier ones.
func TestCertificationHistory(t *testing.T) {
	w := newCertificationCase(t)
	w.must(&domain.AddCredits{Origin: w.origin, Credits: 5})
	w.must(&domain.ChangeRetention{Origin: w.origin, Days: 30})
	first := w.register(domain.ArtifactID{}, "one")
	first.Stored = true
	w.must(first)
	w.must(w.review(first, domain.ReviewRequested))
	w.must(w.review(first, domain.ReviewAccepted))
	w.must(w.approve(first))
	issue := w.certify(first)
	w.must(issue)
	second := w.register(first.Artifact, "one")
	w.must(second)
	if d := second.Outcome.Analysis.Detectors; d[len(d)-1].Outcome != "finding" {
		t.Errorf("the same bytes again: %+v", d)
	}
	w.must(w.review(second, domain.ReviewAccepted))
	w.must(w.approve(second))
	w.must(w.certify(second))
	w.must(&domain.RevokeCertificate{Origin: w.origin, PublicID: issue.Outcome.Body.PublicID, Reason: "wrong"})
	gone := &domain.EraseContent{Origin: w.origin, Version: first.Version}
	w.must(gone)
	before := len(w.log)
	w.must(gone) // erasing again changes nothing
	if len(w.log) != before {
		t.Error("bytes were erased twice")
	}
	w.must(&domain.EraseTexts{
		Origin: w.origin, Subject: first.Artifact.String(), Texts: []domain.TextID{issue.Outcome.Body.Payload.ID},
	})

	replayed := domain.NewState(domain.Plans{})
	for i := range w.log {
		e := w.log[i]
		body, err := domain.DecodeBody(e.Type, e.V, e.Data)
		check(t, err)
		again, err := domain.NewState(domain.Plans{}).Append(domain.Origin{}, w.now, []domain.Draft{{Body: body}})
		if err == nil && e.Type != domain.OrganizationCreated {
			t.Errorf("%s can be the first event of nothing: %v", e.Type, again)
		}
		if !reflect.DeepEqual(body, e.Body) {
			t.Errorf("%s: %+v, decoded %+v", e.Type, e.Body, body)
		}
		e.Body, e.Texts = body, nil
		if domain.LeafHash(e.Leaf()) != w.log[i].Hash {
			t.Errorf("%s: another hash", e.Type)
		}
		check(t, replayed.Apply(&e))
		repeated := e
		repeated.Sequence++
		switch e.Type {
		case domain.CreditsAdded, domain.RetentionChanged, domain.TextsErased, domain.ReviewDeclared,
			domain.OrganizationCreated:
			// may occur again
		default:
			if replayed.Apply(&repeated) == nil {
				t.Errorf("%s was applied twice", e.Type)
			}
			replayed.Organization(e.Organization).Sequence = e.Sequence // the refused repetition used up one
		}
	}
}

// TestRevokedIsNotReplaced: a revoked certificate is not replaced by a later one.
func TestRevokedIsNotReplaced(t *testing.T) {
	w := newCertificationCase(t)
	certify := func(artifact domain.ArtifactID, content string) (*domain.RegisterArtifactVersion, *domain.IssueCertificate) {
		r := w.register(artifact, content)
		w.must(r)
		w.must(w.review(r, domain.ReviewAccepted))
		w.must(w.approve(r))
		issue := w.certify(r)
		w.must(issue)
		return r, issue
	}
	first, issue := certify(domain.ArtifactID{}, "one")
	w.must(&domain.RevokeCertificate{Origin: w.origin, PublicID: issue.Outcome.Body.PublicID, Reason: "wrong"})
	certify(first.Artifact, "two")
	certify(first.Artifact, "three")
	var replaced []domain.PublicID
	for _, e := range w.log {
		if b, ok := e.Body.(*domain.CertificateReplacedBody); ok {
			replaced = append(replaced, b.PublicID)
		}
	}
	if len(replaced) != 1 || replaced[0] == issue.Outcome.Body.PublicID {
		t.Errorf("replaced %v; revoked %s", replaced, issue.Outcome.Body.PublicID)
	}
}

// TestCertificationOfAnother: one organization's objects are unknown to every command of another, whatever a handler
// has checked before.
func TestCertificationOfAnother(t *testing.T) {
	w := newCertificationCase(t)
	r := w.register(domain.ArtifactID{}, "content")
	w.must(r)
	other := *w
	id := domain.NewOrganizationID(w.now, 1)
	other.origin.Organization = id
	other.must(&domain.CreateOrganization{Origin: other.origin, Name: "Other", Plan: "gratis"})
	other.refused(other.register(r.Artifact, "content"), domain.NotFound)
	other.refused(other.review(r, domain.ReviewAccepted), domain.NotFound)
	w.must(w.review(r, domain.ReviewAccepted))
	other.refused(other.approve(r), domain.NotFound)
	w.must(w.approve(r))
	other.refused(other.certify(r), domain.NotFound)
	issue := w.certify(r)
	w.must(issue)
	other.refused(
		&domain.RevokeCertificate{Origin: other.origin, PublicID: issue.Outcome.Body.PublicID, Reason: "not ours"},
		domain.CertificateNotFound,
	)
}

// TestCertificationLimits: an artifact's versions and reviews are limited.
func TestCertificationLimits(t *testing.T) {
	w := newCertificationCase(t)
	w.must(&domain.AddCredits{Origin: w.origin, Credits: domain.MaxArtifactVersions})
	r := w.register(domain.ArtifactID{}, "content")
	w.must(r)
	for range domain.MaxReviewsOfAVersion {
		w.must(w.review(r, domain.ReviewAccepted))
	}
	w.refused(w.review(r, domain.ReviewAccepted), domain.InvalidState)
	for range domain.MaxArtifactVersions - 1 {
		w.must(w.register(r.Artifact, "content"))
	}
	w.refused(w.register(r.Artifact, "content"), domain.InvalidState)
}

// TestEventsNameTextsOnly: every type that can name a text is searched when a subject is erased, and no event contains
// the text itself.
func TestEventsNameTextsOnly(t *testing.T) {
	types := domain.TypesWithTexts()
	w := newCertificationCase(t)
	r := w.register(domain.ArtifactID{}, "one")
	w.must(r)
	w.must(w.review(r, domain.ReviewAccepted))
	w.must(w.approve(r))
	w.must(w.certify(r))
	seen := 0
	for _, e := range w.log {
		refs := domain.ErasableTexts(e.Body)
		if len(refs) != len(e.Texts) || len(refs) > 0 != slices.Contains(types, e.Type) {
			t.Errorf("%s has %d texts and names %d as erasable", e.Type, len(e.Texts), len(refs))
		}
		for i, text := range e.Texts {
			seen++
			if refs[i] != text.Ref() {
				t.Errorf("%s: a text is not the one it names", e.Type)
			}
			if word, err := json.Marshal(text.Body); err != nil || bytes.Contains(e.Data, word) {
				t.Errorf("%s holds the text itself: %v", e.Type, err)
			}
		}
	}
	if seen != 5 {
		t.Errorf("%d texts", seen)
	}
}
