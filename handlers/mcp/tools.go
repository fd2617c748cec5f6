package mcp

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/schemas"
)

// Face is the face for models: each tool is an action.
type Face struct{ *action.Actions }

// Endpoints returns the two MCP endpoints.
func (s Face) Endpoints() []edge.Endpoint {
	return []edge.Endpoint{
		edge.Post("/api/v1/integrity/mcp", s.speak(s.integrityMCP()), edge.Policy{
			Foreign: s.foreign, Body: edge.BodyMessage, TakesAway: true, NoQuery: true,
		}),
		edge.Post(edge.OrdinaryMCPRoute, s.speak(s.ordinaryMCP()), edge.Policy{
			Foreign: s.foreign, Caller: edge.WithKeyOrToken, Body: edge.BodyMessage, NoQuery: true,
		}),
	}
}

// toolset is one of the two MCP endpoints.
type toolset struct {
	*endpoint
	tools map[string]tool
	// monthly says that every message consumes one of the organization's monthly requests.
	monthly bool
}

// tool is an action that a model may call. It calls the same functions as REST.
type tool struct {
	name          string
	limits        bool // the answer attests a fact
	scope         domain.Scope
	granted       bool // only useful to a key with access to a company
	effect        effect
	input, output json.RawMessage
	call          func(ctx context.Context, arguments *strictjson.Object) (answer, error)
}

// answer is the answer of a tool, with its metadata.
type answer struct {
	data any
	meta map[string]any
}

// called makes a tool of an action and its reader.
func called[Input, Output any](
	read func(*strictjson.Object) Input, do edge.Action[Input, Output],
) func(context.Context, *strictjson.Object) (answer, error) {
	return edge.Called(read, edge.Viewed(do, func(o Output) answer { return answer{data: o} }))
}

// feedPage answers a page of the feed with its epoch in the metadata.
func feedPage(p action.FeedPage) answer { return answer{p.Feed, map[string]any{"epoch": p.Epoch}} }

// wordings has the titles and descriptions of the endpoints and their tools, by name.
//
//go:embed mcp.json
var wordings []byte

// wording is the text about an endpoint or a tool that a model reads in addition to the schemas.
type wording struct{ Title, Es, En string }

// in returns the text in both languages, this language first.
func (t wording) in(language evidence.Language) string {
	if language == evidence.English {
		return t.En + "\n\n" + t.Es
	}
	return t.Es + "\n\n" + t.En
}

// newEndpoint makes an endpoint. The fixed text on what records or certificates prove is in the instructions in both
// languages. In the given language it is also part of the description of every tool with limits.
func (s Face) newEndpoint(name string, kind web.Kind, language evidence.Language, tools []tool) *toolset {
	words := map[string]wording{}
	if err := json.Unmarshal(wordings, &words); err != nil {
		panic(err) // the file is embedded
	}
	e := &toolset{tools: map[string]tool{}}
	fixed := wording{Es: s.limitsText(kind, evidence.Spanish), En: s.limitsText(kind, evidence.English)}
	c := config{
		Name: name, Title: words[name].Title, Version: edge.ReadBuild().Semantic(),
		Instructions: words[name].in(evidence.Spanish) + "\n\n" + fixed.in(evidence.Spanish),
		Offers:       func(ctx context.Context) (func(string) bool, error) { return s.offers(ctx, e) },
		Fault:        s.toolFault,
	}
	for _, t := range tools {
		e.tools[t.name] = t
		description := words[t.name].in(language)
		if t.limits {
			description += "\n\n" + s.limitsText(kind, language)
		}
		c.Tools = append(c.Tools, rawTool{
			Name: t.name, Title: words[t.name].Title, Description: description, Input: t.input, Output: t.output,
			Effect: t.effect,
			Call: func(ctx context.Context, arguments json.RawMessage) (toolResult, error) {
				return s.callTool(ctx, t, arguments)
			},
		})
	}
	e.endpoint = newProtocol(c)
	return e
}

// limitsText formats the fixed text as a list.
func (s Face) limitsText(kind web.Kind, language evidence.Language) string {
	title, points := kind.Limits(language, s.Relationship[language])
	return title + ":\n- " + strings.Join(points, "\n- ")
}

// offers returns a filter of the tools that the caller may use at the moment.
func (s Face) offers(ctx context.Context, e *toolset) (func(string) bool, error) {
	access := edge.CallIn(ctx).Access
	granted, asked := false, false
	for _, t := range e.tools {
		asked = asked || t.granted && edge.Allows(access, t.scope) == nil
	}
	if asked {
		companies, _, err := s.Store.Companies(ctx, access, false, "", "", 1)
		if err != nil {
			return nil, err
		}
		granted = len(companies) > 0
	}
	return func(name string) bool {
		t := e.tools[name]
		return edge.Allows(access, t.scope) == nil && (granted || !t.granted)
	}, nil
}

// callTool checks scope, role and arguments in the order of contract section 2. A failure that the caller can correct
// is a result with the error that REST would answer.
func (s Face) callTool(ctx context.Context, t tool, arguments json.RawMessage) (toolResult, error) {
	answered, err := s.runTool(ctx, t, arguments)
	failed := err != nil
	if refused := edge.Refusal(err); failed && (refused == nil || refused.Code == domain.Internal) {
		return toolResult{}, err
	}
	if failed {
		answered.data = wire.Refused{Error: s.ItemError(edge.CallIn(ctx), err)}
	}
	text, err := edge.Encode(answered.data)
	return toolResult{Object: bytes.TrimSpace(text), Failed: failed, Meta: answered.meta}, err
}

func (s Face) runTool(ctx context.Context, t tool, arguments json.RawMessage) (answer, error) {
	c := edge.CallIn(ctx)
	if err := edge.Allows(c.Access, t.scope); err != nil {
		return answer{}, err
	}
	c.Scope = t.scope
	value, err := edge.Parse(ctx, arguments, "The value of arguments")
	if err != nil {
		return answer{}, err
	}
	return t.call(ctx, c.Meter.Decode(value))
}

// toolFault logs a fault of the service and returns the error that the caller may see.
func (s Face) toolFault(ctx context.Context, err error) *rpcError {
	c := edge.CallIn(ctx)
	body := s.ItemError(c, err)
	attributes := append([]slog.Attr{slog.String("requestId", c.RequestID)}, edge.FaultAttributes(err)...)
	s.Log.LogAttrs(ctx, slog.LevelError, "MCP call failed", attributes...)
	return internalError(body.Detail, wire.Refused{Error: body})
}

// speak makes the handler of an MCP endpoint.
func (s Face) speak(e *toolset) edge.Handler {
	return func(r *http.Request) (any, error) {
		c := edge.CallOf(r)
		versions := r.Header.Values("Mcp-Protocol-Version")
		var sent request
		wrong := checkVersion(versions)
		version := strings.Join(versions, ",")
		if wrong == nil && c.Unread == nil {
			sent, wrong = parse(&c.Meter, c.Body, version)
		}
		if n, most := len(sent.Messages), c.Access.PerMinute; n > most { // waiting would not help
			sent, wrong = request{}, invalidRequest("This batch has %d messages, and the organization may send %d "+
				"a minute. Send smaller batches.", n, most)
		}
		if late := edge.Refusal(c.Unread); late != nil && late.Code == domain.RequestTimeout {
			return edge.Response{}, c.Unread // free of charge; net/http has cancelled the request's context
		}
		if err := s.charge(r, e, sent.Messages); err != nil {
			return edge.Response{}, err
		}
		switch {
		case c.Unread != nil:
			return edge.Response{}, c.Unread
		case wrong != nil:
			return edge.Response{Status: http.StatusBadRequest, Raw: wrong.JSON(nil)}, nil
		}
		answer := e.answer(r.Context(), sent)
		if answer == nil {
			return edge.Response{Status: http.StatusAccepted, Empty: true}, nil
		}
		return edge.Response{Raw: answer}, nil
	}
}

// charge counts every message but the first, which authenticate has counted, in the organization's minute. It then
// takes the monthly requests for all messages. A batch that does not fit into the minute or the month is refused as a
// whole and consumes no monthly requests. Calls that the key's scopes or role do not allow are free. An unreadable body
// costs as much as one message. After the minute is used up, only a single call of a tool that takes something away is
// let through.
func (s Face) charge(r *http.Request, e *toolset, messages []message) error {
	c := edge.CallOf(r)
	if err := c.Spent(); err != nil && (len(messages) != 1 || e.tools[messages[0].Tool].effect != destroys) {
		return err
	}
	if more := len(messages) - 1; more > 0 {
		first := len(c.Limits)
		err := s.CountInMinute(r.Context(), c, more)
		if len(c.Limits) > first {
			c.Limits = c.Limits[first:] // this limit includes the first message
		}
		if err != nil {
			return err
		}
	}
	if !e.monthly {
		return nil
	}
	cost := 0
	for _, m := range messages {
		if t, known := e.tools[m.Tool]; !known || edge.Allows(c.Access, t.scope) == nil {
			cost++
		}
	}
	if len(messages) == 0 {
		cost = 1
	}
	if cost == 0 {
		return nil
	}
	return s.TakeOfMonth(r.Context(), c, cost)
}

// foreign refuses a request that seems to come from a page of another site (MCP, Transports, Security Warning).
// Programs send no Origin. A page whose host name was pointed at a local service (DNS rebinding) sends that name as
// Host. So does a proxy that passes the name of its upstream. But such a page has no key, and no browser adds one by
// itself.
func (s Face) foreign(r *http.Request) *edge.Response {
	if why := s.looksForeign(r); why != "" {
		return &edge.Response{Status: http.StatusForbidden, Raw: invalidRequest("%s", why).JSON(nil)}
	}
	return nil
}

func (s Face) looksForeign(r *http.Request) string {
	base, err := url.Parse(s.BaseURL)
	origins := r.Header.Values("Origin")
	if err != nil || len(origins) > 1 || len(origins) == 1 && !strings.EqualFold(origins[0], base.Scheme+"://"+base.Host) {
		return "Pages of other sites may not call this endpoint."
	}
	if strings.EqualFold(r.Host, base.Host) ||
		domain.IsLoopbackHost(strings.ToLower((&url.URL{Host: r.Host}).Hostname())) ||
		!onLoopback(r) || edge.Among(s.TrustedProxies, edge.PeerAddress(r)) {
		return ""
	}
	if _, presented := edge.BearerText(r.Header); presented {
		return ""
	}
	return "Without a key, requests must name this endpoint's own host. " +
		"Behind a proxy, make it pass the Host header, or list it in INTEGRITY_TRUSTED_PROXIES."
}

// onLoopback reports whether a request arrived on a loopback address of this machine.
func onLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().IsLoopback()
}

// object returns a schema of the published contract.
func object(file, component string, parameters ...string) json.RawMessage {
	return edge.Must(schemas.Object(file, component, parameters...))
}

// certificateOnly is the contract's VerifyRequest without a hash.
const certificateOnly = `{"type":"object","additionalProperties":false,"required":["publicId"],"properties":{"publicId":{"type":"string","description":"Of a certificate."}}}`

// ordinaryMCP has read-only tools (specification, MCP endpoints).
func (s Face) ordinaryMCP() *toolset {
	const contract = schemas.CertificationOpenAPIFile
	e := s.newEndpoint("integrity-ledger", web.Certificate, evidence.Spanish, []tool{
		{name: "verificar_documento", scope: domain.VerifyRead, effect: reads, limits: true,
			input: object(contract, "VerifyRequest"), output: object(contract, "Verification"),
			call: called(action.ReadVerification, s.VerifyHash)},
		{name: "verificar_certificado", scope: domain.VerifyRead, effect: reads, limits: true,
			input: json.RawMessage(certificateOnly), output: object(contract, "PublicVerification"),
			call: called(action.ReadHashless, s.VerifyPublished)},
		{name: "listar_documentos", scope: domain.ArtifactsRead, effect: reads,
			input: object(contract, "", "pageLimit", "offset"), output: object(contract, "Artifacts"),
			call: called(edge.ReadPage, s.ListArtifacts)},
		{name: "consultar_consumo", scope: edge.AnyScope, effect: reads,
			input: object(contract, ""), output: object(contract, "AccountUsage"),
			call: called(edge.ReadNothing, s.AccountUsage)},
	})
	e.monthly = true
	return e
}

// integrityMCP has the tools of hash-only registration.
func (s Face) integrityMCP() *toolset {
	const contract = schemas.OpenAPIFile
	return s.newEndpoint("integrity-ledger-integrity", web.Record, evidence.English, []tool{
		{name: "integrity_reserve", scope: domain.IntegrityWrite, granted: true, effect: repeats,
			input: object(contract, "ReservationRequest"), output: object(contract, "Reservation"),
			call: called(domain.ReadVersionReference, action.Single(s.Service, s.Reserve))},
		{name: "integrity_register", scope: domain.IntegrityWrite, granted: true, effect: repeats, limits: true,
			input: object(contract, "Declaration"), output: object(contract, "Registration"),
			call: called(domain.ReadDeclaration, action.Single(s.Service, s.Register))},
		{name: "integrity_lookup", scope: domain.IntegrityRead, granted: true, effect: reads,
			input:  object(contract, "", "lookupPublicId", "lookupCompany", "lookupSource", "lookupDocument", "lookupVersion"),
			output: object(contract, "RecordView"), call: called(action.ReadLookup, s.Lookup)},
		{name: "integrity_changes", scope: domain.IntegrityRead, granted: true, effect: reads,
			input: object(contract, "", "changedCompany", "sequence", "epoch", "limit"), output: object(contract, "Feed"),
			call: edge.Called(action.ReadFeed, edge.Viewed(s.Changes, feedPage))},
		{name: "integrity_export", scope: domain.IntegrityRead, granted: true, effect: reads, limits: true,
			input: exportInput(), output: exportOutput(), call: s.export},
		{name: "integrity_revoke", scope: domain.IntegrityRevoke, granted: true, effect: destroys,
			input: object(contract, "RevokeRequest", "publicId"), output: object(contract, "RevokedRecord"),
			call: called(action.ReadRevoke, action.Single(s.Service, s.Revoke))},
		{name: "integrity_verify", scope: domain.IntegrityRead, effect: reads, limits: true,
			input: object(contract, "", "publicId", "sha256"), output: object(contract, "Comparison"),
			call: called(action.ReadComparison, s.Compare)},
	})
}

// exportProof is the member of integrity_export's input that asks for a transparency log proof, and of its output.
const exportProof = "tlogProof"

// exportInput is the schema of integrity_export's input.
func exportInput() json.RawMessage {
	return edge.Must(json.Marshal(withMember(object(schemas.OpenAPIFile, "", "publicId", "at", "timestamps"),
		`{"type":"boolean","default":false,"description":"Answer the transparency log proof (C2SP tlog-proof@v1) instead `+
			`of evidence; at and timestamps must be absent."}`)))
}

// exportOutput is the schema of integrity_export's output: the members of evidence, or a transparency log proof alone.
func exportOutput() json.RawMessage {
	output := withMember(object(schemas.OpenAPIFile, "Evidence"),
		`{"type":"string","description":"The exact text of the file, alone in the answer if it was asked for."}`)
	output["oneOf"] = []any{
		map[string]any{"required": output["required"]}, map[string]any{"required": []string{exportProof}, "maxProperties": 1},
	}
	delete(output, "required")
	return edge.Must(json.Marshal(output))
}

// withMember returns the schema of an object with exportProof as another member.
func withMember(schema json.RawMessage, member string) (object map[string]any) {
	if err := json.Unmarshal(schema, &object); err != nil {
		panic(fmt.Sprintf("the published contract is part of the program: %v", err))
	}
	object["properties"].(map[string]any)[exportProof] = json.RawMessage(member)
	return object
}

// export answers evidence, or a transparency log proof if the caller asks for one.
func (s Face) export(ctx context.Context, o *strictjson.Object) (answer, error) {
	if !o.Bool(exportProof, strictjson.Optional) {
		return called(action.ReadExport, s.Evidence)(ctx, o)
	}
	return edge.Called(action.ReadProofNow, edge.Viewed(s.ProofText, func(text string) answer {
		return answer{data: map[string]string{exportProof: text}}
	}))(ctx, o)
}
