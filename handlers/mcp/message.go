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

// versions lists the protocol versions that are spoken, newest first.
func versions() []string { return []string{newest, middle, batches} }

// maxBatch is the most messages of a batch.
const maxBatch = 20

// maxDepth bounds the nesting of a message, the arguments of a tool included.
const maxDepth = 32

// metaVersion is where requests of later protocols name their version.
const metaVersion = "io.modelcontextprotocol/protocolVersion"

// rpcError is a JSON-RPC error, which the caller gets under the id of its message, or under null without one.
type rpcError struct{ jsonrpc.Error }

func newError(code int64, format string, args ...any) *rpcError {
	return &rpcError{jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// JSON is the error as an answer to the message with this id, a JSON text; empty means null.
func (e *rpcError) JSON(id []byte) []byte {
	if len(id) == 0 {
		id = []byte("null")
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(struct { // text and JSON alone, which can be encoded
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

// unsupported is the answer to other protocol versions. Later protocols do not know it, so that their clients fall back
// to initialize.
func unsupported() *rpcError {
	return invalidRequest(
		"This server speaks the protocol versions %s; connect with initialize.", strings.Join(versions(), ", "),
	)
}

// checkVersion judges the MCP-Protocol-Version header; without one the client has not initialized, or is of the oldest
// version.
func checkVersion(header []string) *rpcError {
	if len(header) > 1 || len(header) == 1 && !slices.Contains(versions(), header[0]) {
		return unsupported()
	}
	return nil
}

// request is the body of an HTTP request: a message, or a batch of them.
type request struct {
	Messages []message
	batch    bool
}

// message is one JSON-RPC message of a client.
type message struct {
	// Tool is the name that tools/call gives, known or not; otherwise empty.
	Tool string

	method string
	id     []byte // as it was sent; nil for what is not answered
	text   []byte
	wrong  *rpcError // why it is not passed on
}

// parse reads a body. version is what the MCP-Protocol-Version header says, or empty. An error is about the whole body;
// what is wrong with one message of a batch is answered in its place.
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
		return request{}, invalidRequest("A batch holds at least one message.")
	case n > maxBatch:
		return request{}, invalidRequest(
			"A batch holds at most %d messages; this one has %d, and none of them was looked at.", maxBatch, n,
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

// read judges the form of one message (JSON-RPC 2.0, section 4; MCP, Base Protocol).
func read(v strictjson.Value) message {
	if v.Kind() != strictjson.ObjectKind {
		return message{wrong: invalidRequest("A message is a JSON object; this is %s.", v.Kind())}
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
			m.wrong = invalidRequest("An id is a string or an integer that a double holds exactly.")
			return m
		}
		m.id = id.AppendJSON(nil)
	}
	if version := members["jsonrpc"]; version.Kind() != strictjson.String || version.Text() != "2.0" {
		m.wrong = invalidRequest(`A message has the member "jsonrpc": "2.0".`)
		return m
	}
	method, named := members["method"]
	_, result := members["result"]
	_, failure := members["error"]
	switch {
	case !named && asked && result != failure: // an answer, though nobody asked
		m.id = nil
		return m
	case method.Kind() != strictjson.String:
		m.wrong = invalidRequest(`A message has a "method", a string.`)
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

// maxShown is the most bytes of a name that an answer repeats.
const maxShown = 100

func short(name string) string {
	if len(name) <= maxShown {
		return name
	}
	return strings.ToValidUTF8(name[:maxShown], "") + "…"
}

// validID refuses what would not come back as it was sent. MCP has no null ids.
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

// judge looks at the method of a call and at the form of its params.
func (m *message) judge(params strictjson.Value, given bool) *rpcError {
	if given && params.Kind() != strictjson.ObjectKind {
		return newError(jsonrpc.CodeInvalidParams, "params is a JSON object; this is %s.", params.Kind())
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
			return newError(jsonrpc.CodeInvalidParams, "arguments is a JSON object; this is %s.", arguments.Kind())
		}
	default:
		return newError(
			jsonrpc.CodeMethodNotFound, "There is no method %q; this server has initialize, ping, tools/list and tools/call.",
			short(m.method),
		)
	}
	for _, name := range needed {
		if v := memberValue(params, name); v.Kind() != strictjson.String {
			return newError(jsonrpc.CodeInvalidParams, "The params of %s have %q, a string.", m.method, name)
		}
	}
	return nil
}

// memberOf finds a member of an object; the last of several, as the SDK does.
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
