package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	lru "github.com/hashicorp/golang-lru/v2"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// pendingState stands where a version's state would: there is no version yet.
const pendingState domain.Status = "pending"

// compare answers the public comparison, decided in the order of contract section 4.2: hash syntax, unknown, pending,
// signature, no hash, mismatch, state. The hash that is compared is the one inside the verified payload, and it is
// never answered.
func (s *server) compare(r *http.Request) (any, error) {
	q := newQuery(r)
	hash := q.digest("sha256", strictjson.Optional)
	if err := q.refusal(); err != nil {
		return nil, err
	}
	return s.comparison(r.Context(), publicID(variable(r, "publicId")), hash)
}

// comparison compares with the hash sum, or with none where it is nil.
func (s *server) comparison(ctx context.Context, id domain.PublicID, sum *[32]byte) (wire.Comparison, error) {
	stored, err := s.Store.Comparison(ctx, id)
	if err != nil {
		return wire.Comparison{}, err
	}
	if stored.Pending {
		return wire.Comparison{
			PublicID: id.String(), Result: wire.RegistrationPending, Checks: wire.ComparisonChecks{VersionState: new(pendingState)},
			CheckedAt: evidence.FormatTime(s.Now()), LimitsURL: s.BaseURL + "/limits",
		}, nil
	}
	payload, finding := s.records.verify(s.Keys().Trusted, id, stored.Record)
	view := wire.Comparison{
		PublicID: id.String(), Result: wire.SignatureInvalid, Checks: wire.ComparisonChecks{Signature: &finding},
		CheckedAt: evidence.FormatTime(s.Now()), LimitsURL: s.BaseURL + "/limits",
		ReceiptURL: new(s.BaseURL + "/api/public/integrity/" + id.String() + "/receipt"), KeyID: orNull(stored.Record.KeyID),
	}
	if finding != evidence.Valid {
		return view, nil
	}
	view.ReceivedAt, view.Checks.VersionState = &payload.ReceivedAt, &stored.Status
	if sum == nil {
		view.Result = wire.FileNotCompared
		return view, nil
	}
	match := hex.EncodeToString(sum[:]) == payload.SHA256
	view.Checks.FileMatch = &match
	switch {
	case !match:
		view.Result = wire.HashMismatch
	case stored.Status == domain.StatusRevoked:
		view.Result = wire.RecordRevoked
	case stored.Status == domain.StatusSuperseded:
		view.Result = wire.MatchHistorical
	default:
		view.Result, view.Verified = wire.MatchCurrent, true
	}
	return view, nil
}

// receipt answers the public receipt: without references, observation and inclusion.
func (s *server) receipt(r *http.Request) (any, error) {
	id := publicID(variable(r, "publicId"))
	stored, err := s.Store.Comparison(r.Context(), id)
	if err == nil && stored.Pending {
		err = query.UnknownPublicID()
	}
	if err != nil {
		return nil, err
	}
	receipt, err := s.receiptOf(s.Keys().Trusted, id, stored.Record)
	if err != nil {
		return nil, err
	}
	raw, err := encode(receipt)
	return cacheable(r, raw), err
}

// verifier judges what the log holds of records, and remembers which bytes a signature belongs to: those never change,
// and checking them anew is most of a comparison. Other bytes are other checks. Trust, state and binding are never
// remembered. It is safe for concurrent use.
type verifier struct {
	valid *lru.Cache[check, evidence.RecordPayload]
}

// check names what was checked. A key id is computed from the key (RFC 7638), so it stands for the key itself.
type check struct {
	keyID, signature string
	payload          [sha256.Size]byte
}

// remembered is the most records whose check is remembered, of about 1 KiB each.
const remembered = 16 << 10

func newVerifier() *verifier {
	valid, _ := lru.New[check, evidence.RecordPayload](remembered) // fails for a size below 1 only
	return &verifier{valid}
}

// verify judges a stored record: signature, trust, and binding to the public id asked for and to the event's
// references. The payload may be used only if the finding is Valid (contract sections 4.1 and 4.2).
func (v *verifier) verify(trust *evidence.TrustedKeys, id domain.PublicID, stored domain.SignedRecord) (evidence.RecordPayload, evidence.Finding) {
	payload, finding := v.signature(trust, stored)
	if finding == evidence.Valid && !bound(payload, id, stored) {
		return evidence.RecordPayload{}, evidence.Invalid
	}
	return payload, finding
}

func (v *verifier) signature(trust *evidence.TrustedKeys, stored domain.SignedRecord) (evidence.RecordPayload, evidence.Finding) {
	name := check{stored.KeyID, stored.Signature, sha256.Sum256(stored.Payload)}
	if _, trusted := trust.Lookup(stored.KeyID); trusted {
		if payload, ok := v.valid.Get(name); ok {
			return payload, evidence.Valid
		}
	}
	payload, finding := evidence.VerifyRecord(trust, stored.KeyID, stored.Payload, stored.Signature)
	if finding == evidence.Valid {
		v.valid.Add(name, payload)
	}
	return payload, finding
}

func bound(payload evidence.RecordPayload, id domain.PublicID, stored domain.SignedRecord) bool {
	references := stored.References
	return payload.PublicID == id.String() && payload.ReferencesSHA256 == references.SHA256()
}
