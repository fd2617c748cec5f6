package mcp

import (
	"testing"

	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
)

// The group judges the role of a key by the scope of the tool, so each tool that writes must name its scope.
func TestToolsThatWriteNameTheirScope(t *testing.T) {
	s := Face{action.New(edge.New(edge.Config{}), nil, action.Config{})}
	tools := 0
	for _, e := range []*toolset{s.ordinaryMCP(), s.integrityMCP()} {
		for _, tool := range e.tools {
			tools++
			if tool.effect != reads && tool.scope == edge.AnyScope {
				t.Errorf("%s names no scope", tool.name)
			}
		}
	}
	if tools < 10 {
		t.Errorf("%d tools", tools)
	}
}
