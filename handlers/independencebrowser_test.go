package handlers_test

import (
	"sync/atomic"
	"testing"

	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/stamptest"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
)

// The page of trust and the line of a record's page can be read by everyone, at any width, in both languages.
func TestTrustPageLooks(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	alpha := stamptest.New(t, "alpha")
	id := w.registered("a", 1, "one")
	signer := w.integrate(alpha)
	keys := *w.keys.Load()
	keys.Trusted = w.trusting([]*transparency.Signer{signer}, alpha)
	w.keys.Store(&keys)
	lost := newOtherWitness(t, "lost.example/witness-with-a-rather-long-name")
	lost.away.Store(true)
	address := "https://witness.example/cosign"
	var own atomic.Pointer[wire.OwnWitness]
	own.Store(&wire.OwnWitness{
		Name: lost.key.Name, VerifierKey: lost.key.VerifierKey, FingerprintSHA256: lost.key.FingerprintSHA256(),
		Address: &address,
	})
	w.config.Parties = action.Parties{
		Witnesses: []*transparency.Witness{lost.Witness}, Witness: own.Load, OwnKey: lost.key.FingerprintSHA256,
	}
	w.use(handlers.New(w.config))
	p := w.tab()
	for _, prefix := range []string{"", "/en"} {
		p.open(prefix + web.TrustPath)
		p.looks("trust" + prefix)
		p.open(prefix + "/integrity/" + id)
		p.looks("vouched" + prefix)
	}
}
