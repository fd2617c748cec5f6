// Package mcp is the face for models. An endpoint implements the Model Context Protocol: Streamable HTTP without
// sessions or event streams, with one JSON answer per request, in the protocol versions that message.go lists. The
// official SDK implements the protocol itself. This package adds the behaviour of a strict server that the SDK lacks:
// JSON-RPC errors as JSON, ids returned exactly as sent, batches in the versions that have them, recovery from panics,
// and an answer to tools/list that only its caller may cache.
//
// An endpoint knows nothing about ledgers, API keys or limits. Face creates the two endpoints and defines who may call
// them, the cost of a call, and the action of each tool.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"integrityledger/handlers/edge"
)

// rawTool is a tool as the protocol sees it.
type rawTool struct {
	Name        string
	Title       string
	Description string
	Input       json.RawMessage // JSON Schema of an object
	Output      json.RawMessage // JSON Schema of an object
	Effect      effect
	// Call runs the tool. arguments is a JSON object exactly as it was sent: it may have duplicate members and has not
	// been validated against Input. An error is a fault of the service (-32603). A failure that the caller can correct is
	// a result.
	Call func(ctx context.Context, arguments json.RawMessage) (toolResult, error)
}

// effect is the effect of a call on the world.
type effect int

// Effects, as shown by the annotations of a tool.
const (
	reads    effect = iota // changes nothing
	repeats                // adds; repeating the call changes nothing more
	destroys               // takes something away; repeating the call changes nothing more
)

func (e effect) annotations() *sdk.ToolAnnotations {
	return &sdk.ToolAnnotations{
		ReadOnlyHint: e == reads, IdempotentHint: true, DestructiveHint: new(e == destroys), OpenWorldHint: new(false),
	}
}

// toolResult is the answer of a tool: a JSON object, which the caller also gets as text.
type toolResult struct {
	Object json.RawMessage
	// Failed says that Object describes a failure that the caller can correct. Such an object does not follow the Output
	// schema, which clients check for structured content, so it is sent only as text.
	Failed bool
	Meta   map[string]any // may be nil
}

// config configures an endpoint.
type config struct {
	Name, Title, Version string
	Instructions         string // for the model, about all tools
	Tools                []rawTool
	// Offers returns a filter of the tools to show to the caller of ctx.
	Offers func(ctx context.Context) (func(tool string) bool, error)
	// Fault is called for every fault of the service, including panics, and returns the error that the caller may see.
	Fault func(ctx context.Context, err error) *rpcError
}

// endpoint answers requests. It is safe for concurrent use.
type endpoint struct {
	config
	handler http.Handler
}

// newProtocol makes an endpoint. It panics if a tool has no object schema.
func newProtocol(c config) *endpoint {
	server := sdk.NewServer(&sdk.Implementation{Name: c.Name, Title: c.Title, Version: c.Version}, &sdk.ServerOptions{
		Instructions:              c.Instructions,
		Capabilities:              &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
		SupportedProtocolVersions: versions(),
		// The offered tools depend on the caller.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope, c.TTLMs = "private", 0 },
	})
	e := &endpoint{config: c}
	for _, tool := range c.Tools {
		server.AddTool(&sdk.Tool{
			Name: tool.Name, Title: tool.Title, Description: tool.Description,
			InputSchema: tool.Input, OutputSchema: tool.Output, Annotations: tool.Effect.annotations(),
		}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			arguments := r.Params.Arguments
			if len(arguments) == 0 {
				arguments = json.RawMessage("{}")
			}
			result, err := tool.Call(ctx, arguments)
			if err != nil {
				return nil, err
			}
			answer := &sdk.CallToolResult{
				Content: []sdk.Content{&sdk.TextContent{Text: string(result.Object)}}, IsError: result.Failed, Meta: result.Meta,
			}
			if !result.Failed {
				answer.StructuredContent = result.Object
			}
			return answer, nil
		})
	}
	server.AddReceivingMiddleware(e.surround)
	e.handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true,
		// edge has read the body, and foreign has checked origin and host.
		MaxRequestBodyBytes: -1, DisableLocalhostProtection: true,
	})
	return e
}

// callerKey finds the context passed to answer. The SDK passes tools a context with the same values that is not
// cancelled when the caller goes away.
type callerKey struct{}

// surround recovers from panics and errors in a method, and shows a caller only its own tools.
func (e *endpoint) surround(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (result sdk.Result, err error) {
		ctx = ctx.Value(callerKey{}).(context.Context)
		defer func() {
			var known *jsonrpc.Error
			if err != nil && !errors.As(err, &known) {
				result, err = nil, &e.Fault(ctx, err).Error
			}
		}()
		err = edge.Contain(func() (err error) {
			result, err = next(ctx, method, r)
			return err
		})
		list, ok := result.(*sdk.ListToolsResult)
		if err != nil || !ok {
			return result, err
		}
		offered, err := e.Offers(ctx)
		if err != nil {
			return nil, err
		}
		list.Tools = slices.DeleteFunc(list.Tools, func(t *sdk.Tool) bool { return !offered(t.Name) })
		return list, nil
	}
}

// internalError is the JSON-RPC error of a fault of the service.
func internalError(message string, data any) *rpcError {
	e := newError(jsonrpc.CodeInternalError, "%s", message)
	e.Data, _ = json.Marshal(data)
	return e
}

// answer handles the messages of a request one after another and returns the body of the answer, or nil if no message
// needs an answer (202).
func (e *endpoint) answer(ctx context.Context, r request) []byte {
	ctx = context.WithValue(ctx, callerKey{}, ctx)
	var answers [][]byte
	for _, m := range r.Messages {
		if answer := e.one(ctx, m); answer != nil {
			answers = append(answers, answer)
		}
	}
	switch {
	case len(answers) == 0:
		return nil
	case r.batch:
		return slices.Concat([]byte("["), bytes.Join(answers, []byte(",")), []byte("]"))
	default:
		return answers[0]
	}
}

// one answers a message. It ignores notifications and responses: the server has no session and sends no requests.
func (e *endpoint) one(ctx context.Context, m message) []byte {
	switch {
	case m.wrong != nil:
		return m.wrong.JSON(m.id)
	case m.id == nil:
		return nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(m.text))
	if err != nil {
		return e.Fault(ctx, err).JSON(m.id)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	w := &answerWriter{header: http.Header{}, status: http.StatusOK}
	e.handler.ServeHTTP(w, r)
	if ctx.Err() != nil {
		return e.Fault(ctx, fmt.Errorf("mcp: %w", ctx.Err())).JSON(m.id)
	}
	return e.judged(ctx, m, w)
}

// judged returns the SDK's answer. If the SDK refuses in another form, judged returns a JSON-RPC error instead.
func (e *endpoint) judged(ctx context.Context, m message, w *answerWriter) []byte {
	var answer struct {
		Error *rpcError `json:"error"`
	}
	text := bytes.TrimSpace(w.body.Bytes())
	switch err := json.Unmarshal(text, &answer); {
	case err != nil && w.status == http.StatusBadRequest:
		return newError(jsonrpc.CodeInvalidParams, "%s", text).JSON(m.id)
	case err != nil:
		return e.Fault(ctx, fmt.Errorf("mcp: the SDK answers %d and no JSON: %w", w.status, err)).JSON(m.id)
	case answer.Error != nil && answer.Error.Code != jsonrpc.CodeInternalError:
		// Only faults of a method are internal; all other errors are about the form of the call.
		return newError(jsonrpc.CodeInvalidParams, "%s", answer.Error.Message).JSON(m.id)
	}
	return text
}

// answerWriter records the SDK's answer.
type answerWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *answerWriter) Header() http.Header         { return w.header }
func (w *answerWriter) WriteHeader(status int)      { w.status = status }
func (w *answerWriter) Write(p []byte) (int, error) { return w.body.Write(p) }
