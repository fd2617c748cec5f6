package handlers_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
)

// Each reason appears in the log, with the key's id and never its secret.
func TestTheLogSaysWhyAKeyIsRefused(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}})
	network := "192.0.2.0/24"
	_, tied := s.limitedKey(nil, &network, nil)
	gone, revoked := s.limitedKey(nil, nil, nil)
	must(s, &domain.RevokeKey{Origin: s.org.Operator(), Key: gone.ID})
	_, ended := s.limitedKey(nil, nil, nil)
	unknown, _ := domain.NewAPIKey(domain.NewKeyID(s.Now(), s.org.ID.Shard()))
	distant, _ := domain.NewAPIKey(domain.NewKeyID(s.Now(), 60_000))
	other, _ := domain.NewAPIKey(s.org.Key.ID)
	refused := func(key, reason string, want domain.Code, status int, from string) {
		t.Helper()
		before := len(s.log.String())
		s.send(http.MethodGet, integrity+"/usage", key, nil, "X-Forwarded-For", from).refuses(status, want)
		log := s.log.String()[before:]
		id, _, _ := domain.ParseAPIKey(key)
		if want := fmt.Sprintf(
			`"msg":"API key refused","reason":%q,"key":%q`, reason, id.String(),
		); !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
		if len(key) > 50 && strings.Contains(log, key[len(key)-49:len(key)-6]) {
			t.Error("a secret is logged")
		}
	}
	const home = "198.51.100.1"
	for reason, key := range map[string]string{
		"form or checksum wrong": s.org.Secret[:len(s.org.Secret)-1] + "!", "shard unknown": distant, "id unknown": unknown,
		"secret wrong": other, "revoked": revoked, "network": tied,
	} {
		refused(key, reason, domain.InvalidKey, http.StatusUnauthorized, home)
	}
	s.freshMinute()
	for range 2000 {
		a := s.send(http.MethodGet, integrity+"/usage", other, nil, "X-Forwarded-For", "198.51.100.2")
		if a.status == http.StatusTooManyRequests {
			refused(other, "address limited", domain.RateLimited, http.StatusTooManyRequests, "198.51.100.2")
			break
		}
	}
	s.SecondOwner(t, s.org)
	disabled := domain.MemberDisabled
	must(s, &domain.ChangeMember{Origin: s.org.Operator(), Email: s.org.Email, Status: &disabled})
	refused(s.org.Secret, "member not active", domain.InvalidKey, http.StatusUnauthorized, home)
	later := s.Now().Add(2 * time.Hour)
	s.held.Store(&later)
	refused(ended, "expired", domain.InvalidKey, http.StatusUnauthorized, home)
}

// Of many keys that are created at the same time, each works from its first request on, whatever bytes it has.
func TestAKeyIsGoodAtOnce(t *testing.T) {
	s := open(t, options{})
	var making sync.WaitGroup
	for range 8 {
		making.Go(func() {
			for range 25 {
				create, text := domain.NewCreateKey(domain.CreateKey{
					Origin: s.org.Operator(), Email: s.org.Email, Scopes: domain.Scopes(), Lifetime: time.Hour,
				}, s.Now())
				must(s, create)
				for range 2 {
					if a := s.send(http.MethodGet, integrity+"/usage", text, nil); a.status == http.StatusUnauthorized {
						t.Errorf("key %s: %s", create.Outcome.ID, a.body)
					}
				}
				must(s, &domain.RevokeKey{Origin: s.org.Operator(), Key: create.Outcome.ID})
			}
		})
	}
	making.Wait()
}
