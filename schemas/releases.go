package schemas

import (
	"encoding/json"
	"fmt"
)

// ReleasesFile lists the releases of the program, newest first. releases-v1.json is its schema.
const ReleasesFile = "releases.json"

// Release is a release of the program.
type Release struct {
	Version string `json:"version"` // major.minor.patch
	Date    string `json:"date"`    // RFC 3339 full-date
	// Notes say what the release brings, in the languages en and es.
	Notes map[string][]string `json:"notes"`
}

// Releases lists the releases of the program, newest first. There is at least one. An error means that the program is
// broken.
func Releases() ([]Release, error) {
	text, err := File(ReleasesFile)
	if err != nil {
		return nil, err
	}
	var list struct{ Releases []Release }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("schemas: %s: %w", ReleasesFile, err)
	}
	return list.Releases, nil
}
