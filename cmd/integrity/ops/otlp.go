package ops

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"integrityledger/eventstore/outbound"
)

// traceCollector sends spans by OTLP over HTTP, section "OTLP/HTTP" of the OpenTelemetry protocol 1.9. The library's own
// client, otlptracehttp, links grpc.
type traceCollector struct {
	client  *outbound.Client
	address string
	headers map[string]string
	packed  bool
	pause   time.Duration // before the second attempt; each later one waits longer
}

// collectorVariable returns a variable of OpenTelemetry; the one for traces alone wins.
func collectorVariable(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// newCollector reads OpenTelemetry's variables.
func newCollector() (*traceCollector, error) {
	client, err := traceClient()
	if err != nil {
		return nil, err
	}
	c := &traceCollector{client: client, packed: collectorVariable("COMPRESSION") == "gzip", headers: make(map[string]string), pause: 5 * time.Second}
	text := collectorVariable("ENDPOINT")
	u, err := url.Parse(cmp.Or(text, "http://localhost:4318"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT must be http:// or https:// with a host, not %q", text)
	}
	if os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		u = u.JoinPath("v1/traces")
	}
	c.address = u.String()
	for pair := range strings.SplitSeq(collectorVariable("HEADERS"), ",") {
		name, escaped, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(escaped)
		if name = strings.TrimSpace(name); found && name != "" && err == nil {
			c.headers[name] = strings.TrimSpace(value)
		} else if strings.TrimSpace(pair) != "" {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS must be name=value, separated by commas, with escaped values")
		}
	}
	return c, nil
}

// Start implements otlptrace.Client.
func (*traceCollector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client. The processor has no upload under way when it calls it.
func (*traceCollector) Stop(context.Context) error { return nil }

// UploadTraces implements otlptrace.Client. For a minute it tries again whatever may pass.
func (c *traceCollector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // encoded like ExportTraceServiceRequest
	if err != nil {
		return err
	}
	if c.packed {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err = w.Write(body)
		if err = errors.Join(err, w.Close()); err != nil {
			return err
		}
		body = packed.Bytes()
	}
	for pause := c.pause; ; pause = min(pause*3/2, 30*time.Second) {
		again, after, err := c.send(ctx, body)
		if !again || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(max(after, pause/2+rand.N(pause))): //nolint:gosec // spreads load; guessing it gains nothing
		case <-ctx.Done():
			return err
		}
	}
}

// send tells with an error whether the same request may succeed later, and after how long at the earliest.
func (c *traceCollector) send(ctx context.Context, body []byte) (again bool, after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address, bytes.NewReader(body))
	if err != nil {
		return false, 0, err
	}
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	if c.packed {
		r.Header.Set("Content-Encoding", "gzip")
	}
	answer, err := c.client.Do(r)
	if err != nil {
		passes := (*url.Error)(nil)
		return errors.As(err, &passes) && passes.Temporary(), 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return false, 0, err
	}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		if len(text) > 2 && answer.Header.Get("Content-Type") == "application/x-protobuf" { // an ExportTraceServiceResponse with words
			err = fmt.Errorf("OTLP partial success: %q", text)
		}
		return false, 0, err
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31); err == nil {
			after = time.Duration(seconds) * time.Second
		}
		again = true
	}
	return again, after, fmt.Errorf("failed to send to %s: %s (body: %s)", c.address, answer.Status, cmp.Or(strings.TrimSpace(string(text)), "(empty)"))
}
