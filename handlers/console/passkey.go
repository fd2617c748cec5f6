package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/projections/session"
)

// passkeys implements WebAuthn.
type passkeys struct{ *webauthn.WebAuthn }

// newPasskeys configures WebAuthn for the host and origin of the service. Passkeys are discoverable, so no name is
// typed, and the authenticator must verify the person.
func newPasskeys(host, origin string) *passkeys {
	return &passkeys{edge.Must(webauthn.New(&webauthn.Config{
		RPID: host, RPDisplayName: "Integrity Ledger", RPOrigins: []string{origin},
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification: protocol.VerificationRequired,
		},
	}))}
}

// challengeLifetime is the time in which an authenticator must sign.
const challengeLifetime = 5 * time.Minute

// passkeyHolder is a member as a WebAuthn user.
type passkeyHolder struct {
	session.Membership
	known []session.NamedPasskey
}

// WebAuthnID is the user handle: organization and member. The organization tells the shard.
func (h passkeyHolder) WebAuthnID() []byte { return append(h.Organization[:], h.Member[:]...) }

// WebAuthnName is the name that the authenticator shows next to the service.
func (h passkeyHolder) WebAuthnName() string {
	return strings.TrimSpace(h.Email + " · " + h.OrganizationName)
}

// WebAuthnDisplayName is the same name.
func (h passkeyHolder) WebAuthnDisplayName() string { return h.WebAuthnName() }

// WebAuthnCredentials returns the member's passkeys.
func (h passkeyHolder) WebAuthnCredentials() []webauthn.Credential {
	list := make([]webauthn.Credential, len(h.known))
	for i, p := range h.known {
		list[i] = webauthn.Credential{
			ID: p.CredentialID, PublicKey: p.PublicKey, Flags: webauthn.CredentialFlags{BackupEligible: p.BackupEligible},
			Authenticator: webauthn.Authenticator{SignCount: uint32(p.SignCount)},
		}
		for _, transport := range p.Transports {
			list[i].Transport = append(list[i].Transport, protocol.AuthenticatorTransport(transport))
		}
	}
	return list
}

func parseHandle(raw []byte) (o domain.OrganizationID, member domain.MemberID, ok bool) {
	if len(raw) != len(o)+len(member) {
		return o, member, false
	}
	return domain.OrganizationID(raw[:len(o)]), domain.MemberID(raw[len(o):]), true
}

func (s passkeyDoor) holder(
	ctx context.Context, o domain.OrganizationID, member domain.MemberID,
) (h passkeyHolder, err error) {
	if h.Membership, err = s.Sessions.Membership(ctx, o, member); err != nil {
		return h, err
	}
	h.known, err = s.Sessions.Passkeys(ctx, o, member)
	return h, err
}

// challenge is the challenge for an authenticator, stored in the browser.
type challenge struct {
	Epoch int64     `json:"epoch"` // of the ledger: after a restore it is not known which challenges were used
	Until time.Time `json:"until"`
	webauthn.SessionData
}

// challengeOptions answers the options that the page's script passes to the browser. Any client may ask for them, so
// the service stores nothing: the signed challenge is in the cookie. Only the use of a challenge, which needs a
// passkey, writes a row.
func (s passkeyDoor) challengeOptions(options any, data *webauthn.SessionData) (edge.Response, error) {
	kept, err := json.Marshal(challenge{Epoch: s.Epoch(), Until: s.Now().Add(challengeLifetime), SessionData: *data})
	if err != nil {
		return edge.Response{}, err
	}
	body, err := edge.Encode(options)
	header := http.Header{
		"Set-Cookie": {
			s.consoleCookie(challengeCookie, domain.SignText(s.Installation.Secret, challengeLabel, kept), challengeLifetime),
		},
	}
	return edge.Response{Raw: body, Cache: edge.NoStore, Header: header}, err
}

const challengeLabel = "passkey-challenge"

// challengeOf reads the challenge from the request's cookie.
func (s passkeyDoor) challengeOf(r *http.Request) (c challenge, err error) {
	kept, ok := domain.SignedText(s.Installation.Secret, challengeLabel, s.cookieValue(r, challengeCookie))
	if !ok || json.Unmarshal(kept, &c) != nil || c.Epoch != s.Epoch() || !s.Now().Before(c.Until) {
		return c, errPasskeyRefused
	}
	return c, nil
}

// useChallenge marks a challenge as used after its signature has been verified. Only one answer to a challenge
// succeeds.
func (s passkeyDoor) useChallenge(r *http.Request, c challenge) error {
	used, err := s.Sessions.UseChallenge(r.Context(), sha256.Sum256([]byte(c.Challenge)), c.Until)
	if err == nil && !used {
		err = errPasskeyRefused
	}
	return err
}

// errPasskeyRefused is the answer to every problem with a passkey but errPasskeyUnknown. That one does not tell whether
// there is such a member.
var (
	errPasskeyRefused = domain.Refuse(
		domain.InvalidState, "This passkey was not accepted; try again, or sign in by mail.",
	)
	errPasskeyUnknown = domain.Refuse(
		domain.NotFound, "This passkey was removed, or belongs to no active member; sign in with a link.",
	)
)

// passkeyOptions begins a sign-in, or a new proof of identity of a signed-in person.
func (s passkeyDoor) passkeyOptions(r *http.Request) (any, error) {
	options, data, err := s.console.passkeys.BeginDiscoverableLogin(
		webauthn.WithUserVerification(protocol.VerificationRequired),
	)
	if err != nil {
		return nil, fmt.Errorf("begin a sign-in: %w", err)
	}
	return s.challengeOptions(options, data)
}

// passkeySignIn signs the holder of a passkey in.
func (s passkeyDoor) passkeySignIn(r *http.Request) (any, error) {
	holder, err := s.usedPasskey(r)
	if err != nil {
		return nil, err
	}
	cookies, err := s.begin(r, holder.Membership, s.Now())
	if err != nil {
		return nil, err
	}
	resp := s.toScript(http.StatusOK, web.Path(edge.Language(r), web.ConsoleRoot))
	resp.Header = http.Header{"Set-Cookie": append(
		cookies, s.consoleCookie(challengeCookie, "", 0), s.passkeyCookieFor(),
	)}
	return resp, nil
}

// provePasskey proves the identity of the signed-in person again.
func (s passkeyDoor) provePasskey(r *http.Request) (any, error) {
	holder, err := s.usedPasskey(r)
	c := edge.CallOf(r)
	if err == nil && (holder.Organization != c.Session.Organization || holder.Member != c.Session.Member) {
		err = errPasskeyRefused // the passkey of another member
	}
	if err != nil {
		return nil, err
	}
	cookie, err := s.proved(r, s.Now())
	if err != nil {
		return nil, err
	}
	resp := s.toScript(http.StatusOK, "")
	resp.Header = http.Header{"Set-Cookie": {
		cookie, s.consoleCookie(challengeCookie, "", 0), s.consoleCookie(returnCookie, "", 0),
	}}
	return resp, nil
}

// usedPasskey finds the holder of the passkey that signed the challenge.
func (s passkeyDoor) usedPasskey(r *http.Request) (h passkeyHolder, err error) {
	asked, err := s.challengeOf(r)
	if err != nil {
		return h, err
	}
	if _, err := edge.Parse(r.Context(), edge.CallOf(r).Body, "The body"); err != nil {
		return h, err
	}
	answer, err := protocol.ParseCredentialRequestResponseBytes(edge.CallOf(r).Body)
	if err != nil {
		return h, s.refusePasskey(r, err)
	}
	var failed error // of the service
	_, credential, err := s.console.passkeys.ValidatePasskeyLogin(func(_, handle []byte) (webauthn.User, error) {
		o, member, ok := parseHandle(handle)
		if !ok {
			return nil, errors.New("a malformed user handle")
		}
		if h, failed = s.holder(r.Context(), o, member); failed != nil {
			return nil, failed
		}
		if !slices.ContainsFunc(h.known, func(p session.NamedPasskey) bool {
			return bytes.Equal(p.CredentialID, answer.RawID)
		}) {
			failed = errPasskeyUnknown
			return nil, failed
		}
		// Some authenticators report only later that a passkey may be on several devices. The library would refuse the
		// change; no rule of the console depends on it.
		if answer.Response.AuthenticatorData.Flags.HasBackupEligible() {
			for i := range h.known {
				h.known[i].BackupEligible = true
			}
		}
		return h, nil
	}, asked.SessionData, answer)
	if refused := edge.Refusal(failed); refused != nil && refused.Code != domain.TemporarilyUnavailable {
		failed = errPasskeyUnknown // the member is not active
	}
	if failed != nil {
		return h, failed
	}
	if err != nil {
		return h, s.refusePasskey(r, err)
	}
	for _, known := range h.known {
		if string(known.CredentialID) != string(credential.ID) {
			continue
		}
		if err := s.useChallenge(r, asked); err != nil {
			return h, err
		}
		// The store checks the counter, so only one of two concurrent answers succeeds.
		counted, err := s.Sessions.UsePasskey(
			r.Context(), known.Passkey, int64(answer.Response.AuthenticatorData.Counter), s.Now(),
		)
		if err == nil && !counted {
			s.Log.Warn("passkey refused: its counter has not grown, so it may have been copied", "passkey", known.ID,
				"organization", h.Organization,
				"member", h.Member, "requestId", edge.CallOf(r).RequestID)
			err = errPasskeyRefused
		}
		return h, err
	}
	return h, errPasskeyRefused
}

func (s passkeyDoor) refusePasskey(r *http.Request, err error) error {
	details := ""
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		details = e.Details + " " + e.DevInfo
	}
	s.Log.Info("passkey refused", "requestId", edge.CallOf(r).RequestID, "error", err, "details", details)
	return errPasskeyRefused
}

// newPasskeyOptions begins the creation of a passkey.
func (s passkeyDoor) newPasskeyOptions(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	c := edge.CallOf(r)
	holder, err := s.holder(r.Context(), c.Session.Organization, c.Session.Member)
	if err != nil {
		return nil, err
	}
	known := holder.WebAuthnCredentials()
	exclude := make([]protocol.CredentialDescriptor, len(known))
	for i := range known {
		exclude[i] = known[i].Descriptor()
	}
	options, data, err := s.console.passkeys.BeginRegistration(holder, webauthn.WithExclusions(exclude))
	if err != nil {
		return nil, fmt.Errorf("begin a passkey: %w", err)
	}
	return s.challengeOptions(options, data)
}

// addPasskey adds a new passkey under the name that the person has chosen.
func (s passkeyDoor) addPasskey(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	asked, err := s.challengeOf(r)
	if err != nil {
		return nil, err
	}
	c := edge.CallOf(r)
	type newPasskey struct {
		name       string
		credential []byte
	}
	sent, err := edge.Read(r, func(o *strictjson.Object) newPasskey {
		return newPasskey{
			o.String("name", strictjson.Required), o.Value("credential", strictjson.Required).AppendJSON(nil),
		}
	})
	if err != nil {
		return nil, err
	}
	answer, err := protocol.ParseCredentialCreationResponseBytes(sent.credential)
	if err != nil {
		return nil, s.refusePasskey(r, err)
	}
	made, err := s.console.passkeys.CreateCredential(
		passkeyHolder{Membership: session.Membership{Organization: c.Session.Organization, Member: c.Session.Member}},
		asked.SessionData, answer,
	)
	if err != nil {
		return nil, s.refusePasskey(r, err)
	}
	if err := s.useChallenge(r, asked); err != nil {
		return nil, err
	}
	credential := domain.Credential{
		CredentialID: made.ID, PublicKey: made.PublicKey, Transports: []string{}, BackupEligible: made.Flags.BackupEligible,
	}
	for _, known := range transports() {
		if slices.Contains(made.Transport, known) {
			credential.Transports = append(credential.Transports, string(known))
		}
	}
	passkey, err := s.AddPasskey(r.Context(), c, strings.TrimSpace(sent.name), credential)
	if err != nil {
		return nil, err
	}
	s.console.made.forget()
	if _, err := s.Sessions.UsePasskey(
		r.Context(), passkey, int64(made.Authenticator.SignCount), s.Now(),
	); err != nil {
		return nil, err
	}
	resp := s.toScript(http.StatusOK, web.Path(edge.Language(r), web.ConsoleRoot+saying("/security", "passkey")))
	resp.Header = http.Header{"Set-Cookie": {s.consoleCookie(challengeCookie, "", 0), s.passkeyCookieFor()}}
	return resp, nil
}

// transports are the known ways to reach an authenticator. Others are not stored, since a browser may send any text.
func transports() []protocol.AuthenticatorTransport {
	return []protocol.AuthenticatorTransport{
		protocol.USB, protocol.NFC, protocol.BLE, protocol.SmartCard, protocol.Hybrid, protocol.Internal,
	}
}
