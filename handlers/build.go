package handlers

import (
	"cmp"
	"fmt"
	"runtime/debug"
)

// commit is set by the linker (-X integrityledger/handlers.commit=…) where a build cannot see the repository.
var commit = "unknown"

// Build is what is known of the program that runs.
type Build struct {
	Module   string `json:"module"`
	Version  string `json:"version"` // of the module; (devel) where the build does not know it
	Commit   string `json:"commit"`  // unknown where the build does not know it
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
}

// ReadBuild reads it from the program itself. It answers something, however the program was built.
func ReadBuild() Build {
	b := Build{Module: "integrityledger", Version: "(devel)", Commit: commit}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go, b.Module, b.Version = info.GoVersion, cmp.Or(info.Main.Path, b.Module), cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b Build) String() string {
	modified := ""
	if b.Modified {
		modified = " and changes"
	}
	return fmt.Sprintf("%s (commit %s%s)", b.Version, b.Commit, modified)
}
