package handlers_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"integrityledger/domain/evidence"
)

// Evidence from the service follows the schemas that the service publishes.
func TestEvidenceFollowsItsSchemas(t *testing.T) {
	s := open(t, options{})
	published := func(name string) *jsonschema.Schema {
		text := s.public("/schemas/" + name)
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text.body))
		check(t, err)
		compiler := jsonschema.NewCompiler()
		compiler.AssertFormat()
		check(t, compiler.AddResource(name, document))
		schema, err := compiler.Compile(name)
		check(t, err)
		return schema
	}
	envelope, record, status := published("integrity-evidence-v1.json"), published("integrity-v1.json"), published(
		"integrity-status-v1.json",
	)
	follows := func(schema *jsonschema.Schema, text []byte) {
		t.Helper()
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		check(t, err)
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	id := s.registered("a", 1, "one")
	path := integrity + "/records/" + id
	receipt := s.public("/api/public/integrity/" + id + "/receipt")
	answers := []answer{receipt, s.get(path + "/evidence")}
	s.registered("a", 2, "two")
	answers = append(answers, s.get(path+"/evidence"))
	s.post(path+"/revoke", nil).is(http.StatusOK)
	answers = append(answers, s.get(path+"/evidence"))
	history := s.get(
		path + "/evidence?at=" + strconv.Itoa(int(
			s.get(certificationAction + "/audit-events?limit=1").is(http.StatusOK)["total"].(float64),
		)),
	)
	follows(envelope, history.body)
	var then evidence.Envelope
	check(t, json.Unmarshal(history.body, &then))
	follows(published("integrity-status-as-of-v1.json"), []byte(then.StatusAsOf.Payload))
	for i, a := range answers {
		follows(envelope, a.body)
		var e evidence.Envelope
		check(t, json.Unmarshal(a.body, &e))
		follows(record, []byte(e.Payload))
		if (e.StatusObservation == nil) != (i == 0) {
			t.Fatalf("%s", a.body)
		}
		if e.StatusObservation != nil {
			follows(status, []byte(e.StatusObservation.Payload))
		}
	}
}
