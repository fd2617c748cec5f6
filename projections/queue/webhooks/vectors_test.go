package webhooks_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/schemas"
)

var update = flag.Bool(
	"update", false, "write schemas/"+schemas.WebhookVectorsFile+" and the delivery that the guide shows",
)

// vector is a delivery, and whether a receiver with the secret must accept it at a time.
type vector struct {
	Name    string      `json:"name"`
	Valid   bool        `json:"valid"`
	Secret  string      `json:"secret"`
	Now     int64       `json:"now"`
	Headers vectorHeads `json:"headers"`
	Body    string      `json:"body"`
}

// vectorHeads holds headers in the order of the guide.
type vectorHeads struct {
	ContentType      string `json:"Content-Type"`
	ServiceSignature string `json:"Service-Signature"`
	ID               string `json:"webhook-id"`
	Timestamp        int64  `json:"webhook-timestamp,string"`
	Signature        string `json:"webhook-signature"`
	EventType        string `json:"Service-Event-Type"`
	Sequence         string `json:"Service-Event-Sequence"`
}

const (
	vectorSecret = "whsec_4Gg9Vh2Qz7LbXw5TnKc8RfYd3MpJ6sAu1EyHt0BqWi7o"
	vectorNext   = "whsec_Zr5Kd8Wm1Xc6Pj9Tb4Nf7Lg2Hs0Qv3Ya5Eu8Ri1Oo6Gt"
	vectorTime   = 1795168802
	vectorsSay   = "Webhook deliveries as the service sends them. A receiver that has the secret, and whose clock " +
		"shows now (Unix seconds), must find each one valid or not, by Service-Signature and by webhook-signature alike, " +
		"with a tolerance of 300 seconds. A body is the text itself, in UTF-8."
	guideDelivery    = "../../../handlers/web/templates/samples/webhooks/delivery.http"
	publishedVectors = "../../../schemas/" + schemas.WebhookVectorsFile
)

// delivery returns the example delivery of the OpenAPI document: its body, and its headers by name.
func delivery(t *testing.T) (body []byte, shown map[string]string) {
	t.Helper()
	text, err := schemas.File(schemas.OpenAPIFile)
	check(t, err)
	var document struct {
		Webhooks struct {
			IntegrityEvent struct {
				Post struct {
					Parameters  []struct{ Name, Example string }
					RequestBody struct {
						Content map[string]struct{ Example json.RawMessage }
					}
				}
			}
		}
	}
	check(t, json.Unmarshal(text, &document))
	operation := document.Webhooks.IntegrityEvent.Post
	var compact bytes.Buffer
	check(t, json.Compact(&compact, operation.RequestBody.Content["application/json"].Example))
	shown = map[string]string{}
	for _, p := range operation.Parameters {
		shown[p.Name] = p.Example
	}
	return compact.Bytes(), shown
}

// vectors derives the test vectors from the example delivery of the OpenAPI document.
func vectors(t *testing.T) (list []vector, shown map[string]string) {
	t.Helper()
	body, shown := delivery(t)
	var event struct{ ID string }
	check(t, json.Unmarshal(body, &event))
	id, err := domain.ParseID[domain.EventID](event.ID)
	check(t, err)
	signed := func(at int64, secrets ...string) vectorHeads {
		when := time.Unix(at, 0)
		return vectorHeads{
			ContentType: "application/json", ServiceSignature: domain.SignWebhook(when, body, secrets...),
			ID: id.String(), Timestamp: at, Signature: domain.SignStandardWebhook(id, when, body, secrets...),
			EventType: shown["Service-Event-Type"], Sequence: shown["Service-Event-Sequence"],
		}
	}
	add := func(name string, valid bool, secret string, now int64, heads vectorHeads) *vector {
		list = append(list, vector{name, valid, secret, now, heads, string(body)})
		return &list[len(list)-1]
	}
	first, rotating := signed(vectorTime, vectorSecret), signed(vectorTime, vectorNext, vectorSecret)
	add("an attempt", true, vectorSecret, vectorTime, first)
	add(
		"a later attempt: the same id and body, another time", true, vectorSecret, vectorTime+305,
		signed(vectorTime+305, vectorSecret),
	)
	add("during a rotation, with the new secret", true, vectorNext, vectorTime, rotating)
	add("during a rotation, with the previous secret", true, vectorSecret, vectorTime, rotating)
	add("300 seconds old", true, vectorSecret, vectorTime+300, first)
	add("300 seconds in the future", true, vectorSecret, vectorTime-300, first)
	add("301 seconds old", false, vectorSecret, vectorTime+301, first)
	add("301 seconds in the future", false, vectorSecret, vectorTime-301, first)
	add("another secret", false, vectorNext, vectorTime, first)
	changed := add("another body", false, vectorSecret, vectorTime, first)
	changed.Body = strings.Replace(changed.Body, "current", "revoked", 1)
	moved := add("another time than the signed one", false, vectorSecret, vectorTime, first)
	moved.Headers.Timestamp++
	_, signature, _ := strings.Cut(first.ServiceSignature, ",")
	moved.Headers.ServiceSignature = strings.Split(
		signed(vectorTime+1, vectorSecret).ServiceSignature, ",",
	)[0] + "," + signature
	return list, shown
}

// TestVectorsFile compares the published file with the table. -update writes it.
func TestVectorsFile(t *testing.T) {
	list, shown := vectors(t)
	var file bytes.Buffer
	encoder := json.NewEncoder(&file)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	check(t, encoder.Encode(map[string]any{"description": vectorsSay, "vectors": list}))
	first, err := json.Marshal(list[0].Headers)
	check(t, err)
	guide := "POST /hook HTTP/1.1\n"
	for _, line := range strings.Split(strings.Trim(string(first), `{}"`), `","`) {
		name, value, _ := strings.Cut(line, `":"`)
		if guide += name + ": " + value + "\n"; name != "Content-Type" && shown[name] != value {
			t.Errorf("the example of %s in %s is not %s", name, schemas.OpenAPIFile, value)
		}
	}
	guide += "\n" + list[0].Body + "\n"
	for path, made := range map[string]string{publishedVectors: file.String(), guideDelivery: guide} {
		if *update {
			check(t, os.WriteFile(path, []byte(made), 0o644))
		}
		if published, err := os.ReadFile(path); err != nil || string(published) != made {
			t.Errorf(
				"%s is not what the table makes: run go test ./projections/queue/webhooks -run TestVectorsFile -update (%v)", path,
				err,
			)
		}
	}
}

// TestVectors: a receiver gets the expected result for each vector. Third-party libraries do so in cmd/lab/judges.
func TestVectors(t *testing.T) {
	list, _ := vectors(t)
	for _, v := range list {
		text, err := json.Marshal(v.Headers)
		check(t, err)
		var values map[string]string
		check(t, json.Unmarshal(text, &values))
		header := http.Header{}
		for name, value := range values {
			header.Set(name, value)
		}
		fresh := v.Now-v.Headers.Timestamp <= 300 && v.Headers.Timestamp-v.Now <= 300
		if err := verify(arrival{header: header, body: []byte(v.Body)}, v.Secret); v.Valid != (err == nil && fresh) {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
}
