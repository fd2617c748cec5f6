package schemas_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"integrityledger/domain/evidence"
	"integrityledger/schemas"
)

// exemplified requires that a body has examples in each of its media types.
func exemplified(t *testing.T, what string, content any) {
	t.Helper()
	types, _ := content.(map[string]any)
	for name, value := range types {
		media := value.(map[string]any)
		named, _ := media["examples"].(map[string]any)
		if _, one := media["example"]; !one && len(named) == 0 {
			t.Errorf("%s has no example of %s", what, name)
		}
	}
}

// TestExamplesOfEveryOperation: every request body, response and error has an example that is valid under its schema.
func TestExamplesOfEveryOperation(t *testing.T) {
	for file, document := range documents(t) {
		operations(document, func(_, _ string, operation map[string]any) {
			name := operation["operationId"].(string)
			if body, sends := operation["requestBody"].(map[string]any); sends {
				exemplified(t, name, body["content"])
			}
			for status, response := range operation["responses"].(map[string]any) {
				exemplified(t, name+" "+status, response.(map[string]any)["content"])
			}
		})
		for name, response := range document["components"].(map[string]any)["responses"].(map[string]any) {
			exemplified(t, name, response.(map[string]any)["content"])
		}
		text, err := schemas.File(file)
		check(t, err)
		loaded, err := openapi3.NewLoader().LoadFromData(text)
		check(t, err)
		check(t, loaded.Validate(context.Background(), openapi3.EnableExamplesValidation()))
	}
}

// exampleOf returns the example of an operation's response.
func exampleOf(t *testing.T, file, id, status, mediaType string) (text json.RawMessage) {
	t.Helper()
	operations(documents(t)[file], func(_, _ string, operation map[string]any) {
		if operation["operationId"] == id {
			answer := operation["responses"].(map[string]any)[status].(map[string]any)["content"].(map[string]any)[mediaType]
			encoded, err := json.Marshal(answer.(map[string]any)["example"])
			check(t, err)
			text = encoded
		}
	})
	return text
}

// proofOf returns the transparency log proof in an example.
func proofOf(t *testing.T, id string) json.RawMessage {
	t.Helper()
	var text string
	check(t, json.Unmarshal(exampleOf(t, schemas.OpenAPIFile, id, "200", "text/plain"), &text))
	return json.RawMessage(text)
}

// exampleDocument is the file that the examples are about.
const exampleDocument = "%PDF-1.7 a document\n"

// TestExamplesAgree: with the published keys, the evidence, its inclusion and the certificate in the examples verify
// against the file, and all examples of the record and its registration agree.
func TestExamplesAgree(t *testing.T) {
	const id, event = "k3v7q2mzt5h4nw6cjd2ray3xpa", "evt_01jd4gq5k2f8m9x3v7w6t5r4e1"
	trust, err := evidence.ParseTrustedKeys(exampleOf(t, schemas.OpenAPIFile, "getTrustedKeys", "200", "application/json"))
	check(t, err)
	var whole map[string]any
	check(t, json.Unmarshal(exampleOf(t, schemas.OpenAPIFile, "getEvidence", "200", "application/json"), &whole))
	var inclusion struct{ Data map[string]any }
	check(t, json.Unmarshal(exampleOf(t, schemas.OpenAPIFile, "getInclusion", "200", "application/json"), &inclusion))
	var checkpoint string
	check(t, json.Unmarshal(exampleOf(t, schemas.OpenAPIFile, "getLogCheckpoint", "200", "text/plain"), &checkpoint))
	if checkpoint != inclusion.Data["checkpoint"] {
		t.Errorf("the checkpoint of the log is %q, that of the inclusion %q", checkpoint, inclusion.Data["checkpoint"])
	}
	whole["inclusion"] = inclusion.Data
	hash := sha256.Sum256([]byte(exampleDocument))
	exported, err := json.Marshal(whole)
	check(t, err)
	for name, text := range map[string]json.RawMessage{
		"evidence":    exported,
		"receipt":     exampleOf(t, schemas.OpenAPIFile, "getReceipt", "200", "application/json"),
		"certificate": exampleOf(t, schemas.CertificationOpenAPIFile, "downloadCertificate", "200", "application/json"),
		"proof":       proofOf(t, "getTlogProof"), "public proof": proofOf(t, "getPublicTlogProof"),
	} {
		found := evidence.Verify(text, trust, evidence.Options{
			Document: &evidence.Document{SHA256: hex.EncodeToString(hash[:]), Size: int64(len(exampleDocument))},
			Now:      time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), RequireReferences: name == "evidence" || name == "proof",
			RequireInclusion: name == "evidence",
		})
		if found.ExitCode() != 0 || found.FileMatch == nil || !*found.FileMatch {
			t.Errorf("the %s of the examples: %+v", name, found)
		}
	}

	signed := evidence.Verify(exported, trust, evidence.Options{}).Record
	told := map[string]map[string]any{
		"publicId": {
			"sha256": signed.SHA256.String(), "sizeBytes": json.Number(strconv.FormatInt(signed.SizeBytes, 10)),
			"mimeType":    signed.MimeType,
			"generatedAt": string(signed.GeneratedAt), "receivedAt": evidence.FormatTime(signed.ReceivedAt),
			"companyReference": "c-7f3a91", "source": "erp", "documentReference": "inv-2026-0001", "version": json.Number("1"),
		},
		"id":      {"sequence": json.Number("17"), "publicId": id},
		"eventId": {"sequence": json.Number("17")},
	}
	telling := 0
	visitExamples(documents(t)[schemas.OpenAPIFile], func(pointer string, o map[string]any) {
		for name, members := range told {
			if o[name] != id && o[name] != event {
				continue
			}
			telling++
			for member, want := range members {
				if got, has := o[member]; has && got != want && got != nil {
					t.Errorf("%s: %s is %v, want %v", pointer, member, got, want)
				}
			}
		}
	})
	if telling < 20 {
		t.Errorf("%d examples tell of the record", telling)
	}
}

// visitExamples calls see for every object within the examples of a document.
func visitExamples(value any, see func(pointer string, object map[string]any)) {
	var within func(value any, pointer string)
	within = func(value any, pointer string) {
		switch v := value.(type) {
		case map[string]any:
			see(pointer, v)
			for name, member := range v {
				within(member, pointer+"/"+name)
			}
		case []any:
			for _, member := range v {
				within(member, pointer+"/")
			}
		}
	}
	visit(value, "", func(pointer string, object map[string]any) {
		for _, name := range []string{"example", "value"} {
			if example, has := object[name]; has {
				within(example, pointer)
			}
		}
	})
}
