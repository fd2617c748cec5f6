package domain

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"testing"
	"time"

	"integrityledger/domain/evidence"
)

// elsewhere is a key that another program keeps, which may be away.
type elsewhere struct {
	ed25519.PrivateKey
	away       error
	signatures int
}

func (k *elsewhere) Sign(_ io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	if k.away != nil {
		return nil, k.away
	}
	k.signatures++
	return k.PrivateKey.Sign(rand.Reader, message, opts)
}

// TestSignerAway: while the program that keeps the key is away, whatever has to be signed is refused with 503 and leaves
// nothing behind, whether it was to be signed in advance or in Decide. Everything else is decided, and the same commands
// are accepted once the program is back.
func TestSignerAway(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := &elsewhere{PrivateKey: private}
	w := newWorld(t, must(evidence.NewSigner(key)), 100)
	if !w.registrar.Signer.Kept() {
		t.Fatal("a key elsewhere counts as its own")
	}
	registered, code := w.register("before", 1, "x", nil)
	if code != "" {
		t.Fatal(code)
	}
	lost := w.lost(registered)
	reserved, _ := w.reserve("reserved", 1)
	declaration := func(document string) Declaration {
		return Declaration{
			VersionReference: VersionReference{"company-1", "billing", document, 1},
			SHA256:           sha256.Sum256([]byte("x")), MimeType: "application/pdf", GeneratedAt: "2026-11-20T09:00:00Z",
		}
	}
	prepare := func(document string) *Register {
		return must(w.registrar.Prepare(w.origin, w.key, w.limits, declaration(document), w.now))
	}
	ready, adopting, replay := prepare("ready"), prepare("reserved"), prepare("before")
	unsigned := w.registrar.PrepareUnsigned(w.origin, w.key, w.limits, declaration("unsigned"), w.now)
	declared := lost
	declared.PublicID, declared.Receipt = NewPublicID(w.registrar.Secret, w.origin.Organization.Shard()), nil
	declared.Declaration.DocumentReference = "declared"
	healing := w.registrar.PrepareHeal(w.origin, declared, w.now)
	declared.PublicID = NewPublicID(w.registrar.Secret, w.origin.Organization.Shard())
	declared.Declaration.DocumentReference = "before"
	alias := w.registrar.PrepareHeal(w.origin, declared, w.now)
	w.state.Follow(BackfillAllowances, HealedRecords)

	cause := errors.New("away")
	key.away = cause
	for name, failed := range map[string]func() error{
		"Sign": func() error { _, err := Sign(w.registrar.Signer, []byte("x")); return err },
		"Prepare": func() error {
			_, err := w.registrar.Prepare(w.origin, w.key, w.limits, declaration("d"), w.now)
			return err
		},
		"Presign": unsigned.Presign,
		"Certify": func() error {
			_, err := w.registrar.Certify(w.origin, MemberID{}, ArtifactVersionID{}, [32]byte{}, 1, Published{}, w.now)
			return err
		},
	} {
		var refused *Error
		if err := failed(); !errors.As(err, &refused) || refused.Code != TemporarilyUnavailable ||
			refused.RetryAfter < time.Second || !errors.Is(err, cause) {
			t.Errorf("%s: %v", name, err)
		}
	}
	signed := map[string]Command{"healing": healing, "alias": alias}
	events := len(w.events)
	for name, c := range signed {
		if code := w.execute(c); code != TemporarilyUnavailable {
			t.Errorf("%s: %q", name, code)
		}
	}
	if len(w.events) != events {
		t.Errorf("%d events of refused commands", len(w.events)-events)
	}
	for name, c := range map[string]Command{"ready": ready, "replay": replay} {
		if code := w.execute(c); code != "" {
			t.Errorf("%s: %q", name, code)
		}
	}
	// In Decide nothing waits for the program: it is refused, then signed outside, a declaration with the reserved public id.
	key.away = nil
	for name, c := range map[string]interface {
		Command
		Presign() error
	}{"unsigned": unsigned, "adopting": adopting, "healing": healing, "alias": alias} {
		signatures := key.signatures
		if _, err := c.Decide(w.state, w.now); !errors.Is(err, ErrUnsigned) || key.signatures != signatures {
			t.Errorf("%s: %v with %d signatures", name, err, key.signatures-signatures)
		}
		if err := c.Presign(); err != nil {
			t.Fatal(err)
		}
		signed[name] = c
	}
	signatures := key.signatures
	for name, c := range signed {
		if code := w.execute(c); code != "" {
			t.Errorf("%s, once the program is back: %q", name, code)
		}
	}
	if key.signatures != signatures {
		t.Errorf("%d signatures in Decide", key.signatures-signatures)
	}
	if healing.Outcome.State != HealDeclared || alias.Outcome.State != HealAlias ||
		adopting.Outcome.PublicID != reserved.Outcome.PublicID {
		t.Errorf("%+v, %+v, %+v", healing.Outcome, alias.Outcome, adopting.Outcome)
	}
}
