package handlers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"integrityledger/domain"
	"integrityledger/domain/strictjson/jsontest"
	"integrityledger/handlers"
	"integrityledger/handlers/edge"
)

// stepsPerByte bounds the work of reading a body: a message of MCP is read twice, once as a message and once as the
// arguments of its tool. fixedSteps is the work of reporting 100 problems, however short the body is.
const (
	stepsPerByte = 32
	fixedSteps   = 50_000
)

// place is a position in a body for shapes of JSON.
type place struct {
	begin, end string
	members    []string // of the object at this place
	most       int      // size of the body in bytes; 0 means as large as the endpoint accepts
}

// jsonEntry is an endpoint or tool that reads JSON from callers.
type jsonEntry struct {
	method, path, media string
	size                int // largest size of the body, or of the part metadata
	places              []place
}

func (e jsonEntry) name() string { return e.method + " " + e.path + " " + e.media }

// nested is the size of shapes at deeper places of a body. Only the body itself is tested at its largest size.
const nested = 32 << 10

// members returns the names of an object's members. For alternatives it returns the members of all of them.
func members(schema *openapi3.Schema) []string {
	names := slices.Collect(maps.Keys(schema.Properties))
	for _, one := range schema.OneOf {
		names = append(names, members(one.Value)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// jsonEntries returns all operations that the OpenAPI documents describe with a JSON body, and the tools of both MCP
// endpoints.
func jsonEntries(t *testing.T, s *service) []jsonEntry {
	t.Helper()
	p, err := published()
	check(t, err)
	var list []jsonEntry
	for path, item := range p.document.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.RequestBody == nil {
				continue
			}
			for media, content := range operation.RequestBody.Value.Content {
				e := jsonEntry{method: method, path: path, media: media, size: 8 << 10}
				switch schema := content.Schema.Value; media {
				case "multipart/form-data":
					e.places = []place{{members: members(schema.Properties["metadata"].Value)}}
				case "application/json":
					e.places = []place{{members: members(schema)}}
				default:
					t.Errorf("%s: a body of another kind", e.name())
				}
				list = append(list, e)
			}
		}
	}
	for _, path := range []string{ordinaryMCP, integrityMCP} {
		e := jsonEntry{method: http.MethodPost, path: path, size: 64 << 10, places: []place{
			{members: []string{"id", "method"}}, {begin: "[", end: "]"},
			{begin: strings.TrimSuffix(request("tools/call", ""), "}"), end: "}", members: []string{"name"}},
		}}
		var result struct {
			Tools []struct {
				Name        string
				InputSchema struct{ Properties map[string]any }
			}
		}
		check(
			t, json.Unmarshal(s.rpc(path, s.org.Secret, request("tools/list", "{}")).message(http.StatusOK).Result, &result),
		)
		if len(result.Tools) < 4 {
			t.Errorf("%s: only %d tools", path, len(result.Tools))
		}
		for _, tool := range result.Tools {
			call := request("tools/call", `{"name":"`+tool.Name+`","arguments":`)
			e.places = append(
				e.places,
				place{strings.TrimSuffix(call, "}"), "}}", slices.Sorted(maps.Keys(tool.InputSchema.Properties)), nested},
			)
		}
		list = append(list, e)
	}
	declaration := members(p.document.Components.Schemas["Declaration"].Value)
	file := place{`{"files":[`, `]}`, []string{"path", "size", "sha256"}, 0}
	for i := range list {
		switch e := &list[i]; {
		case e.path == integrity+"/records/batch":
			e.size = 4 << 20
			e.places = append(e.places, place{`{"declarations":[`, `]}`, declaration, nested})
		case e.path == certificationAction+"/manifests/validate":
			e.size = domain.MaxManifestBytes
			e.places = append(e.places, file)
		case e.media == "application/json" && strings.HasPrefix(e.path, certificationAction+"/artifacts"):
			e.size = 4 << 20
			e.places = []place{
				{}, {`{"kind":"text","title":`, "}", nil, nested}, {`{"kind":"text","title":"a","text":`, "}", nil, nested},
				{`{"kind":"manifest","manifest":`, "}", []string{"files"}, nested},
				{`{"kind":"manifest","manifest":` + file.begin, file.end + "}", file.members, nested},
			}
		}
	}
	slices.SortFunc(list, func(a, b jsonEntry) int { return strings.Compare(a.name(), b.name()) })
	return list
}

// Every endpoint that reads JSON is tested with bodies of its largest size and of many shapes. The work of reading them
// is proportional to the size.
func TestWorkOfEveryBody(t *testing.T) {
	t.Parallel()
	observed := make(chan edge.Observation, 2)
	s := open(t, options{config: func(c *handlers.Config) {
		c.PublicPerMinute = 1 << 20
		c.Observe = func(o edge.Observation) { observed <- o }
	}})
	count := func(a answer) edge.Observation {
		t.Helper()
		o := <-observed
		if o.Status != a.status {
			t.Fatalf("observed %d, answered %d", o.Status, a.status)
		}
		return o
	}
	entries := jsonEntries(t, s)
	for range []string{ordinaryMCP, integrityMCP} {
		<-observed // tools/list: a long answer arrives before its request is observed
	}
	if len(entries) < 25 {
		t.Fatalf("only %d entry points", len(entries))
	}
	ids := strings.NewReplacer("{companyId}", s.org.Company.ID.String(), "{publicId}", strings.Repeat("a", 26),
		"{webhookId}", "whk_01jd0000000000000000000000", "{deliveryId}", "dlv_01jd0000000000000000000000", "{id}",
		"art_01jd0000000000000000000000")
	for _, e := range entries {
		var worst edge.Observation
		var of jsontest.Shape
		sent := 0
		for _, place := range e.places {
			size := e.size
			if place.most > 0 {
				size = min(size, place.most)
			}
			for _, shape := range jsontest.Shapes(size-len(place.begin)-len(place.end), place.members...) {
				text := place.begin + string(shape.Text) + place.end
				body, media := text, "application/json"
				if e.media == "multipart/form-data" {
					body, media = parts(
						part{name: "metadata", kind: "application/json", content: text}, part{"file", "a.txt", "text/plain", "a"},
					)
				}
				r := s.request(e.method, ids.Replace(e.path), s.org.Secret, strings.NewReader(body))
				r.Header.Set("Content-Type", media)
				r.Header.Set("Accept", "application/json, text/event-stream")
				a := s.plainly(r)
				o := count(a)
				sent++
				where := fmt.Sprintf("%s, %s%s", e.name(), place.begin, shape.Name)
				if a.status >= 500 || a.status == http.StatusTooManyRequests {
					t.Fatalf("%s: %d %.300s", where, a.status, a.body)
				}
				if o.Steps < int64(len(text)) {
					t.Errorf("%s: %d steps, so the %d bytes were not read: %d %.300s", where, o.Steps, len(text), a.status, a.body)
				}
				if o.Steps > stepsPerByte*int64(len(text))+fixedSteps {
					t.Errorf("%s: %d bytes took %d steps", where, len(text), o.Steps)
				}
				if len(a.body) > len(text)+64<<10 {
					t.Errorf("%s: %d bytes are answered with %d", where, len(text), len(a.body))
				}
				if o.Steps > worst.Steps {
					worst, of = o, shape
				}
			}
		}
		t.Logf(
			"%s: %d bodies of %d bytes, at most %d steps (%.1f a byte: %s)", e.name(), sent, e.size, worst.Steps,
			float64(worst.Steps)/float64(e.size), of.Name,
		)
	}
}

// leaving is a body whose caller goes away after it has been read.
type leaving struct {
	io.Reader
	gone context.CancelFunc
}

func (l *leaving) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if err == io.EOF {
		l.gone()
	}
	return n, err
}

func (l *leaving) Close() error { return nil }

// When the caller has gone away, reading stops at the next check.
func TestWorkEndsWithItsCaller(t *testing.T) {
	observed := make(chan edge.Observation, 1)
	s := open(t, options{config: func(c *handlers.Config) { c.Observe = func(o edge.Observation) { observed <- o } }})
	for path, size := range map[string]int{
		certificationAction + "/manifests/validate": domain.MaxManifestBytes, integrity + "/records/batch": 4 << 20,
		certificationAction + "/artifacts": 4 << 20, integrityMCP: 64 << 10,
	} {
		text := []byte("[" + strings.Repeat("0,", size/2-2) + "0]")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, &leaving{bytes.NewReader(text), cancel})
		r.ContentLength = int64(len(text))
		for name, value := range map[string]string{
			"Content-Length": fmt.Sprint(len(text)), "Content-Type": "application/json",
			"Authorization": "Bearer " + s.org.Secret, "Accept": "application/json, text/event-stream",
		} {
			r.Header.Set(name, value)
		}
		s.http.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
		if o := <-observed; o.Steps < int64(len(text)) || o.Steps > int64(len(text))+10_000 || o.Status < 400 {
			t.Errorf("%s: %d bytes took %d steps after the caller had gone: %d", path, len(text), o.Steps, o.Status)
		}
	}
}
