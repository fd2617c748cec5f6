package publishers

import (
	"context"
	"net/http"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/outbound"
	"integrityledger/eventstore/pgtest"
)

// TestChecksLookUpKeys: the statements of the queue look up rows by key.
func TestChecksLookUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).QueuePool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"take": take, "taken": findTaken, "note": note, "end": noteLast,
		"forget": forget, "ask": ask,
		"never": "SELECT statement_id FROM publisher_checks WHERE shard = $1 AND organization_id = $2",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := pgtest.LooksUpKeys(t, pool, plan); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestFilesAreReadFromAbsoluteNames: a search domain of the service's machine never leads to another host.
func TestFilesAreReadFromAbsoluteNames(t *testing.T) {
	for port, want := range map[string]string{"": "", "8443": ":8443"} {
		c := Checker{Config: Config{Port: port}, client: &outbound.Client{Client: &http.Client{}}}
		c.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host != "example.com."+want || r.Host != "example.com"+want {
				t.Errorf("%s is dialled, and the header is %s", r.URL.Host, r.Host)
			}
			return nil, http.ErrServerClosed
		})
		if got := c.lookAtFile(t.Context(), "example.com", domain.OrganizationID{}); got != Unreachable {
			t.Error(got)
		}
	}
}
