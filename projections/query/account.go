package query

import (
	"bytes"
	"context"
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

// NamedOrganization is an organization with its name, for operators. The name is empty once erased.
type NamedOrganization struct {
	domain.Organization
	Name string
}

const organizationColumns = `SELECT ` + projections.OrganizationColumns + `, coalesce(t.body, '')
	FROM {organization_state} o
	LEFT JOIN {texts} t ON t.shard = $1 AND t.organization_id = o.organization_id AND t.id = o.name_id
	WHERE o.shard = $1`

// Organizations lists every organization but the installation's own, shard by shard, oldest first within one.
func (s OrganizationReader) Organizations(ctx context.Context) ([]NamedOrganization, error) {
	query := cluster.SQL(organizationColumns + ` AND o.organization_id <> $2 ORDER BY o.organization_id`)
	return allShards(ctx, s.reader, "list organizations", scanOrganization, query, domain.InstallationID)
}

// Organization finds one organization, or refuses with NOT_FOUND.
func (s OrganizationReader) Organization(ctx context.Context, id domain.OrganizationID) (NamedOrganization, error) {
	query := cluster.SQL(organizationColumns + ` AND o.organization_id = $2`)
	return statement.One(
		ctx, s.Pool, "find organization", domain.Refuse(domain.NotFound, "There is no organization with that id."),
		scanOrganization, query, id.Shard(), id,
	)
}

func scanOrganization(row pgx.CollectableRow) (o NamedOrganization, err error) {
	o.Organization, err = projections.ScanOrganization(row, &o.Name)
	return o, err
}

var listOperatorActs = cluster.SQL(`SELECT organization_id, occurred_at, request_id, person, host, command
	FROM {operator_acts}
	WHERE shard = $1 AND organization_id = $2 ORDER BY occurred_at, request_id`)

// OperatorActs lists the runs of operators' commands that changed an organization, oldest first.
func (s OrganizationReader) OperatorActs(
	ctx context.Context, o domain.OrganizationID,
) ([]projections.OperatorAct, error) {
	scan := func(row pgx.CollectableRow) (a projections.OperatorAct, err error) {
		err = row.Scan(&a.Organization, &a.OccurredAt, &a.RequestID, &a.Person, &a.Host, &a.Command)
		return a, err
	}
	return statement.All(ctx, s.Pool, "list acts of operators", scan, listOperatorActs, o.Shard(), o)
}

// NewOrganizationID generates the id of a new organization, in the shard with the fewest. The organization stays there.
func (s OrganizationReader) NewOrganizationID(
	ctx context.Context, now time.Time,
) (id domain.OrganizationID, err error) {
	shard, err := eventstore.EmptiestShard(ctx, s.Pool, s.Installation.Shards)
	if err != nil {
		return id, err
	}
	return domain.NewOrganizationID(now, shard), nil
}

// MissingPlans lists organizations' plans that the table of plans lacks. Their limits would be unknown.
func (s OrganizationReader) MissingPlans(ctx context.Context) ([]string, error) {
	query := cluster.SQL(`SELECT DISTINCT plan FROM {organization_state} WHERE shard = $1 AND plan <> ALL($2)
		ORDER BY plan`)
	missing, err := allShards(ctx, s.reader, "list plans in use", pgx.RowTo[string], query, s.Plans.Names())
	slices.Sort(missing)
	return slices.Compact(missing), err
}

// Members lists an organization's memberships with their addresses, oldest first.
func (s OrganizationReader) Members(ctx context.Context, organization domain.OrganizationID) ([]domain.Member, error) {
	query := cluster.SQL(memberRow + `true ORDER BY m.member_id`)
	return statement.All(
		ctx, s.Pool, "list members", pgx.RowToStructByPos[domain.Member], query, organization.Shard(), organization,
	)
}

// MembersPage lists up to limit memberships of an organization after a given one, oldest first, and reports whether
// more follow.
func (s OrganizationReader) MembersPage(
	ctx context.Context, organization domain.OrganizationID, after domain.MemberID, limit int,
) ([]domain.Member, bool, error) {
	list, err := statement.All(
		ctx, s.Pool, "list members", pgx.RowToStructByPos[domain.Member], pageOfMembers, organization.Shard(), organization,
		after, limit+1,
	)
	return statement.Page(list, limit, err)
}

// Member finds a membership of an organization, or refuses with NOT_FOUND.
func (s OrganizationReader) Member(
	ctx context.Context, organization domain.OrganizationID, id domain.MemberID,
) (domain.Member, error) {
	return statement.One(ctx, s.Pool, "find member",
		domain.Refuse(domain.NotFound, "This organization has no such member."),
		pgx.RowToStructByPos[domain.Member], findMember, organization.Shard(), organization, id)
}

// MemberAt finds the membership of an address by its hash (domain.EmailSHA256): the present one, otherwise the one that
// ended last. It returns false if the address never had any.
func (s OrganizationReader) MemberAt(
	ctx context.Context, organization domain.OrganizationID, emailSHA256 [32]byte,
) (domain.Member, bool, error) {
	return statement.First(
		ctx, s.Pool, "find the member of an address", pgx.RowToStructByPos[domain.Member], memberAt, organization.Shard(),
		organization, emailSHA256[:],
	)
}

// UnknownInvitation returns the error for every code without an invitation.
func UnknownInvitation() *domain.Error {
	return domain.Refuse(domain.NotFound, "There is no such invitation; ask for another.")
}

// Invitation finds the member of an invitation by the hash of its secret, whatever its status, or refuses with
// NOT_FOUND.
func (s OrganizationReader) Invitation(
	ctx context.Context, organization domain.OrganizationID, secretSHA256 [32]byte,
) (domain.Member, error) {
	unknown := UnknownInvitation()
	if !s.Installation.Has(organization.Shard()) {
		return domain.Member{}, unknown
	}
	return statement.One(
		ctx, s.Pool, "find invitation", unknown, pgx.RowToStructByPos[domain.Member], findInvitation, organization.Shard(),
		organization, secretSHA256[:],
	)
}

const (
	memberRow = `SELECT ` + projections.MemberColumns + `
		FROM {members} m
		LEFT JOIN {texts} t ON t.shard = $1 AND t.organization_id = $2 AND t.id = m.email_id
		WHERE m.shard = $1 AND m.organization_id = $2 AND `
)

var (
	pageOfMembers  = cluster.SQL(memberRow + `m.member_id > $3 ORDER BY m.member_id LIMIT $4`)
	memberAt       = cluster.SQL(memberRow + `m.email_sha256 = $3 ORDER BY m.status = 'ended', m.member_id DESC LIMIT 1`)
	findMember     = cluster.SQL(memberRow + `m.member_id = $3`)
	findInvitation = cluster.SQL(memberRow + `m.invitation_sha256 = $3`)
	findAddresses  = cluster.SQL(`SELECT m.member_id, t.body FROM {members} m
		JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = $2 AND id = m.email_id AND body IS NOT NULL OFFSET 0) t ON true
		WHERE m.shard = $1 AND m.organization_id = $2 AND m.member_id = ANY($3)`)
	ownersBeside = cluster.SQL(
		`SELECT true FROM {members} WHERE shard = $1 AND organization_id = $2 AND member_id <> $3 AND role = 'owner' AND status = 'active' LIMIT 1`,
	)
)

// AddressesOf reads the addresses of members. It leaves out erased addresses and unknown members.
func (s OrganizationReader) AddressesOf(
	ctx context.Context, organization domain.OrganizationID, ids []domain.MemberID,
) (map[domain.MemberID]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	slices.SortFunc(ids, func(a, b domain.MemberID) int { return bytes.Compare(a[:], b[:]) })
	return statement.Map[domain.MemberID, string](
		ctx, s.Pool, "read addresses", findAddresses, organization.Shard(), organization, slices.Compact(ids),
	)
}

// HasOwnerBeside reports whether the organization has an active owner other than the given member.
func (s OrganizationReader) HasOwnerBeside(
	ctx context.Context, organization domain.OrganizationID, id domain.MemberID,
) (bool, error) {
	_, found, err := statement.First(
		ctx, s.Pool, "find another owner", pgx.RowTo[bool], ownersBeside, organization.Shard(), organization, id,
	)
	return found, err
}

// UsedKey is an API key with its name, nil if it has none or it was erased, and the minute of its last use, nil if it
// was never used. Serving processes write uses once a minute.
type UsedKey struct {
	domain.APIKey
	Name       *string
	LastUsedAt *time.Time
}

const keyColumns = `SELECT ` + projections.KeyColumns + `, t.body, u.last_used_at
	FROM {api_keys} k
	LEFT JOIN {texts} t ON t.shard = $1 AND t.organization_id = k.organization_id AND t.id = k.name_id
	LEFT JOIN {api_key_uses} u ON u.shard = $1 AND u.key_id = k.key_id
	WHERE k.shard = $1`

// GrantedKey is an API key with the first companies that it may use, by creation time.
type GrantedKey struct {
	UsedKey
	Companies []string // references
	More      bool     // there are more than these
}

// GrantsShown is the number of companies per key in a list, and GrantsOfKey in the answer about one key.
const (
	GrantsShown = 20
	GrantsOfKey = 1000
)

const (
	keyRow = keyColumns + ` AND k.organization_id = $2`
)

var (
	pageOfKeys = cluster.SQL(keyRow + ` AND k.key_id > $3 ORDER BY k.key_id LIMIT $4`)
	livingKeys = cluster.SQL(keyRow + ` AND k.key_id > $3 AND k.revoked_at IS NULL AND k.expires_at > $5 ORDER BY k.key_id
		LIMIT $4`)
	findKey    = cluster.SQL(keyRow + ` AND k.key_id = $3`)
	memberKeys = cluster.SQL(keyRow + ` AND k.member_id = $3 AND k.revoked_at IS NULL AND k.expires_at > $4
		ORDER BY k.key_id LIMIT $5`)
	keyGrants = cluster.SQL(`SELECT n.id, g.reference FROM unnest($2::uuid[]) AS n(id)
		JOIN LATERAL (SELECT c.company_id, c.reference FROM {grants} g
			JOIN LATERAL (SELECT company_id, reference FROM {companies} WHERE shard = $1 AND company_id = g.company_id OFFSET 0) c ON true
			WHERE g.shard = $1 AND g.key_id = n.id AND g.enabled ORDER BY g.company_id LIMIT $3) g ON true
		ORDER BY n.id, g.company_id`)
	grantsAmong = cluster.SQL(`SELECT g.key_id, g.company_id FROM unnest($2::uuid[]) AS n(id)
		JOIN LATERAL (SELECT key_id, company_id FROM {grants}
			WHERE shard = $1 AND key_id = n.id AND company_id = ANY($3::uuid[]) AND enabled OFFSET 0) g ON true`)
)

// KeysPage lists up to limit API keys of an organization after a given one, oldest first, including revoked and expired
// ones, and reports whether more follow.
func (s KeyReader) KeysPage(
	ctx context.Context, organization domain.OrganizationID, after domain.KeyID, limit int,
) ([]GrantedKey, bool, error) {
	return s.pageOfKeys(ctx, limit, pageOfKeys, organization, after, limit+1)
}

// LivingKeys is KeysPage without revoked and expired keys.
func (s KeyReader) LivingKeys(
	ctx context.Context, organization domain.OrganizationID, now time.Time, after domain.KeyID, limit int,
) ([]GrantedKey, bool, error) {
	return s.pageOfKeys(ctx, limit, livingKeys, organization, after, limit+1, now)
}

func (s KeyReader) pageOfKeys(
	ctx context.Context, limit int, sql string, organization domain.OrganizationID, args ...any,
) ([]GrantedKey, bool, error) {
	keys, err := statement.All(ctx, s.Pool, "list keys", pgx.RowToStructByPos[UsedKey], sql,
		append([]any{organization.Shard(), organization}, args...)...)
	keys, more, err := statement.Page(keys, limit, err)
	if err != nil {
		return nil, false, err
	}
	granted, err := s.withGrants(ctx, organization, keys, GrantsShown)
	return granted, more, err
}

// KeyCompany is a pair of a key and a company.
type KeyCompany struct {
	Key     domain.KeyID
	Company domain.CompanyID
}

// GrantsAmong returns which of an organization's keys may use which of the companies.
func (s KeyReader) GrantsAmong(
	ctx context.Context, organization domain.OrganizationID, keys []domain.KeyID, companies []domain.CompanyID,
) (map[KeyCompany]bool, error) {
	list, err := statement.All(
		ctx, s.Pool, "list grants", pgx.RowToStructByPos[KeyCompany], grantsAmong, organization.Shard(), keys, companies,
	)
	granted := make(map[KeyCompany]bool, len(list))
	for _, pair := range list {
		granted[pair] = true
	}
	return granted, err
}

// KeysOfMember lists up to limit API keys of a member, oldest first, without revoked and expired ones, and reports
// whether more follow.
func (s KeyReader) KeysOfMember(
	ctx context.Context, organization domain.OrganizationID, id domain.MemberID, now time.Time, limit int,
) ([]UsedKey, bool, error) {
	keys, err := statement.All(
		ctx, s.Pool, "list the keys of a member", pgx.RowToStructByPos[UsedKey], memberKeys, organization.Shard(),
		organization, id, now, limit+1,
	)
	return statement.Page(keys, limit, err)
}

// KeyOf finds an API key of an organization, or refuses with NOT_FOUND.
func (s KeyReader) KeyOf(ctx context.Context, organization domain.OrganizationID, id domain.KeyID) (GrantedKey, error) {
	key, err := statement.One(ctx, s.Pool, "find key",
		domain.Refuse(domain.NotFound, "This organization has no API key with that id."),
		pgx.RowToStructByPos[UsedKey], findKey, organization.Shard(), organization, id)
	if err != nil {
		return GrantedKey{}, err
	}
	granted, err := s.withGrants(ctx, organization, []UsedKey{key}, GrantsOfKey)
	if err != nil {
		return GrantedKey{}, err
	}
	return granted[0], nil
}

// withGrants adds up to most companies to each key.
func (s KeyReader) withGrants(
	ctx context.Context, organization domain.OrganizationID, keys []UsedKey, most int,
) ([]GrantedKey, error) {
	type grant struct {
		Key       domain.KeyID
		Reference string
	}
	grants, err := statement.All(ctx, s.Pool, "list grants", pgx.RowToStructByPos[grant], keyGrants, organization.Shard(),
		statement.Column(keys, func(k UsedKey) domain.KeyID { return k.ID }), most+1)
	references := map[domain.KeyID][]string{}
	for _, g := range grants {
		references[g.Key] = append(references[g.Key], g.Reference)
	}
	return statement.Column(keys, func(k UsedKey) GrantedKey {
		list := references[k.ID]
		return GrantedKey{UsedKey: k, Companies: list[:min(len(list), most)], More: len(list) > most}
	}), err
}

// Keys lists an organization's API keys, oldest first, including revoked and expired ones.
func (s KeyReader) Keys(ctx context.Context, organization domain.OrganizationID) ([]UsedKey, error) {
	query := cluster.SQL(keyColumns + ` AND k.organization_id = $2 ORDER BY k.key_id`)
	return statement.All(
		ctx, s.Pool, "list keys", pgx.RowToStructByPos[UsedKey], query, organization.Shard(), organization,
	)
}

// Key finds one API key, or refuses with NOT_FOUND.
func (s KeyReader) Key(ctx context.Context, id domain.KeyID) (UsedKey, error) {
	query := cluster.SQL(keyColumns + ` AND k.key_id = $2`)
	return statement.One(
		ctx, s.Pool, "find key", domain.Refuse(domain.NotFound, "There is no API key with that id."),
		pgx.RowToStructByPos[UsedKey], query, id.Shard(), id,
	)
}

// ExpiringKeys lists the active keys of all organizations that expire before until, earliest first. If some shards
// could not be read, it returns the other shards' keys with the error.
func (s KeyReader) ExpiringKeys(ctx context.Context, now, until time.Time) ([]domain.APIKey, error) {
	query := cluster.SQL(keyColumns + ` AND k.revoked_at IS NULL AND k.expires_at > $2 AND k.expires_at <= $3
		AND EXISTS (SELECT 1 FROM {members} m WHERE m.shard = $1 AND m.organization_id = k.organization_id
			AND m.member_id = k.member_id AND m.status = 'active')`)
	var used []UsedKey
	err := s.Installation.EachShard(ctx, s.Pool, func(ctx context.Context, shard domain.Shard) error {
		list, err := statement.All(
			ctx, s.Pool, "list keys that end soon", pgx.RowToStructByPos[UsedKey], query, shard, now, until,
		)
		used = append(used, list...)
		return err
	})
	all := statement.Column(used, func(k UsedKey) domain.APIKey { return k.APIKey })
	slices.SortFunc(all, func(a, b domain.APIKey) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	return all, err
}

// CompanyByReference finds a company of an organization, with or without grants, or refuses with NOT_FOUND.
func (s CompanyReader) CompanyByReference(
	ctx context.Context, organization domain.OrganizationID, reference string,
) (domain.Company, error) {
	query := cluster.SQL(`SELECT ` + projections.CompanyColumns + ` FROM {companies} c
		WHERE c.shard = $1 AND c.organization_id = $2 AND c.reference = $3`)
	return statement.One(ctx, s.Pool, "find company",
		domain.Refuse(domain.NotFound, "This organization has no company with that reference."),
		pgx.RowToStructByPos[domain.Company], query, organization.Shard(), organization, reference)
}

// grantedCompany is a company that a key may use, its organization's last sequence, and the epoch of the feed.
type grantedCompany struct {
	ID    domain.CompanyID
	Head  int64
	Epoch int64
}

// grantedCompany finds a company by reference. The error is the same for an unknown company and one without a grant.
func (s *reader) grantedCompany(ctx context.Context, a domain.Access, reference string) (grantedCompany, error) {
	return statement.One(ctx, s.Pool, "find a granted company", domain.ErrUnauthorizedCompany,
		pgx.RowToStructByPos[grantedCompany], findGrantedCompany(a),
		a.Organization.Shard(), a.Organization, a.Key, reference)
}

func findGrantedCompany(a domain.Access) string {
	return cluster.SQL(`SELECT c.company_id, o.sequence, (SELECT greatest(epoch, feed_epoch) FROM ledger WHERE id = 1)
		FROM {companies} c` + granted(a) + `
		JOIN {organization_state} o ON o.shard = $1 AND o.organization_id = $2
		WHERE c.shard = $1 AND c.organization_id = $2 AND c.reference = $4`)
}

// Companies lists up to limit companies after a reference, ordered by reference, and reports whether more follow. It
// lists the companies granted to the key, or all of the organization, with a status or any (empty).
func (s CompanyReader) Companies(
	ctx context.Context, a domain.Access, all bool, status domain.CompanyStatus, after string, limit int,
) (companies []domain.Company, more bool, err error) {
	query := cluster.SQL(`SELECT ` + projections.CompanyColumns + ` FROM {companies} c
		WHERE c.shard = $1 AND c.organization_id = $2 AND c.reference > $3
			AND ($4 OR EXISTS (SELECT FROM {grants} g WHERE g.shard = $1 AND g.key_id = $5 AND g.company_id = c.company_id AND g.enabled))
			AND ($7 = '' OR ($7 = 'closed') = (c.closed_at IS NOT NULL))
		ORDER BY c.reference LIMIT $6`)
	companies, err = read(ctx, s.reader, a, newEnough(a), func(from source) ([]domain.Company, error) {
		list, err := statement.All(ctx, from, "list companies", pgx.RowToStructByPos[domain.Company], query,
			a.Organization.Shard(), a.Organization, after, all, a.Key, limit+1, string(status))
		if err == nil && !all {
			err = s.stillGranted(ctx, from, a, statement.Column(list, func(c domain.Company) string { return c.Reference })...)
		}
		return list, err
	})
	return statement.Page(companies, limit, err)
}

// Grant is the access of a key, or of a webhook destination, to a company, granted or revoked.
type Grant[ID any] struct {
	Company   domain.CompanyID
	To        ID
	Enabled   bool
	UpdatedAt time.Time
	Name      *string // of a key; nil if it has none or it was erased
}

// A company of another organization, or one that does not exist, returns no rows. A company that was never granted
// returns one row without a grant.
const (
	companyOf = ` FROM (SELECT company_id FROM {companies} WHERE shard = $1 AND company_id = $2 AND organization_id = $3 OFFSET 0) c
		LEFT JOIN LATERAL (SELECT `
)

var (
	findKeysOfCompany = cluster.SQL(`SELECT c.company_id, g.key_id, g.enabled, g.updated_at, t.body` + companyOf +
		`key_id, enabled, updated_at FROM {grants}
			WHERE shard = $1 AND company_id = c.company_id AND key_id > $4 ORDER BY key_id LIMIT $5) g ON true
		LEFT JOIN LATERAL (SELECT organization_id, name_id FROM {api_keys} WHERE shard = $1 AND key_id = g.key_id OFFSET 0) k ON true
		LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = k.organization_id AND id = k.name_id OFFSET 0) t ON true
		ORDER BY g.key_id`)
	findWebhooksOfCompany = cluster.SQL(`SELECT c.company_id, g.webhook_id, g.enabled, g.updated_at, NULL::text` +
		companyOf + `webhook_id, enabled, updated_at FROM {company_webhooks}
			WHERE shard = $1 AND company_id = c.company_id AND webhook_id > $4 ORDER BY webhook_id LIMIT $5) g ON true ORDER BY g.webhook_id`)
)

// KeysOfCompany lists up to limit keys that were ever granted a company, after a key, oldest first, and reports whether
// more follow.
func (s CompanyReader) KeysOfCompany(
	ctx context.Context, o domain.OrganizationID, company domain.CompanyID, after domain.KeyID, limit int,
) ([]Grant[domain.KeyID], bool, error) {
	return grantsOf(ctx, s.reader, "list the keys of a company", findKeysOfCompany, o, company, after, limit)
}

// WebhooksOfCompany is KeysOfCompany for webhook destinations.
func (s CompanyReader) WebhooksOfCompany(
	ctx context.Context, o domain.OrganizationID, company domain.CompanyID, after domain.WebhookID, limit int,
) ([]Grant[domain.WebhookID], bool, error) {
	return grantsOf(ctx, s.reader, "list the destinations of a company", findWebhooksOfCompany, o, company, after, limit)
}

func grantsOf[ID domain.KeyID | domain.WebhookID](
	ctx context.Context, s *reader, what, sql string, o domain.OrganizationID, company domain.CompanyID, after ID,
	limit int,
) ([]Grant[ID], bool, error) {
	rows, err := statement.All(ctx, s.Pool, what, pgx.RowToStructByPos[struct {
		Company   domain.CompanyID
		To        *ID
		Enabled   *bool
		UpdatedAt *time.Time
		Name      *string
	}], sql, o.Shard(), company, o, after, limit+1)
	if err == nil && len(rows) == 0 {
		err = domain.ErrUnknownCompany
	}
	var list []Grant[ID]
	for _, row := range rows {
		if row.To != nil {
			list = append(list, Grant[ID]{row.Company, *row.To, *row.Enabled, *row.UpdatedAt, row.Name})
		}
	}
	return statement.Page(list, limit, err)
}

// Links lists all links of an organization, or only a member's, newest first.
func (s IdentityReader) Links(
	ctx context.Context, organization domain.OrganizationID, member domain.MemberID, limit, offset int,
) (links []domain.OAuthLink, total int64, err error) {
	query := cluster.SQL(`SELECT ` + projections.LinkColumns + `, count(*) OVER () FROM {oauth_links} l
		WHERE l.shard = $1 AND l.organization_id = $2 AND ($3::uuid = '00000000-0000-0000-0000-000000000000' OR l.member_id = $3)
		ORDER BY l.link_id DESC LIMIT $4 OFFSET $5`)
	type row struct {
		domain.OAuthLink
		Total int64
	}
	rows, err := statement.All(
		ctx, s.Pool, "list links", pgx.RowToStructByPos[row], query, organization.Shard(), organization, member, limit,
		offset,
	)
	if len(rows) > 0 {
		total = rows[0].Total
	}
	return statement.Column(rows, func(r row) domain.OAuthLink { return r.OAuthLink }), total, err
}

// Link finds a link, or refuses with NOT_FOUND.
func (s IdentityReader) Link(ctx context.Context, id domain.LinkID) (domain.OAuthLink, error) {
	l, err := s.link(ctx, id)
	return l.OAuthLink, err
}

// heldLink is a link with a flag whether its membership has ended.
type heldLink struct {
	domain.OAuthLink
	Ended bool
}

func (s IdentityReader) link(ctx context.Context, id domain.LinkID) (heldLink, error) {
	query := cluster.SQL(`SELECT ` + projections.LinkColumns + `, m.status = 'ended' FROM {oauth_links} l
		JOIN {members} m ON m.shard = $1 AND m.organization_id = l.organization_id AND m.member_id = l.member_id
		WHERE l.shard = $1 AND l.link_id = $2`)
	if !s.Installation.Has(id.Shard()) {
		return heldLink{}, UnknownLink()
	}
	return statement.One(ctx, s.Pool, "find link", UnknownLink(), pgx.RowToStructByPos[heldLink], query, id.Shard(), id)
}

// UnknownLink returns the error for every code without a link.
func UnknownLink() *domain.Error {
	return domain.Refuse(domain.NotFound, "There is no such link; ask for another.")
}

// claimMargin is the largest difference between the clocks of two server processes.
const claimMargin = time.Minute

// ClaimOAuthSubject claims a subject for a link before the link is redeemed. It refuses a subject that another link has
// or may still get, so that a subject never belongs to two members at once, whatever their shards. If a crash prevents
// the redemption, the link can still be redeemed until it expires. After that, the claim is void and may be replaced.
func (s IdentityReader) ClaimOAuthSubject(
	ctx context.Context, identity domain.OAuthSubject, link domain.OAuthLink, now time.Time,
) error {
	const claim = `INSERT INTO oauth_subjects (subject, organization_id, link_id, claimed_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (subject) DO UPDATE SET organization_id = excluded.organization_id, link_id = excluded.link_id, claimed_at = excluded.claimed_at
		WHERE oauth_subjects.link_id = $5
		RETURNING true`
	for {
		holder, err := s.claimed(ctx, identity)
		if err != nil || holder == link.ID {
			return err
		}
		if !holder.IsZero() {
			if err := s.checkReleased(ctx, identity, holder, now); err != nil {
				return err
			}
		}
		_, taken, err := statement.First(ctx, s.Pool, "claim an identity", pgx.RowTo[bool], claim,
			identity[:], link.Organization, link.ID, now, holder)
		if err != nil || taken {
			return err
		}
		// Another request claimed it in between: read again.
	}
}

// claimed returns the link that has claimed a subject, or zero.
func (s IdentityReader) claimed(ctx context.Context, identity domain.OAuthSubject) (domain.LinkID, error) {
	const query = `SELECT link_id FROM oauth_subjects WHERE subject = $1`
	id, _, err := statement.First(
		ctx, s.Pool, "find the link of an identity", pgx.RowTo[domain.LinkID], query, identity[:],
	)
	return id, err
}

// checkReleased refuses a subject if the link that claimed it has it or may still get it.
func (s IdentityReader) checkReleased(
	ctx context.Context, identity domain.OAuthSubject, holder domain.LinkID, now time.Time,
) error {
	l, err := s.link(ctx, holder)
	switch {
	case err != nil:
		return say.Errorf("find the link that has claimed an identity: %w", err)
	case l.WithdrawnAt != nil || l.Ended || l.Subject != nil && *l.Subject != identity:
		return nil
	case l.Subject != nil:
		return domain.Refuse(domain.InvalidState, "This identity is linked to a member already; withdraw that consent first.")
	case now.Before(l.ExpiresAt.Add(claimMargin)):
		return domain.Refuse(
			domain.InvalidState,
			"This identity is being linked by another link; repeat with that one, or wait until it has expired.",
		)
	}
	return nil
}
