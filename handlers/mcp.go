package handlers

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/mcp"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
	"integrityledger/schemas"
)

// mcpEndpoint is one of the two MCP endpoints.
type mcpEndpoint struct {
	*mcp.Endpoint
	tools map[string]tool
	// monthly: every message costs one of the organization's requests of the month.
	monthly bool
}

// tool is what a model may call. It reaches the same functions as REST.
type tool struct {
	name          string
	limits        bool // its answer attests something
	scope         domain.Scope
	granted       bool // of no use to a key without any company
	effect        mcp.Effect
	input, output json.RawMessage
	// read reads the arguments and returns what is to be done with them.
	read func(o *strictjson.Object) toolCall
}

// toolCall answers what REST has in data.
type toolCall func(ctx context.Context, c *call) (any, error)

// called is the same for a tool as posted for a request.
func called[Input any](read func(*strictjson.Object) Input, do action[Input]) func(*strictjson.Object) toolCall {
	return func(o *strictjson.Object) toolCall {
		input := read(o)
		return func(ctx context.Context, c *call) (any, error) { return do(ctx, c, input) }
	}
}

// mcpTexts says what the endpoints and their tools are for, by their names.
//
//go:embed mcp.json
var mcpTexts []byte

// mcpText is what a model reads of an endpoint or a tool in both languages, beside its schemas.
type mcpText struct{ Title, Es, En string }

// in is both languages, this one first.
func (t mcpText) in(language evidence.Language) string {
	if language == evidence.English {
		return t.En + "\n\n" + t.Es
	}
	return t.Es + "\n\n" + t.En
}

// newEndpoint makes an endpoint. The fixed text on what its kind of thing proves stands in the instructions in both
// languages, and in the one given with every tool that attests something.
func (s *server) newEndpoint(name string, kind web.Kind, language evidence.Language, tools []tool) *mcpEndpoint {
	words := map[string]mcpText{}
	if err := json.Unmarshal(mcpTexts, &words); err != nil {
		panic(err) // the file is compiled in
	}
	e := &mcpEndpoint{tools: map[string]tool{}}
	fixed := mcpText{Es: s.limitsText(kind, evidence.Spanish), En: s.limitsText(kind, evidence.English)}
	c := mcp.Config{
		Name: name, Title: words[name].Title, Version: ReadBuild().String(),
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
		c.Tools = append(c.Tools, mcp.Tool{
			Name: t.name, Title: words[t.name].Title, Description: description, Input: t.input, Output: t.output, Effect: t.effect,
			Call: func(ctx context.Context, arguments json.RawMessage) (mcp.Result, error) {
				return s.callTool(ctx, t, arguments)
			},
		})
	}
	e.Endpoint = mcp.New(c)
	return e
}

// limitsText is the fixed text as a list.
func (s *server) limitsText(kind web.Kind, language evidence.Language) string {
	title, points := kind.Limits(language, s.Relationship[language])
	return title + ":\n- " + strings.Join(points, "\n- ")
}

// offers shows a caller the tools that its key may use, now.
func (s *server) offers(ctx context.Context, e *mcpEndpoint) (func(string) bool, error) {
	access := callIn(ctx).access
	granted, asked := false, false
	for _, t := range e.tools {
		asked = asked || t.granted && allows(access, t.scope) == nil
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
		return allows(access, t.scope) == nil && (granted || !t.granted)
	}, nil
}

// callTool takes scope, role and arguments in the order of contract section 2. What the caller can mend is a result,
// with the error of REST.
func (s *server) callTool(ctx context.Context, t tool, arguments json.RawMessage) (mcp.Result, error) {
	data, err := s.runTool(ctx, t, arguments)
	failed := err != nil
	if refused := refusal(err); failed && (refused == nil || refused.Code == domain.Internal) {
		return mcp.Result{}, err
	}
	result := mcp.Result{Failed: failed}
	if failed {
		data = wire.Refused{Error: s.itemError(callIn(ctx), err)}
	} else if resp, whole := data.(response); whole {
		data = resp.data
		if resp.epoch != nil {
			result.Meta = map[string]any{"epoch": *resp.epoch}
		}
	}
	text, err := encode(data)
	result.Object = bytes.TrimSpace(text)
	return result, err
}

func (s *server) runTool(ctx context.Context, t tool, arguments json.RawMessage) (any, error) {
	c := callIn(ctx)
	if err := allows(c.access, t.scope); err != nil {
		return nil, err
	}
	c.scope = t.scope
	value, err := parse(ctx, arguments, "The value of arguments")
	if err != nil {
		return nil, err
	}
	o := c.meter.Decode(value)
	act := t.read(o)
	if err := invalid(o.Problems()); err != nil {
		return nil, err
	}
	return act(ctx, c)
}

// toolFault logs a fault of the service, and returns what the caller may know of it.
func (s *server) toolFault(ctx context.Context, err error) *mcp.Error {
	c := callIn(ctx)
	body := s.itemError(c, err)
	attributes := append([]slog.Attr{slog.String("requestId", c.requestID)}, faultAttributes(err)...)
	s.Log.LogAttrs(ctx, slog.LevelError, "MCP call", attributes...)
	return mcp.Internal(body.Detail, wire.Refused{Error: body})
}

// speak answers the body of a request to an MCP endpoint.
func (s *server) speak(e *mcpEndpoint) handler {
	return func(r *http.Request) (any, error) {
		c := callOf(r)
		versions := r.Header.Values("Mcp-Protocol-Version")
		var request mcp.Request
		wrong := mcp.CheckVersion(versions)
		version := strings.Join(versions, ",")
		if wrong == nil && c.unread == nil {
			request, wrong = mcp.Parse(&c.meter, c.body, version)
		}
		if n, most := len(request.Messages), c.access.PerMinute; n > most { // waiting would change nothing
			request, wrong = mcp.Request{}, mcp.InvalidRequest("This batch has %d messages, and the organization may send %d "+
				"a minute. Send smaller batches.", n, most)
		}
		if late := refusal(c.unread); late != nil && late.Code == domain.RequestTimeout {
			return response{}, c.unread // costs nothing, and net/http has ended the request's context
		}
		if err := s.charge(r, e, request.Messages); err != nil {
			return response{}, err
		}
		switch {
		case c.unread != nil:
			return response{}, c.unread
		case wrong != nil:
			return response{status: http.StatusBadRequest, raw: wrong.JSON(nil)}, nil
		}
		answer := e.Answer(r.Context(), request, version)
		if answer == nil {
			return response{status: http.StatusAccepted, empty: true}, nil
		}
		return response{raw: answer}, nil
	}
}

// charge counts the messages beyond the first, which authenticate has counted, in the organization's minute, and takes
// what all of them cost of its month. A batch that does not fit into either is refused whole and takes nothing of the
// month. Calls that the key's scopes or role do not allow are free; a body that is there and cannot be read costs as
// much as one message. Once the minute is used up, a single call of a tool that takes something away goes on.
func (s *server) charge(r *http.Request, e *mcpEndpoint, messages []mcp.Message) error {
	c := callOf(r)
	if c.spent != nil && (len(messages) != 1 || e.tools[messages[0].Tool].effect != mcp.Destroys) {
		return c.spent
	}
	if more := len(messages) - 1; more > 0 {
		a := c.access
		used, err := s.Store.CountMinute(r.Context(), a.Organization.Shard(), a.Organization, more, c.start)
		if err != nil {
			return err
		}
		c.limits = c.limits[:0]
		if err := c.held(newLimitState(minute, domain.OrganizationMinute, a.PerMinute, used, c.start)); err != nil {
			return err
		}
	}
	if !e.monthly {
		return nil
	}
	cost := 0
	for _, m := range messages {
		if t, known := e.tools[m.Tool]; !known || allows(c.access, t.scope) == nil {
			cost++
		}
	}
	if len(messages) == 0 {
		cost = 1
	}
	if cost == 0 {
		return nil
	}
	return s.Store.TakeRequests(r.Context(), c.access, cost, c.start)
}

// foreign says why a request looks like one of another site's page (MCP, Transports, Security Warning), or nothing.
// Programs send no Origin. A page whose name was pointed at a local service (DNS rebinding) sends that name as Host, as
// does a proxy that passes the name of its upstream; but it holds no key, and no browser adds one by itself.
func (s *server) foreign(r *http.Request) *response {
	if why := s.looksForeign(r); why != "" {
		return &response{status: http.StatusForbidden, raw: mcp.InvalidRequest("%s", why).JSON(nil)}
	}
	return nil
}

func (s *server) looksForeign(r *http.Request) string {
	base, err := url.Parse(s.BaseURL)
	origins := r.Header.Values("Origin")
	if err != nil || len(origins) > 1 || len(origins) == 1 && !strings.EqualFold(origins[0], base.Scheme+"://"+base.Host) {
		return "Pages of other sites may not call this endpoint."
	}
	if strings.EqualFold(r.Host, base.Host) || domain.IsLoopbackHost(strings.ToLower((&url.URL{Host: r.Host}).Hostname())) ||
		!onLoopback(r) || among(s.TrustedProxies, peerAddress(r)) {
		return ""
	}
	if _, presented := bearerText(r.Header); presented {
		return ""
	}
	return "Without a key this endpoint may not be called under another name than its own. " +
		"Behind a proxy, have it pass the Host header, or name it in INTEGRITY_TRUSTED_PROXIES."
}

// onLoopback reports whether a request came in at a loopback address of this machine.
func onLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().IsLoopback()
}

// object is a schema of the published contract.
func object(file, component string, parameters ...string) json.RawMessage {
	return must(schemas.Object(file, component, parameters...))
}

// certificateOnly is the contract's VerifyRequest without a hash.
const certificateOnly = `{"type":"object","additionalProperties":false,"required":["publicId"],"properties":{"publicId":{"type":"string","description":"Of a certificate."}}}`

// ordinaryMCP has read-oriented tools (specification, MCP endpoints).
func (s *server) ordinaryMCP() *mcpEndpoint {
	const contract = schemas.CertificationOpenAPIFile
	e := s.newEndpoint("integrity-ledger", web.Certificate, evidence.Spanish, []tool{
		{name: "verificar_documento", scope: domain.VerifyRead, effect: mcp.Reads, limits: true,
			input: object(contract, "VerifyRequest"), output: object(contract, "Verification"),
			read: called(readVerification, s.verifyHash)},
		{name: "verificar_certificado", scope: domain.VerifyRead, effect: mcp.Reads, limits: true,
			input: json.RawMessage(certificateOnly), output: object(contract, "PublicVerification"),
			read: func(o *strictjson.Object) toolCall {
				id := publicID(o.String("publicId", strictjson.Required))
				return func(ctx context.Context, _ *call) (any, error) { return s.verifyPublished(ctx, id, nil) }
			}},
		{name: "listar_documentos", scope: domain.ArtifactsRead, effect: mcp.Reads,
			input: object(contract, "", "pageLimit", "offset"), output: object(contract, "Artifacts"),
			read: func(o *strictjson.Object) toolCall {
				limit, offset := readPage(o)
				return func(ctx context.Context, c *call) (any, error) { return s.artifactsOf(ctx, c, limit, offset) }
			}},
		{name: "consultar_consumo", scope: anyScope, effect: mcp.Reads,
			input: object(contract, ""), output: object(contract, "AccountUsage"),
			read: func(*strictjson.Object) toolCall {
				return func(ctx context.Context, c *call) (any, error) { return s.monthOf(ctx, c) }
			}},
	})
	e.monthly = true
	return e
}

// integrityMCP has the tools of hash-only registration.
func (s *server) integrityMCP() *mcpEndpoint {
	const contract = schemas.OpenAPIFile
	return s.newEndpoint("integrity-ledger-integrity", web.Record, evidence.English, []tool{
		{name: "integrity_reserve", scope: domain.IntegrityWrite, granted: true, effect: mcp.Repeats,
			input: object(contract, "ReservationRequest"), output: object(contract, "Reservation"),
			read: called(domain.ReadVersionReference, single(s, s.reserve))},
		{name: "integrity_register", scope: domain.IntegrityWrite, granted: true, effect: mcp.Repeats, limits: true,
			input: object(contract, "Declaration"), output: object(contract, "Registration"),
			read: called(domain.ReadDeclaration, single(s, s.register))},
		{name: "integrity_lookup", scope: domain.IntegrityRead, granted: true, effect: mcp.Reads,
			input:  object(contract, "", "lookupPublicId", "lookupCompany", "lookupSource", "lookupDocument", "lookupVersion"),
			output: object(contract, "RecordView"), read: s.readLookup},
		{name: "integrity_changes", scope: domain.IntegrityRead, granted: true, effect: mcp.Reads,
			input: object(contract, "", "companyReference", "sequence", "epoch", "limit"), output: object(contract, "Feed"),
			read: func(o *strictjson.Object) toolCall {
				company := domain.ReadReference(o, "companyReference")
				after, limit := integer(o, "after", 0, strictjson.MaxInteger, 0), integer(o, "limit", 1, maxFeedLimit, feedLimit)
				epoch := integer(o, "epoch", 0, strictjson.MaxInteger, query.AnyEpoch)
				return func(ctx context.Context, c *call) (any, error) {
					page, known, err := s.changesAfter(ctx, c.access, company, epoch, after, int(limit))
					return response{data: page, epoch: &known}, err
				}
			}},
		{name: "integrity_export", scope: domain.IntegrityRead, granted: true, effect: mcp.Reads, limits: true,
			input: object(contract, "", "publicId", "at", "timestamps"), output: object(contract, "Evidence"),
			read: func(o *strictjson.Object) toolCall {
				id, at := publicID(o.String("publicId", strictjson.Required)), readMoment(o)
				timestamps := o.Bool("timestamps", strictjson.Optional)
				return func(ctx context.Context, c *call) (any, error) { return s.export(ctx, c, id, at, timestamps) }
			}},
		{name: "integrity_revoke", scope: domain.IntegrityRevoke, granted: true, effect: mcp.Destroys,
			input: object(contract, "RevokeRequest", "publicId"), output: object(contract, "RevokedRecord"),
			read: func(o *strictjson.Object) toolCall {
				revoked := domain.Revoke{PublicID: publicID(o.String("publicId", strictjson.Required)), Reason: readReason(o)}
				return func(ctx context.Context, c *call) (any, error) { return single(s, s.revokeRecord)(ctx, c, revoked) }
			}},
		{name: "integrity_verify", scope: domain.IntegrityRead, effect: mcp.Reads, limits: true,
			input: object(contract, "", "publicId", "sha256"), output: object(contract, "Comparison"),
			read: func(o *strictjson.Object) toolCall {
				id, hash := publicID(o.String("publicId", strictjson.Required)), optionalHash(o)
				return func(ctx context.Context, _ *call) (any, error) { return s.comparison(ctx, id, hash) }
			}},
	})
}
