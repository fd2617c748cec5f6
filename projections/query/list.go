package query

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// ListDepth is the maximum number of rows that a page of records or reservations searches. The filters have no index,
// because every registration would have to write it. A page may therefore hold fewer entries than its limit, even none,
// although more pages follow.
const ListDepth = 10_000

// Page is a page of such a list.
type Page[Entry, Place any] struct {
	Entries []Entry
	Next    *Place // start of the next page; nil at the end
}

// searched returns the page found by a search of at most ListDepth rows, with up to limit+1 placed entries. last finds
// the place of row ListDepth, if there are so many rows. Entries after it, which were added between the two queries,
// are left to the next page.
func searched[Entry, Place any](
	found []placed[Entry, Place], limit int, behind func(a, b Place) bool, last func() (Place, bool, error),
) (page Page[Entry, Place], err error) {
	if len(found) > limit {
		found = found[:limit]
		page.Next = &found[limit-1].place
	} else if place, more, err := last(); err != nil {
		return page, err
	} else if more {
		page.Next = &place
		found = slices.DeleteFunc(found, func(e placed[Entry, Place]) bool { return behind(e.place, place) })
	}
	page.Entries = statement.Column(found, func(e placed[Entry, Place]) Entry { return e.entry })
	return page, nil
}

// placed is an entry with its place in the list.
type placed[Entry, Place any] struct {
	entry Entry
	place Place
}

// The rows of a search end at the $5th, which lastRow finds.
const (
	firstRows = ` LIMIT $5`
	lastRow   = ` LIMIT 1 OFFSET $5 - 1`
)

// RecordQuestion selects records of a company. Empty fields select all.
type RecordQuestion struct {
	Company  string
	Source   string
	Document string // a reference of the source
	Status   domain.Status
	From, To *time.Time // bounds of receivedAt; From is inclusive, To exclusive
	Before   int64      // start of the page; 0 means the newest
	Limit    int
}

// Records are searched newest first, in a company's feed, where places are sequences, or in a document, where places
// are versions. $3 and $4 bound the place, both exclusive.
const (
	feedBackwards = `SELECT sequence AS place, type, document_id, version FROM {feed}
		WHERE shard = $1 AND company_id = $2 AND sequence > $3 AND sequence < $4 ORDER BY sequence DESC`
	documentBackwards = `SELECT version AS place, NULL::smallint AS type, document_id, version FROM {versions}
		WHERE shard = $1 AND document_id = $2 AND version > $3::bigint AND version < $4::bigint ORDER BY version DESC`
)

var findDocument = cluster.SQL(
	`SELECT document_id FROM {documents} WHERE shard = $1 AND company_id = $2 AND source = $3 AND reference = $4`,
)

// listRecords returns a statement that reads no more rows than the entries need.
func listRecords(rows string) string {
	return cluster.SQL(recordColumns + `, w.place::bigint
	FROM (` + rows + firstRows + `) w
	CROSS JOIN (SELECT $6::text AS reference) c
	JOIN LATERAL (SELECT source, reference, highest_version FROM {documents} WHERE shard = $1 AND document_id = w.document_id OFFSET 0) d ON true
	JOIN LATERAL (SELECT version, public_id, record_id, previous_version, sha256, size_bytes, mime_type, generated_at, received_at, revoked_at
		FROM {versions} WHERE shard = $1 AND document_id = w.document_id AND version = w.version OFFSET 0) i ON true
	WHERE coalesce(w.type = $7, true) AND i.record_id IS NOT NULL AND ($8 = '' OR d.source = $8)
		AND ($9 = '' OR $9 = CASE WHEN i.revoked_at IS NOT NULL THEN 'revoked' WHEN i.version = d.highest_version THEN 'current' ELSE 'superseded' END)
		AND i.received_at >= coalesce($10::timestamptz, '-infinity') AND i.received_at < coalesce($11::timestamptz, 'infinity')
	ORDER BY w.place DESC LIMIT $12`)
}

// SearchedSources is the maximum number of sources, of all companies, in which a reference is searched.
const SearchedSources = 1000

// A reference identifies a document within one source of one company, and has no other index. So the sources of each
// company are found first, each with one step along the index, and then the reference in each.
var (
	sourcesOf = cluster.SQL(`WITH RECURSIVE c AS MATERIALIZED (
		SELECT company_id, reference FROM {companies} WHERE shard = $1 AND organization_id = $2 ORDER BY reference LIMIT $3
	), sources(company_id, reference, source) AS (
		SELECT c.company_id, c.reference, d.source FROM c
		LEFT JOIN LATERAL (SELECT source FROM {documents} WHERE shard = $1 AND company_id = c.company_id ORDER BY source LIMIT 1) d ON true
		UNION ALL
		SELECT s.company_id, s.reference, d.source FROM sources s
		JOIN LATERAL (SELECT source FROM {documents} WHERE shard = $1 AND company_id = s.company_id AND source > s.source ORDER BY source LIMIT 1) d ON true
	)
	SELECT company_id, reference, source FROM sources LIMIT $3`)

	referenced = cluster.SQL(recordColumns + `
	FROM unnest($2::uuid[], $3::text[], $4::text[]) AS c(company_id, reference, source)
	JOIN LATERAL (SELECT document_id, source, reference, highest_version FROM {documents}
		WHERE shard = $1 AND company_id = c.company_id AND source = c.source AND reference = $5 OFFSET 0) d ON true
	JOIN LATERAL (SELECT record_id, public_id, sha256, version, previous_version, size_bytes, mime_type, generated_at, received_at, revoked_at
		FROM {versions} WHERE shard = $1 AND document_id = d.document_id AND version = d.highest_version AND record_id IS NOT NULL OFFSET 0) i ON true
	WHERE i.record_id < $6
	ORDER BY i.record_id DESC LIMIT $7`)
)

// Referenced finds, for a signed-in member, the documents with a reference in any company and source. It returns the
// record of each document's highest version, in pages like Search. whole is false if not every source was searched.
func (s RecordReader) Referenced(
	ctx context.Context, a domain.Access, reference string, before domain.RecordID, limit int,
) (records []domain.Record, more, whole bool, err error) {
	records, err = readMuch(ctx, s.reader, a, func(from source) ([]domain.Record, error) {
		type place struct {
			Company   domain.CompanyID
			Reference string
			Source    *string
		}
		places, err := statement.All(
			ctx, from, "list sources", pgx.RowToStructByPos[place], sourcesOf, a.Organization.Shard(), a.Organization,
			SearchedSources,
		)
		if err != nil {
			return nil, err
		}
		whole = len(places) < SearchedSources
		return statement.All(ctx, from, "find a reference", scanRecord, referenced, a.Organization.Shard(),
			statement.Column(places, func(p place) domain.CompanyID { return p.Company }),
			statement.Column(places, func(p place) string {
				return p.Reference
			}),
			statement.Column(places, func(p place) *string { return p.Source }), reference, behind(before), limit+1)
	})
	records, more, err = statement.Page(records, limit, err)
	return records, more, whole, err
}

// receivedApart is longer than the time between a record's receivedAt and its event, which is the wait for the ledger
// plus the difference between clocks.
const receivedApart = 10 * time.Minute

// Records lists records of a company that the key may use: from its feed, last registered first, or the versions of one
// document, highest first. Records registered after the first page are left out of later pages.
func (s RecordReader) Records(
	ctx context.Context, a domain.Access, q RecordQuestion,
) (page Page[domain.Record, int64], err error) {
	company, err := s.grantedCompany(ctx, a, q.Company)
	if err != nil {
		return page, err
	}
	if q.Before > 0 {
		a.ReadAfter = nil // a replica might lack the rows after the previous page
	}
	return readMuch(ctx, s.reader, a, func(from source) (page Page[domain.Record, int64], err error) {
		shard, rows, of, low, high := a.Organization.Shard(), feedBackwards, [16]byte(company.ID), int64(0),
			int64(math.MaxInt64)
		if q.Document != "" {
			document, found, err := statement.First(
				ctx, from, "find a document", pgx.RowTo[domain.DocumentID], findDocument, shard, company.ID, q.Source, q.Document,
			)
			if err != nil || !found {
				return page, err
			}
			rows, of = documentBackwards, document
		} else if low, high, err = registeredIn(ctx, from, a.Organization, min(company.Head, from.sequence), q); err != nil {
			return page, err
		}
		if q.Before > 0 {
			high = min(high, q.Before)
		}
		found, err := statement.All(ctx, from, "list records",
			func(row pgx.CollectableRow) (r placed[domain.Record, int64], err error) {
				r.entry, err = scanRecordAnd(row, &r.place)
				return r, err
			}, listRecords(rows), shard, of, low, high, ListDepth, q.Company, projections.FeedTypeCode(domain.RecordRegistered),
			q.Source, q.Status, q.From, q.To, q.Limit+1)
		if err != nil {
			return page, err
		}
		return searched(found, q.Limit, func(a, b int64) bool { return a < b }, func() (int64, bool, error) {
			return statement.First(ctx, from, "look how far records were searched",
				func(row pgx.CollectableRow) (place int64, err error) {
					return place, row.Scan(&place, nil, nil, nil)
				}, cluster.SQL(rows+lastRow), shard, of, low, high, ListDepth)
		})
	})
}

// registeredIn returns exclusive bounds of the sequences at which the records of an interval were registered, up to
// head. Times follow the sequences unless a clock was reset.
func registeredIn(
	ctx context.Context, from source, o domain.OrganizationID, head int64, q RecordQuestion,
) (low, high int64, err error) {
	high = head
	if q.From != nil {
		if low, err = findSequence(ctx, from, allBefore, o, head, q.From.Add(-receivedApart)); err != nil {
			return low, high, err
		}
	}
	if q.To != nil && q.Before == 0 { // later pages are bounded already
		high, err = findSequence(ctx, from, sequenceAt, o, head, q.To.Add(receivedApart))
	}
	return low, high + 1, err
}

// ReservationQuestion selects a company's reserved versions that are not registered.
type ReservationQuestion struct {
	Company string
	Status  domain.ReservationStatus // at Now; empty: any
	Now     time.Time
	After   *ReservationPlace
	Limit   int
}

// ReservationPlace is the place of a reservation in the list, which is ordered by expiry.
type ReservationPlace struct {
	ExpiresAt time.Time
	PublicID  domain.PublicID
}

func (p ReservationPlace) compare(other ReservationPlace) int {
	return cmp.Or(p.ExpiresAt.Compare(other.ExpiresAt), bytes.Compare(p.PublicID[:], other.PublicID[:]))
}

const reservationsFrom = ` FROM {versions} WHERE shard = $1 AND organization_id = $2 AND record_id IS NULL AND expires_at >= $3`

// lastReservation finds the place of row $4 from a time on, if there are so many, plus the rows that expire at the same
// moment, which are fewer than the commands of a group.
var lastReservation = cluster.SQL(`SELECT expires_at, public_id
	FROM (SELECT expires_at, public_id, count(*) OVER () AS rows
		FROM (SELECT expires_at, public_id` + reservationsFrom + ` ORDER BY expires_at FETCH FIRST ($4) ROWS WITH TIES) w) w
	WHERE rows >= $4 ORDER BY expires_at DESC, public_id DESC LIMIT 1`)

// listReservations reads the reservations after the place $3, $4 and up to the place $5, $10.
var listReservations = cluster.SQL(`SELECT w.expires_at, w.public_id, w.version, d.source, d.reference, coalesce(w.released_at = w.expires_at, false)
	FROM (SELECT expires_at, public_id, document_id, version, released_at` + reservationsFrom + `
		AND expires_at <= $5 AND (expires_at, public_id) > ($3, $4::uuid) AND (expires_at, public_id) <= ($5, $10::uuid) OFFSET 0) w
	JOIN LATERAL (SELECT company_id, source, reference FROM {documents} WHERE shard = $1 AND document_id = w.document_id OFFSET 0) d ON true
	WHERE d.company_id = $6
		AND ($7 = '' OR $7 = CASE WHEN w.released_at = w.expires_at THEN 'released' WHEN w.expires_at > $8 THEN 'pending' ELSE 'expired' END)
	ORDER BY w.expires_at, w.public_id LIMIT $9`)

// Reservations lists reservations by expiry, earliest first. A reservation that is renewed between two pages is listed
// again. They have an index without registered versions. The end of the search is read first: a reservation that is
// registered meanwhile then moves no other past the end of the page.
func (s RecordReader) Reservations(
	ctx context.Context, a domain.Access, q ReservationQuestion,
) (page Page[domain.ReservedVersion, ReservationPlace], err error) {
	company, err := s.grantedCompany(ctx, a, q.Company)
	if err != nil {
		return page, err
	}
	after := ReservationPlace{ExpiresAt: time.Unix(0, 0)}
	switch {
	case q.After != nil:
		after, a.ReadAfter = *q.After, nil
	case q.Status == domain.ReservationPending:
		after.ExpiresAt = q.Now
	}
	return readMuch(ctx, s.reader, a, func(from source) (page Page[domain.ReservedVersion, ReservationPlace], err error) {
		end := ReservationPlace{ExpiresAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
		last, more, err := statement.First(ctx, from, "look how far reservations are searched",
			pgx.RowToStructByPos[ReservationPlace],
			lastReservation, a.Organization.Shard(), a.Organization, after.ExpiresAt, ListDepth)
		if err != nil {
			return page, err
		}
		if more {
			end = last
		}
		found, err := statement.All(ctx, from, "list reservations",
			func(row pgx.CollectableRow) (r placed[domain.ReservedVersion, ReservationPlace], err error) {
				d := domain.Document{}
				v := domain.Version{Document: &d}
				err = row.Scan(&v.ExpiresAt, &v.PublicID, &v.Version, &d.Source, &d.Reference, &v.Released)
				r.entry, r.place = v.Reserved(q.Company, q.Now), ReservationPlace{v.ExpiresAt, v.PublicID}
				return r, err
			}, listReservations, a.Organization.Shard(), a.Organization, after.ExpiresAt, after.PublicID, end.ExpiresAt,
			company.ID, q.Status, q.Now, q.Limit+1, end.PublicID)
		if err != nil {
			return page, err
		}
		return searched(found, q.Limit, func(a, b ReservationPlace) bool { return a.compare(b) > 0 },
			func() (ReservationPlace, bool, error) {
				return last, more, nil
			})
	})
}

const reservedColumns = `SELECT c.reference, d.source, d.reference, v.version, v.public_id, v.record_id, v.received_at, v.expires_at,
		coalesce(v.released_at = v.expires_at, false)
	FROM {versions} v
	JOIN {documents} d ON d.shard = $1 AND d.document_id = v.document_id
	JOIN {companies} c ON c.shard = $1 AND c.company_id = d.company_id
	WHERE v.shard = $1 AND v.organization_id = $2`

func scanReserved(now time.Time) pgx.RowToFunc[domain.ReservedVersion] {
	return func(row pgx.CollectableRow) (domain.ReservedVersion, error) {
		d := domain.Document{}
		v := domain.Version{Document: &d}
		var company string
		var record *domain.RecordID
		err := row.Scan(&company, &d.Source, &d.Reference, &v.Version, &v.PublicID, &record,
			(*zeronull.Timestamptz)(&v.ReceivedAt), (*zeronull.Timestamptz)(&v.ExpiresAt), &v.Released)
		if record != nil {
			v.RecordID = *record
		}
		return v.Reserved(company, now), err
	}
}

var findReserved = cluster.SQL(reservedColumns + ` AND v.public_id = $3`)

// ReservedVersion finds a version of a signed-in member's organization by its public id, reserved or registered.
func (s RecordReader) ReservedVersion(
	ctx context.Context, a domain.Access, id domain.PublicID, now time.Time,
) (domain.ReservedVersion, error) {
	return read(ctx, s.reader, a, newEnough(a), func(from source) (domain.ReservedVersion, error) {
		return statement.One(ctx, from, "find a reserved version", domain.ErrUnknownReservation, scanReserved(now),
			findReserved, a.Organization.Shard(), a.Organization, id)
	})
}

// versionsNamed reads versions of an organization by their public ids.
var versionsNamed = cluster.SQL(`SELECT c.reference, d.source, d.reference, v.version, v.public_id, v.record_id, v.received_at, v.expires_at,
		coalesce(v.released_at = v.expires_at, false)
	FROM unnest($3::uuid[]) AS n(id)
	JOIN LATERAL (SELECT document_id, version, public_id, record_id, received_at, expires_at, released_at
		FROM {versions} WHERE shard = $1 AND public_id = n.id AND organization_id = $2 OFFSET 0) v ON true
	JOIN LATERAL (SELECT company_id, source, reference FROM {documents} WHERE shard = $1 AND document_id = v.document_id OFFSET 0) d ON true
	JOIN LATERAL (SELECT reference FROM {companies} WHERE shard = $1 AND company_id = d.company_id OFFSET 0) c ON true`)

// VersionsNamed reads, for a signed-in member, the versions with these ids, reserved or registered, of any company. Ids
// that are not versions of the organization are left out.
func (s RecordReader) VersionsNamed(
	ctx context.Context, a domain.Access, ids []domain.PublicID, now time.Time,
) ([]domain.ReservedVersion, error) {
	return read(ctx, s.reader, a, newEnough(a), func(from source) ([]domain.ReservedVersion, error) {
		return statement.All(ctx, from, "read versions", scanReserved(now), versionsNamed,
			a.Organization.Shard(), a.Organization, ids)
	})
}

var findReservedAs = cluster.SQL(reservedColumns + ` AND c.organization_id = $2 AND c.reference = $3 AND d.source = $4 AND d.reference = $5
	AND v.version = $6`)

// ReservedAs finds a version of a signed-in member's organization by the reference of its origin, reserved or
// registered.
func (s RecordReader) ReservedAs(
	ctx context.Context, a domain.Access, v domain.VersionReference, now time.Time,
) (domain.ReservedVersion, error) {
	return read(ctx, s.reader, a, newEnough(a), func(from source) (domain.ReservedVersion, error) {
		return statement.One(ctx, from, "find a reserved version", domain.ErrUnknownReservation, scanReserved(now),
			findReservedAs, a.Organization.Shard(), a.Organization, v.CompanyReference, v.Source, v.DocumentReference, v.Version)
	})
}

var listPending = cluster.SQL(reservedColumns + ` AND v.record_id IS NULL AND v.expires_at > $3
	AND ($4 = '' OR d.source = $4) ORDER BY v.expires_at DESC, v.public_id LIMIT $5`)

// Pending lists the pending reservations of a signed-in member's organization, the last to expire first: of an origin
// system, or all if it is empty. An organization has at most domain.MaxPendingReservations.
func (s RecordReader) Pending(
	ctx context.Context, a domain.Access, origin string, now time.Time, limit int,
) (list []domain.ReservedVersion, more bool, err error) {
	list, err = read(ctx, s.reader, a, newEnough(a), func(from source) ([]domain.ReservedVersion, error) {
		return statement.All(ctx, from, "list pending reservations", scanReserved(now), listPending,
			a.Organization.Shard(), a.Organization, now, origin, limit+1)
	})
	return statement.Page(list, limit, err)
}
