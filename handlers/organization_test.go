package handlers_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/wire"
)

const organization = "/api/v1/organization"

// A key creates, lists, renames, shortens and revokes another key. The new key's text is shown once, the key works from
// that answer until its end, and the history has every step with its actor.
func TestKeysOfAnOrganization(t *testing.T) {
	s := open(t, options{})
	s.Company(t, s.org, "company-2")
	create := body{"name": "Buchhaltung", "scopes": []string{"integrity:read", "integrity:write"}, "source": "billing",
		"networks":       []string{"127.0.0.1", "2001:DB8::1/32"},
		"maxVersionStep": 3, "companies": []string{"company-1", "company-2"}}
	made := read[wire.CreatedAPIKey](
		s.send(http.MethodPost, organization+"/keys", s.org.Secret, create), http.StatusCreated,
	)
	if made.Name == nil || *made.Name != "Buchhaltung" || made.MemberID != s.org.Key.Member.String() ||
		made.CreatedBy == nil || *made.CreatedBy != s.org.Key.ID.String() ||
		!slices.Equal(made.Networks, []string{"127.0.0.1/32", "2001:db8::/32"}) || *made.Source != "billing" ||
		*made.MaxVersionStep != 3 ||
		!slices.Equal(made.Grants.Companies, []string{"company-1", "company-2"}) || made.Grants.HasMore ||
		made.RevokedAt != nil {
		t.Errorf("created: %+v", made)
	}
	s.send(http.MethodPost, integrity+"/records", made.Key, declaration("a", 1, "one")).is(http.StatusCreated)
	s.send(http.MethodGet, organization+"/keys", made.Key, nil).refuses(http.StatusForbidden, domain.MissingScope)

	path := organization + "/keys/" + made.ID
	secret := made.Key[len(made.Key)-49:]
	for _, a := range []answer{s.send(http.MethodGet, organization+"/keys", s.org.Secret, nil),
		s.send(http.MethodGet, path, s.org.Secret, nil),
		s.send(http.MethodPatch, path, s.org.Secret, body{"name": "Accounting"})} {
		if a.is(http.StatusOK); bytes.Contains(a.body, []byte(secret)) {
			t.Errorf("the secret is shown again: %s", a.body)
		}
	}
	end := s.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
	changed := read[wire.APIKey](
		s.send(http.MethodPatch, path, s.org.Secret, body{"expiresAt": end.Format(time.RFC3339)}), http.StatusOK,
	)
	if *changed.Name != "Accounting" || changed.ExpiresAt != end.Format(time.RFC3339) {
		t.Errorf("changed: %+v", changed)
	}
	if e := s.send(
		http.MethodPatch, path, s.org.Secret, body{"expiresAt": end.Add(time.Second).Format(time.RFC3339)},
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData); pointers(e) != "/expiresAt RANGE" {
		t.Errorf("a longer life: %s", pointers(e))
	}
	first := read[wire.APIKeys](s.send(http.MethodGet, organization+"/keys?limit=1", s.org.Secret, nil), http.StatusOK)
	rest := read[wire.APIKeys](
		s.send(http.MethodGet, organization+"/keys?limit=1&after="+*first.NextCursor, s.org.Secret, nil), http.StatusOK,
	)
	if !first.HasMore || first.Keys[0].ID != s.org.Key.ID.String() || first.Keys[0].Name != nil || rest.HasMore ||
		rest.Keys[0].ID != made.ID {
		t.Errorf("pages: %+v, %+v", first, rest)
	}
	for range 2 {
		if revoked := read[wire.APIKey](
			s.send(http.MethodDelete, path, s.org.Secret, nil), http.StatusOK,
		); revoked.RevokedAt == nil {
			t.Error("a revoked key says that it works")
		}
		s.send(http.MethodGet, integrity+"/usage", made.Key, nil).refuses(http.StatusUnauthorized, domain.InvalidKey)
	}
	s.send(
		http.MethodPatch, path, s.org.Secret, body{"expiresAt": s.Now().Add(2 * time.Hour).Format(time.RFC3339)},
	).refuses(http.StatusConflict, domain.InvalidState)
	if texts := s.texts("Buchhaltung") + s.texts("Accounting"); texts != 2 {
		t.Errorf("%d names are kept as texts", texts)
	}
	var actions []string
	for _, e := range read[wire.AuditEvents](
		s.send(http.MethodGet, certificationAction+"/audit-events?target="+made.ID, s.org.Secret, nil), http.StatusOK,
	).Events {
		actions = append(actions, string(e.Action))
		if e.Actor.ID == nil || *e.Actor.ID != s.org.Key.ID.String() {
			t.Errorf("%s by %+v", e.Action, e.Actor)
		}
	}
	if want := []string{
		"key.revoked", "key.expiry_changed", "key.renamed", "company.access_changed", "company.access_changed",
		"key.created",
	}; !slices.Equal(actions, want) {
		t.Errorf("history %v, want %v", actions, want)
	}
}

// A refusal names the problems, no key grants more than it has, and no key is created.
func TestKeysThatAreRefused(t *testing.T) {
	s := open(t, options{})
	narrow := read[wire.CreatedAPIKey](s.send(http.MethodPost, organization+"/keys", s.org.Secret,
		body{
			"name": "admin", "scopes": []string{"organization:admin", "integrity:read"}, "source": "billing",
			"networks": []string{"127.0.0.0/8"},
		}), http.StatusCreated).Key
	analyst := s.actor("analyst@example.com", domain.Analyst)
	viewer := s.actor("viewer@example.com", domain.Viewer)
	before := s.sequence()
	key := func(more body) body {
		all := body{"name": "key", "scopes": []string{"integrity:read"}}
		for name, value := range more {
			all[name] = value
		}
		return all
	}
	for name, c := range map[string]struct {
		key, path string
		body      any
		status    int
		code      domain.Code
		pointers  string
	}{
		"no members": {s.org.Secret, "/keys", body{}, 422, domain.InvalidData, "/name REQUIRED, /scopes LENGTH"},
		"an unknown company": {
			s.org.Secret, "/keys", key(body{"companies": []string{"company-1", "company-9"}}), 422, domain.InvalidData,
			"/companies/1 UNKNOWN",
		},
		"an unknown scope": {
			s.org.Secret, "/keys", key(body{"scopes": []string{"integrity:read", "all"}}), 422, domain.InvalidData,
			"/scopes/1 UNKNOWN",
		},
		"an unknown network": {
			s.org.Secret, "/keys", key(body{"networks": []string{"10.0.0.0/8", "here"}}), 422, domain.InvalidData,
			"/networks/1 FORMAT",
		},
		"a network twice": {
			s.org.Secret, "/keys", key(body{"networks": []string{"10.0.0.1", "10.0.0.1/32"}}), 422, domain.InvalidData,
			"/networks/1 DUPLICATE_MEMBER",
		},
		"an end in words": {
			s.org.Secret, "/keys", key(body{"expiresAt": "tomorrow"}), 422, domain.InvalidData, "/expiresAt FORMAT",
		},
		"an end that is over": {
			s.org.Secret, "/keys", key(body{"expiresAt": "2020-01-01T00:00:00Z"}), 422, domain.InvalidData, "/expiresAt RANGE",
		},
		"an end before time": {
			s.org.Secret, "/keys", key(body{"expiresAt": "0001-01-01T00:00:00Z"}), 422, domain.InvalidData, "/expiresAt FORMAT",
		},
		"an end too far": {
			s.org.Secret, "/keys", key(body{"expiresAt": "2126-01-01T00:00:00Z"}), 422, domain.InvalidData, "/expiresAt RANGE",
		},
		"another scope": {
			narrow, "/keys", key(body{"scopes": []string{"integrity:write"}}), 403, domain.MissingScope, "",
		},
		"another source": {
			narrow, "/keys", key(body{"source": "payroll"}), 422, domain.InvalidData, "/source KEY_LIMIT",
		},
		"a wider network": {
			narrow, "/keys", key(body{"networks": []string{"127.0.0.0/7"}}), 422, domain.InvalidData, "/networks/0 KEY_LIMIT",
		},
		"companies": {
			narrow, "/keys", key(body{"companies": []string{"company-1"}}), 403, domain.MissingScope, "",
		},
		"a longer life": {
			narrow, "/keys", key(body{"expiresAt": s.Now().Add(domain.DefaultKeyLifetime + time.Hour).Format(time.RFC3339)}),
			422, domain.InvalidData, "/expiresAt KEY_LIMIT",
		},
		"a successor with more": {narrow, "/keys/" + s.org.Key.ID.String() + "/rotate", nil, 403, domain.MissingScope, ""},
		"an analyst":            {analyst.secret, "/keys", key(nil), 403, domain.MissingScope, ""},
		"a viewer": {
			viewer.secret, "/members", body{"email": "new@example.com", "role": "viewer"}, 403, domain.MissingScope, "",
		},
		"an address in words": {
			s.org.Secret, "/members", body{"email": "Ana", "role": "king"}, 422, domain.InvalidData,
			"/email FORMAT, /role FORMAT",
		},
		"a member again": {
			s.org.Secret, "/members", body{"email": "VIEWER@example.com", "role": "viewer"}, 409, domain.InvalidState, "",
		},
	} {
		a := s.send(http.MethodPost, organization+c.path, c.key, c.body)
		if e := a.refuses(c.status, c.code); c.pointers != "" && pointers(e) != c.pointers {
			t.Errorf("%s: %s, want %s", name, pointers(e), c.pointers)
		}
	}
	if after := s.sequence(); after != before {
		t.Errorf("%d events", after-before)
	}
}

// Both keys work until the overlap ends, and the successor may use the former key's companies only if requested.
func TestRotationOfAKey(t *testing.T) {
	s := open(t, options{})
	made := read[wire.CreatedAPIKey](s.send(http.MethodPost, organization+"/keys", s.org.Secret,
		body{"name": "worker", "scopes": []string{"integrity:read"}, "companies": []string{"company-1"}}), http.StatusCreated)
	works := func(key string, status int) {
		t.Helper()
		if a := s.send(http.MethodGet, integrity+"/usage", key, nil); a.status != status {
			t.Errorf("status %d, want %d", a.status, status)
		}
	}
	rotate := organization + "/keys/" + made.ID + "/rotate"
	next := read[wire.RotatedAPIKey](
		s.send(http.MethodPost, rotate, s.org.Secret, body{"overlapSeconds": 3600, "copyGrants": true}), http.StatusCreated,
	)
	if *next.Name != "worker" || !slices.Equal(next.Grants.Companies, []string{"company-1"}) ||
		next.FormerKey.ID != made.ID || next.FormerKey.RevokedAt != nil ||
		next.FormerKey.ExpiresAt >= made.ExpiresAt || next.ID == made.ID {
		t.Errorf("successor: %+v", next)
	}
	works(made.Key, http.StatusOK)
	works(next.Key, http.StatusOK)
	last := read[wire.RotatedAPIKey](
		s.send(http.MethodPost, organization+"/keys/"+next.ID+"/rotate", s.org.Secret, body{"overlapSeconds": 0}),
		http.StatusCreated,
	)
	if len(last.Grants.Companies) != 0 || last.FormerKey.RevokedAt == nil {
		t.Errorf("successor: %+v", last)
	}
	works(next.Key, http.StatusUnauthorized)
	works(last.Key, http.StatusOK)
	s.send(
		http.MethodPost, organization+"/keys/"+next.ID+"/rotate", s.org.Secret, nil,
	).refuses(http.StatusConflict, domain.InvalidState)
	if e := s.send(
		http.MethodPost, rotate, s.org.Secret, body{"overlapSeconds": 2592001},
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData); pointers(e) != "/overlapSeconds RANGE" {
		t.Errorf("overlap: %s", pointers(e))
	}
}

// Members are invited, changed and ended. The link of an invitation is in one answer only and works once. Only an owner
// creates or changes an owner, and the last owner cannot be ended.
func TestMembersOfAnOrganization(t *testing.T) {
	s := open(t, options{})
	admin := s.actor("admin@example.com", domain.Admin)
	owner := organization + "/members/" + s.org.Key.Member.String()
	for _, to := range []body{{"role": "admin"}, {"status": "disabled"}} {
		s.send(http.MethodPatch, owner, s.org.Secret, to).refuses(http.StatusConflict, domain.InvalidState)
		s.send(http.MethodPatch, owner, admin.secret, to).refuses(http.StatusForbidden, domain.RoleRequired)
	}
	s.send(http.MethodDelete, owner, s.org.Secret, nil).refuses(http.StatusConflict, domain.InvalidState)
	s.send(
		http.MethodPost, organization+"/members", admin.secret, body{"email": "new@example.com", "role": "owner"},
	).refuses(http.StatusForbidden, domain.RoleRequired)
	s.send(
		http.MethodPost, organization+"/keys/"+s.org.Key.ID.String()+"/rotate", admin.secret, nil,
	).refuses(http.StatusForbidden, domain.RoleRequired)

	a := s.send(
		http.MethodPost, organization+"/members", admin.secret, body{"email": "ana@example.com", "role": "reviewer"},
	)
	invited := read[wire.InvitedMember](a, http.StatusCreated)
	if invited.Status != domain.MemberInvited || invited.Renewed || invited.Mailed || invited.InvitationURLs == nil ||
		*invited.Email != "ana@example.com" || invited.InvitationExpiresAt == nil {
		t.Fatalf("invited: %s", a.body)
	}
	if urls := action.InvitationURLs("http://127.0.0.1:9/", "c"); urls.ES != "http://localhost:9/console/invitation/c" {
		t.Errorf("on loopback the console has a name: %s", urls.ES)
	}
	code, found := strings.CutPrefix(invited.InvitationURLs.EN, baseURL+"/en/console/invitation/")
	if !found || invited.InvitationURLs.ES != baseURL+"/console/invitation/"+code {
		t.Errorf("links %+v", invited.InvitationURLs)
	}
	organizationID, secret, ok := domain.ParseInvitationCode(code)
	if !ok || organizationID != s.org.ID {
		t.Fatalf("code %s", code)
	}
	list := s.send(http.MethodGet, organization+"/members?limit=3", s.org.Secret, nil)
	members := read[wire.Members](list, http.StatusOK)
	if len(members.Members) != 3 || members.HasMore || members.Members[2].ID != invited.ID ||
		members.Members[2].InvitationExpiresAt == nil || members.Members[0].InvitationExpiresAt != nil ||
		bytes.Contains(list.body, []byte(code[len(code)-49:])) {
		t.Errorf("members: %s", list.body)
	}
	wait := s.send(
		http.MethodPost, organization+"/members", admin.secret, body{"email": "ana@example.com", "role": "reviewer"},
	)
	wait.refuses(http.StatusTooManyRequests, domain.RateLimited)
	s.at(s.Now().Add(time.Hour))
	renewed := read[wire.InvitedMember](
		s.send(http.MethodPost, organization+"/members", admin.secret, body{"email": "ana@example.com", "role": "reviewer"}),
		http.StatusOK,
	)
	former := secret
	if _, secret, ok = domain.ParseInvitationCode(strings.TrimPrefix(
		renewed.InvitationURLs.ES, baseURL+"/console/invitation/",
	)); !ok || !renewed.Renewed || renewed.ID != invited.ID || secret == former {
		t.Errorf("renewed: %+v", renewed)
	}

	path := organization + "/members/" + invited.ID
	s.send(http.MethodPatch, path, admin.secret, body{"status": "active"}).refuses(
		http.StatusConflict, domain.InvalidState,
	)
	accept := &domain.AcceptInvitation{
		Origin: domain.Origin{Organization: s.org.ID, Actor: domain.SystemActor, RequestID: "r"}, SecretSHA256: secret,
	}
	if err := s.Do(t.Context(), &domain.AcceptInvitation{Origin: accept.Origin, SecretSHA256: former}); err == nil {
		t.Error("the code of an invitation that was made again was accepted")
	}
	must(s, accept)
	if err := s.Do(t.Context(), accept); err == nil {
		t.Error("an invitation was accepted twice")
	}
	joined := read[wire.FullMember](s.send(http.MethodPatch, path, admin.secret, body{"role": "analyst"}), http.StatusOK)
	if joined.Status != domain.MemberActive || joined.Role != domain.Analyst || joined.InvitationExpiresAt != nil {
		t.Errorf("joined: %+v", joined)
	}
	s.send(http.MethodPatch, path, admin.secret, body{"role": "owner"}).refuses(http.StatusForbidden, domain.RoleRequired)
	read[wire.FullMember](s.send(http.MethodPatch, path, s.org.Secret, body{"role": "owner"}), http.StatusOK)
	read[wire.FullMember](s.send(http.MethodPatch, owner, s.org.Secret, body{"role": "admin"}), http.StatusOK)
	s.send(http.MethodDelete, path, s.org.Secret, nil).refuses(http.StatusForbidden, domain.RoleRequired)

	withdrawn := read[wire.InvitedMember](
		s.send(http.MethodPost, organization+"/members", admin.secret, body{"email": "bob@example.com", "role": "viewer"}),
		http.StatusCreated,
	)
	for range 2 {
		if ended := read[wire.FullMember](
			s.send(http.MethodDelete, organization+"/members/"+withdrawn.ID, admin.secret, nil), http.StatusOK,
		); ended.Status != domain.MemberEnded {
			t.Errorf("ended: %+v", ended)
		}
	}
	_, secret, _ = domain.ParseInvitationCode(strings.TrimPrefix(
		withdrawn.InvitationURLs.ES, baseURL+"/console/invitation/",
	))
	if err := s.Do(t.Context(), &domain.AcceptInvitation{Origin: accept.Origin, SecretSHA256: secret}); err == nil {
		t.Error("an invitation that was withdrawn was accepted")
	}
	s.send(
		http.MethodPatch, organization+"/members/"+withdrawn.ID, admin.secret, body{"status": "active"},
	).refuses(http.StatusConflict, domain.InvalidState)
	// An admin's key ends with the membership.
	var id string
	for _, m := range read[wire.Members](
		s.send(http.MethodGet, organization+"/members", admin.secret, nil), http.StatusOK,
	).Members {
		if *m.Email == admin.email {
			id = m.ID
		}
	}
	s.send(http.MethodPatch, organization+"/members/"+id, s.org.Secret, body{"status": "disabled"}).is(http.StatusOK)
	s.send(http.MethodGet, organization, admin.secret, nil).refuses(http.StatusUnauthorized, domain.InvalidKey)
}

// Keys and members of another organization are answered like unknown ones.
func TestOthersKeysAndMembers(t *testing.T) {
	s := open(t, options{})
	other := s.Organization(t, s.org.ID.Shard(), domain.InternalPlan)
	for _, kind := range []struct{ path, own, unknown, malformed string }{
		{"/keys/", other.Key.ID.String(), domain.NewKeyID(s.Now(), s.org.ID.Shard()).String(), "key_x"},
		{"/members/", other.Key.Member.String(), domain.NewID[domain.MemberID](s.Now()).String(), "usr_x"},
	} {
		for _, c := range []struct {
			method, after string
			body          any
		}{
			{http.MethodGet, "", nil}, {http.MethodPatch, "", body{}}, {http.MethodDelete, "", nil},
			{http.MethodPost, "/rotate", nil},
		} {
			if kind.path == "/members/" && (c.method == http.MethodGet || c.after != "") {
				continue
			}
			var said []any
			for _, id := range []string{kind.own, kind.unknown, kind.malformed} {
				said = append(said, s.send(c.method, organization+kind.path+id+c.after, s.org.Secret,
					c.body).refuses(http.StatusNotFound, domain.NotFound).Detail)
			}
			if said[0] != said[1] || said[1] != said[2] {
				t.Errorf("%s %s: %v", c.method, kind.path, said)
			}
		}
	}
	s.send(http.MethodGet, integrity+"/usage", other.Secret, nil).is(http.StatusOK)
	list := s.send(http.MethodGet, organization+"/keys", s.org.Secret, nil)
	if bytes.Contains(list.body, []byte(other.Key.ID.String())) {
		t.Errorf("%s", list.body)
	}
}

// In a used-up month, or on a plan without requests, an owner can still revoke a key and read the organization's usage.
func TestOrganizationInAnExhaustedMonth(t *testing.T) {
	s := open(
		t,
		options{
			plan:  "gratis",
			plans: parsePlans(t, `{"gratis": {"perMinute": 1000, "versionsPerMonth": 1, "requestsPerMonth": 1}}`),
		},
	)
	leaked, secret := s.Key(t, s.org, domain.IntegrityRead)
	s.registered("a", 1, "one")
	s.send(http.MethodGet, certificationAction+"/me", s.org.Secret, nil).is(http.StatusOK)
	s.send(http.MethodGet, certificationAction+"/me", s.org.Secret, nil).refuses(
		http.StatusTooManyRequests, domain.RequestQuotaExhausted,
	)
	o := read[wire.FullOrganization](s.send(http.MethodGet, organization, secret, nil), http.StatusOK)
	if o.ID != s.org.ID.String() || o.Name != "Example" || o.Plan != "gratis" || *o.Limits.Versions.Limit != 1 ||
		o.Limits.Versions.Used != 1 || *o.Limits.Requests.Remaining != 0 ||
		o.Limits.Requests.ResetsAt == "" || o.Limits.WebhookAttempts.Used != 0 || o.CreatedAt == "" {
		t.Errorf("organization: %+v", o)
	}
	s.send(http.MethodDelete, organization+"/keys/"+leaked.ID.String(), s.org.Secret, nil).is(http.StatusOK)
	s.send(http.MethodGet, organization, secret, nil).refuses(http.StatusUnauthorized, domain.InvalidKey)
}

// If the service mails invitations, the answer has no link, and the queue contains the encrypted code.
func TestMailedInvitation(t *testing.T) {
	key, _ := domain.NewSecretKey()
	s := open(t, options{config: func(c *handlers.Config) { c.MailsInvitations, c.SecretKeys = true, domain.FixedSecretKeys(key) }})
	invited := read[wire.InvitedMember](
		s.send(http.MethodPost, organization+"/members", s.org.Secret, body{"email": "ana@example.com", "role": "viewer"}),
		http.StatusCreated,
	)
	if !invited.Mailed || invited.InvitationURLs != nil {
		t.Errorf("%+v", invited)
	}
	var sealed, sum []byte
	check(t, s.Pool.QueryRow(t.Context(), "SELECT sealed, secret_sha256 FROM invitation_mails").Scan(&sealed, &sum))
	code, err := key.Open(s.org.ID, sealed)
	check(t, err)
	if _, secret, ok := domain.ParseInvitationCode(code); !ok || !bytes.Equal(secret[:], sum) {
		t.Errorf("the queue holds %s", code)
	}
}

// An organization may have a thousand active keys, and is refused another.
func TestMostKeys(t *testing.T) {
	s := open(t, options{})
	s.owner(fmt.Sprintf(`INSERT INTO api_keys (shard, key_id, organization_id, member_id, secret_sha256, scopes, created_by, created_at, expires_at)
		SELECT shard, gen_random_uuid(), organization_id, member_id, '\x01', scopes, created_by, created_at, expires_at FROM api_keys CROSS JOIN generate_series(2, %d)
		WHERE organization_id = '%s'`, domain.MaxActiveKeys, fmt.Sprintf("%x", s.org.ID[:])))
	s.send(
		http.MethodPost, organization+"/keys", s.org.Secret, body{"name": "one more", "scopes": []string{"integrity:read"}},
	).refuses(http.StatusConflict, domain.InvalidState)
}
