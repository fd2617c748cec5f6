package wire

import "strings"

// AppendCSV adds a line of a CSV file (RFC 4180). No spreadsheet takes a cell for a formula: one that might begin one
// has an apostrophe before it.
func AppendCSV(b []byte, cells ...string) []byte {
	for i, cell := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		if strings.IndexAny(strings.TrimLeft(cell, " "), "=+-@\t\r\n＝＋－＠") == 0 {
			cell = "'" + cell
		}
		if strings.ContainsAny(cell, "\",\r\n") {
			cell = `"` + strings.ReplaceAll(cell, `"`, `""`) + `"`
		}
		b = append(b, cell...)
	}
	return append(b, "\r\n"...)
}
