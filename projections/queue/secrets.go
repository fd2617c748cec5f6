package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/internal/statement"
)

// Secrets finds everything that a domain.SecretKey encrypts and that the service may still have to decrypt: the
// secrets of webhook destinations, and the codes of invitations that wait to be mailed. The log also keeps each secret
// as it was encrypted first, but nothing decrypts those.
type Secrets struct {
	Pool   eventstore.Database
	Shards int
	Now    func() time.Time
}

// secretBatch is the number of rows that are read at a time.
const secretBatch = 500

var (
	findSealedWebhooks = cluster.SQL(`SELECT webhook_id, organization_id, secret, previous_secret, previous_until
	FROM {webhooks} WHERE shard = $1 AND webhook_id > $2 AND status <> 'deleted' ORDER BY webhook_id LIMIT $3`)
	findSealedInvitations = cluster.SQL(`SELECT mail_id, organization_id, sealed
	FROM {invitation_mails} WHERE shard = $1 AND mail_id > $2 ORDER BY mail_id LIMIT $3`)
	reencryptInvitation = cluster.SQL(`UPDATE {invitation_mails} SET sealed = $4
	WHERE shard = $1 AND mail_id = $2 AND sealed = $3`)
)

type sealedInvitation struct {
	ID           domain.EventID
	Organization domain.OrganizationID
	Sealed       []byte
}

func scanSealedWebhook(row pgx.CollectableRow) (w domain.Webhook, err error) {
	err = row.Scan(&w.ID, &w.Organization, &w.Secret, &w.PreviousSecret, &w.PreviousUntil)
	return w, err
}

// each calls the functions with every row of a ledger.
func (s Secrets) each(
	ctx context.Context, webhook func(domain.Shard, domain.Webhook) error, mail func(domain.Shard, sealedInvitation) error,
) error {
	for _, shard := range Shards(s.Shards) {
		err := eachRow(ctx, s.Pool, shard, findSealedWebhooks, scanSealedWebhook,
			func(w domain.Webhook) domain.WebhookID { return w.ID }, webhook)
		if err == nil {
			err = eachRow(ctx, s.Pool, shard, findSealedInvitations, pgx.RowToStructByPos[sealedInvitation],
				func(m sealedInvitation) domain.EventID { return m.ID }, mail)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachRow reads the rows of a shard in the order of their ids, secretBatch at a time.
func eachRow[T, I any](
	ctx context.Context, db eventstore.Database, shard domain.Shard, find string, scan pgx.RowToFunc[T], id func(T) I,
	do func(domain.Shard, T) error,
) error {
	var after I
	for more := true; more; {
		rows, err := statement.All(ctx, db, "read sealed secrets", scan, find, shard, after, secretBatch)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := do(shard, row); err != nil {
				return err
			}
			after = id(row)
		}
		more = len(rows) == secretBatch
	}
	return nil
}

// sealedWith lists the IDs of the keys that are needed to sign deliveries to a destination.
func (s Secrets) sealedWith(w domain.Webhook) []string {
	ids := []string{domain.SealedWith(w.Secret)}
	if w.PreviousUntil != nil && w.PreviousUntil.After(s.Now()) {
		ids = append(ids, domain.SealedWith(w.PreviousSecret))
	}
	return ids
}

// Stored counts the secrets by the ID of the key that encrypted them.
func (s Secrets) Stored(ctx context.Context) (map[string]int, error) {
	stored := map[string]int{}
	return stored, s.each(ctx, func(_ domain.Shard, w domain.Webhook) error {
		for _, id := range s.sealedWith(w) {
			stored[id]++
		}
		return nil
	}, func(_ domain.Shard, m sealedInvitation) error {
		stored[domain.SealedWith(m.Sealed)]++
		return nil
	})
}

// Reencrypted counts what a run of Reencrypt has done.
type Reencrypted struct {
	Webhooks    int
	Invitations int
	Unreadable  int // destinations and invitations that none of the keys decrypts
}

// Reencrypt encrypts with the first key every secret that another key encrypted. It may be interrupted at any moment
// and repeated. A secret that is replaced meanwhile is left alone. by makes the origin of the events of an
// organization's destinations, and do executes their commands.
func (s Secrets) Reencrypt(
	ctx context.Context, keys domain.SecretKeys, by func(domain.OrganizationID) domain.Origin,
	do func(context.Context, domain.Command) error,
) (done Reencrypted, err error) {
	current := func(ids ...string) bool {
		for _, id := range ids {
			if id != keys[0].ID() {
				return false
			}
		}
		return true
	}
	err = s.each(ctx, func(_ domain.Shard, w domain.Webhook) error {
		if current(s.sealedWith(w)...) {
			return nil
		}
		command, err := domain.NewReencryptWebhook(by(w.Organization), w, keys, s.Now())
		if err != nil {
			done.Unreadable++
			return nil //nolint:nilerr // counted
		}
		if err = do(ctx, command); err == nil && command.Changed {
			done.Webhooks++
		}
		return err
	}, func(shard domain.Shard, m sealedInvitation) error {
		if current(domain.SealedWith(m.Sealed)) {
			return nil
		}
		code, err := keys.Open(m.Organization, m.Sealed)
		if err != nil {
			done.Unreadable++
			return nil //nolint:nilerr // counted
		}
		done.Invitations++
		sealed := keys[0].Seal(m.Organization, code)
		return statement.Exec(ctx, s.Pool, "encrypt a code again", reencryptInvitation, shard, m.ID, m.Sealed, sealed)
	})
	return done, err
}
