package operator

import (
	"crypto"
	"crypto/ed25519"
	"io"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// keptKey is a signing key that another program keeps.
type keptKey struct {
	own        ed25519.PrivateKey
	signatures int
}

func (k *keptKey) Public() crypto.PublicKey { return k.own.Public() }

func (k *keptKey) Sign(_ io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	k.signatures++
	return k.own.Sign(nil, message, opts)
}

// TestHealSignsAgain: the version is registered anew after the plan, so the command needs another signature than the
// plan has made. A kept key never signs while the shard is locked, so heal signs outside and executes it again.
func TestHealSignsAgain(t *testing.T) {
	v := newEvil(t)
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := &keptKey{own: private}
	registrar := v.Registrar
	registrar.Signer = must1(evidence.NewSigner(key))
	h := &healer{verb: &verb{app: v.app}, l: v.as, id: v.org.ID, registrar: registrar, apply: true, declared: true}
	lost := func(document string) *domain.Heal {
		return registrar.PrepareHeal(v.org.Operator(), domain.Lost{
			PublicID:    domain.NewPublicID(registrar.Secret, v.org.ID.Shard()),
			Declaration: v.org.Declaration(document, 1, document),
		}, time.Now())
	}
	commands, applied := []*domain.Heal{lost("anew"), lost("lost")}, make([]bool, 2)
	if err := h.plan(t.Context(), commands); err != nil || commands[0].Outcome.State != domain.HealDeclared || key.signatures != 2 {
		t.Fatalf("plan: %v, %+v, %d signatures", err, commands[0].Outcome, key.signatures)
	}
	v.Must(t, v.Register(t, v.org, v.org.Declaration("anew", 1, "anew")))
	if err := h.restore(t.Context(), commands, applied); err != nil {
		t.Fatal(err)
	}
	if !applied[0] || !applied[1] || commands[0].Outcome.State != domain.HealAlias ||
		commands[1].Outcome.State != domain.HealDeclared || key.signatures != 3 {
		t.Errorf("%v, %+v, %+v, %d signatures", applied, commands[0].Outcome, commands[1].Outcome, key.signatures)
	}
}
