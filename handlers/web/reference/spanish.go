package reference

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed reference.es.json
var spanish []byte

// Spanish returns the Spanish of the texts of the published documents, by their English. It has only the texts that
// pages show.
func Spanish() (map[string]string, error) {
	var texts map[string]string
	if err := json.Unmarshal(spanish, &texts); err != nil {
		return nil, fmt.Errorf("reference: the Spanish texts: %w", err)
	}
	return texts, nil
}
