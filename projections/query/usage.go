package query

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

var takeRequest = cluster.SQL(`INSERT INTO {request_usage} AS r (shard, organization_id, period, used, reached_80, reached_95, reached_100, limit_80, limit_95, limit_100)
		VALUES ($1, $2, $3, $6::bigint, CASE WHEN 100 * $6 >= 80 * $4::bigint THEN $5::timestamptz END, CASE WHEN 100 * $6 >= 95 * $4 THEN $5 END,
			CASE WHEN $6 >= $4 THEN $5 END, CASE WHEN 100 * $6 >= 80 * $4 THEN $4 END, CASE WHEN 100 * $6 >= 95 * $4 THEN $4 END,
			CASE WHEN $6 >= $4 THEN $4 END)
		ON CONFLICT (shard, organization_id, period) DO UPDATE SET used = r.used + $6,
			reached_80 = CASE WHEN 100 * (r.used + $6) >= 80 * $4 AND (r.limit_80 = $4) IS NOT TRUE THEN $5 ELSE r.reached_80 END,
			reached_95 = CASE WHEN 100 * (r.used + $6) >= 95 * $4 AND (r.limit_95 = $4) IS NOT TRUE THEN $5 ELSE r.reached_95 END,
			reached_100 = CASE WHEN r.used + $6 >= $4 AND (r.limit_100 = $4) IS NOT TRUE THEN $5 ELSE r.reached_100 END,
			limit_80 = CASE WHEN 100 * (r.used + $6) >= 80 * $4 THEN $4 ELSE r.limit_80 END,
			limit_95 = CASE WHEN 100 * (r.used + $6) >= 95 * $4 THEN $4 ELSE r.limit_95 END,
			limit_100 = CASE WHEN r.used + $6 >= $4 THEN $4 ELSE r.limit_100 END
		WHERE $4 IS NULL OR r.used + $6 <= $4
		RETURNING coalesce($5 IN (reached_80, reached_95, reached_100), false)`)

// TakeRequests takes n of the organization's requests of the UTC month of now, all or nothing. The allowance is exact:
// its last request is granted once, whatever the number of callers and processes. It refuses with
// REQUEST_QUOTA_EXHAUSTED if fewer than n are left, and with PLAN_REQUIRED if the plan includes no requests. The
// statement also notes when a part of the allowance was reached, once for each limit: queue.MeterWarner turns these
// notes into events, and a crash in between loses nothing.
func (s AllowanceReader) TakeRequests(ctx context.Context, a domain.Access, n int, now time.Time) error {
	limit := s.requestsPerMonth(a)
	if limit != nil && *limit == 0 {
		return domain.Refuse(
			domain.PlanRequired,
			"The plan %s includes no requests to this part of the service; ask the operator of the service for another plan.",
			a.Plan,
		)
	}
	period := domain.PeriodOf(now)
	reached, taken, err := false, false, error(nil)
	if limit == nil || int64(n) <= *limit { // the statement does not compare the first row of a month with the limit
		reached, taken, err = statement.First(ctx, s.Pool, "take requests of the month", pgx.RowTo[bool], takeRequest,
			a.Organization.Shard(), a.Organization, int32(period), limit, now, n)
	}
	if reached && s.RequestsReached != nil {
		s.RequestsReached(a.Organization.Shard())
	}
	if err == nil && !taken {
		var fewer say.Sentence
		if n > 1 {
			fewer = say.Sentence{Format: ", or fewer are left than the %d of this batch", Args: []any{n}}
		}
		err = domain.Refuse(
			domain.RequestQuotaExhausted,
			"The %d requests of this month are used up%s; wait until %s, or ask the operator of the service for another plan.",
			*limit, fewer, period.End().Format(time.RFC3339),
		).After(period.End().Sub(now))
	}
	return err
}

// ReturnRequest returns a request that TakeRequests took at now and that the plan or a quota then refused. A warning
// that it caused stays, because the allowance had been reached.
func (s AllowanceReader) ReturnRequest(ctx context.Context, a domain.Access, now time.Time) error {
	query := cluster.SQL(
		`UPDATE {request_usage} SET used = used - 1 WHERE shard = $1 AND organization_id = $2 AND period = $3 AND used > 0`,
	)
	return statement.Exec(
		ctx, s.Pool, "give a request of the month back", query, a.Organization.Shard(), a.Organization,
		int32(domain.PeriodOf(now)),
	)
}

// requestsPerMonth returns the organization's allowance; nil means unlimited.
func (s AllowanceReader) requestsPerMonth(a domain.Access) *int64 {
	return s.Plans.Of(a.Plan, a.Internal).RequestsPerMonth
}

// AccountUsage is an organization's month: of new versions, and at the endpoints outside the integrity API.
type AccountUsage struct {
	Versions, Requests, Registrations domain.Usage

	Credits  int64     // registrations left in file credit packs
	Warnings []Warning // of all allowances, each in the order of its percentages
}

// AccountUsage reads a month. It does not count as a request.
func (s AllowanceReader) AccountUsage(
	ctx context.Context, a domain.Access, period domain.Period,
) (u AccountUsage, err error) {
	q, err := s.askUsage(ctx, usageQuestion{month: month{organization: a.Organization, period: period}, account: true})
	if err != nil {
		return u, err
	}
	versions, plan := s.integrityUsage(q), s.Plans.Of(a.Plan, a.Internal)
	u = AccountUsage{
		Versions: versions.Total, Credits: q.registrations.Credits, Warnings: versions.Warnings,
		Requests:      domain.Usage{Period: period, Used: q.requests, Limit: plan.RequestsPerMonth},
		Registrations: domain.Usage{Period: period, Used: q.registrations.Used, Limit: plan.RegistrationsPerMonth},
	}
	u.Warnings = append(u.Warnings, q.warningsOf(domain.RequestsAllowance, u.Requests.Limit)...)
	u.Warnings = append(u.Warnings, q.warningsOf(domain.RegistrationsAllowance, u.Registrations.Limit)...)
	return u, nil
}

// MonthlyLimits holds all allowances of a month and their use. For a past month, the allowances are the current ones,
// because earlier ones are not kept.
type MonthlyLimits struct {
	Versions, Requests, Registrations, WebhookAttempts domain.Usage
}

var findMonthlyUse = cluster.SQL(`SELECT m.period,
		coalesce((SELECT used FROM {usage} WHERE shard = $1 AND organization_id = $2 AND period = m.period AND company_id = '00000000-0000-0000-0000-000000000000'), 0),
		coalesce((SELECT used FROM {request_usage} WHERE shard = $1 AND organization_id = $2 AND period = m.period), 0),
		coalesce((SELECT used FROM {artifact_usage} WHERE shard = $1 AND organization_id = $2 AND period = m.period), 0),
		coalesce((SELECT used FROM {webhook_usage} WHERE shard = $1 AND organization_id = $2 AND period = m.period), 0)
	FROM unnest($3::integer[]) WITH ORDINALITY AS m(period, place) ORDER BY m.place`)

// MonthlyLimits reads months. It does not count as a request.
func (s AllowanceReader) MonthlyLimits(
	ctx context.Context, a domain.Access, periods ...domain.Period,
) ([]MonthlyLimits, error) {
	plan := s.Plans.Of(a.Plan, a.Internal)
	return statement.All(ctx, s.Pool, "read the use of months", func(row pgx.CollectableRow) (MonthlyLimits, error) {
		var p domain.Period
		var versions, requests, registrations, attempts int64
		err := row.Scan(&p, &versions, &requests, &registrations, &attempts)
		return MonthlyLimits{
			Versions:        domain.Usage{Period: p, Limit: plan.VersionsPerMonth, Used: versions},
			Requests:        domain.Usage{Period: p, Limit: plan.RequestsPerMonth, Used: requests},
			Registrations:   domain.Usage{Period: p, Limit: plan.RegistrationsPerMonth, Used: registrations},
			WebhookAttempts: domain.Usage{Period: p, Limit: plan.WebhookAttemptsPerMonth, Used: attempts},
		}, err
	}, findMonthlyUse, a.Organization.Shard(), a.Organization, periods)
}

// Administered reads the number of administrative events of an organization in the UTC day of now, and its daily
// allowance; nil means unlimited.
func (s AllowanceReader) Administered(
	ctx context.Context, a domain.Access, now time.Time,
) (domain.AdministeredDay, *int64, error) {
	query := cluster.SQL(
		`SELECT ` + projections.AdministeredColumns +
			` FROM {administrative_usage} WHERE shard = $1 AND organization_id = $2`,
	)
	day, _, err := statement.First(ctx, s.Pool, "read the day's administrative events",
		pgx.RowToStructByPos[domain.AdministeredDay], query,
		a.Organization.Shard(), a.Organization)
	return day.In(now), s.Plans.Of(a.Plan, a.Internal).AdministrativeEventsPerDay, err
}

// Reserved reads the number of an organization's reservations pending at now, and of versions reserved but never
// registered, with the limit of each.
func (s AllowanceReader) Reserved(
	ctx context.Context, a domain.Access, now time.Time,
) (pending, unfinalized domain.Usage, err error) {
	query := cluster.SQL(`SELECT o.unfinalized, o.unfinalized_limit, (SELECT count(*) FROM {versions}
			WHERE shard = $1 AND organization_id = $2 AND record_id IS NULL AND expires_at > $3 AND released_at IS DISTINCT FROM expires_at)
		FROM {organization_state} o WHERE o.shard = $1 AND o.organization_id = $2`)
	pending.Period = domain.PeriodOf(now)
	pending.Limit, unfinalized.Period = new(int64(domain.MaxPendingReservations)), pending.Period
	o, err := statement.One(ctx, s.Pool, "count reservations", errNoOrganization,
		func(row pgx.CollectableRow) (o domain.Organization, err error) {
			err = row.Scan(&o.Unfinalized, &o.UnfinalizedLimit, &pending.Used)
			return o, err
		}, query, a.Organization.Shard(), a.Organization, now)
	unfinalized.Used, unfinalized.Limit = int64(o.Unfinalized), new(int64(o.UnfinalizedMost()))
	return pending, unfinalized, err
}

// errNoOrganization means that the database is damaged: the caller has authenticated as the organization.
var errNoOrganization = say.New("the organization does not exist")

// IntegrityUsage is an organization's month, with the contribution of each company that the key may use.
type IntegrityUsage struct {
	Plan      string
	Total     domain.Usage
	Backfill  domain.Backfill
	Warnings  []Warning // of versions, webhook attempts and reservations, each in the order of its percentages
	Companies []CompanyUsage
}

// Warning is a threshold of an allowance that was reached.
type Warning struct {
	Allowance   domain.Allowance
	Percent     int
	Limit, Used int64
	ReachedAt   time.Time
}

// CompanyUsage is one company's contribution of new versions.
type CompanyUsage struct {
	CompanyReference string
	Used             int64
}

var (
	findUsages = cluster.SQL(`SELECT r.*, n.place, coalesce(t.used, 0), coalesce(b.sequence, 0), coalesce(b.versions, 0), coalesce(b.used, 0),
		c.names, c.used
	FROM unnest($2::uuid[], $3::uuid[], $4::int[]) WITH ORDINALITY AS n(organization_id, key_id, period, place)
	JOIN LATERAL (SELECT ` + projections.OrganizationColumns + ` FROM {organization_state} o
		WHERE shard = $1 AND organization_id = n.organization_id OFFSET 0) r ON true
	LEFT JOIN LATERAL (SELECT used FROM {usage} WHERE shard = $1 AND organization_id = n.organization_id AND period = n.period
		AND company_id = '00000000-0000-0000-0000-000000000000' OFFSET 0) t ON true
	LEFT JOIN LATERAL (` + latestBackfill(`n.organization_id`) + `) b ON true
	CROSS JOIN LATERAL (SELECT array_agg(c.reference ORDER BY c.reference) AS names, array_agg(coalesce(u.used, 0) ORDER BY c.reference) AS used
		FROM {grants} g
		JOIN LATERAL (SELECT reference FROM {companies} WHERE shard = $1 AND company_id = g.company_id OFFSET 0) c ON true
		LEFT JOIN LATERAL (SELECT used FROM {usage} WHERE shard = $1 AND organization_id = n.organization_id AND period = n.period
			AND company_id = g.company_id OFFSET 0) u ON true
		WHERE g.shard = $1 AND g.key_id = n.key_id AND g.enabled) c`)
	findRequests = cluster.SQL(`SELECT used FROM {request_usage} WHERE shard = $1 AND organization_id = $2 AND period = $3`)
)

// month is an organization's, with the companies of a key; the zero key has none.
type month struct {
	organization domain.OrganizationID
	key          domain.KeyID
	period       domain.Period
}

// usageQuestion asks for a month, and holds the answer.
type usageQuestion struct {
	month
	judging *Judgement
	account bool // ask for requests and registrations, too

	usageAnswer
	requests      int64
	registrations Registrations
	err           error
}

// usageAnswer is a row of findUsages.
type usageAnswer struct {
	place     int // of the month in the statement, from 1; 0: the organization was not found
	owner     domain.Organization
	used      int64
	backfill  domain.Backfill
	companies []CompanyUsage
}

// warningsOf lists the organization's warnings in the month under the current limit.
func (q *usageQuestion) warningsOf(a domain.Allowance, limit *int64) (list []Warning) {
	w := q.owner.Warned[a]
	if w.Period != q.period || limit == nil || w.Limit != *limit {
		return nil
	}
	for i, percent := range domain.WarningPercents() {
		if at := w.ReachedAt[i]; at != nil {
			list = append(list, Warning{a, percent, w.Limit, w.Used[i], *at})
		}
	}
	return list
}

// Usage reads the new versions of a month.
func (s AllowanceReader) Usage(ctx context.Context, a domain.Access, period domain.Period) (IntegrityUsage, error) {
	q, err := s.askUsage(ctx, usageQuestion{month: month{a.Organization, a.Key, period}})
	if err != nil {
		return IntegrityUsage{}, err
	}
	return s.integrityUsage(q), nil
}

func (s AllowanceReader) integrityUsage(q *usageQuestion) IntegrityUsage {
	o := &q.owner
	plan := s.Plans.Of(o.Plan, o.Internal)
	u := IntegrityUsage{
		Plan: o.Plan, Backfill: q.backfill, Companies: q.companies,
		Total: domain.Usage{Period: q.period, Used: q.used, Limit: plan.VersionsPerMonth},
	}
	for _, of := range []struct {
		allowance domain.Allowance
		limit     *int64
	}{
		{domain.VersionsAllowance, plan.VersionsPerMonth},
		{domain.AttemptsAllowance, plan.WebhookAttemptsPerMonth},
		{domain.PendingAllowance, new(int64(domain.MaxPendingReservations))},
		{domain.UnfinalizedAllowance, new(int64(o.UnfinalizedMost()))},
	} {
		u.Warnings = append(u.Warnings, q.warningsOf(of.allowance, of.limit)...)
	}
	return u
}

// askUsage asks for a month; concurrent questions of a shard share a round trip.
func (s AllowanceReader) askUsage(ctx context.Context, asked usageQuestion) (*usageQuestion, error) {
	q := &asked
	q.judging = s.judging
	err := s.usages.Ask(ctx, q.organization.Shard(), q, func(shard domain.Shard, batch []*usageQuestion) {
		s.answerUsages(context.Background(), shard, batch) // for callers of their own
	})
	switch {
	case err != nil:
		q.judging.giveUp()
		return nil, statement.Failed("read usage", err)
	case q.err == nil && q.place == 0:
		return nil, errNoOrganization
	}
	return q, q.err
}

func (s AllowanceReader) answerUsages(ctx context.Context, shard domain.Shard, batch []*usageQuestion) {
	b, asking := &pgx.Batch{}, map[domain.OrganizationID][]*usageQuestion{}
	var months []month // each once, however many callers ask for it
	callers := map[month][]*usageQuestion{}
	for _, q := range batch {
		asking[q.organization] = append(asking[q.organization], q)
		if callers[q.month] == nil {
			months = append(months, q.month)
		}
		callers[q.month] = append(callers[q.month], q)
	}
	projections.Read(b, scanUsage, func(a usageAnswer) {
		for _, q := range callers[months[a.place-1]] {
			q.usageAnswer = a
		}
	}, findUsages, shard,
		statement.Column(months, func(m month) domain.OrganizationID { return m.organization }),
		statement.Column(months, func(m month) domain.KeyID { return m.key }),
		statement.Column(months, func(m month) domain.Period { return m.period }))
	projections.Read(b, projections.ScanWarnings, func(w projections.AllowanceWarnings) {
		for _, q := range asking[w.Organization] {
			switch {
			case w.Unknown == nil:
				q.owner.Warned[w.Allowance] = w.Warnings
			case w.Period == q.period:
				q.err = statement.Failed("read usage", w.Unknown)
			}
		}
	}, projections.FindWarnings, shard, slices.Collect(maps.Keys(asking)))
	for _, q := range batch {
		if q.account {
			args := []any{shard, q.organization, int32(q.period)}
			projections.Read(b, pgx.RowTo[int64], func(used int64) { q.requests = used }, findRequests, args...)
			projections.Read(b, pgx.RowToStructByPos[Registrations], func(r Registrations) { q.registrations = r },
				findRegistrations, args...)
		}
	}
	err := sendJudged(ctx, s.Pool, "read usage", b, shard,
		statement.Column(batch, func(q *usageQuestion) *Judgement { return q.judging }))
	for _, q := range batch {
		q.err = cmp.Or(err, q.err)
	}
}

func scanUsage(row pgx.CollectableRow) (a usageAnswer, err error) {
	var companies []string
	var used []int64
	a.owner, err = projections.ScanOrganization(row, &a.place, &a.used, &a.backfill.Sequence,
		&a.backfill.Versions, &a.backfill.Used, &companies, &used)
	for i, company := range companies {
		a.companies = append(a.companies, CompanyUsage{company, used[i]})
	}
	return a, err
}

// latestBackfill returns a query for an organization's backfill allowance.
func latestBackfill(organization string) string {
	return `SELECT sequence, versions, used FROM {backfills}
	WHERE shard = $1 AND organization_id = ` + organization + ` ORDER BY sequence DESC LIMIT 1`
}

var findBackfill = cluster.SQL(latestBackfill(`$2`))

// Backfill reads an organization's backfill allowance.
func (s AllowanceReader) Backfill(ctx context.Context, id domain.OrganizationID) (domain.Backfill, error) {
	b, _, err := statement.First(ctx, s.Pool, "read the backfill allowance", pgx.RowToStructByPos[domain.Backfill],
		findBackfill, id.Shard(), id)
	return b, err
}

// UsageCursor is a position in a month's entries: after an entry of a company, with companies in creation order. It
// contains the month's figures as of the first page, so that figures and entries agree on all pages even if new
// versions arrive meanwhile.
type UsageCursor struct {
	Through  int64 // the organization's sequence at the first page; later entries are left out
	Used     int64 // by the organization
	Visible  int64 // part of Used, by companies that the caller may use
	Company  domain.CompanyID
	Sequence int64
}

// UsageEntries is a page of a month's entries: the new versions charged to its allowance, each a registration in the
// feed.
type UsageEntries struct {
	Entries []FeedEvent
	Cursor  UsageCursor // after the last entry
	More    bool
}

func loadMonth(a domain.Access) string {
	return cluster.SQL(`SELECT o.sequence,
		coalesce((SELECT t.used FROM {usage} t WHERE t.shard = $1 AND t.organization_id = $2 AND t.period = $4
			AND t.company_id = '00000000-0000-0000-0000-000000000000'), 0),
		coalesce((SELECT sum(c.used)::bigint FROM {usage} c` + granted(a) + `
			WHERE c.shard = $1 AND c.organization_id = $2 AND c.period = $4 AND c.company_id > '00000000-0000-0000-0000-000000000000'), 0)
	FROM {organization_state} o WHERE o.shard = $1 AND o.organization_id = $2`)
}

func loadContributors(a domain.Access) string {
	return cluster.SQL(`SELECT c.company_id, n.reference, c.used
	FROM {usage} c` + granted(a) + `
	JOIN {companies} n ON n.shard = $1 AND n.company_id = c.company_id
	WHERE c.shard = $1 AND c.organization_id = $2 AND c.period = $4 AND c.company_id >= $5
	ORDER BY c.company_id LIMIT $6`)
}

// The entries of a company: the registrations of the month, without healed ones that are charged elsewhere, and healed
// records that are charged to the month. $8 and $4 are the ends of the ranges of sequences that are charged to the
// month, $9 is the month, $10 the last sequence.
var loadUsageEntries = cluster.SQL(`SELECT ` + feedColumns + `, n.reference
	FROM unnest($2::uuid[], $3::bigint[], $7::text[]) WITH ORDINALITY AS n(company_id, after, reference, place)
	JOIN LATERAL (
		(SELECT r.* FROM unnest($8::bigint[], $4::bigint[]) AS c(after, through)
			JOIN LATERAL (SELECT event_id, sequence, type, occurred_at, public_id, company_id, document_id, version, status FROM {feed} r
				WHERE shard = $1 AND company_id = n.company_id AND sequence > greatest(n.after, c.after) AND sequence <= c.through AND type = $6
					AND (SELECT h.period FROM {healed_charges} h
						WHERE h.shard = $1 AND h.company_id = r.company_id AND h.sequence = r.sequence) IS NULL
				ORDER BY sequence LIMIT $5) r ON true
			ORDER BY sequence LIMIT $5)
		UNION ALL
		(SELECT r.event_id, r.sequence, r.type, r.occurred_at, r.public_id, r.company_id, r.document_id, r.version, r.status
			FROM (SELECT sequence FROM {healed_charges}
				WHERE shard = $1 AND company_id = n.company_id AND period = $9 AND sequence > n.after AND sequence <= $10
				ORDER BY sequence LIMIT $5) h
			JOIN LATERAL (SELECT event_id, sequence, type, occurred_at, public_id, company_id, document_id, version, status FROM {feed}
				WHERE shard = $1 AND company_id = n.company_id AND sequence = h.sequence OFFSET 0) r ON true)
		ORDER BY sequence LIMIT $5) f ON true` + feedVersion + `
	ORDER BY n.place, f.sequence LIMIT $5`)

// UsageEntries reads up to limit entries of a month after a cursor, nil for the first page. It reads entries of the
// companies that the key may use now, or of all companies for a signed-in member. An entry belongs to the month that
// was charged: the month of its event's time, or another one for a healed record. It returns ErrBeyondHead for a cursor
// from a longer history than the current one.
func (s AllowanceReader) UsageEntries(
	ctx context.Context, a domain.Access, period domain.Period, after *UsageCursor, limit int,
) (UsageEntries, error) {
	return scan(ctx, s.reader, a.Organization, func(from eventstore.Database) (UsageEntries, error) {
		return usagePage(ctx, from, a, period, after, limit)
	})
}

func usagePage(
	ctx context.Context, from eventstore.Database, a domain.Access, period domain.Period, after *UsageCursor, limit int,
) (page UsageEntries, err error) {
	page.Cursor, err = statement.One(ctx, from, "read the month's usage", errNoOrganization,
		func(row pgx.CollectableRow) (c UsageCursor, err error) {
			err = row.Scan(&c.Through, &c.Used, &c.Visible)
			return c, err
		}, loadMonth(a), a.Organization.Shard(), a.Organization, a.Key, int32(period))
	switch {
	case err != nil:
		return page, err
	case after != nil && after.Through > page.Cursor.Through:
		return page, ErrBeyondHead
	case after != nil:
		page.Cursor = *after
	}
	// The month's events come after begin, up to end. Healed records that count in the month have any sequence.
	var begin, end int64
	for bound, before := range map[*int64]time.Time{&begin: period.Start(), &end: period.End()} {
		if *bound, err = findSequence(
			ctx, from, sequenceAt, a.Organization, page.Cursor.Through, before.Add(-time.Microsecond),
		); err != nil {
			return page, err
		}
	}
	charged, err := chargedRanges(ctx, from, a.Organization, begin, end)
	if err != nil {
		return page, err
	}
	for next := page.Cursor; ; {
		companies, err := contributors(ctx, from, a, period, next, limit+1)
		if err != nil {
			return page, err
		}
		if len(companies) > 0 && companies[0].ID == next.Company && next.Sequence >= next.Through {
			companies = companies[1:]
		}
		if len(companies) == 0 {
			return page, nil
		}
		entries, err := usageEntries(ctx, from, a, period, companies, charged, next, limit+1-len(page.Entries))
		if err != nil {
			return page, err
		}
		page.Entries = append(page.Entries, entries...)
		if len(page.Entries) > limit {
			page.Entries, page.More = page.Entries[:limit], true
		}
		if n := len(page.Entries); n > 0 {
			page.Cursor.Company, page.Cursor.Sequence = page.Entries[n-1].Company, page.Entries[n-1].Sequence
		}
		if page.More {
			return page, nil
		}
		// These companies have no more entries; a later one may have some.
		next.Company, next.Sequence = companies[len(companies)-1].ID, next.Through
	}
}

// sequenceRange is the sequences after one, up to another.
type sequenceRange struct{ after, through int64 }

var findBackfilled = cluster.SQL(`SELECT sequence, last_sequence FROM {backfills}
	WHERE shard = $1 AND organization_id = $2 AND last_sequence > $3 AND sequence < $4 ORDER BY sequence`)

// chargedRanges returns the ranges of sequences between begin and end whose registrations are charged to a month. The
// ranges leave out each backfill allowance, from the event that gives it to the last registration that it pays for: a
// reader need not go through a million registrations to find none.
func chargedRanges(
	ctx context.Context, from eventstore.Database, o domain.OrganizationID, begin, end int64,
) (charged []sequenceRange, err error) {
	backfilled, err := statement.All(ctx, from, "read what backfill allowances took",
		func(row pgx.CollectableRow) (r sequenceRange, err error) {
			err = row.Scan(&r.after, &r.through)
			return r, err
		}, findBackfilled, o.Shard(), o, begin, end)
	for _, b := range backfilled {
		charged = append(charged, sequenceRange{begin, min(b.after, end)})
		begin = max(begin, b.through)
	}
	return append(charged, sequenceRange{begin, end}), err
}

// contributor is a company with entries in the month.
type contributor struct {
	ID        domain.CompanyID
	Reference string
	Used      int64
}

// contributors returns the company of the cursor and the following ones that fill a page. Entries of the first may
// already have been read.
func contributors(
	ctx context.Context, from eventstore.Database, a domain.Access, period domain.Period, after UsageCursor, entries int,
) ([]contributor, error) {
	all, err := statement.All(ctx, from, "read the companies of a month", pgx.RowToStructByPos[contributor],
		loadContributors(a), a.Organization.Shard(), a.Organization, a.Key, int32(period), after.Company, entries+1)
	whole := int64(0)
	for i, c := range all {
		if i > 0 {
			whole += c.Used
		}
		if whole >= int64(entries) {
			return all[:i+1], err
		}
	}
	return all, err
}

func usageEntries(
	ctx context.Context, from eventstore.Database, a domain.Access, period domain.Period, companies []contributor,
	charged []sequenceRange, after UsageCursor, limit int,
) ([]FeedEvent, error) {
	return statement.All(ctx, from, "read the entries of a month", scanFeedEvent, loadUsageEntries, a.Organization.Shard(),
		statement.Column(companies, func(c contributor) domain.CompanyID { return c.ID }),
		statement.Column(companies, func(c contributor) int64 {
			if c.ID == after.Company {
				return after.Sequence
			}
			return 0
		}), statement.Column(charged, func(r sequenceRange) int64 { return r.through }), limit,
		projections.FeedTypeCode(domain.RecordRegistered),
		statement.Column(companies, func(c contributor) string { return c.Reference }),
		statement.Column(charged, func(r sequenceRange) int64 { return r.after }), int32(period), after.Through)
}
