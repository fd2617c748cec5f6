package reference

import (
	"net/http"
	"net/url"
	"strings"
)

// Curl is a request for the operation with the values of its examples, for a shell that has the variables
// INTEGRITY_BASE_URL and INTEGRITY_API_KEY. It is empty where the body is no JSON, the document has no example of it,
// or the service makes the request.
func (o Operation) Curl() string {
	if o.Delivery {
		return ""
	}
	var b strings.Builder
	b.WriteString("curl -sS")
	if o.Method != http.MethodGet {
		b.WriteString(" -X " + o.Method)
	}
	path, query := o.Path, ""
	for _, p := range o.Parameters {
		switch value := p.Example; {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(value))
		case p.In == "query" && p.Required:
			query += map[bool]string{true: "?", false: "&"}[query == ""] + p.Name + "=" + url.QueryEscape(value)
		}
	}
	b.WriteString(` "$INTEGRITY_BASE_URL` + path + query + `"`)
	if o.Key {
		b.WriteString(" \\\n  -H \"Authorization: Bearer $INTEGRITY_API_KEY\"")
	}
	if len(o.Bodies) == 0 {
		return b.String()
	}
	body := o.Bodies[0]
	if body.MediaType != "application/json" || body.Example == "" {
		return ""
	}
	b.WriteString(" \\\n  -H \"Content-Type: application/json\" \\\n  -d '" + strings.ReplaceAll(body.Example, "'", `'\''`) + "'")
	return b.String()
}
