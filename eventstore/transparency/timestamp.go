package transparency

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"encoding/asn1"
	"encoding/binary"
	"io"
	"math/big"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/digitorus/timestamp"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
)

const (
	// MaxAuthorities is the maximum number of time-stamping authorities.
	MaxAuthorities = 4

	maxStampAnswer = 64 << 10
	// maxStampApart is the largest difference between the time of a new token and this process's clock.
	maxStampApart = time.Minute

	queryType = "application/timestamp-query"
	replyType = "application/timestamp-reply"
)

// TimestampAuthority is a server that stamps checkpoints (RFC 3161). Its certificates are pinned elsewhere, under its
// name.
type TimestampAuthority struct {
	name, address string
	client        *outbound.Client
	stored        atomic.Int64 // tokens
	failures      atomic.Int64

	// Owned by the goroutine that asks it.
	failed   int   // consecutive failures
	newest   int64 // tree size of its newest token at the last check
	left     int   // consecutive checks at which a due token was left to another process
	unpinned bool  // no certificate is pinned, and this was logged
}

// NewTimestampAuthority returns an authority with its name in the trusted-keys file and its address: https, or http to
// this machine.
func NewTimestampAuthority(name, address string) (*TimestampAuthority, error) {
	if err := evidence.CheckAuthorityName(name); err != nil {
		return nil, err
	}
	if err := checkPeer(name, address); err != nil {
		return nil, err
	}
	return &TimestampAuthority{name: name, address: address, client: newPeerClient(maxStampAnswer)}, nil
}

// ParseTimestampAuthorities reads authorities, one per line or separated by commas: a name, a space, an address. Lines
// that begin with # are comments. There may be at most MaxAuthorities.
func ParseTimestampAuthorities(text string) (authorities []*TimestampAuthority, err error) {
	err = readPeers(text, "a name", func(name, address string) (string, error) {
		a, err := NewTimestampAuthority(name, address)
		if err != nil {
			return "", err
		}
		if authorities = append(authorities, a); len(authorities) > MaxAuthorities {
			return "", say.Errorf("there must be at most %d authorities", MaxAuthorities)
		}
		return name, nil
	})
	return authorities, err
}

// Name returns the name under which its certificates are pinned.
func (a *TimestampAuthority) Name() string { return a.name }

// Stored returns the number of tokens that this process has stored, and Failures the number of attempts that gave no
// valid token.
func (a *TimestampAuthority) Stored() int64   { return a.stored.Load() }
func (a *TimestampAuthority) Failures() int64 { return a.failures.Load() }

// Stamp requests a token of a SHA-256 and returns it only if it is valid: it must have the imprint and the nonce of the
// request, be signed under a pinned certificate, and differ from now by at most a minute. Limits are 10 s and 64 KiB.
func (a *TimestampAuthority) Stamp(
	ctx context.Context, pinned evidence.Authority, imprint [32]byte, now func() time.Time,
) (der []byte, token evidence.Token, err error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
	nonce := new(big.Int).SetUint64(binary.BigEndian.Uint64(random[:]))
	query, err := (&timestamp.Request{
		HashAlgorithm: crypto.SHA256, HashedMessage: imprint[:], Certificates: true, Nonce: nonce,
	}).Marshal()
	if err != nil {
		return nil, token, say.Errorf("make a time-stamp request: %w", err)
	}
	reply, err := a.post(ctx, query)
	if err != nil {
		return nil, token, err
	}
	if der, err = tokenOf(reply); err != nil {
		return nil, token, err
	}
	if token, err = pinned.CheckToken(der, imprint); err != nil {
		return nil, token, err
	}
	if token.Nonce == nil || token.Nonce.Cmp(nonce) != 0 {
		return nil, token, say.New("the nonce of its token differs from the request's")
	}
	if apart := token.GenTime.Sub(now()); apart.Abs() > maxStampApart {
		return nil, token, say.Errorf(
			"the time of its token is %s from this machine's clock: one of the two is wrong", apart.Round(time.Second),
		)
	}
	return der, token, nil
}

// post sends a TimeStampReq and returns the body of the response (RFC 3161, section 3.4).
func (a *TimestampAuthority) post(ctx context.Context, query []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.address, bytes.NewReader(query))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", queryType)
	request.Header.Set("Accept", replyType)
	request.Header.Set("User-Agent", "integrity-ledger")
	answer, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusCreated {
		return nil, say.Errorf("it answers %d", answer.StatusCode)
	}
	if kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type")); err != nil || kind != replyType {
		return nil, say.Errorf("the type of its answer must be %s", replyType)
	}
	return io.ReadAll(answer.Body)
}

// timeStampResp is the TimeStampResp of RFC 3161, section 2.4.2.
type timeStampResp struct {
	Status struct {
		Status  int
		Text    []asn1.RawValue `asn1:"optional"` // untrusted text, not repeated
		Failure asn1.BitString  `asn1:"optional"`
	}
	Token asn1.RawValue `asn1:"optional"`
}

// tokenOf returns the TimeStampToken of a TimeStampResp, unchecked.
func tokenOf(reply []byte) ([]byte, error) {
	var r timeStampResp
	if rest, err := asn1.Unmarshal(reply, &r); err != nil || len(rest) > 0 {
		return nil, say.New("its answer is not a TimeStampResp (RFC 3161)")
	}
	if status := timestamp.Status(r.Status.Status); status != timestamp.Granted && status != timestamp.GrantedWithMods {
		failure := timestamp.UnknownFailureInfo
		for bit := range r.Status.Failure.BitLength {
			if r.Status.Failure.At(bit) != 0 {
				failure = timestamp.FailureInfo(bit)
				break
			}
		}
		return nil, say.Errorf("%s: %s", status, failure)
	}
	if len(r.Token.FullBytes) == 0 {
		return nil, say.New("it grants a token but sends none")
	}
	return r.Token.FullBytes, nil
}
