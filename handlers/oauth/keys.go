package oauth

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// keysAge is how long a key that the provider no longer publishes may still be trusted. (A new one is looked for as
// soon as a token names it.)
const keysAge = 5 * time.Minute

// currentKeys are those that the provider publishes, read anew every keysAge. While it cannot be asked, those that were
// read last go on. It is safe for concurrent use.
type currentKeys struct {
	now  func() time.Time
	read func() oidc.KeySet // an empty set, which asks the provider when it is used first

	mu     sync.Mutex
	keys   oidc.KeySet
	former oidc.KeySet // until keys has been read
	since  time.Time   // of keys
}

// VerifySignature implements oidc.KeySet. What keys refuses is judged once more by keys read for it alone: others may
// join a question of keys when its answer is already there, and older than their token.
func (k *currentKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	keys, former := k.current()
	payload, err := keys.VerifySignature(ctx, jwt)
	if err != nil {
		payload, err = k.read().VerifySignature(ctx, jwt)
	}
	switch {
	case former == nil:
		return payload, err
	case notAsked(err):
		return former.VerifySignature(ctx, jwt)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == keys {
		k.former = nil
	}
	return payload, err
}

func (k *currentKeys) current() (keys, former oidc.KeySet) {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil || now.Sub(k.since) >= keysAge {
		if k.former == nil {
			k.former = k.keys
		}
		k.keys, k.since = k.read(), now
	}
	return k.keys, k.former
}

// notAsked tells keys that could not be fetched from a signature that is wrong: only what fetching failed with is wrapped.
func notAsked(err error) bool { return errors.Unwrap(err) != nil }

// judgedKeys keeps why keys could not be fetched: the verifier's own error no longer does.
type judgedKeys struct {
	oidc.KeySet
	failure error
}

func (k *judgedKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, jwt)
	if notAsked(err) {
		k.failure = err
	}
	return payload, err
}
