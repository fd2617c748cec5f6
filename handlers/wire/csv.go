package wire

import "strings"

// AppendCSV appends a line of a CSV file (RFC 4180). A cell that a spreadsheet might read as a formula gets an
// apostrophe in front.
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
