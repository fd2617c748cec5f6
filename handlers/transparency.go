package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
	"integrityledger/projections/query"
)

const (
	// proofTimeout is for how long evidence waits for the proof of inclusion, and proofPause for how long it does not
	// ask for one after it has waited in vain.
	proofTimeout = 300 * time.Millisecond
	proofPause   = 5 * time.Second

	checkpointType = "text/plain; charset=utf-8"
	tileType       = "application/octet-stream"
)

// logAway says that the log cannot be read now; noLog, that the service keeps none.
func logAway(err error) error {
	return fmt.Errorf("transparency log: %w: %w", domain.Unavailable("The transparency log cannot be read at the moment; send the request again."), err)
}

func noLog() error {
	return domain.Refuse(domain.NotFound, "This service keeps no transparency log.")
}

// checkpoint answers the newest signed tree head, as C2SP tlog-checkpoint has it.
func (s *server) checkpoint(r *http.Request) (any, error) {
	if s.Transparency == nil {
		return nil, noLog()
	}
	note, err := s.Transparency.Checkpoint(r.Context())
	if errors.Is(err, transparency.ErrNoCheckpoint) {
		return nil, domain.Unavailable("The transparency log has not signed a checkpoint yet; send the request again.")
	}
	if err != nil {
		return nil, logAway(err)
	}
	return response{raw: []byte(note), contentType: checkpointType, cache: noStore}, nil
}

// tile answers a hash tile, as C2SP tlog-tiles names it. There are no entry tiles: what the events say is nobody's but
// the organization's.
func (s *server) tile(r *http.Request) (any, error) {
	if s.Transparency == nil {
		return nil, noLog()
	}
	hashes, err := s.Transparency.Tile(r.Context(), variable(r, "tile"))
	if errors.Is(err, transparency.ErrNoTile) {
		return nil, domain.Refuse(domain.NotFound, "The published tree has no such tile. A tile is <level>/<n> or <level>/<n>.p/<width>, of hashes that the checkpoint covers.")
	}
	if err != nil {
		return nil, logAway(err)
	}
	return response{raw: hashes, contentType: tileType, cache: "public, max-age=31536000, immutable"}, nil
}

// inclusion answers the proof that the registration of a record is in the published tree.
func (s *server) inclusion(r *http.Request) (any, error) {
	stored, err := s.Store.Evidence(r.Context(), callOf(r).access, publicID(variable(r, "publicId")))
	if err != nil {
		return nil, err
	}
	if s.Transparency == nil {
		return nil, noLog()
	}
	proof, err := s.Transparency.Inclusion(r.Context(), stored.Event.Shard, stored.Event.Position, stored.Leaf())
	if errors.Is(err, transparency.ErrNotIntegrated) {
		return nil, domain.Refuse(domain.InvalidState, "The registration is not in the published tree of the transparency log yet; that takes a few seconds. Ask again later.")
	}
	if err != nil {
		return nil, logAway(err)
	}
	return proof, nil
}

// inclusionIfThere is the same proof for evidence, which never waits for it: nil where the log is not kept, has not
// come so far, or does not answer at once.
func (s *server) inclusionIfThere(ctx context.Context, stored *query.Evidence) *evidence.Inclusion {
	if s.Transparency == nil || s.Now().UnixNano() < s.unproven.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	proof, err := s.Transparency.Inclusion(ctx, stored.Event.Shard, stored.Event.Position, stored.Leaf())
	if err == nil || errors.Is(err, transparency.ErrNotIntegrated) {
		return proof
	}
	s.unproven.Store(s.Now().Add(proofPause).UnixNano())
	s.Log.WarnContext(ctx, "evidence goes without proof of inclusion for a while", "error", err, "pause", proofPause)
	return nil
}
