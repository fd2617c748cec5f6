package handlers_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
)

// A form changes nothing if its session ends, or its member's role changes, before the form has arrived.
func TestSessionEndsWhileAFormTravels(t *testing.T) {
	s := openConsole(t)
	for what, ends := range map[string]func(*guest, domain.MemberID){
		"role": func(_ *guest, id domain.MemberID) {
			must(s.service, &domain.ChangeMember{Origin: s.org.Operator(), Member: id, Role: new(domain.Viewer)})
		},
		"status": func(_ *guest, id domain.MemberID) {
			must(s.service, &domain.ChangeMember{Origin: s.org.Operator(), Member: id, Status: new(domain.MemberDisabled)})
		},
		"session": func(p *guest, _ domain.MemberID) {
			p.press("/en/console/security/sign-out-everywhere").leads("/en/console/sign-in?said=signed-out")
		},
	} {
		t.Run(what, func(t *testing.T) {
			email := what + "@example.com"
			member := must(s.service, &domain.AddMember{Origin: s.org.Operator(), Email: email, Role: domain.Admin}).Outcome
			p := s.signedIn(email)
			connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
			check(t, err)
			defer connection.Close()
			text := url.Values{"email": {"new@example.com"}, "role": {"viewer"}}.Encode()
			_, err = fmt.Fprintf(connection,
				"POST /en/console/members HTTP/1.1\r\nHost: x\r\nCookie: %s=%s\r\nSec-Fetch-Site: same-origin\r\nContent-Type: "+
					"application/x-www-form-urlencoded\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
				sessionName, p.cookies[sessionName], len(text))
			check(t, err)
			answers := bufio.NewReader(connection)
			for range 2 { // 100 Continue and an empty line: the session was read, and the body is awaited
				_, err = answers.ReadString('\n')
				check(t, err)
			}
			ends(p, member.ID)
			before := s.sequence()
			_, err = io.WriteString(connection, text)
			check(t, err)
			response, err := http.ReadResponse(answers, nil)
			check(t, err)
			defer response.Body.Close()
			if to := response.Header.Get("Location"); response.StatusCode != http.StatusSeeOther || to != sessionEnded {
				t.Errorf("%d to %q", response.StatusCode, to)
			}
			if after := s.sequence(); after != before {
				t.Errorf("%d events", after-before)
			}
		})
	}
}

// authenticator signs like a passkey of the member.
type authenticator struct {
	*ecdsa.PrivateKey
	id, handle []byte
}

// newAuthenticator adds a passkey to the owner.
func (c *consoleService) newAuthenticator() authenticator {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(c.t, err)
	point, err := key.PublicKey.Bytes()
	check(c.t, err)
	member := c.org.Key.Member
	a := authenticator{key, []byte("credential"), slices.Concat(c.org.ID[:], member[:])}
	// COSE: {1: 2 (EC2), 3: -7 (ES256), -1: 1 (P-256), -2: x, -3: y}
	public := slices.Concat(
		[]byte{0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32}, point[1:33], []byte{0x22, 0x58, 32}, point[33:],
	)
	must(c.service, &domain.AddPasskey{
		Origin: domain.Origin{Organization: c.org.ID, Actor: domain.MemberActor(member), RequestID: "test", Console: true},
		Member: member, Name: "laptop",
		Credential: domain.Credential{CredentialID: a.id, PublicKey: public, Transports: []string{}},
	})
	return a
}

// passkeyNamed adds a passkey to the owner that no authenticator can use.
func (c *consoleService) passkeyNamed(name string) domain.Passkey {
	c.t.Helper()
	member := c.org.Key.Member
	add := &domain.AddPasskey{
		Origin: domain.Origin{Organization: c.org.ID, Actor: domain.MemberActor(member), RequestID: "test", Console: true},
		Member: member, Name: name,
		Credential: domain.Credential{CredentialID: []byte(name), PublicKey: []byte(name), Transports: []string{}},
	}
	must(c.service, add)
	return add.Outcome
}

// asked requests the options and returns the challenge to sign.
func (p *guest) asked() (challenge string) {
	p.t.Helper()
	var options struct{ PublicKey struct{ Challenge string } }
	check(p.t, json.Unmarshal(p.do(http.MethodPost, "/en/console/passkey/options", nil, "Accept", "*/*").body, &options))
	return options.PublicKey.Challenge
}

// answers sends the authenticator's signature.
func (p *guest) answers(a authenticator, challenge string) answer {
	p.t.Helper()
	said, err := json.Marshal(map[string]any{
		"type": "webauthn.get", "challenge": challenge, "origin": baseURL, "crossOrigin": false,
	})
	check(p.t, err)
	host, said256 := sha256.Sum256([]byte(strings.TrimPrefix(baseURL, "https://"))), sha256.Sum256(said)
	data := slices.Concat(host[:], []byte{0x05, 0, 0, 0, 0})
	signed := sha256.Sum256(slices.Concat(data, said256[:]))
	signature, err := ecdsa.SignASN1(rand.Reader, a.PrivateKey, signed[:])
	check(p.t, err)
	text := base64.RawURLEncoding.EncodeToString
	sent, err := json.Marshal(map[string]any{"id": text(a.id), "rawId": text(a.id), "type": "public-key",
		"response": map[string]any{
			"clientDataJSON": text(said), "authenticatorData": text(data), "signature": text(signature),
			"userHandle": text(a.handle),
		}})
	check(p.t, err)
	r := p.request(http.MethodPost, "/en/console/passkey", "", bytes.NewReader(sent))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for name, value := range p.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	answered, err := p.through(p.http.Client(), r)
	check(p.t, err)
	return answered
}

// A challenge costs the service nothing until a passkey has signed it. It can be used once, before it expires, in the
// same epoch of the ledger.
func TestChallenge(t *testing.T) {
	s := openConsole(t)
	a, p := s.newAuthenticator(), s.guest()
	rows := func() int64 {
		return s.number("SELECT count(*) FROM console_challenges WHERE $1::int IS NOT NULL AND $2::uuid IS NOT NULL")
	}
	const cookie = "__Host-integrity-challenge"
	refused := func(what string, p *guest, challenge string) {
		t.Helper()
		if answered := p.answers(a, challenge); answered.status != http.StatusConflict ||
			!contains(answered.body, "not accepted") {
			t.Errorf("%s: %d %s", what, answered.status, answered.body)
		}
	}
	with := func(value string) *guest {
		other := &guest{s, maps.Clone(p.cookies)}
		other.cookies[cookie] = value
		return other
	}
	for range 3 {
		p.asked()
	}
	challenge := p.asked()
	kept := p.cookies[cookie]
	refused("a challenge of one's own", p, base64.RawURLEncoding.EncodeToString(make([]byte, 32)))
	refused("no cookie", s.guest(), challenge)
	for what, handle := range map[string][]byte{
		"a passkey that was removed": a.handle, "a passkey of nobody": append(slices.Clone(a.handle[:31]), a.handle[31]^1),
	} {
		unknown := authenticator{a.PrivateKey, []byte("removed"), handle}
		if answered := p.answers(unknown, challenge); answered.status != http.StatusNotFound ||
			!contains(answered.body, "This passkey was removed, or belongs to no active member") {
			t.Errorf("%s: %d %s", what, answered.status, answered.body)
		}
	}
	refused("another signature", with(kept[:len(kept)-2]+"AA"), challenge)
	if n := rows(); n != 0 {
		t.Errorf("%d rows before anybody has signed", n)
	}
	if answered := p.answers(a, challenge); answered.status != http.StatusOK {
		t.Fatalf("%d %s", answered.status, answered.body)
	}
	refused("used", with(kept), challenge)
	if n := rows(); n != 1 {
		t.Errorf("%d rows of one challenge that was used", n)
	}
	challenge = p.asked()
	restored := s.second(options{config: func(c *handlers.Config) { c.Installation.Epoch++ }})
	refused("before a restore", &guest{&consoleService{service: restored}, p.cookies}, challenge)
	s.skew.Add(int64(5 * time.Minute))
	refused("five minutes later", p, challenge)
}
