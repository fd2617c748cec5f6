package ops

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	otlppb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A batch arrives once the collector takes it; what it refuses, wholly or in part, is an error.
func TestTraceCollector(t *testing.T) {
	spans := []*tracepb.ResourceSpans{{SchemaUrl: "schema"}}
	refused, err := proto.Marshal(&otlppb.ExportTraceServiceResponse{PartialSuccess: &otlppb.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "too old"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		variables map[string]string // of OTEL_EXPORTER_OTLP_, with the collector's address after ENDPOINT
		answers   []int
		body      string
		path      string
		says      string
	}{
		"taken":      {map[string]string{"ENDPOINT": "/base/"}, []int{200}, "\x0a\x00", "/base/v1/traces", ""},
		"own path":   {map[string]string{"TRACES_ENDPOINT": "/own"}, []int{202}, "", "/own", ""},
		"packed":     {map[string]string{"ENDPOINT": "", "COMPRESSION": "gzip"}, []int{204}, "", "/v1/traces", ""},
		"busy":       {map[string]string{"ENDPOINT": ""}, []int{429, 502, 503, 504, 200}, "", "/v1/traces", ""},
		"refused":    {map[string]string{"ENDPOINT": ""}, []int{403}, "who?", "/v1/traces", "who?"},
		"in part":    {map[string]string{"ENDPOINT": ""}, []int{200}, string(refused), "/v1/traces", "too old"},
		"redirected": {map[string]string{"ENDPOINT": ""}, []int{301}, "", "/v1/traces", "301"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				content := io.Reader(r.Body)
				if r.Header.Get("Content-Encoding") == "gzip" {
					content, err = gzip.NewReader(r.Body)
				}
				text, readErr := io.ReadAll(content)
				var got otlppb.ExportTraceServiceRequest
				if err != nil || readErr != nil || proto.Unmarshal(text, &got) != nil || len(got.GetResourceSpans()) != 1 || got.GetResourceSpans()[0].GetSchemaUrl() != "schema" {
					t.Errorf("%v %v: %v", err, readErr, &got)
				}
				if r.URL.Path != c.path || r.Header.Get("X-Key") != "a b" || r.Header.Get("Content-Type") != "application/x-protobuf" ||
					r.Header.Get("Content-Encoding") != c.variables["COMPRESSION"] {
					t.Errorf("%s %v", r.URL, r.Header)
				}
				w.Header().Set("Content-Type", "application/x-protobuf")
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(c.answers[asked-1])
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b")
			for name, value := range c.variables {
				if strings.HasSuffix(name, "ENDPOINT") {
					value = server.URL + value
				}
				t.Setenv("OTEL_EXPORTER_OTLP_"+name, value)
			}
			client, err := newCollector()
			if err != nil {
				t.Fatal(err)
			}
			client.pause = time.Millisecond
			err = client.UploadTraces(t.Context(), spans)
			if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) || asked != len(c.answers) {
				t.Errorf("asked %d times: %v", asked, err)
			}
		})
	}
	t.Run("down", func(t *testing.T) {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		client, err := newCollector()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := client.UploadTraces(ctx, spans); err == nil {
			t.Error("a collector that is down has taken spans")
		}
	})
}
