package schemas_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/schemas"
)

func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	text, err := schemas.File(name)
	check(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	check(t, compiler.AddResource(name, parse(t, text)))
	schema, err := compiler.Compile(name)
	check(t, err)
	return schema
}

func parse(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	check(t, err)
	return value
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const vectors = "../domain/evidence/testdata/"

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(vectors + name)
	check(t, err)
	return text
}

func TestEverySchemaIsClosedAndCompiles(t *testing.T) {
	names, err := filepath.Glob("*-v1.json")
	check(t, err)
	for _, name := range names {
		compile(t, name)
		text, err := schemas.File(name)
		check(t, err)
		closed(t, name, parse(t, text))
	}
	for _, name := range []string{schemas.OpenAPIFile, schemas.CertificationOpenAPIFile} {
		if _, err := schemas.Schema(name, "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is no schema: %v", name, err)
		}
	}
}

// TestOpenAPIDocumentsAgree: a component of both documents is the same in both, except for error codes and the limits
// that a header can name.
func TestOpenAPIDocumentsAgree(t *testing.T) {
	components := func(file string) map[string]any {
		text, err := schemas.File(file)
		check(t, err)
		return parse(t, text).(map[string]any)["components"].(map[string]any)
	}
	integrity, compared := components(schemas.OpenAPIFile), 0
	for kind, named := range components(schemas.CertificationOpenAPIFile) {
		for name, older := range named.(map[string]any) {
			same, shared := integrity[kind].(map[string]any)[name]
			if !shared || kind == "headers" && strings.HasPrefix(name, "MaybeRateLimit") {
				continue
			}
			if kind == "schemas" && name == "ApiError" {
				delete(older.(map[string]any)["properties"].(map[string]any), "code")
				delete(same.(map[string]any)["properties"].(map[string]any), "code")
			}
			compared++
			if !reflect.DeepEqual(older, same) {
				t.Errorf("%s of %s differs between the documents", name, kind)
			}
		}
	}
	if compared < 20 {
		t.Errorf("%d components were compared, want at least 20", compared)
	}
}

// closed requires every object to refuse unknown members, and every pattern to match in full. Verifiers ignore unknown
// members of a trusted-keys file.
func closed(t *testing.T, where string, value any) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		if v["type"] == "object" && v["additionalProperties"] != false && !strings.HasSuffix(where, "/trustedKeys") {
			t.Errorf("%s is open", where)
		}
		if p, ok := v["pattern"].(string); ok && (!strings.HasPrefix(p, "^") || !strings.HasSuffix(p, "$")) {
			t.Errorf("%s: the pattern %s does not match in full", where, p)
		}
		for name, part := range v {
			closed(t, where+"/"+name, part)
		}
	case []any:
		for _, part := range v {
			closed(t, where, part)
		}
	}
}

func TestVectorsFollowTheSchemas(t *testing.T) {
	for file, name := range map[string]string{
		"private-evidence.json": "integrity-evidence-v1.json", "public-receipt.json": "integrity-evidence-v1.json",
		"record.canonical.json": "integrity-v1.json", "status.canonical.json": "integrity-status-v1.json",
		"status-as-of.canonical.json": "integrity-status-as-of-v1.json",
	} {
		if err := compile(t, name).Validate(parse(t, read(t, file))); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if compile(t, "integrity-status-v1.json").Validate(parse(t, read(t, "status-as-of.canonical.json"))) == nil {
		t.Error("history passes for an observation")
	}
	if compile(t, "integrity-status-as-of-v1.json").Validate(parse(t, read(t, "status.canonical.json"))) == nil {
		t.Error("an observation passes for history")
	}
}

// TestSchemasAgreeWithTheReader: the schema and the reader refuse the same payloads.
func TestSchemasAgreeWithTheReader(t *testing.T) {
	const longest = 9007199254740991
	record := map[string][]any{
		"contract":   {"integrity-v2", "Integrity-v1", nil, 1},
		"algorithm":  {"SHA-512", "sha-256"},
		"timeSource": {"rfc3161"},
		"issuer":     {"", "a\nb", "a\x7f", strings.Repeat("é", 512), strings.Repeat("é", 513), "é"},
		"publicId": {
			"", strings.Repeat("a", 25), strings.Repeat("a", 27), strings.Repeat("A", 26), strings.Repeat("a", 26) + "\n",
		},
		"sha256":    {strings.Repeat("A", 64), strings.Repeat("a", 63), strings.Repeat("g", 64)},
		"sizeBytes": {-1, 0, longest, longest + 1, "1", nil, 1.5},
		"mimeType": {
			"a/b", "A/b", "a", "a/b; c=d", "a/" + strings.Repeat("b", 127), "a/" + strings.Repeat("b", 128), "/b",
		},
		"generatedAt": {
			"2026-11-19T09:30:00Z", "2026-11-19T09:30:00.10Z", "2026-11-19T09:30:00.123456789Z",
			"2026-11-19T09:30:00.1234567891Z", "2026-02-30T00:00:00Z", "2026-11-19T09:30:00+00:00", "0000-01-01T00:00:00Z",
			"0001-01-01T00:00:00Z", "2026-11-19T23:59:60Z", "2024-02-29T00:00:00Z", "2026-11-19T24:00:00Z",
			"2026-11-19t09:30:00z",
		},
		"receivedAt": {
			"2026-11-19T09:30:00.123456Z", "2026-11-19T09:30:00.1234567Z", "2026-11-19T09:30:00.0Z", "2026-13-01T00:00:00Z",
		},
		"referencesSha256": {"", strings.Repeat("0", 64)},
		"extra":            {1},
	}
	status := map[string][]any{
		"contract":      {"integrity-status-as-of-v1"},
		"publicId":      {"x"},
		"payloadSha256": {"x"},
		"status":        {"current", "superseded", "revoked", "pending", "Current"},
		"observedAt":    {"2026-11-20T12:00:00Z", "2026-11-20T12:00:00.1234567Z", "x"},
		"sequence":      {0, 1, longest, longest + 1, -1},
		"asOf":          {"2026-11-20T12:00:00Z"},
	}
	asOf := map[string][]any{
		"contract":      {"integrity-status-v1"},
		"publicId":      {"x"},
		"payloadSha256": {"x"},
		"status":        {"current", "superseded", "revoked", "pending"},
		"observedAt":    {"2026-11-20T12:00:00.1234567Z"},
		"sequence":      {0, longest, longest + 1},
		"asOf":          {"2026-11-20T12:00:00Z", "2026-11-20T12:00:00.1234567Z", "2026-11-20T12:00:00.0Z", nil, 1},
		"asOfSequence":  {0, 1, longest, longest + 1, -1, "1"},
		"extra":         {1},
	}
	certificate := map[string][]any{
		"contract":         {"integrity-v1", "certificate-v2", nil},
		"algorithm":        {"SHA-512"},
		"timeSource":       {"rfc3161"},
		"issuer":           {"", "a\nb", strings.Repeat("é", 512), strings.Repeat("é", 513)},
		"publicId":         {"", strings.Repeat("A", 26)},
		"sha256":           {strings.Repeat("A", 64), strings.Repeat("a", 63)},
		"sizeBytes":        {-1, 0, longest, longest + 1, "1"},
		"issuedAt":         {"2026-11-20T12:00:00Z", "2026-11-20T12:00:00.1234567Z", "2026-13-01T00:00:00Z"},
		"title":            {"", "é", strings.Repeat("é", 200), strings.Repeat("é", 201), "a\nb", "a\x7f", nil, 1},
		"organizationName": {"", "Example", strings.Repeat("é", 201), nil},
		"extra":            {1},
	}
	alias := map[string][]any{
		"contract":      {"integrity-v1", "integrity-alias-v2", nil},
		"issuer":        {"", "a\nb", strings.Repeat("é", 512), strings.Repeat("é", 513)},
		"publicId":      {"", strings.Repeat("A", 26)},
		"aliasOf":       {"", strings.Repeat("b", 26), strings.Repeat("b", 27), nil},
		"receiptSha256": {"", strings.Repeat("0", 64), strings.Repeat("A", 64), nil, 1},
		"aliasedAt":     {"2026-11-20T12:00:00Z", "2026-11-20T12:00:00.1234567Z", "2026-13-01T00:00:00Z"},
		"extra":         {1},
	}
	former := evidence.AliasPayload{
		Issuer: "https://ledger.example", PublicID: strings.Repeat("a", 26), AliasOf: strings.Repeat("b", 26),
		AliasedAt: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
	}.AppendCanonical(nil)
	publisher := map[string][]any{
		"contract":   {"integrity-v1", "integrity-publisher-v2", nil},
		"issuer":     {"", "a\nb", strings.Repeat("é", 513)},
		"publicId":   {"", strings.Repeat("A", 26)},
		"name":       {"", nil, "é", strings.Repeat("é", 201), "a\nb", 1},
		"statedAt":   {nil, "2026-11-20T12:00:00.1234567Z", "2026-13-01T00:00:00Z", 1},
		"observedAt": {"2026-11-20T12:00:00Z", "2026-13-01T00:00:00Z", nil},
		"domains": {
			[]any{}, nil, []any{1}, []any{map[string]any{}},
			[]any{map[string]any{"domain": "a.example", "method": "https", "checkedAt": "2026-11-20T12:00:00Z"}},
			[]any{map[string]any{"domain": "A.example", "method": "dns", "checkedAt": "2026-11-20T12:00:00Z"}},
			[]any{map[string]any{"domain": "example", "method": "dns", "checkedAt": "2026-11-20T12:00:00Z"}},
			[]any{map[string]any{"domain": "a..example", "method": "dns", "checkedAt": "2026-11-20T12:00:00Z"}},
			[]any{map[string]any{"domain": "a.example", "method": "mail", "checkedAt": "2026-11-20T12:00:00Z"}},
			[]any{map[string]any{"domain": "a.example", "method": "dns", "checkedAt": "yesterday"}},
			[]any{map[string]any{"domain": "a.example", "method": "dns", "checkedAt": "2026-11-20T12:00:00Z", "extra": 1}},
		},
		"extra": {1},
	}
	title, organization := "Título", "Example"
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	statement := evidence.PublisherPayload{
		Issuer: "https://ledger.example", PublicID: strings.Repeat("a", 26), Name: &organization, StatedAt: &at, ObservedAt: at,
		Domains: []evidence.PublisherDomain{{Domain: "transportes.example", Method: "dns", CheckedAt: at}},
	}.AppendCanonical(nil)
	signed := evidence.CertificatePayload{
		Issuer: "https://ledger.example", PublicID: strings.Repeat("a", 26), SizeBytes: 1,
		IssuedAt: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Title: &title, OrganizationName: &organization,
	}.AppendCanonical(nil)
	for _, c := range []struct {
		schema  string
		text    []byte
		changes map[string][]any
		read    func([]byte) error
	}{
		{"certificate-v1.json", signed, certificate, func(b []byte) error {
			_, err := evidence.ParseCertificatePayload(b)
			return err
		}},
		{"integrity-alias-v1.json", former, alias, func(b []byte) error {
			_, err := evidence.ParseAliasPayload(b)
			return err
		}},
		{"integrity-publisher-v1.json", statement, publisher, func(b []byte) error {
			_, err := evidence.ParsePublisherPayload(b)
			return err
		}},
		{"integrity-v1.json", read(t, "record.canonical.json"), record, func(b []byte) error {
			_, err := evidence.ParseRecordPayload(b)
			return err
		}},
		{"integrity-status-v1.json", read(t, "status.canonical.json"), status, func(b []byte) error {
			_, err := evidence.ParseStatusPayload(b)
			return err
		}},
		{"integrity-status-as-of-v1.json", read(t, "status-as-of.canonical.json"), asOf, func(b []byte) error {
			_, err := evidence.ParseStatusAsOfPayload(b)
			return err
		}},
	} {
		schema := compile(t, c.schema)
		same := func(what string, members map[string]any) {
			t.Helper()
			text := canonical(t, members)
			refused, invalid := c.read(text), schema.Validate(parse(t, text))
			if (refused == nil) != (invalid == nil) {
				t.Errorf("%s, %s: the reader says %v, the schema %v", c.schema, what, refused, invalid)
			}
		}
		members := map[string]any{}
		check(t, json.Unmarshal(c.text, &members))
		for name, values := range c.changes {
			for _, value := range values {
				changed := map[string]any{}
				for k, v := range members {
					changed[k] = v
				}
				changed[name] = value
				same(name+" "+string(canonical(t, map[string]any{"": value})), changed)
				delete(changed, name)
				same("without "+name, changed)
			}
		}
	}
}

// TestKeySetsFollowTheSchemas: the schemas accept the payload and the extra data of every proof that verifiers accept, and
// refuse every form that they refuse because of a member.
func TestKeySetsFollowTheSchemas(t *testing.T) {
	text, err := schemas.File(schemas.KeySetVectorsFile)
	check(t, err)
	var file struct {
		Vectors []struct {
			Name, Proof string
			Expect      any
		}
	}
	check(t, json.Unmarshal(text, &file))
	set, proof := compile(t, "integrity-key-set-v1.json"), compile(t, "integrity-key-set-proof-v1.json")
	formal := []string{ // a schema cannot see these, or does not know what the member means
		"payload: white space", "payload: members in another order", "payload: a member twice", "extra data: white space",
		"payload: a critical member of the file",
	}
	valid, invalid := 0, 0
	for _, v := range file.Vectors {
		_, rest, _ := strings.Cut(v.Proof, "\nextra ")
		line, _, _ := strings.Cut(rest, "\n")
		extra, err := base64.StdEncoding.DecodeString(line)
		check(t, err)
		var members struct{ Payload string }
		check(t, json.Unmarshal(extra, &members))
		wrong := proof.Validate(parse(t, extra))
		if wrong == nil {
			var payload any // a decoder that takes the last of two equal members
			check(t, json.Unmarshal([]byte(members.Payload), &payload))
			wrong = set.Validate(payload)
		}
		switch byForm := strings.Contains(v.Name, "data: ") || strings.HasPrefix(v.Name, "payload: "); {
		case v.Expect != nil && wrong != nil:
			t.Errorf("%s: %v", v.Name, wrong)
		case v.Expect != nil:
			valid++
		case byForm && wrong == nil && !slices.Contains(formal, v.Name):
			t.Errorf("%s: the schemas accept it", v.Name)
		case byForm:
			invalid++
		}
	}
	if valid < 15 || invalid < 10 {
		t.Errorf("%d valid and %d invalid proofs were compared", valid, invalid)
	}
}

// canonical encodes members in RFC 8785 form, provided that no number is beyond 2^53.
func canonical(t *testing.T, members map[string]any) []byte {
	t.Helper()
	if size, ok := members["sizeBytes"].(float64); ok {
		members["sizeBytes"] = int64(size)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	check(t, encoder.Encode(members)) // sorts the members
	return bytes.ReplaceAll(bytes.TrimSpace(b.Bytes()), []byte(`\u007f`), []byte("\x7f"))
}

func TestManifestAndWebhook(t *testing.T) {
	file := `{"path":"a/b.txt","size":52428800,"sha256":"` + strings.Repeat("0", 64) + `"}`
	manifest := `{"kind":"service-file-manifest","version":1,"algorithm":"SHA-256","files":[` + file + `]}`
	event := `{"id":"evt_01m7xjc41af0wbvekkbvrb6efb","occurredAt":"2026-11-20T22:48:58.156728Z","publicId":"slybcmywq5pol5cqj3zv37sfiy",` +
		`"companyReference":"c","source":"s","documentReference":"d","documentVersion":1,"recordStatus":"current","version":1}`
	for name, cases := range map[string]map[string]bool{
		"file-manifest-v1.json": {
			manifest:                               true,
			strings.Replace(manifest, file, "", 1): false,
			strings.Replace(manifest, file, strings.TrimSuffix(strings.Repeat(file+",", 100), ","), 1): true,
			strings.Replace(manifest, file, strings.TrimSuffix(strings.Repeat(file+",", 101), ","), 1): false,
			strings.Replace(manifest, "a/b.txt", strings.Repeat("é", 500), 1):                          true,
			strings.Replace(manifest, "a/b.txt", strings.Repeat("é", 501), 1):                          false,
			strings.Replace(manifest, "52428800", "52428801", 1):                                       false,
			strings.Replace(manifest, `"size"`, `"mode":1,"size"`, 1):                                  false,
			strings.Replace(manifest, `:1,`, `:2,`, 1):                                                 false,
		},
		"integrity-webhook-v1.json": {
			event: true,
			strings.Replace(event, `"version":1`, `"version":2`, 1):                 false,
			strings.Replace(event, `"source":"s",`, ``, 1):                          false,
			strings.Replace(event, `{`, `{"sha256":"",`, 1):                         false,
			strings.Replace(event, `"documentVersion":1`, `"documentVersion":0`, 1): false,
		},
	} {
		schema := compile(t, name)
		for text, want := range cases {
			if err := schema.Validate(parse(t, []byte(text))); (err == nil) != want {
				t.Errorf("%s: %.120s: %v", name, text, err)
			}
			// A manifest that the program accepts is valid under the schema. The program refuses more: paths must also be safe
			// and unique.
			if _, _, err := domain.ReadManifest(new(strictjson.Meter), []byte(text)); err == nil && !want {
				t.Errorf("%s: the program reads %.120s", name, text)
			}
		}
	}
}

func TestOpenAPIAddress(t *testing.T) {
	text, err := schemas.OpenAPI(
		schemas.OpenAPIFile, "https://other.example.org", "an independent audit", `a "real" <audit>`,
	)
	check(t, err)
	var document struct{ Servers []struct{ URL string } }
	check(t, json.Unmarshal(text, &document))
	if document.Servers[0].URL != "https://other.example.org" || !bytes.Contains(text, []byte(`a \"real\" <audit>`)) {
		t.Errorf("%v", document.Servers)
	}
	// Signed payloads are not rewritten.
	if !bytes.Contains(text, []byte(`\"issuer\":\"https://ledger.example\"`)) {
		t.Error("the payload of an example was changed")
	}
}

// TestObject: a resolved component keeps its bounds, has no references and is closed.
func TestObject(t *testing.T) {
	text, err := schemas.Object(schemas.OpenAPIFile, "RevokeRequest", "publicId", "sequence")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Properties map[string]map[string]any
		Required   []string
	}
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	if len(object.Properties) != 3 || len(object.Required) != 1 || object.Required[0] != "publicId" ||
		object.Properties["after"]["description"] == "" {
		t.Errorf("%s", text)
	}
	if !bytes.Contains(text, []byte(`"maximum":9007199254740991`)) {
		t.Errorf("a bound has lost digits: %s", text)
	}

	evidence, err := schemas.Object(schemas.OpenAPIFile, "Evidence")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(evidence, []byte("$ref")) ||
		!bytes.Contains(evidence, []byte(`"payloadSha256"`)) && !bytes.Contains(evidence, []byte(`"leafIndex"`)) {
		t.Errorf("%s", evidence)
	}
	for _, schema := range []json.RawMessage{text, evidence} {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
		if err != nil {
			t.Fatal(err)
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource("https://ledger.example/object.json", document); err != nil {
			t.Fatal(err)
		}
		compiled, err := compiler.Compile("https://ledger.example/object.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := compiled.Validate(map[string]any{"other": 1}); err == nil {
			t.Errorf("the object is not closed: %s", schema)
		}
	}
	for _, missing := range []func() (json.RawMessage, error){
		func() (json.RawMessage, error) { return schemas.Object("no.json", "") },
		func() (json.RawMessage, error) { return schemas.Object(schemas.OpenAPIFile, "Nothing") },
		func() (json.RawMessage, error) { return schemas.Object(schemas.OpenAPIFile, "", "nothing") },
	} {
		if schema, err := missing(); err == nil {
			t.Errorf("%s", schema)
		}
	}
}

// TestAuditDetailsAreDocumented: the document names exactly the members of every action's details.
func TestAuditDetailsAreDocumented(t *testing.T) {
	text, err := schemas.File(schemas.CertificationOpenAPIFile)
	check(t, err)
	var document struct {
		Components struct {
			Schemas struct {
				AuditDetails struct {
					Properties map[string]struct{ Description string }
				}
			}
		}
	}
	check(t, json.Unmarshal(text, &document))
	want := map[string][]string{}
	for _, action := range domain.EventTypes() {
		for _, name := range domain.AuditDetailNames(action) {
			want[name] = append(want[name], string(action))
		}
	}
	properties := document.Components.Schemas.AuditDetails.Properties
	for name, actions := range want {
		if of := "Of " + strings.Join(actions, ", ") + "."; !strings.HasPrefix(properties[name].Description, of) {
			t.Errorf("%s: %q, want it to begin with %q", name, properties[name].Description, of)
		}
	}
	if len(properties) != len(want) {
		t.Errorf("%d members are documented, there are %d", len(properties), len(want))
	}
}

// TestReleases: releases.json follows its schema, and its newest entry describes the version of this program. Versions
// descend, and dates do not ascend.
func TestReleases(t *testing.T) {
	text, err := schemas.File(schemas.ReleasesFile)
	check(t, err)
	check(t, compile(t, "releases-v1.json").Validate(parse(t, text)))
	releases, err := schemas.Releases()
	check(t, err)
	if releases[0].Version != domain.ThisRelease.String() {
		t.Errorf("the newest release is %s, the program is %s", releases[0].Version, domain.ThisRelease)
	}
	number := func(r schemas.Release) (n domain.Release) {
		for part := range strings.SplitSeq(r.Version, ".") {
			i, err := strconv.Atoi(part)
			check(t, err)
			n = n*1000 + domain.Release(i)
		}
		return n
	}
	for i, r := range releases {
		if len(r.Notes["en"]) != len(r.Notes["es"]) {
			t.Errorf("%s has %d notes in English, %d in Spanish", r.Version, len(r.Notes["en"]), len(r.Notes["es"]))
		}
		if i > 0 && (number(r) >= number(releases[i-1]) || r.Date > releases[i-1].Date) {
			t.Errorf("%s (%s) comes after %s (%s)", r.Version, r.Date, releases[i-1].Version, releases[i-1].Date)
		}
	}
}
