package ops

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
)

// Traces creates and exports spans. A nil *Traces creates none, at no cost.
type Traces struct {
	provider *sdktrace.TracerProvider
}

// groupLinks is the number of requests that a group's span can link to: all requests of a group.
const groupLinks = 256

// OpenTraces configures tracing from OpenTelemetry's standard variables. Traces go to the collector in
// OTEL_EXPORTER_OTLP_ENDPOINT (or …_TRACES_ENDPOINT) by OTLP over HTTP. Tracing is off if neither is set, with
// OTEL_SDK_DISABLED=true, or with OTEL_TRACES_EXPORTER=none. Another exporter or protocol is an error.
func OpenTraces(ctx context.Context, log *slog.Logger) (*Traces, error) {
	endpoint := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") + os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || exporter == "none" ||
		endpoint == "" && exporter == "" {
		return nil, nil
	}
	if exporter != "" && exporter != "otlp" {
		return nil, say.Errorf("OTEL_TRACES_EXPORTER must be otlp or none, not %q", exporter)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := os.Getenv(name); protocol != "" && protocol != "http/protobuf" {
			return nil, say.Errorf("%s must be http/protobuf, not %q", name, protocol)
		}
	}
	bounded, err := traceClient()
	if err != nil {
		return nil, err
	}
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithHTTPClient(bounded.Client))
	if err != nil {
		return nil, say.Errorf("OTLP exporter: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err) }))
	return newTraces(ctx, sdktrace.WithBatcher(redacting{client}))
}

// traceClient returns the client for the collector. The exporter ignores its own variables when given a client, so they
// are read here.
func traceClient() (*outbound.Client, error) {
	of := func(name string) string {
		return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
	}
	c := outbound.Config{Timeout: 10 * time.Second, Proxy: true, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	if text := of("TIMEOUT"); text != "" {
		milliseconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil || milliseconds == 0 {
			return nil, say.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT must be a number of milliseconds, not %q", text)
		}
		c.Timeout = time.Duration(milliseconds) * time.Millisecond
	}
	if path := of("CERTIFICATE"); path != "" {
		var err error
		if c.TLS.RootCAs, err = keyfiles.ReadAuthorities(path); err != nil {
			return nil, say.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
	}
	if path := of("CLIENT_CERTIFICATE"); path != "" {
		own, err := tls.LoadX509KeyPair(path, of("CLIENT_KEY"))
		if err != nil {
			return nil, say.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: %w", err)
		}
		c.TLS.Certificates = []tls.Certificate{own}
	}
	return outbound.New(c), nil
}

// newTraces creates traces with the given span processor. OTEL_TRACES_SAMPLER sets the sampler.
func newTraces(ctx context.Context, processor sdktrace.TracerProviderOption) (*Traces, error) {
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "integrity")),
		resource.WithTelemetrySDK(), resource.WithFromEnv()) // the last one wins: OTEL_SERVICE_NAME
	if err != nil {
		return nil, say.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	if _, err := strconv.Atoi(os.Getenv("OTEL_SPAN_LINK_COUNT_LIMIT")); err != nil {
		limits.LinkCountLimit = groupLinks
	}
	return &Traces{
		sdktrace.NewTracerProvider(processor, sdktrace.WithResource(about), sdktrace.WithRawSpanLimits(limits)),
	}, nil
}

// Tracer returns the tracer, or nil if tracing is off.
func (t *Traces) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer("integrityledger")
}

// Statements traces SQL statements, without their parameters, as child spans of the context's span. A context without a
// span, such as a worker's, gets none. Statements returns nil if tracing is off.
func (t *Traces) Statements() pgx.QueryTracer {
	if t == nil {
		return nil
	}
	return otelpgx.NewTracer(
		otelpgx.WithTracerProvider(t.provider), otelpgx.WithDisableConnectionDetailsInAttributes(),
	)
}

// Close exports the remaining spans.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return say.Errorf("send the last traces: %w", err)
	}
	return nil
}

// redacting removes PostgreSQL's messages from spans, because they quote references and hashes. The error's SQLSTATE
// remains as an attribute.
type redacting struct{ sdktrace.SpanExporter }

// ExportSpans exports spans without events and error texts.
func (r redacting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	clean := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		clean[i] = wordless{span}
	}
	return r.SpanExporter.ExportSpans(ctx, clean)
}

type wordless struct{ sdktrace.ReadOnlySpan }

// Events returns none: only errors create events here.
func (wordless) Events() []sdktrace.Event { return nil }

// Status keeps only the code.
func (s wordless) Status() sdktrace.Status {
	return sdktrace.Status{Code: s.ReadOnlySpan.Status().Code}
}
