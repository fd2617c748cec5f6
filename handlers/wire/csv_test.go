package wire_test

import (
	"encoding/csv"
	"strings"
	"testing"

	"integrityledger/handlers/wire"
)

// CSV readers return the original cells, and spreadsheets see no formulas.
func TestCSV(t *testing.T) {
	cells := map[string]string{
		"plain": "plain", "": "", "a,b": "a,b", `say "x"`: `say "x"`, "two\nlines": "two\nlines", "a=1": "a=1", "1-2": "1-2",
		"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "\tx": "'\tx", "\r=x": "'\r=x", " =1": "' =1",
		"＝1": "'＝1",
		`=HYPERLINK("https://example.com","a,b")`: `'=HYPERLINK("https://example.com","a,b")`,
	}
	for cell, want := range cells {
		line := string(wire.AppendCSV([]byte("head\r\n"), cell, "x"))
		body, begins := strings.CutPrefix(line, "head\r\n")
		read, err := csv.NewReader(strings.NewReader(body)).Read()
		if !begins || !strings.HasSuffix(line, ",x\r\n") || err != nil || len(read) != 2 || read[0] != want {
			t.Errorf("%q: %q is read as %q, %v", cell, line, read, err)
		}
	}
	if line := string(wire.AppendCSV(nil, "a,b", `"`)); line != "\"a,b\",\"\"\"\"\r\n" {
		t.Errorf("%q", line)
	}
}
