package projections_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// rowCounter counts the rows returned by batches.
type rowCounter struct{ rows int64 }

func (c *rowCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *rowCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *rowCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (c *rowCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
func (c *rowCounter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.rows += data.CommandTag.RowsAffected()
}

// loadedFor returns the state that a group of these commands loads, and the number of its rows.
func loadedFor(t *testing.T, l *ledgertest.Ledger, commands ...domain.Command) (*domain.State, int64) {
	t.Helper()
	ctx, counter := context.Background(), &rowCounter{}
	config := l.Pool.Config()
	config.ConnConfig.Tracer = counter
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	plans, err := domain.DefaultPlans()
	if err != nil {
		t.Fatal(err)
	}
	var needs domain.Needs
	var organizations []domain.OrganizationID
	for _, c := range commands {
		needs.Add(c)
		organizations = append(organizations, c.CommandOrigin().Organization)
	}
	state, b := domain.NewState(plans), &pgx.Batch{}
	projections.Load(b, organizations[0].Shard(), organizations, needs, l.Now(), state)
	if err := pool.SendBatch(ctx, b).Close(); err != nil {
		t.Fatal(err)
	}
	return state, counter.rows
}

// TestLoadsAreBounded: the rows that an administrator's command loads under the lock of the shard's head do not grow
// with the organization's data, even if the command is refused because of that data.
func TestLoadsAreBounded(t *testing.T) {
	pgtest.OneServer(t, "rows are put into tables beside the log")
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	l.SecondOwner(t, o)
	// 9,600 grants of the key and 9,000 members, as in the projections.
	for _, sql := range []string{
		`INSERT INTO grants (shard, key_id, company_id, enabled, updated_at)
			SELECT shard, key_id, gen_random_uuid(), n % 2 = 0, updated_at FROM grants, generate_series(1, 9600) n WHERE key_id = $1`,
		`INSERT INTO members (shard, organization_id, member_id, email_id, email_sha256, role, status, created_at, invited_until)
			SELECT shard, organization_id, gen_random_uuid(), email_id, email_sha256, 'owner', 'active', created_at, created_at FROM members, generate_series(1, 9000) n WHERE member_id = $1`,
	} {
		id := [16]byte(o.Key.ID)
		if sql[:19] == "INSERT INTO members" {
			id = [16]byte(o.Key.Member)
		}
		conn, err := pgx.Connect(context.Background(), l.URL)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(context.Background(), sql, id); err != nil {
			t.Fatal(err)
		}
		conn.Close(context.Background())
	}
	console := domain.Origin{Organization: o.ID, Actor: domain.MemberActor(o.Key.Member), Console: true}
	rotate := func(by domain.Origin) *domain.RotateKey {
		command, _ := domain.NewRotateKey(domain.RotateKey{Origin: by, Key: o.Key.ID, CopyGrants: true}, l.Now())
		return command
	}
	create, _ := domain.NewCreateKey(domain.CreateKey{Origin: console, Member: o.Key.Member,
		Scopes: []domain.Scope{domain.IntegrityRead}, Lifetime: time.Hour}, l.Now())
	invite, _ := domain.NewInviteMember(domain.InviteMember{Origin: console, Email: "new@example.com",
		Role: domain.Viewer}, nil)
	again, _ := domain.NewInviteMember(domain.InviteMember{Origin: console, Email: o.Email, Role: domain.Viewer}, nil)
	link, _ := domain.NewStartLink(domain.StartLink{Origin: o.Operator(), Member: o.Key.Member,
		Scopes: []domain.Scope{domain.VerifyRead}}, l.Now())
	l.Must(t, link)
	ended := domain.MemberEnded
	const few = 12 // organization, months, key, member, names, counts
	for name, c := range map[string]struct {
		command domain.Command
		most    int64
		code    domain.Code
	}{
		"a rotation by a key":       {rotate(o.Origin()), domain.MaxCopiedGrants + 1 + few, domain.InvalidState},
		"a rotation in the console": {rotate(console), domain.MaxCopiedGrants + 1 + few, domain.InvalidState},
		"a new key":                 {create, few, ""},
		"a grant": {&domain.SetAccess{Origin: console, Company: o.Company.ID, Key: o.Key.ID,
			Enabled: true}, few, ""},
		"a company": {&domain.CreateCompany{Origin: console, Reference: "new"}, few, ""},
		"the end of an owner": {&domain.ChangeMember{Origin: console, Member: o.Key.Member, Status: &ended}, few,
			""},
		"the end of a member by address": {&domain.ChangeMember{Origin: console, Email: "none@example.com",
			Status: &ended}, few, domain.NotFound},
		"a member": {
			&domain.AddMember{Origin: o.Operator(), Email: "new@example.com", Role: domain.Viewer}, few, "",
		},
		"an invitation":             {invite, domain.DailyInvitations + 1 + few, ""},
		"an invitation of a member": {again, domain.DailyInvitations + 1 + few, domain.InvalidState},
		"the redemption of a link": {&domain.RedeemLink{Origin: console, Link: link.Outcome.ID,
			SecretSHA256: link.Outcome.SecretSHA256}, few, ""},
		"an invitation nobody has had": {&domain.AcceptInvitation{Origin: domain.Origin{Organization: o.ID,
			Actor: domain.SystemActor}}, few, domain.NotFound},
	} {
		state, rows := loadedFor(t, l, c.command)
		_, err := state.Decide(c.command, 0, l.Now())
		refused, _ := errors.AsType[*domain.Error](err)
		if rows > c.most || c.code == "" && err != nil || c.code != "" && (refused == nil || refused.Code != c.code) {
			t.Errorf("%s loads %d rows, want at most %d: %v", name, rows, c.most, err)
		}
	}
	// The operator's rotation copies all of them.
	state, rows := loadedFor(t, l, rotate(o.Operator()))
	drafts, err := state.Decide(rotate(o.Operator()), 0, l.Now())
	if err != nil || rows < 4800 || len(drafts) < 4800 {
		t.Errorf("the operator's rotation loads %d rows and makes %d events: %v", rows, len(drafts), err)
	}
}

// TestBoundedLoadsMeetTheGroup: earlier commands of the group change the counts that a bounded load relies on. A key
// one grant above the limit of a rotation stays above it while the loaded grants are revoked, and the loaded owners are
// not taken for the last ones.
func TestBoundedLoadsMeetTheGroup(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	var grants []domain.Command
	var companies []domain.Company
	for i := range domain.MaxCopiedGrants + 10 {
		create := &domain.CreateCompany{Origin: o.Operator(), Reference: fmt.Sprintf("c-%04d", i)}
		l.Must(t, create)
		companies = append(companies, create.Outcome)
		grants = append(grants, &domain.SetAccess{Origin: o.Operator(), Company: create.Outcome.ID, Key: o.Key.ID,
			Enabled: true})
	}
	for _, answer := range l.Execute(context.Background(), grants...) {
		if answer.Err != nil {
			t.Fatal(answer.Err)
		}
	}
	var group []domain.Command
	for _, company := range companies[:5] {
		group = append(group, &domain.SetAccess{Origin: o.Origin(), Company: company.ID, Key: o.Key.ID})
	}
	rotate, _ := domain.NewRotateKey(domain.RotateKey{Origin: o.Origin(), Key: o.Key.ID, CopyGrants: true}, l.Now())
	group = append(group, rotate)
	state, _ := loadedFor(t, l, group...)
	for _, c := range group[:5] {
		drafts, err := state.Decide(c, 0, l.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := state.Append(c.CommandOrigin(), l.Now(), drafts); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := state.Decide(rotate, 0, l.Now()); err == nil {
		t.Error("a key of 1,006 grants was rotated with a part of them")
	}

	var ends []domain.Command
	for i := range 6 {
		add := &domain.AddMember{Origin: o.Operator(), Email: fmt.Sprintf("owner-%d@example.com", i), Role: domain.Owner}
		l.Must(t, add)
		ended := domain.MemberEnded
		ends = append(ends, &domain.ChangeMember{Origin: o.Operator(), Member: add.Outcome.ID, Status: &ended})
	}
	state, _ = loadedFor(t, l, ends...)
	for i, c := range ends {
		drafts, err := state.Decide(c, 0, l.Now())
		if err != nil {
			t.Fatalf("owner %d of 7: %v", i, err)
		}
		if _, err := state.Append(c.CommandOrigin(), l.Now(), drafts); err != nil {
			t.Fatal(err)
		}
	}
}
