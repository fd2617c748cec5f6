// Package sshagent signs with Ed25519 keys that an ssh-agent keeps, or another program that speaks its protocol
// (draft-ietf-sshm-ssh-agent). An agent's ssh-ed25519 signature is a plain Ed25519 signature, so what it signs looks as
// if the key were in this process. The private key never is.
package sshagent

import (
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// Address names a key of an agent, and never the key itself.
type Address struct {
	Socket      string // absolute path of the agent's Unix socket
	Fingerprint string // of the key's public half, as ssh-add -l prints it: SHA256: and 43 characters of base64
}

const scheme = "agent:"

// IsAddress reports whether the text of a setting or of a key file is meant to be an address. Otherwise it is a key.
func IsAddress(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), scheme) }

var fingerprintPattern = regexp.MustCompile(`\ASHA256:[A-Za-z0-9+/]{43}\z`)

// Parse reads an address: agent:///path/of/socket?key=SHA256:… White space around it is ignored. A plus sign in the
// fingerprint is a plus sign, not a space as in a form, so that what ssh-add prints can be pasted.
func Parse(text string) (Address, error) {
	form := func(fault say.Sentence) (Address, error) {
		return Address{}, say.Errorf("a key in an agent is named agent:///run/signer.sock?key=SHA256:…: %s", fault)
	}
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Scheme+":" != scheme {
		return form(say.Sentencef("this is not such a URL"))
	}
	if u.Host != "" || u.User != nil || u.Opaque != "" || !filepath.IsAbs(u.Path) || strings.Contains(u.Path, "\x00") {
		return form(say.Sentencef("the path of the socket must be absolute, after three slashes"))
	}
	key, found := strings.CutPrefix(u.RawQuery, "key=")
	if key, err = url.PathUnescape(key); err != nil || !found || u.Fragment != "" || !fingerprintPattern.MatchString(key) {
		return form(say.Sentencef("key must be the fingerprint that ssh-add -l prints, and the only parameter"))
	}
	return Address{filepath.Clean(u.Path), key}, nil
}

// String returns the address in the form that Parse reads.
func (a Address) String() string {
	return (&url.URL{Scheme: "agent", Path: a.Socket, RawQuery: "key=" + a.Fingerprint}).String()
}

// Fingerprint returns the name of a key as OpenSSH prints it.
func Fingerprint(key evidence.PublicKey) string { return ssh.FingerprintSHA256(publicKey(key)) }

func publicKey(key evidence.PublicKey) ssh.PublicKey {
	public, err := ssh.NewPublicKey(key.Ed25519())
	if err != nil {
		panic(err) // cannot happen: an evidence.PublicKey has 32 bytes
	}
	return public
}
