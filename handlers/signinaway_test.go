package handlers_test

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/handlers"
)

// oneAway cannot reach one shard, or reaches all.
type oneAway struct {
	eventstore.Database
	shard atomic.Int32 // -1: none
}

func (d *oneAway) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if len(args) > 0 && args[0] == domain.Shard(d.shard.Load()) {
		return pgx.FailedBatchResults(&pgx.Batch{}, &net.OpError{Op: "dial", Err: net.ErrClosed}).Query()
	}
	return d.Database.Query(ctx, sql, args...)
}

// A mailed link signs in to the organizations that can be reached. It creates no organization meanwhile, because the
// address may own one that cannot be reached.
func TestSignInWhileAShardIsAway(t *testing.T) {
	var database *oneAway
	s := openConsoleWith(t, options{config: func(c *handlers.Config) {
		c.SignUp = true
		database = &oneAway{Database: c.Store.Pool}
		database.shard.Store(-1)
		c.Store.Pool, c.Sessions.Pool = database, database
	}})
	own := s.org.ID.Shard()
	database.shard.Store(int32(own+1) % int32(s.Installation.Shards))
	p := s.guest()
	p.press("/en/console/sign-in", "email", s.org.Email).leads("/en/console/sign-in/sent")
	link := s.mailed()
	p.visit(link).says(http.StatusOK, "Press the button")
	p.press(link).leads("/en/console")

	p = s.guest()
	p.press("/en/console/sign-in", "email", s.org.Email).leads("/en/console/sign-in/sent")
	link = s.mailed()
	database.shard.Store(int32(own))
	organizations := s.count("organization_state")
	if answer := p.press(link, "name", "A second one"); answer.status < http.StatusInternalServerError {
		t.Errorf("the shard of the organization is away: %d", answer.status)
	}
	database.shard.Store(-1)
	if n := s.count("organization_state"); n != organizations {
		t.Errorf("%d organizations were made", n-organizations)
	}
	p.press(link).leads("/en/console")

	// The address owns the unreachable organization, and is a viewer in the other.
	other := s.Organization(t, (own+1)%domain.Shard(s.Installation.Shards), domain.InternalPlan)
	s.SecondOwner(t, other)
	viewer := domain.Viewer
	must(s.service, &domain.ChangeMember{Origin: other.Operator(), Email: other.Email, Role: &viewer})
	organizations = s.count("organization_state")
	database.shard.Store(int32(own))
	p = s.guest()
	p.press("/en/console/sign-in", "email", s.org.Email).leads("/en/console/sign-in/sent")
	link = s.mailed()
	p.press(link, "name", "A second one").leads("/en/console")
	database.shard.Store(-1)
	if n := s.count("organization_state"); n != organizations {
		t.Errorf("%d organizations were made", n-organizations)
	}
}
