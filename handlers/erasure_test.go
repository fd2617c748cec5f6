package handlers_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/projections/query"
)

// texts counts the organization's texts that still contain the words.
func (s *service) texts(words string) (n int64) {
	s.t.Helper()
	check(s.t,
		s.Pool.QueryRow(context.Background(),
			"SELECT count(*) FROM texts WHERE shard = $1 AND organization_id = $2 AND body LIKE '%'||$3||'%'",
			s.org.ID.Shard(), [16]byte(s.org.ID), words).Scan(&n))
	return n
}

// A certificate publishes no text that was erased after the certificate was signed.
func TestErasedBeforeCertificate(t *testing.T) {
	for field, subject := range map[string]func(*service, workVersion) string{
		domain.PublicTitle:            func(_ *service, v workVersion) string { return v.artifact },
		domain.PublicOrganizationName: func(s *service, _ workVersion) string { return s.org.ID.String() },
	} {
		t.Run(field, func(t *testing.T) {
			var signing atomic.Pointer[func()]
			s := open(t, options{config: func(c *handlers.Config) {
				keys := c.Keys
				c.Keys = func() action.Keys { // called after the texts have been read
					if act := signing.Swap(nil); act != nil {
						(*act)()
					}
					return keys()
				}
			}})
			v := s.registeredText("Very personal words", "bytes")
			s.reviewed(v, "accepted").is(http.StatusCreated)
			s.approved(v).is(http.StatusCreated)
			act := func() { s.erase(subject(s, v)) }
			signing.Store(&act)
			s.certified(v, field).refuses(http.StatusConflict, domain.InvalidState)
			if left := s.texts("Very personal words") + s.texts("Example"); left != 1 {
				t.Errorf("%d texts are left, want that of the other subject", left)
			}
			s.certified(v).is(http.StatusCreated)
			s.Audit(t)
		})
	}
}

// The description and address of a destination are erased by the change that replaces them.
func TestReplacedDestinationsAreErased(t *testing.T) {
	s := open(t, options{})
	made := s.post(
		integrity+"/webhooks", body{"url": "https://hooks.example/first-token", "description": "Ana's first"},
	).is(http.StatusCreated)
	path := integrity + "/webhooks/" + made["id"].(string)
	patch := func(change body) { s.send(http.MethodPatch, path, s.org.Secret, change).is(http.StatusOK) }
	want := func(what string, first, second, description int64) {
		t.Helper()
		equal(
			t, what, []int64{s.texts("first-token"), s.texts("second-token"), s.texts("Ana")},
			[]int64{first, second, description},
		)
		s.Audit(t)
	}
	once := s.send(
		http.MethodPost, certificationAction+"/artifacts", s.org.Secret,
		body{"title": "Once", "kind": "text", "text": "once"}, idempotencyKey, "once",
	).is(http.StatusCreated)
	want("created", 1, 0, 1)
	patch(body{"enabled": false})
	want("disabled", 1, 0, 1)
	patch(body{"url": "https://hooks.example/second-token"})
	want("another address", 0, 1, 1)
	patch(body{"description": nil})
	want("no description", 0, 1, 0)
	patch(body{"description": "Ana's second"})
	s.send(http.MethodDelete, path, s.org.Secret, nil).is(http.StatusOK)
	want("deleted", 0, 0, 0)
	again := s.send(
		http.MethodPost, certificationAction+"/artifacts", s.org.Secret,
		body{"title": "Once", "kind": "text", "text": "once"}, idempotencyKey, "once",
	)
	equal(t, "a stored answer", again.is(http.StatusCreated), once)
}

// An operator erases a destination. An active destination is disabled with it, and works again with a new address.
func TestErasedDestination(t *testing.T) {
	s := open(t, options{})
	id := s.post(
		integrity+"/webhooks", body{"url": "https://hooks.example/token", "description": "Ana's"},
	).is(http.StatusCreated)["id"].(string)
	path := integrity + "/webhooks/" + id
	equal(t, "texts erased", []int{s.erase(id), s.erase(id)}, []int{2, 0})
	if left := s.texts("token") + s.texts("Ana"); left != 0 {
		t.Errorf("%d texts are left", left)
	}
	shown := s.get(path).is(http.StatusOK)
	equal(t, "the destination", []any{shown["status"], shown["description"]}, []any{"disabled", nil})
	s.send(http.MethodPatch, path, s.org.Secret, body{"enabled": true}).refuses(http.StatusConflict, domain.InvalidState)
	s.send(
		http.MethodPatch, path, s.org.Secret, body{"enabled": true, "url": "https://hooks.example/new"},
	).is(http.StatusOK)
	equal(t, "the destination again", s.get(path).is(http.StatusOK)["status"], "active")

	s.send(http.MethodDelete, path, s.org.Secret, nil).is(http.StatusOK)
	equal(t, "texts of a deleted destination", int64(s.erase(id))+s.texts("hooks.example/new"), 0)
	s.Audit(t)
}

// The address of a member is erased after the membership has ended. An id can end it.
func TestErasedMember(t *testing.T) {
	s := open(t, options{})
	a := s.actor("ana@example.com", domain.Admin)
	id := s.memberOf(a)
	erase := func() error {
		store := query.New(query.Config{Pool: s.Pool, Public: s.Pool, Installation: s.Installation})
		texts, err := store.TextsOf(context.Background(), s.org.ID, id.String())
		check(t, err)
		return s.Do(context.Background(), &domain.EraseTexts{Origin: s.org.Operator(), Subject: id.String(), Texts: texts})
	}
	var refused *domain.Error
	if err := erase(); !errors.As(err, &refused) || refused.Code != domain.InvalidState || s.texts("ana@") != 1 {
		t.Errorf("an active member: %v", err)
	}
	ended := domain.MemberEnded
	change := &domain.ChangeMember{Origin: s.org.Operator(), Status: &ended}
	change.Member = id
	s.Must(t, change)
	s.send(http.MethodGet, certificationAction+"/me", a.secret, nil).refuses(http.StatusUnauthorized, domain.InvalidKey)
	check(t, erase())
	if left := s.texts("ana@"); left != 0 {
		t.Errorf("%d texts have the address of an ended member", left)
	}
	active := domain.MemberActive
	back := &domain.ChangeMember{Origin: s.org.Operator(), Status: &active}
	back.Member = id
	if err := s.Do(context.Background(), back); !errors.As(err, &refused) || refused.Code != domain.InvalidState {
		t.Errorf("an ended member again: %v", err)
	}
}

func (s *service) memberOf(a actor) (id domain.MemberID) {
	s.t.Helper()
	check(s.t, s.Pool.QueryRow(context.Background(), "SELECT member_id FROM api_keys WHERE shard = $1 AND key_id = $2",
		a.key.Shard(), [16]byte(a.key)).Scan((*[16]byte)(&id)))
	return id
}

// Erasing a version erases its texts, its bytes and the certificate that publishes its title. Other versions, and
// signed bytes without texts, remain.
func TestErasedVersion(t *testing.T) {
	s, store, eraser := retaining(t)
	first := s.registeredText("First title", "first bytes")
	firstID := s.certifies(first, "organizationName")
	second := s.laterText(first.artifact, "Second title", "second bytes")
	secondID := s.certifies(second, "title")
	equal(t, "texts of the first", s.erase(first.version), 3)
	check(t, eraser.Look(context.Background()))
	if store.has(first.version) || !store.has(second.version) || s.content(first).ErasedAt == nil {
		t.Errorf("kept bytes: %v", store.bodies)
	}
	equal(t, "titles", []int64{s.texts("First title"), s.texts("Second title")}, []int64{0, 2})
	equal(t, "a certificate that publishes another word", s.verified(firstID, "first bytes").Reason,
		"CERTIFICATE_REPLACED")
	equal(t, "texts of the second", s.erase(second.version), 4)
	check(t, eraser.Look(context.Background()))
	equal(t, "the second title", s.texts("Second title"), 0)
	equal(t, "a certificate that published it", s.verified(secondID, "second bytes").Reason, "SIGNATURE_INVALID")
	if store.has(second.version) {
		t.Error("the second version's bytes are kept")
	}
	s.Audit(t)
}
