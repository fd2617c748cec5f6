package handlers_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// pages reads a list to its end and calls between before every further page. Pages without entries count too.
func pages[P, E any](s *service, path string, parts func(P) ([]E, wire.Next), between func()) (all []E, pages int) {
	s.t.Helper()
	for after := ""; ; {
		entries, next := parts(read[P](s.get(path+after), http.StatusOK))
		pages++
		all = append(all, entries...)
		if (next.NextCursor != nil) != next.HasMore {
			s.t.Fatalf("hasMore %t, nextCursor %v", next.HasMore, next.NextCursor)
		}
		if !next.HasMore {
			return all, pages
		}
		after = "&after=" + url.QueryEscape(*next.NextCursor)
		if between != nil {
			between()
		}
	}
}

func (s *service) records(path string, between func()) ([]wire.Record, int) {
	s.t.Helper()
	return pages(s, path, func(p wire.Records) ([]wire.Record, wire.Next) { return p.Records, p.Next }, between)
}

func (s *service) reservations(path string) ([]wire.ReservedVersion, int) {
	s.t.Helper()
	return pages(s, path, func(p wire.Reservations) ([]wire.ReservedVersion, wire.Next) { return p.Reservations, p.Next },
		nil)
}

// column returns one member of every entry.
func column[E, V any](entries []E, member func(E) V) (values []V) {
	for _, e := range entries {
		values = append(values, member(e))
	}
	return values
}

func recordID(r wire.Record) string { return r.PublicID }

func recordVersion(r wire.Record) int32 { return r.Version }

func reservedID(v wire.ReservedVersion) string { return v.PublicID }

// The list is newest first over many pages while other versions are registered, has every filter, has the same rows as
// the search by hash, and shows nothing that the key may not see.
func TestRecordsOfACompany(t *testing.T) {
	s := open(t, options{})
	var ids []string // newest first
	register := func(d body) string {
		id := s.post(integrity+"/records", d).is(http.StatusCreated)["publicId"].(string)
		ids = slices.Insert(ids, 0, id)
		return id
	}
	for i := range 20 {
		register(declaration(fmt.Sprint("d-", i), 1, "x"))
	}
	second := register(declaration("late", 2, "late 2"))
	first := register(declaration("late", 1, "late 1"))
	s.reserved("late", 7)
	third := register(declaration("late", 3, "late 3"))
	erp := register(declaration("late", 1, "erp").with(body{"source": "erp"}))
	s.post(integrity+"/records/"+first+"/revoke", body{}).is(http.StatusOK)
	other := s.Organization(t, 1, domain.InternalPlan) // in the same shard, with a company of the same reference
	s.send(http.MethodPost, integrity+"/records", other.Secret, declaration("d-1", 1, "x")).is(http.StatusCreated)
	company := s.Company(t, s.org, "company-2")
	s.Grant(t, s.org, s.org.Key.ID, company.ID, true)
	s.post(
		integrity+"/records", declaration("d-1", 1, "x").with(body{"companyReference": "company-2"}),
	).is(http.StatusCreated)

	path := integrity + "/records?companyReference=company-1"
	present := slices.Clone(ids)
	fresh := 0
	found, pages := s.records(path+"&limit=3", func() {
		fresh++
		register(declaration(fmt.Sprint("fresh-", fresh), 1, "x"))
		if fresh == 1 {
			register(declaration("d-0", 2, "x")) // a record of a later page is superseded meanwhile
		}
	})
	if equal(t, "those present at the start", column(found, recordID), present); pages < 8 {
		t.Errorf("%d pages", pages)
	}
	if last := found[len(found)-1]; last.Status != domain.StatusSuperseded || *last.SupersededByVersion != 2 {
		t.Errorf("a record that was superseded before its page was read: %+v", last)
	}
	for _, record := range found[:5] {
		equal(t, "row", record, read[wire.Record](s.get(integrity+"/records/"+record.PublicID), http.StatusOK))
	}
	list := func(filters string) []wire.Record {
		t.Helper()
		all, _ := s.records(path+"&limit=2"+filters, nil)
		return all
	}
	equal(t, "source", column(list("&source=erp"), recordID), []string{erp})
	equal(t, "another source", list("&source=nothing"), nil)
	equal(t, "versions of a document, the highest first", column(list("&source=billing&documentReference=late"), recordID),
		[]string{third, second, first})
	equal(t, "one of them is current", column(list("&source=billing&documentReference=late&status=current"), recordID),
		[]string{third})
	equal(t, "no document", list("&source=erp&documentReference=nothing"), nil)
	equal(t, "revoked", column(list("&status=revoked"), recordID), []string{first})
	equal(t, "superseded", column(list("&status=superseded"), recordVersion), []int32{2, 1})
	if n := len(list("&status=current")); n != len(ids)-3 {
		t.Errorf("%d current records of %d", n, len(ids))
	}
	all := list("")
	newest, middle := all[0].ReceivedAt, all[9].ReceivedAt
	bounds := func(from, to string) []wire.Record {
		return list("&receivedFrom=" + url.QueryEscape(from) + "&receivedTo=" + url.QueryEscape(to))
	}
	equal(t, "from one on, before another", column(bounds(middle, newest), recordID), column(all[1:10], recordID))
	earlier := instant(t, middle).Add(-time.Nanosecond).In(time.FixedZone("", 5400)).Format(time.RFC3339Nano)
	equal(t, "an offset and nanoseconds", column(bounds(earlier, newest), recordID), column(all[1:10], recordID))
	later := instant(t, middle).Add(time.Nanosecond).Format(time.RFC3339Nano)
	equal(t, "behind one", column(bounds(later, newest), recordID), column(all[1:9], recordID))
	received := read[wire.Record](s.get(integrity+"/records/"+third), http.StatusOK).ReceivedAt
	document := list("&source=billing&documentReference=late&receivedTo=" + url.QueryEscape(received))
	equal(t, "in a document", column(document, recordID), []string{second, first})

	for reference, secret := range map[string]string{"company-3": s.org.Secret, "company-2": other.Secret} {
		s.send(
			http.MethodGet, integrity+"/records?companyReference="+reference, secret, nil,
		).refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
	}
	s.Grant(t, s.org, s.org.Key.ID, company.ID, false)
	s.get(integrity+"/records?companyReference=company-2").refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
	theirs := read[wire.Records](s.send(http.MethodGet, path, other.Secret, nil), http.StatusOK).Records
	if len(theirs) != 1 || slices.Contains(ids, theirs[0].PublicID) {
		t.Errorf("another organization sees %v", theirs)
	}

	cursor := func(filters string) string {
		t.Helper()
		return "&after=" + s.get(path + "&limit=1" + filters).is(http.StatusOK)["nextCursor"].(string)
	}
	own := cursor("")
	forged := "&after=" + base64.RawURLEncoding.EncodeToString([]byte("x 1"))
	for query, want := range map[string]string{
		"?source=erp": "/companyReference REQUIRED",
		"?companyReference=company-1&documentReference=late":                                                "/source REQUIRED",
		"?companyReference=-&source=-&status=pending":                                                       "/companyReference FORMAT, /source FORMAT, /status FORMAT",
		"?companyReference=company-1&receivedFrom=2026-11-01&receivedTo=2026-11-01T00:00:00+01:00":          "/receivedFrom FORMAT, /receivedTo FORMAT",
		"?companyReference=company-1&receivedFrom=2026-11-01T01:00:00Z&receivedTo=2026-11-01T01:00:00.000Z": "/receivedTo RANGE",
		"?companyReference=company-1&limit=1001":                                                            "/limit RANGE",
		"?companyReference=company-1&sha256=" +
			hash("x"): "/companyReference UNKNOWN_PARAMETER",
		"?companyReference=company-1&after=zz":                                                          "/after FORMAT",
		"?companyReference=company-1" + forged:                                                          "/after DIFFERS",
		"?companyReference=company-1&source=billing" + own:                                              "/after DIFFERS",
		"?companyReference=company-2" + own:                                                             "/after DIFFERS",
		"?companyReference=company-1" + cursor("&receivedTo=2030-01-01T00:00:00Z"):                      "/after DIFFERS",
		"?companyReference=company-1&source=billing" + cursor("&source=billing&documentReference=late"): "/after DIFFERS",
	} {
		if got := pointers(s.get(integrity+"/records"+query).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	s.get(path + "&limit=7" + own).is(http.StatusOK)
	s.get(path + "&receivedTo=2030-01-01T02:00:00%2B02:00" + cursor("&receivedTo=2030-01-01T00:00:00Z")).is(http.StatusOK)
	s.Audit(t)
}

// Among 30,000 registrations a filter without matches searches 10,000 rows per page. An interval of time is found
// without reading rows outside it, even around a reset of the clock.
func TestRecordsAreSearchedInBounds(t *testing.T) {
	s := open(t, options{})
	s.registered("d", 1, "x")
	// The registrations, a minute apart, are versions of one document. The clock is a year ahead in the 5,000 before the
	// reset, which is an event of its own.
	const count, ahead, reset = 30_000, 15_000, 20_000
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	id := fmt.Sprintf("'%x'::uuid", s.org.ID[:])
	made := fmt.Sprintf(`(SELECT n, o.sequence + n + (n > %d)::int AS sequence, h.position + n + (n > %[1]d)::int AS position, received + interval '1 second' AS occurred, received, d.*
		FROM documents d
		JOIN organization_state o ON o.shard = 1 AND o.organization_id = d.organization_id
		JOIN shard_heads h ON h.shard = 1
		CROSS JOIN generate_series(1, %d) n
		CROSS JOIN LATERAL (SELECT timestamptz '%s' + n * interval '1 minute' + CASE WHEN n > %d AND n <= %[1]d THEN interval '1 year' ELSE interval '0' END AS received) r
		WHERE d.shard = 1 AND d.organization_id = %[5]s AND d.reference = 'd') g`, reset, count, start.Format(time.RFC3339),
		ahead, id)
	event := `INSERT INTO events (shard, position, organization_id, sequence, id, v, type, subject, occurred_at, actor, request_id, data, nonce, hash) `
	s.owner(
		event+`SELECT 1, position, organization_id, sequence, gen_random_uuid(), 1, 'integrity.registered', '', occurred, '', '', '', '', '' FROM `+made,
		event+fmt.Sprintf(
			`SELECT 1, position + 1, organization_id, sequence + 1, gen_random_uuid(), 1, 'clock.reset', '%s', received - interval '1 year', '', '', '', '', '' FROM %s WHERE n = %d`,
			s.org.ID, made, reset,
		),
		`INSERT INTO versions (shard, document_id, version, organization_id, public_id, record_id, sha256, size_bytes, mime_type, generated_at, received_at, position)
			SELECT 1, document_id, 1 + n, organization_id, gen_random_uuid(), gen_random_uuid(), sha256(n::text::bytea), 1, 'text/plain', '2030-01-01T00:00:00Z', received, position FROM `+made,
		`INSERT INTO feed (shard, company_id, sequence, event_id, type, status, version, occurred_at, document_id, public_id)
			SELECT 1, company_id, sequence, gen_random_uuid(), 1, 1, 1 + n, occurred, document_id, gen_random_uuid() FROM `+made,
		fmt.Sprintf(
			`UPDATE organization_state SET sequence = sequence + %d WHERE shard = 1 AND organization_id = %s`, count+1, id,
		),
		fmt.Sprintf(`UPDATE documents SET highest_version = %d WHERE shard = 1 AND organization_id = %s`, count+1, id),
	)
	path := integrity + "/records?companyReference=company-1&limit=50"
	place := func(page wire.Records) int64 {
		t.Helper()
		text, err := base64.RawURLEncoding.DecodeString(*page.NextCursor)
		check(t, err)
		n, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
		check(t, err)
		return n
	}
	head := s.sequence()
	for _, list := range []struct {
		filters string
		first   int64 // place of the first row
	}{
		{"&source=erp", head},
		{"&status=revoked", head},
		{"&source=billing&documentReference=d&status=revoked", count + 1},
	} {
		after := ""
		for i := range int64(4) {
			page := read[wire.Records](s.get(path+list.filters+after), http.StatusOK)
			if len(page.Records) != 0 || page.HasMore != (i < 3) {
				t.Fatalf("%s: page %d: %+v", list.filters, i, page)
			}
			if i < 3 {
				// The reset has a sequence but no row in the feed.
				if got, want := place(page), list.first-(i+1)*10_000+1; got != want && got != want-1 {
					t.Errorf("%s: page %d ends at %d, want %d", list.filters, i, got, want)
				}
				after = "&after=" + *page.NextCursor
			}
		}
	}
	in := func(from, to time.Time) (versions []int32, pages int) {
		found, pages := s.records(path+"&receivedFrom="+evidence.FormatTime(from)+"&receivedTo="+evidence.FormatTime(to), nil)
		return column(found, recordVersion), pages
	}
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	for _, c := range []struct{ from, to, first, last int }{
		{100, 110, 110, 101},                                 // before the clock went wrong
		{14_995, 15_010, 15_001, 14_996},                     // when it went wrong
		{525_600 + 16_000, 525_600 + 16_005, 16_005, 16_001}, // by the wrong clock
		{16_000, 16_005, 0, 0},                               // the correct times
		{20_001, 20_010, 20_010, 20_002},                     // right after the reset
		{29_990, 40_000, 30_001, 29_991},
		{-1_000, 3, 3, 2},
		{700_000, 700_010, 0, 0},
	} {
		var want []int
		for version := c.first; version > 0 && version >= c.last; version-- {
			want = append(want, version)
		}
		versions, pages := in(minute(c.from), minute(c.to))
		if equal(t, fmt.Sprint("versions from minute ", c.from, " to ", c.to), versions, want); pages > 3 {
			t.Errorf("from minute %d to %d: %d pages", c.from, c.to, pages)
		}
	}
	first := read[wire.Records](s.get(path+"&receivedTo="+evidence.FormatTime(minute(5_000))), http.StatusOK).Records
	if len(first) != 50 || first[0].Version != 5_000 {
		t.Errorf("the first page of what was received before the 5,000th minute: %+v", first)
	}
}

// Pending, expired and released reservations have pages, and only some keys may release them.
func TestReservationsOfACompany(t *testing.T) {
	s := open(t, options{})
	s.hold()
	var ids []string
	reserve := func(document string) string {
		s.skew.Add(int64(time.Second))
		id := s.reserved(document, 1)
		ids = append(ids, id)
		return id
	}
	for i := range 5 {
		reserve(fmt.Sprint("expired-", i))
	}
	expired := slices.Clone(ids)
	s.skew.Add(int64(8 * 24 * time.Hour))
	for i := range 5 {
		reserve(fmt.Sprint("pending-", i))
	}
	pending := slices.Clone(ids[5:])
	company := s.Company(t, s.org, "company-2")
	s.Grant(t, s.org, s.org.Key.ID, company.ID, true)
	elsewhere := s.post(
		integrity+"/reservations", version("d", 1).with(body{"companyReference": "company-2"}),
	).is(http.StatusCreated)["publicId"].(string)
	path := integrity + "/reservations?companyReference=company-1"
	list := func(filters string) []wire.ReservedVersion {
		t.Helper()
		all, _ := s.reservations(path + "&limit=2" + filters)
		return all
	}
	equal(t, "all", column(list(""), reservedID), ids)
	equal(t, "expired", column(list("&status=expired"), reservedID), expired)
	equal(t, "pending", column(list("&status=pending"), reservedID), pending)
	theirs, _ := s.reservations(integrity + "/reservations?companyReference=company-2")
	equal(t, "of another company", column(theirs, reservedID), []string{elsewhere})

	release := func(id, key string) answer {
		t.Helper()
		return s.send(http.MethodDelete, integrity+"/reservations/"+id, key, nil)
	}
	before := s.sequence()
	id := pending[0]
	entry := list("&status=pending")[0]
	s.skew.Add(int64(time.Second))
	released := read[wire.ReleasedReservation](release(id, s.org.Secret), http.StatusOK)
	entry.Status, entry.ExpiresAt = domain.ReservationReleased, evidence.FormatTime(s.Now().Truncate(time.Microsecond))
	equal(t, "released", released, wire.ReleasedReservation{ReservedVersion: entry})
	released.Replayed = true
	equal(t, "released again", read[wire.ReleasedReservation](release(id, s.org.Secret), http.StatusOK), released)
	old := read[wire.ReleasedReservation](release(expired[0], s.org.Secret), http.StatusOK)
	equal(t, "an expired one", []any{old.Status, old.Replayed}, []any{"expired", true})
	if n := s.sequence() - before; n != 1 {
		t.Errorf("%d events of one release", n)
	}
	equal(t, "still expired", len(list("&status=expired")), 5)
	equal(t, "the released", column(list("&status=released"), reservedID), []string{id})
	equal(t, "still pending", column(list("&status=pending"), reservedID), pending[1:])
	if got := s.compared(id, "one"); got.Result != "REGISTRATION_PENDING" {
		t.Errorf("the page of a released link: %v", got)
	}
	s.page("/en/integrity/"+id).says(http.StatusOK, "has released the reservation: it expects to register no file")
	s.page("/integrity/"+id+"?lang=es").says(http.StatusOK, "ha liberado la reserva: no tiene previsto registrar")
	if contains(s.page("/en/integrity/"+pending[1]).body, "released") {
		t.Error("the page of a pending reservation says that it was released")
	}
	history := s.history("action=integrity.released")[0]
	equal(t, "history", []any{history.Target, history.Actor, history.CompanyID}, []any{
		wire.AuditTarget{Type: "reservation", ID: id}, wire.AuditActor{Type: "key",
			ID: new(s.org.Key.ID.String())}, s.org.Company.ID.String()})

	again := s.post(integrity+"/reservations", version("pending-0", 1)).is(http.StatusOK)
	equal(t, "reserved again", []any{again["publicId"], again["status"]}, []any{id, "pending"})
	equal(t, "pending again, the last to expire", column(list("&status=pending"), reservedID), append(pending[1:], id))
	release(id, s.org.Secret).is(http.StatusOK)
	registered := s.post(
		integrity+"/records", declaration("pending-0", 1, "one").with(body{"reservationId": id}),
	).is(http.StatusCreated)
	equal(t, "registered when released", registered["publicId"], id)
	release(id, s.org.Secret).refuses(http.StatusConflict, domain.InvalidState)
	equal(t, "a record is no reservation", len(list("")), 9)

	other := s.Organization(t, 1, domain.InternalPlan)
	reader, readOnly := s.Key(t, s.org, domain.IntegrityRead)
	s.Grant(t, s.org, reader.ID, s.org.Company.ID, true)
	_, foreign := s.limitedKey(new("payroll"), nil, nil)
	_, ungranted := s.Key(t, s.org, domain.IntegrityWrite, domain.IntegrityRead)
	mine := pending[1]
	unknown := s.send(
		http.MethodDelete, integrity+"/reservations/"+strings.Repeat("a", 26), s.org.Secret, nil, "X-Request-Id", "same",
	)
	for key, hidden := range map[string]string{other.Secret: mine, ungranted: mine, s.org.Secret: "x"} {
		a := s.send(http.MethodDelete, integrity+"/reservations/"+hidden, key, nil, "X-Request-Id", "same")
		a.refuses(http.StatusNotFound, domain.NotFound)
		equal(t, "as an unknown one", string(a.body), string(unknown.body))
	}
	release(mine, readOnly).refuses(http.StatusForbidden, domain.MissingScope)
	if got := pointers(release(mine, foreign).refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)); got != "/publicId KEY_LIMIT" {
		t.Errorf("of another source than the key's: %s", got)
	}
	s.Grant(t, s.org, s.org.Key.ID, company.ID, false)
	release(elsewhere, s.org.Secret).refuses(http.StatusNotFound, domain.NotFound)
	for query, want := range map[string]string{
		"": "/companyReference REQUIRED",
		"?companyReference=company-1&status=finalized": "/status FORMAT",
		"?companyReference=company-1&after=zz":         "/after FORMAT",
		"?companyReference=company-1&status=pending&after=" + s.get(path +
			"&limit=1").is(http.StatusOK)["nextCursor"].(string): "/after DIFFERS",
	} {
		if got := pointers(s.get(integrity+"/reservations"+query).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for reference, secret := range map[string]string{"company-2": s.org.Secret, "company-1": ungranted} {
		s.send(
			http.MethodGet, integrity+"/reservations?companyReference="+reference, secret, nil,
		).refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
	}
	s.Audit(t)

	// The bounded search also passes reservations of other companies.
	s.owner(fmt.Sprintf(`INSERT INTO versions (shard, document_id, version, organization_id, public_id, expires_at)
		SELECT 1, d.document_id, 1 + n, d.organization_id, gen_random_uuid(), timestamptz '2020-01-01' + n / 10 * interval '1 second'
		FROM documents d CROSS JOIN generate_series(1, 10005) n WHERE d.shard = 1 AND d.company_id = '%x'`, company.ID[:]))
	if page := read[wire.Reservations](s.get(path), http.StatusOK); len(page.Reservations) != 0 || !page.HasMore {
		t.Errorf("a page behind 10,005 of another company: %+v", page)
	}
	found, pages := s.reservations(path)
	equal(t, "found on the second page", []any{len(found), pages}, []any{9, 2})
}
