package ops

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"integrityledger/eventstore/outbound"
	"integrityledger/eventstore/outbound/peertest"
)

// TestSpansOmitErrorTexts: PostgreSQL's error texts, which may quote data, never leave the process.
func TestSpansOmitErrorTexts(t *testing.T) {
	ctx := context.Background()
	kept := tracetest.NewInMemoryExporter()
	traces, err := newTraces(ctx, sdktrace.WithSyncer(redacting{kept}))
	if err != nil {
		t.Fatal(err)
	}
	_, span := traces.Tracer().Start(ctx, "INSERT")
	fault := errors.New(`duplicate key: document "secret-reference"`)
	span.RecordError(fault)
	span.SetStatus(codes.Error, fault.Error())
	span.End()
	spans := kept.GetSpans()
	if len(spans) != 1 || spans[0].Status != (sdktrace.Status{Code: codes.Error}) || len(spans[0].Events) != 0 {
		t.Errorf("spans %+v", spans)
	}
	links := make([]trace.Link, groupLinks)
	for i := range links {
		links[i].SpanContext = trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{byte(i), 1},
		})
	}
	_, span = traces.Tracer().Start(ctx, "group", trace.WithLinks(links...))
	span.End()
	if spans := kept.GetSpans(); len(spans[1].Links) != groupLinks {
		t.Errorf("of %d links %d are left", groupLinks, len(spans[1].Links))
	}
}

func TestTracesConfiguration(t *testing.T) {
	collector := func(name, value string) map[string]string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", name: value}
	}
	for _, c := range []struct {
		env  map[string]string
		on   bool
		says string
	}{
		{env: nil},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, on: true},
		{
			env: map[string]string{
				"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces", "OTEL_TRACES_EXPORTER": "otlp",
			},
			on: true,
		},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, says: "OTEL_TRACES_EXPORTER"},
		{
			env:  map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			says: "OTEL_EXPORTER_OTLP_PROTOCOL",
		},
		{env: collector("OTEL_EXPORTER_OTLP_TIMEOUT", "1000"), on: true},
		{env: collector("OTEL_EXPORTER_OTLP_TIMEOUT", "1s"), says: "OTEL_EXPORTER_OTLP_TIMEOUT"},
		{env: collector("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere"), says: "OTEL_EXPORTER_OTLP_CERTIFICATE"},
		{env: collector("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/nowhere"), says: "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"},
	} {
		t.Run("", func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			traces, err := OpenTraces(context.Background(), slog.New(slog.DiscardHandler))
			if (traces != nil) != c.on || (err != nil) != (c.says != "") ||
				err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: %v, %v", c.env, traces, err)
			}
			if traces.Tracer() != nil != c.on {
				t.Error("want a tracer exactly where there are traces")
			}
			if err := traces.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHostileCollector: a collector that switches protocols does not delay the end of a process.
func TestHostileCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", peertest.Serve(t, peertest.Switching))
	var log bytes.Buffer
	traces, err := OpenTraces(context.Background(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, span := traces.Tracer().Start(context.Background(), "request")
	span.End()
	err = traces.Close(context.Background())
	if err != nil || !strings.Contains(log.String(), outbound.ErrSwitched.Error()) {
		t.Errorf("%v: %s", err, log.String())
	}
}
