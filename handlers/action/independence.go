package action

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
)

// Parties are the parties besides the operator that the service is configured with, and where its own keys are kept.
type Parties struct {
	Witnesses   []*transparency.Witness
	Authorities []*transparency.TimestampAuthority
	// Custody says where the keys are kept, after each reload. Nil: nothing is known.
	Custody func() wire.KeyCustody
	// Witness describes this installation as a witness of other logs. It returns nil if the installation witnesses no
	// log, and may be nil.
	Witness func() *wire.OwnWitness
	// OwnKey returns the fingerprint of the key with which this installation can cosign logs, under any name. It returns
	// an empty string if there is no such key, and may be nil.
	OwnKey func() string
}

// Alone reports whether no other party counts: no witness, and no authority that is configured and pinned.
func (p Parties) Alone(trusted *evidence.TrustedKeys) bool {
	return !slices.ContainsFunc(p.witnesses(trusted), func(w knownWitness) bool { return w.Counts() }) &&
		!slices.ContainsFunc(p.Authorities, func(a *transparency.TimestampAuthority) bool {
			_, pinned := trusted.Authority(a.Name())
			return pinned
		})
}

const (
	// vouchedFor is how long a process reuses what it has read about cosignatures and tokens.
	vouchedFor     = time.Second
	vouchedTimeout = 2 * time.Second
)

// vouching caches what vouches for the log, so that any number of readers cost one read in vouchedFor.
type vouching struct {
	mu      sync.Mutex
	known   vouchedLog
	err     error
	at      time.Time
	reading chan struct{} // nil: no read is in progress
}

// vouchedLog is what vouches for the log. It has only cosignatures and tokens that verify.
type vouchedLog struct {
	transparency.Vouched
	cosigned map[string]cosigned // by verifier key
	stamped  map[string]stamped
	keySet   *wire.PublishedKeySet

	keySetState wire.KeySetState
}

type stamped struct {
	transparency.Stamp
	before time.Time
}

type cosigned struct {
	transparency.Cosigned
	at time.Time
}

// vouched returns what vouches for the log, at most vouchedFor old. A read that fails is not repeated sooner either.
func (s *Service) vouched(ctx context.Context) (vouchedLog, error) {
	v := &s.vouching
	v.mu.Lock()
	if !v.at.IsZero() && time.Since(v.at) < vouchedFor {
		defer v.mu.Unlock()
		return v.known, v.err
	}
	if v.reading == nil {
		v.reading = make(chan struct{})
		go s.readVouched(v.reading) //nolint:gosec // the read serves other requests too, and outlives this one
	}
	read := v.reading
	v.mu.Unlock()
	select {
	case <-read:
	case <-ctx.Done():
		return vouchedLog{}, ctx.Err()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known, v.err
}

func (s *Service) readVouched(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), vouchedTimeout)
	defer cancel()
	known, err := s.readVouchedLog(ctx)
	v := &s.vouching
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known, v.err, v.at, v.reading = known, err, time.Now(), nil
	close(done)
}

func (s *Service) readVouchedLog(ctx context.Context) (v vouchedLog, err error) {
	if v.Vouched, err = s.publicLog().Vouched(ctx); err != nil {
		return v, err
	}
	trusted := s.Keys().Trusted
	v.keySet, v.keySetState = s.readKeySet(ctx, trusted)
	v.cosigned, v.stamped = map[string]cosigned{}, map[string]stamped{}
	for _, w := range s.Parties.witnesses(trusted) {
		for _, c := range v.Cosigned {
			if c.Witness != w.Name {
				continue
			}
			if at, ok := w.key.CosignedAt(c.Note, s.Now()); ok {
				v.cosigned[w.VerifierKey] = cosigned{c, at}
			}
		}
	}
	for _, stamp := range v.Stamps {
		authority, _ := trusted.Authority(stamp.Authority)
		if _, err := evidence.OpenCheckpoint(stamp.Checkpoint, trusted); err != nil {
			continue
		}
		if before, err := authority.CheckStamp(stamp.Token, stamp.Checkpoint); err == nil {
			v.stamped[stamp.Authority] = stamped{stamp, before}
		}
	}
	return v, nil
}

// publicLog returns the reader of the log for the public, which has places of its own.
func (s *Service) publicLog() *transparency.Reader { return cmp.Or(s.PublicLog, s.Transparency) }

// knownWitness is a witness that the operator has configured, or whose key is pinned.
type knownWitness struct {
	wire.IndependentWitness // without a cosignature and a refusal

	key evidence.WitnessKey
}

func (p Parties) witnesses(trusted *evidence.TrustedKeys) (list []knownWitness) {
	own := ""
	if p.OwnKey != nil {
		own = p.OwnKey()
	}
	add := func(key evidence.WitnessKey, configured, pinned bool) {
		fingerprint := key.FingerprintSHA256()
		list = append(list, knownWitness{wire.IndependentWitness{
			Name: key.Name, KeyHash: key.KeyHash, VerifierKey: key.VerifierKey, FingerprintSHA256: fingerprint,
			Configured: configured, Pinned: pinned, Own: fingerprint == own,
		}, key})
	}
	for _, w := range p.Witnesses {
		add(w.Key(), true, false)
	}
	if trusted == nil {
		return list
	}
	for _, key := range trusted.WitnessKeys() {
		if i := slices.IndexFunc(list, func(w knownWitness) bool { return w.key == key }); i >= 0 {
			list[i].Pinned = true
		} else {
			add(key, false, true)
		}
	}
	return list
}

// Independence shows which parties besides the operator have signed what about the log, and all keys. It needs no
// database for the keys, and says so if the log cannot be read.
func (s *Proofs) Independence(ctx context.Context, _ *edge.Call, _ struct{}) (wire.Independence, error) {
	trusted := s.Keys().Trusted
	view := wire.Independence{
		State: wire.LogOff, ObservedAt: evidence.FormatTime(s.Now()), Witnesses: []wire.IndependentWitness{},
		TimestampAuthorities: []wire.IndependentAuthority{}, SigningKeys: []wire.PublishedKey{},
		LogKeys: []wire.PublishedLogKey{}, Custody: wire.KeyCustody{SigningKey: wire.CustodyNone, LogKey: wire.CustodyNone},
		Relationship: wire.Disclosure{ES: s.disclosed(evidence.Spanish), EN: s.disclosed(evidence.English)},
	}
	if s.Parties.Custody != nil {
		view.Custody = s.Parties.Custody()
	}
	if s.Parties.Witness != nil {
		view.Witness = s.Parties.Witness()
	}
	log := vouchedLog{keySetState: wire.KeySetNone}
	if s.Transparency != nil {
		var err error
		limited, cancel := context.WithTimeout(ctx, vouchedTimeout)
		defer cancel()
		log, err = s.vouched(limited)
		switch {
		case ctx.Err() != nil:
			return view, ctx.Err()
		case err != nil:
			s.Log.WarnContext(ctx, "cosignatures and tokens not shown", "error", err)
			view.State, log = wire.LogUnavailable, vouchedLog{keySetState: wire.KeySetUnknown}
		case log.Checkpoint == "":
			view.State = wire.LogEmpty
		default:
			view.State = wire.LogPublished
			view.Checkpoint = &wire.IndependentCheckpoint{
				TreeSize: log.TreeSize, SignedAt: evidence.FormatTime(log.SignedAt), Note: log.Checkpoint,
			}
		}
	}
	for _, w := range s.Parties.witnesses(trusted) {
		view.Witnesses = append(view.Witnesses, viewWitness(w, log))
	}
	view.TimestampAuthorities = s.viewAuthorities(trusted, log, view.TimestampAuthorities)
	view.KeySet, view.KeySetState = log.keySet, log.keySetState
	view.SigningKeys, view.LogKeys = publishedKeys(trusted, view.SigningKeys, view.LogKeys)
	return view, nil
}

// disclosed returns the operator's disclosure as the fixed text ends with it.
func (s *Service) disclosed(language evidence.Language) string {
	points := evidence.Limits(language, s.Relationship[language])
	return points[len(points)-1]
}

func viewWitness(w knownWitness, log vouchedLog) wire.IndependentWitness {
	view := w.IndependentWitness
	if c, ok := log.cosigned[w.VerifierKey]; ok {
		view.Cosignature = &wire.Cosignature{
			TreeSize: c.TreeSize, CosignedAt: evidence.FormatTime(c.at), Newest: c.TreeSize == log.TreeSize, Note: c.Note,
		}
	}
	if r, ok := log.Refused[w.VerifierKey]; ok && (view.Cosignature == nil || view.Cosignature.TreeSize <= r.TreeSize) {
		view.Refusal = &wire.Refusal{Reason: string(r.Reason), TreeSize: r.TreeSize, At: evidence.FormatTime(r.At)}
	}
	return view
}

func (s *Service) viewAuthorities(
	trusted *evidence.TrustedKeys, log vouchedLog, list []wire.IndependentAuthority,
) []wire.IndependentAuthority {
	for _, a := range s.Parties.Authorities {
		list = append(list, wire.IndependentAuthority{Name: a.Name(), Configured: true, CertificateSHA256: []string{}})
	}
	if trusted != nil {
		for _, a := range trusted.Authorities() {
			i := slices.IndexFunc(list, func(v wire.IndependentAuthority) bool { return v.Name == a.Name })
			if i < 0 {
				i, list = len(list), append(list, wire.IndependentAuthority{Name: a.Name})
			}
			list[i].Pinned, list[i].CertificateSHA256 = true, a.Fingerprints()
		}
	}
	for i, a := range list {
		if stamp, ok := log.stamped[a.Name]; ok {
			list[i].Stamp = &wire.NewestStamp{
				TreeSize: stamp.TreeSize, GenTime: evidence.FormatTime(stamp.GenTime), Newest: stamp.TreeSize == log.TreeSize,
				ExistedBefore: evidence.FormatTime(stamp.before),
			}
		}
	}
	return list
}

func publishedKeys(
	trusted *evidence.TrustedKeys, keys []wire.PublishedKey, logKeys []wire.PublishedLogKey,
) ([]wire.PublishedKey, []wire.PublishedLogKey) {
	if trusted == nil {
		return keys, logKeys
	}
	revoked := map[string]evidence.RevokedKey{}
	for _, r := range trusted.Revoked() {
		revoked[r.KeyID] = r
	}
	for _, k := range trusted.Keys() {
		if _, ok := revoked[k.KeyID]; !ok {
			keys = append(keys, wire.PublishedKey{
				KeyID: k.KeyID, FingerprintSHA256: k.FingerprintSHA256,
				Status: string(cmp.Or(k.Status, evidence.KeyActive)), Since: wire.OrNull(k.Since),
			})
		}
	}
	for _, k := range trusted.LogKeys() {
		status := "trusted"
		if r, ok := revoked[k.KeyID()]; ok {
			status = r.Reason
			delete(revoked, k.KeyID())
		}
		logKeys = append(logKeys, wire.PublishedLogKey{
			Name: k.Name, KeyHash: k.KeyHash, VerifierKey: k.VerifierKey, FingerprintSHA256: k.FingerprintSHA256(),
			Status: status,
		})
	}
	for _, r := range trusted.Revoked() {
		if _, ok := revoked[r.KeyID]; ok {
			keys = append(keys, wire.PublishedKey{
				KeyID: r.KeyID, FingerprintSHA256: r.FingerprintSHA256, Status: r.Reason, Since: wire.OrNull(r.Since),
			})
		}
	}
	return keys, logKeys
}

// IndependenceDocument answers Independence as a document that may be cached for a few seconds.
func (s *Proofs) IndependenceDocument(ctx context.Context, c *edge.Call, _ struct{}) (edge.Response, error) {
	if s.Keys().Trusted == nil {
		return edge.Response{}, NoTrustedKeys()
	}
	view, err := s.Independence(ctx, c, struct{}{})
	if err == nil && view.KeySetState == wire.KeySetUnknown && view.State != wire.LogUnavailable {
		err = domain.Unavailable(
			"The published keys cannot be read from the transparency log at the moment. Ask again later.",
		)
	}
	if err != nil {
		return edge.Response{}, err
	}
	raw, err := edge.Encode(view)
	resp := edge.Response{Raw: raw, ContentType: edge.JSONType, Cache: edge.PublicSeconds}
	if view.State == wire.LogUnavailable {
		resp.Cache = edge.NoStore
	}
	return resp, err
}

func NoTrustedKeys() error {
	return domain.Unavailable("The service has no trusted-keys file at the moment; send the request again later.")
}

// Vouchers are the parties besides the operator that bind a record.
type Vouchers struct {
	Known     bool // if it is false, nothing can be said
	Witnesses int  // that count and have cosigned a checkpoint that contains the record
	// Authority says that the record existed before Before. It is empty if no token does.
	Authority string
	Before    time.Time
}

// Vouchers counts the parties besides the operator that bind a validated record: witnesses that count and cosigned a
// checkpoint that contains it, and authorities with a token over one. It waits no longer than evidence does.
// If the tree cannot be read in time, it says nothing.
func (s *Proofs) Vouchers(ctx context.Context, id domain.PublicID) Vouchers {
	if s.Transparency == nil {
		return Vouchers{Known: true}
	}
	if until := s.unvouched.Load(); until > 0 && s.Now().UnixNano() < until {
		return Vouchers{}
	}
	limited, cancel := context.WithTimeout(ctx, cmp.Or(s.ProofTimeout, proofTimeout))
	defer cancel()
	found, err := s.vouchers(limited, id)
	switch {
	case errors.Is(err, transparency.ErrNotIntegrated):
		return Vouchers{Known: true}
	case err == nil:
		return found
	case ctx.Err() == nil && changed(err):
		s.Log.ErrorContext(ctx, "a page says nothing about witnesses and authorities", "error", err)
	case ctx.Err() == nil && edge.Refusal(err) == nil:
		s.unvouched.Store(s.Now().Add(proofPause).UnixNano())
		s.Log.WarnContext(ctx, "a page says nothing about witnesses and authorities", "error", err, "pause", proofPause)
	}
	return Vouchers{}
}

func (s *Proofs) vouchers(ctx context.Context, id domain.PublicID) (found Vouchers, err error) {
	stored, err := s.Store.Published(ctx, id)
	if err != nil || stored.Pending {
		return found, err
	}
	if restored(stored) { // verifiers do not take its leaf for a registration
		return Vouchers{Known: true}, nil
	}
	trusted, log := s.Keys().Trusted, s.publicLog()
	record, finding := s.records.verify(trusted, stored.SignedID(id), stored.Event.Data)
	if finding != evidence.Valid {
		return found, nil
	}
	shard, position, leaf := stored.Event.Shard, stored.Event.Position, stored.Leaf()
	proof, err := log.Inclusion(ctx, shard, position, leaf)
	if err != nil {
		return found, err
	}
	if _, err := proof.Check(stored.Record.Payload, trusted); err != nil {
		return found, nil //nolint:nilerr // verifiers trust no checkpoint of this log, so there is nothing to count
	}
	known, err := s.vouched(ctx)
	if err != nil {
		return found, err
	}
	for _, w := range s.Parties.witnesses(trusted) {
		if c, ok := known.cosigned[w.VerifierKey]; ok && w.Counts() && c.TreeSize > proof.LeafIndex {
			found.Witnesses++
		}
	}
	found.Known = true
	if len(trusted.Authorities()) == 0 {
		return found, nil
	}
	stamps, err := log.Stamped(ctx, shard, position, leaf)
	if err != nil {
		return Vouchers{}, err
	}
	envelope := evidence.Envelope{Inclusion: proof, Timestamps: stamps}
	envelope.Payload = string(stored.Record.Payload)
	receivedAt := time.UnixMicro(record.receivedAt)
	found.Authority, found.Before, _ = envelope.ExistedBefore(trusted, receivedAt, s.Now())
	return found, nil
}
