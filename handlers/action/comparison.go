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

// pendingState stands where a version's state would: there is no version yet.
const pendingState domain.Status = "pending"

// ComparisonQuestion asks about a record, with the hash of a file or without.
type ComparisonQuestion struct {
	PublicID domain.PublicID
	SHA256   *[32]byte
}

// ReadComparison reads the public id of a record, and the hash, which may be absent.
func ReadComparison(o *strictjson.Object) ComparisonQuestion {
	return ComparisonQuestion{edge.ReadPublicID(o), edge.OptionalHash(o)}
}

// Compare answers the public comparison, decided in the order of contract section 4.2: hash syntax, unknown, pending,
// signature, no hash, mismatch, state. The hash that is compared is the one inside the verified payload, and it is
// never answered.
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
			CheckedAt: evidence.FormatTime(s.Now()), LimitsURL: s.BaseURL + "/limits",
		}, nil
	}
	record, finding := s.records.verify(s.Keys().Trusted, id, stored.Event.Data)
	view := wire.Comparison{
		PublicID: id.String(), Result: wire.SignatureInvalid, Checks: wire.ComparisonChecks{Signature: &finding},
		CheckedAt: evidence.FormatTime(s.Now()), LimitsURL: s.BaseURL + "/limits",
		ReceiptURL: new(s.BaseURL + "/api/public/integrity/" + id.String() + "/receipt"), KeyID: wire.OrNull(record.keyID),
	}
	if finding != evidence.Valid {
		return view, nil
	}
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
	receipt, err := s.receiptOf(s.Keys().Trusted, id, stored)
	if err != nil {
		return edge.Response{}, err
	}
	raw, err := edge.Encode(wire.Evidence{Envelope: receipt})
	return edge.Cacheable(raw, edge.JSONType), err
}

// verifier judges the stored data of registrations. It remembers which bytes hold a valid record: those never change,
// and checking them anew is most of a comparison. Other bytes, or the same for another public id, are other checks.
// Trust and state are never remembered. It is safe for concurrent use.
type verifier struct {
	most int // records

	mu    sync.Mutex
	known [][]remembered    // pages of pageOfChecks; the oldest give way to new ones
	place map[uint64]uint32 // in known, by the beginning of the check
	next  int               // place
	keys  []string          // key ids that contents name
}

// remembered holds no pointers, so that the collector passes over all that is remembered.
type remembered struct {
	check
	contents
}

// check names what was checked: SHA-256 of the public id asked for and the data of its registration.
type check [sha256.Size]byte

// contents are what valid bytes say.
type contents struct {
	sha256     [sha256.Size]byte // of the file
	receivedAt int64             // microseconds since 1970
	key        uint32            // in verifier.keys
}

// verified is a record that was judged. All but the key id is zero unless it is valid.
type verified struct {
	contents
	keyID string // computed from the key (RFC 7638), so it stands for the key itself
}

// A record takes 80 bytes and up to 40 of the map. Half a million are remembered at most, 63 MB, and no more than a
// 32nd of the memory that the operator allows (GOMEMLIMIT) holds: without that, the limit of the process only follows
// its use.
const (
	mostRemembered  = 1 << 19
	rememberedBytes = 120
	memoryShare     = 32
	pageOfChecks    = 1 << 10
)

func newVerifier() *verifier {
	most := int64(mostRemembered)
	if os.Getenv("GOMEMLIMIT") != "" {
		most = max(1, min(most, debug.SetMemoryLimit(-1)/memoryShare/rememberedBytes)) // -1 changes nothing
	}
	return &verifier{most: int(most), place: map[uint64]uint32{}}
}

// verify judges the data of a registration: signature, trust, and binding to the public id asked for and to the event's
// references (contract sections 4.1 and 4.2).
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

// beginning is enough to find a check: where two begin alike, the later takes the place of the other.
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
	delete(v.place, to.beginning()) // of what was there; of a new place, of nothing
	*to = remembered{name, record.contents}
	v.place[name.beginning()] = uint32(v.next)
	v.next = (v.next + 1) % v.most
}

func bound(payload evidence.RecordPayload, id domain.PublicID, stored *domain.SignedRecord) bool {
	return payload.PublicID == id.String() && payload.ReferencesSHA256 == stored.SHA256()
}
