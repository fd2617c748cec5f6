package judges

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"integrityledger/cmd/integrity/integritytest"
)

// otlpReceiver keeps the spans that it receives.
type otlpReceiver struct {
	mu    sync.Mutex
	spans []*tracepb.Span
	text  strings.Builder // everything received, including resources
}

func (o *otlpReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var export collector.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, &export)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.WriteString(prototext.Format(&export))
	for _, resource := range export.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			o.spans = append(o.spans, scope.GetSpans()...)
		}
	}
	answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

// TestTraces: a collector gets the spans of a traced request, its transaction and the transaction's statements, under
// the caller's trace. They reveal nothing that was registered.
func TestTraces(t *testing.T) {
	t.Parallel()
	received := &otlpReceiver{}
	collecting := httptest.NewServer(received)
	defer collecting.Close()
	s := serve(
		t, "OTEL_EXPORTER_OTLP_ENDPOINT="+collecting.URL, "OTEL_BSP_SCHEDULE_DELAY=100",
		"OTEL_SERVICE_NAME=ledger-of-the-test",
	)
	const traceID, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	client := &http.Client{Transport: traced{"00-" + traceID + "-" + caller + "-01"}}
	d := s.declaration("reference-of-the-test")
	declared, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	const records = "/api/v1/integrity/records"
	if status := s.ask(
		t, client, http.MethodPost, records, s.Keys.Worker, string(declared),
	); status != http.StatusCreated {
		t.Fatalf("registration: %d", status)
	}
	if status := s.ask(
		t, client, http.MethodGet, records+"?sha256="+d.SHA256, s.Keys.Worker, "",
	); status != http.StatusOK {
		t.Fatalf("search: %d", status)
	}
	integritytest.Eventually(t, "the spans have arrived", func() error { return received.tells(traceID, caller) })
	if !strings.Contains(s.logged(t), "traceId="+traceID) {
		t.Error("the log does not name the trace")
	}
	record, err := s.worker.Register(t.Context(), d) // again, as a replay
	if err != nil {
		t.Fatal(err)
	}
	received.mu.Lock()
	defer received.mu.Unlock()
	text := received.text.String()
	for _, secret := range []string{
		d.SHA256, d.DocumentReference, d.Source, record.PublicID, s.CompanyReference, s.Keys.Worker,
		"tracestate-of-the-test", "sha256=",
	} {
		if strings.Contains(text, secret) {
			t.Errorf("a span tells %q", secret)
		}
	}
	if !strings.Contains(text, "ledger-of-the-test") {
		t.Error("OTEL_SERVICE_NAME has no effect")
	}
}

// traced sends a tracing caller's headers.
type traced struct{ parent string }

func (c traced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", c.parent)
	r.Header.Set("Tracestate", "vendor=tracestate-of-the-test")
	return http.DefaultTransport.RoundTrip(r)
}

// tells looks for the spans request → transaction → statement.
func (o *otlpReceiver) tells(traceID, caller string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	find := func(name, parent string) *tracepb.Span {
		for _, span := range o.spans {
			if fmt.Sprintf("%x", span.GetTraceId()) == traceID && fmt.Sprintf("%x", span.GetParentSpanId()) == parent &&
				strings.HasPrefix(span.GetName(), name) {
				return span
			}
		}
		return nil
	}
	request := find("POST /api/v1/integrity/records", caller)
	if request == nil {
		return fmt.Errorf("no span of the request among %d", len(o.spans))
	}
	id := fmt.Sprintf("%x", request.GetSpanId())
	group := find("group", id)
	if group == nil {
		return errors.New("no span of the transaction in the trace of the request")
	}
	if links := group.GetLinks(); len(links) != 1 || fmt.Sprintf("%x", links[0].GetSpanId()) != id {
		return fmt.Errorf("the transaction is not linked to its request: %v", links)
	}
	// Two batches of several statements each.
	if batch := find("", fmt.Sprintf("%x", group.GetSpanId())); batch == nil {
		return errors.New("no span of a statement in the transaction")
	}
	if search := find("GET /api/v1/integrity/records", caller); search == nil ||
		find("", fmt.Sprintf("%x", search.GetSpanId())) == nil {
		return errors.New("no span of a read with its statement")
	}
	return nil
}
