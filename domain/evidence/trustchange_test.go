package evidence

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestTrustChangesAgainstNaiveModel makes random changes. However they come, a key is trusted exactly when it was added and
// never revoked; no earlier set changes; and every set reads back from its file.
func TestTrustChangesAgainstNaiveModel(t *testing.T) {
	const since = "2026-11-20T12:00:00Z"
	var signers []*Signer
	for seed := range byte(5) {
		signers = append(signers, testSigner(t, 40+seed))
	}
	rapid.Check(t, func(t *rapid.T) {
		set, err := NewTrustedKeys(nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		added, retired, revoked := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for range rapid.IntRange(1, 25).Draw(t, "changes") {
			key := rapid.SampledFrom(signers).Draw(t, "key").Key()
			id := key.KeyID
			var want error
			var next *TrustedKeys
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				next, err = set.Add(key, since)
				if want = map[bool]error{true: ErrRevokedKey}[revoked[id]]; want == nil {
					added[id] = true
				}
			case 1:
				next, err = set.Retire(id, since)
				switch {
				case !added[id]:
					want = ErrUnknownKey
				case revoked[id]:
					want = ErrRevokedKey
				default:
					retired[id] = true
				}
			default:
				next, err = set.Revoke(id, ReasonCompromised, since)
				if want = map[bool]error{true: ErrUnknownKey}[!added[id]]; want == nil {
					revoked[id] = true
				}
			}
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Fatalf("%v, want %v", err, want)
			}
			if err != nil {
				continue
			}
			text, err := next.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if set, err = ParseTrustedKeys(text); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			published, err := set.Published()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range signers {
				k, id := s.Key(), s.Key().KeyID
				if trusts := added[id] && !revoked[id]; set.Trusts(k) != trusts || published.Trusts(k) != trusts {
					t.Fatalf("trusts %t and published %t, want %t", set.Trusts(k), published.Trusts(k), trusts)
				}
				if pinned, trusted := set.Lookup(id); trusted && (pinned.Status == KeyRetired) != retired[id] {
					t.Fatalf("status %s, retired %t", pinned.Status, retired[id])
				}
				// A revoked key can still be shown, but not from what is published.
				if pinned, _ := set.Lookup(id); (pinned.KeyID != "") != added[id] {
					t.Fatal("a key has left the set")
				}
				if text, err = published.Marshal(); err != nil || revoked[id] && strings.Contains(string(text), k.JWK.X) {
					t.Fatalf("a revoked key is published: %v %s", err, text)
				}
			}
		}
	})
}
