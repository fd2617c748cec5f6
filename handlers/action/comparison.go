package action

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// pendingState is shown as the state of a version that is only reserved.
const pendingState domain.Status = "pending"

// ComparisonQuestion asks about a record, with or without the hash of a file.
type ComparisonQuestion struct {
	PublicID domain.PublicID
	SHA256   *[32]byte
}

// ReadComparison reads the public id of a record and an optional hash.
func ReadComparison(o *strictjson.Object) ComparisonQuestion {
	return ComparisonQuestion{edge.ReadPublicID(o), edge.OptionalHash(o)}
}

// Compare answers the public comparison, decided in the order of contract section 4.2: hash syntax, unknown, pending,
// signature, no hash, mismatch, state. The compared hash is the one inside the verified payload; no answer contains it.
func (s *Comparisons) Compare(ctx context.Context, _ *edge.Call, asked ComparisonQuestion) (wire.Comparison, error) {
	id, sum := asked.PublicID, asked.SHA256
	stored, err := s.Store.Comparison(ctx, id)
	if err != nil {
		return wire.Comparison{}, err
	}
	if stored.Pending {
		return wire.Comparison{
			PublicID: id.String(), Result: wire.RegistrationPending,
			Checks:    wire.ComparisonChecks{VersionState: new(pendingState)},
			CheckedAt: evidence.FormatTime(s.Now()), LimitsURL: s.BaseURL + "/limits", Released: stored.Released,
		}, nil
	}
	record, finding := s.records.verify(s.Keys().Trusted, stored.SignedID(id), stored.Event.Data)
	view := wire.Comparison{
		PublicID: id.String(), Result: wire.SignatureInvalid, Checks: wire.ComparisonChecks{Signature: &finding},
		CheckedAt: evidence.FormatTime(s.Now()), LimitsURL: s.BaseURL + "/limits",
		ReceiptURL: new(s.BaseURL + "/api/public/integrity/" + id.String() + "/receipt"), KeyID: wire.OrNull(record.keyID),
	}
	if stored.Alias != nil {
		view.Alias = aliasView(s.Keys().Trusted, stored.Alias)
	}
	if finding != evidence.Valid {
		return view, nil
	}
	published, err := s.Store.PublisherOf(ctx, stored, s.Now())
	if err != nil {
		return wire.Comparison{}, err
	}
	view.Publisher = viewPublisher(published)
	view.ReceivedAt, view.Checks.VersionState = new(evidence.FormatTime(time.UnixMicro(record.receivedAt))), &stored.Status
	if sum == nil {
		view.Result = wire.FileNotCompared
		return view, nil
	}
	match := *sum == record.sha256
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

// aliasView returns a former public id's signed statement, nil if its key is not trusted.
func aliasView(trust *evidence.TrustedKeys, a *domain.RecordAliasedBody) *wire.Alias {
	key, trusted := trust.Lookup(a.Statement.KeyID)
	if !trusted {
		return nil
	}
	return &wire.Alias{
		PublicID:  a.AliasOf.String(),
		Statement: evidence.NewSigned(a.Statement.Payload, a.Statement.Signature, key.PublicKey),
	}
}

// Receipt answers the public receipt: without references, observation and inclusion.
func (s *Comparisons) Receipt(ctx context.Context, _ *edge.Call, id domain.PublicID) (edge.Response, error) {
	stored, err := s.Store.Comparison(ctx, id)
	if err == nil && stored.Pending {
		err = query.ErrUnknownPublicID
	}
	if err != nil {
		return edge.Response{}, err
	}
	stored.Record, _ = domain.ReadSignedRecord(stored.Event.Data)
	receipt, err := s.receiptOf(s.Keys().Trusted, stored.SignedID(id), stored)
	if err != nil {
		return edge.Response{}, err
	}
	raw, err := edge.Encode(wire.Evidence{Envelope: receipt})
	return edge.Cacheable(raw, edge.JSONType), err
}

// verifier verifies the stored data of registrations. It caches which bytes contain a valid record: those never change,
// and verifying them is most of the work of a comparison. The public id is part of the cached check. Trust and state
// are never cached. verifier is safe for concurrent use.
type verifier struct {
	maxRecords int

	mu    sync.Mutex
	known [][]remembered    // pages of pageOfChecks; new checks overwrite the oldest
	place map[uint64]uint32 // in known, by the first bytes of the check
	next  int               // the place that the next check takes
	keys  []string          // the key ids that contents refer to
}

// remembered has no pointers, so that the garbage collector does not scan the cache.
type remembered struct {
	check
	contents
}

// check is the SHA-256 of a public id and the data of its registration.
type check [sha256.Size]byte

// contents are the facts that valid bytes state.
type contents struct {
	sha256     [sha256.Size]byte // of the file
	receivedAt int64             // microseconds since 1970
	key        uint32            // in verifier.keys
}

// verified is the result of verifying a record. If the record is not valid, only the key id is set.
type verified struct {
	contents
	keyID string // computed from the key (RFC 7638), so it identifies the key
}

// A cached record takes 80 bytes, and up to 40 in the map. The cache holds at most half a million records, 63 MB, and
// at most 1/32 of the memory that the operator allows (GOMEMLIMIT). Without GOMEMLIMIT the share does not apply: the
// process's limit would only follow its use.
const (
	maxRemembered   = 1 << 19
	rememberedBytes = 120
	memoryShare     = 32
	pageOfChecks    = 1 << 10
)

func newVerifier() *verifier {
	most := int64(maxRemembered)
	if os.Getenv("GOMEMLIMIT") != "" {
		most = max(1, min(most, debug.SetMemoryLimit(-1)/memoryShare/rememberedBytes)) // -1 changes nothing
	}
	return &verifier{maxRecords: int(most), place: map[uint64]uint32{}}
}

// verify verifies the data of a registration: signature, trust, and binding to the public id asked for and to the
// event's references (contract sections 4.1 and 4.2).
func (v *verifier) verify(trust *evidence.TrustedKeys, id domain.PublicID, data []byte) (verified, evidence.Finding) {
	name := nameOf(id, data)
	if known, ok := v.recall(name); ok {
		if _, trusted := trust.Lookup(known.keyID); trusted {
			return known, evidence.Valid
		}
	}
	stored, _ := domain.ReadSignedRecord(data)
	payload, found := evidence.VerifyRecord(trust, stored.KeyID, stored.Payload, stored.Signature)
	if found == evidence.Valid && !bound(payload, id, &stored) {
		found = evidence.Invalid
	}
	record := verified{keyID: stored.KeyID}
	if found != evidence.Valid {
		return record, found
	}
	record.sha256, record.receivedAt = payload.SHA256, payload.ReceivedAt.UnixMicro()
	v.remember(name, record)
	return record, evidence.Valid
}

func nameOf(id domain.PublicID, data []byte) (name check) {
	hash := sha256.New()
	hash.Write(id[:])
	hash.Write(data)
	hash.Sum(name[:0])
	return name
}

// beginning is the map key of a check. If two checks begin alike, the later one replaces the other.
func (c *check) beginning() uint64 { return binary.LittleEndian.Uint64(c[:]) }

func (v *verifier) at(place int) *remembered { return &v.known[place/pageOfChecks][place%pageOfChecks] }

func (v *verifier) recall(name check) (verified, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if place, ok := v.place[name.beginning()]; ok {
		if known := v.at(int(place)); known.check == name {
			return verified{known.contents, v.keys[known.key]}, true
		}
	}
	return verified{}, false
}

func (v *verifier) remember(name check, record verified) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := slices.Index(v.keys, record.keyID)
	if key < 0 {
		key, v.keys = len(v.keys), append(v.keys, record.keyID)
	}
	record.key = uint32(key)
	if v.next == len(v.known)*pageOfChecks {
		v.known = append(v.known, make([]remembered, pageOfChecks))
	}
	to := v.at(v.next)
	delete(v.place, to.beginning()) // the overwritten check; a new place has none
	*to = remembered{name, record.contents}
	v.place[name.beginning()] = uint32(v.next)
	v.next = (v.next + 1) % v.maxRecords
}

func bound(payload evidence.RecordPayload, id domain.PublicID, stored *domain.SignedRecord) bool {
	return payload.PublicID == id.String() && payload.ReferencesSHA256 == stored.SHA256()
}
