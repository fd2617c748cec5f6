package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"integrityledger/domain/strictjson"
)

// The protocol versions, newest first. Only the oldest has batches.
const (
	newest  = "2025-11-25"
	middle  = "2025-06-18"
	batches = "2025-03-26"
)

// versions lists the supported protocol versions, newest first.
func versions() []string { return []string{newest, middle, batches} }

// maxBatch is the largest number of messages in a batch.
const maxBatch = 20

// maxDepth bounds the nesting of a message, including the arguments of a tool.
const maxDepth = 32

// metaVersion is the member in which requests of later protocols name their version.
const metaVersion = "io.modelcontextprotocol/protocolVersion"

// rpcError is a JSON-RPC error. The caller gets it under the id of its message, or under null if the message has no id.
type rpcError struct{ jsonrpc.Error }

func newError(code int64, format string, args ...any) *rpcError {
	return &rpcError{jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// JSON encodes the error as the answer to the message with this id, which is JSON text; empty means null.
func (e *rpcError) JSON(id []byte) []byte {
	if len(id) == 0 {
		id = []byte("null")
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(struct { // strings and JSON always encode
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *rpcError       `json:"error"`
	}{"2.0", id, e})
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// invalidRequest is an error about a whole request.
func invalidRequest(format string, args ...any) *rpcError {
	return newError(jsonrpc.CodeInvalidRequest, format, args...)
}

// unsupported is the answer to other protocol versions. Clients of later protocols do not know this error, so they fall
// back to initialize.
func unsupported() *rpcError {
	return invalidRequest(
		"This server speaks the protocol versions %s; connect with initialize.", strings.Join(versions(), ", "),
	)
}

// checkVersion checks the MCP-Protocol-Version header. Without the header the client has not initialized yet or uses
// the oldest version.
func checkVersion(header []string) *rpcError {
	if len(header) > 1 || len(header) == 1 && !slices.Contains(versions(), header[0]) {
		return unsupported()
	}
	return nil
}

// request is the body of an HTTP request: one message or a batch.
type request struct {
	Messages []message
	batch    bool
}

// message is a JSON-RPC message of a client.
type message struct {
	// Tool is the name in tools/call, even of an unknown tool; otherwise empty.
	Tool string

	method string
	id     []byte // as it was sent; nil if the message needs no answer
	text   []byte
	wrong  *rpcError // why the message is not passed on
}

// parse reads a body. version is the MCP-Protocol-Version header, or empty. An error concerns the whole body; a problem
// of one message in a batch is answered in its place.
func parse(meter *strictjson.Meter, body []byte, version string) (request, *rpcError) {
	value, err := meter.Parse(body, maxDepth)
	if errors.Is(err, strictjson.ErrStopped) {
		return request{}, newError(jsonrpc.CodeInternalError, "The request ended before it was read; send it again.")
	}
	if err != nil {
		return request{}, newError(jsonrpc.CodeParseError, "The body is not one JSON value: %s.", err)
	}
	if value.Kind() != strictjson.Array {
		m := read(value)
		if m.wrong != nil && m.wrong.Code == jsonrpc.CodeInvalidRequest {
			return request{}, m.wrong
		}
		return request{Messages: []message{m}}, nil
	}
	switch n := value.Len(); {
	case version != "" && version != batches:
		return request{}, invalidRequest("Protocol version %s has no batches; send one message a request.", version)
	case n == 0:
		return request{}, invalidRequest("A batch must have at least one message.")
	case n > maxBatch:
		return request{}, invalidRequest(
			"A batch may have at most %d messages; this one has %d, and none was processed.", maxBatch, n,
		)
	}
	r := request{batch: true}
	for _, element := range value.Elements() {
		m := read(element)
		if m.method == "initialize" && m.wrong == nil {
			m.wrong = invalidRequest("initialize cannot be part of a batch.")
		}
		r.Messages = append(r.Messages, m)
	}
	return r, nil
}

// read checks the form of a message (JSON-RPC 2.0, section 4; MCP, Base Protocol).
func read(v strictjson.Value) message {
	if v.Kind() != strictjson.ObjectKind {
		return message{wrong: invalidRequest("A message must be a JSON object, not %s.", v.Kind())}
	}
	members := map[string]strictjson.Value{}
	for _, m := range v.Members() {
		if _, twice := members[m.Name]; twice {
			return message{wrong: invalidRequest("The member %q appears more than once.", short(m.Name))}
		}
		members[m.Name] = m.Value
	}
	m := message{text: v.AppendJSON(nil)}
	id, asked := members["id"]
	if asked {
		if !validID(id) {
			m.wrong = invalidRequest("An id must be a string or an integer that a double represents exactly.")
			return m
		}
		m.id = id.AppendJSON(nil)
	}
	if version := members["jsonrpc"]; version.Kind() != strictjson.String || version.Text() != "2.0" {
		m.wrong = invalidRequest(`A message must have the member "jsonrpc": "2.0".`)
		return m
	}
	method, named := members["method"]
	_, result := members["result"]
	_, failure := members["error"]
	switch {
	case !named && asked && result != failure: // a response, although this server sends no requests
		m.id = nil
		return m
	case method.Kind() != strictjson.String:
		m.wrong = invalidRequest(`A message must have a string "method".`)
		return m
	}
	m.method = method.Text()
	switch {
	case asked:
		params, given := members["params"]
		m.wrong = m.judge(params, given)
	case !strings.HasPrefix(m.method, "notifications/"):
		m.wrong = invalidRequest("The method %q needs an id.", short(m.method))
	}
	return m
}

// maxShown is the number of bytes of a name that an answer repeats.
const maxShown = 100

func short(name string) string {
	if len(name) <= maxShown {
		return name
	}
	return strings.ToValidUTF8(name[:maxShown], "") + "…"
}

// validID refuses ids that would not be returned exactly as sent. MCP has no null ids.
func validID(v strictjson.Value) bool {
	switch v.Kind() {
	case strictjson.String:
		return true
	case strictjson.Number:
		n, err := strconv.ParseInt(v.Text(), 10, 64)
		return err == nil && strconv.FormatInt(n, 10) == v.Text() && n >= strictjson.MinInteger && n <= strictjson.MaxInteger
	default:
		return false
	}
}

// judge checks the method of a call and the form of its params.
func (m *message) judge(params strictjson.Value, given bool) *rpcError {
	if given && params.Kind() != strictjson.ObjectKind {
		return newError(jsonrpc.CodeInvalidParams, "params must be a JSON object, not %s.", params.Kind())
	}
	if other, ok := memberOf(memberValue(params, "_meta"), metaVersion); ok && !slices.Contains(versions(), other.Text()) {
		return unsupported()
	}
	var needed []string
	switch m.method {
	case "ping", "tools/list":
	case "initialize":
		needed = []string{"protocolVersion"}
	case "tools/call":
		needed = []string{"name"}
		if m.Tool = memberValue(params, "name").Text(); len(m.Tool) > maxShown {
			return newError(jsonrpc.CodeInvalidParams, "There is no tool %q.", short(m.Tool))
		}
		if arguments, ok := memberOf(params, "arguments"); ok && arguments.Kind() != strictjson.ObjectKind {
			return newError(jsonrpc.CodeInvalidParams, "arguments must be a JSON object, not %s.", arguments.Kind())
		}
	default:
		return newError(
			jsonrpc.CodeMethodNotFound, "There is no method %q; this server has initialize, ping, tools/list and tools/call.",
			short(m.method),
		)
	}
	for _, name := range needed {
		if v := memberValue(params, name); v.Kind() != strictjson.String {
			return newError(jsonrpc.CodeInvalidParams, "The params of %s must have a string %q.", m.method, name)
		}
	}
	return nil
}

// memberOf finds a member of an object. Of duplicates it returns the last, as the SDK does.
func memberOf(v strictjson.Value, name string) (found strictjson.Value, ok bool) {
	for _, m := range v.Members() {
		if m.Name == name {
			found, ok = m.Value, true
		}
	}
	return found, ok
}

func memberValue(v strictjson.Value, name string) strictjson.Value {
	found, _ := memberOf(v, name)
	return found
}
