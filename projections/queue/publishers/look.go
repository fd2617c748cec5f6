package publishers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/outbound"
)

const (
	lookTimeout  = 8 * time.Second // of a check, both ways together
	maxFile      = 4 << 10
	maxHeader    = 16 << 10
	maxFileNames = 20 // organizations in a file
)

// Answer is the answer of one way to prove a domain.
type Answer string

const (
	Proves  Answer = "proves"  // it has the organization's id
	Other   Answer = "other"   // it has the id of another organization, or another text
	Nothing Answer = "nothing" // it does not exist
	Unsure  Answer = "unsure"  // no name server has answered

	// Answers of a web server only.
	TooLong     Answer = "long"        // the file is longer than maxFile
	Failing     Answer = "failing"     // the server answers with an error, which is no word about the file
	Unreachable Answer = "unreachable" // no server has answered over https with a valid certificate
)

// Sighting is the outcome of a check.
type Sighting struct{ DNS, HTTPS Answer }

// Method returns the way in which the domain is proven, or an empty one.
func (s Sighting) Method() domain.ProofMethod {
	switch {
	case s.DNS == Proves:
		return domain.ProvenByDNS
	case s.HTTPS == Proves:
		return domain.ProvenByHTTPS
	default:
		return ""
	}
}

// denies reports whether the way of the last proof has answered, and answered no.
func (s Sighting) denies(last domain.ProofMethod) bool {
	answer := s.DNS
	if last == domain.ProvenByHTTPS {
		answer = s.HTTPS
	}
	return s.Method() == "" && (answer == Other || answer == Nothing || answer == TooLong)
}

// newClient returns the HTTP client for the files of domains.
func newClient(c Config) *outbound.Client {
	return outbound.New(outbound.Config{
		Timeout: lookTimeout, Connect: lookTimeout / 2, Header: maxHeader, Answer: maxFile, Plain: true,
		Allows: c.Allows, Resolver: c.Resolver, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.RootCAs},
	})
}

// NewResolver returns a resolver that asks the server at an address, host:port, or the system's servers if it is empty.
func NewResolver(address string) *net.Resolver {
	r := &net.Resolver{PreferGo: true} // whose errors tell an answer from none
	if address != "" {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		}
	}
	return r
}

// Look looks for the organization's id in both ways at once.
func (c *Checker) Look(ctx context.Context, name string, o domain.OrganizationID) (s Sighting) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	file := make(chan Answer, 1)
	go func() { file <- c.lookAtFile(ctx, name, o) }()
	s.DNS = c.lookAtDNS(ctx, name, o)
	s.HTTPS = <-file
	return s
}

// lookAtDNS asks for the TXT records. The dot at the end keeps the resolver from adding domains of its own.
func (c *Checker) lookAtDNS(ctx context.Context, name string, o domain.OrganizationID) Answer {
	records, err := c.Resolver.LookupTXT(ctx, domain.PublisherHost+"."+name+".")
	if failed, ok := errors.AsType[*net.DNSError](err); err != nil && (!ok || !failed.IsNotFound) {
		return Unsure
	}
	switch {
	case slices.ContainsFunc(records, func(text string) bool {
		return strings.TrimSpace(text) == domain.PublisherToken+o.String()
	}):
		return Proves
	case len(records) > 0:
		return Other
	default:
		return Nothing
	}
}

// knowsTop reports whether the resolver knows the name servers of a domain's last label. The root of the DNS delegates
// each one, so that a resolver which does not know them knows nothing.
func (c *Checker) knowsTop(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	servers, err := c.Resolver.LookupNS(ctx, name[strings.LastIndexByte(name, '.')+1:]+".")
	return err == nil && len(servers) > 0
}

// publisherFile is the content of domain.PublisherFile. Several organizations may share a domain.
type publisherFile struct {
	Organizations []string `json:"organizations"`
}

// lookAtFile reads the file. The dot at the end of the dialled name keeps the resolver from adding domains of its own;
// neither the header Host nor the name in TLS has it.
func (c *Checker) lookAtFile(ctx context.Context, name string, o domain.OrganizationID) Answer {
	port := ""
	if c.Port != "" {
		port = ":" + c.Port
	}
	r, err := http.NewRequestWithContext(
		ctx, http.MethodGet, "https://"+name+"."+port+domain.PublisherFile, nil,
	)
	if err != nil {
		return Unreachable
	}
	r.Host = name + port
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "integrity-ledger-publisher/1")
	answer, err := c.client.Do(r)
	if err != nil {
		return Unreachable
	}
	defer answer.Body.Close()
	switch status := answer.StatusCode; {
	case status == http.StatusOK:
	case status == http.StatusNotFound, status == http.StatusGone, status < http.StatusBadRequest:
		return Nothing
	default: // its owner has not removed the file
		return Failing
	}
	body, err := io.ReadAll(answer.Body)
	var file publisherFile
	switch {
	case errors.Is(err, outbound.ErrTooLong):
		return TooLong
	case err != nil:
		return Unreachable
	case json.Unmarshal(body, &file) != nil || len(file.Organizations) > maxFileNames ||
		!slices.Contains(file.Organizations, o.String()):
		return Other
	}
	return Proves
}
