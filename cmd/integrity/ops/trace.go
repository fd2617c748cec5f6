package ops

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
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
	"integrityledger/eventstore/outbound"
)

// Traces makes spans and sends them away. The nil *Traces makes none, at no cost.
type Traces struct {
	provider *sdktrace.TracerProvider
}

// groupLinks is how many requests a group's span can be linked to: all of a group.
const groupLinks = 256

// OpenTraces reads OpenTelemetry's own variables. Traces go to the collector that OTEL_EXPORTER_OTLP_ENDPOINT (or
// …_TRACES_ENDPOINT) names, by OTLP over HTTP; nothing is traced where neither is set, nor with OTEL_SDK_DISABLED=true
// or OTEL_TRACES_EXPORTER=none. Another exporter or protocol is an error.
func OpenTraces(ctx context.Context, log *slog.Logger) (*Traces, error) {
	endpoint := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") + os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || exporter == "none" ||
		endpoint == "" && exporter == "" {
		return nil, nil
	}
	if exporter != "" && exporter != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER must be otlp or none, not %q", exporter)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := os.Getenv(name); protocol != "" && protocol != "http/protobuf" {
			return nil, fmt.Errorf("%s must be http/protobuf, not %q", name, protocol)
		}
	}
	bounded, err := traceClient()
	if err != nil {
		return nil, err
	}
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithHTTPClient(bounded.Client))
	if err != nil {
		return nil, fmt.Errorf("OTLP exporter: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err) }))
	return newTraces(ctx, sdktrace.WithBatcher(redacting{client}))
}

// traceClient asks the collector. A client of ours must read the variables that the exporter reads for its own.
func traceClient() (*outbound.Client, error) {
	of := func(name string) string {
		return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
	}
	c := outbound.Config{Timeout: 10 * time.Second, Proxy: true, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	if text := of("TIMEOUT"); text != "" {
		milliseconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil || milliseconds == 0 {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT must be a number of milliseconds, not %q", text)
		}
		c.Timeout = time.Duration(milliseconds) * time.Millisecond
	}
	if path := of("CERTIFICATE"); path != "" {
		var err error
		if c.TLS.RootCAs, err = keyfiles.ReadAuthorities(path); err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
	}
	if path := of("CLIENT_CERTIFICATE"); path != "" {
		own, err := tls.LoadX509KeyPair(path, of("CLIENT_KEY"))
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: %w", err)
		}
		c.TLS.Certificates = []tls.Certificate{own}
	}
	return outbound.New(c), nil
}

// newTraces makes spans for the given processor. The sampler is OTEL_TRACES_SAMPLER's.
func newTraces(ctx context.Context, processor sdktrace.TracerProviderOption) (*Traces, error) {
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "integrity")),
		resource.WithTelemetrySDK(), resource.WithFromEnv()) // the last wins: OTEL_SERVICE_NAME
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	if _, err := strconv.Atoi(os.Getenv("OTEL_SPAN_LINK_COUNT_LIMIT")); err != nil {
		limits.LinkCountLimit = groupLinks
	}
	return &Traces{
		sdktrace.NewTracerProvider(processor, sdktrace.WithResource(about), sdktrace.WithRawSpanLimits(limits)),
	}, nil
}

// Tracer makes spans; nil where nothing is traced.
func (t *Traces) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer("integrityledger")
}

// Statements traces statements, without their parameters, as spans below the span of their context. A context without a
// span, such as a worker's, makes none. Statements is nil when nothing is traced.
func (t *Traces) Statements() pgx.QueryTracer {
	if t == nil {
		return nil
	}
	return otelpgx.NewTracer(
		otelpgx.WithTracerProvider(t.provider), otelpgx.WithDisableConnectionDetailsInAttributes(),
	)
}

// Close sends what is left.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}

// redacting keeps PostgreSQL's messages, which quote references and hashes, out of
// spans: an error's SQLSTATE, an attribute, says enough.
type redacting struct{ sdktrace.SpanExporter }

// ExportSpans hands them on without events and words of errors.
func (r redacting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	clean := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		clean[i] = wordless{span}
	}
	return r.SpanExporter.ExportSpans(ctx, clean)
}

type wordless struct{ sdktrace.ReadOnlySpan }

// Spans have no events: only errors make them here.
func (wordless) Events() []sdktrace.Event { return nil }

// Status keeps the code alone.
func (s wordless) Status() sdktrace.Status {
	return sdktrace.Status{Code: s.ReadOnlySpan.Status().Code}
}
