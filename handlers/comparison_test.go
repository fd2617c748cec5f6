package handlers_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/action"
	"integrityledger/handlers/wire"
)

const unguard = "ALTER TABLE events DISABLE TRIGGER events_append_only"

func (s *service) signatureIs(id, content string, signature evidence.Finding) {
	s.t.Helper()
	got := s.compared(id, content)
	equal(s.t, "comparison", []any{got.Result, got.Verified, got.Checks, got.ReceivedAt},
		[]any{wire.SignatureInvalid, false, wire.ComparisonChecks{Signature: &signature}, nil})
}

func (s *service) matches(id, content string) {
	s.t.Helper()
	if got := s.compared(id, content).Result; got != "MATCH_CURRENT" {
		s.t.Errorf("result %v", got)
	}
}

func TestSwappedRecords(t *testing.T) {
	s := open(t, options{})
	one, two := s.registered("a", 1, "one"), s.registered("b", 1, "two")
	s.matches(one, "one") // cached checks of these have no effect
	s.matches(two, "two")
	s.owner(unguard, `UPDATE events a SET data = b.data FROM events b WHERE a.shard = b.shard AND a.position <> b.position
		AND a.type = 'integrity.registered' AND b.type = 'integrity.registered'`)
	for _, id := range []string{one, two} {
		for _, content := range []string{"one", "two", ""} {
			s.signatureIs(id, content, "invalid")
		}
		s.public("/api/public/integrity/"+id+"/receipt").refuses(http.StatusInternalServerError, domain.Internal)
		s.get(integrity+"/records/"+id+"/evidence").refuses(http.StatusInternalServerError, domain.Internal)
	}
}

func TestChangedEvent(t *testing.T) {
	for name, change := range map[string]string{
		"hash in the payload": `replace(convert_from(data, 'UTF8'), '` + hash("one") + `', '` + hash("two") + `')`,
		"reference":           `replace(convert_from(data, 'UTF8'), '"documentReference":"a"', '"documentReference":"b"')`,
		"version":             `replace(convert_from(data, 'UTF8'), '"version":1', '"version":2')`,
		"signature":           `regexp_replace(convert_from(data, 'UTF8'), '"signature":"....', '"signature":"AAAA')`,
		"no JSON":             `'x'`,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, options{})
			id := s.registered("a", 1, "one")
			s.matches(id, "one")
			s.owner(unguard, `UPDATE events SET data = convert_to(`+change+`, 'UTF8') WHERE type = 'integrity.registered'`)
			s.signatureIs(id, "one", "invalid")
			s.signatureIs(id, "two", "invalid")
		})
	}
}

// The columns of the projection do not decide about the hash.
func TestChangedColumns(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	s.owner(`UPDATE versions SET sha256 = decode('` + hash("two") + `', 'hex')`)
	if got := s.compared(id, "two").Result; got != "HASH_MISMATCH" {
		t.Errorf("result %v", got)
	}
	if got := s.compared(id, "one").Result; got != "MATCH_CURRENT" {
		t.Errorf("result %v", got)
	}
}

func TestRevokedSigningKey(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	s.matches(id, "one")
	key := s.Registrar.Signer.Key()
	now := evidence.FormatTime(s.Now())
	trusted, err := evidence.NewTrustedKeys([]evidence.TrustedKey{
		{PublicKey: key, Status: evidence.KeyActive, Since: now},
	},
		[]evidence.RevokedKey{
			{KeyID: key.KeyID, FingerprintSHA256: key.FingerprintSHA256, Reason: evidence.ReasonCompromised, Since: now},
		}, nil)
	check(t, err)
	s.keys.Store(&action.Keys{Signer: s.Registrar.Signer, Trusted: trusted})
	s.signatureIs(id, "one", "untrusted")
	s.post(integrity+"/records", declaration("b", 1, "two")).refuses(
		http.StatusServiceUnavailable, domain.TemporarilyUnavailable,
	)
	s.get(integrity+"/records/"+id+"/evidence").refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	s.public("/readyz").refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	s.get(integrity + "/records/" + id).is(http.StatusOK)
	var receipt evidence.Envelope
	check(t, json.Unmarshal(s.public("/api/public/integrity/"+id+"/receipt").body, &receipt))
	if f := evidence.CheckSignature(
		trusted, receipt.KeyID, []byte(receipt.Payload), receipt.Signature,
	); f != evidence.Untrusted {
		t.Errorf("finding %s", f)
	}

	s.keys.Store(&action.Keys{Trusted: s.Trusted})
	s.post(integrity+"/records", declaration("b", 1, "two")).refuses(
		http.StatusServiceUnavailable, domain.TemporarilyUnavailable,
	)
	if got := s.compared(id, "one").Result; got != "MATCH_CURRENT" {
		t.Errorf("result %v", got)
	}
}

func TestComparisonOfBadHashes(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	h := hash("one")
	for _, query := range []string{
		"sha256=", "sha256", "sha256=" + h + "&sha256=" + h, "sha256=" + h[1:], "sha256=" + h + "%0a", "sha256=%zz",
		"SHA256=" + h, "hash=" + h, "sha256=" + h + ";x",
	} {
		for _, known := range []string{id, "unknown"} { // syntax comes before existence
			a := s.public("/api/public/integrity/" + known + "?" + query)
			a.refuses(http.StatusUnprocessableEntity, domain.InvalidData)
			if a.header.Get("Access-Control-Allow-Origin") != "*" || a.header.Get("Access-Control-Expose-Headers") == "" {
				t.Errorf("CORS is missing on an error: %v", a.header)
			}
		}
	}
}

// A comparison reflects everything committed before it, while other statements are always in progress.
func TestComparisonSeesWhatIsCommitted(t *testing.T) {
	s := open(t, options{})
	first := s.registered("busy", 1, "busy")
	var others sync.WaitGroup
	end := make(chan struct{})
	defer others.Wait()
	defer close(end)
	for range 8 {
		others.Go(func() {
			for range 1000 { // below the limit of an address
				select {
				case <-end:
					return
				default:
					s.matches(first, "busy")
				}
			}
		})
	}
	is := func(id, content string, result wire.ComparisonResult) {
		t.Helper()
		if got := s.compared(id, content).Result; got != result {
			t.Errorf("result %v, not %s", got, result)
		}
	}
	for i := range 10 {
		document := "d" + strconv.Itoa(i)
		one := s.registered(document, 1, "one")
		is(one, "one", "MATCH_CURRENT")
		two := s.registered(document, 2, "two")
		is(one, "one", "MATCH_HISTORICAL")
		is(two, "two", "MATCH_CURRENT")
		s.post(integrity+"/records/"+two+"/revoke", body{}).is(http.StatusOK)
		is(two, "two", "RECORD_REVOKED")
		is(one, "one", "MATCH_HISTORICAL")
	}
}
