package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/eventstore/postgres"
)

// TestMemberLink creates, lists and withdraws links while the service runs. The provider is unreachable throughout,
// which prevents neither the start nor anything that does not need it.
func TestMemberLink(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	at := []string{"--data-dir", dir}
	provider := []string{"--oauth-issuer", "http://127.0.0.1:1/", "--oauth-client-id", "integrity-ledger"}
	s := start(t, dir, provider...)
	a := makeAccount(t, dir)
	in := append([]string{"--organization", a.organization.ID}, at...)

	var started struct {
		operator.LinkView
		Code string
		URL  *string
	}
	link := append([]string{
		"member", "link", "--email", "ana@example.org", "--scopes", "verify:read", "--base-url", s.base,
	}, append(provider, in...)...)
	mustJSON(t, nil, &started, link...)
	if _, _, ok := domain.ParseLinkCode(started.Code); !ok || started.URL == nil ||
		*started.URL != s.base+"/oauth/link/"+started.Code || started.Status != "pending" {
		t.Errorf("started: %+v", started)
	}
	if text := must(t, nil, link...); strings.Count(text, "il_") != 2 || !strings.Contains(text, "/oauth/link/il_") {
		t.Errorf("as text: %s", text)
	}
	client := plainHTTP()
	var metadata struct {
		Resource string
		Servers  []string `json:"authorization_servers"`
	}
	answer, err := client.Get(s.base + "/.well-known/oauth-protected-resource/api/v1/mcp")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&metadata); err != nil || metadata.Resource != s.base+"/api/v1/mcp" ||
		metadata.Servers[0] != "http://127.0.0.1:1/" {
		t.Errorf("metadata: %d %+v %v", answer.StatusCode, metadata, err)
	}
	redeem := map[string]string{"code": started.Code}
	if status, err := call(
		client, http.MethodPost, s.base+"/api/v1/oauth/links/redeem", "eyJhbGciOiJSUzI1NiJ9.e30.x", redeem, nil,
	); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("redeem while the provider is away: %d %v", status, err)
	}

	// The operator's link signs the member in, once, in any browser.
	var signIn operator.SignInLinkView
	mustJSON(t, nil, &signIn,
		append([]string{"member", "sign-in-link", "--member", "ana@example.org", "--base-url", s.base}, in...)...)
	if _, _, ok := domain.ParseSignInCode(signIn.URL[strings.LastIndex(signIn.URL, "/")+1:]); !ok {
		t.Errorf("signs in at %s", signIn.URL)
	}
	var events string
	server, err := postgres.Attach(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), server.URL(postgres.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(
		t.Context(),
		`SELECT string_agg(actor || subject || convert_from(data, 'UTF8'), ',') FROM events WHERE type = 'member.sign_in_link_made'`,
	).Scan(&events); err != nil {
		t.Error(err)
	}
	if want := `operator` + signIn.MemberID + `{"memberId":"` + signIn.MemberID + `"}`; events != want {
		t.Errorf("events %s, want %s", events, want)
	}
	direct := plainHTTP()
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, want := range []string{"integrity-session=", ""} {
		answer, err := direct.Post(
			strings.Replace(signIn.URL, "localhost", "127.0.0.1", 1), "application/x-www-form-urlencoded", http.NoBody,
		)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if got := answer.Header.Get("Set-Cookie"); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%d, cookie %q, want %q", answer.StatusCode, got, want)
		}
	}

	var ended operator.LinkView
	mustJSON(t, nil, &ended, append([]string{"member", "unlink", started.ID}, at...)...)
	if ended.Status != "withdrawn" || ended.WithdrawnAt == nil {
		t.Errorf("ended: %+v", ended)
	}
	if status, err := call(
		client, http.MethodPost, s.base+"/api/v1/oauth/links/redeem", "eyJhbGciOiJSUzI1NiJ9.e30.x", redeem, nil,
	); err != nil || status == http.StatusOK {
		t.Errorf("redeem after the end: %d %v", status, err)
	}
	var all struct{ Links []operator.LinkView }
	mustJSON(t, nil, &all, append([]string{"member", "links"}, in...)...)
	if len(all.Links) != 2 || all.Links[0].Status != "pending" || all.Links[1].ID != started.ID ||
		all.Links[1].Status != "withdrawn" {
		t.Errorf("links: %+v", all.Links)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{append([]string{"member", "link", "--email", "b@example.org"}, in...), cli.ExitNegative, "no such active member"},
		{
			append([]string{"member", "link", "--email", "ana@example.org", "--scopes", "integrity:read"}, in...),
			cli.ExitNegative, "verify:read, artifacts:read",
		},
		{append([]string{"member", "unlink", started.Code}, at...), cli.ExitFailed, "not the code"},
		{
			append([]string{"member", "link", "--email", "ana@example.org", "--oauth-client-id", "x"}, in...), cli.ExitFailed,
			"INTEGRITY_OAUTH_CLIENT_ID",
		},
	} {
		if r := integrity(t, nil, c.args...); r.code != c.code || !strings.Contains(r.errs, c.says) ||
			strings.Contains(r.errs, started.Code) {
			t.Errorf("integrity %v: want exit code %d and %q: %d %s%s", c.args[:2], c.code, c.says, r.code, r.out, r.errs)
		}
	}
	s.stop()
}
