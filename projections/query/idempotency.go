package query

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// Idempotency-Keys (contract section 7). An answer is kept for 24 hours. A request that neither finished nor released
// its claim, because its process died, holds it for at most claimLease.
const (
	answerLife = 24 * time.Hour
	claimLease = 3 * time.Minute
)

// KnownAnswer is the answer of an earlier request with the same key.
type KnownAnswer struct {
	Status int
	Body   []byte
}

// keyUse is an earlier use of an Idempotency-Key.
type keyUse struct {
	Fingerprint []byte
	Status      *int // nil: the request is still running
	Answer      []byte
}

var claimKey = cluster.SQL(`INSERT INTO {idempotency_keys} AS k (shard, organization_id, route, key, token, fingerprint, created_at, lease_until)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
	ON CONFLICT (shard, organization_id, route, key) DO UPDATE SET token = excluded.token, fingerprint = excluded.fingerprint,
		created_at = excluded.created_at, lease_until = excluded.lease_until, status = NULL, answer = NULL
	WHERE k.created_at <= $9 AND k.lease_until <= $7
		OR k.status IS NULL AND k.lease_until <= $7 AND k.fingerprint = excluded.fingerprint
	RETURNING true`)

var findAnswer = cluster.SQL(`SELECT fingerprint, status, answer FROM {idempotency_keys}
	WHERE shard = $1 AND organization_id = $2 AND route = $3 AND key = $4`)

// Claim claims an Idempotency-Key for a request, or returns the answer of the finished request that used it. It refuses
// a request with other content with IDEMPOTENCY_KEY_REUSED, one whose first attempt is still running with
// REQUEST_IN_PROGRESS, and one whose answer was erased with INVALID_STATE.
func (s AnswerReader) Claim(
	ctx context.Context, c domain.Claim, fingerprint []byte, now time.Time,
) (*KnownAnswer, error) {
	shard := c.Organization.Shard()
	_, taken, err := statement.First(ctx, s.Pool, "claim an idempotency key", pgx.RowTo[bool], claimKey,
		shard, c.Organization, c.Scope(), c.Key, c.Token, fingerprint, now, now.Add(claimLease), now.Add(-answerLife))
	if err != nil || taken {
		return nil, err
	}
	k, found, err := statement.First(ctx, s.Pool, "read an idempotency key", pgx.RowToStructByPos[keyUse], findAnswer,
		shard, c.Organization, c.Scope(), c.Key)
	if err == nil && !found { // released between the two statements
		err = domain.ErrRequestUnderWay
	}
	return k.answerOf(fingerprint, err)
}

// answerOf returns the answer to a repetition of the request, or the reason for its refusal.
func (k keyUse) answerOf(fingerprint []byte, err error) (*KnownAnswer, error) {
	switch {
	case err != nil:
		return nil, err
	case k.Status != nil && k.Answer == nil: // erased
		return nil, domain.Refuse(
			domain.InvalidState,
			"The request with this Idempotency-Key was answered; the answer has been erased since, with texts that an "+
				"operator erased.",
		)
	case !bytes.Equal(k.Fingerprint, fingerprint):
		return nil, domain.Refuse(
			domain.IdempotencyKeyReused, "This Idempotency-Key was used with other content; use a new key for a new request.",
		)
	case k.Status == nil:
		return nil, domain.ErrRequestUnderWay
	}
	return &KnownAnswer{Status: *k.Status, Body: k.Answer}, nil
}

// Answer stores the answer of a claimed request without events.
func (s AnswerReader) Answer(ctx context.Context, a domain.StoredAnswer) error {
	return statement.Exec(ctx, s.Pool, finishKey, projections.StoreAnswer+" AND status IS NULL", a.Organization.Shard(),
		a.Organization, a.Scope(), a.Key, a.Token, a.Status, a.Body)
}

var releaseKey = cluster.SQL(`DELETE FROM {idempotency_keys}
	WHERE shard = $1 AND organization_id = $2 AND route = $3 AND key = $4 AND token = $5 AND status IS NULL`)

// Release releases a claim, so that the same request may be sent again at once.
func (s AnswerReader) Release(ctx context.Context, c domain.Claim) error {
	return statement.Exec(ctx, s.Pool, finishKey, releaseKey, c.Organization.Shard(), c.Organization, c.Scope(), c.Key,
		c.Token)
}

const finishKey = "finish an idempotency key"

// forgetAnswers finds the oldest answers by their index and deletes each by its place.
var forgetAnswers = cluster.SQL(`DELETE FROM {idempotency_keys} k
	USING (SELECT ctid AS place FROM {idempotency_keys} WHERE shard = $1 AND created_at <= $2 AND lease_until <= $3
		ORDER BY created_at LIMIT $4 FOR UPDATE SKIP LOCKED) d
	WHERE k.shard = $1 AND k.ctid = d.place`)

// ForgetAnswers deletes expired answers, in small steps that delay no request.
func (s AnswerReader) ForgetAnswers(ctx context.Context, now time.Time) error {
	const bite = 1000
	return s.Installation.EachShard(ctx, s.Pool, func(ctx context.Context, shard domain.Shard) (err error) {
		for forgotten := int64(bite); forgotten == bite && err == nil; {
			forgotten, err = statement.Try(
				ctx, s.Pool, "forget answers of idempotent requests", forgetAnswers, shard, now.Add(-answerLife), now, bite,
			)
		}
		return err
	})
}
