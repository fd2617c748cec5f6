package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/domain"
)

const (
	variableAPIKey  = variablePrefix + "API_KEY"
	variableBaseURL = variablePrefix + "BASE_URL"
	maxAnswer       = 8 << 20
)

// client speaks to the service: http to loopback only, no redirects, nothing repeated, everything bounded in time.
type client struct {
	base string // scheme://host[:port]
	key  string // empty for public questions, which carry none
	http *http.Client
}

func newClient(base, key string) *client {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 45 * time.Second,
		DisableKeepAlives:     true,
		ForceAttemptHTTP2:     true,
	}
	return &client{base: base, key: key, http: &http.Client{
		Transport: transport, Timeout: 60 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// clientFlags name the service. The key comes from the environment alone.
type clientFlags struct {
	url  string
	json bool
}

func (f *clientFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "url", "", "address of the service ("+variableBaseURL+"; default http://127.0.0.1:8080)")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
}

func (a *app) variable(name string) string {
	for _, entry := range a.environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// client makes an authenticated client.
func (a *app) client(f clientFlags) (*client, error) {
	base, err := a.serviceURL(f.url)
	if err != nil {
		return nil, err
	}
	key := a.variable(variableAPIKey)
	if _, _, ok := domain.ParseAPIKey(key); !ok {
		return nil, fmt.Errorf("%s: the text of an API key (ik_…) was expected in this variable", variableAPIKey)
	}
	return newClient(base, key), nil
}

// serviceURL settles the address: the flag, the variable, or this machine.
func (a *app) serviceURL(flag string) (string, error) {
	text, name := flag, "--url"
	if text == "" {
		text, name = a.variable(variableBaseURL), variableBaseURL
	}
	if text == "" {
		text = "http://127.0.0.1:8080"
	}
	base, err := parseOrigin(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if strings.HasPrefix(base, "http://") && !isLoopbackURL(base) {
		return "", fmt.Errorf("%s: https was expected; http goes to this machine only, because it would show the key to the network", name)
	}
	return base, nil
}

// apiError is an answer of the service that is not a success.
type apiError struct {
	Status     int    `json:"status"`
	Code       string `json:"code"`
	Detail     string `json:"detail"`
	RetryAfter string `json:"-"`
	Errors     []struct {
		Pointer string `json:"pointer"`
		Message string `json:"message"`
	} `json:"errors"`
	Existing *struct {
		PublicID   string `json:"publicId"`
		ReceivedAt string `json:"receivedAt"`
	} `json:"existing"`
}

func (e *apiError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d): %s", e.Code, e.Status, e.Detail)
	for _, f := range e.Errors {
		fmt.Fprintf(&b, "\n  %s %s", f.Pointer, f.Message)
	}
	if e.Existing != nil {
		fmt.Fprintf(&b, "\n  the accepted one is %s, received at %s", e.Existing.PublicID, e.Existing.ReceivedAt)
	}
	if e.RetryAfter != "" {
		fmt.Fprintf(&b, "\n  try again in %s s", e.RetryAfter)
	}
	return b.String()
}

// answered tells a refusal, which is an answer, from a service that cannot answer now.
func (e *apiError) answered() bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout
}

// refusal makes a refused request exit as a negative answer. What could not be done stays what it is.
func refusal(err error) error {
	var api *apiError
	if errors.As(err, &api) && api.answered() {
		return negative{err.Error()}
	}
	return err
}

func (c *client) get(ctx context.Context, path string, query url.Values, data any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	body, _, err := c.do(ctx, http.MethodGet, path, nil)
	return decodeData(body, data, err)
}

// post sends a document whose outcome is not known when no answer comes: nothing is repeated here.
func (c *client) post(ctx context.Context, path string, document, data any) error {
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	body, _, err := c.do(ctx, http.MethodPost, path, text)
	var api *apiError
	if err != nil && (!errors.As(err, &api) || api.Status >= 500) {
		err = fmt.Errorf("%w\n  whether it was done is not known: give the same command again; what was done already is answered as a replay", err)
	}
	return decodeData(body, data, err)
}

// decodeData takes the data member of the envelope.
func decodeData(body []byte, data any, err error) error {
	if err != nil {
		return err
	}
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil || len(envelope.Data) == 0 {
		return errors.New("the answer is not the service's: JSON with a member data was expected; is this the address of the service?")
	}
	if raw, ok := data.(*json.RawMessage); ok {
		*raw = envelope.Data
		return nil
	}
	if err := json.Unmarshal(envelope.Data, data); err != nil {
		return fmt.Errorf("the answer is of another form than this program knows: %w", err)
	}
	return nil
}

// do asks once and returns the body of a success. Its errors never hold a query, which may hold a hash.
func (c *client) do(ctx context.Context, method, path string, document []byte) (body []byte, header http.Header, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(document))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.base, err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "integrity-cli")
	if document != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return nil, nil, fmt.Errorf("the service at %s did not answer: %w", c.base, err)
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1)); err != nil {
		return nil, nil, fmt.Errorf("the answer of %s broke off: %w", c.base, err)
	}
	switch {
	case len(body) > maxAnswer:
		return nil, nil, fmt.Errorf("the answer of %s is longer than %d bytes", c.base, maxAnswer)
	case response.StatusCode >= 200 && response.StatusCode < 300:
		return body, response.Header, nil
	case response.StatusCode >= 300 && response.StatusCode < 400:
		return nil, nil, fmt.Errorf("%s redirects (%d), which is not followed: use the address that it redirects to", c.base, response.StatusCode)
	}
	var envelope struct {
		Error apiError `json:"error"`
	}
	failure := &envelope.Error
	if err := json.Unmarshal(body, &envelope); err != nil || failure.Code == "" {
		// A proxy's 404 is not the service's word on anything.
		return nil, nil, fmt.Errorf("%s answered %d without a reason", c.base, response.StatusCode)
	}
	failure.Status, failure.RetryAfter = response.StatusCode, response.Header.Get("Retry-After")
	return nil, nil, failure
}
