package handlers_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"integrityledger/schemas"
)

// publication is the OpenAPI documents as one, with the parts that the tests have exercised.
type publication struct {
	document *openapi3.T // of the integrity API, with the paths of the certification API
	older    *openapi3.T
	router   routers.Router

	mu    sync.Mutex
	met   map[string]map[int]bool // status by operation
	codes map[string]bool
}

// published is the document shared by the whole run.
var published = sync.OnceValues(func() (*publication, error) {
	openapi3filter.RegisterBodyDecoder("text/x-python", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("application/gzip", openapi3filter.FileBodyDecoder)
	document, err := publishedDocument(schemas.OpenAPIFile)
	if err != nil {
		return nil, err
	}
	older, err := publishedDocument(schemas.CertificationOpenAPIFile)
	if err != nil {
		return nil, err
	}
	for path, item := range older.Paths.Map() {
		document.Paths.Set(path, item)
	}
	maps.Copy(document.Components.SecuritySchemes, older.Components.SecuritySchemes)
	document.Servers = nil // the tests' servers have other addresses
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		return nil, fmt.Errorf("the OpenAPI document: %w", err)
	}
	return &publication{
		document: document, older: older, router: router, met: map[string]map[int]bool{}, codes: map[string]bool{},
	}, nil
})

func publishedDocument(file string) (*openapi3.T, error) {
	text, err := schemas.OpenAPI(file, baseURL)
	if err != nil {
		return nil, err
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := document.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return document, nil
}

// neverExercised lists the parts of the document that no test has exercised.
func (p *publication) neverExercised() (missing []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, item := range p.document.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				if n, _ := strconv.Atoi(status); !p.met[operation.OperationID][n] {
					missing = append(missing, fmt.Sprintf("%s %s, status %s", method, path, status))
				}
			}
		}
	}
	for _, code := range p.enumerated() {
		if !p.codes[code] {
			missing = append(missing, "the code "+code)
		}
	}
	slices.Sort(missing)
	return missing
}

// enumerated returns the codes that an error may have.
func (p *publication) enumerated() (codes []string) {
	for _, document := range []*openapi3.T{p.document, p.older} {
		for _, code := range document.Components.Schemas["ApiError"].Value.Properties["code"].Value.Enum {
			codes = append(codes, code.(string))
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// recorder validates every request and answer that passes through it against the document, and remembers the exercised
// parts. For a refused request it checks only the answer.
type recorder struct {
	t    *testing.T
	next http.RoundTripper
}

// recorded returns the server's client, with every exchange validated against the document.
func recorded(t *testing.T, server *httptest.Server) *http.Client {
	return &http.Client{Transport: recorder{t, server.Client().Transport}}
}

func (c recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		if r.Body = http.NoBody; len(sent) > 0 {
			r.Body = io.NopCloser(bytes.NewReader(sent))
		}
	}
	response, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err := judge(r, sent, response, body); err != nil {
		c.t.Errorf(
			"%s %s answers %d against the OpenAPI document: %v\n%s", r.Method, r.URL.Path, response.StatusCode, err, body,
		)
	}
	return response, nil
}

func judge(r *http.Request, sent []byte, response *http.Response, body []byte) error {
	p, err := published()
	if err != nil {
		return err
	}
	if response.Header.Get("Content-Encoding") == "gzip" && r.Method != http.MethodHead {
		reader, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return err
		}
		if body, err = io.ReadAll(reader); err != nil {
			return err
		}
	}
	asked := r.Clone(r.Context())
	if sent != nil {
		asked.Body = io.NopCloser(bytes.NewReader(sent))
	}
	if asked.Method == http.MethodHead {
		asked.Method = http.MethodGet // every path with GET also has HEAD
	}
	route, variables, err := p.router.FindRoute(asked)
	if err != nil {
		return p.judgeUndocumented(response, body)
	}
	operation := route.Operation
	request := &openapi3filter.RequestValidationInput{
		Request: asked, PathParams: variables, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true, MultiError: true,
		},
	}
	var wrong []error
	refusedInside := bytes.Contains(body, []byte(`"error":{"code":-3`)) // a message of MCP that was no right one
	if response.StatusCode < http.StatusBadRequest && !refusedInside {
		wrong = append(wrong, openapi3filter.ValidateRequest(r.Context(), request), unknownParameters(asked, operation))
	}
	if r.Method != http.MethodHead {
		page := strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") // only its type can be judged
		if documented := operation.Responses.Status(response.StatusCode); page && documented != nil &&
			documented.Value.Content["text/html"] == nil {
			wrong = append(wrong, errors.New("the document says nothing of a page"))
		}
		wrong = append(wrong, openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: request, Status: response.StatusCode, Header: response.Header,
			Body:    io.NopCloser(bytes.NewReader(body)),
			Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: page, MultiError: true},
		}))
		wrong = append(wrong, p.remember(operation, response.StatusCode, body))
	}
	return errors.Join(wrong...)
}

// judgeUndocumented checks answers to requests that are no operation: an unknown path, or another method, such as
// OPTIONS if pages of other origins may read.
func (p *publication) judgeUndocumented(response *http.Response, body []byte) error {
	if response.Request.Method == http.MethodOptions && response.StatusCode == http.StatusNoContent {
		if len(body) != 0 || response.Header.Get("Access-Control-Allow-Origin") != "*" || response.Header.Get("Allow") == "" {
			return errors.New("no answer to a preflight request")
		}
		return nil
	}
	if response.StatusCode != http.StatusNotFound && response.StatusCode != http.StatusMethodNotAllowed {
		return errors.New("no operation of the document")
	}
	var failure struct{ Error struct{ Code string } }
	var value any
	if err := errors.Join(json.Unmarshal(body, &value), json.Unmarshal(body, &failure)); err != nil {
		if response.Request.Method == http.MethodHead {
			return nil
		}
		return err
	}
	if (response.Header.Get("Allow") != "") != (response.StatusCode == http.StatusMethodNotAllowed) {
		return errors.New("the Allow header comes with 405")
	}
	p.mu.Lock()
	p.codes[failure.Error.Code] = true
	p.mu.Unlock()
	return p.document.Components.Schemas["ApiFailure"].Value.VisitJSON(value, openapi3.EnableJSONSchema2020())
}

// remember requires that the operation names the code for the status.
func (p *publication) remember(operation *openapi3.Operation, status int, body []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.met[operation.OperationID] == nil {
		p.met[operation.OperationID] = map[int]bool{}
	}
	p.met[operation.OperationID][status] = true
	documented := operation.Responses.Status(status)
	if status < http.StatusBadRequest || documented == nil { // already reported
		p.rememberItems(body)
		return nil
	}
	inJSON := documented.Value.Content["application/json"]
	if inJSON == nil {
		return nil
	}
	var failure struct{ Error struct{ Code any } } // a number in JSON-RPC
	if err := json.Unmarshal(body, &failure); err != nil {
		return err
	}
	code := fmt.Sprint(failure.Error.Code)
	p.codes[code] = true
	if named := inJSON.Examples; named[code] == nil {
		return fmt.Errorf(
			"status %d of %s names %v, not %s", status, operation.OperationID, slices.Sorted(maps.Keys(named)), code,
		)
	}
	return nil
}

// rememberItems remembers the codes of the items that a batch refuses: some codes belong to items only.
func (p *publication) rememberItems(body []byte) {
	var batch struct {
		Data struct {
			Results []struct{ Error *struct{ Code string } }
		}
	}
	if json.Unmarshal(body, &batch) != nil { // another answer
		return
	}
	for _, item := range batch.Data.Results {
		if item.Error != nil {
			p.codes[item.Error.Code] = true
		}
	}
}

// unknownParameters finds parameters that the validator ignores.
func unknownParameters(r *http.Request, operation *openapi3.Operation) error {
	for name := range r.URL.Query() {
		if operation.Parameters.GetByInAndName("query", name) == nil {
			return fmt.Errorf("the document has no parameter %s", name)
		}
	}
	if strings.Contains(r.URL.RawQuery, ";") {
		return errors.New("the query is not well formed")
	}
	return nil
}
