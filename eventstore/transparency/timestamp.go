package transparency

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/digitorus/timestamp"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/outbound"
)

const (
	// MostAuthorities is how many time-stamping authorities may be asked.
	MostAuthorities = 4

	mostStampAnswer = 64 << 10
	// mostStampApart is how far the time of a fresh token may be from this process's clock.
	mostStampApart = time.Minute

	queryType = "application/timestamp-query"
	replyType = "application/timestamp-reply"
)

// TimestampAuthority is a server that stamps checkpoints (RFC 3161). What its tokens must lead to is pinned elsewhere,
// under its name.
type TimestampAuthority struct {
	name, address string
	client        *outbound.Client
	stored        atomic.Int64 // tokens
	failures      atomic.Int64

	// Of the one goroutine that asks it.
	failed   int   // in a row
	newest   int64 // size of the tree of its newest token at the last look
	left     int   // looks in a row at which a token was due and left to another process
	unpinned bool  // and this was said
}

// NewTimestampAuthority takes the name that the trusted-keys file gives an authority, and its address: https, or http
// to this machine.
func NewTimestampAuthority(name, address string) (*TimestampAuthority, error) {
	if err := evidence.CheckAuthorityName(name); err != nil {
		return nil, err
	}
	if err := checkPeer(name, address); err != nil {
		return nil, err
	}
	return &TimestampAuthority{name: name, address: address, client: newPeerClient(mostStampAnswer)}, nil
}

// ParseTimestampAuthorities reads an authority a line, or between commas: its name, a space, its address. Lines that
// begin with # are comments. There may be MostAuthorities.
func ParseTimestampAuthorities(text string) (authorities []*TimestampAuthority, err error) {
	err = readPeers(text, "a name", func(name, address string) (string, error) {
		a, err := NewTimestampAuthority(name, address)
		if err != nil {
			return "", err
		}
		if authorities = append(authorities, a); len(authorities) > MostAuthorities {
			return "", fmt.Errorf("there must be at most %d authorities", MostAuthorities)
		}
		return name, nil
	})
	return authorities, err
}

// Name is the one under which its certificates are pinned.
func (a *TimestampAuthority) Name() string { return a.name }

// Stored and Failures count the tokens that this process has stored, and the times that it got none which it could
// store.
func (a *TimestampAuthority) Stored() int64   { return a.stored.Load() }
func (a *TimestampAuthority) Failures() int64 { return a.failures.Load() }

// Stamp asks for a token of a SHA-256, and answers only one that is right: that of the imprint, with the nonce that was
// sent, under a pinned certificate, and at most a minute from now. It takes 10 s and 64 KiB at most.
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
		return nil, token, fmt.Errorf("make a time-stamp request: %w", err)
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
		return nil, token, errors.New("the nonce of its token is not the one that was sent")
	}
	if apart := token.GenTime.Sub(now()); apart.Abs() > mostStampApart {
		return nil, token, fmt.Errorf(
			"the time of its token is %s from this machine's clock: one of the two is wrong", apart.Round(time.Second),
		)
	}
	return der, token, nil
}

// post sends a TimeStampReq and answers the body of what came (RFC 3161, section 3.4).
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
		return nil, fmt.Errorf("it answers %d", answer.StatusCode)
	}
	if kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type")); err != nil || kind != replyType {
		return nil, errors.New("the type of its answer must be " + replyType)
	}
	return io.ReadAll(answer.Body)
}

// timeStampResp is that of RFC 3161, section 2.4.2.
type timeStampResp struct {
	Status struct {
		Status  int
		Text    []asn1.RawValue `asn1:"optional"` // a stranger's words, which are not repeated
		Failure asn1.BitString  `asn1:"optional"`
	}
	Token asn1.RawValue `asn1:"optional"`
}

// tokenOf is the TimeStampToken of a TimeStampResp, not judged in any way.
func tokenOf(reply []byte) ([]byte, error) {
	var r timeStampResp
	if rest, err := asn1.Unmarshal(reply, &r); err != nil || len(rest) > 0 {
		return nil, errors.New("its answer is no TimeStampResp (RFC 3161)")
	}
	if status := timestamp.Status(r.Status.Status); status != timestamp.Granted && status != timestamp.GrantedWithMods {
		failure := timestamp.UnknownFailureInfo
		for bit := range r.Status.Failure.BitLength {
			if r.Status.Failure.At(bit) != 0 {
				failure = timestamp.FailureInfo(bit)
				break
			}
		}
		return nil, fmt.Errorf("%s: %s", status, failure)
	}
	if len(r.Token.FullBytes) == 0 {
		return nil, errors.New("it grants a token, and sends none")
	}
	return r.Token.FullBytes, nil
}
