package handlers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"integrityledger/schemas"
)

// The page of every error code names the status that the published contract has for the code.
func TestStatusOfEveryCode(t *testing.T) {
	s := open(t, options{})
	text, err := schemas.File(schemas.OpenAPIFile)
	check(t, err)
	type content struct {
		Examples map[string]struct {
			Value struct{ Error struct{ Status int } }
		}
	}
	var document struct {
		Components struct {
			Responses map[string]struct{ Content map[string]content }
		}
	}
	check(t, json.Unmarshal(text, &document))
	compared := 0
	for _, response := range document.Components.Responses {
		for code, example := range response.Content["application/json"].Examples {
			page := s.page("/errors/" + strings.ReplaceAll(strings.ToLower(code), "_", "-"))
			if status := fmt.Sprintf("HTTP %d ", example.Value.Error.Status); !contains(page.body, status) {
				t.Errorf("the page of %s does not say %s", code, status)
			}
			compared++
		}
	}
	if compared < 20 {
		t.Errorf("only %d codes were compared", compared)
	}
}
