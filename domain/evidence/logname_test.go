package evidence

import "testing"

func TestLogName(t *testing.T) {
	for issuer, want := range map[string]string{
		"https://ledger.example":         "ledger.example/log",
		"https://Ledger.Example:8443/A/": "ledger.example:8443/A/log",
		"http://127.0.0.1:8080":          "127.0.0.1:8080/log",
		"http://[::1]:8080":              "[::1]:8080/log",
		"https://a@ledger.example/<é>?a": "ledger.example/%3C%C3%A9%3E/log",
		"Example Ltd + Sons":             "Example%20Ltd%20%2B%20Sons/log",
		"Año":                            "A%C3%B1o/log",
	} {
		if got := LogName(issuer); got != want {
			t.Errorf("%s: %s, want %s", issuer, got, want)
		}
	}
}
