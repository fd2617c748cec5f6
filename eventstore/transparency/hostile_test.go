package transparency

import (
	"context"
	"crypto/ed25519"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/outbound/peertest"
	"integrityledger/projections/ledgertest"
)

// TestHostileWitnesses: witnesses that hold connections stop neither the tree from growing nor a good witness from
// cosigning.
func TestHostileWitnesses(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	good := newWitness(t, "witness.example/good", signer)
	witnesses := []*Witness{good.configured()}
	for name, shape := range peertest.Shapes() {
		_, private, err := ed25519.GenerateKey(nil)
		check(t, err)
		key := (&witness{private: private, name: "hostile.example/" + strings.ReplaceAll(name, " ", "-")}).verifierKey()
		hostile, err := NewWitness(key, peertest.Serve(t, shape))
		check(t, err)
		witnesses = append(witnesses, hostile)
	}
	log := process(t, l, signer, func(c *Config) { c.Witnesses, c.Witness = witnesses, 5*time.Second })
	for n := range 2 {
		register(t, l, o, 3*n, 3)
		log.turned(t)
		if behind(t, l) != 0 {
			t.Error("the tree was held up")
		}
		if got := strings.Join(cosigned(t, l, signer, witnesses...), " "); got != logName+" witness.example/good" {
			t.Errorf("cosigned by %s", got)
		}
	}
	for _, w := range witnesses[1:] {
		if w.failures == 0 {
			t.Errorf("%s has not failed", w.Name())
		}
	}
}

// TestHostileAuthorities: a request to an authority that holds the connection ends by itself.
func TestHostileAuthorities(t *testing.T) {
	var all sync.WaitGroup
	for name, shape := range peertest.Shapes() {
		a, err := NewTimestampAuthority("tsa.example", peertest.Serve(t, shape))
		check(t, err)
		all.Go(func() {
			if _, _, err := a.Stamp(context.Background(), evidence.Authority{}, [32]byte{}, time.Now); err == nil {
				t.Errorf("%s: it has stamped", name)
			}
		})
	}
	all.Wait()
}
